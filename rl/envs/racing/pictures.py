"""Pictures of the simulator for the docs: its tracks with their racing lines, and what the tyres give."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rl.envs.racing.cars import CARS, GRAVITY, Car
from rl.envs.racing.drivers import DRIVERS, EXPERT, Drivers
from rl.envs.racing.laps import Trace, draw_laps
from rl.envs.racing.line_drivers import driving_line
from rl.envs.racing.named import TRACKS, track
from rl.envs.racing.racing_line import lap_time
from rl.envs.racing.simulator import Simulator
from rl.envs.racing.vehicle import SLIP, SPEED, YAW

COLOURS = {"nominal": "#0072B2", "wet": "#D55E00"}
GG_STEPS, GG_CARS = 750, 16


def draw_tracks(path: Path, names: Sequence[str] = TRACKS) -> None:
    """Every named track with the line and the speed of a nominal car at the limit of its grip."""
    laps = [_ideal_lap(name, CARS["nominal"]) for name in names]
    titles = [f"{name}, {lap.track.centreline.length:.0f} m" for name, lap in zip(names, laps, strict=True)]
    draw_laps(laps, titles, path, "Racing lines, and lap times at the limit of a nominal car's grip")


def _ideal_lap(name: str, car: Car) -> Trace:
    line = driving_line(track(name), car, "racing")
    closed = np.concatenate([line, line[:1]])
    steps = np.linalg.norm(np.diff(closed[:, :2], axis=0), axis=1)
    seconds = lap_time(steps, line[:, 3])
    return Trace(track(name), closed[:, :2], closed[:, 3], seconds, seconds, crashed=False)


def draw_grip(path: Path, place: str = "Esses") -> None:
    """g-g diagrams: accelerations in expert laps, and in turns at full lock, lie in the circle of the tyres' grip."""
    figure = Figure(figsize=(9.5, 4.9), layout="constrained")
    figure.suptitle(f"Accelerations of cars with dry and wet tyres, in units of g (dashed: grip μ; track {place})")
    for axis, (title, points) in zip(
        figure.subplots(1, 2, sharex=True, sharey=True),
        (("expert laps", _expert_laps), ("full lock while accelerating and braking", _full_lock)),
        strict=True,
    ):
        for name, colour in COLOURS.items():
            along, left = points(CARS[name], place)
            label = f"{name}, μ = {CARS[name].grip:.2f}"
            axis.scatter(left / GRAVITY, along / GRAVITY, s=3, alpha=0.25, color=colour, linewidths=0, label=label)
            _circle(axis, CARS[name].grip, colour)
        axis.set(title=title, xlabel="left", aspect="equal")
        axis.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("forward")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, markerscale=4)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _circle(axis: Axes, radius: float, colour: str) -> None:
    angle = np.linspace(0, 2 * np.pi, 200)
    axis.plot(radius * np.cos(angle), radius * np.sin(angle), "--", color=colour, linewidth=1)


def accelerations(states: np.ndarray, seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """Along and to the left of the motion, mean over each step: [T + 1, N, 7] → [T, N] twice."""
    course = states[..., YAW] + states[..., SLIP]
    velocity = states[..., SPEED, None] * np.stack([np.cos(course), np.sin(course)], axis=-1)
    change = np.diff(velocity, axis=0) / seconds
    middle = 0.5 * (course[1:] + course[:-1])
    along = change[..., 0] * np.cos(middle) + change[..., 1] * np.sin(middle)
    left = change[..., 1] * np.cos(middle) - change[..., 0] * np.sin(middle)
    return along, left


def _expert_laps(car: Car, place: str) -> tuple[np.ndarray, np.ndarray]:
    simulator = Simulator([track(place)] * GG_CARS, [car] * GG_CARS, beams=0)
    simulator.reset(seeds=range(GG_CARS))
    drivers = Drivers(simulator, [DRIVERS[EXPERT]] * GG_CARS, range(GG_CARS))
    states = [simulator.state.copy()]
    for _ in range(GG_STEPS):
        simulator.step(drivers.act())
        states.append(simulator.state.copy())
    along, left = accelerations(np.array(states), simulator.step_seconds)
    return along[:, ~simulator.crashed].ravel(), left[:, ~simulator.crashed].ravel()


def _full_lock(car: Car, place: str) -> tuple[np.ndarray, np.ndarray]:
    """From 1 to 8 m/s, wheels turned as far as they go either way, speeding up or slowing down until a wall."""
    count = 64
    line = track(place).centreline
    simulator = Simulator([track(place)] * count, [car] * count, beams=0)
    x, y, heading = line.pose(np.linspace(0, line.length, count, endpoint=False))
    simulator.reset(seeds=range(count), poses=np.stack([x, y, heading], axis=1), speeds=np.linspace(1, 8, count))
    lock = np.where(np.arange(count) % 2, 1, -1) * car.steering_limit
    target = np.where(np.arange(count) // 2 % 2, 8.0, 0.0)
    found = []
    for _ in range(50):
        before, alive = simulator.state.copy(), ~simulator.crashed
        simulator.step(np.stack([lock, target], axis=1))
        alive &= ~simulator.crashed
        states = np.stack([before, simulator.state])[:, alive]
        found.append(np.array(accelerations(states, simulator.step_seconds))[:, 0])
    along, left = np.concatenate(found, axis=1)
    return along, left

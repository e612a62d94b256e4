"""Laps to look at: a policy's first lap on each track, coloured by speed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline

from data.dataset import Environment, environment_names
from rl.deployment import Policy
from rl.envs.racing.track import Track

ROAD, WALL = "#ececec", "#555555"


@dataclass(frozen=True, eq=False)
class Trace:
    """Where a car was at each control step, until its first lap was complete or the episode ended."""

    track: Track
    positions: np.ndarray  # [T, 2] metres
    speeds: np.ndarray  # [T] m/s
    seconds: float
    lap_time: float | None
    crashed: bool

    @property
    def outcome(self) -> str:
        if self.lap_time is not None:
            return f"{self.lap_time:.1f} s"
        return f"crash after {self.seconds:.1f} s" if self.crashed else f"no lap in {self.seconds:.0f} s"


def drive(act: Callable[[gym.Env, np.ndarray], np.ndarray], environment: Environment, seed: int) -> Trace:
    """One lap, or what becomes of it, with `act(env, observation) → action` at the wheel."""
    env = gym.make(environment.id, **environment.kwargs)
    observation, info = env.reset(seed=seed)
    simulator = env.unwrapped.simulator
    states, ended = [simulator.state[0].copy()], False
    while not ended and info["laps"] < 1:
        observation, _, terminated, truncated, info = env.step(act(env, observation))
        states.append(simulator.state[0].copy())
        ended = terminated or truncated
    lap_time = float(info["lap_time"]) if info["laps"] >= 1 else None
    positions, speeds = np.array(states)[:, :2], np.array(states)[:, 3]
    seconds = float(simulator.time[0])
    return Trace(simulator.tracks[0], positions, speeds, seconds, lap_time, bool(info["crashed"]))


def at_the_wheel(policy: Policy, row: int) -> Callable[[gym.Env, np.ndarray], np.ndarray]:
    """The deterministic policy of one client, or of the server, as a driver."""
    module = policy.module(row)

    def act(_: gym.Env, observation: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return module(torch.as_tensor(observation[None], dtype=torch.float32))[0].numpy()

    return act


def save_laps(
    policy: Policy, environments: Sequence[Environment], seed: int, row: int, path: Path, title: str
) -> list[Trace]:
    """Drive a lap in each environment and draw them all, the held-out ones marked."""
    traces = [drive(at_the_wheel(policy, row), environment, seed) for environment in environments]
    names = [
        name + " · held out" * environment.held_out
        for name, environment in zip(environment_names(environments), environments, strict=True)
    ]
    draw_laps(traces, names, path, title)
    return traces


def draw_laps(traces: Sequence[Trace], names: Sequence[str], path: Path, title: str) -> None:
    columns = min(4, len(traces))
    rows = -(-len(traces) // columns)
    figure = Figure(figsize=(3.2 * columns + 0.8, 2.5 * rows + 0.6), layout="constrained")
    figure.suptitle(title)
    fastest = max(float(trace.speeds.max()) for trace in traces)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, trace, name in zip(axes, traces, names, strict=False):
        draw_track(axis, trace.track)
        lap = draw_lap(axis, trace, fastest)
        bold = {"fontweight": "bold"} if "held out" in name else {}
        axis.set_title(f"{name}\n{trace.outcome}", fontsize=9, **bold)
    for axis in axes[len(traces) :]:
        axis.axis("off")
    figure.colorbar(lap, ax=axes.tolist(), label="speed, m/s", shrink=0.6, pad=0.01)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def draw_track(axis: Axes, track: Track) -> None:
    """The road between its walls, to scale."""
    outlines = [np.concatenate([wall, wall[:1]]) for wall in track.walls]
    outlines.sort(key=lambda wall: -np.ptp(wall[:, 0]) * np.ptp(wall[:, 1]))
    codes = [np.r_[Outline.MOVETO, np.full(len(wall) - 2, Outline.LINETO), Outline.CLOSEPOLY] for wall in outlines]
    # A filled loop within a filled loop is a hole only if it runs the other way round.
    turned = [wall if (_area(wall) > 0) == (i == 0) else wall[::-1] for i, wall in enumerate(outlines)]
    road = Outline(np.concatenate(turned), np.concatenate(codes))
    axis.add_patch(PathPatch(road, facecolor=ROAD, edgecolor=WALL, linewidth=0.8))
    axis.autoscale_view()
    axis.set_aspect("equal")
    axis.axis("off")


def draw_lap(axis: Axes, trace: Trace, fastest: float) -> LineCollection:
    pieces = np.stack([trace.positions[:-1], trace.positions[1:]], axis=1)  # [T − 1, 2, 2]
    lap = LineCollection(list(pieces), cmap="plasma", linewidth=2.2, capstyle="round")
    lap.set_array(trace.speeds[1:])
    lap.set_clim(0, fastest)
    axis.add_collection(lap)
    axis.plot(*trace.positions[0], "o", color="black", markersize=3)
    if trace.crashed and trace.lap_time is None:
        axis.plot(*trace.positions[-1], "x", color="#D00000", markersize=9, markeredgewidth=2.5)
    return lap


def _area(loop: np.ndarray) -> float:
    x, y = loop.T
    return 0.5 * float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)))

"""Drivers of different skill, for any number of cars side by side.

A driver is computed from its own car alone and has noise of its own: what it does is the same, bit for bit, whoever
else drives. Delayed actions wait in a queue, as in a slow nerve. The noise of good drivers is white: they correct what
they have just done. That of weak ones wanders (an AR(1) process), as that of a hand that drifts. It matters to whoever
learns from their logs: wandering noise can be foreseen from the yaw rate, and imitation learns to go on with it.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from data.errors import InputError, nearest
from data.randomness import generator
from rl.envs.racing import line_drivers, scan_drivers, vehicle
from rl.envs.racing.cars import GRAVITY
from rl.envs.racing.line_drivers import (
    CURVATURE,
    LINE_SPEED,
    LINES,
    ahead_on,
    driving_line,
    pure_pursuit,
    stanley,
    unit_slip,
)
from rl.envs.racing.scan_drivers import disparity_extender, follow_the_gap, free_ahead
from rl.envs.racing.vehicle import SPEED, YAW, X, Y

if TYPE_CHECKING:
    from rl.envs.racing.simulator import Simulator

KINDS = ("random", "pure_pursuit", "stanley", "follow_the_gap", "disparity_extender")
RANDOM, PURE_PURSUIT, STANLEY, FOLLOW_THE_GAP, DISPARITY_EXTENDER = range(len(KINDS))
BY_SIGHT = ("follow_the_gap", "disparity_extender")
ANSWERING = 0.08  # seconds that actuators take: a driver asks for what is right that long after the next step
WHEELBASE, PERIOD = 0.3302, 0.04  # metres and seconds that look-ahead distances are for; others' are in proportion
LONGEST_DELAY = 12  # control steps
BLOCK = 128  # steps of noise drawn at once


@dataclass(frozen=True)
class Driver:
    """A way to drive, how fast, and how badly."""

    kind: str = "pure_pursuit"
    line: str = "racing"  # or "centre"
    gain: float = 1.0  # times the speed that the line allows, or the arc and the room that are seen
    top: float = math.inf  # m/s, never asked for more
    look_ahead: tuple[float, float] = (0.6, 0.7)  # metres: Ld = first + second · v / 8
    feel: float = 0.0  # share of the tyres' slip that is allowed for in steering
    delay: int = 0  # control steps of 40 ms from seeing to acting
    steering_noise: float = 0.0  # standard deviation, radians
    speed_noise: float = 0.0  # standard deviation of the misjudged target, relative
    wander: float = 0.0  # seconds in which noise is forgotten; 0: at every step

    def __post_init__(self):
        if self.kind not in KINDS:
            raise InputError(f"There is no driver of kind '{self.kind}'; {nearest(self.kind, KINDS)}")
        if self.line not in LINES:
            raise InputError(f"A driver follows the line {' or '.join(LINES)}, not '{self.line}'.")
        if not 0 <= self.delay <= LONGEST_DELAY:
            raise InputError(f"A driver's delay is 0 to {LONGEST_DELAY} control steps, not {self.delay}.")


_CENTRE = {"line": "centre"}
_MEDIUM = {"delay": 1, "steering_noise": 0.1, "speed_noise": 0.12}
_NOVICE = {"gain": 0.45, "delay": 4, "steering_noise": 0.1, "speed_noise": 0.15, "wander": 0.4}
DRIVERS = {
    "random": Driver("random"),  # uniform over the actions, anew at every step
    # Slow, and still hits walls.
    "weave": Driver(**_CENTRE, top=1.2, delay=4, steering_noise=0.3, speed_noise=0.3, wander=0.4),
    "novice_pursuit": Driver(**_CENTRE, **_NOVICE),
    "novice_stanley": Driver("stanley", **_CENTRE, **_NOVICE),
    "novice_gap": Driver("follow_the_gap", **_NOVICE),
    "novice_reckless": Driver(gain=1.05),  # an expert's pace on an expert's line, without the feel
    "medium_pursuit": Driver(**_CENTRE, gain=0.68, **_MEDIUM),
    "medium_stanley": Driver("stanley", **_CENTRE, gain=0.6, **_MEDIUM),
    "medium_gap": Driver("follow_the_gap", gain=0.6, **_MEDIUM),
    "medium_disparity": Driver("disparity_extender", gain=0.6, **_MEDIUM),
    "expert_pursuit": Driver(feel=1.0, gain=0.8, steering_noise=0.07, speed_noise=0.12),
    "expert_stanley": Driver("stanley", feel=1.0, gain=0.72, steering_noise=0.06, speed_noise=0.12),
    "expert": Driver(feel=1.0, gain=0.84),  # without noise
}
WEAK, EXPERT = "weave", "expert"  # they score 0 and 100

_WHOLE = ("kind", "first", "count", "delay")
_REAL = (
    "gain", "top", "nearest", "further", "feel", "steering_noise", "speed_noise", "forgetting", "preview",
    "lf", "lr", "half_width", "grip", "stiffness_front", "stiffness_rear", "steering_limit", "slowest", "fastest",
)  # fmt: skip
_SETTINGS = np.dtype([(name, np.int64) for name in _WHOLE] + [(name, np.float64) for name in _REAL])


class Drivers:
    """One driver in each of the simulator's cars; `act` gives what they do now."""

    def __init__(self, simulator: "Simulator", drivers: Sequence[Driver], seeds: Sequence[int]):
        n = simulator.N
        self.simulator = simulator
        self.settings = np.zeros(n, _SETTINGS)
        self.noise = np.zeros((n, BLOCK, 2))  # drawn ahead
        self.drift = np.zeros((n, 2))  # the correlated noise now
        self.queue = np.zeros((n, LONGEST_DELAY + 1, 2))
        self.steps = np.zeros(n, np.int64)
        self.actions = np.zeros((n, 2))
        self.room = np.zeros((n, simulator.beams))
        self.random: list[np.random.Generator | None] = [None] * n
        directions = simulator.world.directions
        self.field_of_view = 2 * math.atan2(directions[-1, 1], directions[-1, 0]) if simulator.beams > 1 else 0.0
        self.lines, self.firsts = self._lines()
        for i, (driver, seed) in enumerate(zip(drivers, seeds, strict=True)):
            self.assign(i, driver, seed)

    def _lines(self) -> tuple[np.ndarray, dict]:
        """All lines that any car may follow, one after another, and where each begins."""
        firsts, parts, total = {}, [], 0
        for track, car in zip(self.simulator.tracks, self.simulator.cars, strict=True):
            for line in LINES:
                if (track, car, line) not in firsts:
                    firsts[track, car, line] = total
                    parts.append(driving_line(track, car, line))
                    total += len(parts[-1])
        return np.concatenate(parts), firsts

    def assign(self, i: int, driver: Driver, seed: int) -> None:
        """Put a driver into car i, at the start of an episode."""
        if driver.kind in BY_SIGHT and self.simulator.beams < 2:
            raise InputError(f"A driver of kind '{driver.kind}' needs a scan; give the simulator at least 2 beams.")
        track, car = self.simulator.tracks[i], self.simulator.cars[i]
        values = asdict(driver) | {
            "kind": KINDS.index(driver.kind),
            "first": self.firsts[track, car, driver.line],
            "count": len(track.centreline.points),
            "nearest": driver.look_ahead[0] * (car.lf + car.lr) / WHEELBASE,
            "further": driver.look_ahead[1] * self.simulator.step_seconds / PERIOD,
            "forgetting": math.exp(-self.simulator.step_seconds / driver.wander) if driver.wander > 0 else 0.0,
            "preview": (ANSWERING + self.simulator.step_seconds) / track.centreline.step,
            "half_width": 0.5 * car.width,
            "grip": car.grip * GRAVITY,
            "slowest": self.simulator.speeds[0],
            "fastest": self.simulator.speeds[1],
        }
        for name in (*_WHOLE, *_REAL):
            self.settings[name][i] = values[name] if name in values else getattr(car, name)
        self.random[i] = generator(seed, "racing driver")
        self.drift[i], self.queue[i], self.steps[i] = 0.0, 0.0, 0

    def act(self) -> np.ndarray:
        """[N, 2] steering angle and speed to ask for in the simulator's present state; valid until the next call."""
        for i in np.flatnonzero(self.steps % BLOCK == 0):
            uniform = self.settings["kind"][i] == RANDOM
            draw = self.random[i]
            self.noise[i] = draw.uniform(-1, 1, (BLOCK, 2)) if uniform else draw.standard_normal((BLOCK, 2))
        simulator = self.simulator
        act_all(
            self.actions, self.settings, self.lines, simulator.state, simulator.s, simulator.scan, self.field_of_view,
            self.room, self.noise, self.drift, self.queue, self.steps,
        )  # fmt: skip
        return self.actions


@njit(nogil=True)
def _act(actions, settings, lines, states, places, scans, field_of_view, room, noise, drift, queue, steps):
    for i in range(len(settings)):
        d, now = settings[i], steps[i]
        drawn = noise[i, now % BLOCK]
        if d.kind == RANDOM:
            steering = drawn[0] * d.steering_limit
            speed = d.slowest + 0.5 * (1 + drawn[1]) * (d.fastest - d.slowest)
        else:
            for k in range(2):
                drift[i, k] = d.forgetting * drift[i, k] + math.sqrt(1 - d.forgetting**2) * drawn[k]
            if d.kind == PURE_PURSUIT or d.kind == STANLEY:
                steering, speed = _on_line(d, lines[d.first : d.first + d.count], states[i], places[i])
            else:
                steering, speed = _by_sight(d, scans[i], room[i], field_of_view, states[i])
            steering += d.steering_noise * drift[i, 0]
            speed = min(d.gain * speed, d.top, d.fastest) * (1 + d.speed_noise * drift[i, 1])
        # A ring of delay + 1 places: what was asked for `delay` steps ago, and before that to stand still.
        queue[i, now % (d.delay + 1), 0], queue[i, now % (d.delay + 1), 1] = steering, speed
        oldest = queue[i, (now + 1) % (d.delay + 1)]
        actions[i, 0] = min(max(oldest[0], -d.steering_limit), d.steering_limit)
        actions[i, 1] = min(max(oldest[1], d.slowest), d.fastest)
        steps[i] = now + 1


@njit(nogil=True)
def _on_line(d, line, state, place):
    x, y, yaw, speed = state[X], state[Y], state[YAW], state[SPEED]
    coming = max(speed, 0.0) * d.preview
    slip = d.feel * unit_slip(speed, ahead_on(line, place, coming, CURVATURE), d.grip)
    yaw -= slip / d.stiffness_rear  # where the rear axle will go
    if d.kind == STANLEY:
        steering = stanley(line, place, x, y, yaw, speed, d.lf)
    else:
        look_ahead = d.nearest + d.further * max(speed, 0.0) / 8
        steering = pure_pursuit(line, place, x, y, yaw, d.lf + d.lr, d.lr, look_ahead)
    steering += slip / d.stiffness_front - slip / d.stiffness_rear
    return steering, ahead_on(line, place, coming, LINE_SPEED)


@njit(nogil=True)
def _by_sight(d, scan, room, field_of_view, state):
    if d.kind == FOLLOW_THE_GAP:
        angle = follow_the_gap(scan, room, field_of_view, d.half_width + scan_drivers.BERTH)
    else:
        angle = disparity_extender(scan, room, field_of_view, d.half_width + scan_drivers.BERTH)
    look_ahead = d.nearest + d.further * max(state[SPEED], 0.0) / 8
    steering = math.atan(2 * (d.lf + d.lr) * math.sin(angle) / look_ahead)
    # As fast as the grip allows in that arc, and as fast as one can brake from in the room ahead.
    cornering = math.sqrt(d.grip * (d.lf + d.lr) / max(abs(math.tan(steering)), 1e-6))
    free = free_ahead(scan, field_of_view, angle, d.half_width) - scan_drivers.STOPPING_ROOM
    return steering, min(cornering, math.sqrt(d.grip * max(free, 0.0)))


def _entry(sources: str):
    """The function to call; as in kernel.py its key in numba's cache covers the files that it calls into."""

    @njit(cache=True, nogil=True)
    def act_all(actions, settings, lines, states, places, scans, field_of_view, room, noise, drift, queue, steps):
        _act(actions, settings, lines, states, places, scans, field_of_view, room, noise, drift, queue, steps)
        return sources

    return act_all


_FILES = (__file__, line_drivers.__file__, scan_drivers.__file__, vehicle.__file__)
act_all = _entry(hashlib.sha256(b"".join(Path(file).read_bytes() for file in _FILES)).hexdigest())

"""How many control steps a second, through each interface, and what they are spent on.

A step is one 25 Hz control step: four physics steps, each with its crash test, projection, laps, features and a scan.
Cars drive all the time, by a crude controller that is not timed; those that crash are reset within the timed step.
Shares are found by leaving parts out: the scan by having no beams, the physics by taking three steps fewer.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np

import rl.envs
from rl.envs.racing.cars import CARS
from rl.envs.racing.named import TRACKS, track
from rl.envs.racing.simulator import Simulator, cores

CARS_AT_ONCE = 512
ROUNDS = 12
STEPS = {54: 20, 1080: 4}  # of all cars in a round
SINGLE_STEPS = 500
SPEED = 4.0  # m/s


@dataclass(frozen=True)
class Rate:
    """Control steps a second through one interface."""

    interface: str
    beams: int
    cars: int
    tracks: int
    steps_per_second: float

    def __str__(self) -> str:
        where = f"{self.cars} cars on {self.tracks} track{'s' * (self.tracks > 1)}" if self.cars > 1 else "1 car"
        return f"{self.interface}, {self.beams} beams, {where}: {self.steps_per_second:,.0f} steps/s"


@dataclass(frozen=True)
class Shares:
    """Microseconds of one car's step on one thread, by what they are for."""

    beams: int
    dynamics: float
    scan: float
    other: float  # projection, laps, features, calls

    def __str__(self) -> str:
        whole = self.dynamics + self.scan + self.other
        parts = (f"{name} {getattr(self, name) / whole:.0%}" for name in ("dynamics", "scan", "other"))
        return f"{self.beams} beams: {whole:.1f} µs a step on one thread: " + ", ".join(parts)


@dataclass(frozen=True)
class Startup:
    """Seconds of a first process, which compiles, and of the next, which finds the machine code in numba's cache."""

    cold: float
    warm: float

    def __str__(self) -> str:
        return f"import, build one environment and step it: {self.cold:.1f} s compiling, {self.warm:.1f} s cached"


def benchmark_racing() -> list[Rate | Shares | Startup]:
    """Rows for a table: rates of the simulator and of both Gymnasium interfaces, shares, start-up.

    One track's map fits into a core's cache, ten do not: that is the difference between the two.
    """
    threads, everywhere, rates = cores(), len(TRACKS), []
    for beams in STEPS:
        for count, tracks in ((1, 1), (threads, 1), (threads, everywhere)):
            name = f"Simulator, {count} thread{'s' * (count > 1)}"
            rates.append((name, beams, CARS_AT_ONCE, tracks, _simulator(beams, threads=count, tracks=tracks)))
        for tracks in (1, everywhere):
            rates.append(("Gymnasium vector", beams, CARS_AT_ONCE, tracks, _vector(beams, tracks)))
        rates.append(("Gymnasium single", beams, 1, 1, _single(beams)))
    parts = [_simulator(beams) for beams in (*STEPS, 0)] + [_simulator(0, substeps=1)]
    best = _best([run for *_, run in rates] + parts)
    rows = [Rate(*facts, 1 / seconds) for (*facts, _), seconds in zip(rates, best, strict=False)]
    *whole, blind, one_physics_step = best[-len(parts) :]
    dynamics = 4 * max(blind - one_physics_step, 0.0) / 3
    shares = [
        Shares(beams, *(1e6 * part for part in (dynamics, seconds - blind, blind - dynamics)))
        for beams, seconds in zip(STEPS, whole, strict=True)
    ]
    return [*rows, *shares, _startup()]


def steer(simulator: Simulator) -> np.ndarray:
    """[N, 2] back to the centreline, at one speed."""
    offset, sin_error = simulator.features[:, 0], simulator.features[:, 1]
    return np.stack([-0.4 * offset - 1.0 * sin_error, np.full(simulator.N, SPEED)], axis=1)


def _best(runs: list[Callable[[], float]]) -> list[float]:
    """The best of several rounds, in turns, so that a slow moment of the machine meets all; the first warms up."""
    rounds = [[run() for run in runs] for _ in range(ROUNDS + 1)]
    return [min(seconds) for seconds in zip(*rounds[1:], strict=True)]


def _timed(step: Callable[[np.ndarray], object], simulator: Simulator, steps: int) -> Callable[[], float]:
    """A function that gives the seconds of one car's step."""

    def run() -> float:
        taken = 0.0
        for _ in range(steps):
            actions = steer(simulator)
            begun = time.perf_counter()
            step(actions)
            taken += time.perf_counter() - begun
        return taken / (steps * simulator.N)

    return run


def _simulator(beams: int, substeps: int = 4, threads: int = 1, tracks: int = 1) -> Callable[[], float]:
    places = [track(TRACKS[i % tracks]) for i in range(CARS_AT_ONCE)]
    simulator = Simulator(places, [CARS["nominal"]] * CARS_AT_ONCE, beams=beams, substeps=substeps, threads=threads)
    simulator.reset(seeds=range(CARS_AT_ONCE))

    def step(actions: np.ndarray) -> None:
        simulator.step(actions)
        crashed = np.flatnonzero(simulator.crashed)
        if len(crashed):
            simulator.reset(crashed)

    return _timed(step, simulator, STEPS.get(beams, 20))


def _vector(beams: int, tracks: int) -> Callable[[], float]:
    places = [TRACKS[i % tracks] for i in range(CARS_AT_ONCE)]
    envs = gym.make_vec(rl.envs.CUSTOM, num_envs=CARS_AT_ONCE, track=places, beams=beams)
    envs.reset(seed=0)
    return _timed(envs.step, envs.unwrapped.simulator, STEPS[beams])


def _single(beams: int) -> Callable[[], float]:
    env = gym.make(f"FedRacing/{TRACKS[0]}-v0", beams=beams, disable_env_checker=True)
    env.reset(seed=0)

    def step(actions: np.ndarray) -> None:
        *_, terminated, truncated, _ = env.step(actions[0])
        if terminated or truncated:
            env.reset()

    return _timed(step, env.unwrapped.simulator, SINGLE_STEPS)


def _startup() -> Startup:
    begin = f"""import gymnasium, rl.envs
env = gymnasium.make("FedRacing/{TRACKS[0]}-v0")
env.reset(seed=0)
env.step(env.action_space.sample())"""
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            begun = time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", begin],
                check=True,
                env=os.environ | {"NUMBA_CACHE_DIR": folder},
                cwd=Path(rl.envs.__file__).parents[2],
            )
            seconds.append(time.perf_counter() - begun)
    return Startup(*seconds)

"""What makes driving a task: observations, rewards and ends of episodes, for N cars in one simulator."""

import dataclasses
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from gymnasium.spaces import Box

from data.centreline import LOOK_AHEAD
from data.errors import InputError, nearest
from rl.envs.racing.cars import TIME_STEP, Car, named_car
from rl.envs.racing.lidar import RANGE
from rl.envs.racing.named import track as named_track
from rl.envs.racing.simulator import STARTS, Simulator
from rl.envs.racing.track import Track
from rl.envs.racing.vehicle import TYRES

OBSERVATIONS = ("scan", "frenet")
REWARDS = ("progress", "cth", "lap")
OFFSET, COS_ERROR, SPEED, YAW_RATE = 0, 2, 3, 4  # columns of the simulator's features
FAST = 8.0  # m/s that the cth reward counts as one
EPISODE_METRICS = ("progress", "laps", "lap_completed", "lap_time", "crashed")


@dataclass(frozen=True)
class Rules:
    """All settings of a race but who drives where."""

    observation: str = "scan"  # stacked scans, speed and yaw rate; or "frenet": features of the centreline ahead
    beams: int = 54
    stack: int = 2  # scans, newest first
    reward: str = "progress"  # 100 a lap, bit by bit; "cth": fast, straight and central; "lap": +1 a lap, −1 a crash
    max_steps: int = 1000  # control steps until an episode is truncated
    laps: int | None = None  # truncate when so many are complete
    start: str = "anywhere"  # or "line"
    tyres: str = "brush"  # or "linear"
    look_ahead: Sequence[float] = LOOK_AHEAD  # metres; of the Frenet features
    substeps: int = 4  # physics steps of 0.01 s a control step
    speeds: Sequence[float] = (0.0, 8.0)  # range of the speed action, m/s

    def __post_init__(self):
        for name, known in (("observation", OBSERVATIONS), ("reward", REWARDS), ("start", STARTS), ("tyres", TYRES)):
            if getattr(self, name) not in known:
                raise InputError(f"There is no {name} '{getattr(self, name)}'; {nearest(getattr(self, name), known)}")
        for name in ("beams", "stack", "max_steps", "substeps", "laps"):
            value = getattr(self, name)
            if value is None and name == "laps":
                continue
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
                raise InputError(f"{name} = {value!r} is impossible; choose a whole number of at least 1.")

    @classmethod
    def named(cls, settings: Mapping[str, object]) -> "Rules":
        """Rules by keyword; a name that is none of theirs is an InputError."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in settings:
            if name not in known:
                raise InputError(f"A race has no setting '{name}'; {nearest(name, [*known, 'track', 'car'])}")
        return cls(**settings)

    @property
    def step_seconds(self) -> float:
        return self.substeps * TIME_STEP


class Race:
    """N episodes side by side; `reset` and `step` act on the cars they are told to and leave the others alone."""

    def __init__(self, tracks: Sequence[Track], cars: Sequence[Car], rules: Rules):
        self.rules = rules
        scanning = rules.observation == "scan"
        self.simulator = Simulator(
            tracks,
            cars,
            beams=rules.beams if scanning else 0,
            look_ahead=() if scanning else rules.look_ahead,
            tyres=rules.tyres,
            substeps=rules.substeps,
            speeds=rules.speeds,
        )
        self.steps = np.zeros(self.simulator.N, np.int64)
        self.scans = np.zeros((self.simulator.N, rules.stack * rules.beams if scanning else 0), np.float32)
        self.action_space = _action_space(cars, rules)
        self.observation_space = _observation_space(rules, self.simulator.features.shape[1])

    def reset(self, which: np.ndarray, seeds: Sequence[int | np.random.Generator] | None = None) -> None:
        self.simulator.reset(which, seeds, start=self.rules.start)
        self.steps[which] = 0
        if self.rules.observation == "scan":
            self.scans[which] = np.tile(self.simulator.scan[which], self.rules.stack)

    def step(self, actions: np.ndarray, which: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(rewards, terminated, truncated), all [N]; they mean nothing for cars that are not in `which`."""
        simulator, rules = self.simulator, self.rules
        progress, laps = simulator.progress.copy(), simulator.laps.copy()
        simulator.step(actions, which)
        self.steps += 1
        if rules.observation == "scan":
            older = self.scans
            self.scans = np.empty_like(older)
            self.scans[:, : rules.beams] = simulator.scan
            self.scans[:, rules.beams :] = older[:, : -rules.beams or None]
        terminated = simulator.crashed.copy()
        ended = self.steps >= rules.max_steps
        if rules.laps is not None:
            ended |= simulator.laps >= rules.laps
        return self._rewards(progress, laps), terminated, ended & ~terminated

    def _rewards(self, progress: np.ndarray, laps: np.ndarray) -> np.ndarray:
        simulator = self.simulator
        if self.rules.reward == "progress":
            return 100.0 * (simulator.progress - progress)
        if self.rules.reward == "lap":
            return (simulator.laps - laps) - simulator.crashed.astype(np.float64)
        offset, cos_error, speed = (simulator.features[:, k].astype(np.float64) for k in (OFFSET, COS_ERROR, SPEED))
        return np.maximum(speed / FAST * cos_error - np.abs(offset), 0.0)

    def observations(self) -> np.ndarray:
        """[N, S] float32, a new array."""
        features = self.simulator.features
        if self.rules.observation == "frenet":
            return features.copy()
        return np.concatenate([self.scans, features[:, SPEED : YAW_RATE + 1]], axis=1)

    def info(self) -> dict[str, np.ndarray]:
        """Of each car's episode so far; lap_time is the mean of its complete laps, NaN before the first."""
        simulator = self.simulator
        laps = simulator.laps.copy()
        lap_time = np.divide(simulator.lap_end, laps, out=np.full(len(laps), np.nan), where=laps > 0)
        values = simulator.progress.copy(), laps, laps > 0, lap_time, simulator.crashed.copy()
        return dict(zip(EPISODE_METRICS, values, strict=True))


def _action_space(cars: Sequence[Car], rules: Rules) -> Box:
    """The same for all cars of a size: what a policy learned in one car it can do in another."""
    limits = sorted({car.steering_limit for car in cars})
    if len(limits) > 1:
        raise InputError(f"Cars that share an environment steer to different limits {limits}; give them one.")
    (low, high), steer = rules.speeds, limits[0]
    return Box(np.array([-steer, low], np.float32), np.array([steer, high], np.float32), dtype=np.float32)


def _observation_space(rules: Rules, features: int) -> Box:
    if rules.observation == "frenet":
        return Box(-np.inf, np.inf, (features,), np.float32)
    beams = rules.stack * rules.beams
    low = np.concatenate([np.zeros(beams), [-np.inf, -np.inf]]).astype(np.float32)
    high = np.concatenate([np.full(beams, RANGE), [np.inf, np.inf]]).astype(np.float32)
    return Box(low, high, dtype=np.float32)


def entrants(count: int, track, car, track_options: Mapping[str, object] | None) -> tuple[list[Track], list[Car]]:
    """Tracks and cars of `count` environments: one of each for all, or a list with one for each."""
    if track is None:
        raise InputError("No track is named; say track=…, a name or the path of a file.")
    tracks = [named_track(name, **(track_options or {})) for name in _each(track, count, "tracks")]
    return tracks, [named_car(one) for one in _each(car, count, "cars")]


def _each(wanted, count: int, what: str) -> list:
    if not isinstance(wanted, (list, tuple)):
        return [wanted] * count
    if len(wanted) != count:
        raise InputError(f"{len(wanted)} {what} for {count} environments; give one for each, or one for all.")
    return list(wanted)

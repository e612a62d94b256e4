"""Racing logs as Minari datasets, one for each track, car and level.

`fedrl/racing/oval-wet-mixed-v0` is the Oval in a wet car by drivers of all skills, seen by scans;
`fedrl/racing/oval-wet-mixed-frenet-v0` is the same driving, seen as Frenet features. Another number after the v is
another seed. Tracks, cars and drivers have the same numbers in every dataset, so that several can be put together.
"""

import copy
import re
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from data.errors import InputError, nearest
from data.minari_writing import ensure_minari
from data.randomness import generator
from data.recipes import register
from rl.envs.racing.cars import CARS
from rl.envs.racing.layouts import LAYOUTS
from rl.envs.racing.levels import LEVELS, due, in_order

BEGINNING = "fedrl/racing/"
EXAMPLE = f"{BEGINNING}oval-nominal-expert-v0"
TRANSITIONS = 10_000
VERSION = 1  # of the recipe; raise it when a change to tracks, cars, drivers or levels changes the logs
_TRACKS = {name.lower(): name for name in LAYOUTS}
_GUESS = 300  # steps that an episode is expected to have before the driver's first one has ended


@dataclass(frozen=True)
class Log:
    """What the id of a log says."""

    track: str
    car: str
    level: str
    observation: str
    number: int

    @classmethod
    def of(cls, dataset_id: str) -> "Log":
        found = re.fullmatch(rf"{BEGINNING}(\w+)-(\w+)-(\w+?)(-frenet)?-v(\d+)", dataset_id)
        if not found:
            raise InputError(
                f"'{dataset_id}' is no racing log; ids are {BEGINNING}<track>-<car>-<level>-v0, "
                f"with -frenet before -v0 for Frenet features, e.g. '{EXAMPLE}'."
            )
        track, car, level, frenet, number = found.groups()
        for what, word, known in (("track", track, _TRACKS), ("car", car, CARS), ("level", level, LEVELS)):
            if word not in known:
                raise InputError(f"'{dataset_id}' names no known {what}: '{word}'; {nearest(word, known)}")
        return cls(_TRACKS[track], car, level, "frenet" if frenet else "scan", int(number))

    def spec(self) -> gym.envs.registration.EnvSpec:
        """Of the environment that was driven in: only what differs from its defaults."""
        spec = copy.deepcopy(gym.spec(f"FedRacing/{self.track}-v0"))
        spec.kwargs["car"] = self.car
        if self.observation != "scan":
            spec.kwargs["observation"] = self.observation
        return spec


def racing_id(track: str, car: str, level: str, observation: str = "scan", seed: int = 0) -> str:
    """The id of a log; what it names is checked when it is read again."""
    seen = "" if observation == "scan" else f"-{observation}"
    return f"{BEGINNING}{track.lower()}-{car}-{level}{seen}-v{seed}"


def ensure_racing(dataset_id: str, transitions: int = TRANSITIONS, seed: int | None = None) -> str:
    """Make the logs unless they are there; gives the id that `load` and `minari.load_dataset` take.

    seed: None takes the number of the id, so that …-v1 is other driving than …-v0.
    """
    import rl.envs  # noqa: F401  registers the environments
    from rl.envs.racing.drivers import DRIVERS
    from rl.envs.racing.references import references

    log = Log.of(dataset_id)
    seed = log.number if seed is None else seed
    if transitions < 1:
        raise InputError(f"{transitions} transitions are too few; log at least one.")
    if seed < 0:
        raise InputError(f"Seed {seed} is negative; choose 0 or more.")
    spec = log.spec()
    drivers = {name: round(steps) for name, steps in due(log.level, transitions, transitions).items()}
    return ensure_minari(
        dataset_id,
        {"transitions": transitions, "seed": seed, "level": log.level, "version": VERSION},
        lambda: _buffers(log, transitions, seed),
        env=spec,
        algorithm=f"drivers of level '{log.level}', by steps: {drivers}",
        references=lambda: references(spec.id, spec.kwargs),
        labels={"driver": list(DRIVERS), "car": list(CARS), "track": list(LAYOUTS)},
    )


def drive_log(log: Log, transitions: int, seed: int) -> list:
    """Episodes with exactly so many steps; the last is cut where there would be more.

    The seeds of episodes depend on track, car, level and driver, and not on what is observed.
    """
    from rl.envs.racing.cars import named_car
    from rl.envs.racing.named import track
    from rl.envs.racing.race import Rules
    from rl.envs.racing.rollout import drive

    streams = Streams(log, transitions, seed)
    width = min(max(transitions // 1000, 24), 96)  # more would wait for the last ones to finish
    drive(track(log.track), named_car(log.car), Rules(observation=log.observation), streams, width)
    episodes = in_order(log.level, streams.in_sequence(), transitions)
    surplus = sum(map(len, episodes)) - transitions
    return [*episodes[:-1], episodes[-1].cut(len(episodes[-1]) - surplus)]


class Streams:
    """Episodes of each driver of a level, numbered, until each has as many steps as are due to him."""

    def __init__(self, log: Log, transitions: int, seed: int):
        self.purpose, self.seed = f"racing {log.track} {log.car} {log.level}", seed
        self.due = due(log.level, transitions, transitions)
        self.drivers = set(self.due)
        self.started = dict.fromkeys(self.due, 0)
        self.driven: dict[str, dict[int, object]] = {driver: {} for driver in self.due}
        self.steps = dict.fromkeys(self.due, 0)

    def next(self):
        from rl.envs.racing.drivers import DRIVERS
        from rl.envs.racing.rollout import Entry

        driver = max(self.due, key=self._missing)
        if self._missing(driver) <= 0:
            return None
        index = self.started[driver]
        self.started[driver] += 1
        drawn = generator(self.seed, self.purpose, list(DRIVERS).index(driver), index)
        return Entry(driver, int(drawn.integers(2**31)), index)

    def _missing(self, driver: str) -> float:
        """Steps that are due and not expected of the episodes under way."""
        ended = len(self.driven[driver])
        expected = self.steps[driver] / ended if ended else _GUESS
        return self.due[driver] - self.steps[driver] - (self.started[driver] - ended) * expected

    def add(self, episode) -> None:
        driver = episode.entry.driver
        self.driven[driver][episode.entry.index] = episode
        self.steps[driver] += len(episode)

    def in_sequence(self) -> dict[str, list]:
        return {driver: [episodes[k] for k in range(len(episodes))] for driver, episodes in self.driven.items()}


def _buffers(log: Log, transitions: int, seed: int) -> list:
    from minari.data_collector import EpisodeBuffer

    from rl.envs.racing.drivers import DRIVERS

    buffers = []
    for episode in drive_log(log, transitions, seed):
        steps = len(episode)
        columns = {
            "driver": list(DRIVERS).index(episode.entry.driver),
            "car": list(CARS).index(log.car),
            "track": list(LAYOUTS).index(log.track),
        }
        last = np.arange(steps) == steps - 1
        buffers.append(
            EpisodeBuffer(
                seed=episode.entry.seed,
                observations=episode.observations,
                actions=episode.actions,
                rewards=episode.rewards,
                terminations=last & episode.crashed,
                truncations=last & (not episode.crashed),
                # Minari logs one info more than steps, at the reset.
                infos={name: np.full(steps + 1, value, np.int32) for name, value in columns.items()},
            )
        )
    return buffers


register(BEGINNING, ensure_racing, [f"{BEGINNING}{track}-nominal-expert-v0" for track in _TRACKS], VERSION)

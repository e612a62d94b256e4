"""Episodes of named drivers, many side by side, under the very rules of the Gymnasium environments.

An episode is decided by its driver and its seed: `env.reset(seed=…)` and the logged actions give the same observations
and rewards. How many run at once changes nothing but the time it takes.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import gymnasium as gym
import numpy as np

from rl.envs.racing.cars import Car
from rl.envs.racing.drivers import BY_SIGHT, DRIVERS, Drivers
from rl.envs.racing.race import Race, Rules
from rl.envs.racing.track import Track


@dataclass(frozen=True)
class Entry:
    """An episode to come."""

    driver: str
    seed: int
    index: int = 0  # within the driver's own episodes


@dataclass(frozen=True, eq=False)
class Episode:
    """An episode that was driven; T steps."""

    entry: Entry
    observations: np.ndarray  # [T + 1, S] float32
    actions: np.ndarray  # [T, 2] float32
    rewards: np.ndarray  # [T]
    crashed: bool  # a terminal; otherwise the time was over

    def __len__(self) -> int:
        return len(self.rewards)

    def cut(self, steps: int) -> "Episode":
        """Its first steps, as if the time had been over then."""
        if steps >= len(self):
            return self
        return Episode(self.entry, self.observations[: steps + 1], self.actions[:steps], self.rewards[:steps], False)


class Schedule(Protocol):
    """Who drives next, as long as somebody does; told of every episode that was driven."""

    drivers: Collection[str]  # all that there may be

    def next(self) -> Entry | None: ...

    def add(self, episode: Episode) -> None: ...


class Listed:
    """A fixed list of entries; episodes come out in its order."""

    def __init__(self, entries: Iterable[Entry]):
        self.entries = list(entries)
        self.waiting = deque(self.entries)
        self.drivers = {entry.driver for entry in self.entries}
        self.driven: dict[Entry, Episode] = {}

    def next(self) -> Entry | None:
        return self.waiting.popleft() if self.waiting else None

    def add(self, episode: Episode) -> None:
        self.driven[episode.entry] = episode

    @property
    def episodes(self) -> list[Episode]:
        return [self.driven[entry] for entry in self.entries]


class _Field:
    """A race whose drivers see, if they need to, even where its observations are no scans."""

    def __init__(self, track: Track, car: Car, rules: Rules, drivers: Collection[str], width: int):
        self.race = self.seen = Race([track] * width, [car] * width, rules)
        if rules.observation != "scan" and any(DRIVERS[driver].kind in BY_SIGHT for driver in drivers):
            # The same cars once more, with a LiDAR: sensors do not change how a car moves.
            self.seen = Race([track] * width, [car] * width, replace(rules, observation="scan", stack=1))
        self.drivers = Drivers(self.seen.simulator, [DRIVERS["random"]] * width, [0] * width)

    def start(self, slots: Sequence[int], entries: Sequence[Entry]) -> None:
        for race in {id(race): race for race in (self.race, self.seen)}.values():
            race.reset(np.array(slots), [gym.utils.seeding.np_random(entry.seed)[0] for entry in entries])
        for slot, entry in zip(slots, entries, strict=True):
            self.drivers.assign(slot, DRIVERS[entry.driver], entry.seed)

    def step(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(actions, rewards, terminated, truncated) of all cars; only those in `slots` move."""
        space = self.race.action_space
        actions = np.clip(self.drivers.act().astype(np.float32), space.low, space.high)
        if self.seen is not self.race:
            self.seen.step(actions, slots)
        return actions, *self.race.step(actions, slots)

    def close(self) -> None:
        self.race.simulator.close()
        self.seen.simulator.close()


def drive(track: Track, car: Car, rules: Rules, schedule: Schedule, width: int) -> None:
    """Drive all episodes of the schedule, `width` at a time."""
    field = _Field(track, car, rules, schedule.drivers, width)
    size = field.race.observation_space.shape[0]
    observations = np.empty((width, rules.max_steps + 1, size), np.float32)
    actions = np.empty((width, rules.max_steps, 2), np.float32)
    rewards = np.empty((width, rules.max_steps))
    lengths = np.zeros(width, np.int64)
    entries: list[Entry | None] = [None] * width

    def fill() -> None:
        """A new episode in every free slot, as far as there are any."""
        fresh = []
        for slot in range(width):
            if entries[slot] is None and (entry := schedule.next()) is not None:
                entries[slot] = entry
                fresh.append(slot)
        if fresh:
            field.start(fresh, [entries[slot] for slot in fresh])
            lengths[fresh] = 0
            observations[fresh, 0] = field.race.observations()[fresh]

    fill()
    while any(entries):
        slots = np.array([slot for slot in range(width) if entries[slot] is not None])
        at = lengths[slots]
        acted, earned, terminated, truncated = field.step(slots)
        actions[slots, at], rewards[slots, at] = acted[slots], earned[slots]
        observations[slots, at + 1] = field.race.observations()[slots]
        lengths[slots] += 1
        ended = slots[(terminated | truncated)[slots]]
        for slot in ended:
            n = lengths[slot]
            episode = observations[slot, : n + 1].copy(), actions[slot, :n].copy(), rewards[slot, :n].copy()
            schedule.add(Episode(entries[slot], *episode, crashed=bool(terminated[slot])))
            entries[slot] = None
        if len(ended):
            fill()
    field.close()

"""Who takes part in a round, how far they get, and who is lost: all drawn from the run's seed."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.errors import InputError
from data.randomness import generator

TRACE = "it must be a JSON list with a list of clients for each round, such as [[0, 1], [1, 2]]."
SAMPLING = ("uniform", "cyclic", "size")


def participants_per_round(clients: int, fraction: float) -> int:
    """At least one, at most all."""
    return min(clients, max(1, round(fraction * clients)))


@dataclass(frozen=True, eq=False)
class Participation:
    """The clients of a federation as the server meets them.

    A client has a speed of its own through the run (log-normal with spread `slowness`). Within `time_limit`, in the
    time that a client of speed 1 needs for all of its updates, a slow one does as many as it can (`late=partial`), or
    is not waited for (`late=drop`).
    """

    sizes: np.ndarray  # rows of each client
    fraction: float
    seed: int
    sampling: str = "uniform"
    available: tuple[tuple[int, ...], ...] | None = None  # for each round in turn, who can be reached
    slowness: float = 0.0
    time_limit: float | None = None
    late: str = "partial"
    drop_before: float = 0.0
    drop_after: float = 0.0

    def draw(self, round: int, attempt: int = 0) -> list[int]:
        """Those that are asked, in ascending order; another attempt at the same round asks others."""
        everyone = len(self.sizes)
        pool = np.arange(everyone)
        if self.available is not None:
            pool = np.array(self.available[(round - 1) % len(self.available)], dtype=int)
        count = min(len(pool), participants_per_round(everyone, self.fraction))
        if count == len(pool):
            return pool.tolist()
        if self.sampling == "cyclic":
            place = np.searchsorted(pool, ((round - 1 + attempt) * count) % everyone)
            return sorted(pool[(place + np.arange(count)) % len(pool)].tolist())
        shares = self.sizes[pool] / self.sizes[pool].sum() if self.sampling == "size" else None
        key = (round,) if attempt == 0 else (round, attempt)
        return sorted(generator(self.seed, "participants", *key).choice(pool, count, replace=False, p=shares).tolist())

    def steps(self, client: int, updates: int) -> int:
        """How many of a round's updates a client takes before the time is up; 0 if it is not waited for."""
        if self.time_limit is None:
            return updates
        speed = np.exp(np.clip(self.slowness * generator(self.seed, "speed", client).standard_normal(), -50, 50))
        done = int(min(updates, updates * self.time_limit * speed + 1e-9))
        return done if done == updates or self.late == "partial" else 0

    def lost(self, client: int, round: int, attempt: int = 0) -> str | None:
        """When a client is lost in this round: `before` it trains, `after` it has trained, or not at all."""
        if not self.drop_before and not self.drop_after:
            return None
        before, after = generator(self.seed, "dropout", client, round, attempt).random(2)
        return "before" if before < self.drop_before else "after" if after < self.drop_after else None


def read_availability(path: str | None, clients: int) -> tuple[tuple[int, ...], ...] | None:
    """A JSON file: a list of rounds, each a list of the clients that can be reached in it."""
    if path is None:
        return None
    try:
        rounds = json.loads(Path(path).expanduser().read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"clients.available: '{path}' cannot be read ({error}); {TRACE}") from error
    listed = isinstance(rounds, list) and all(isinstance(round, list) for round in rounds)
    if not listed or not all(type(client) is int for round in rounds for client in round):
        raise InputError(f"clients.available: '{path}' holds something else; {TRACE}")
    trace = tuple(tuple(sorted(set(round))) for round in rounds)
    strangers = sorted({client for round in trace for client in round if not 0 <= client < clients})
    if not trace or not all(trace) or strangers:
        fault = f"names client {strangers[0]} of {clients}" if strangers else "has no round, or one that nobody is in"
        raise InputError(f"clients.available: '{path}' {fault}; every round needs clients from 0 to {clients - 1}.")
    return trace

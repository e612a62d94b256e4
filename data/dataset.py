"""The columnar dataset: what every loader produces and every split, sampler and learner reads."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True)
class References:
    """Returns that mean score 0 and score 100, and where they come from."""

    low: float
    high: float
    label: str


@dataclass(frozen=True)
class Environment:
    """Where rows come from and a policy is played: a Gymnasium id, its settings, and what scores 0 and 100 there."""

    id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    references: References | None = None
    name: str = ""  # for tables; empty: made from the id and the settings
    held_out: bool = False  # no row comes from it: for evaluation only

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The returns that score 0 and 100, if they are known."""
        return self.references and (self.references.low, self.references.high)

    def is_like(self, other: "Environment") -> bool:
        """The same simulator with the same settings, whatever its references are called."""
        return (self.id, dict(self.kwargs)) == (other.id, dict(other.kwargs))


def environment_names(environments: Sequence[Environment]) -> list[str]:
    """Short and distinct: `Oval wet`, `Oval nominal`; ids are cut and settings left out where they do not differ."""
    if len(environments) == 1:
        return [environments[0].name or environments[0].id]
    differing = sorted(
        key
        for key in {key for environment in environments for key in environment.kwargs}
        if len({str(environment.kwargs.get(key)) for environment in environments}) > 1
    )
    names = []
    for environment in environments:
        settings = [str(environment.kwargs[key]) for key in differing if key in environment.kwargs]
        stem = re.sub(r"^.*/|-v\d+$", "", environment.id)
        names.append(environment.name or " ".join([stem, *settings]))
    return names if len(set(names)) == len(names) else [f"{name} ({i})" for i, name in enumerate(names)]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Transitions as columns of N rows, episodes lying one after another.

    `terminals` (the task ended: do not bootstrap) and `timeouts` (the log ended: bootstrap) are never merged.
    A row that has no next state is not `trainable`; its reward still counts in the episode's return.

    The columns are read, never written: where a log stores no next states, `next_observations` is
    `observations` one row on, in the same memory. What it holds at a terminal has no meaning.
    """

    name: str
    observations: np.ndarray  # [N, S] float32
    actions: np.ndarray  # [N, A] float32, in the environment's units
    rewards: np.ndarray  # [N] float32
    next_observations: np.ndarray  # [N, S] float32
    terminals: np.ndarray  # [N] bool
    timeouts: np.ndarray  # [N] bool
    trainable: np.ndarray  # [N] bool
    action_low: np.ndarray  # [A] float32
    action_high: np.ndarray  # [A] float32
    environments: tuple[Environment, ...] = ()  # the one it was logged in; several if it was put together
    shifted: bool = False  # next states are not stored: they are the observations of the row that follows
    columns: dict[str, np.ndarray] = field(default_factory=dict)  # free-form integer columns, e.g. source
    labels: dict[str, list[str]] = field(default_factory=dict)  # names of a column's values
    notes: tuple[str, ...] = ()  # what loading clipped, marked or left out, one sentence each

    def __len__(self) -> int:
        return len(self.rewards)

    @cached_property
    def ends(self) -> np.ndarray:
        """[E] the last row of each episode."""
        return np.flatnonzero(self.terminals | self.timeouts)

    @cached_property
    def starts(self) -> np.ndarray:
        """[E] the first row of each episode."""
        return np.concatenate([[0], self.ends[:-1] + 1])

    @cached_property
    def returns(self) -> np.ndarray:
        """[E] undiscounted return of each episode, float64."""
        return np.add.reduceat(self.rewards.astype(np.float64), self.starts)

    def fingerprint(self) -> str:
        """Hash of every column: equal for equal data, wherever it was loaded from."""
        digest = hashlib.blake2b(digest_size=16)
        columns = {name: getattr(self, name) for name in _HASHED}
        columns |= {f"columns/{name}": self.columns[name] for name in sorted(self.columns)}
        for name, column in columns.items():
            # Shape and type go in too: the same bytes can be [4, 2] or [2, 4].
            digest.update(f"{name} {column.dtype.str} {column.shape};".encode())
            digest.update(np.ascontiguousarray(column).data)
        return digest.hexdigest()


_HASHED = (
    "observations",
    "actions",
    "rewards",
    "next_observations",
    "terminals",
    "timeouts",
    "trainable",
    "action_low",
    "action_high",
)

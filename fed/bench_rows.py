"""The rows of `scripts/bench.py learners`, as our sampler draws them and as flat columns for d3rlpy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from data.batch import Batch
from data.dataset import Dataset
from data.errors import InputError
from data.loaders import load
from data.normaliser import Moments, Normaliser
from data.sampler import Sampler
from data.shards import Shards
from fed.bench_settings import BATCH, SEEDS, SETS
from rl.deployment import Policy
from rl.learner import Learner, Task
from rl.policies import Actor


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one set, owned by every seed alike, and how they are normalised."""

    name: str
    dataset: Dataset
    shards: Shards  # a client for each seed

    @classmethod
    def load(cls, name: str, folder: Path) -> "Rows":
        files = {file: folder / file for file in SETS[name]}
        for path in files.values():
            if not path.is_file():
                raise InputError(f"There is no '{path}'; say with --data which folder holds {', '.join(files)}.")
        dataset = load({Path(file).stem: str(path) for file, path in files.items()})
        return cls(name, dataset, same_rows(leading_episodes(dataset, list(SETS[name].values())), SEEDS))

    @cached_property
    def normaliser(self) -> Normaliser:
        return Normaliser.pooled([Moments.of(self.dataset, self.shards.rows(0))], observations=True, rewards="scale")

    @property
    def task(self) -> Task:
        return Task(self.dataset.observations.shape[1], self.dataset.actions.shape[1], self.normaliser.reward_bound)

    def batches(self, learner: Learner, updates: int) -> Iterator[Batch]:
        """One round of a cohort that has a row for each of the first seeds."""
        return self.sampler(learner).batches(range(learner.clients), round=1, updates=updates)

    def sampler(self, learner: Learner) -> Sampler:
        return Sampler(
            self.dataset,
            self.shards,
            self.normaliser,
            batch_size=BATCH,
            noise_draws=learner.noise_draws,
            seed=0,
            rounds=1,
            returns_discount=learner.returns_discount,
            window=learner.window,
        )

    def policy(self, actor: Actor, theta: torch.Tensor) -> Policy:
        arrays = (self.normaliser.mean, self.normaliser.std, self.dataset.action_low, self.dataset.action_high)
        return Policy(actor, theta, *map(torch.from_numpy, arrays))


def leading_episodes(dataset: Dataset, rows: Sequence[int]) -> Shards:
    """One client with the first whole episodes of each source, at most `rows` of them."""
    source = dataset.columns["source"]
    before = np.searchsorted(source, source[dataset.starts])  # the first row of each episode's source
    fits = dataset.ends + 1 - before <= np.asarray(rows)[source[dataset.starts]]
    pieces = np.stack([dataset.starts, dataset.ends], axis=1)[fits]
    return Shards.of_pieces(dataset, pieces, np.zeros(len(pieces), np.int64), ["pooled"])


def same_rows(shards: Shards, clients: int) -> Shards:
    """As many clients, each of which owns the rows of the one: they differ in what they draw."""
    return replace(
        shards,
        order=np.tile(shards.order, clients),
        offsets=np.arange(clients + 1) * len(shards.order),
        starts=np.tile(shards.starts, clients),
        start_offsets=np.arange(clients + 1) * len(shards.starts),
        names=[f"seed {seed}" for seed in range(clients)],
    )


def normalised_columns(rows: Rows) -> dict[str, np.ndarray]:
    """What our learners see, as flat columns.

    d3rlpy takes the next row's observation as the next state and never draws the last row of an episode that the
    clock ended. So such an episode gets one row more, which holds the next state of its last transition.
    """
    dataset, normaliser = rows.dataset, rows.normaliser
    parts: list[dict[str, np.ndarray]] = []
    for first, last in rows.shards.pieces:
        inside, timeout = slice(first, last + 1), not dataset.terminals[last]
        extra = dataset.next_observations[last : last + 1][: int(timeout)]
        observations = np.concatenate([dataset.observations[inside], extra])
        blank = np.zeros((len(extra), dataset.actions.shape[1]), np.float32)
        centre, half = (dataset.action_high + dataset.action_low) / 2, (dataset.action_high - dataset.action_low) / 2
        ends = np.arange(len(observations)) == len(observations) - 1
        parts.append(
            {
                "observations": (observations - normaliser.mean) / normaliser.std,
                "actions": np.concatenate([(dataset.actions[inside] - centre) / half, blank]),
                "rewards": np.concatenate([dataset.rewards[inside] * normaliser.reward_scale, blank[:, 0]]),
                "terminals": ends & (not timeout),
                "timeouts": ends & timeout,
            }
        )
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return {name: column if column.dtype == bool else column.astype(np.float32) for name, column in columns.items()}

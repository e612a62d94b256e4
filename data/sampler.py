"""Draws batches `[K, B]` for a cohort: one index, one gather from each column, nothing copied beforehand."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from data.batch import Batch
from data.dataset import Dataset
from data.normaliser import Normaliser
from data.randomness import generator
from data.shards import Shards

BLOCK = 32  # updates whose indices and noise are drawn at once; part of what a seed means


class Sampler:
    """Uniform batches from each client's own rows.

    What client c draws in round r depends on (seed, c, r) alone, so it is the same in a cohort of any width.
    """

    def __init__(
        self,
        dataset: Dataset,
        shards: Shards,
        normaliser: Normaliser,
        *,
        batch_size: int,
        noise_draws: int,
        seed: int,
        device: str = "cpu",
    ):
        def column(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(array).to(device)  # on a CPU this shares the dataset's memory

        self.shards, self.seed, self.device = shards, seed, device
        self.batch_size, self.noise_shape = batch_size, (noise_draws, batch_size, dataset.actions.shape[1])
        self.observations = column(dataset.observations)
        self.next_observations = column(dataset.next_observations)
        self.actions = column(dataset.actions)
        self.rewards = column(dataset.rewards)
        self.terminals = column(dataset.terminals)
        self.mean, self.inverse_std = column(normaliser.mean), 1 / column(normaliser.std)
        self.reward_scale = normaliser.reward_scale
        self.centre = column((dataset.action_high + dataset.action_low) / 2)
        self.half_range = column((dataset.action_high - dataset.action_low) / 2)

    def batches(self, clients: Sequence[int], round: int, updates: int) -> Iterator[Batch]:
        """The cohort's batches of one round, in order."""
        for block, first in enumerate(range(0, updates, BLOCK)):
            draws = [self._draw(client, round, block) for client in clients]
            rows = torch.from_numpy(np.stack([rows for rows, _ in draws], axis=1))  # [BLOCK, K, B]
            noise = torch.from_numpy(np.stack([noise for _, noise in draws], axis=2))  # [BLOCK, D, K, B, A]
            for step in range(min(BLOCK, updates - first)):
                yield self.gather(rows[step].to(self.device), noise[step].to(self.device))

    def _draw(self, client: int, round: int, block: int) -> tuple[np.ndarray, np.ndarray]:
        """Dataset rows `[BLOCK, B]` and noise `[BLOCK, D, B, A]` of one client."""
        random = generator(self.seed, "batch", client, round, block)
        own = self.shards.rows(client)
        rows = own[random.integers(len(own), size=(BLOCK, self.batch_size))]
        return rows, random.standard_normal((BLOCK, *self.noise_shape), dtype=np.float32)

    def gather(self, rows: torch.Tensor, noise: torch.Tensor) -> Batch:
        """The batch at dataset rows `[K, B]`."""
        flat = rows.flatten()

        def take(column: torch.Tensor) -> torch.Tensor:
            return column.index_select(0, flat).view(*rows.shape, *column.shape[1:])

        return Batch(
            observations=take(self.observations).sub_(self.mean).mul_(self.inverse_std),
            actions=take(self.actions).sub_(self.centre).div_(self.half_range),
            rewards=take(self.rewards).mul_(self.reward_scale),
            next_observations=take(self.next_observations).sub_(self.mean).mul_(self.inverse_std),
            terminals=take(self.terminals).float(),
            noise=noise,
        )

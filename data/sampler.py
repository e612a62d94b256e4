"""Draws batches `[K, B]` for a cohort: one index, one gather from each column, nothing copied beforehand."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from data.batch import Batch, Window
from data.dataset import Dataset
from data.normaliser import Normaliser
from data.randomness import generator
from data.shards import Shards
from data.windows import Windows

BLOCK = 32  # updates whose indices and noise are drawn at once; part of what a seed means


class Sampler:
    """Batches from each client's own rows: uniform, and for learners that ask, initial states and weighted rows.

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
        rounds: int | None = None,  # of the run; None: its end is not known, and progress stays 0
        initial_states: bool = False,
        returns_discount: float | None = None,
        window: tuple[int, float] | None = None,  # steps and discount
        device: str = "cpu",
    ):
        def column(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array).to(device)  # on a CPU this shares the dataset's memory

        self.shards, self.normaliser, self.seed, self.device, self.rounds = shards, normaliser, seed, device, rounds
        self.window = window
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
        self.initial_weights = column(shards.initial_weights().astype(np.float32)) if initial_states else None
        self.returns = None
        if returns_discount is not None:
            self.returns = column(shards.returns_to_go(dataset, returns_discount).astype(np.float32))

        self.windows = None if window is None else Windows.of(dataset, shards, *window)
        if self.windows is not None:
            self.window_rewards = column(self.windows.rewards.astype(np.float32))
            self.window_ends = column(self.windows.ends)
            self.window_steps = column(self.windows.steps.astype(np.float32))

    def over(self, dataset: Dataset, shards: Shards) -> "Sampler":
        """The same of other rows in the same units."""
        shape = {"batch_size": self.batch_size, "noise_draws": self.noise_shape[0], "seed": self.seed}
        return Sampler(dataset, shards, self.normaliser, **shape, window=self.window, device=self.device)

    def batches(
        self,
        clients: Sequence[int],
        round: int,
        updates: int,
        row_weights: Callable[[], Tensor] | None = None,
        refresh_every: int = 1,
    ) -> Iterator[Batch]:
        """The cohort's batches of one round, in order.

        `row_weights` gives weights `[K, R]` of the clients' rows, laid out as `sweep` goes over them, and
        `batch.weighted` is drawn in proportion to them. It is asked before the first update and then every
        `refresh_every` updates.
        """
        table, owned = self._table(clients) if row_weights else (None, None)
        for block, first in enumerate(range(0, updates, BLOCK)):
            draws = [self._draw(client, round, block) for client in clients]
            rows = self._stack([rows for rows, _ in draws])  # [BLOCK, K, B]
            noise = self._stack([noise for _, noise in draws], axis=2)  # [BLOCK, D, K, B, A]
            if self.initial_weights is not None:
                initial = self._stack([self._draw_initial(client, round, block) for client in clients])
            if row_weights:
                uniform = self._stack([self._draw_uniform(client, round, block) for client in clients])
            for i in range(min(BLOCK, updates - first)):
                batch = self._placed(self.gather(rows[i], noise[i]), round, updates, first + i)
                if self.initial_weights is not None:
                    starts, weight = (
                        self._normalised(self.observations, initial[i]),
                        self.initial_weights[list(clients)],
                    )
                    batch = replace(batch, initial_observations=starts, initial_weight=weight)
                if row_weights:
                    if (first + i) % refresh_every == 0:
                        cumulative = cumulative_weights(row_weights(), owned)
                    chosen = table.gather(1, inverse_cdf(cumulative, uniform[i]))
                    weighted = self._placed(self.gather(chosen, noise[i]), round, updates, first + i)
                    batch = replace(batch, weighted=weighted)
                yield batch

    def sweep(self, clients: Sequence[int], chunk: int) -> Iterator[tuple[Batch, Tensor]]:
        """All rows of each client, `chunk` at a time, without noise; the mask `[K, chunk]` is false where a client
        that owns fewer rows than another has no more."""
        table, owned = self._table(clients)
        for first in range(0, table.shape[1], chunk):
            rows = table[:, first : first + chunk]
            noise = torch.empty(0, *rows.shape, self.noise_shape[-1], device=self.device)
            yield self.gather(rows, noise), owned[:, first : first + chunk]

    def _table(self, clients: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The clients' rows `[K, R]`, R those of the largest, and which are theirs: the rest repeats their last."""
        sizes = self.shards.sizes[list(clients)]
        place = np.arange(sizes.max())
        table = self.shards.order[self.shards.offsets[list(clients), None] + np.minimum(place, sizes[:, None] - 1)]
        return torch.from_numpy(table).to(self.device), torch.from_numpy(place < sizes[:, None]).to(self.device)

    def _stack(self, draws: list[np.ndarray], axis: int = 1) -> Tensor:
        return torch.from_numpy(np.stack(draws, axis=axis)).to(self.device)

    def _draw(self, client: int, round: int, block: int) -> tuple[np.ndarray, np.ndarray]:
        """Dataset rows `[BLOCK, B]` and noise `[BLOCK, D, B, A]` of one client."""
        random = generator(self.seed, "batch", client, round, block)
        own = self.shards.rows(client)
        rows = own[random.integers(len(own), size=(BLOCK, self.batch_size))]
        return rows, random.standard_normal((BLOCK, *self.noise_shape), dtype=np.float32)

    def _draw_initial(self, client: int, round: int, block: int) -> np.ndarray:
        """Dataset rows `[BLOCK, B]` that begin a piece; with windows of n steps, any of its first n."""
        own = self.shards.initial_rows(client)
        random = generator(self.seed, "initial", client, round, block)
        rows = own[random.integers(len(own), size=(BLOCK, self.batch_size))]
        if self.windows is None:
            return rows
        return rows + (random.random(rows.shape) * self.windows.steps[rows]).astype(np.int64)

    def _draw_uniform(self, client: int, round: int, block: int) -> np.ndarray:
        """[BLOCK, B] numbers in [0, 1), which weights turn into rows."""
        return generator(self.seed, "weighted", client, round, block).random((BLOCK, self.batch_size))

    def gather(self, rows: Tensor, noise: Tensor) -> Batch:
        """The batch at dataset rows `[K, B]`."""
        return Batch(
            observations=self._normalised(self.observations, rows),
            actions=_take(self.actions, rows).sub_(self.centre).div_(self.half_range),
            rewards=_take(self.rewards, rows).mul_(self.reward_scale),
            next_observations=self._normalised(self.next_observations, rows),
            terminals=_take(self.terminals, rows).float(),
            noise=noise,
            returns=None if self.returns is None else _take(self.returns, rows).mul_(self.reward_scale),
            window=None if self.windows is None else self._window(rows),
        )

    def _window(self, rows: Tensor) -> Window:
        ends = _take(self.window_ends, rows)
        return Window(
            rewards=_take(self.window_rewards, rows).mul_(self.reward_scale),
            observations=self._normalised(self.next_observations, ends),
            terminals=_take(self.terminals, ends).float(),
            steps=_take(self.window_steps, rows),
        )

    def _normalised(self, observations: Tensor, rows: Tensor) -> Tensor:
        return _take(observations, rows).sub_(self.mean).mul_(self.inverse_std)

    def _placed(self, batch: Batch, round: int, updates: int, update: int) -> Batch:
        """The batch with its place in the run."""
        step = (round - 1) * updates + update
        return replace(batch, step=step, progress=step / (self.rounds * updates) if self.rounds else 0.0)


def _take(column: Tensor, rows: Tensor) -> Tensor:
    return column.index_select(0, rows.flatten()).view(*rows.shape, *column.shape[1:])


def cumulative_weights(weights: Tensor, owned: Tensor) -> Tensor:
    """[K, R] running sums of each client's weights; uniform for a client whose weights are all zero or not finite."""
    weights = weights.double().clamp_min(0).where(owned, 0.0)
    total = weights.sum(1, keepdim=True)
    usable = total.isfinite() & (total > 0)
    return weights.where(usable, owned.double()).cumsum(1)


def inverse_cdf(cumulative: Tensor, uniform: Tensor) -> Tensor:
    """The places `[K, B]` at which `uniform [K, B]` falls among running sums: a row of weight 0 is never drawn."""
    total = cumulative[:, -1:]
    below = torch.minimum(uniform * total, total.nextafter(torch.zeros_like(total)))  # rounding may reach the total
    return torch.searchsorted(cumulative, below, right=True)

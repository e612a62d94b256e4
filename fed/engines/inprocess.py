"""The in-process engine: a round's clients as stacked cohorts, one on each core.

Participants are cut into chunks of `width` clients; a chunk is one tensor program. Chunks run side by side on
`workers` threads with `threads` threads inside an operation each. Two cohorts on a core each beat one on both: every
operation is parallel, and none waits at a barrier for a core that someone else has taken.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from data.batch import Batch
from data.sampler import Sampler
from fed.clients import ClientStore
from fed.update import Update
from metrics.ratios import ratio_statistics
from rl.learner import Learner
from rl.memory import keep_freed_memory

LARGEST_WIDTH = 16  # wider cohorts gain nothing (docs/speed.md) and their activations leave the cache
SWEEP_ROWS = 2048  # of each client at a time, when a value is taken on all of them


@dataclass(frozen=True)
class Layout:
    """How a cohort is laid over the machine. Results agree to the last bit at the same width and threads."""

    width: int
    workers: int
    threads: int

    @classmethod
    def choose(
        cls, participants: int, hidden: int, width: int | None, workers: int | None, threads: int | None
    ) -> "Layout":
        """Fill in what the user left open, from the number of cores; a rule, so that a seed means one result."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        waves = math.ceil(participants / (LARGEST_WIDTH * (workers or cores)))
        width = width or math.ceil(participants / (waves * (workers or cores)))  # chunks of equal size in every wave
        workers = workers or min(cores, math.ceil(participants / width))
        # Alone in its round, a small network is quicker on one core than its operations are at sharing two.
        threads = threads or (cores // workers if hidden >= 128 else 1)
        return cls(width, workers, max(1, threads))


class InProcess:
    """Trains a round's participants in this process."""

    def __init__(
        self,
        learner: Callable[[int], Learner],
        sampler: Sampler,
        store: ClientStore,
        initial: Mapping[str, Tensor],
        shared: Sequence[str],
        updates: int,
        layout: Layout,
    ):
        self.learner, self.sampler, self.store = learner, sampler, store
        self.initial, self.shared, self.updates, self.layout = initial, list(shared), updates, layout
        keep_freed_memory()
        torch.set_num_threads(layout.threads)  # threads started from here on inherit it

    def train(self, state: Mapping[str, Tensor], clients: Sequence[int], round: int) -> Iterator[Update]:
        """Broadcast `state`, train every client for `updates` updates, and yield the chunks in order."""
        width, workers = self.layout.width, self.layout.workers
        chunks = [clients[first : first + width] for first in range(0, len(clients), width)]
        with ThreadPoolExecutor(workers) as pool:
            # In waves, so that finished chunks are aggregated and freed instead of piling up.
            for first in range(0, len(chunks), workers):
                wave = chunks[first : first + workers]
                yield from pool.map(lambda chunk: self._train_chunk(state, chunk, round), wave)

    def _train_chunk(self, state: Mapping[str, Tensor], clients: Sequence[int], round: int) -> Update:
        cohort = self.cohort(state, clients)
        masses: list[float] = []  # what each client's rows weigh together by the modules that were sent

        def row_weights() -> Tensor:
            whole, owned = self.on_all_rows(lambda batch: {"weight": cohort.row_weights(batch)}, clients)
            if not masses:
                masses.extend(whole["weight"].where(owned, 0.0).sum(1, dtype=torch.float64).tolist())
            return whole["weight"]

        weights = row_weights if cohort.weighted_rows else None
        totals: dict[str, Tensor] = {}
        counts: dict[str, int] = {}  # an objective need not be in every update
        for batch in self.sampler.batches(clients, round, self.updates, weights, cohort.refresh_every):
            for name, value in cohort.update(batch).items():
                totals[name] = totals.get(name, 0) + value
                counts[name] = counts.get(name, 0) + 1
        metrics = {name: (total / counts[name]).tolist() for name, total in totals.items()}
        return self._report(cohort, clients, round, metrics, masses)

    def cohort(self, state: Mapping[str, Tensor], clients: Sequence[int]) -> Learner:
        """The clients as they begin a round: the modules that are sent, and over them what each has kept."""
        cohort = self.learner(len(clients))
        cohort.broadcast({**self.initial, **state})
        for row, client in enumerate(clients):
            cohort.load(self.store.load(client) or {}, row)
        cohort.begin_round()
        return cohort

    @torch.no_grad()
    def on_all_rows(
        self, values: Callable[[Batch], Mapping[str, Tensor]], clients: Sequence[int]
    ) -> tuple[dict[str, Tensor], Tensor]:
        """A batch's values, each `[K, B]`, on all rows of the clients: `[K, R]`, and the mask of rows that exist."""
        parts = [(values(batch), owned) for batch, owned in self.sampler.sweep(clients, SWEEP_ROWS)]
        whole = {name: torch.cat([part[name] for part, _ in parts], dim=1) for name in parts[0][0]}
        return whole, torch.cat([owned for _, owned in parts], dim=1)

    def _report(
        self,
        cohort: Learner,
        clients: Sequence[int],
        round: int,
        metrics: dict[str, list[float]],
        masses: list[float],
    ) -> Update:
        """Keep what stays with the clients, and hand over what is shared."""
        cohort.freeze_non_finite()
        after = cohort.state()
        for row in cohort.active:
            own = {name: tensor[row] for name, tensor in after.items() if name not in self.shared}
            self.store.save(clients[row], round, own)
        return Update(
            clients=[clients[row] for row in cohort.active],
            shared={name: after[name][cohort.active] for name in self.shared},
            rows=[len(self.sampler.shards.rows(clients[row])) for row in cohort.active],
            metrics={name: [values[row] for row in cohort.active] for name, values in metrics.items()},
            statistics=self._statistics(cohort, clients),
            flags={
                clients[row]: "; ".join(beyond) for row in cohort.active if (beyond := _beyond(cohort, metrics, row))
            },
            failures={clients[row]: reason for row, reason in cohort.failures.items()},
            sizes={name: [masses[row] for row in cohort.active] for name in cohort.weighted_modules},
        )

    def _statistics(self, cohort: Learner, clients: Sequence[int]) -> dict[str, dict[str, list]]:
        """Of the learner's per-row values: on the model that is returned, over all of a client's rows."""
        if type(cohort).row_statistics is Learner.row_statistics or not cohort.active:
            return {}  # it has none
        whole, owned = self.on_all_rows(cohort.row_statistics, clients)
        statistics = {}
        for name, values in whole.items():
            found = [ratio_statistics(values[row][owned[row]].cpu().numpy()) for row in cohort.active]
            statistics[name] = {key: [client[key] for client in found] for key in found[0]}
        return statistics


def _beyond(cohort: Learner, metrics: dict[str, list[float]], row: int) -> list[str]:
    """A sentence for each metric of a client that is beyond the learner's bound, or no number."""
    return [
        f"{name} is {metrics[name][row]:.3g}, beyond the bound {bound:.3g}"
        for name, bound in cohort.bounds.items()
        if name in metrics and not metrics[name][row] <= bound
    ]

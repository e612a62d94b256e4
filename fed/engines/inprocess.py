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

from data.sampler import Sampler
from fed.clients import ClientStore
from fed.update import Update
from rl.learner import Learner
from rl.memory import keep_freed_memory

LARGEST_WIDTH = 16  # wider cohorts gain nothing (docs/speed.md) and their activations leave the cache


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
        cohort = self.learner(len(clients))
        cohort.broadcast({**self.initial, **state})
        for row, client in enumerate(clients):
            cohort.load(self.store.load(client) or {}, row)
        totals: dict[str, Tensor] = {}
        for batch in self.sampler.batches(clients, round, self.updates):
            for name, value in cohort.update(batch).items():
                totals[name] = totals[name] + value if name in totals else value
        metrics = {name: (total / self.updates).tolist() for name, total in totals.items()}
        return self._report(cohort, clients, round, metrics)

    def _report(self, cohort: Learner, clients: Sequence[int], round: int, metrics: dict[str, list[float]]) -> Update:
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
            flags={
                clients[row]: f"{name} is {metrics[name][row]:.3g}, beyond the bound {bound:.3g}"
                for name, bound in cohort.bounds.items()
                for row in cohort.active
                if not metrics[name][row] <= bound
            },
            failures={clients[row]: reason for row, reason in cohort.failures.items()},
        )

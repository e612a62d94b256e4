"""The in-process engine: a round's clients as stacked cohorts, one on each core.

Participants are cut into chunks of `width` clients; a chunk is one tensor program. Chunks run side by side on
`workers` threads with `threads` threads inside an operation each. Two cohorts on a core each beat one on both: every
operation is parallel, and none waits at a barrier for a core that someone else has taken.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor

from data.batch import Batch
from data.sampler import Sampler
from fed.adversaries import Adversaries
from fed.clients import ClientStore
from fed.compression import Compression
from fed.local_rules.base import LocalRule, LocalTraining
from fed.reference import Reference
from fed.update import Update, is_module
from metrics.ratios import moments, ratio_statistics
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


@dataclass(frozen=True, eq=False)
class Clients:
    """What is true of all clients of a federation, beside their data and their learner."""

    store: ClientStore
    initial: Mapping[str, Tensor]  # the modules they start from
    shared: Sequence[str]  # those that are averaged; the others stay with their clients
    updates: int  # in a round
    optimiser_state: str = "local"  # local: a client keeps its moments | average: they are shared too | reset
    rule: LocalRule = field(default_factory=LocalRule)
    adversaries: Adversaries | None = None
    compression: Compression | None = None
    reference: Callable[[Mapping[str, Tensor]], Reference] | None = None  # the server's state → rows that are nobody's

    def server_state(self) -> dict[str, Tensor]:
        """What the server begins with: the shared modules, and what else it keeps and sends."""
        state = {name: self.initial[name] for name in self.shared}
        extra = self.rule.server_tensors(state)
        if self.optimiser_state == "average":
            for name, row in state.items():
                extra |= {f"{name}/adam_{part}": torch.zeros_like(row) for part in ("m", "v")}
                extra[f"{name}/adam_steps"] = torch.zeros(())
        return state | extra

    def kept(self, name: str) -> bool:
        """Whether a tensor of a learner's state stays with its client from round to round."""
        module, _, moment = name.partition("/")
        return module not in self.shared or (moment != "" and self.optimiser_state == "local")


class InProcess:
    """Trains a round's participants in this process."""

    def __init__(self, learner: Callable[[int], Learner], sampler: Sampler, clients: Clients, layout: Layout):
        self.learner, self.sampler, self.clients, self.layout = learner, sampler, clients, layout
        keep_freed_memory()
        torch.set_num_threads(layout.threads)  # threads started from here on inherit it

    def train(
        self, state: Mapping[str, Tensor], clients: Sequence[int], round: int, steps: Sequence[int] | None = None
    ) -> Iterator[Update]:
        """Broadcast `state`, train every client for its steps (all updates of a round if not said otherwise), and yield
        the chunks in order."""
        width, workers = self.layout.width, self.layout.workers
        steps = steps or [self.clients.updates] * len(clients)
        self.reference = self.clients.reference(state) if self.clients.reference and clients else None
        places = range(0, len(clients), width)
        chunks = [(clients[first : first + width], steps[first : first + width]) for first in places]
        with ThreadPoolExecutor(workers) as pool:
            # In waves, so that finished chunks are aggregated and freed instead of piling up.
            for first in range(0, len(chunks), workers):
                wave = chunks[first : first + workers]
                yield from pool.map(lambda chunk: self._train_chunk(state, *chunk, round), wave)

    def _train_chunk(
        self, state: Mapping[str, Tensor], clients: Sequence[int], steps: Sequence[int], round: int
    ) -> Update:
        own = [self.clients.store.load(client) or {} for client in clients]
        cohort = self.cohort(state, own)
        masses: list[float] = []  # what each client's rows weigh together by the modules that were sent

        def row_weights() -> Tensor:
            whole, owned = self.on_all_rows(lambda batch: {"weight": cohort.row_weights(batch)}, clients)
            if not masses:
                masses.extend(masses_of(whole["weight"], owned))
            return whole["weight"]

        def batches(count: int) -> Iterator[Batch]:
            weights = row_weights if cohort.weighted_rows else None
            drawn = self.sampler.batches(clients, round, self.clients.updates, weights, cohort.refresh_every)
            return (self._as_seen(batch, clients) for batch in islice(drawn, count))

        local = self.clients.rule.begin(cohort, state, own, batches)
        cohort.correct = local.correct if type(local) is not LocalTraining else None
        metrics = Averages(steps)
        for place, batch in enumerate(batches(max(steps))):
            if place in steps:
                cohort.rest([row for row, last in enumerate(steps) if last == place])
            metrics.add(place, cohort.update(batch))
        cohort.end_round()
        chunk = Chunk(clients, own, state, round)
        return self._report(cohort, chunk, Trained(steps, metrics, masses, *local.finish()))

    def of_clients(self, state: Mapping[str, Tensor], clients: Sequence[int]) -> Learner:
        """These clients as they would begin a round."""
        return self.cohort(state, [self.clients.store.load(client) or {} for client in clients])

    def cohort(self, state: Mapping[str, Tensor], own: Sequence[Mapping[str, Tensor]]) -> Learner:
        """Clients as they begin a round: what is sent, and over it what each has kept."""
        cohort = self.learner(len(own))
        known = cohort.state()
        sent = {name: row for name, row in state.items() if name in known}
        cohort.broadcast({**self.clients.initial, **{name: row for name, row in sent.items() if is_module(name)}})
        cohort.load({name: row for name, row in sent.items() if not is_module(name)})
        for row, kept in enumerate(own):
            cohort.load({name: tensor for name, tensor in kept.items() if name in known}, row)
        cohort.begin_round()
        return cohort

    @torch.no_grad()
    def on_all_rows(
        self, values: Callable[[Batch], Mapping[str, Tensor]], clients: Sequence[int]
    ) -> tuple[dict[str, Tensor], Tensor]:
        """A batch's values, each `[K, B]`, on all rows of the clients: `[K, R]`, and the mask of rows that exist."""
        swept = self.sampler.sweep(clients, SWEEP_ROWS)
        parts = [(values(self._as_seen(batch, clients)), owned) for batch, owned in swept]
        whole = {name: torch.cat([part[name] for part, _ in parts], dim=1) for name in parts[0][0]}
        return whole, torch.cat([owned for _, owned in parts], dim=1)

    def _as_seen(self, batch: Batch, clients: Sequence[int]) -> Batch:
        """With the rewards that the clients believe."""
        liars = self.clients.adversaries
        rows = liars.rows(clients) if liars is not None and liars.attack == "flip_rewards" else []
        return liars.poison(batch, rows) if rows else batch

    def _report(self, cohort: Learner, chunk: "Chunk", trained: "Trained") -> Update:
        """Keep what stays with the clients, and hand over what is shared."""
        cohort.freeze_non_finite()
        clients, sound, after = chunk.clients, cohort.sound, cohort.state()
        messages = self._messages(cohort, chunk)
        for row in sound:
            kept = {name: tensor[row] for name, tensor in after.items() if self.clients.kept(name)}
            kept |= {name: tensor[row] for name, tensor in trained.kept.items()} | messages.kept[row]
            if kept:
                self.clients.store.save(clients[row], chunk.round, kept)
        metrics = trained.metrics.means()
        extra = sum(tensor[0].nbytes for tensor in trained.extras.values())
        return Update(
            clients=[clients[row] for row in sound],
            shared=messages.arrived,
            rows=[len(self.sampler.shards.rows(clients[row])) for row in sound],
            metrics={name: [values[row] for row in sound] for name, values in metrics.items()},
            statistics=self._statistics(cohort, clients),
            flags={clients[row]: "; ".join(beyond) for row in sound if (beyond := _beyond(cohort, metrics, row))},
            failures={clients[row]: reason for row, reason in cohort.failures.items()},
            sizes={name: [trained.masses[row] for row in sound] for name in cohort.weighted_modules},
            steps=[trained.steps[row] for row in sound],
            changes={n: [values[row] for row in sound] for n, values in trained.metrics.changes().items()},
            extras={name: tensor[sound] for name, tensor in trained.extras.items()},
            bytes=[messages.bytes[row] + extra for row in sound],
            round=chunk.round,
        )

    def _messages(self, cohort: Learner, chunk: "Chunk") -> "Messages":
        """What arrives of the shared tensors: as it is, unless clients lie or compress."""
        clients, own, sent, round = chunk.clients, chunk.own, chunk.sent, chunk.round
        after, liars, compression = cohort.state(), self.clients.adversaries, self.clients.compression
        names = [name for name in sent if name in after]
        lying = liars.rows(clients) if liars is not None else []
        if not lying and compression is None:
            size = sum(after[name][0].nbytes for name in names)
            arrived = {name: after[name][cohort.sound] for name in names}
            return Messages(arrived, [size] * len(clients), [{} for _ in clients])
        rows, sizes, kept = [], [0] * len(clients), [{} for _ in clients]
        for row in cohort.sound:
            message = {name: after[name][row] for name in names}
            if row in lying:
                kept[row] |= {f"before/{name}": message[name] for name in message if liars.attack == "stale"}
                message = liars.lie(clients[row], round, sent, message, own[row])
            if compression is not None:
                message, left, sizes[row] = compression.send(clients[row], round, sent, message, own[row])
                kept[row] |= left
            else:
                sizes[row] = sum(tensor.nbytes for tensor in message.values())
            rows.append(message)
        arrived = {name: torch.stack([m[name] for m in rows]) if rows else after[name][[]] for name in names}
        return Messages(arrived, sizes, kept)

    def _statistics(self, cohort: Learner, clients: Sequence[int]) -> dict[str, dict[str, list]]:
        """Of the learner's per-row values: on the model that is returned, over all of a client's rows."""
        if not cohort.row_values or not cohort.sound:
            return {}
        whole, owned = self.on_all_rows(cohort.row_statistics, clients)
        found = {name: [values[row][owned[row]] for row in cohort.sound] for name, values in whole.items()}
        if self.reference is not None:
            on_reference = self.reference.values(cohort)
            found |= {f"reference_{n}": [values[row] for row in cohort.sound] for n, values in on_reference.items()}
        statistics = {
            name: [(ratio_statistics if name.endswith("ratio") else moments)(row.cpu().numpy()) for row in rows]
            for name, rows in found.items()
        }
        return {name: {key: [row[key] for row in rows] for key in rows[0]} for name, rows in statistics.items()}


@dataclass(frozen=True, eq=False)
class Chunk:
    """Clients that train side by side in a round."""

    clients: Sequence[int]
    own: Sequence[Mapping[str, Tensor]]  # what each has kept from the rounds before
    sent: Mapping[str, Tensor]  # what the server sent to all
    round: int


@dataclass(frozen=True, eq=False)
class Trained:
    """What a chunk's training leaves beside the models."""

    steps: Sequence[int]
    metrics: "Averages"
    masses: list[float]
    extras: dict[str, Tensor]  # for the server's side of the local rule
    kept: dict[str, Tensor]  # for the clients' own


@dataclass(frozen=True, eq=False)
class Messages:
    """What a chunk's clients send."""

    arrived: dict[str, Tensor]  # [k, …] of those that are sound
    bytes: list[int]  # of each client
    kept: list[dict[str, Tensor]]  # what each must remember of it


class Averages:
    """Metrics of a round, per client, over the updates in which it took part."""

    def __init__(self, steps: Sequence[int]):
        self.steps = torch.tensor(steps)
        self.values: dict[str, list[Tensor]] = {}
        self.places: dict[str, list[int]] = {}  # an objective need not be in every update

    def add(self, place: int, metrics: Mapping[str, Tensor]) -> None:
        for name, value in metrics.items():
            self.values.setdefault(name, []).append(value)
            self.places.setdefault(name, []).append(place)

    def means(self) -> dict[str, list[float | None]]:
        """None for a client that took no such update."""
        found = {}
        for name in self.values:
            taken = (torch.tensor(self.places[name]).unsqueeze(1) < self.steps).any(0).tolist()
            mean = self._mean(name, 0.0, 1.0).tolist()
            found[name] = [value if some else None for value, some in zip(mean, taken, strict=True)]
        return found

    def changes(self) -> dict[str, list[float]]:
        """The last quarter's mean minus the first's."""
        return {name: (self._mean(name, 0.75, 1.0) - self._mean(name, 0.0, 0.25)).tolist() for name in self.values}

    def _mean(self, name: str, begin: float, end: float) -> Tensor:
        """[K] over a part of each client's updates."""
        values, place = torch.stack(self.values[name]).cpu(), torch.tensor(self.places[name]).unsqueeze(1)
        counted = (place >= (begin * self.steps).floor()) & (place < (end * self.steps).ceil())
        return values.where(counted, 0.0).sum(0) / counted.sum(0)


def masses_of(weights: Tensor, owned: Tensor) -> list[float]:
    """What each client's rows weigh together: their number where that is not finite, hardly anything where it is 0."""
    rows, mass = owned.sum(1).double(), weights.where(owned, 0.0).sum(1, dtype=torch.float64)
    return torch.where(mass.isfinite(), mass, rows).maximum(1e-12 * rows).tolist()


def _beyond(cohort: Learner, metrics: dict[str, list[float]], row: int) -> list[str]:
    """A sentence for each metric of a client that is beyond the learner's bound, or no number."""
    return [
        f"{name} is {metrics[name][row]:.3g}, beyond the bound {bound:.3g}"
        for name, bound in cohort.bounds.items()
        if metrics.get(name) and metrics[name][row] is not None and not metrics[name][row] <= bound
    ]

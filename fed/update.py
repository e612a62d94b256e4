"""What an engine hands back for a chunk of clients that have trained."""

from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def is_module(name: str) -> bool:
    """Whether a shared tensor is a module's parameters, and not what goes with them, such as `actor/adam_m`."""
    return "/" not in name


@dataclass(frozen=True, eq=False)
class Update:
    """The shared modules of k clients after local training, and what they report of it."""

    clients: list[int]
    shared: dict[str, Tensor]  # module → [k, P]
    rows: list[int]  # trainable rows of each client
    metrics: dict[str, list[float]]  # mean over the round's updates, per client
    flags: dict[int, str]  # clients that went on but look diverged, and why
    failures: dict[int, str]  # clients whose training failed, and why; they are not among `clients`
    statistics: dict[str, dict[str, list]] = field(default_factory=dict)  # per-row value → statistic → per client
    sizes: dict[str, list[float]] = field(default_factory=dict)  # module → what its rows weigh together, if not alike
    steps: list[int] = field(default_factory=list)  # updates that each client took
    changes: dict[str, list[float]] = field(default_factory=dict)  # metric → last minus first quarter of the round
    bytes: list[int] = field(default_factory=list)  # that each client sent
    round: int = 0
    extras: dict[str, Tensor] = field(default_factory=dict)  # [k, …] what the local rule sends for its server side

    def only(self, keep: list[int]) -> "Update":
        """The clients in these places of the chunk."""

        def part(values: list[T]) -> list[T]:
            return [values[place] for place in keep] if values else values

        return replace(
            self,
            clients=part(self.clients),
            shared={name: rows[keep] for name, rows in self.shared.items()},
            extras={name: rows[keep] for name, rows in self.extras.items()},
            rows=part(self.rows),
            metrics={name: part(values) for name, values in self.metrics.items()},
            statistics={
                value: {name: part(numbers) for name, numbers in statistics.items()}
                for value, statistics in self.statistics.items()
            },
            sizes={name: part(values) for name, values in self.sizes.items()},
            steps=part(self.steps),
            bytes=part(self.bytes),
            changes={name: part(values) for name, values in self.changes.items()},
        )

    @classmethod
    def joined(cls, updates: "list[Update]") -> "Update":
        """Several chunks as one, in the order of their clients' numbers, so that the order of answers is forgotten."""
        updates = [update for update in updates if update.clients]
        clients = [client for update in updates for client in update.clients]
        order = sorted(range(len(clients)), key=clients.__getitem__)

        def lists(of: list[list[T]]) -> list[T]:
            return [value for values in of for value in values]

        first = updates[0]
        return cls(
            clients=clients,
            shared={name: torch.cat([u.shared[name] for u in updates]) for name in first.shared},
            extras={name: torch.cat([u.extras[name] for u in updates]) for name in first.extras},
            rows=lists([u.rows for u in updates]),
            metrics={name: lists([u.metrics[name] for u in updates]) for name in first.metrics},
            flags={client: why for u in updates for client, why in u.flags.items()},
            failures={client: why for u in updates for client, why in u.failures.items()},
            statistics={
                value: {name: lists([u.statistics[value][name] for u in updates]) for name in statistics}
                for value, statistics in first.statistics.items()
            },
            sizes={name: lists([u.sizes[name] for u in updates]) for name in first.sizes},
            steps=lists([u.steps for u in updates]),
            bytes=lists([u.bytes for u in updates]),
            changes={name: lists([u.changes[name] for u in updates]) for name in first.changes},
            round=first.round,
        ).only(order)

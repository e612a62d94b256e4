"""What an engine hands back for a chunk of clients that have trained."""

import math
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor


def is_module(name: str) -> bool:
    """Whether a shared tensor is a module's parameters, and not what goes with them, such as `actor/adam_m`."""
    return "/" not in name


@dataclass(frozen=True, eq=False)
class Update:
    """The shared modules of k clients after local training, and what they report of it."""

    clients: list[int]
    shared: dict[str, Tensor]  # module → [k, P]
    rows: list[int]  # trainable rows of each client
    metrics: dict[str, list[float | None]]  # mean over the round's updates, per client; None where it had none
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

        def part(value: object) -> object:
            if isinstance(value, dict):
                return {name: part(inner) for name, inner in value.items()}
            return value[keep] if isinstance(value, Tensor) else [value[place] for place in keep] if value else value

        return replace(self, **{name: part(getattr(self, name)) for name in BY_CLIENT})

    @classmethod
    def joined(cls, updates: "list[Update]") -> "Update":
        """Several chunks as one, in the order of their clients' numbers, so that the order of answers is forgotten.
        A metric that a chunk has not is NaN for its clients."""
        updates = [update for update in updates if update.clients]
        clients = [client for update in updates for client in update.clients]
        order = sorted(range(len(clients)), key=clients.__getitem__)

        def join(values: list) -> object:
            first = next((value for value in values if value is not None), None)
            if isinstance(first, dict):
                names = {name: None for value in values for name in value or {}}
                return {name: join([(value or {}).get(name) for value in values]) for name in names}
            if isinstance(first, Tensor):
                return torch.cat(values)
            missing = [[math.nan] * len(update.clients) for update in updates]
            filled = [gap if value is None else value for value, gap in zip(values, missing, strict=True)]
            return [item for value in filled for item in value]

        whole = {name: join([getattr(update, name) for update in updates]) for name in BY_CLIENT}
        told = {
            name: {client: why for update in updates for client, why in getattr(update, name).items()}
            for name in ("flags", "failures")
        }
        return cls(**whole, **told, round=updates[0].round).only(order)


BY_CLIENT = [f.name for f in fields(Update) if f.name not in ("flags", "failures", "round")]  # values of each client

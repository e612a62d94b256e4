"""What an engine hands back for a chunk of clients that have trained."""

from dataclasses import dataclass, field

from torch import Tensor


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

"""What every rule is: it takes a round's updates chunk by chunk and then gives the new global modules.

A rule that streams keeps sums, and its memory does not grow with the number of clients. A rule that must see all
updates at once is a `Holding` (holding.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from fed.update import Update


@dataclass(frozen=True, eq=False)
class Aggregation:
    """The global modules after a round, and how much each client had to say in them."""

    state: dict[str, Tensor]
    weights: dict[int, float] = field(default_factory=dict)  # they sum to one; none where the rule has none
    module_weights: dict[str, dict[int, float]] = field(default_factory=dict)  # of modules weighed in another way
    note: str = ""  # what the record should say of this round


class Aggregator(Protocol):
    def check(self, clients: int) -> None:
        """A sentence if the settings do not fit a federation of so many clients."""

    def accumulate(self, update: Update) -> None:
        """Take in a chunk of clients; a chunk of which nobody is left is passed over."""

    def finalise(self, state: Mapping[str, Tensor]) -> Aggregation:
        """From the modules that were sent and what was accumulated to the new ones; ready for another round then.
        Without any update the modules stay as they are."""

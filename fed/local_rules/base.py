"""What a federated rule changes in a client's own training; the plain rule changes nothing."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from data.batch import Batch
from rl.learner import Learner

Batches = Callable[[int], Iterable[Batch]]  # how many → the first batches of the round


class LocalTraining:
    """One chunk of clients in one round."""

    def correct(self, module: str, gradient: Tensor) -> None:
        """Change a module's gradients `[K, P]` in place, before they are clipped."""

    def finish(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What goes to the server beside the modules, and what each client keeps; each tensor `[K, …]`."""
        return {}, {}


class LocalRule:
    """Also the plain rule: clients minimise their own loss."""

    def server_tensors(self, modules: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the server keeps and sends beside the modules; names end in the module's after a slash."""
        return {}

    def begin(
        self, cohort: Learner, sent: Mapping[str, Tensor], own: Sequence[Mapping[str, Tensor]], batches: Batches
    ) -> LocalTraining:
        """The cohort stands where the server does. `own`: what each client kept, empty at first."""
        return LocalTraining()

    def receive(self, state: Mapping[str, Tensor], extras: Mapping[str, Tensor], rows: int) -> dict[str, Tensor]:
        """The server's tensors after a round. `extras`: sums over those who answered, each times the client's rows;
        `rows`: of all clients."""
        return {}

    def check(self, modules: Collection[str]) -> None:
        """A sentence if the settings do not fit these shared modules."""


def stacked(own: Sequence[Mapping[str, Tensor]], name: str, like: Tensor) -> Tensor:
    """A kept tensor of all clients `[K, …]`; zeros for a client that has kept none."""
    return torch.stack([kept.get(name, torch.zeros_like(like[0])).to(like) for kept in own])

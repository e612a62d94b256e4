"""Rules that look at all updates of a round at once."""

from collections.abc import Mapping

from torch import Tensor

from data.errors import InputError
from fed.aggregators.base import Aggregation
from fed.aggregators.mean import Mean
from fed.update import Update, is_module


class Holding:
    """O(clients · model) memory.

    Below `least` clients its promise does not hold, and the plain weighted mean is taken instead.
    """

    def __init__(self, least: int):
        if least < 1:
            raise InputError(f"fed.aggregator.least is {least}; it must be at least 1.")
        self.least, self.fallback = least, Mean()
        self.held: list[Update] = []

    def check(self, clients: int) -> None:
        """It has a fallback for few clients."""

    def accumulate(self, update: Update) -> None:
        if update.clients and any(map(is_module, update.shared)):
            self.held.append(update)

    def finalise(self, state: Mapping[str, Tensor]) -> Aggregation:
        held, self.held = self.held, []
        if not held:
            return Aggregation(dict(state))
        update = Update.joined(held)
        if len(update.clients) >= self.least:
            return self.reduce(update, state)
        self.fallback.accumulate(update)
        mean = self.fallback.finalise(state)
        note = f"{len(update.clients)} of at least {self.least} clients answered: the mean was taken instead"
        return Aggregation(mean.state, mean.weights, mean.module_weights, note)

    def reduce(self, update: Update, state: Mapping[str, Tensor]) -> Aggregation:
        """The rule itself."""
        raise TypeError(f"{type(self).__name__} must define reduce()")

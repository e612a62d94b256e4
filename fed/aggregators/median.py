"""The coordinate-wise median (Yin et al. 2018, arXiv 1803.01498): right while fewer than half of the clients lie."""

from collections.abc import Mapping

from torch import Tensor

from fed.aggregators.base import Aggregation
from fed.aggregators.holding import Holding
from fed.update import Update


class Median(Holding):
    """Each parameter is the middle one of the clients' values; of an even number, the mean of the middle two."""

    def reduce(self, update: Update, state: Mapping[str, Tensor]) -> Aggregation:
        return Aggregation(dict(state) | {name: middle(rows) for name, rows in update.shared.items()})


def middle(rows: Tensor) -> Tensor:
    """The median over the first axis (torch's quantile refuses large tensors)."""
    ranked = rows.sort(dim=0).values
    return (ranked[(len(rows) - 1) // 2] + ranked[len(rows) // 2]) / 2

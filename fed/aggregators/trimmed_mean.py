"""The coordinate-wise trimmed mean (Yin et al. 2018, arXiv 1803.01498)."""

import math
from collections.abc import Mapping

from torch import Tensor

from data.errors import InputError
from fed.aggregators.base import Aggregation
from fed.aggregators.holding import Holding
from fed.update import Update


class TrimmedMean(Holding):
    """Of each parameter the `trim` largest and the `trim` smallest share of the values are left out."""

    def __init__(self, trim: float, least: int):
        super().__init__(least)
        if not 0 <= trim < 0.5:
            raise InputError(f"fed.aggregator.trim is {trim}; it must be at least 0 and below 0.5.")
        self.trim = trim

    def reduce(self, update: Update, state: Mapping[str, Tensor]) -> Aggregation:
        count = len(update.clients)
        out = min(math.ceil(self.trim * count - 1e-9), (count - 1) // 2)  # rounded up, but somebody is left
        kept = {name: rows.sort(dim=0).values[out : count - out] for name, rows in update.shared.items()}
        mean = {name: rows.double().mean(0).to(rows.dtype) for name, rows in kept.items()}
        return Aggregation(dict(state) | mean)

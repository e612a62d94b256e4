"""Krum and multi-Krum (Blanchard et al. 2017, arXiv 1703.02757): the updates that have the nearest neighbours."""

from collections.abc import Mapping

import torch
from torch import Tensor

from data.errors import InputError
from fed.aggregators.base import Aggregation
from fed.aggregators.holding import Holding
from fed.update import Update, is_module


class Krum(Holding):
    """A client's score is the sum of its squared distances to its n − f − 2 nearest; the `keep` lowest are averaged.

    f is the number of liars to withstand, n > 2f + 2; keep = 1 is Krum, more (at most n − f) is multi-Krum.
    """

    def __init__(self, liars: int, keep: int):
        if liars < 0 or keep < 1:
            raise InputError(f"fed.aggregator has liars={liars}, keep={keep}; they must be at least 0 and 1.")
        super().__init__(2 * liars + 3)
        self.liars, self.keep = liars, keep

    def reduce(self, update: Update, state: Mapping[str, Tensor]) -> Aggregation:
        count = len(update.clients)
        nearest = squared_distances(update.shared).sort(dim=1).values[:, 1 : count - self.liars - 1]  # 0 is oneself
        keep = min(self.keep, count - self.liars)
        chosen = nearest.sum(1).argsort(stable=True)[:keep].sort().values
        mean = {name: rows[chosen].double().mean(0).to(rows.dtype) for name, rows in update.shared.items()}
        weight = 1 / len(chosen)
        return Aggregation(dict(state) | mean, {update.clients[place]: weight for place in chosen.tolist()})


def squared_distances(shared: Mapping[str, Tensor]) -> Tensor:
    """[k, k] between the clients' models, all modules together."""
    return sum(torch.cdist(rows.double(), rows.double()).square() for name, rows in shared.items() if is_module(name))

"""The geometric median (RFA, Pillutla et al. 2019, arXiv 1912.13445) by Weiszfeld's iteration."""

from collections.abc import Mapping

from torch import Tensor

from data.errors import InputError
from fed.aggregators.base import Aggregation
from fed.aggregators.holding import Holding
from fed.aggregators.median import middle
from fed.update import Update, is_module


class GeometricMedian(Holding):
    """The point with the smallest sum of distances to the clients' models: a mean with weights 1/distance."""

    def __init__(self, iterations: int, smoothing: float, least: int):
        super().__init__(least)
        if iterations < 1 or smoothing <= 0:
            raise InputError("fed.aggregator needs iterations of at least 1 and a smoothing above 0.")
        self.iterations, self.smoothing = iterations, smoothing

    def reduce(self, update: Update, state: Mapping[str, Tensor]) -> Aggregation:
        rows = {name: rows.double() for name, rows in update.shared.items()}
        models = [part for name, part in rows.items() if is_module(name)]
        points = [middle(part) for part in models]  # not the mean, from which a large lie would take long to leave
        for _ in range(self.iterations):
            distance = sum((part - point).square().sum(1) for part, point in zip(models, points, strict=True)).sqrt()
            nearness = 1 / distance.clamp_min(self.smoothing * middle(distance)).clamp_min(1e-100)
            weights = nearness / nearness.sum()
            points = [weights @ part for part in models]
        point = {name: (weights @ part).to(state[name].dtype) for name, part in rows.items()}
        return Aggregation(dict(state) | point, dict(zip(update.clients, weights.tolist(), strict=True)))

"""Means with weights exp(z_i), summed stably: what has been summed is scaled down when a larger z comes."""

import math

from data.errors import InputError
from fed.aggregators.mean import Mean
from fed.update import Update


class Softmax(Mean):
    def exponents(self, update: Update) -> list[float]:
        """z of the chunk's clients; −∞ leaves a client out."""
        raise TypeError(f"{type(self).__name__} must define exponents()")

    def _reset(self) -> None:
        super()._reset()
        self.top = -math.inf

    def weigh(self, update: Update) -> list[float]:
        z = self.exponents(update)
        top = max(self.top, *z)
        if top > self.top and self.total:
            shrink = math.exp(self.top - top)
            self.total = {name: shrink * total for name, total in self.total.items()}
            self.weights = {n: {c: shrink * w for c, w in weights.items()} for n, weights in self.weights.items()}
            self.usual = {client: shrink * weight for client, weight in self.usual.items()}
        self.top = top
        return [math.exp(value - top) if top > -math.inf else 0.0 for value in z]

    def weigh_module(self, update: Update, module: str, usual: list[float]) -> list[float]:
        return usual


class Fedora(Softmax):
    """FEDORA's server (Rengarajan et al. 2024, arXiv 2305.03097): w_i ∝ exp(β J_i), J_i the mean over client i's data
    of its own Q₁(s, π(s)). A client that over-estimates takes all the weight."""

    needs = "value"

    def __init__(self, beta: float):
        super().__init__()
        if beta < 0:
            raise InputError(f"fed.aggregator.beta is {beta}; it must be at least 0.")
        self.beta = beta

    def exponents(self, update: Update) -> list[float]:
        """A client whose value is not finite is left out."""
        values = update.statistics["value"]["mean"]
        return [self.beta * value if math.isfinite(value) else -math.inf for value in values]


class Adaptive(Softmax):
    """w_i ∝ n_i exp(g_i/T), g_i by how much of itself a client's `metric` fell in the round, from −1 to 1.

    The metric is one that the learner reports, as a rule a loss. T large is FedAvg, T small follows who learns most.
    """

    def __init__(self, metric: str, temperature: float, rising: bool):
        super().__init__()
        if temperature <= 0:
            raise InputError(f"fed.aggregator.temperature is {temperature}; it must be above 0.")
        self.metric, self.temperature, self.rising = metric, temperature, rising

    def exponents(self, update: Update) -> list[float]:
        if self.metric not in update.changes:
            if self.metric.removesuffix("_loss") not in update.shared:
                names = ", ".join(update.changes)
                raise InputError(f"fed.aggregator.metric is '{self.metric}'; this learner reports {names}.")
            return [math.log(rows) for rows in update.rows]  # a warm-up: nothing was trained that has this loss
        sign = 1.0 if self.rising else -1.0
        scale = [abs(value or 0.0) for value in update.metrics[self.metric]]
        gains = [
            0.0 if size == 0 else sign * change / size
            for change, size in zip(update.changes[self.metric], scale, strict=True)
        ]
        bounded = [max(-1.0, min(1.0, gain)) if math.isfinite(gain) else -1.0 for gain in gains]
        return [math.log(rows) + gain / self.temperature for rows, gain in zip(update.rows, bounded, strict=True)]

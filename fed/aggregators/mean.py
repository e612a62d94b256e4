"""FedAvg (McMahan et al. 2017, arXiv 1602.05629): the weighted mean of the clients' models."""

from collections.abc import Mapping

import torch
from torch import Tensor

from data.errors import InputError
from fed.update import Update

WEIGHTINGS = ("size", "uniform")


class Mean:
    """θ ← Σ w_i θ_i / Σ w_i, w_i the client's number of rows or 1.

    A running sum in float64: O(model) memory for any number of clients, and a mean that does not depend on the
    order in which they answer beyond the last bit of a double.
    """

    def __init__(self, weighting: str = "size"):
        if weighting not in WEIGHTINGS:
            raise InputError(f"fed.aggregator.weighting is '{weighting}'; choose one of {', '.join(WEIGHTINGS)}.")
        self.weighting = weighting
        self._reset()

    def _reset(self) -> None:
        self.total: dict[str, Tensor] = {}
        self.weights: dict[int, float] = {}

    def accumulate(self, update: Update) -> None:
        """Add a chunk of clients."""
        if not update.clients:
            return  # all of them failed
        weights = update.rows if self.weighting == "size" else [1] * len(update.clients)
        self.weights.update(zip(update.clients, map(float, weights), strict=True))
        for name, rows in update.shared.items():
            part = torch.tensor(weights, dtype=torch.float64, device=rows.device) @ rows.double()
            self.total[name] = self.total[name] + part if name in self.total else part

    def finalise(self, state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[int, float]]:
        """The new global state and the weights used; with no client to average, the state stays as it is."""
        scale = sum(self.weights.values())
        new = {name: (total / scale).to(state[name].dtype) for name, total in self.total.items()}
        weights = {client: weight / scale for client, weight in self.weights.items()}
        self._reset()
        return dict(state) | new, weights

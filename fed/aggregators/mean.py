"""FedAvg (McMahan et al. 2017, arXiv 1602.05629): the weighted mean of the clients' models."""

from collections.abc import Mapping

import torch
from torch import Tensor

from data.errors import InputError
from fed.update import Update

WEIGHTINGS = ("size", "rows", "uniform")


class Mean:
    """θ ← Σ w_i θ_i / Σ w_i, w_i the client's size or 1.

    A client's size is its number of rows; for a module that is trained on rows drawn by weight (OptiDICE's actor), what
    its rows weigh together by the server's modules, so that the mean still follows the gradient of the pooled loss.

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
        self.scale: dict[str, float] = {}  # module → sum of the weights
        self.weights: dict[int, float] = {}  # by rows, or alike

    def accumulate(self, update: Update) -> None:
        """Add a chunk of clients."""
        if not update.clients:
            return  # all of them failed
        by_rows = [1.0] * len(update.clients) if self.weighting == "uniform" else [float(n) for n in update.rows]
        self.weights.update(zip(update.clients, by_rows, strict=True))
        for name, rows in update.shared.items():
            weights = update.sizes.get(name, by_rows) if self.weighting == "size" else by_rows
            part = torch.tensor(weights, dtype=torch.float64, device=rows.device) @ rows.double()
            self.total[name] = self.total[name] + part if name in self.total else part
            self.scale[name] = self.scale.get(name, 0.0) + sum(weights)

    def finalise(self, state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[int, float]]:
        """The new global state and the weights by rows; what nobody has a weight for stays as it is."""
        new = {
            name: (total / self.scale[name]).to(state[name].dtype)
            for name, total in self.total.items()
            if self.scale[name] > 0
        }
        everyone = sum(self.weights.values())
        weights = {client: weight / everyone for client, weight in self.weights.items()}
        self._reset()
        return dict(state) | new, weights

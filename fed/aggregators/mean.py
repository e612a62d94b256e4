"""FedAvg (McMahan et al. 2017, arXiv 1602.05629): the weighted mean of the clients' models."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from data.errors import InputError
from fed.aggregators.base import Aggregation
from fed.update import Update

WEIGHTINGS = ("size", "rows", "uniform")


class Mean:
    """θ ← Σ w_i θ_i / Σ w_i, w_i the client's size, 1, or a number that is given for it.

    A client's size is its number of rows; for a module that is trained on rows drawn by weight (OptiDICE's actor), what
    its rows weigh together by the server's modules, so that the mean still follows the gradient of the pooled loss.

    A running sum in float64: O(model) memory for any number of clients, and a mean that does not depend on the
    order in which they answer beyond the last bit of a double.
    """

    def __init__(self, weighting: str | Sequence[float] = "size"):
        given = not isinstance(weighting, str)
        if not given and weighting not in WEIGHTINGS:
            raise InputError(
                f"fed.aggregator.weighting is '{weighting}'; choose one of {', '.join(WEIGHTINGS)}, or give a list "
                "with a number for each client."
            )
        if given and not (all(0 <= weight < math.inf for weight in weighting) and sum(weighting) > 0):
            raise InputError("fed.aggregator.weighting needs numbers of at least 0, and one above.")
        self.weighting = weighting
        self._reset()

    def _reset(self) -> None:
        self.total: dict[str, Tensor] = {}
        self.weights: dict[str, dict[int, float]] = {}  # module → client → weight, before they are made to sum to one
        self.usual: dict[int, float] = {}

    def check(self, clients: int) -> None:
        if not isinstance(self.weighting, str) and len(self.weighting) != clients:
            raise InputError(
                f"fed.aggregator.weighting has {len(self.weighting)} numbers and there are {clients} clients; give one "
                "for each."
            )

    # -- what a rule with other weights changes -------------------------------------------------------------------
    def weigh(self, update: Update) -> list[float]:
        """The weights of the chunk's clients, up to a common factor."""
        if self.weighting == "uniform":
            return [1.0] * len(update.clients)
        if isinstance(self.weighting, str):
            return [float(rows) for rows in update.rows]
        return [float(self.weighting[client]) for client in update.clients]

    def weigh_module(self, update: Update, module: str, usual: list[float]) -> list[float]:
        """The same for one module (or a moment of it, `actor/adam_m`), where it differs."""
        return update.sizes.get(module.split("/")[0], usual) if self.weighting == "size" else usual

    # -- the mean -------------------------------------------------------------------------------------------------
    def accumulate(self, update: Update) -> None:
        if not update.clients:
            return  # all of them failed
        usual = self.weigh(update)
        self.usual.update(zip(update.clients, usual, strict=True))
        for name, rows in update.shared.items():
            weights = self.weigh_module(update, name, usual)
            part = torch.tensor(weights, dtype=torch.float64, device=rows.device) @ rows.double()
            self.total[name] = self.total[name] + part if name in self.total else part
            self.weights.setdefault(name, {}).update(zip(update.clients, weights, strict=True))

    def finalise(self, state: Mapping[str, Tensor]) -> Aggregation:
        """What nobody has a weight for stays as it is."""
        new = dict(state)
        for name, total in self.total.items():
            scale = sum(self.weights[name].values())
            if scale > 0:
                new[name] = (total / scale).to(state[name].dtype)
        others = {name: shares(weights) for name, weights in self.weights.items() if weights != self.usual}
        result = Aggregation(new, shares(self.usual), others)
        self._reset()
        return result


def shares(weights: Mapping[int, float]) -> dict[int, float]:
    """The weights made to sum to one; all zero stay so."""
    whole = sum(weights.values())
    return {client: weight / whole if whole > 0 else 0.0 for client, weight in weights.items()}

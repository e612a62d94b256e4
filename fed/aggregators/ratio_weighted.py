"""Weights from the clients' density ratios: whoever's ratios are steady has more to say.

A client reports what its ratios w look like over its own rows (`ratio_weighted`), or over a small set of rows that
belong to nobody's private data (`reference_buffer`, see fed/reference.py); no ratio and no row leaves it.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from data.errors import InputError
from data.randomness import generator
from fed.aggregators.base import Aggregation
from fed.aggregators.mean import Mean
from fed.update import Update

MEASURES = ("ess", "ess_fraction", "inverse_variance", "size")
POLICIES = ("same", "mass", "size")
POLICY_MODULES = ("actor", "behaviour")
SMALLEST_VARIANCE = 1e-3
LEAST = 1e-12  # of a client's rows: all ratios of everybody zero is then FedAvg by size


class RatioWeighted(Mean):
    """ν, λ and the advantage net are averaged with one set of weights, as their gauge demands:
    w_i ∝ n_i^(1−m) · q_i^m, q_i the measure and m the mixture (1: the measure alone, 0: FedAvg).

    The measure `ess` (Σw)²/Σw² counts rows; `ess_fraction` is that by row; `inverse_variance` is 1/Var w, with w scaled
    to mean 1. Flat ratios have a high ESS and say little: `shuffled` deals the weights to other clients, as a control.

    `policy`: how actor and behaviour nets are weighed: as the others (same), by what a client's rows weigh (mass), or
    by their number (size).
    """

    def __init__(self, measure: str, mixture: float, policy: str, shuffled: bool, of: str = "ratio"):
        super().__init__()
        for name, value, known in (("measure", measure, MEASURES), ("policy", policy, POLICIES)):
            if value not in known:
                raise InputError(f"fed.aggregator.{name} is '{value}'; choose one of {', '.join(known)}.")
        if not 0 <= mixture <= 1:
            raise InputError(f"fed.aggregator.mixture is {mixture}; it must be from 0 to 1.")
        self.measure, self.mixture, self.policy, self.shuffled = measure, mixture, policy, shuffled
        self.of = self.needs = of
        self.held: list[Update] = []

    def weigh(self, update: Update) -> list[float]:
        statistics = update.statistics[self.of]
        measured = {
            "ess": statistics["ess"],
            "ess_fraction": statistics["ess_fraction"],
            "inverse_variance": [
                mean**2 / max(std**2, SMALLEST_VARIANCE * mean**2) if mean > 0 else 0.0
                for mean, std in zip(statistics["mean"], statistics["std"], strict=True)
            ],
            "size": update.rows,
        }[self.measure]
        return [
            rows ** (1 - self.mixture) * max(quality if math.isfinite(quality) else 0.0, LEAST * rows) ** self.mixture
            for rows, quality in zip(update.rows, measured, strict=True)
        ]

    def weigh_module(self, update: Update, module: str, usual: list[float]) -> list[float]:
        owner = module.split("/")[0]
        if owner not in POLICY_MODULES or self.policy == "same":
            return usual
        by_rows = [float(rows) for rows in update.rows]
        return update.sizes.get(owner, by_rows) if self.policy == "mass" else by_rows

    def accumulate(self, update: Update) -> None:
        if self.shuffled and update.clients:
            self.held.append(update)  # a permutation needs everybody: O(clients · model) memory
        else:
            super().accumulate(update)

    def finalise(self, state: Mapping[str, Tensor]) -> Aggregation:
        if self.held:
            update, self.held = Update.joined(self.held), []
            order = generator(0, "shuffled weights", update.round).permutation(len(update.clients)).tolist()
            others = update.only(order)
            super().accumulate(replace(update, rows=others.rows, sizes=others.sizes, statistics=others.statistics))
        return super().finalise(state)

"""SCAFFOLD (Karimireddy et al. 2020, arXiv 1910.06378): gradients are corrected for what sets a client apart.

The paper's first form: a client's control variate c_i is its gradient at the server's point, here the mean over
`batches` of its batches. The second form, from the way that the client has gone, would be right for plain SGD only;
this one is right for any optimiser, Adam too, since it corrects the gradient before the optimiser sees it.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from data.errors import InputError
from fed.local_rules.base import Batches, LocalRule, LocalTraining, stacked
from rl.learner import Learner


class Scaffold(LocalRule):
    """Steps go along g − c_i + c, c the mean of all clients' c_i by their rows; c_i is then renewed, and its
    change sent."""

    def __init__(self, batches: int):
        if batches < 1:
            raise InputError(f"fed.local.batches is {batches}; it must be at least 1.")
        self.batches = batches

    def server_tensors(self, modules: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {f"control/{name}": torch.zeros_like(row) for name, row in modules.items()}

    def begin(
        self, cohort: Learner, sent: Mapping[str, Tensor], own: Sequence[Mapping[str, Tensor]], batches: Batches
    ) -> LocalTraining:
        modules = [name for name in cohort.params if f"control/{name}" in sent]
        before = {name: stacked(own, f"control/{name}", cohort.params[name].detach()) for name in modules}
        total = {name: torch.zeros_like(control) for name, control in before.items()}
        count = dict.fromkeys(modules, 0)  # an objective need not be in every batch
        for batch in batches(self.batches):
            for name, gradient in cohort.gradients(batch).items():
                if name in total:
                    total[name] += gradient
                    count[name] += 1
        after = {name: gradient / max(1, count[name]) for name, gradient in total.items()}
        correction = {name: sent[f"control/{name}"].to(before[name]) - before[name] for name in modules}
        return _Controlled(correction, before, after)

    def receive(self, state: Mapping[str, Tensor], extras: Mapping[str, Tensor], rows: int) -> dict[str, Tensor]:
        """c ← c + Σ_answered n_i (c_i⁺ − c_i) / N."""
        return {name: (state[name] + change / rows).to(state[name].dtype) for name, change in extras.items()}


class _Controlled(LocalTraining):
    def __init__(self, correction: dict[str, Tensor], before: dict[str, Tensor], after: dict[str, Tensor]):
        self.correction, self.before, self.after = correction, before, after

    def correct(self, module: str, gradient: Tensor) -> None:
        if module in self.correction:
            gradient.add_(self.correction[module])

    def finish(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        change = {f"control/{name}": self.after[name] - self.before[name] for name in self.after}
        return change, {f"control/{name}": control for name, control in self.after.items()}

"""FedProx (Li et al. 2018, arXiv 1812.06127): clients are held near the server's model while they train."""

from collections.abc import Collection, Mapping, Sequence

from torch import Tensor

from data.errors import InputError
from fed.local_rules.base import Batches, LocalRule, LocalTraining
from rl.learner import Learner


class Proximal(LocalRule):
    """L_i(θ) + Σ_m μ_m/2 ‖θ_m − θ_m^server‖²; μ is one number, or one for each module: {actor: 0.1, critic: 0}."""

    def __init__(self, mu: float | Mapping[str, float]):
        if any(value < 0 for value in (mu.values() if isinstance(mu, Mapping) else [mu])):
            raise InputError(f"fed.local.mu is {mu}; it must be at least 0.")
        self.mu = mu

    def check(self, modules: Collection[str]) -> None:
        for name in self.mu if isinstance(self.mu, Mapping) else ():
            if name not in modules:
                raise InputError(f"fed.local.mu names '{name}'; the shared modules are {', '.join(modules)}.")

    def begin(
        self, cohort: Learner, sent: Mapping[str, Tensor], own: Sequence[Mapping[str, Tensor]], batches: Batches
    ) -> LocalTraining:
        mu = self.mu if isinstance(self.mu, Mapping) else dict.fromkeys(cohort.params, self.mu)
        return _Held(cohort, {name: value for name, value in mu.items() if value > 0 and name in sent})


class _Held(LocalTraining):
    def __init__(self, cohort: Learner, mu: Mapping[str, float]):
        self.mu, self.params = mu, cohort.params
        self.server = {name: cohort.params[name].detach().clone() for name in mu}

    def correct(self, module: str, gradient: Tensor) -> None:
        if module in self.mu:
            gradient.add_(self.params[module].detach() - self.server[module], alpha=self.mu[module])

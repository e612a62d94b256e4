"""Behaviour cloning: do as the log did."""

import torch
from torch import Tensor

from data.batch import Batch
from rl.learner import Learner, Losses, Metrics, Task
from rl.policies import TanhGaussian


class BC(Learner):
    """A tanh-Gaussian actor fitted to the logged actions, by likelihood or by squared error."""

    def __init__(self, task: Task, clients: int, *, loss: str, lr: float, **common):
        self.imitate = {"likelihood": self.likelihood, "squared": self.squared_error}[loss]
        super().__init__(task, clients, lr={"actor": lr}, **common)

    def build(self, task: Task) -> None:
        self.actor = TanhGaussian(self.mlp(task.observations, 2 * task.actions))

    def initial(self, generator: torch.Generator) -> dict[str, Tensor]:
        return {"actor": self.actor.network.init(generator)}

    def objectives(self, batch: Batch) -> list:
        return [self.imitate]

    def likelihood(self, batch: Batch) -> tuple[Losses, Metrics]:
        """L(π) = −E_D[log π(a|s)], taken at actions moved inside the bounds."""
        log_prob = self.actor.log_prob(self.params["actor"], batch.observations, batch.actions)
        return {"actor": -log_prob.mean(1)}, {}

    def squared_error(self, batch: Batch) -> tuple[Losses, Metrics]:
        """L(π) = E_D[‖a − tanh μ(s)‖²]; σ is not trained."""
        error = batch.actions - self.actor.mode(self.params["actor"], batch.observations)
        return {"actor": error.square().sum(-1).mean(1)}, {}

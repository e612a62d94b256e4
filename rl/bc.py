"""Behaviour cloning: maximise the likelihood of the logged actions."""

import torch
from torch import Tensor

from data.batch import Batch
from rl.learner import Learner, Losses, Metrics, Task
from rl.policies import TanhGaussian


class BC(Learner):
    """L(π) = −E_D[log π(a|s)], the likelihood taken at actions moved inside the bounds."""

    def __init__(self, task: Task, clients: int, *, hidden: list[int], lr: float, clip: float | None, device: str):
        self.actor = TanhGaussian.build(task.observations, task.actions, hidden)
        super().__init__(clients=clients, lr={"actor": lr}, tau=0.0, clip=clip, device=device)

    def initial(self, generator: torch.Generator) -> dict[str, Tensor]:
        return {"actor": self.actor.network.init(generator)}

    def objectives(self) -> list:
        return [self.imitate]

    def imitate(self, batch: Batch) -> tuple[Losses, Metrics]:
        log_prob = self.actor.log_prob(self.params["actor"], batch.observations, batch.actions)
        return {"actor": -log_prob.mean(1)}, {}

"""Fitted Q evaluation (Le et al. 2019, arXiv 1903.08738): what a fixed policy would earn, from logged data alone.

It is a learner like the others, so it is federated like them: each client fits Q on its own rows, and the Qs are
averaged.
"""

import torch
from torch import Tensor

from data.batch import Batch
from rl.learner import Learner, Losses, Metrics, Task
from rl.policies import Actor


class FQE(Learner):
    """L(Q) = E_D[(Q(s,a) − r − γ(1−d) Q̄(s',π(s')))²]. The module `actor` is the policy, which nothing trains."""

    target_of = {"critic_target": "critic"}  # noqa: RUF012

    def __init__(self, task: Task, clients: int, *, actor: Actor, gamma: float, tau: float, lr: float, **common):
        self.actor, self.gamma = actor, gamma
        super().__init__(task, clients, lr={"actor": 0.0, "critic": lr}, tau=tau, **common)

    def build(self, task: Task) -> None:
        self.critic = self.mlp(task.observations + task.actions, 1)
        self.bounds = {"q_abs": task.reward_bound / (1 - self.gamma)} if task.reward_bound > 0 else {}

    def initial(self, generator: torch.Generator) -> dict[str, Tensor]:
        return {"actor": torch.zeros(self.actor.network.parameters), "critic": self.critic.init(generator)}

    def objectives(self, batch: Batch) -> list:
        return [self.evaluate_policy]

    def q(self, theta: Tensor, observations: Tensor, actions: Tensor) -> Tensor:
        """[K, B]"""
        return self.critic(theta, torch.cat([observations, actions], dim=-1)).squeeze(-1)

    def value(self, theta: Tensor, observations: Tensor) -> Tensor:
        """Q(s, π(s)) [K, B]"""
        return self.q(theta, observations, self.actor.mode(self.params["actor"], observations))

    def evaluate_policy(self, batch: Batch) -> tuple[Losses, Metrics]:
        with torch.no_grad():
            value = self.value(self.targets["critic_target"], batch.next_observations)
            target = batch.rewards + self.gamma * (1 - batch.terminals) * value
        q = self.q(self.params["critic"], batch.observations, batch.actions)
        return {"critic": (q - target).square().mean(1)}, {"q_abs": q.detach().abs().mean(1)}

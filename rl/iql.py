"""Implicit Q-learning (Kostrikov et al. 2021, arXiv 2110.06169): no action outside the data is ever evaluated.

V is an upper expectile of Q over the data's own actions, Q backs up V, and the policy is a regression on the logged
actions, weighted by how much better than V they are.
"""

import math

import torch
from torch import Tensor

from data.batch import Batch
from rl.learner import Learner, Losses, Metrics, Task
from rl.policies import LOG_STD_RANGE, Deterministic, TanhGaussian

LARGEST_WEIGHT = 100.0  # of a row in the regression


class IQL(Learner):
    """A value network, twin critics with targets, and a policy learned by advantage-weighted regression."""

    target_of = {"critic_target": "critic"}  # noqa: RUF012

    def __init__(
        self,
        task: Task,
        clients: int,
        *,
        critics: int,
        gamma: float,
        tau: float,
        expectile: float,
        beta: float,
        policy: str,
        actor_lr: float,
        critic_lr: float,
        value_lr: float,
        **common,
    ):
        self.critics, self.gamma, self.expectile, self.beta, self.policy = critics, gamma, expectile, beta, policy
        lr = {"actor": actor_lr, "log_std": actor_lr, "critic": critic_lr, "value": value_lr}
        super().__init__(task, clients, lr=lr, tau=tau, **common)

    def build(self, task: Task) -> None:
        if self.policy == "gaussian":  # N(tanh μ(s), σ²), as in the paper
            self.actor = Deterministic(self.mlp(task.observations, task.actions))
        else:
            self.actor = TanhGaussian(self.mlp(task.observations, 2 * task.actions))
        self.critic = self.mlp(task.observations + task.actions, 1, heads=self.critics)
        self.value = self.mlp(task.observations, 1)
        self.actions = task.actions
        self.bounds = {"q_abs": task.reward_bound / (1 - self.gamma)} if task.reward_bound > 0 else {}

    def initial(self, generator: torch.Generator) -> dict[str, Tensor]:
        networks = {"actor": self.actor.network, "critic": self.critic, "value": self.value}
        rows = {name: network.init(generator) for name, network in networks.items()}
        return rows | ({"log_std": torch.zeros(self.actions)} if self.policy == "gaussian" else {})

    def objectives(self, batch: Batch) -> list:
        return [self.learn]

    def learn(self, batch: Batch) -> tuple[Losses, Metrics]:
        """L(V) = E[|τ − 1(A < 0)| A²], A = min_j Q̄_j(s,a) − V(s);
        L(Q) = Σ_i E[(Q_i(s,a) − r − γ(1−d) V(s'))²]; L(π) = −E[min(exp(βA), 100) log π(a|s)]."""
        pairs = torch.cat([batch.observations, batch.actions], dim=-1)
        with torch.no_grad():
            target_q = self.critic(self.targets["critic_target"], pairs).squeeze(-1).amin(1)  # [K, B]
            next_value = self.value(self.params["value"], batch.next_observations).squeeze(-1)
            target = batch.rewards + self.gamma * (1 - batch.terminals) * next_value
        advantage = target_q - self.value(self.params["value"], batch.observations).squeeze(-1)
        q = self.critic(self.params["critic"], pairs).squeeze(-1)  # [K, critics, B]
        weight = (self.beta * advantage.detach()).exp().clamp_max(LARGEST_WEIGHT)
        losses = {
            "value": expectile_loss(advantage, self.expectile).mean(1),
            "critic": (q - target.unsqueeze(1)).square().mean(2).sum(1),
            **{name: -(weight * log_prob).mean(1) for name, log_prob in self.log_probs(batch).items()},
        }
        metrics = {"q_abs": q.abs().mean((1, 2)), "advantage": advantage.mean(1), "weight": weight.mean(1)}
        return losses, {name: value.detach() for name, value in metrics.items()}

    def log_probs(self, batch: Batch) -> dict[str, Tensor]:
        """log π(a|s) `[K, B]` of the logged actions, once for each module of the policy: a function of that alone."""
        if self.policy == "tanh_gaussian":
            return {"actor": self.actor.log_prob(self.params["actor"], batch.observations, batch.actions)}
        mean = self.actor.mode(self.params["actor"], batch.observations)
        log_std = self.params["log_std"].clamp(*LOG_STD_RANGE).unsqueeze(1)  # [K, 1, A]
        return {
            "actor": gaussian_log_prob(batch.actions, mean, log_std.detach()),
            "log_std": gaussian_log_prob(batch.actions, mean.detach(), log_std),
        }


def expectile_loss(error: Tensor, expectile: float) -> Tensor:
    """|τ − 1(u < 0)| u²: an error above 0 counts τ, one below 1 − τ."""
    return torch.where(error < 0, 1 - expectile, expectile) * error.square()


def gaussian_log_prob(x: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    z = (x - mean) * torch.exp(-log_std)
    return (-0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

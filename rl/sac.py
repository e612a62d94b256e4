"""Soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905), trained on logged data only.

Offline, plain SAC over-estimates actions that the data does not hold, and may diverge: that is the point of the
baseline. Nothing here hides it; |Q| beyond what any policy could earn is reported as divergence.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from data.batch import Batch
from rl.learner import Learner, Losses, Metrics, Task
from rl.policies import TanhGaussian


class SAC(Learner):
    """Twin critics with targets, a tanh-Gaussian actor, and a temperature tuned to a target entropy."""

    noise_draws = 2  # for a' ~ π(·|s') in the critic's target, and a ~ π(·|s) in the actor's loss
    target_of = {"critic_target": "critic"}  # noqa: RUF012

    def __init__(
        self,
        task: Task,
        clients: int,
        *,
        critics: int,
        gamma: float,
        tau: float,
        actor_lr: float,
        critic_lr: float,
        temperature_lr: float,
        initial_temperature: float,
        target_entropy: float | None,
        backup_entropy: bool,
        more_lr: Mapping[str, float] | None = None,  # of modules that a subclass adds
        **common,
    ):
        self.critics, self.gamma, self.backup_entropy = critics, gamma, backup_entropy
        self.initial_temperature = initial_temperature
        self.target_entropy = -float(task.actions) if target_entropy is None else target_entropy
        lr = {"actor": actor_lr, "critic": critic_lr, "temperature": temperature_lr}
        super().__init__(task, clients, lr=lr | (more_lr or {}), tau=tau, **common)

    def build(self, task: Task) -> None:
        self.actor = TanhGaussian(self.mlp(task.observations, 2 * task.actions))
        self.critic = self.mlp(task.observations + task.actions, 1, heads=self.critics)
        # What the largest reward earns for ever; without rewards there is nothing to measure by.
        self.bounds = {"q_abs": task.reward_bound / (1 - self.gamma)} if task.reward_bound > 0 else {}

    def initial(self, generator: torch.Generator) -> dict[str, Tensor]:
        return {
            "actor": self.actor.network.init(generator),
            "critic": self.critic.init(generator),
            "temperature": torch.tensor([self.initial_temperature]).log(),  # its logarithm is what is learned
        }

    def objectives(self, batch: Batch) -> list:
        return [self.evaluate_policy, self.improve_policy]

    def q(self, theta: Tensor, observations: Tensor, actions: Tensor) -> Tensor:
        """[K, critics, B]"""
        return self.critic(theta, torch.cat([observations, actions], dim=-1)).squeeze(-1)

    def evaluate_policy(self, batch: Batch) -> tuple[Losses, Metrics]:
        """L(Q) = Σ_i E[(Q_i(s,a) − r − γ(1−d)(min_j Q̄_j(s',a') − α log π(a'|s')))²], a' ~ π(·|s')."""
        with torch.no_grad():
            next_actions, next_log_prob = self.actor.sample(
                self.params["actor"], batch.next_observations, batch.noise[0]
            )
            value = self.q(self.targets["critic_target"], batch.next_observations, next_actions).amin(1)
            if self.backup_entropy:
                value = value - self.params["temperature"].exp() * next_log_prob
            target = batch.rewards + self.gamma * (1 - batch.terminals) * value  # [K, B]
        q = self.q(self.params["critic"], batch.observations, batch.actions)
        loss = (q - target.unsqueeze(1)).square().mean(2).sum(1)
        return {"critic": loss}, {"q_abs": q.detach().abs().mean((1, 2))}

    def improve_policy(self, batch: Batch) -> tuple[Losses, Metrics]:
        """L(π) = E[α log π(a|s) − min_j Q_j(s,a)], a ~ π(·|s); L(log α) = −log α (E[log π(a|s)] + H̄)."""
        log_temperature = self.params["temperature"]
        actions, log_prob = self.actor.sample(self.params["actor"], batch.observations, batch.noise[1])
        actor_loss = (log_temperature.detach().exp() * log_prob - self.merit(batch, actions)).mean(1)
        entropy_gap = log_prob.detach().mean(1) + self.target_entropy
        temperature_loss = -(log_temperature.squeeze(1) * entropy_gap)
        return {"actor": actor_loss, "temperature": temperature_loss}, {"entropy": -log_prob.detach().mean(1)}

    def merit(self, batch: Batch, actions: Tensor) -> Tensor:
        """min_j Q_j(s,a) `[K, B]`: what the actor climbs."""
        return self.q(self.params["critic"].detach(), batch.observations, actions).amin(1)

"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv 1802.09477), on logged data only.

Like SAC it over-estimates actions that the data does not hold: a baseline, and the ground that TD3+BC stands on.
"""

import torch
from torch import Tensor

from data.batch import Batch
from rl.learner import Learner, Losses, Metrics, Task
from rl.policies import Deterministic


class TD3(Learner):
    """Twin critics, a deterministic actor that moves every `delay` updates, and targets of all of them."""

    noise_draws = 1  # on the target's action
    target_of = {"actor_target": "actor", "critic_target": "critic"}  # noqa: RUF012

    def __init__(
        self,
        task: Task,
        clients: int,
        *,
        gamma: float,
        tau: float,
        actor_lr: float,
        critic_lr: float,
        delay: int,
        smoothing_noise: float,
        smoothing_clip: float,
        **common,
    ):
        self.gamma, self.delay = gamma, delay
        self.smoothing_noise, self.smoothing_clip = smoothing_noise, smoothing_clip
        super().__init__(task, clients, lr={"actor": actor_lr, "critic": critic_lr}, tau=tau, **common)

    def build(self, task: Task) -> None:
        self.actor = Deterministic(self.mlp(task.observations, task.actions))
        self.critic = self.mlp(task.observations + task.actions, 1, heads=2)
        self.first_critic = self.mlp(task.observations + task.actions, 1)
        self.bounds = {"q_abs": task.reward_bound / (1 - self.gamma)} if task.reward_bound > 0 else {}

    def initial(self, generator: torch.Generator) -> dict[str, Tensor]:
        return {"actor": self.actor.network.init(generator), "critic": self.critic.init(generator)}

    def objectives(self, batch: Batch) -> list:
        return [self.evaluate_policy, self.improve_policy] if self.targets_follow(batch) else [self.evaluate_policy]

    def targets_follow(self, batch: Batch) -> bool:
        """Actor and targets move together, after every `delay`-th step of the critics."""
        return (batch.step + 1) % self.delay == 0

    def q(self, theta: Tensor, observations: Tensor, actions: Tensor) -> Tensor:
        """[K, 2, B]"""
        return self.critic(theta, torch.cat([observations, actions], dim=-1)).squeeze(-1)

    def first_q(self, theta: Tensor, observations: Tensor, actions: Tensor) -> Tensor:
        """[K, B] of the first critic, whose parameters lie first in a row."""
        theta = theta[:, : self.first_critic.parameters]
        return self.first_critic(theta, torch.cat([observations, actions], dim=-1)).squeeze(-1)

    def evaluate_policy(self, batch: Batch) -> tuple[Losses, Metrics]:
        """L(Q) = Σ_i E[(Q_i(s,a) − r − γ(1−d) min_j Q̄_j(s',a'))²], a' = π̄(s') + clip(σε, ±c), clipped to ±1."""
        with torch.no_grad():
            noise = (self.smoothing_noise * batch.noise[0]).clamp(-self.smoothing_clip, self.smoothing_clip)
            next_actions = self.actor.mode(self.targets["actor_target"], batch.next_observations)
            next_actions = (next_actions + noise).clamp(-1, 1)
            value = self.next_value(batch, next_actions)
            target = batch.rewards + self.gamma * (1 - batch.terminals) * value  # [K, B]
        q = self.q(self.params["critic"], batch.observations, batch.actions)
        loss = (q - target.unsqueeze(1)).square().mean(2).sum(1)
        return {"critic": loss}, {"q_abs": q.detach().abs().mean((1, 2))}

    def next_value(self, batch: Batch, next_actions: Tensor) -> Tensor:
        """min_j Q̄_j(s', a') `[K, B]`."""
        return self.q(self.targets["critic_target"], batch.next_observations, next_actions).amin(1)

    def improve_policy(self, batch: Batch) -> tuple[Losses, Metrics]:
        """L(π) = −E[Q₁(s, π(s))]."""
        actions = self.actor.mode(self.params["actor"], batch.observations)
        q = self.first_q(self.params["critic"].detach(), batch.observations, actions)
        return {"actor": -q.mean(1)}, {}

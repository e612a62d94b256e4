"""Conservative Q-learning (Kumar et al. 2020, arXiv 2006.04779): SAC whose critics are low on actions that the data
does not hold.

Options are Cal-QL's lower bound (Nakamoto et al. 2023, arXiv 2303.05479), a learned weight, the maximum in the
backup, and a start by behaviour cloning.
"""

import math

import torch
from torch import Tensor

from data.batch import Batch
from rl.learner import Losses, Metrics, Task
from rl.sac import SAC

LARGEST_ALPHA = 1e6


class CQL(SAC):
    """SAC, and in the critics' loss α (log ∫ exp Q(s,a) da − Q(s, a_data)), the integral estimated from samples."""

    def __init__(
        self,
        task: Task,
        clients: int,
        *,
        alpha: float,
        lagrange: float | None,
        sampled_actions: int,
        max_backup: bool,
        calibrated: bool,
        bc_steps: int,
        critic_layers: int,
        critic_lr: float,
        **sac,
    ):
        self.alpha, self.lagrange, self.sampled_actions = alpha, lagrange, sampled_actions
        self.max_backup, self.calibrated, self.bc_steps = max_backup, calibrated, bc_steps
        self.critic_layers = critic_layers
        # SAC's two draws, and N each for U(−1, 1), π(s) and π(s').
        self.noise_draws = SAC.noise_draws + 3 * sampled_actions
        super().__init__(task, clients, critic_lr=critic_lr, more_lr={"alpha": critic_lr}, **sac)

    def build(self, task: Task) -> None:
        super().build(task)
        hidden = (self.hidden + self.hidden[-1:] * self.critic_layers)[: self.critic_layers]
        self.critic = self.mlp(task.observations + task.actions, 1, heads=self.critics, hidden=hidden)
        self.returns_discount = self.gamma if self.calibrated else None

    def initial(self, generator: torch.Generator) -> dict[str, Tensor]:
        learned = {} if self.lagrange is None else {"alpha": torch.tensor([self.alpha]).log()}
        return super().initial(generator) | learned

    def evaluate_policy(self, batch: Batch) -> tuple[Losses, Metrics]:
        """L(Q) = Σ_i E[(Q_i(s,a) − y)²] + α Σ_i gap_i, gap_i = E[log Σ_k exp(Q_i(s,a_k) − log p(a_k)) − Q_i(s,a)];
        with a Lagrange target gap G, α is learned: L(log α) = −α (mean_i gap_i − G)."""
        with torch.no_grad():
            # From one pass: the backup's a' and the penalty's, all from π(s').
            noise = torch.cat([batch.noise[:1], self.penalty_noise(batch)[2]])
            next_actions, next_log_prob = self.actor.sample(self.params["actor"], batch.next_observations, noise)
            target = self.backup(batch, next_actions, next_log_prob)
            sampled, log_density = self.propose(batch, next_actions[1:], next_log_prob[1:])
        # One pass over the logged and the sampled actions.
        q = self.q_each(self.params["critic"], batch.observations, torch.cat([batch.actions.unsqueeze(0), sampled]))
        q_data, q_sampled = q[:, :, 0], q[:, :, 1:]  # [K, critics, B], [K, critics, 3N, B]
        if self.calibrated:
            q_sampled = self.at_least_returns(q_sampled, batch)
        gap = (torch.logsumexp(q_sampled - log_density, 2) - q_data).mean(2)  # [K, critics]
        error = (q_data - target.unsqueeze(1)).square().mean(2)
        metrics = {"q_abs": q_data.detach().abs().mean((1, 2)), "conservative_gap": gap.detach().mean(1)}
        if self.lagrange is None:
            return {"critic": (error + self.alpha * gap).sum(1)}, metrics
        alpha = self.params["alpha"].exp().clamp_max(LARGEST_ALPHA)  # [K, 1]
        losses = {
            "critic": (error + alpha.detach() * gap).sum(1),
            "alpha": -alpha.squeeze(1) * (metrics["conservative_gap"] - self.lagrange),
        }
        return losses, metrics | {"alpha": alpha.detach().squeeze(1)}

    def backup(self, batch: Batch, next_actions: Tensor, next_log_prob: Tensor) -> Tensor:
        """y = r + γ(1−d) min_j Q̄_j(s',a') `[K, B]` for the first of the actions, or for the best of all of them."""
        count = len(next_actions) if self.max_backup else 1
        value = self.q_each(self.targets["critic_target"], batch.next_observations, next_actions[:count]).amin(1)
        if self.backup_entropy:
            value = value - self.params["temperature"].exp().unsqueeze(1) * next_log_prob[:count].transpose(0, 1)
        return batch.rewards + self.gamma * (1 - batch.terminals) * value.amax(1)

    def propose(self, batch: Batch, next_actions: Tensor, next_log_prob: Tensor) -> tuple[Tensor, Tensor]:
        """N actions each from U(−1, 1), π(s) and π(s'), `[3N, K, B, A]`, and their log-densities `[K, 1, 3N, B]`."""
        uniform_noise, policy_noise, _ = self.penalty_noise(batch)
        uniform = torch.erf(uniform_noise / math.sqrt(2))  # 2Φ(z) − 1
        actions, log_prob = self.actor.sample(self.params["actor"], batch.observations, policy_noise)
        uniform_log_prob = torch.full_like(log_prob, uniform.shape[-1] * math.log(0.5))
        log_density = torch.cat([uniform_log_prob, log_prob, next_log_prob])
        return torch.cat([uniform, actions, next_actions]), log_density.transpose(0, 1).unsqueeze(1)

    def penalty_noise(self, batch: Batch) -> tuple[Tensor, ...]:
        """Three times `[N, K, B, A]`: for U(−1, 1), π(s) and π(s')."""
        return batch.noise[SAC.noise_draws :].chunk(3)

    def q_each(self, theta: Tensor, observations: Tensor, actions: Tensor) -> Tensor:
        """Q(s, a_n) `[K, critics, N, B]` of several actions `[N, K, B, A]` in each state."""
        count, clients, rows, _ = actions.shape
        pairs = torch.cat([observations.expand(count, -1, -1, -1), actions], dim=-1)
        pairs = pairs.transpose(0, 1).reshape(clients, count * rows, -1)
        return self.critic(theta, pairs).view(clients, -1, count, rows)

    def at_least_returns(self, q: Tensor, batch: Batch) -> Tensor:
        """Cal-QL: Q of the policy's actions counts no less than the logged return, and is not pushed below it."""
        uniform, policy = q.split([self.sampled_actions, 2 * self.sampled_actions], dim=2)
        return torch.cat([uniform, policy.maximum(batch.returns[:, None, None])], dim=2)

    def merit(self, batch: Batch, actions: Tensor) -> Tensor:
        """As SAC; in the first `bc_steps` updates log π(a_data|s), so that the actor begins with the data's actions."""
        if batch.step < self.bc_steps:
            return self.actor.log_prob(self.params["actor"], batch.observations, batch.actions)
        return super().merit(batch, actions)

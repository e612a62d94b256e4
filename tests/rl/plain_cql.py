"""CQL for one client as one would write it with nn.Linear and torch.optim.Adam, action by action.

It shares no code with the client axis.
"""

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution, Uniform

from rl.plain_sac import mlp


class PlainCQL:
    """Actor, two critics of three hidden layers, their targets, the temperature and the weight α."""

    def __init__(
        self,
        observations: int,
        actions: int,
        hidden: list[int],
        *,
        sampled_actions: int,
        lagrange: float | None = None,
        max_backup: bool = False,
        calibrated: bool = False,
        backup_entropy: bool = False,
        bc_steps: int = 0,
    ):
        self.gamma, self.tau, self.target_entropy, self.samples = 0.99, 0.005, -float(actions), sampled_actions
        self.lagrange, self.max_backup, self.calibrated = lagrange, max_backup, calibrated
        self.backup_entropy, self.bc_steps = backup_entropy, bc_steps
        self.actor = mlp(observations, *hidden, 2 * actions)
        self.critics = nn.ModuleList(mlp(observations + actions, *hidden, hidden[-1], 1) for _ in range(2))
        self.targets = nn.ModuleList(mlp(observations + actions, *hidden, hidden[-1], 1) for _ in range(2))
        self.log_temperature = nn.Parameter(torch.zeros(1))
        self.log_alpha = nn.Parameter(torch.tensor([10.0]).log())
        self.uniform = Independent(Uniform(-torch.ones(actions), torch.ones(actions), validate_args=False), 1)
        self.actor_optimiser = torch.optim.Adam(self.actor.parameters(), 3e-5)
        self.critic_optimiser = torch.optim.Adam(self.critics.parameters(), 3e-4)
        self.temperature_optimiser = torch.optim.Adam([self.log_temperature], 3e-5)
        self.alpha_optimiser = torch.optim.Adam([self.log_alpha], 3e-4)

    def policy(self, s: Tensor) -> TransformedDistribution:
        mean, log_std = self.actor(s).chunk(2, dim=-1)
        normal = Independent(Normal(mean, log_std.clamp(-5, 2).exp()), 1)
        return TransformedDistribution(normal, [TanhTransform(cache_size=1)])

    def act(self, s: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        policy = self.policy(s)
        normal = policy.base_dist.base_dist
        action = policy.transforms[0](normal.loc + normal.scale * noise)
        return action, policy.log_prob(action)

    def update(
        self,
        s: Tensor,
        a: Tensor,
        r: Tensor,
        s2: Tensor,
        done: Tensor,
        noise: Tensor,
        returns: Tensor | None,
        step: int,
    ) -> None:
        """One update on a batch `[B, …]` with noise `[2 + 3N, B, A]`."""
        temperature = self.log_temperature.detach().exp()
        n = self.samples
        uniform_noise, now_noise, next_noise = noise[2 : 2 + n], noise[2 + n : 2 + 2 * n], noise[2 + 2 * n :]
        with torch.no_grad():
            values = []
            for z in [noise[0], *next_noise] if self.max_backup else [noise[0]]:
                a2, log_prob2 = self.act(s2, z)
                x2 = torch.cat([s2, a2], -1)
                value = torch.min(self.targets[0](x2), self.targets[1](x2)).squeeze(-1)
                values.append(value - temperature * log_prob2 if self.backup_entropy else value)
            y = r + self.gamma * (1 - done) * torch.stack(values).max(0).values
            proposals = []  # action, log-density, whether it is the policy's
            for z in uniform_noise:
                action = 2 * Normal(0.0, 1.0).cdf(z) - 1
                proposals.append((action, self.uniform.log_prob(action), False))
            proposals += [(*self.act(s, z), True) for z in now_noise]
            proposals += [(*self.act(s2, z), True) for z in next_noise]
        loss, gaps = 0.0, []
        for critic in self.critics:
            q = critic(torch.cat([s, a], -1)).squeeze(-1)
            terms = []
            for action, log_density, is_policy in proposals:
                other = critic(torch.cat([s, action], -1)).squeeze(-1)
                if self.calibrated and is_policy:
                    other = torch.max(other, returns)
                terms.append(other - log_density)
            gap = (torch.stack(terms).exp().sum(0).log() - q).mean()
            loss = loss + ((q - y) ** 2).mean() + self.log_alpha.detach().exp() * gap
            gaps.append(gap.detach())
        self.critic_optimiser.zero_grad()
        loss.backward()
        self.critic_optimiser.step()
        if self.lagrange is not None:
            self.alpha_optimiser.zero_grad()
            (-self.log_alpha.exp() * (sum(gaps) / 2 - self.lagrange)).sum().backward()
            self.alpha_optimiser.step()

        action, log_prob = self.act(s, noise[1])
        if step < self.bc_steps:
            climbed = self.policy(s).log_prob(a.clamp(-0.999, 0.999))
        else:
            x = torch.cat([s, action], -1)
            climbed = torch.min(self.critics[0](x), self.critics[1](x)).squeeze(-1)
        self.actor_optimiser.zero_grad()
        (temperature * log_prob - climbed).mean().backward()
        self.actor_optimiser.step()
        self.temperature_optimiser.zero_grad()
        (-self.log_temperature * (log_prob.detach().mean() + self.target_entropy)).sum().backward()
        self.temperature_optimiser.step()
        with torch.no_grad():
            for target, online in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                target.mul_(1 - self.tau).add_(online, alpha=self.tau)

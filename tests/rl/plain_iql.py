"""IQL for one client as one would write it with nn.Linear and torch.optim.Adam.

It shares no code with the client axis.
"""

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from rl.plain_sac import mlp


class PlainIQL:
    """Value, two critics, their targets, and a policy with a free spread (or a tanh-Gaussian one)."""

    def __init__(self, observations: int, actions: int, hidden: list[int], policy: str):
        self.gamma, self.tau, self.expectile, self.beta, self.policy = 0.99, 0.005, 0.7, 3.0, policy
        self.value = mlp(observations, *hidden, 1)
        self.critics = nn.ModuleList(mlp(observations + actions, *hidden, 1) for _ in range(2))
        self.targets = nn.ModuleList(mlp(observations + actions, *hidden, 1) for _ in range(2))
        self.actor = mlp(observations, *hidden, actions if policy == "gaussian" else 2 * actions)
        self.log_std = nn.Parameter(torch.zeros(actions))
        self.value_optimiser = torch.optim.Adam(self.value.parameters(), 3e-4)
        self.critic_optimiser = torch.optim.Adam(self.critics.parameters(), 3e-4)
        self.actor_optimiser = torch.optim.Adam([*self.actor.parameters(), self.log_std], 3e-4)

    def distribution(self, s: Tensor) -> torch.distributions.Distribution:
        if self.policy == "gaussian":
            return Independent(Normal(torch.tanh(self.actor(s)), self.log_std.clamp(-5, 2).exp()), 1)
        mean, log_std = self.actor(s).chunk(2, dim=-1)
        normal = Independent(Normal(mean, log_std.clamp(-5, 2).exp()), 1)
        return TransformedDistribution(normal, [TanhTransform()])

    def update(self, s: Tensor, a: Tensor, r: Tensor, s2: Tensor, done: Tensor) -> None:
        x = torch.cat([s, a], -1)
        with torch.no_grad():
            target_q = torch.min(self.targets[0](x), self.targets[1](x)).squeeze(-1)
            y = r + self.gamma * (1 - done) * self.value(s2).squeeze(-1)
        error = target_q - self.value(s).squeeze(-1)
        value_loss = ((self.expectile - (error < 0).float()).abs() * error**2).mean()
        critic_loss = sum(((critic(x).squeeze(-1) - y) ** 2).mean() for critic in self.critics)
        weight = torch.exp(self.beta * error.detach()).clamp(max=100.0)
        inside = a if self.policy == "gaussian" else a.clamp(-0.999, 0.999)
        actor_loss = -(weight * self.distribution(s).log_prob(inside)).mean()
        for optimiser, loss in (
            (self.value_optimiser, value_loss),
            (self.critic_optimiser, critic_loss),
            (self.actor_optimiser, actor_loss),
        ):
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            for target, online in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                target.mul_(1 - self.tau).add_(online, alpha=self.tau)

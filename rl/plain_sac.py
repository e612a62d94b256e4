"""SAC as one would write it for one client with plain nn.Linear modules: the yardstick.

It shares no code with the client axis. Tests hold the stacked cohort to its numbers, `scripts/bench.py steps` to its
speed.
"""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class PlainSAC:
    """One client's actor, two critics, their targets and the temperature, with fused Adam."""

    def __init__(self, observations: int, actions: int, hidden: list[int], gamma=0.99, tau=0.005, lr=3e-4):
        self.gamma, self.tau, self.target_entropy = gamma, tau, -float(actions)
        self.actor = mlp(observations, *hidden, 2 * actions)
        self.critics = nn.ModuleList(mlp(observations + actions, *hidden, 1) for _ in range(2))
        self.targets = nn.ModuleList(mlp(observations + actions, *hidden, 1) for _ in range(2))
        self.targets.load_state_dict(self.critics.state_dict())
        self.log_alpha = nn.Parameter(torch.zeros(1))
        self.actor_optimiser = torch.optim.Adam(self.actor.parameters(), lr, fused=True)
        self.critic_optimiser = torch.optim.Adam(self.critics.parameters(), lr, fused=True)
        self.alpha_optimiser = torch.optim.Adam([self.log_alpha], lr, fused=True)

    def act(self, observations: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(observations).chunk(2, dim=-1)
        log_std = log_std.clamp(-5, 2)
        u = mean + log_std.exp() * noise
        log_prob = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
        return torch.tanh(u), (log_prob - 2 * (math.log(2) - u - F.softplus(-2 * u))).sum(-1)

    def update(self, s: Tensor, a: Tensor, r: Tensor, s2: Tensor, done: Tensor, noise: Tensor) -> None:
        """One update on a batch `[B, …]` with noise `[2, B, A]`."""
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            a2, log_prob2 = self.act(s2, noise[0])
            x2 = torch.cat([s2, a2], -1)
            value = torch.min(self.targets[0](x2), self.targets[1](x2)).squeeze(-1) - alpha * log_prob2
            y = r + self.gamma * (1 - done) * value
        x = torch.cat([s, a], -1)
        critic_loss = sum(F.mse_loss(critic(x).squeeze(-1), y) for critic in self.critics)
        self.critic_optimiser.zero_grad()
        critic_loss.backward()
        self.critic_optimiser.step()

        self.critics.requires_grad_(False)
        action, log_prob = self.act(s, noise[1])
        x = torch.cat([s, action], -1)
        q = torch.min(self.critics[0](x), self.critics[1](x)).squeeze(-1)
        self.actor_optimiser.zero_grad()
        (alpha * log_prob - q).mean().backward()
        self.actor_optimiser.step()
        self.critics.requires_grad_(True)

        alpha_loss = -(self.log_alpha * (log_prob.detach().mean() + self.target_entropy)).sum()
        self.alpha_optimiser.zero_grad()
        alpha_loss.backward()
        self.alpha_optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.targets.parameters()), list(self.critics.parameters()), self.tau)

"""OptiDICE as one would write it for one client with plain nn.Linear; it shares no code with the client axis."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rl.plain_sac import mlp


class PlainOptiDICE:
    """Soft-χ², the full gradient, sample-based e, weighted behaviour cloning on rows drawn beforehand."""

    def __init__(self, observations: int, actions: int, hidden: list[int], *, alpha: float, gamma: float):
        self.alpha, self.gamma = alpha, gamma
        self.nu, self.actor = mlp(observations, *hidden, 1), mlp(observations, *hidden, 2 * actions)
        self.lam = nn.Parameter(torch.zeros(1))

    def optimise(self, nu_lr: float, lambda_lr: float, actor_lr: float) -> None:
        self.optimisers = [
            torch.optim.Adam(self.nu.parameters(), nu_lr),
            torch.optim.Adam([self.lam], lambda_lr),
            torch.optim.Adam(self.actor.parameters(), actor_lr),
        ]

    def update(self, s: Tensor, a: Tensor, r: Tensor, s2: Tensor, done: Tensor, s0: Tensor, rows: tuple) -> None:
        """One update on `[B, …]`; `rows` are the (s, a) for the policy."""
        e = r + self.gamma * (1 - done) * self.nu(s2).squeeze(-1) - self.nu(s).squeeze(-1)
        x = (e - self.lam) / self.alpha
        ratio = F.elu(x) + 1
        f = torch.where(ratio < 1, ratio * (ratio.clamp_min(1e-30).log() - 1) + 1, 0.5 * (ratio - 1) ** 2)
        dual = (1 - self.gamma) * self.nu(s0).mean() + (ratio * (e - self.lam) - self.alpha * f).mean() + self.lam.sum()
        mean, log_std = self.actor(rows[0]).chunk(2, dim=-1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        squashed = torch.distributions.TransformedDistribution(normal, torch.distributions.TanhTransform())
        policy = -squashed.log_prob(rows[1].clamp(-0.999, 0.999)).sum(-1).mean()
        for optimiser in self.optimisers:
            optimiser.zero_grad()
        (dual + policy).backward()
        for optimiser in self.optimisers:
            optimiser.step()

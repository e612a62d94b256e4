"""TD3 and TD3+BC as one would write them for one client with plain nn.Linear modules: what tests hold ours to."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rl.plain_sac import mlp


class PlainTD3:
    """TD3; with an `alpha` (2.5 in the paper) it is TD3+BC."""

    def __init__(self, observations: int, actions: int, hidden: list[int], alpha: float | None = None, lr=3e-4):
        self.alpha, self.updates = alpha, 0
        self.actor, self.actor_target = (mlp(observations, *hidden, actions) for _ in range(2))
        self.critics, self.critic_targets = (
            nn.ModuleList(mlp(observations + actions, *hidden, 1) for _ in range(2)) for _ in range(2)
        )
        self.actor_adam = torch.optim.Adam(self.actor.parameters(), lr)
        self.critic_adam = torch.optim.Adam(self.critics.parameters(), lr)

    def copy_to_targets(self) -> None:
        self.actor_target.load_state_dict(self.actor.state_dict())
        self.critic_targets.load_state_dict(self.critics.state_dict())

    def update(self, s: Tensor, a: Tensor, r: Tensor, s2: Tensor, done: Tensor, noise: Tensor) -> None:
        """One update on a batch `[B, …]` with noise `[1, B, A]`."""
        self.updates += 1
        with torch.no_grad():
            a2 = (torch.tanh(self.actor_target(s2)) + (0.2 * noise[0]).clamp(-0.5, 0.5)).clamp(-1, 1)
            x2 = torch.cat([s2, a2], -1)
            value = torch.min(self.critic_targets[0](x2), self.critic_targets[1](x2)).squeeze(-1)
            y = r + 0.99 * (1 - done) * value
        x = torch.cat([s, a], -1)
        critic_loss = sum(F.mse_loss(critic(x).squeeze(-1), y) for critic in self.critics)
        self.critic_adam.zero_grad()
        critic_loss.backward()
        self.critic_adam.step()
        if self.updates % 2:
            return

        action = torch.tanh(self.actor(s))
        q = self.critics[0](torch.cat([s, action], -1))
        loss = -q.mean()
        if self.alpha is not None:
            loss = loss * self.alpha / q.abs().mean().detach() + F.mse_loss(action, a)
        self.actor_adam.zero_grad()
        loss.backward()
        self.actor_adam.step()
        for network, target in ((self.actor, self.actor_target), (self.critics, self.critic_targets)):
            for p, p_target in zip(network.parameters(), target.parameters(), strict=True):
                p_target.data.copy_(0.005 * p.data + 0.995 * p_target.data)

"""The deployable policy: raw observation in, action in the environment's units out."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rl.networks import LAYER_NORM_EPS
from rl.policies import Actor


@dataclass(frozen=True, eq=False)
class Policy:
    """The deterministic policies of K clients (or of the server: K = 1), with normalisation and action range."""

    actor: Actor
    theta: Tensor  # [K, P]
    mean: Tensor  # [S]
    std: Tensor  # [S]
    action_low: Tensor  # [A]
    action_high: Tensor  # [A]

    @torch.no_grad()
    def act(self, observations: np.ndarray) -> np.ndarray:
        """`[K, E, S]` → `[K, E, A]`."""
        x = torch.as_tensor(observations, dtype=torch.float32, device=self.theta.device)
        unit = self.actor.mode(self.theta, (x - self.mean) / self.std)
        return (self.action_low + (unit + 1) / 2 * (self.action_high - self.action_low)).cpu().numpy()

    def module(self, client: int = 0) -> nn.Module:
        """One client's policy as plain torch layers, for TorchScript, ONNX and other people's code."""
        return DeployedPolicy(self, client)


class DeployedPolicy(nn.Module):
    """`forward(observation [B, S]) → action [B, A]`, with everything it needs inside."""

    def __init__(self, policy: Policy, client: int):
        super().__init__()
        network, modules = policy.actor.network, []
        layers = network.layers(policy.theta[client : client + 1].detach())
        for weight, bias in zip(layers[::2], layers[1::2], strict=True):
            if modules and network.layer_norm:
                modules.append(nn.LayerNorm(weight.shape[1], eps=LAYER_NORM_EPS, elementwise_affine=False))
            if modules:
                modules.append(nn.ReLU())
            linear = nn.Linear(weight.shape[1], weight.shape[2])
            linear.weight.data.copy_(weight[0].T)
            linear.bias.data.copy_(bias[0, 0])
            modules.append(linear)
        self.network = nn.Sequential(*modules)
        for name in ("mean", "std", "action_low", "action_high"):
            self.register_buffer(name, getattr(policy, name).clone())

    def forward(self, observation: Tensor) -> Tensor:
        # A Gaussian actor's network has a spread for every action too; the mean comes first.
        mean = self.network((observation - self.mean) / self.std)[:, : len(self.action_low)]
        return self.action_low + (torch.tanh(mean) + 1) / 2 * (self.action_high - self.action_low)

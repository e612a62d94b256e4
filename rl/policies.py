"""Policies on the client axis. Their networks' first |A| outputs are the mean μ(s) before tanh."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rl.networks import MLP

LOG_STD_RANGE = (-5.0, 2.0)
# Logged actions often sit on the bounds, where atanh is infinite: the likelihood is taken a little inside.
ACTION_LIMIT = 0.999


@dataclass(frozen=True)
class TanhGaussian:
    """a = tanh(u), u ~ N(μ(s), σ(s)²); actions in (−1, 1)^A."""

    network: MLP  # observation → (μ, log σ)

    def distribution(self, theta: Tensor, observations: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.network(theta, observations).chunk(2, dim=-1)
        return mean, log_std.clamp(*LOG_STD_RANGE)

    def sample(self, theta: Tensor, observations: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Reparameterised action `[K, B, A]` and its log-probability `[K, B]`, from standard-normal `noise`."""
        mean, log_std = self.distribution(theta, observations)
        u = mean + log_std.exp() * noise
        return torch.tanh(u), _log_density(noise, log_std, u)

    def log_prob(self, theta: Tensor, observations: Tensor, actions: Tensor) -> Tensor:
        """log π(a|s) `[K, B]` of given actions, bounded: actions are first moved inside ±0.999."""
        mean, log_std = self.distribution(theta, observations)
        u = torch.atanh(actions.clamp(-ACTION_LIMIT, ACTION_LIMIT))
        return _log_density((u - mean) * torch.exp(-log_std), log_std, u)

    def mode(self, theta: Tensor, observations: Tensor) -> Tensor:
        """The deterministic action tanh(μ(s)) used in evaluation."""
        return torch.tanh(self.network(theta, observations).chunk(2, dim=-1)[0])


@dataclass(frozen=True)
class Deterministic:
    """a = tanh(μ(s))."""

    network: MLP  # observation → μ

    def mode(self, theta: Tensor, observations: Tensor) -> Tensor:
        """The action `[K, B, A]`, in training and in evaluation."""
        return torch.tanh(self.network(theta, observations))


@dataclass(frozen=True)
class TanhMixture:
    """a = tanh(u), u from a mixture of Gaussians: a behaviour policy that may have several ways of doing it."""

    network: MLP  # observation → for each component: its logit, μ, log σ
    components: int

    def log_density(self, theta: Tensor, observations: Tensor, u: Tensor) -> Tensor:
        """log p(u|s) `[K, B]`, before tanh."""
        out = self.network(theta, observations).unflatten(-1, (self.components, -1))  # [K, B, components, 1 + 2A]
        logit, mean, log_std = out.split([1, u.shape[-1], u.shape[-1]], dim=-1)
        log_std = log_std.clamp(*LOG_STD_RANGE)
        z = (u.unsqueeze(-2) - mean) * torch.exp(-log_std)
        parts = (-0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)
        return torch.logsumexp(logit.squeeze(-1).log_softmax(-1) + parts, dim=-1)

    def log_prob(self, theta: Tensor, observations: Tensor, actions: Tensor) -> Tensor:
        """The same of a logged action, moved inside ±0.999."""
        return self.log_density(theta, observations, torch.atanh(actions.clamp(-ACTION_LIMIT, ACTION_LIMIT)))


Actor = TanhGaussian | Deterministic


def _log_density(z: Tensor, log_std: Tensor, u: Tensor) -> Tensor:
    """log N(z; 0, 1) − log σ − log(1 − tanh²u), summed over action dimensions; the last term in a form that
    cannot overflow: log(1 − tanh²u) = 2(log 2 − u − softplus(−2u))."""
    log_normal = -0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)
    return (log_normal - 2 * (math.log(2) - u - F.softplus(-2 * u))).sum(-1)

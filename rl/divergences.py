"""The f-divergences that regularise OptiDICE, each with what its dual needs in closed form.

For a convex f with f(1) = 0 (KL: up to a constant) the best ratio at x is w(x) = max(0, (f')⁻¹(x)), and the dual has
f*(x) = max_{w ≥ 0} (w x − f(w)), whose derivative is w(x).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

LOG_OF_NOTHING = 1e-10  # the least ratio of which a logarithm is taken


@dataclass(frozen=True)
class Divergence:
    """f, its best ratio, its conjugate, and the logarithm of the ratio in a form that has a gradient everywhere."""

    f: Callable[[Tensor], Tensor]
    ratio: Callable[[Tensor], Tensor]
    conjugate: Callable[[Tensor], Tensor]
    log_ratio: Callable[[Tensor], Tensor]


def _soft_chi_f(w: Tensor) -> Tensor:
    """w(log w − 1) + 1 below 1, ½(w − 1)² above: it never lets a ratio be exactly 0."""
    low = torch.xlogy(w, w) - w + 1
    return torch.where(w < 1, low, (w - 1).square() / 2)


def _soft_chi_conjugate(x: Tensor) -> Tensor:
    return torch.where(x < 0, torch.expm1(x.clamp_max(0)), x + x.square() / 2)


def _soft_chi_log_ratio(x: Tensor) -> Tensor:
    return torch.where(x < 0, x, torch.log1p(x.clamp_min(0)))


DIVERGENCES = {
    "soft_chi": Divergence(
        _soft_chi_f, lambda x: torch.nn.functional.elu(x) + 1, _soft_chi_conjugate, _soft_chi_log_ratio
    ),
    "chi": Divergence(
        lambda w: (w - 1).square() / 2,
        lambda x: (x + 1).clamp_min(0),
        lambda x: ((x + 1).clamp_min(0).square() - 1) / 2,
        lambda x: (x + 1).clamp_min(LOG_OF_NOTHING).log(),
    ),
    "kl": Divergence(
        lambda w: torch.xlogy(w, w),
        lambda x: (x - 1).exp(),
        lambda x: (x - 1).exp(),
        lambda x: x - 1,
    ),
}

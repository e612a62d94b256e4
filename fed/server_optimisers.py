"""Server optimisers (Reddi et al. 2020, arXiv 2003.00295): the clients' mean step as a gradient for the server.

Δ = reduced − θ is what the round suggests. Momentum with its plain settings (lr 1, β 0) is θ + Δ.
Only modules are stepped: moments that clients share are taken as they are.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from data.errors import InputError
from fed.update import is_module


class Momentum:
    """FedAvgM (Hsu et al. 2019, arXiv 1909.06335): v ← βv + Δ, θ ← θ + lr · v."""

    def __init__(self, lr: float, beta: float):
        if lr <= 0 or not 0 <= beta < 1:
            raise InputError(f"fed.server has lr={lr}, beta={beta}; lr must be above 0, beta at least 0 and below 1.")
        self.lr, self.beta = lr, beta
        self.state: dict[str, Tensor] = {}  # what a checkpoint keeps

    def step(self, old: Mapping[str, Tensor], reduced: Mapping[str, Tensor]) -> dict[str, Tensor]:
        new = dict(reduced)
        for name in filter(is_module, reduced):
            delta = reduced[name].double() - old[name].double()
            new[name] = (old[name].double() + self.move(name, delta)).to(old[name].dtype)
        return new

    def move(self, name: str, delta: Tensor) -> Tensor:
        """How far θ goes."""
        velocity = self.beta * self.kept(f"{name}/velocity", delta) + delta
        self.state[f"{name}/velocity"] = velocity
        return self.lr * velocity

    def kept(self, name: str, like: Tensor) -> Tensor:
        return self.state[name] if name in self.state else torch.zeros_like(like)


class Adam(Momentum):
    """FedAdam: m ← β₁m + (1−β₁)Δ, v ← β₂v + (1−β₂)Δ², θ ← θ + lr · m/(√v + τ). As in the paper, no bias correction."""

    def __init__(self, lr: float, beta: float, beta_2: float, tau: float):
        super().__init__(lr, beta)
        if not 0 <= beta_2 < 1 or tau <= 0:
            raise InputError(f"fed.server has beta_2={beta_2}, tau={tau}; beta_2 must be in [0, 1), tau above 0.")
        self.beta_2, self.tau = beta_2, tau

    def move(self, name: str, delta: Tensor) -> Tensor:
        m = self.beta * self.kept(f"{name}/m", delta) + (1 - self.beta) * delta
        v = self.second_moment(self.kept(f"{name}/v", delta), delta.square())
        self.state |= {f"{name}/m": m, f"{name}/v": v}
        return self.lr * m / (v.sqrt() + self.tau)

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        return self.beta_2 * v + (1 - self.beta_2) * square


class Yogi(Adam):
    """FedYogi: v ← v − (1−β₂) Δ² sign(v − Δ²), which forgets a large step slowly."""

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - self.beta_2) * square * torch.sign(v - square)

"""Adam on rows: each client has its own moments and its own step count.

torch's fused kernel takes a list of tensors with a step count each. A client's parameters being one contiguous row,
the list is the rows: clients that have taken unequally many steps share one call, and a frozen client is simply
not in the list (Adam would move it even on a zero gradient).
"""

import torch
from torch import Tensor
from torch.optim.adam import adam


class RowAdam:
    """Adam (Kingma & Ba 2015) for `theta [K, P]` with per-client step counts."""

    def __init__(self, theta: Tensor, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8):
        self.theta, self.lr, self.betas, self.eps = theta, lr, betas, eps
        self.m = torch.zeros_like(theta, requires_grad=False)
        self.v = torch.zeros_like(theta, requires_grad=False)
        self.steps = torch.zeros(len(theta), device=theta.device)

    def state(self) -> dict[str, Tensor]:
        return {"m": self.m, "v": self.v, "steps": self.steps}

    @torch.no_grad()
    def step(self, grad: Tensor, rows: list[int]) -> None:
        """One step for the clients in `rows`; the others keep parameters, moments and step count."""
        matrices = (self.theta.detach(), grad, self.m, self.v)
        params, grads, ms, vs = ([matrix[k] for k in rows] for matrix in matrices)
        adam(
            params,
            grads,
            ms,
            vs,
            [],
            [self.steps[k] for k in rows],
            fused=True,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=self.lr,
            weight_decay=0.0,
            eps=self.eps,
            maximize=False,
        )

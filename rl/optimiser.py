"""Adam on rows: each client has its own moments and its own step count."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam


class RowAdam:
    """Adam (Kingma & Ba 2015) for `theta [K, P]` with per-client step counts.

    torch's fused kernel takes a list of tensors with a step count each; here the list is the rows, which are
    contiguous. Clients at different steps share one call, a frozen client is simply not in the list (Adam would move
    it even on a zero gradient), and what a client gets does not depend, to the last bit, on who else is there.
    """

    def __init__(self, theta: Tensor, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8):
        self.lr, self.betas, self.eps = lr, betas, eps
        theta = theta.detach()
        self.m, self.v = torch.zeros_like(theta), torch.zeros_like(theta)
        self.steps = torch.zeros(len(theta), device=theta.device)
        self._rows = [matrix.unbind(0) for matrix in (theta, self.m, self.v, self.steps)]

    def state(self) -> dict[str, Tensor]:
        return {"m": self.m, "v": self.v, "steps": self.steps}

    @torch.no_grad()
    def step(self, grad: Tensor, clients: Sequence[int], factor: float = 1.0) -> None:
        """One step of `factor` · lr for these clients; the others keep parameters, moments and step count."""
        params, grads, ms, vs, steps = (
            [rows[k] for k in clients] for rows in (self._rows[0], grad.unbind(0), *self._rows[1:])
        )
        adam(
            params,
            grads,
            ms,
            vs,
            [],
            steps,
            fused=True,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=self.lr * factor,
            weight_decay=0.0,
            eps=self.eps,
            maximize=False,
        )

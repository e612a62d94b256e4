"""Adam on rows: each client has its own moments and its own step count."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam


class RowAdam:
    """Adam (Kingma & Ba 2015) for `theta [K, P]` with per-client step counts.

    torch's fused kernel takes a list of tensors with a step count each. While all clients have taken equally many
    steps, the matrix is the only tensor. Otherwise the list is the rows: a client's parameters are contiguous,
    so clients at different steps still share one call, and a frozen client is simply not in the list (Adam would
    move it even on a zero gradient).
    """

    def __init__(self, theta: Tensor, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8):
        self.theta, self.lr, self.betas, self.eps = theta.detach(), lr, betas, eps
        self.m, self.v = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        self.steps = torch.zeros(len(theta), device=theta.device)

    def state(self) -> dict[str, Tensor]:
        return {"m": self.m, "v": self.v, "steps": self.steps}

    @torch.no_grad()
    def step(self, grad: Tensor, rows: Sequence[int]) -> None:
        """One step for the clients in `rows`; the others keep parameters, moments and step count."""
        counts = set(self.steps.tolist())
        if len(rows) == len(self.theta) and len(counts) == 1:
            self._apply([self.theta], [grad], [self.m], [self.v], [torch.tensor(counts.pop())])
            self.steps += 1
        else:
            matrices = (self.theta, grad, self.m, self.v, self.steps)
            self._apply(*([matrix[k] for k in rows] for matrix in matrices))

    def _apply(self, *lists: list[Tensor]) -> None:
        params, grads, ms, vs, steps = lists
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
            lr=self.lr,
            weight_decay=0.0,
            eps=self.eps,
            maximize=False,
        )

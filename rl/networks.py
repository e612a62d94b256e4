"""Networks with a client axis: the parameters of one client are one row.

A network is a value that knows its layer sizes; its parameters live outside, as a matrix `theta [K, P]` with a row
for each client. Broadcasting a model is assigning a row, averaging models is a weighted sum of rows, clipping is
a row norm, and Adam runs on rows. Inside, a layer is a batched matrix product over the client axis.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

LAYER_NORM_EPS = 1e-5  # as nn.LayerNorm has it


@dataclass(frozen=True)
class MLP:
    """A ReLU network `sizes[0] → … → sizes[-1]`, `heads` of them per client (an ensemble, as for twin critics).

    With `layer_norm`, what goes into a ReLU is first shifted and scaled to mean 0 and variance 1 over the layer's
    units (Ba et al. 2016), without gains and biases of its own: a row has the same length either way.
    """

    sizes: tuple[int, ...]
    heads: int = 1
    layer_norm: bool = False

    @cached_property
    def shapes(self) -> list[tuple[int, int]]:
        """Shapes of W₁, b₁, W₂, b₂, … in the order in which they lie in a row."""
        return [shape for fan_in, fan_out in pairwise(self.sizes) for shape in ((fan_in, fan_out), (1, fan_out))]

    @cached_property
    def cuts(self) -> list[int]:
        return [prod(shape) for shape in self.shapes]

    @property
    def parameters(self) -> int:
        """P, the length of a client's row."""
        return self.heads * sum(self.cuts)

    def init(self, generator: torch.Generator) -> Tensor:
        """[P] a fresh row: weights and biases uniform in ±1/√fan_in, as nn.Linear has them."""
        pieces = []
        for fan_in, fan_out in list(pairwise(self.sizes)) * self.heads:
            pieces.append((torch.rand((fan_in + 1) * fan_out, generator=generator) * 2 - 1) * fan_in**-0.5)
        return torch.cat(pieces)

    def init_at_zero(self, generator: torch.Generator) -> Tensor:
        """[P] a fresh row whose last layer is zero: the network answers 0 everywhere."""
        row = self.init(generator).view(self.heads, -1)
        row[:, -sum(self.cuts[-2:]) :] = 0
        return row.flatten()

    def layers(self, theta: Tensor) -> list[Tensor]:
        """W₁, b₁, W₂, b₂, … of each row of `theta [M, P]`, as views `[M, fan_in, fan_out]` and `[M, 1, fan_out]`."""
        pieces = theta.split(self.cuts, dim=1)
        return [piece.view(-1, *shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """`theta [K, P]`, `x [K, B, in]` → `[K, B, out]`, or `[K, heads, B, out]` for an ensemble."""
        return self._over_heads(lambda theta, x: _Forward.apply(theta, x, self), theta, x)

    def plain(self, theta: Tensor, x: Tensor) -> Tensor:
        """The same in plain autograd: slower, but differentiable as often as one likes (a gradient penalty)."""
        return self._over_heads(self._plain, theta, x)

    def _plain(self, theta: Tensor, x: Tensor) -> Tensor:
        layers = self.layers(theta)
        for number, (weight, bias) in enumerate(zip(layers[::2], layers[1::2], strict=True)):
            if number:
                x = F.relu(F.layer_norm(x, x.shape[-1:], eps=LAYER_NORM_EPS) if self.layer_norm else x)
            x = torch.baddbmm(bias, x, weight)
        return x

    def _over_heads(self, forward: Callable[[Tensor, Tensor], Tensor], theta: Tensor, x: Tensor) -> Tensor:
        if self.heads == 1:
            return forward(theta, x)
        clients, batch, width = x.shape
        x = x.unsqueeze(1).expand(clients, self.heads, batch, width).reshape(-1, batch, width)
        return forward(theta.view(clients * self.heads, -1), x).view(clients, self.heads, batch, -1)


class _Forward(torch.autograd.Function):
    """The network as one node of the graph, its gradient written straight into rows.

    Plain autograd gives the same numbers (tested); this saves the gradient's concatenation, a copy of every hidden
    gradient and most of the dispatch overhead. It has a first derivative only: a second one comes out as zero or
    raises, so a penalty on a gradient must go through `MLP.plain`.
    """

    @staticmethod
    def forward(ctx, theta: Tensor, x: Tensor, mlp: MLP) -> Tensor:
        layers = mlp.layers(theta)
        inputs, norms = [], []  # of each layer; of each layer norm: its input, mean and 1/standard deviation
        for weight, bias in zip(layers[::2], layers[1::2], strict=True):
            if inputs:
                if mlp.layer_norm:
                    before = x
                    x, *moments = torch.native_layer_norm(before, before.shape[-1:], None, None, LAYER_NORM_EPS)
                    norms += [before, *moments]
                x.relu_()
            inputs.append(x)
            x = torch.bmm(x, weight).add_(bias)
        ctx.save_for_backward(theta, *layers[::2], *inputs, *norms)
        ctx.mlp = mlp
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        depth = len(ctx.mlp.sizes) - 1
        theta, *saved = ctx.saved_tensors
        weights, inputs, norms = saved[:depth], saved[depth : 2 * depth], saved[2 * depth :]
        wants_theta, wants_x, _ = ctx.needs_input_grad
        grad_theta = torch.empty_like(theta) if wants_theta else None
        grad_layers = ctx.mlp.layers(grad_theta) if wants_theta else []
        for layer in reversed(range(depth)):
            if wants_theta:
                torch.bmm(inputs[layer].mT, grad, out=grad_layers[2 * layer])
                torch.sum(grad, 1, keepdim=True, out=grad_layers[2 * layer + 1])
            if layer or wants_x:
                # A single output needs no matrix product: an outer product is a broadcast.
                one = grad.shape[-1] == 1
                grad = grad * weights[layer].mT if one else torch.bmm(grad, weights[layer].mT)
            if layer:
                torch.ops.aten.threshold_backward.grad_input(grad, inputs[layer], 0, grad_input=grad)
                if norms:
                    before, mean, inverse_std = norms[3 * (layer - 1) : 3 * layer]
                    grad, *_ = torch.ops.aten.native_layer_norm_backward(
                        grad, before, before.shape[-1:], mean, inverse_std, None, None, [True, False, False]
                    )
        return grad_theta, grad if wants_x else None, None

"""The learner interface: a cohort of K clients that train side by side, each on its own rows.

An algorithm says which modules it has (`initial`), and gives its objectives: functions of a batch that return a loss
`[K]` for each module they train. Everything else (gradients, clipping, Adam, target networks, freezing a client
that fails, saving and loading) is here, once, for all algorithms.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from data.batch import Batch
from data.errors import InputError
from rl.optimiser import RowAdam
from rl.policies import TanhGaussian

Losses = dict[str, Tensor]  # module name → [K]
Metrics = dict[str, Tensor]  # metric name → [K]
Objective = Callable[[Batch], tuple[Losses, Metrics]]


@dataclass(frozen=True)
class Task:
    """What a learner must know of the data: dimensions, and the largest |reward| after normalisation."""

    observations: int
    actions: int
    reward_bound: float


class Learner:
    """K clients' parameters, targets and optimiser states as matrices with a row for each client."""

    noise_draws = 0  # standard-normal draws [A] that a row needs in one update
    target_of: Mapping[str, str] = {}  # target network → the module it follows
    bounds: Mapping[str, float] = {}  # metric → value beyond which the client is reported as diverged
    actor: TanhGaussian

    def __init__(self, *, clients: int, lr: Mapping[str, float], tau: float, clip: float | None, device: str):
        self.clients, self.tau, self.clip = clients, tau, clip
        blank = self.initial(torch.Generator().manual_seed(0))
        self.params = {
            name: torch.zeros(clients, len(row), device=device, requires_grad=True) for name, row in blank.items()
        }
        self.targets = {
            target: torch.zeros_like(self.params[source], requires_grad=False)
            for target, source in self.target_of.items()
        }
        self.optimisers = {name: RowAdam(theta, lr[name]) for name, theta in self.params.items()}
        self.active = list(range(clients))
        self.failures: dict[int, str] = {}  # row → why it was frozen

    # -- what an algorithm provides -----------------------------------------------------------------------------
    def initial(self, generator: torch.Generator) -> dict[str, Tensor]:
        """A fresh row of parameters for each module."""
        raise TypeError(f"{type(self).__name__} must define initial()")

    def objectives(self) -> list[Objective]:
        """The losses of one update, in the order in which their steps are taken."""
        raise TypeError(f"{type(self).__name__} must define objectives()")

    # -- one update ---------------------------------------------------------------------------------------------
    def update(self, batch: Batch) -> Metrics:
        """One gradient step on each objective for every active client; metrics are per client."""
        metrics: Metrics = {}
        for objective in self.objectives():
            losses, details = objective(batch)
            self._descend(losses)
            metrics |= {f"{name}_loss": loss.detach() for name, loss in losses.items()} | details
        self._follow_targets()
        return metrics

    def _descend(self, losses: Losses) -> None:
        """Each client's gradient is its own: the losses are summed, and no row depends on another row."""
        names = list(losses)
        total = torch.stack([losses[name] for name in names]).sum()
        grads = dict(zip(names, torch.autograd.grad(total, [self.params[name] for name in names]), strict=True))
        norms = torch.stack([torch.linalg.vector_norm(grad, dim=1) for grad in grads.values()])  # [modules, K]
        if not torch.isfinite(norms).all():
            self._freeze(norms, names)
        for grad, norm in zip(grads.values(), norms, strict=True):
            if self.clip is not None:
                grad.mul_((self.clip / norm.clamp_min(1e-12)).clamp_max(1.0).unsqueeze(1))
        for name, grad in grads.items():
            self.optimisers[name].step(grad, self.active)

    def _freeze(self, norms: Tensor, names: list[str]) -> None:
        """Stop a client whose gradient is not finite where it last stood; the others go on untouched."""
        for k in list(self.active):
            bad = [name for name, norm in zip(names, norms[:, k], strict=True) if not torch.isfinite(norm)]
            if bad:
                self.active.remove(k)
                steps = int(self.optimisers[bad[0]].steps[k])
                self.failures[k] = f"the gradient of its {bad[0]} is not finite after {steps} updates"

    def freeze_non_finite(self) -> None:
        """Stop clients whose last step left a value that is not finite: too late to go back, not too late to say."""
        for name, tensor in self.state().items():
            finite = tensor.reshape(self.clients, -1).isfinite().all(1)
            for k in [k for k in self.active if not finite[k]]:
                self.active.remove(k)
                self.failures[k] = f"its {name} is not finite"

    @torch.no_grad()
    def _follow_targets(self) -> None:
        """θ̄ ← θ̄ + τ(θ − θ̄); a frozen client's target stays where it is."""
        for name, source in self.target_of.items():
            target, theta = self.targets[name], self.params[source]
            if len(self.active) == self.clients:
                target.lerp_(theta, self.tau)  # in place: nothing is allocated on the usual path
            else:
                target[self.active] = torch.lerp(target[self.active], theta[self.active], self.tau)

    # -- state ----------------------------------------------------------------------------------------------------
    def state(self) -> dict[str, Tensor]:
        """Everything a client is, by name, each `[K, …]`: modules, targets, and Adam's moments and step counts."""
        moments = {
            f"{name}/adam_{part}": tensor
            for name, optimiser in self.optimisers.items()
            for part, tensor in optimiser.state().items()
        }
        return {name: theta.detach() for name, theta in self.params.items()} | self.targets | moments

    @torch.no_grad()
    def broadcast(self, rows: Mapping[str, Tensor]) -> None:
        """Every client starts from these modules (a row each), with fresh targets and a fresh optimiser."""
        for tensor in self.state().values():
            tensor.zero_()
        self.load(rows)
        for name, source in self.target_of.items():
            self.targets[name].copy_(self.params[source])
        self.active, self.failures = list(range(self.clients)), {}

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor], row: int | None = None) -> None:
        """Copy named tensors in: a row for client `row`, or the same row (or a matrix `[K, …]`) for all."""
        own = self.state()
        for name, tensor in state.items():
            if name not in own:
                raise InputError(
                    f"The state has '{name}', which {type(self).__name__} does not know; it knows {', '.join(own)}."
                )
            place = own[name] if row is None else own[name][row]
            fitting = (place.shape,) if row is not None else (place.shape, place.shape[1:])
            if tensor.shape not in fitting:
                raise InputError(
                    f"'{name}' has shape {list(tensor.shape)} but this {type(self).__name__} needs "
                    f"{list(place.shape)}; was it trained with other network sizes?"
                )
            place.copy_(tensor)

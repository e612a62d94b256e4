"""The learner interface: a cohort of K clients that train side by side, each on its own rows.

An algorithm makes its networks (`build`), says which modules it has (`initial`), and gives its objectives: functions
of a batch that return a loss `[K]` for each module they train. Everything else (gradients, clipping, Adam, schedules,
target networks, freezing a client that fails, saving and loading) is here, once, for all algorithms.
"""

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from data.batch import Batch
from data.errors import InputError
from rl.networks import MLP
from rl.optimiser import RowAdam
from rl.policies import Actor

Losses = dict[str, Tensor]  # module name → [K]
Metrics = dict[str, Tensor]  # metric name → [K]
Objective = Callable[[Batch], tuple[Losses, Metrics]]
# A factor on every learning rate, by the part of the run that is over: in [0, 1).
SCHEDULES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "cosine": lambda progress: (1 + math.cos(math.pi * progress)) / 2,
    "linear": lambda progress: 1 - progress,
}


@dataclass(frozen=True)
class Task:
    """What a learner must know of the data: dimensions, and the largest |reward| and the mean reward, normalised."""

    observations: int
    actions: int
    reward_bound: float
    reward_mean: float = 0.0


class Learner:
    """K clients' parameters, targets and optimiser states as matrices with a row for each client."""

    noise_draws = 0  # standard-normal draws [A] that a row needs in one update
    target_of: Mapping[str, str] = {}  # target network → the module it follows
    bounds: Mapping[str, float] = {}  # metric → value beyond which the client is reported as diverged
    initial_states = False  # true: batches bring `initial_observations` and `initial_weight`
    weighted_rows = False  # true: batches bring `weighted`, rows drawn in proportion to `row_weights`
    weighted_modules: tuple[str, ...] = ()  # those that are trained on weighted rows
    refresh_every = 200  # updates from one computation of the row weights to the next; a round begins with one
    returns_discount: float | None = None  # a number: batches bring `returns`, discounted by it
    window: tuple[int, float] | None = None  # steps and discount: batches bring `window`
    row_values: tuple[str, ...] = ()  # what `row_statistics` gives
    by_progress = False  # true: learning depends on batch.progress, and so on how long the run is
    actor: Actor

    def __init__(
        self,
        task: Task,
        clients: int,
        *,
        hidden: Sequence[int],
        layer_norm: bool,
        schedule: str,
        clip: float | None,
        device: str,
        lr: Mapping[str, float],
        tau: float = 0.0,
    ):
        """`lr` and `tau` come from the algorithm, by module; the other settings are those that all algorithms share."""
        self.clients, self.hidden, self.layer_norm = clients, tuple(hidden), layer_norm
        self.schedule, self.clip, self.tau = SCHEDULES[schedule], clip, tau
        self.by_progress = self.by_progress or schedule != "constant"
        self.build(task)
        blank = self.initial(torch.Generator().manual_seed(0))
        self.params = {
            name: torch.zeros(clients, len(row), device=device, requires_grad=True) for name, row in blank.items()
        }
        self.targets = {
            target: torch.zeros_like(self.params[source], requires_grad=False)
            for target, source in self.target_of.items()
        }
        self.optimisers = {name: RowAdam(theta, lr[name]) for name, theta in self.params.items()}
        self.memory: dict[str, Tensor] = {}  # what else a client keeps from round to round, each `[K, …]`
        self.active = list(range(clients))  # those that take part in the next update
        self.failures: dict[int, str] = {}  # row → why it was frozen
        self.correct: Callable[[str, Tensor], None] | None = None  # changes a module's gradients in place

    def mlp(self, inputs: int, outputs: int, *, heads: int = 1, hidden: Sequence[int] | None = None) -> MLP:
        """A network with the hidden layers (unless others are given) and the layer norm of the settings."""
        return MLP((inputs, *(self.hidden if hidden is None else hidden), outputs), heads, self.layer_norm)

    # -- what an algorithm provides -----------------------------------------------------------------------------
    def build(self, task: Task) -> None:
        """Make the networks, `actor` among them, and whatever else follows from the task's dimensions."""
        raise TypeError(f"{type(self).__name__} must define build()")

    def initial(self, generator: torch.Generator) -> dict[str, Tensor]:
        """A fresh row of parameters for each module."""
        raise TypeError(f"{type(self).__name__} must define initial()")

    def objectives(self, batch: Batch) -> list[Objective]:
        """The losses of the update on this batch, in the order in which their steps are taken."""
        raise TypeError(f"{type(self).__name__} must define objectives()")

    def begin_round(self) -> None:
        """Called when the server's modules and the client's own state are in place."""

    def end_round(self) -> None:
        """Called when the round's updates are done."""

    def targets_follow(self, batch: Batch) -> bool:
        """Whether the targets move after the update on this batch."""
        return True

    def row_weights(self, batch: Batch) -> Tensor:
        """[K, B] how often, relative to others, a row shall be drawn for `batch.weighted`."""
        raise TypeError(f"{type(self).__name__} asks for weighted rows and must define row_weights()")

    def row_statistics(self, batch: Batch) -> dict[str, Tensor]:
        """Values `[K, B]` whose distribution over a client's whole data goes into the round's record."""
        return {}

    # -- one update ---------------------------------------------------------------------------------------------
    def update(self, batch: Batch) -> Metrics:
        """One gradient step on each objective for every active client; metrics are per client."""
        metrics: Metrics = {}
        factor = self.schedule(batch.progress)
        for objective in self.objectives(batch):
            losses, details = objective(batch)
            self._descend(losses, factor)
            metrics |= {f"{name}_loss": loss.detach() for name, loss in losses.items()} | details
        if self.targets_follow(batch):
            self._follow_targets()
        return metrics

    def gradients(self, batch: Batch) -> dict[str, Tensor]:
        """Of all objectives where the clients stand, `[K, P]` for each module, without a step."""
        return {
            n: grad for objective in self.objectives(batch) for n, grad in self._gradients(objective(batch)[0]).items()
        }

    def _gradients(self, losses: Losses) -> dict[str, Tensor]:
        """Each client's gradient is its own: the losses are summed, and no row depends on another row."""
        total = torch.stack(list(losses.values())).sum()
        return dict(zip(losses, torch.autograd.grad(total, [self.params[name] for name in losses]), strict=True))

    def _descend(self, losses: Losses, factor: float) -> None:
        grads = self._gradients(losses)
        if self.correct is not None:
            for name, grad in grads.items():
                self.correct(name, grad)
        norms = torch.stack([torch.linalg.vector_norm(grad, dim=1) for grad in grads.values()])  # [modules, K]
        if not torch.isfinite(norms).all():
            self._freeze(norms, list(grads))
        for grad, norm in zip(grads.values(), norms, strict=True):
            if self.clip is not None:
                grad.mul_((self.clip / norm.clamp_min(1e-12)).clamp_max(1.0).unsqueeze(1))
        for name, grad in grads.items():
            self.optimisers[name].step(grad, self.active, factor)

    def _freeze(self, norms: Tensor, names: list[str]) -> None:
        """Stop a client whose gradient is not finite where it last stood; the others go on untouched."""
        for k in list(self.active):
            bad = [name for name, norm in zip(names, norms[:, k], strict=True) if not torch.isfinite(norm)]
            if bad:
                self.active.remove(k)
                steps = int(self.optimisers[bad[0]].steps[k])
                self.failures[k] = f"the gradient of its {bad[0]} is not finite after {steps} updates"

    def rest(self, rows: Container[int]) -> None:
        """These clients are done for this round: they stay where they stand."""
        self.active = [k for k in self.active if k not in rows]

    @property
    def sound(self) -> list[int]:
        """Those that have not failed."""
        return [k for k in range(self.clients) if k not in self.failures]

    def freeze_non_finite(self) -> None:
        """Stop clients whose last step left a value that is not finite: too late to go back, not too late to say."""
        for name, tensor in self.state().items():
            finite = tensor.reshape(self.clients, -1).isfinite().all(1)
            for k in [k for k in self.sound if not finite[k]]:
                self.failures[k] = f"its {name} is not finite"
        self.rest(self.failures)

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
        """Everything a client is, by name, each `[K, …]`: modules, targets, memory, Adam's moments and steps."""
        moments = {
            f"{name}/adam_{part}": tensor
            for name, optimiser in self.optimisers.items()
            for part, tensor in optimiser.state().items()
        }
        return {name: theta.detach() for name, theta in self.params.items()} | self.targets | moments | self.memory

    @torch.no_grad()
    def broadcast(self, rows: Mapping[str, Tensor]) -> None:
        """Every client starts from these modules (a row each), with fresh targets and a fresh optimiser."""
        missing = [name for name in self.params if name not in rows]
        if missing:
            raise InputError(f"The state lacks {', '.join(missing)}, which {type(self).__name__} needs to begin.")
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

"""Every learner, built from its own YAML, and batches to feed it: what the contract tests share."""

from dataclasses import replace

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from data.batch import Batch, Window
from fed.config import CONFIGS, options
from rl.learner import Learner, Task

OBSERVATIONS, ACTIONS = 5, 2
NAMES = options("algo")


def settings(name: str) -> DictConfig:
    """Those in the learner's YAML."""
    return OmegaConf.load(CONFIGS / "algo" / f"{name}.yaml")


def make(name: str, clients: int, seed: int | None = 0, **changes) -> Learner:
    """A small cohort that starts from the same initial rows; `seed=None` leaves it blank."""
    partial = instantiate(OmegaConf.merge(settings(name), {"hidden": [16, 16], **changes}))
    learner = partial(Task(OBSERVATIONS, ACTIONS, 1.0), clients, device="cpu")
    if seed is not None:
        learner.broadcast(learner.initial(torch.Generator().manual_seed(seed)))
    return learner


def random_batch(
    learner: Learner, clients: int, rows: int, seed: int = 0, step: int = 1, progress: float = 0.5
) -> Batch:
    """Rows of normal numbers, with what else the learner asks for.

    Halfway through a run warm-ups are over, and at an odd step what goes every second step is due.
    """
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    def batch() -> Batch:
        return Batch(
            observations=normal(clients, rows, OBSERVATIONS),
            actions=normal(clients, rows, ACTIONS).tanh(),
            rewards=normal(clients, rows),
            next_observations=normal(clients, rows, OBSERVATIONS),
            terminals=(torch.rand(clients, rows, generator=random) < 0.1).float(),
            noise=normal(learner.noise_draws, clients, rows, ACTIONS),
            step=step,
            progress=progress,
        )

    asked: dict[str, object] = {}
    whole = batch()
    if learner.initial_states:
        weight = torch.rand(clients, generator=random) + 0.5 if clients > 1 else torch.ones(1)  # alone, it owns all
        asked |= {"initial_observations": normal(clients, rows, OBSERVATIONS), "initial_weight": weight}
    if learner.returns_discount is not None:
        asked["returns"] = normal(clients, rows)
    if learner.window is not None:
        steps = torch.randint(1, learner.window[0] + 1, (clients, rows), generator=random).float()
        asked["window"] = Window(normal(clients, rows), normal(clients, rows, OBSERVATIONS), whole.terminals, steps)
    if learner.weighted_rows:
        asked["weighted"] = replace(batch(), noise=whole.noise)
    return replace(whole, **asked)


def bandit_batch(learner: Learner, clients: int, rows: int, seed: int, **place) -> Batch:
    """Episodes of one step: actions around 0.5 were logged, and 0.5 earns most."""
    batch, random = random_batch(learner, clients, rows, seed, **place), torch.Generator().manual_seed(seed)
    batch.actions.copy_(0.5 + 0.2 * torch.randn(batch.actions.shape, generator=random)).clamp_(-1, 1)
    batch.rewards.copy_(-2 * (batch.actions - 0.5).abs().sum(-1))
    batch.terminals.fill_(1.0)
    if not learner.weighted_rows:
        return batch
    with torch.no_grad():
        chosen = torch.multinomial(learner.row_weights(batch), rows, replacement=True, generator=random)  # [K, B]
    each = torch.arange(clients).unsqueeze(1)
    columns = ("observations", "actions", "rewards", "next_observations", "terminals")
    return replace(batch, weighted=replace(batch, **{name: getattr(batch, name)[each, chosen] for name in columns}))


def select(batch: Batch | Window, clients: slice | list[int], rows: slice = slice(None)) -> Batch | Window:
    """Some of the clients, some of their rows."""

    def part(name: str, value: object) -> object:
        if isinstance(value, Batch | Window):
            return select(value, clients, rows)
        if not isinstance(value, torch.Tensor):
            return value  # the batch's place in the run, or nothing
        if name == "noise":
            return value[:, clients][:, :, rows]
        return value[clients] if value.dim() == 1 else value[clients][:, rows]

    return type(batch)(**{name: part(name, value) for name, value in vars(batch).items()})

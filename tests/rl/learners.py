"""Every learner, built from its own YAML, and batches to feed it: what the contract tests share."""

import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from data.batch import Batch
from fed.config import CONFIGS, options
from rl.learner import Learner, Task

OBSERVATIONS, ACTIONS = 5, 2
NAMES = options("algo")


def make(name: str, clients: int, seed: int | None = 0, **changes) -> Learner:
    """A small cohort that starts from the same initial rows; `seed=None` leaves it blank."""
    settings = OmegaConf.merge(OmegaConf.load(CONFIGS / "algo" / f"{name}.yaml"), {"hidden": [16, 16], **changes})
    learner = instantiate(settings)(Task(OBSERVATIONS, ACTIONS, 1.0), clients, device="cpu")
    if seed is not None:
        learner.broadcast(learner.initial(torch.Generator().manual_seed(seed)))
    return learner


def random_batch(learner: Learner, clients: int, rows: int, seed: int = 0) -> Batch:
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    return Batch(
        observations=normal(clients, rows, OBSERVATIONS),
        actions=normal(clients, rows, ACTIONS).tanh(),
        rewards=normal(clients, rows),
        next_observations=normal(clients, rows, OBSERVATIONS),
        terminals=(torch.rand(clients, rows, generator=random) < 0.1).float(),
        noise=normal(learner.noise_draws, clients, rows, ACTIONS),
    )


def select(batch: Batch, clients: slice | list[int], rows: slice = slice(None)) -> Batch:
    """Some of the clients, some of their rows."""
    fields = {name: value[clients][:, rows] for name, value in vars(batch).items() if name != "noise"}
    return Batch(**fields, noise=batch.noise[:, clients][:, :, rows])

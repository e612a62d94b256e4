"""From a composed configuration to what a run needs: faults in the input show here, before anything is written."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from data import load
from data.dataset import Dataset
from data.errors import InputError
from data.normaliser import Moments, Normaliser
from data.sampler import Sampler
from data.shards import Shards
from fed.config import nearest
from fed.engines.inprocess import Layout
from fed.participation import participants_per_round
from rl.envs.evaluation import Evaluator
from rl.learner import Learner, Task
from rl.policy import Policy


@dataclass(eq=False)
class Experiment:
    """The parts of a run, built from its configuration."""

    config: DictConfig
    dataset: Dataset
    shards: Shards
    moments: list[Moments]
    normaliser: Normaliser
    make_learner: Callable[[int], Learner]
    evaluator: Evaluator | None

    @classmethod
    def build(cls, config: DictConfig) -> "Experiment":
        _check(config)
        path = config.data.path if isinstance(config.data.path, str) else OmegaConf.to_container(config.data.path)
        dataset = load(path, config.data.env)
        shards = instantiate(config.split)(dataset, seed=config.seed)
        if config.pooled:
            shards = shards.merged()
        moments = [Moments.of(dataset, shards.rows(client)) for client in range(len(shards))]
        normaliser = Normaliser.pooled(moments, **config.normalise)
        task = Task(dataset.observations.shape[1], dataset.actions.shape[1], normaliser.reward_bound)
        make_learner = _learner_factory(config, task)
        taking_part = participants_per_round(len(shards), config.fed.fraction)
        chosen = {name: config.engine[name] for name in ("width", "workers", "threads")}
        layout = Layout.choose(taking_part, max(config.algo.hidden), **chosen)
        config = OmegaConf.merge(config, {"engine": asdict(layout)})
        evaluator = _evaluator(config, dataset)
        experiment = cls(config, dataset, shards, moments, normaliser, make_learner, evaluator)
        for name in set(experiment.shared) - set(experiment.initial):
            raise InputError(f"fed.shared names '{name}'; {nearest(name, experiment.initial)}")
        instantiate(config.fed.aggregator)  # its settings are checked when it is made
        return experiment

    @cached_property
    def initial(self) -> dict[str, Tensor]:
        """The modules every client and the server start from."""
        return self.make_learner(1).initial(torch.Generator().manual_seed(self.config.seed))

    @property
    def shared(self) -> list[str]:
        """Modules that are averaged; the others stay with their clients."""
        chosen = self.config.fed.shared
        return list(self.initial) if chosen == "all" else list(chosen)

    @cached_property
    def sampler(self) -> Sampler:
        return Sampler(
            self.dataset,
            self.shards,
            self.normaliser,
            batch_size=self.config.batch_size,
            noise_draws=self.make_learner(1).noise_draws,
            seed=self.config.seed,
            device=self.config.device,
        )

    def policy(self, actors: Iterable[Tensor]) -> Policy:
        """The deployable policies with these actor rows."""
        theta = torch.stack(list(actors))
        return deployable(self.make_learner(1), theta, self.policy_constants())

    def policy_constants(self) -> dict[str, Tensor]:
        """What, beside the actor's row, turns an observation into an action."""
        arrays = {
            "mean": self.normaliser.mean,
            "std": self.normaliser.std,
            "action_low": self.dataset.action_low,
            "action_high": self.dataset.action_high,
        }
        return {name: torch.from_numpy(array).to(self.config.device) for name, array in arrays.items()}


def deployable(learner: Learner, theta: Tensor, constants: dict[str, Tensor]) -> Policy:
    return Policy(learner.actor, theta, **constants)


def _learner_factory(config: DictConfig, task: Task) -> Callable[[int], Learner]:
    options = OmegaConf.to_container(config.algo, resolve=True)
    make = instantiate(options)
    return lambda clients: make(task, clients, device=config.device)


def _evaluator(config: DictConfig, dataset: Dataset) -> Evaluator | None:
    if config.eval.every is None or dataset.env_id is None:
        return None
    evaluator = Evaluator(dataset.env_id, config.eval.episodes, config.eval.seed, config.eval.max_steps)
    evaluator.check()
    return evaluator


def _check(config: DictConfig) -> None:
    """Numbers that must be in range, each with a sentence."""
    for key, least in (("rounds", 0), ("updates_per_round", 1), ("batch_size", 1), ("seed", 0)):
        if config[key] < least:
            raise InputError(f"{key} is {config[key]}; it must be at least {least}.")
    if not 0 < config.fed.fraction <= 1:
        raise InputError(f"fed.fraction is {config.fed.fraction}; it must be above 0 and at most 1.")
    if config.device != "cpu" and not torch.cuda.is_available():
        raise InputError(f"device is '{config.device}' but torch finds no CUDA device; use device=cpu.")

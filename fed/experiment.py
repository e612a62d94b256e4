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
from data.errors import InputError, nearest
from data.normaliser import Moments, Normaliser
from data.sampler import Sampler
from data.shards import Shards
from fed.engines.inprocess import Layout
from fed.limits import check_limits
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
        check_limits(config)
        path = config.data.path if isinstance(config.data.path, str) else OmegaConf.to_container(config.data.path)
        dataset = load(path, config.data.env)
        seed = config.seed if config.split_seed is None else config.split_seed
        shards = instantiate(config.split)(dataset, seed=seed)
        if config.pooled:
            shards = shards.merged()
        moments = [Moments.of(dataset, shards.rows(client)) for client in range(len(shards))]
        normaliser = Normaliser.pooled(moments, **config.normalise)
        task = Task(dataset.observations.shape[1], dataset.actions.shape[1], normaliser.reward_bound)
        make_learner = _learner_factory(config, task)
        taking_part = participants_per_round(len(shards), config.fed.fraction)
        chosen = {name: config.engine[name] for name in ("width", "workers", "threads")}
        layout = Layout.choose(taking_part, max(config.algo.get("hidden", [0])), **chosen)
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
    def data_hash(self) -> str:
        return self.dataset.fingerprint()

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
        return Policy(self.make_learner(1).actor, torch.stack(list(actors)), **self.policy_constants())

    def policy_constants(self) -> dict[str, Tensor]:
        """What, beside the actor's row, turns an observation into an action."""
        arrays = {
            "mean": self.normaliser.mean,
            "std": self.normaliser.std,
            "action_low": self.dataset.action_low,
            "action_high": self.dataset.action_high,
        }
        return {name: torch.from_numpy(array).to(self.config.device) for name, array in arrays.items()}


def _learner_factory(config: DictConfig, task: Task) -> Callable[[int], Learner]:
    make = instantiate(OmegaConf.to_container(config.algo, resolve=True))
    return lambda clients: make(task, clients, device=config.device)


def _evaluator(config: DictConfig, dataset: Dataset) -> Evaluator | None:
    if config.eval.every is None or dataset.env_id is None:
        return None
    evaluator = Evaluator(dataset.env_id, config.eval.episodes, config.eval.seed, config.eval.max_steps)
    evaluator.check()
    return evaluator

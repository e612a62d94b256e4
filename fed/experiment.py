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
from fed.participation import participants_per_round
from rl.envs.evaluation import Evaluator
from rl.learner import Learner, Task
from rl.policy import Policy

HIDDEN = "a list of layer sizes such as [64,64]"


def _at_least(least: int) -> tuple[Callable[[float], bool], str]:
    return lambda value: value >= least, f"at least {least}"


ABOVE_0 = (lambda value: value > 0, "above 0")
UP_TO_1 = (lambda value: 0 < value <= 1, "above 0 and at most 1")
# Keys that an algorithm does not have are passed over.
LIMITS = (
    ("seed", *_at_least(0)),
    ("split_seed", *_at_least(0)),
    ("rounds", *_at_least(0)),
    ("updates_per_round", *_at_least(1)),
    ("batch_size", *_at_least(1)),
    ("fed.fraction", *UP_TO_1),
    ("fed.shared", lambda value: value == "all" or not isinstance(value, str), "all or a list such as [actor]"),
    ("eval.every", *_at_least(1)),
    ("eval.episodes", *_at_least(1)),
    ("eval.seed", *_at_least(0)),
    ("eval.max_steps", *_at_least(1)),
    ("eval.max_clients", *_at_least(1)),
    ("engine.width", *_at_least(1)),
    ("engine.workers", *_at_least(1)),
    ("engine.threads", *_at_least(1)),
    ("algo.hidden", lambda sizes: len(sizes) > 0 and all(type(size) is int and size > 0 for size in sizes), HIDDEN),
    ("algo.gamma", lambda value: 0 <= value < 1, "at least 0 and below 1"),
    ("algo.tau", *UP_TO_1),
    ("algo.critics", *_at_least(1)),
    ("algo.initial_temperature", *ABOVE_0),
    ("algo.clip", *ABOVE_0),
    ("algo.lr", *ABOVE_0),
    ("algo.actor_lr", *ABOVE_0),
    ("algo.critic_lr", *ABOVE_0),
    ("algo.temperature_lr", *ABOVE_0),
)


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
    """Values that must be in a range, each with a sentence."""
    for key, fits, words in LIMITS:
        value = OmegaConf.select(config, key)
        if value is not None and not fits(value):
            raise InputError(f"{key} is {value}; it must be {words}.")
    if config.device != "cpu" and not torch.cuda.is_available():
        raise InputError(f"device is '{config.device}' but torch finds no CUDA device; use device=cpu.")

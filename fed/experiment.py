"""From a composed configuration to what a run needs: faults in the input show here, before anything is written."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import permutations

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from data import load
from data.dataset import Dataset, Environment, environment_names
from data.errors import InputError, nearest
from data.normaliser import Moments, Normaliser
from data.sampler import Sampler
from data.shards import Shards
from data.spaces import registered
from fed.adversaries import Adversaries
from fed.clients import ClientStore
from fed.compression import Compression
from fed.config import made
from fed.engines.inprocess import Clients, Layout
from fed.local_rules.base import LocalRule
from fed.participation import Participation, participants_per_round, read_availability
from fed.reference import Reference
from rl.deployment import Policy
from rl.envs.evaluation import Evaluator, check, with_references
from rl.envs.rollouts import rollouts
from rl.learner import Learner, Task


@dataclass(eq=False)
class Experiment:
    """The parts of a run, built from its configuration."""

    config: DictConfig
    dataset: Dataset
    shards: Shards
    moments: list[Moments]
    normaliser: Normaliser
    task: Task
    make_learner: Callable[[int], Learner]
    environments: list[Environment]  # where the policy is played, held-out ones last
    evaluator: Evaluator | None

    @classmethod
    def build(cls, config: DictConfig) -> "Experiment":
        # Made before the data are read, so that a fault in their settings shows at once.
        make, split, aggregator = made(config.algo), made(config.split), made(config.fed.aggregator)
        local = made(config.fed.local) if config.fed.local else LocalRule()
        if config.fed.server:
            made(config.fed.server)
        path = config.data.path if isinstance(config.data.path, str) else OmegaConf.to_container(config.data.path)
        dataset = load(path, config.data.env)
        seed = config.seed if config.split_seed is None else config.split_seed
        shards = split(dataset, seed=seed)
        if config.pooled:
            shards = shards.merged()
        shards = shards.best(dataset, config.top)
        moments = [Moments.of(dataset, shards.rows(client)) for client in range(len(shards))]
        normaliser = Normaliser.pooled(moments, **config.normalise)
        rewards = {"reward_bound": normaliser.reward_bound, "reward_mean": normaliser.reward_mean}
        task = Task(dataset.observations.shape[1], dataset.actions.shape[1], **rewards)

        def make_learner(clients: int) -> Learner:
            return make(task, clients, device=config.device)

        taking_part = participants_per_round(len(shards), config.fed.fraction)
        chosen = {name: config.engine[name] for name in ("width", "workers", "threads")}
        layout = Layout.choose(taking_part, max(config.algo.get("hidden", [0])), **chosen)
        config = OmegaConf.merge(config, {"engine": asdict(layout)})
        environments = _environments(config, dataset)
        evaluator = _evaluator(config, environments, task)
        environments = evaluator.environments if evaluator else environments
        experiment = cls(config, dataset, shards, moments, normaliser, task, make_learner, environments, evaluator)
        for name in set(experiment.shared) - set(experiment.initial):
            raise InputError(f"fed.shared names '{name}'; {nearest(name, experiment.initial)}")
        local.check(experiment.shared)
        aggregator.check(len(shards))
        for part in ("participation", "adversaries", "reference"):
            getattr(experiment, part)  # faults in its settings show now
        _check_statistics(config, make_learner(1), getattr(aggregator, "needs", None))
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
    def by_progress(self) -> bool:
        """Whether learning goes by the part of the run that is over."""
        return self.make_learner(1).by_progress

    @cached_property
    def sampler(self) -> Sampler:
        learner = self.make_learner(1)
        return Sampler(
            self.dataset,
            self.shards,
            self.normaliser,
            batch_size=self.config.batch_size,
            noise_draws=learner.noise_draws,
            seed=self.config.seed,
            rounds=self.config.rounds,
            initial_states=learner.initial_states,
            returns_discount=learner.returns_discount,
            window=learner.window,
            device=self.config.device,
        )

    @cached_property
    def participation(self) -> Participation:
        settings, seed = self.config.clients, self.config.seed
        return Participation(
            self.shards.sizes,
            self.config.fed.fraction,
            seed,
            settings.sampling,
            read_availability(settings.available, len(self.shards)),
            settings.slowness,
            settings.time_limit,
            settings.late,
            settings.drop_before,
            settings.drop_after,
        )

    @cached_property
    def adversaries(self) -> Adversaries | None:
        settings, seed = self.config.clients, self.config.seed
        if not settings.adversaries:
            return None
        who = settings.adversaries if isinstance(settings.adversaries, int) else list(settings.adversaries)
        return Adversaries.chosen(who, settings.attack, settings.strength, seed, len(self.shards))

    def clients(self, store: ClientStore) -> Clients:
        """The clients as the configuration has them, with what they keep in this store."""
        config = self.config
        kind = config.compression.kind
        return Clients(
            store,
            self.initial,
            self.shared,
            config.updates_per_round,
            config.fed.optimiser_state,
            made(config.fed.local) if config.fed.local else LocalRule(),
            self.adversaries,
            Compression(kind, config.compression.keep, config.seed) if kind != "none" else None,
            self.reference,
        )

    @cached_property
    def reference(self) -> Callable[[Mapping[str, Tensor]], Reference] | None:
        """What gives the rows of a reference buffer, where the rule asks for one."""
        chosen = self.config.fed.get("reference")
        if chosen is None:
            return None
        if chosen.rows_from == "public":
            public = Reference.public(self.sampler, chosen.rows)
            return lambda state: public
        if not self.environments or "actor" not in self.shared:
            raise InputError(
                "fed.reference.rows_from=rollouts plays the shared actor in the logs' environments; name one with "
                "data.env=…, share the actor, or set rows_from=public."
            )
        own = [environment for environment in self.environments if not environment.held_out]
        _check_environments(self.config, own, self.task)
        where = {"episodes": chosen.episodes, "seed": self.config.eval.seed + 2**20, "like": self.dataset}
        limit = self.config.eval.max_steps

        def play(state: Mapping[str, Tensor]) -> Reference:
            episodes = rollouts(self.policy([state["actor"]]), own, max_steps=limit, **where)
            return Reference.played(self.sampler, episodes, chosen.rows)

        return play

    def own_environments(self, client: int) -> list[int]:
        """Which of the evaluator's environments a client's rows come from."""
        if len(self.dataset.environments) < 2:
            return [0]
        return np.unique(self.dataset.columns["environment"][self.shards.rows(client)]).tolist()

    def policy(self, actors: Iterable[Tensor]) -> Policy:
        """The deployable policies with these actor rows."""
        theta = torch.stack(list(actors)).to(self.config.device)
        return Policy(self.make_learner(1).actor, theta, **self.policy_constants())

    def policy_constants(self) -> dict[str, Tensor]:
        """What, beside the actor's row, turns an observation into an action."""
        arrays = {
            "mean": self.normaliser.mean,
            "std": self.normaliser.std,
            "action_low": self.dataset.action_low,
            "action_high": self.dataset.action_high,
        }
        return {name: torch.from_numpy(array).to(self.config.device) for name, array in arrays.items()}


def _check_statistics(config: DictConfig, learner: Learner, needed: str | None) -> None:
    """A rule may weigh clients by what the learner says of every row."""
    if needed is not None and needed.removeprefix("reference_") not in learner.row_values:
        raise InputError(
            f"fed={config.choices.fed} weighs clients by their {needed.replace('_', ' ')}s, which algo="
            f"{config.choices.algo} does not have; ratios come with algo=optidice, values with algo=fedora."
        )


def _environments(config: DictConfig, dataset: Dataset) -> list[Environment]:
    """Those that the logs come from and those held out, each with a name of its own."""
    logged = dataset.environments
    if not logged and config.data.held_out:
        raise InputError("data.held_out needs logs that name an environment; set data.env=….")
    environments = [*logged, *(_held_out(entry, logged) for entry in config.data.held_out)]
    named = zip(environments, environment_names(environments), strict=True)
    return [replace(environment, name=name) for environment, name in named]


def _check_environments(config: DictConfig, environments: Sequence[Environment], task: Task) -> None:
    """Before anything is played: they may be made, and they fit the data."""
    for environment in environments:
        if config.data.env is None and not environment.held_out and not registered(environment.id):
            # A file may name `module:Id`, which Gymnasium would import: only the user may ask for that.
            raise InputError(
                f"The data names the environment '{environment.id}', which is not registered here; "
                "trust it with data.env=…, or train without a simulator with eval=none."
            )
        check(environment, task.observations, task.actions)


def _evaluator(config: DictConfig, environments: list[Environment], task: Task) -> Evaluator | None:
    if config.eval.every is None or not environments:
        return None
    _check_environments(config, environments, task)
    environments = [with_references(environment) for environment in environments]
    for seen, held_out in permutations(environments, 2):
        if held_out.held_out and (seen.id, seen.bounds) == (held_out.id, held_out.bounds):
            raise InputError(f"'{held_out.id}' is to be held out, but logs come from it ('{seen.name}'); name another.")
    return Evaluator(environments, config.eval.episodes, config.eval.seed, config.eval.max_steps)


def _held_out(entry: str | DictConfig, logged: tuple[Environment, ...]) -> Environment:
    """An id, or {id: …, setting: …}; settings that all logged environments share hold there too."""
    own = {"id": entry} if isinstance(entry, str) else OmegaConf.to_container(entry)
    first = logged[0].kwargs
    shared = {key: first[key] for key in first if all(other.kwargs.get(key) == first[key] for other in logged)}
    env_id = own.pop("id")
    return Environment(env_id, shared | own, held_out=True)

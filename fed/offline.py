"""Off-policy evaluation of a run, for those without a simulator: fitted Q evaluation, and ratio estimates E_D[w r].

Values are in raw reward units: V is the discounted return from an initial state, (1 − γ)V is that per step.
"""

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from omegaconf import OmegaConf
from torch import Tensor

from data.dataset import Environment
from data.errors import InputError
from data.sampler import Sampler
from fed.aggregators.mean import Mean
from fed.clients import ClientStore
from fed.engines.inprocess import Clients, InProcess, Layout
from fed.experiment import Experiment
from fed.run_folder import Checkpoint, RunFolder
from fed.trained import TrainedRun
from rl.envs.evaluation import Evaluator, make_batch
from rl.fqe import FQE

NEGLIGIBLE = 0.001  # an online episode is played until γᵗ is this


@dataclass(frozen=True)
class FQESettings:
    """How Q is fitted; `tau` follows from the others."""

    gamma: float
    updates: int = 10_000
    batch_size: int = 256
    lr: float = 3e-4

    def __post_init__(self):
        limits = {
            "gamma": (0 <= self.gamma < 1, "at least 0 and below 1"),
            "updates": (self.updates >= 1, "at least 1"),
            "batch-size": (self.batch_size >= 1, "at least 1"),
            "lr": (0 < self.lr < math.inf, "above 0"),
        }
        for name, (fits, words) in limits.items():
            if not fits:
                raise InputError(f"--{name} is {getattr(self, name.replace('-', '_'))}; it must be {words}.")

    @property
    def tau(self) -> float:
        """The target's step. Q forgets where it began in 1/(τ(1 − γ)) updates or so: a fifth of them, within limits."""
        return min(0.2, max(0.005, 5 / (self.updates * (1 - self.gamma))))


@dataclass(frozen=True)
class Line:
    """One policy where one set of initial states comes from; the server's is looked at environment by environment."""

    name: str
    policy: int  # row of the policies
    environment: int
    rows: np.ndarray  # dataset rows that its data consist of
    starts: np.ndarray  # those of them that are initial states


@dataclass(frozen=True, eq=False)
class LoggedRun:
    """A run with its data: what off-policy evaluation looks at."""

    trained: TrainedRun
    experiment: Experiment
    state: dict[str, Tensor]  # the server's modules
    store: ClientStore  # the clients' own

    @classmethod
    def load(cls, path: Path, trained: TrainedRun) -> "LoggedRun":
        config = OmegaConf.merge(trained.config, {"eval": {"every": None}})  # no simulator is needed
        experiment, folder = Experiment.build(config), RunFolder(path)
        last = Checkpoint.load(folder.checkpoint)
        if last.facts["data_hash"] != experiment.data_hash:
            raise InputError(f"The data of '{path}' has changed since the run; restore it to estimate from it.")
        folder.clients.committed = last.facts["clients"]
        return cls(trained, experiment, last.state, folder.clients)

    @property
    def clients(self) -> list[int]:
        """Those that estimate: all, or where actors are personal those that have one."""
        return list(range(len(self.experiment.shards))) if self.trained.clients is None else self.trained.clients

    def lines(self) -> list[Line]:
        shards = self.experiment.shards
        names = [environment.name for environment in self.trained.environments if not environment.held_out] or ["logs"]
        whole = Line("", 0, 0, shards.order, shards.starts)
        if self.trained.clients is None:
            return [self._within(whole, name, v) for v, name in enumerate(names)]
        lines = []
        for policy, client in enumerate(self.trained.clients):
            own = Line("", policy, 0, shards.rows(client), shards.initial_rows(client))
            for v in self.experiment.own_environments(client):
                name = self.trained.name(policy) + f", {names[v]}" * (len(names) > 1)
                lines.append(self._within(own, name, v))
        return lines

    def _within(self, line: Line, name: str, environment: int) -> Line:
        """What comes from one environment."""
        rows, starts = line.rows, line.starts
        if len(self.experiment.dataset.environments) > 1:
            column = self.experiment.dataset.columns["environment"]
            rows, starts = rows[column[rows] == environment], starts[column[starts] == environment]
        return Line(name, line.policy, environment, rows, starts)

    # -- fitted Q evaluation ------------------------------------------------------------------------------------
    def fitted_values(
        self, settings: FQESettings, observe: Callable[[float], None] = lambda done: None
    ) -> tuple[np.ndarray, np.ndarray]:
        """[N] V at the dataset's rows that are initial states (NaN elsewhere), and what it was when four fifths of the
        updates were done. Q is averaged after each round where the policy is the server's; a client's own has its own.
        """
        with tempfile.TemporaryDirectory() as folder:
            engine, state = self._fitting(settings, ClientStore(Path(folder)))
            aggregator, rounds, earlier = Mean(), math.ceil(settings.updates / engine.clients.updates), None
            for round in range(1, rounds + 1):
                for update in engine.train(state, self.clients, round):
                    aggregator.accumulate(update)
                state = aggregator.finalise(state).state
                engine.clients.store.commit()
                if earlier is None and round >= 0.8 * rounds:
                    earlier = self._initial_values(engine, state)
                observe(round / rounds)
            return self._initial_values(engine, state), earlier

    def _fitting(self, settings: FQESettings, store: ClientStore) -> tuple[InProcess, dict[str, Tensor]]:
        """The engine that fits Q, and the modules that are averaged."""
        experiment, policy, config = self.experiment, self.trained.policy, self.experiment.config

        def make(clients: int) -> FQE:
            return FQE(
                experiment.task,
                clients,
                actor=policy.actor,
                gamma=settings.gamma,
                tau=settings.tau,
                lr=settings.lr,
                hidden=config.algo.hidden,
                layer_norm=config.algo.layer_norm,
                schedule="constant",
                clip=None,
                device=config.device,
            )

        sampler = Sampler(
            experiment.dataset,
            experiment.shards,
            experiment.normaliser,
            batch_size=settings.batch_size,
            noise_draws=0,
            seed=config.seed,
            device=config.device,
        )
        initial, shared = make(1).initial(torch.Generator().manual_seed(config.seed)), ["critic"]
        initial["actor"] = policy.theta[0]
        if self.trained.clients is not None:
            shared = []
            for row, client in enumerate(self.trained.clients):
                store.save(client, 0, {"actor": policy.theta[row]})
            store.commit()
        updates = min(config.updates_per_round, settings.updates)
        layout = Layout(config.engine.width, config.engine.workers, config.engine.threads)
        clients = Clients(store, initial, shared, updates)
        return InProcess(make, sampler, clients, layout), clients.server_state()

    @torch.no_grad()
    def _initial_values(self, engine: InProcess, state: dict[str, Tensor]) -> np.ndarray:
        values = np.full(len(self.experiment.dataset), np.nan)
        for client in self.clients:
            cohort, rows = engine.of_clients(state, [client]), self.experiment.shards.initial_rows(client)
            observations = engine.sampler.gather(torch.from_numpy(rows)[None], torch.empty(0)).observations
            value = cohort.value(cohort.params["critic"], observations)[0]
            values[rows] = value.cpu().numpy() / self.experiment.normaliser.reward_scale
        return values

    # -- ratios -------------------------------------------------------------------------------------------------
    def density_ratios(self) -> np.ndarray | None:
        """[N] the learner's ratios w at the clients' rows, NaN elsewhere; None for a learner that has none."""
        experiment = self.experiment
        clients = Clients(self.store, experiment.initial, experiment.shared, updates=0)
        layout = Layout(1, 1, experiment.config.engine.threads)
        engine = InProcess(experiment.make_learner, experiment.sampler, clients, layout)
        ratios = np.full(len(experiment.dataset), np.nan)
        for client in self.clients:
            values, _ = engine.on_all_rows(engine.of_clients(self.state, [client]).row_statistics, [client])
            if "ratio" not in values:
                return None
            ratios[experiment.shards.rows(client)] = values["ratio"][0].cpu().numpy()
        return ratios


def played_values(trained: TrainedRun, gamma: float, episodes: int, seed: int) -> tuple[np.ndarray, float]:
    """Σ γᵗ rₜ of the policies [K, V, E] in the logs' environments, and the largest weight γᵀ of what was not played.

    A value goes on after a timeout, so time limits are lifted where Gymnasium sets them.
    """
    horizon = math.ceil(math.log(NEGLIGIBLE) / math.log(gamma)) if gamma > NEGLIGIBLE else 1
    logged = [environment for environment in trained.environments if not environment.held_out]
    environments = [_without_time_limit(environment, horizon) for environment in logged]
    evaluator = Evaluator(environments, episodes, seed, horizon, discount=gamma)
    evaluation = evaluator(trained.policy)
    evaluator.close()
    return evaluation.discounted, float(evaluation.unseen.max())


def _without_time_limit(environment: Environment, horizon: int) -> Environment:
    batch = make_batch(environment, 1)
    limit = batch.spec.max_episode_steps
    batch.close()
    if limit is None or limit > horizon:
        return environment
    return replace(environment, kwargs=dict(environment.kwargs) | {"max_episode_steps": horizon + 1})

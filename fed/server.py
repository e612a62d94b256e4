"""The server loop: broadcast, train, aggregate, evaluate, record; round after round, from wherever the run stands."""

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig
from torch import Tensor

from fed.config import made
from fed.engines.inprocess import InProcess, Layout
from fed.experiment import Experiment
from fed.participation import participants
from fed.run_folder import RunFolder, with_the_layout_of_its_run
from fed.scoring import client_record, evaluation_record
from fed.summary import summarise
from fed.update import Update

Record = dict[str, Any]
Observer = Callable[[Record], None]


def prepare(config: DictConfig, resume: bool = False) -> tuple[Experiment, RunFolder]:
    """Check everything that can be checked; nothing is written yet."""
    folder = RunFolder.at(Path(config.out), resume)
    if resume:
        config = with_the_layout_of_its_run(config)
    experiment = Experiment.build(config)
    folder.check(experiment.config, experiment.data_hash, experiment.by_progress)
    return experiment, folder


def federate(experiment: Experiment, folder: RunFolder, observe: Observer = lambda record: None) -> dict:
    """Run (or continue) the federation and return its summary; `observe` sees every record and steers nothing."""
    with folder.locked():
        last = folder.check(experiment.config, experiment.data_hash, experiment.by_progress)
        folder.begin(experiment.config, experiment.shards.statistics(experiment.dataset), last)
        for record in folder.history():
            observe(record)
        done, state = (last.facts["round"], last.state) if last else (-1, None)
        _run_rounds(experiment, folder, done, state, observe)
        return summarise(experiment, folder)


def _run_rounds(
    experiment: Experiment, folder: RunFolder, done: int, state: dict[str, Tensor] | None, observe: Observer
) -> None:
    """Every round after `done`, each committed before the next begins."""
    config = experiment.config
    state = state or {name: experiment.initial[name] for name in experiment.shared}
    engine, aggregator = _engine(experiment, folder), made(config.fed.aggregator)
    for round in range(done + 1, config.rounds + 1):
        begun = time.perf_counter()
        if round == 0:
            record = _first_record(experiment)
        else:
            state, record = _train_round(experiment, engine, aggregator, state, round)
        trained = time.perf_counter()
        if experiment.evaluator is not None and _is_due(config, round):
            record |= _evaluate(experiment, folder, state)
        now = time.perf_counter()
        record |= {"seconds": now - begun, "seconds_train": trained - begun, "seconds_evaluate": now - trained}
        folder.commit(record, state, experiment.policy_constants(), _facts(experiment))
        observe(record)
    if experiment.evaluator is not None:
        experiment.evaluator.close()


def _engine(experiment: Experiment, folder: RunFolder) -> InProcess:
    engine = experiment.config.engine
    return InProcess(
        experiment.make_learner,
        experiment.sampler,
        folder.clients,
        experiment.initial,
        experiment.shared,
        experiment.config.updates_per_round,
        Layout(engine.width, engine.workers, engine.threads),
    )


def _first_record(experiment: Experiment) -> Record:
    """Round 0: the clients' statistics go up, the pooled ones come down; nothing is trained."""
    sent = sum(moments.nbytes for moments in experiment.moments)
    received = (experiment.normaliser.mean.nbytes + experiment.normaliser.std.nbytes + 16) * len(experiment.moments)
    everyone = list(range(len(experiment.shards)))
    return _record(0, everyone, [], bytes_up=sent, bytes_down=received)


def _train_round(
    experiment: Experiment, engine: InProcess, aggregator: Any, state: dict[str, Tensor], round: int
) -> tuple[dict[str, Tensor], Record]:
    config = experiment.config
    chosen = participants(len(experiment.shards), config.fed.fraction, config.seed, round)
    updates = []
    for update in engine.train(state, chosen, round):
        aggregator.accumulate(update)
        updates.append(replace(update, shared={}))  # what is reported, without the models
    state, weights = aggregator.finalise(state)
    size = sum(state[name].nbytes for name in experiment.shared)
    answered = [client for update in updates for client in update.clients]
    used = [weights.get(client, 0.0) for client in chosen] if experiment.shared else []
    record = _record(round, chosen, used, bytes_up=size * len(answered), bytes_down=size * len(chosen))
    record["metrics"] = _mean_metrics(updates)
    record |= _statistics(updates, chosen, with_histograms=_is_due(config, round))
    record["flags"] = {str(client): why for update in updates for client, why in update.flags.items()}
    record["failures"] = {str(client): why for update in updates for client, why in update.failures.items()}
    return state, record


def _record(round: int, chosen: list[int], weights: list[float], bytes_up: int, bytes_down: int) -> Record:
    return {
        "round": round,
        "score": None,
        "return_mean": None,
        "participants": chosen,
        "weights": weights,
        "bytes_up": bytes_up,
        "bytes_down": bytes_down,
    }


def _mean_metrics(updates: list[Update]) -> dict[str, float | None]:
    """Mean over the clients that answered; null where it is not finite."""
    names = {name for update in updates for name in update.metrics}
    values = {name: np.concatenate([update.metrics[name] for update in updates]) for name in sorted(names)}
    return {name: float(v.mean()) if len(v) and np.isfinite(v).all() else None for name, v in values.items()}


def _statistics(updates: list[Update], chosen: list[int], with_histograms: bool) -> Record:
    """{"ratios": {"mean": [one for each participant], …}}, null for a client that failed or is not finite."""
    found: Record = {}
    for update in updates:
        for value, statistics in update.statistics.items():
            for name, numbers in statistics.items():
                if name != "histogram" or with_histograms:
                    by_client = found.setdefault(f"{value}s", {}).setdefault(name, dict.fromkeys(chosen))
                    by_client |= {
                        client: number if np.isfinite(number).all() else None
                        for client, number in zip(update.clients, numbers, strict=True)
                    }
    return {
        value: {name: list(by_client.values()) for name, by_client in statistics.items()}
        for value, statistics in found.items()
    }


def _is_due(config: DictConfig, round: int) -> bool:
    """Whether this is a round that is looked at closely: every so many, and the last one."""
    return round == config.rounds or (config.eval.every is not None and round % config.eval.every == 0)


def _evaluate(experiment: Experiment, folder: RunFolder, state: dict[str, Tensor]) -> Record:
    """The global policy's return; where actors are personal, the mean over the clients' own policies."""
    if "actor" in state:
        clients, actors = None, [state["actor"]]
    else:
        count = min(len(experiment.shards), experiment.config.eval.max_clients)
        clients = np.linspace(0, len(experiment.shards) - 1, count).round().astype(int).tolist()
        actors = [(folder.clients.latest(client) or experiment.initial)["actor"] for client in clients]
    evaluator = experiment.evaluator
    evaluation = evaluator(experiment.policy(actors))
    if not np.isfinite(evaluation.returns).all():
        return {"evaluation_failed": "the policy's returns are not finite"}
    record = evaluation_record(evaluation, evaluator.environments)
    if clients is not None:
        own = [experiment.own_environments(client) for client in clients]
        record |= client_record(evaluation, evaluator.environments, clients, own)
    return record


def _facts(experiment: Experiment) -> dict:
    """What a checkpoint says beside its tensors: enough to play the policy without the data."""
    environments = [asdict(environment) for environment in experiment.environments]
    return {"environments": environments, "data_hash": experiment.data_hash}

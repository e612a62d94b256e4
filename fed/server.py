"""The server loop: broadcast, train, aggregate, evaluate, record; round after round, from wherever the run stands."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
from omegaconf import DictConfig
from torch import Tensor

from fed.experiment import Experiment
from fed.federation import Federation, Record, is_due, new_record
from fed.run_folder import Checkpoint, RunFolder, with_the_layout_of_its_run
from fed.scoring import client_record, evaluation_record
from fed.summary import summarise

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
        _run_rounds(experiment, folder, last, observe)
        return summarise(experiment, folder)


def _run_rounds(experiment: Experiment, folder: RunFolder, last: Checkpoint | None, observe: Observer) -> None:
    """Every round after the last one, each committed before the next begins."""
    config, done = experiment.config, last.facts["round"] if last else -1
    federation = Federation(experiment, folder, last)
    best = max(map(merit, folder.history()), default=-math.inf)
    for round in range(done + 1, config.rounds + 1):
        begun = time.perf_counter()
        record = _first_record(experiment) if round == 0 else federation.train(round)
        trained = time.perf_counter()
        if experiment.evaluator is not None and is_due(config, round):
            record |= _evaluate(experiment, folder, federation.state)
        now = time.perf_counter()
        record |= {"seconds": now - begun, "seconds_train": trained - begun, "seconds_evaluate": now - trained}
        folder.commit(
            record, federation.tensors(), experiment.policy_constants(), _facts(experiment), merit(record) > best
        )
        best = max(best, merit(record))
        observe(record)
    if experiment.evaluator is not None:
        experiment.evaluator.close()


def merit(record: Record) -> float:
    """What the best checkpoint is the best by: the score, or the return where there is none."""
    value = record["score"] if record["score"] is not None else record["return_mean"]
    return -math.inf if value is None else value


def _first_record(experiment: Experiment) -> Record:
    """Round 0: the clients' statistics go up, the pooled ones come down; nothing is trained."""
    sent = sum(moments.nbytes for moments in experiment.moments)
    received = (experiment.normaliser.mean.nbytes + experiment.normaliser.std.nbytes + 16) * len(experiment.moments)
    everyone = list(range(len(experiment.shards)))
    return new_record(0, everyone, [], bytes_up=sent, bytes_down=received)


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

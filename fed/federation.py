"""One round of the federation: ask, train, screen, aggregate, step, and say what happened."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor

from data.errors import InputError
from fed.aggregators.base import Aggregator
from fed.config import made
from fed.drift import Drift
from fed.engines.inprocess import InProcess, Layout
from fed.experiment import Experiment
from fed.run_folder import Checkpoint, RunFolder
from fed.screening import Screen
from fed.update import Update, is_module

Record = dict[str, Any]
UNHEARD = ("control/", "error/")  # what a client keeps of a message, if the message arrives


class Federation:
    """The server between two rounds: the global modules and the rules that change them."""

    def __init__(self, experiment: Experiment, folder: RunFolder, last: Checkpoint | None):
        self.experiment, self.folder, self.config = experiment, folder, experiment.config
        self.clients = experiment.clients(folder.clients)
        engine = self.config.engine
        layout = Layout(engine.width, engine.workers, engine.threads)
        self.engine = InProcess(experiment.make_learner, experiment.sampler, self.clients, layout)
        self.participation = experiment.participation
        self.screen = Screen(**self.config.screen)
        self.aggregator = made(self.config.fed.aggregator)
        self.optimiser = made(self.config.fed.server) if self.config.fed.server else None
        state = last.state if last else self.clients.server_state()
        self.state = dict(sorted(state.items()))  # a sum over modules must not depend on the order they were read in
        if last and self.optimiser:
            self.optimiser.state = last.server

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint must hold to go on from here."""
        kept = self.optimiser.state if self.optimiser else {}
        return self.state | {f"server/{name}": tensor for name, tensor in kept.items()}

    def train(self, round: int) -> Record:
        """One round, tried again with other clients while too few of them answer."""
        faults, up, down = self.config.clients, 0, 0
        for attempt in range(faults.attempts):
            received = self._receive(round, attempt)
            up, down = up + received.bytes, down + received.bytes_down
            needed = math.ceil(faults.quorum * len(received.asked) - 1e-9)
            if received.answered >= needed:
                sent = {"bytes_up": up, "bytes_down": down} | ({"attempts": attempt + 1} if attempt else {})
                return self._finish(received, round) | sent
            self.aggregator.finalise(self.state)  # forgets what it has taken in
            self.folder.clients.discard()
        raise InputError(
            f"Round {round}: {received.answered} of {len(received.asked)} clients answered where clients.quorum needs "
            f"{needed}, in {faults.attempts} attempts. The run is saved as it was after round {round - 1}; --resume "
            "with another clients.quorum or clients.attempts goes on."
        )

    def _receive(self, round: int, attempt: int) -> "Received":
        """Ask the clients, train them, and let the aggregator take in what arrives."""
        asked = self.participation.draw(round, attempt)
        lost = {client: self.participation.lost(client, round, attempt) for client in asked}
        steps = {client: self.participation.steps(client, self.config.updates_per_round) for client in asked}
        training = [client for client in asked if lost[client] != "before" and steps[client]]
        received = Received(asked, Drift(self.state), {client: why for client, why in lost.items() if why})
        received.late = [client for client in asked if not steps[client]]
        updates = self.engine.train(self.state, training, round, [steps[client] for client in training])
        received.collect(updates, self.state, self.screen, self.aggregator)
        message = sum(tensor.nbytes for tensor in self.state.values())
        reference = self.engine.reference.batch.nbytes if self.engine.reference else 0
        received.bytes_down = (message + reference) * len(asked)
        return received

    def _finish(self, received: "Received", round: int) -> Record:
        """The new global modules, and what the round's record says."""
        old = self.state
        aggregation = self.aggregator.finalise(old)
        new = aggregation.state
        if self.optimiser and received.answered:
            new = self.optimiser.step(old, new)
        new |= self.clients.rule.receive(old, received.extras, len(self.experiment.shards.order))
        self.state = self._renormalised(new) if received.answered else new
        for client in [*received.screened, *(client for client, when in received.lost.items() if when == "after")]:
            self.folder.clients.take_back(client, UNHEARD)
        chosen = received.asked
        weighed = self.experiment.shared and (aggregation.weights or not received.answered)  # a median weighs nobody
        weights = [aggregation.weights.get(client, 0.0) for client in chosen] if weighed else []
        record = new_record(round, chosen, weights, received.bytes, received.bytes_down)
        if aggregation.module_weights:
            record["module_weights"] = {
                name: [weights.get(client, 0.0) for client in chosen]
                for name, weights in aggregation.module_weights.items()
                if is_module(name)
            }
        record["metrics"] = _mean_metrics(received.updates)
        record |= _statistics(received.updates, chosen, with_histograms=is_due(self.config, round))
        record["drift"] = received.drift.record(self.state, chosen)
        record |= received.record()
        return record | ({"note": aggregation.note} if aggregation.note else {})

    def _renormalised(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """With λ such that the mean ratio on the reference rows is 1, where that is asked for."""
        chosen = self.config.fed.reference
        if not chosen or not chosen.renormalise or self.engine.reference is None:
            return state
        cohort = self.engine.cohort(state, [{}])
        cohort.renormalise(self.engine.reference.batch)
        return state | {name: cohort.params[name].detach()[0] for name in ("dual", "multiplier") if name in state}


@dataclass(eq=False)
class Received:
    """What came back in a round, without the models."""

    asked: list[int]
    drift: Drift
    lost: dict[int, str]  # client → before or after training
    late: list[int] = field(default_factory=list)
    screened: dict[int, str] = field(default_factory=dict)  # client → why it was left out
    updates: list[Update] = field(default_factory=list)
    extras: dict[str, Tensor] = field(default_factory=dict)  # sums over the clients
    bytes: int = 0
    bytes_down: int = 0
    answered: int = 0

    def collect(
        self, updates: Iterable[Update], state: Mapping[str, Tensor], screen: Screen, aggregator: Aggregator
    ) -> None:
        """Let the aggregator take in what arrives and passes the screen, chunk by chunk."""
        for update in screen(self.arriving(updates), state, self.screened):
            aggregator.accumulate(update)
            self.take(update)

    def arriving(self, updates: Iterable[Update]) -> Iterator[Update]:
        """Without those that are lost after training."""
        for update in updates:
            arrived = update.only([p for p, client in enumerate(update.clients) if self.lost.get(client) != "after"])
            self.bytes += sum(arrived.bytes)
            self.updates.append(replace(arrived, shared={}, extras={}))
            yield arrived

    def take(self, update: Update) -> None:
        """One that the screen has let through."""
        self.drift.accumulate(update)
        self.answered += len(update.clients)
        for name, rows in update.extras.items():
            weights = torch.tensor(update.rows, dtype=torch.float64, device=rows.device)
            self.extras[name] = self.extras.get(name, 0) + weights @ rows.double()

    def record(self) -> Record:
        steps = {
            client: count for update in self.updates for client, count in zip(update.clients, update.steps, strict=True)
        }
        told: Record = {
            "flags": {str(client): why for update in self.updates for client, why in update.flags.items()},
            "failures": {str(client): why for update in self.updates for client, why in update.failures.items()},
        }
        if self.screened:
            told["screened"] = {str(client): why for client, why in self.screened.items()}
        if self.lost or self.late:
            told["dropped"] = {str(c): f"{when} training" for c, when in self.lost.items()}
            told["dropped"] |= {str(client): "late" for client in self.late}
        if len(set(steps.values())) > 1:
            told["steps"] = [steps.get(client) for client in self.asked]
        return told


def new_record(round: int, chosen: list[int], weights: list[float], bytes_up: int, bytes_down: int) -> Record:
    """What every round's record has; it is not evaluated yet."""
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
    """Mean over the clients that have the metric; null where one of them is not finite."""
    names = sorted({name for update in updates for name in update.metrics})
    values = {name: [v for update in updates for v in update.metrics.get(name, ()) if v is not None] for name in names}
    return {name: float(np.mean(v)) if v and np.isfinite(v).all() else None for name, v in values.items()}


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


def is_due(config: DictConfig, round: int) -> bool:
    """Whether this is a round that is looked at closely: every so many, and the last one."""
    return round == config.rounds or (config.eval.every is not None and round % config.eval.every == 0)

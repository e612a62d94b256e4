"""How the server's memory and time grow with the clients of a round: its own code, on updates that nobody trained.

Every size runs in a process of its own, so that the peak is its own. The models come a chunk at a time, as an engine
makes them.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from fed.config import compose, made
from fed.drift import Drift
from fed.federation import Received
from fed.screening import Screen
from fed.update import Update

PARAMETERS = 40_000  # two networks of 128×128
WIDTH = 16
SIZES = (10, 100, 1_000, 10_000)
RULES = ("fedavg", "fedadam", "fednova", "adaptive", "ratio_weighted", "fedora", "median")
HELD = 1_000  # at most so many clients for a rule that holds all updates


@dataclass(frozen=True)
class Scale:
    rule: str
    clients: int
    megabytes: float  # peak above that of a process that has only loaded the code
    microseconds: float  # of a client


def benchmark_scale() -> Iterator[Scale]:
    for rule in RULES:
        for clients in SIZES:
            if rule == "median" and clients > HELD:
                continue
            command = [sys.executable, "-c", f"from fed.bench_scale import measure; measure({rule!r}, {clients})"]
            answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            yield Scale(rule, clients, **answer)


def measure(rule: str, clients: int) -> None:
    """One round's aggregation, in this process; prints the result."""
    torch.set_num_threads(1)
    config = compose("train", [f"fed={rule}"])
    aggregator = made(config.fed.aggregator)
    optimiser = made(config.fed.server) if config.fed.server else None
    state = {"actor": torch.zeros(PARAMETERS)}
    _round(aggregator, optimiser, state, WIDTH)  # what the first use of a kernel costs is not the rule's
    before, begun = _peak(), time.process_time()
    _round(aggregator, optimiser, state, clients)
    seconds = time.process_time() - begun
    print(json.dumps({"megabytes": _peak() - before, "microseconds": 1e6 * seconds / clients}))


def _round(aggregator: object, optimiser: object, state: dict[str, torch.Tensor], clients: int) -> None:
    received = Received(list(range(clients)), Drift(state), lost={})
    received.collect(_updates(clients), state, Screen(norm=None, cosine=None, held=0), aggregator)
    new = aggregator.finalise(state).state
    if optimiser:
        optimiser.step(state, new)
    received.drift.record(new, received.asked)


def _updates(clients: int) -> Iterator[Update]:
    theta = torch.randn(WIDTH, PARAMETERS, generator=torch.Generator().manual_seed(0))
    for first in range(0, clients, WIDTH):
        chunk = list(range(first, min(first + WIDTH, clients)))
        ones = [1.0] * len(chunk)
        statistics = dict.fromkeys(("mean", "std", "second_moment", "ess", "ess_fraction"), ones)
        yield Update(
            chunk,
            {"actor": theta[: len(chunk)].clone()},
            rows=[5_000] * len(chunk),
            metrics={"actor_loss": ones},
            flags={},
            failures={},
            statistics={"ratio": statistics, "value": statistics},
            steps=[100] * len(chunk),
            changes={"actor_loss": ones},
            bytes=[4 * PARAMETERS] * len(chunk),
        )


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

"""How many client updates a second: the stacked cohort against plain modules, one client after another."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from data.batch import Batch
from rl.learner import Task
from rl.memory import keep_freed_memory
from rl.plain_sac import PlainSAC
from rl.sac import SAC

ROUNDS = 9  # every variant is timed once a round, in turns, so that a slow moment of the machine hits all alike


@dataclass(frozen=True)
class Case:
    hidden: int
    clients: int
    observations: int
    actions: int
    batch: int = 256

    def flops(self) -> float:
        """Of the matrix products in one client's update: forward 1, gradient of weights 1, of inputs 1."""
        actor = 2 * (self.observations * self.hidden + self.hidden**2 + self.hidden * 2 * self.actions)
        first = 2 * (self.observations + self.actions) * self.hidden
        critic = first + 2 * (self.hidden**2 + self.hidden)
        target = actor + 2 * critic
        evaluate = 2 * (3 * critic - first)
        improve = 3 * actor - 2 * self.observations * self.hidden + 2 * 2 * critic
        return self.batch * (target + evaluate + improve)

    def data(self, *leading: int) -> tuple[torch.Tensor, ...]:
        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*leading, self.batch, *shape)

        s, a = normal(self.observations), normal(self.actions).tanh()
        noise = torch.randn(2, *leading, self.batch, self.actions)
        return s, a, normal(), normal(self.observations), torch.zeros(*leading, self.batch), noise


CASES = (Case(64, 32, 11, 3), Case(256, 10, 17, 6))


def benchmark_steps(case: Case) -> dict[str, float]:
    """Client updates a second of each variant (best round of each), and the matmul limit in updates a second."""
    keep_freed_memory()
    cores = torch.get_num_threads()
    layouts = [(1, 1), (1, cores), (cores, 1)] if cores > 1 else [(1, 1)]
    variants: dict[str, tuple[int, Callable[[], float]]] = {}
    for threads in sorted({1, cores}):
        variants[f"plain nn.Linear, {threads} threads"] = (threads, _plain(case))
        variants[f"matmul alone, {threads} threads"] = (threads, _matmul(case))
    for workers, threads in layouts:
        variants[f"stacked, {workers} × {threads} threads"] = (threads, _stacked(case, workers))
    rates = dict.fromkeys(variants, 0.0)
    for _ in range(ROUNDS):
        for name, (threads, run) in variants.items():
            torch.set_num_threads(threads)
            rates[name] = max(rates[name], run())
    torch.set_num_threads(cores)
    return rates


def benchmark_widths(case: Case, widths: Sequence[int]) -> dict[int, float]:
    """Client updates a second on one thread, by how many clients are stacked (best round of each)."""
    keep_freed_memory()
    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    runs = {width: _stacked(replace(case, clients=width), workers=1) for width in widths}
    rates = dict.fromkeys(widths, 0.0)
    for _ in range(ROUNDS):
        for width, run in runs.items():
            rates[width] = max(rates[width], run())
    torch.set_num_threads(cores)
    return rates


def _rate(updates: int, run: Callable[[], None]) -> float:
    begun = time.perf_counter()
    run()
    return updates / (time.perf_counter() - begun)


def _plain(case: Case) -> Callable[[], float]:
    learners = [PlainSAC(case.observations, case.actions, [case.hidden] * 2) for _ in range(case.clients)]
    batches = [case.data() for _ in learners]

    def run() -> None:
        for learner, batch in zip(learners, batches, strict=True):
            learner.update(*batch)

    return lambda: _rate(case.clients, run)


def _stacked(case: Case, workers: int) -> Callable[[], float]:
    cohorts = [
        (_cohort(case, case.clients // workers), Batch(*case.data(case.clients // workers))) for _ in range(workers)
    ]
    repeats = 3

    def work(cohort: SAC, batch: Batch) -> None:
        for _ in range(repeats):
            cohort.update(batch)

    def run() -> None:
        threads = [threading.Thread(target=work, args=pair) for pair in cohorts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return lambda: _rate(repeats * case.clients, run)


def _cohort(case: Case, clients: int) -> SAC:
    cohort = SAC(
        Task(case.observations, case.actions, 1.0),
        clients,
        hidden=[case.hidden] * 2,
        layer_norm=False,
        schedule="constant",
        critics=2,
        gamma=0.99,
        tau=0.005,
        actor_lr=3e-4,
        critic_lr=3e-4,
        temperature_lr=3e-4,
        initial_temperature=1.0,
        target_entropy=None,
        backup_entropy=True,
        clip=None,
        device="cpu",
    )
    cohort.broadcast(cohort.initial(torch.Generator().manual_seed(0)))
    return cohort


def _matmul(case: Case) -> Callable[[], float]:
    """The hidden layer's product for the whole cohort, as fast as the library has it."""
    x, w = torch.randn(case.clients, case.batch, case.hidden), torch.randn(case.clients, case.hidden, case.hidden)
    out, repeats = torch.empty_like(x), 20

    def run() -> None:
        for _ in range(repeats):
            torch.bmm(x, w, out=out)

    per_client = 2 * case.batch * case.hidden**2 / case.flops()
    return lambda: _rate(repeats * case.clients, run) * per_client

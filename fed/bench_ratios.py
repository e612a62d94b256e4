"""Where OptiDICE's weight goes: by source, by time in the episode and by return. The dual alone, in seconds.

A policy tells in minutes whether ratios are any good; this table tells why.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from data.dataset import Dataset
from data.errors import InputError
from data.loaders import load
from data.normaliser import Moments, Normaliser
from data.sampler import Sampler
from data.shards import Shards
from fed.bench_rows import leading_episodes
from fed.config import compose, made
from metrics.ratios import effective_sample_size
from rl.learner import Task
from rl.memory import keep_freed_memory

TASKS = ("halfcheetah", "hopper")
SOURCES, ROWS = ("expert", "medium"), 25_000
UPDATES, BATCH, CHUNK = 2_000, 256, 5_000
TIMES = (0, 50, 200, 1001)  # steps in the episode: getting going, early, the rest
PAPER = [
    "algo.steps=1",
    "algo.centred=false",
    "algo.gamma=0.99",
    "algo.alpha=0.3",
    "algo.nu_lr=1e-3",
    "algo.lambda_lr=1e-3",
]
VARIANTS = {
    "as in the paper, γ .99, α .3": PAPER,
    "… initial states from the data": [*PAPER, "algo.starts=data"],
    "… semi-gradient": [*PAPER, "algo.gradient=semi"],
    "… orthogonal gradient": [*PAPER, "algo.gradient=orthogonal"],
    "… centred": [*PAPER, "algo.centred=true"],
    "… centred, γ .999": [*PAPER, "algo.centred=true", "algo.gamma=0.999"],
    "… and 15 steps": [*PAPER, "algo.centred=true", "algo.gamma=0.999", "algo.steps=15"],
    "… and 50 steps": [*PAPER, "algo.centred=true", "algo.gamma=0.999", "algo.steps=50"],
    "… and α .1": [*PAPER, "algo.centred=true", "algo.gamma=0.999", "algo.steps=50", "algo.alpha=0.1"],
    "… and α 1": [*PAPER, "algo.centred=true", "algo.gamma=0.999", "algo.steps=50", "algo.alpha=1.0"],
}


@dataclass(frozen=True)
class Weighing:
    """What a dual does to the rows of two sources in equal numbers."""

    task: str
    variant: str
    mean: float  # E[w]
    ess_fraction: float
    expert_share: float  # of the weight
    by_time: dict[str, list[float]]  # source → mean w in each part of the episode
    return_correlation: float  # of w and the episode's return


def benchmark_ratios(folder: Path) -> Iterator[Weighing]:
    keep_freed_memory()
    for task in TASKS:
        files = {source: folder / f"{task}_{source}.hdf5" for source in SOURCES}
        for path in files.values():
            if not path.is_file():
                raise InputError(f"There is no '{path}'; say with --data which folder holds it.")
        dataset = load({source: str(path) for source, path in files.items()})
        shards = leading_episodes(dataset, [ROWS] * len(SOURCES))
        for variant, overrides in VARIANTS.items():
            yield _weigh(task, variant, _ratios(dataset, shards, overrides), dataset, shards.rows(0))


def _ratios(dataset: Dataset, shards: Shards, overrides: list[str]) -> np.ndarray:
    """[R] of all rows, after the dual has been trained and nothing else."""
    normaliser = Normaliser.pooled([Moments.of(dataset, shards.rows(0))], observations=True, rewards="scale")
    sizes = (dataset.observations.shape[1], dataset.actions.shape[1])
    config = compose("train", ["algo=optidice", "data=file", "data.path=unused", "algo.schedule=constant", *overrides])
    learner = made(config.algo)(Task(*sizes, normaliser.reward_bound, normaliser.reward_mean), 1, device="cpu")
    learner.broadcast(learner.initial(torch.Generator().manual_seed(0)))
    asked = {"initial_states": learner.initial_states, "window": learner.window}
    sampler = Sampler(dataset, shards, normaliser, batch_size=BATCH, noise_draws=0, seed=0, **asked)
    learner.warm_up = 1.0  # no policy
    for batch in sampler.batches([0], round=1, updates=UPDATES):
        learner.update(batch)
    parts = [learner.row_statistics(batch)["ratio"] for batch, _ in sampler.sweep([0], CHUNK)]
    return torch.cat(parts, 1)[0].numpy()


def _weigh(task: str, variant: str, ratio: np.ndarray, dataset: Dataset, rows: np.ndarray) -> Weighing:
    episode = np.searchsorted(dataset.starts, rows, side="right") - 1
    time = rows - dataset.starts[episode]
    returns = np.add.reduceat(dataset.rewards.astype(np.float64), dataset.starts)[episode]
    source = dataset.columns["source"][rows]
    part = np.digitize(time, TIMES) - 1
    by_time = {
        name: [float(ratio[(source == s) & (part == p)].mean()) for p in range(len(TIMES) - 1)]
        for s, name in enumerate(SOURCES)
    }
    return Weighing(
        task,
        variant,
        mean=float(ratio.mean()),
        ess_fraction=effective_sample_size(ratio) / len(ratio),
        expert_share=float(ratio[source == 0].sum() / ratio.sum()),
        by_time=by_time,
        return_correlation=float(np.corrcoef(ratio, returns)[0, 1]),
    )

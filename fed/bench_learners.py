"""Our learners against d3rlpy's: the same rows, settings and evaluation; scores, and updates a second.

d3rlpy lives in an environment of its own and is driven over stdin and stdout (`scripts/d3rlpy_side.py`); rows go there
and policies come back as files. Every finished piece is a file under `FOLDER`: started again, only what is missing is
done, and what was made with other settings is made anew.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from data.errors import InputError
from fed.bench_rows import Rows, normalised_columns
from fed.bench_settings import COUNTED, HIDDEN, KEEP, PAIRS, SEEDS, SETS
from fed.config import compose, made
from fed.files import write_json
from fed.scoring import scores_of
from rl.envs.evaluation import Evaluator
from rl.learner import Learner, Task
from rl.memory import keep_freed_memory
from rl.networks import MLP
from rl.policies import Actor, Deterministic

FOLDER = Path("outputs/bench_learners")
SIDE = Path(__file__).parent.parent / "scripts" / "d3rlpy_side.py"
HOW_TO_INSTALL = (
    "make an environment for it with `python3.11 -m venv ../d3rlpy_venv && ../d3rlpy_venv/bin/pip install -r "
    "requirements-d3rlpy.txt` and pass --d3rlpy ../d3rlpy_venv/bin/python."
)
EPISODES, MAX_STEPS = 10, 1000
# Speeds: every variant runs for SLICE seconds a round, in turns, and its best round counts. The seconds are the
# process's own: with one thread they are those of the clock, less what other processes take.
ROUNDS, SLICE = 9, 1.0


# -- pieces --------------------------------------------------------------------------------------------------------
def finished(path: Path, made_with: Mapping[str, Any]) -> bool:
    """Whether the piece is there and was made with these settings."""
    if not path.exists():
        return False
    with np.load(path) as file:
        return json.loads(str(file["made_with"])) == made_with


def write_arrays(path: Path, **arrays: Any) -> None:
    """All of the file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path.with_suffix(".part.npz"), **arrays)
    path.with_suffix(".part.npz").replace(path)


def our_learner(name: str, task: Task, clients: int) -> Learner:
    """A cohort with a seed in each row."""
    learner = made(compose("train", [f"algo={name}", *PAIRS[name].overrides()]).algo)(task, clients, device="cpu")
    fresh = [learner.initial(torch.Generator().manual_seed(seed)) for seed in range(clients)]
    learner.broadcast({module: torch.stack([rows[module] for rows in fresh]) for module in fresh[0]})
    return learner


def train_ours(rows: Rows, name: str) -> Path:
    """All seeds at once; the file holds theta `[kept, seeds, P]`."""
    out = FOLDER / rows.name / f"ours_{name}.npz"
    made_with = {"settings": PAIRS[name].overrides(), "seeds": SEEDS, "keep": KEEP}
    if finished(out, made_with):
        return out
    learner, kept, begun = our_learner(name, rows.task, SEEDS), [], time.perf_counter()
    for update, batch in enumerate(rows.batches(learner, max(KEEP)), start=1):
        learner.update(batch)
        if update in KEEP:
            kept.append(learner.params["actor"].detach().clone())
            print(f"{out}: {update} updates, {time.perf_counter() - begun:.0f} s", learner.failures or "", flush=True)
    write_arrays(out, theta=torch.stack(kept).numpy(), made_with=json.dumps(made_with))
    return out


def d3rlpy_orders(rows: Rows, name: str) -> list[dict[str, Any]]:
    """What d3rlpy has to train: one policy file for each seed."""
    pair, folder = PAIRS[name], FOLDER / rows.name
    order = {"do": "train", "config": pair.config, "settings": pair.d3rlpy_settings(), "hidden": HIDDEN}
    order |= {"data": str(folder / "rows.npz"), "keep": KEEP}
    return [order | {"seed": seed, "out": str(folder / f"d3rlpy_{name}_{seed}.npz")} for seed in range(SEEDS)]


class D3rlpy:
    """d3rlpy's process: stays alive, answers a JSON line with a JSON line."""

    def __init__(self, python: str):
        self.log = FOLDER / "d3rlpy.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.log.open("w") as log:
                pipe = subprocess.PIPE
                self.process = subprocess.Popen([python, SIDE], stdin=pipe, stdout=pipe, stderr=log, text=True)
        except OSError as error:
            raise InputError(f"'{python}' cannot be started ({error}); {HOW_TO_INSTALL}") from error

    def __call__(self, order: Mapping[str, Any]) -> dict[str, Any]:
        try:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise InputError(f"d3rlpy's side ended without an answer ('{self.log}' says why); {HOW_TO_INSTALL}")
        return json.loads(answer)

    def train(self, rows: Rows, name: str) -> list[Path]:
        orders = d3rlpy_orders(rows, name)
        for order in orders:
            if not finished(Path(order["out"]), order):
                answer = self(order)
                print(f"{order['out']}: {answer['seconds']:.0f} s", flush=True)
        return [Path(order["out"]) for order in orders]

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


# -- scores --------------------------------------------------------------------------------------------------------
def scores(rows: Rows, policies: Sequence[Path], actor: Actor) -> np.ndarray:
    """[kept, seeds] normalised scores of stored policies, played once and kept beside them."""
    out = policies[0].with_name(policies[0].stem.removesuffix("_0") + "_scores.json")
    if not out.exists() or out.stat().st_mtime < max(path.stat().st_mtime for path in policies):
        stored = [np.load(path)["theta"] for path in policies]  # d3rlpy: [kept, P] a seed; ours: [kept, seeds, P]
        theta = torch.from_numpy(stored[0] if stored[0].ndim == 3 else np.stack(stored, axis=1))
        evaluator = Evaluator(rows.dataset.environments, EPISODES, seed=0, max_steps=MAX_STEPS)
        returns = evaluator(rows.policy(actor, theta.flatten(0, 1))).returns
        evaluator.close()
        write_json(out, scores_of(returns, rows.dataset.environments).reshape(theta.shape[:2]).tolist())
    return np.array(json.loads(out.read_text()))


# -- speeds --------------------------------------------------------------------------------------------------------
def speeds(rows: Rows, name: str, d3rlpy: D3rlpy | None) -> dict[str, float]:
    """Updates a second and client, sampling included, one thread each; measured once and kept."""
    out = FOLDER / rows.name / f"speeds_{name}.json"
    if out.exists() and (d3rlpy is None or "d3rlpy" in json.loads(out.read_text())):
        return json.loads(out.read_text())
    variants: dict[str, Callable[[], float]] = {"alone": _timed(rows, name, 1), "stacked": _timed(rows, name, SEEDS)}
    if d3rlpy is not None:
        order = d3rlpy_orders(rows, name)[0] | {"do": "time", "seconds": SLICE}
        variants["d3rlpy"] = lambda: d3rlpy(order)["rate"]
    rates = dict.fromkeys(variants, 0.0)
    for _ in range(1 + ROUNDS):  # the first warms up
        for variant, run in variants.items():
            rates[variant] = max(rates[variant], run())
    write_json(out, rates)
    return rates


def _timed(rows: Rows, name: str, clients: int) -> Callable[[], float]:
    learner = our_learner(name, rows.task, clients)
    batches = rows.batches(learner, updates=10**9)

    def run() -> float:
        begun, updates = time.process_time(), 0
        while (seconds := time.process_time() - begun) < SLICE:
            learner.update(next(batches))
            updates += 1
        return clients * updates / seconds

    return run


# -- the whole -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Result:
    """One algorithm on one set: scores of each seed, and speeds by variant."""

    set: str
    algorithm: str
    ours: np.ndarray  # [seeds]
    theirs: np.ndarray | None
    speeds: dict[str, float]


def benchmark_learners(folder: Path, python: str | None) -> Iterator[Result]:
    """python: the interpreter of the environment in which d3rlpy is installed; None: our side alone."""
    keep_freed_memory()
    torch.set_num_threads(1)
    sets = [Rows.load(name, folder) for name in SETS]
    for rows in sets:
        write_arrays(FOLDER / rows.name / "rows.npz", **normalised_columns(rows))
    d3rlpy = D3rlpy(python) if python else None
    for name in PAIRS:
        for rows in sets:
            learner = our_learner(name, rows.task, 1)
            ours = scores(rows, [train_ours(rows, name)], learner.actor)
            theirs = None
            if d3rlpy:
                plain = Deterministic(MLP((rows.task.observations, *HIDDEN, rows.task.actions)))
                theirs = scores(rows, d3rlpy.train(rows, name), plain)[-COUNTED:].mean(0)
            yield Result(rows.name, name, ours[-COUNTED:].mean(0), theirs, speeds(rows, name, d3rlpy))
    if d3rlpy:
        d3rlpy.close()

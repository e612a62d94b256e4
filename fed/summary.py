"""summary.json: what came out, on which data, with which code."""

import subprocess
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np

from fed.experiment import Experiment
from fed.files import write_json
from fed.run_folder import RunFolder
from fed.scoring import LAST_EVALUATIONS, last_results
from metrics.rounds_to import rounds_to

LIBRARIES = ("torch", "numpy", "gymnasium", "minari", "mujoco", "numba")
TARGETS = (25, 50, 75, 90)


def summarise(experiment: Experiment, folder: RunFolder) -> dict:
    """Write and return the summary of a finished run. The score is that of the last evaluations, never the best."""
    history = folder.history()
    scored = [record for record in history if record["score"] is not None]
    rounds, scores = [record["round"] for record in scored], [record["score"] for record in scored]
    last = [score for round, score in zip(rounds, scores, strict=True) if round > 0][-LAST_EVALUATIONS:]  # trained ones
    summary = {
        "finished": True,
        "rounds": history[-1]["round"],
        "score_last": float(np.mean(last)) if last else None,
        "evaluations_in_score_last": len(last),
        "last": last_results(history),
        "rounds_to": {str(target): rounds_to(rounds, scores, target) for target in TARGETS} if scores else {},
        "bytes_up": sum(record["bytes_up"] for record in history),
        "bytes_down": sum(record["bytes_down"] for record in history),
        "seconds": sum(record["seconds"] for record in history),
        "rounds_with_flags": sum(bool(record.get("flags")) for record in history),
        "rounds_with_failures": sum(bool(record.get("failures")) for record in history),
        "data": {
            "name": experiment.dataset.name,
            "rows": len(experiment.dataset),
            "hash": experiment.data_hash,
            "notes": list(experiment.dataset.notes),
        },
        "environments": [asdict(environment) for environment in experiment.environments],
        "libraries": {name: version(name) for name in LIBRARIES},
        "commit": commit(),
    }
    write_json(folder.path / "summary.json", summary)
    return summary


def commit() -> str | None:
    """The code's git commit, marked where files differ from it; None outside a checkout."""
    root = Path(__file__).parent.parent

    def git(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)

    try:
        head, status = git("rev-parse", "HEAD"), git("status", "--porcelain", "--untracked-files=no")
    except FileNotFoundError:  # git is not installed
        return None
    if head.returncode != 0:
        return None
    return head.stdout.strip() + ("-modified" if status.stdout.strip() else "")

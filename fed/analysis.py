"""What federation costs and buys: runs side by side, grouped by what differs in their configuration but the seed."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from data.errors import InputError
from fed.config import leaves, read_settings
from fed.scoring import last_results
from metrics.rounds_to import rounds_to

NOT_COMPARED = ("seed", "split_seed", "out", "engine.", "eval.", "pooled", "choices.")
POOLED = "pooled"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito: safe for all


@dataclass(frozen=True, eq=False)
class Run:
    """The scored rounds of one run folder."""

    path: Path
    settings: dict[str, object]
    rounds: np.ndarray
    scores: np.ndarray
    results: dict  # means over the last evaluations

    @classmethod
    def read(cls, path: Path) -> "Run":
        config, records = path / "config.yaml", path / "rounds.jsonl"
        if not config.is_file() or not records.is_file():
            raise InputError(f"'{path}' is not a run folder: it has no config.yaml or no rounds.jsonl.")
        history = [json.loads(line) for line in records.read_text().splitlines()]
        scored = [record for record in history if record["score"] is not None]
        if not scored:
            raise InputError(f"'{path}' has no scored round; was it run without an environment or references?")
        results = last_results(history)
        if results.get("score") is None:
            raise InputError(f"'{path}' has no scored round after training; let it run on with --resume.")
        rounds, scores = (np.array([record[key] for record in scored]) for key in ("round", "score"))
        return cls(path, leaves(read_settings(config)), rounds, scores, results)

    def choice(self, group: str) -> object:
        """What was chosen in a group of configurations; the oracle's split does not matter."""
        if group in ("fed", "split") and self.settings["pooled"]:
            return POOLED
        return self.settings.get(f"choices.{group}")

    @property
    def method(self) -> str:
        choices = "centralised" if self.settings["pooled"] else self.settings["choices.fed"]
        return f"{self.settings['choices.algo']} {choices}"


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """The runs at these folders; a folder that holds run folders, as a sweep's does, stands for them."""
    found = []
    for path in paths:
        if not path.is_dir():
            raise InputError(f"There is no folder '{path}'; name run folders.")
        inside = sorted(entry.parent for entry in path.glob("*/config.yaml"))
        found += [path] if (path / "config.yaml").exists() or not inside else inside
    return [Run.read(path) for path in dict.fromkeys(path.resolve() for path in found)]


def grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by method and by whatever other setting differs between them; seeds of one method share a group."""
    groups = defaultdict(list)
    for run in runs:
        groups[", ".join([run.method, *_distinguishing(run, runs)])].append(run)
    return dict(groups)


def _distinguishing(run: Run, runs: Sequence[Run]) -> list[str]:
    """`key=value` for each setting in which the run differs from another.

    The settings inside a group of configurations are compared only between runs that chose the same one there.
    """
    said = []
    for group in ("data", "split"):
        choices = {other.choice(group) for other in runs} - {POOLED}
        if len(choices) > 1 and run.choice(group) != POOLED:
            said.append(f"{group}={run.choice(group)}")
    for key, value in sorted(run.settings.items()):
        alike = [other for other in runs if other.choice(key.split(".")[0]) == run.choice(key.split(".")[0])]
        if not key.startswith(NOT_COMPARED) and len({str(other.settings.get(key)) for other in alike}) > 1:
            said.append(f"{key}={value}")
    return said


# Columns that a table has where some run knows them: title → where in a run's results, and how it is written.
EXTRA_COLUMNS = {
    "at home": (("own_score",), "{:.1f}"),
    "held out": (("held_out", "score"), "{:.1f}"),
    "laps": (("episode_metrics", "lap_completed"), "{:.0%}"),
    "laps, held out": (("held_out", "episode_metrics", "lap_completed"), "{:.0%}"),
    "lap, s": (("episode_metrics", "lap_time"), "{:.1f}"),
}


def extra_cells(groups: dict[str, list[Run]]) -> dict[str, list[str]]:
    """Title → a cell for each group, the mean over its runs."""
    columns = {}
    for title, (path, form) in EXTRA_COLUMNS.items():
        known = [[v for run in runs if (v := _found(run.results, path)) is not None] for runs in groups.values()]
        if any(known):
            columns[title] = [form.format(np.mean(values)) if values else "–" for values in known]
    return columns


def _found(results: dict, path: tuple[str, ...]) -> float | None:
    for key in path:
        results = results.get(key) if isinstance(results, dict) else None
    return results


def reached(runs: Sequence[Run], target: float) -> list[float]:
    """Rounds to the target of those that reached it; the others are censored, and counted by their absence."""
    found = [rounds_to(run.rounds, run.scores, target) for run in runs]
    return [rounds for rounds in found if rounds is not None]


def draw_curves(groups: dict[str, list[Run]], path: Path) -> None:
    """Score by round: the mean over seeds, and the range from the worst seed to the best."""
    figure = Figure(figsize=(7.5, 4.2 + 0.22 * len(groups)), layout="constrained")
    axes = figure.subplots()
    for colour, (name, runs) in zip(cycle(COLOURS), groups.items(), strict=False):
        rounds = sorted(set.intersection(*({int(r) for r in run.rounds} for run in runs)))
        scores = np.stack([run.scores[np.isin(run.rounds, rounds)] for run in runs])  # [seeds, evaluations]
        axes.fill_between(rounds, scores.min(0), scores.max(0), color=colour, alpha=0.18, linewidth=0)
        axes.plot(rounds, scores.mean(0), color=colour, linewidth=2, label=f"{name} ({len(runs)})")
    axes.set(xlabel="round", ylabel="normalised score", title="mean and range over runs", xlim=(0, None))
    axes.axhline(100, color="grey", linewidth=0.8, linestyle=":")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, loc="outside lower left", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)

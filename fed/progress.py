"""The progress display: a bar with score and time left while rounds go by, a few lines when they are done."""

import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fed.experiment import Experiment

PLAIN_INTERVAL = 10.0  # seconds between lines where there is no terminal to draw a bar in


class RoundProgress:
    """Observes the records of a run; used as a context manager around `federate`."""

    def __init__(self, experiment: Experiment, console: Console):
        self.console, self.rounds = console, experiment.config.rounds
        choices, shards = experiment.config.choices, experiment.shards
        clients = f"{len(shards)} clients" if len(shards) > 1 else "1 client"
        method = "centralised" if experiment.config.pooled else choices.fed
        console.print(
            f"[bold]{choices.algo} · {method}[/] on {experiment.dataset.name}: {clients}, {len(shards.order):,} rows, "
            f"{self.rounds} rounds × {experiment.config.updates_per_round} updates",
            highlight=False,
        )
        if experiment.dataset.env_id is None:
            console.print("[yellow]note:[/] the data names no environment, so nothing is evaluated; set data.env=….")
        self.bar = Progress(
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[result]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task("rounds", total=self.rounds, result="")
        self.result, self.told = "", time.monotonic()

    def __enter__(self) -> "RoundProgress":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def observe(self, record: dict) -> None:
        if record["return_mean"] is not None:
            score = "" if record["score"] is None else f"score {record['score']:.1f}, "
            self.result = f"{score}return {record['return_mean']:.1f}"
        for client, why in record.get("failures", {}).items():
            self.console.print(
                f"[red]round {record['round']}: client {client} was left out: {why}.[/]", highlight=False
            )
        if "evaluation_failed" in record:
            self.console.print(f"[red]round {record['round']}: {record['evaluation_failed']}.[/]", highlight=False)
        flagged = len(record.get("flags", {}))
        diverged = f", {flagged} diverging" if flagged else ""
        self.bar.update(self.task, completed=record["round"], result=self.result + diverged)
        if not self.console.is_terminal and time.monotonic() - self.told > PLAIN_INTERVAL:
            self.told = time.monotonic()
            self.console.print(f"round {record['round']}/{self.rounds}: {self.result}{diverged}", highlight=False)

    def close(self, summary: dict, path: Path) -> None:
        if summary["score_last"] is not None:
            reached = {target: rounds for target, rounds in summary["rounds_to"].items() if rounds is not None}
            best = f"; rounds to {max(reached, key=int)}: {reached[max(reached, key=int)]:.1f}" if reached else ""
            count = summary["evaluations_in_score_last"]
            self.console.print(f"score {summary['score_last']:.1f} (mean of the last {count} evaluations){best}")
        if summary["rounds_with_flags"]:
            rounds = summary["rounds_with_flags"]
            self.console.print(f"[yellow]values passed what any policy can earn in {rounds} rounds: see `flags`[/]")
        megabytes = (summary["bytes_up"] + summary["bytes_down"]) / 1e6
        self.console.print(f"{summary['seconds']:.0f} s, {megabytes:.1f} MB sent; results in [bold]{path}[/]")

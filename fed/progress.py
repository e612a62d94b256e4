"""The progress display: a bar with score and time left while rounds go by, a few lines when they are done."""

import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fed.experiment import Experiment

PLAIN_INTERVAL = 10.0  # seconds between lines where there is no terminal to draw a bar in


def laps_in_words(metrics: dict[str, float | None]) -> list[str]:
    """What a racing environment says of its episodes; nothing for other environments."""
    words = []
    if metrics.get("lap_completed") is not None:
        words.append(f"{metrics['lap_completed']:.0%} complete a lap")
    if metrics.get("lap_time") is not None:
        words.append(f"lap {metrics['lap_time']:.1f} s")
    if metrics.get("crashed") is not None:
        words.append(f"{metrics['crashed']:.0%} crash")
    return words


class RoundProgress:
    """Observes the records of a run; used as a context manager around `federate`."""

    def __init__(self, experiment: Experiment, path: Path, console: Console):
        self.path, self.pooled = path, experiment.config.pooled
        self.console, self.rounds = console, experiment.config.rounds
        choices, shards = experiment.config.choices, experiment.shards
        clients = f"{len(shards)} clients" if len(shards) > 1 else "1 client"
        method = "centralised" if experiment.config.pooled else choices.fed
        data = experiment.dataset.name if choices.data == "file" else choices.data
        self._say(
            f"[bold]{choices.algo} · {method}[/] on {data}: {clients}, {len(shards.order):,} rows, "
            f"{self.rounds} rounds × {experiment.config.updates_per_round} updates, in {path}"
        )
        if not experiment.dataset.environments:
            self._say("[yellow]note:[/] the data names no environment, so nothing is evaluated; set data.env=….")
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
            score = "" if record["score"] is None else f"score {record['score']:.1f}"
            held_out = record.get("held_out", {}).get("score")
            away = "" if held_out is None else f", held-out {held_out:.1f}"
            result = f"return {record['return_mean']:.1f}" if not score else f"{score}{away}"
            self.result = ", ".join([result, *laps_in_words(record.get("episode_metrics", {}))])
        for client, why in record.get("failures", {}).items():
            self._say(f"[red]round {record['round']}: client {client} was left out: {why}.[/]")
        if record.get("failures") and len(record["failures"]) == len(record["participants"]):
            self._say(f"[red]round {record['round']}: nobody answered; the model stays as it was.[/]")
        if "evaluation_failed" in record:
            self._say(f"[red]round {record['round']}: {record['evaluation_failed']}.[/]")
        flagged = len(record.get("flags", {}))
        diverged = f", {flagged} diverging" if flagged else ""
        self.bar.update(self.task, completed=record["round"], result=self.result + diverged)
        if not self.console.is_terminal and time.monotonic() - self.told > PLAIN_INTERVAL:
            self.told = time.monotonic()
            self._say(f"round {record['round']}/{self.rounds}: {self.result}{diverged}")

    def close(self, summary: dict) -> None:
        if summary["score_last"] is not None:
            reached = {int(target): rounds for target, rounds in summary["rounds_to"].items() if rounds is not None}
            best = f"; reached {max(reached)} after {reached[max(reached)]:.1f} rounds" if reached else ""
            count, last = summary["evaluations_in_score_last"], summary["score_last"]
            self._say(f"[bold]score {last:.1f}[/] (mean of the last {count} evaluations){best}")
            self._say_environments(summary)
        if summary["rounds_with_flags"]:
            self._say(f"[yellow]diverging values in {summary['rounds_with_flags']} rounds: `flags` in rounds.jsonl[/]")
        megabytes = (summary["bytes_up"] + summary["bytes_down"]) / 1e6
        sent = "" if self.pooled else f", {megabytes:.1f} MB sent"
        self._say(f"{summary['seconds']:.0f} s{sent}; results in [bold]{self.path}[/]")
        self._say(f"next: python scripts/evaluate.py {self.path} --picture {self.path}/policy.png")

    def _say_environments(self, summary: dict) -> None:
        """What the score is made of: the references of a single environment, or a line for each group of several."""
        environments, last = summary["environments"], summary["last"]
        if len(environments) == 1:
            low, high, label = (environments[0]["references"][key] for key in ("low", "high", "label"))
            self._say(f"0 is a return of {low:.1f}, 100 is {high:.1f}: {label}")
            return
        for held_out, means in ((False, last), (True, last.get("held_out"))):
            names = [environment["name"] for environment in environments if environment["held_out"] == held_out]
            if means and means["score"] is not None:
                words = [f"score {means['score']:.1f}", *laps_in_words(means.get("episode_metrics", {}))]
                kind = f"held out ({', '.join(names)})" if held_out else f"{len(names)} environments of the logs"
                self._say(f"  {kind}: {', '.join(words)}")

    def _say(self, sentence: str) -> None:
        """A line that is not folded, so that it can be copied and searched for."""
        self.console.print(sentence, highlight=False, soft_wrap=True)

"""Benchmarks behind the numbers in docs: python scripts/bench.py steps|widths|load|racing|scale|learners|ratios"""

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from data.bench_load import benchmark_load
from data.command_line import Parser, guarded
from fed.bench_learners import HOW_TO_INSTALL, Result, benchmark_learners
from fed.bench_ratios import SOURCES, TIMES, UPDATES, benchmark_ratios
from fed.bench_scale import PARAMETERS, benchmark_scale
from rl.bench_steps import CASES, benchmark_steps, benchmark_widths
from rl.envs.racing.bench_racing import benchmark_racing

WIDTHS = (1, 2, 4, 8, 16, 32)


def steps() -> None:
    """Client updates a second of the stacked cohort against plain modules."""
    console = Console()
    for case in CASES:
        rates = benchmark_steps(case)
        kinds = ("plain", "stacked", "matmul")
        best = {kind: max(rate for name, rate in rates.items() if name.startswith(kind)) for kind in kinds}
        title = f"SAC, {case.hidden}×{case.hidden}, {case.clients} clients, batch {case.batch}"
        table = Table("variant", "client updates/s", "ms each", "GFLOP/s", title=title, title_justify="left")
        for name, rate in rates.items():
            table.add_row(name, f"{rate:,.0f}", f"{1e3 / rate:.2f}", f"{rate * case.flops() / 1e9:.0f}")
        console.print(table)
        ratio, share = best["stacked"] / best["plain"], best["stacked"] / best["matmul"]
        console.print(f"stacked is {ratio:.2f} times plain, and {share:.0%} of the matmul limit\n", highlight=False)


def widths() -> None:
    """How wide a cohort should be."""
    table = Table(
        "clients stacked", *(f"{case.hidden}×{case.hidden}, ms each" for case in CASES), title="SAC, one thread"
    )
    columns = [benchmark_widths(case, WIDTHS) for case in CASES]
    for width in WIDTHS:
        table.add_row(str(width), *(f"{1e3 / rates[width]:.2f}" for rates in columns))
    Console().print(table)


def load() -> None:
    """Loading and validating a 1M-row file against h5py's read of the same arrays."""
    for timing in benchmark_load():
        print(timing)


def racing() -> None:
    """Control steps a second of the racing simulator, through each interface."""
    for row in benchmark_racing():
        print(row)


def scale() -> None:
    """The server's memory and time from ten to ten thousand clients."""
    title = f"one round's aggregation, models of {PARAMETERS:,} parameters"
    table = Table("rule", "clients", "peak, MB", "µs a client", title=title, title_justify="left")
    for row in benchmark_scale():
        table.add_row(row.rule, f"{row.clients:,}", f"{row.megabytes:.0f}", f"{row.microseconds:.0f}")
    Console().print(table)


def learners(data: Path, d3rlpy: str | None) -> None:
    """Scores and speeds of our learners and d3rlpy's on the same rows."""
    results = list(benchmark_learners(data, d3rlpy))
    table = Table("set", "algorithm", "ours", "d3rlpy", title="score: mean (min–max) over seeds", title_justify="left")
    for result in results:
        table.add_row(result.set, result.algorithm, _spread(result.ours), _spread(result.theirs))
    Console().print(table)
    title = "updates/s of each client, one thread (times d3rlpy)"
    table = Table("set", "algorithm", "ours alone", "ours stacked", "d3rlpy", title=title, title_justify="left")
    for result in results:
        table.add_row(result.set, result.algorithm, *(_rate(result, kind) for kind in ("alone", "stacked", "d3rlpy")))
    Console().print(table)
    if d3rlpy is None:
        Console().print(f"Measured without d3rlpy; {HOW_TO_INSTALL}", highlight=False)


def ratios(data: Path) -> None:
    """Where OptiDICE's weight goes, for several forms of its dual."""
    parts = [f"{first}–{last}" for first, last in pairwise((*TIMES[:-1], "end"))]
    title = (
        f"OptiDICE's ratios by step of the episode ({', '.join(parts)}), the dual alone, {UPDATES:,} updates, one seed"
    )
    table = Table("task", "dual", "mean w", "ESS/N", "on expert", "expert", "medium", "corr. return", title=title)
    for row in benchmark_ratios(data):
        times = [" ".join(f"{value:.2f}" for value in row.by_time[source]) for source in SOURCES]
        numbers = (f"{row.mean:.2f}", f"{row.ess_fraction:.2f}", f"{row.expert_share:.2f}")
        table.add_row(row.task, row.variant, *numbers, *times, f"{row.return_correlation:.2f}")
    Console(width=150).print(table)


def _spread(scores: np.ndarray | None) -> str:
    return "–" if scores is None else f"{scores.mean():.1f} ({scores.min():.1f}–{scores.max():.1f})"


def _rate(result: Result, kind: str) -> str:
    rate, yardstick = result.speeds.get(kind), result.speeds.get("d3rlpy")
    if rate is None:
        return "–"
    return f"{rate:.0f}" + (f" ({rate / yardstick:.1f})" if yardstick and kind != "d3rlpy" else "")


def arguments() -> argparse.Namespace:
    parser = Parser(description=__doc__)
    parser.add_argument("what", choices=[*BENCHMARKS, "learners", "ratios"])
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/data/mujoco"), help="learners, ratios: folder of the logs"
    )
    parser.add_argument("--d3rlpy", metavar="PYTHON", help="learners: the interpreter of d3rlpy's own environment")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    if given.what == "learners":
        learners(given.data, given.d3rlpy)
    elif given.what == "ratios":
        ratios(given.data)
    else:
        BENCHMARKS[given.what]()


BENCHMARKS = {"steps": steps, "widths": widths, "load": load, "racing": racing, "scale": scale}

if __name__ == "__main__":
    guarded(main)

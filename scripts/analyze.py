"""Compare runs: a table and learning curves.

python scripts/analyze.py outputs/fed_* outputs/central_* --target 90 --out curves.png
"""

import argparse
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from data.command_line import Parser, guarded
from fed.analysis import draw_curves, extra_cells, grouped, reached, read_runs
from metrics.statistics import interquartile_mean, stratified_interval


def main() -> None:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    parser.add_argument("--target", type=float, default=90.0, help="score for rounds-to-target (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE.png", help="where to save the learning curves")
    options = parser.parse_args()
    groups = grouped(read_runs(options.runs))
    extra = extra_cells(groups)
    names = ("runs", "score", f"rounds to {options.target:g}", *extra)
    columns = (Column(name.replace(" ", "\n"), justify="right") for name in names)  # narrow enough for 80 letters
    table = Table(Column("method", overflow="fold", min_width=16), *columns, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, (name, runs) in enumerate(groups.items()):
        scores, rounds = [run.results["score"] for run in runs], reached(runs, options.target)
        spread = " ({:.1f}–{:.1f})".format(*stratified_interval(scores)) * (len(runs) > 1)
        median = np.median([*rounds, *[np.inf] * (len(runs) - len(rounds))])  # never is infinitely late
        share = f" ({len(rounds)}/{len(runs)})" * (0 < len(rounds) < len(runs))
        arrival = (f"{median:.1f}" if np.isfinite(median) else "never") + share
        cells = (str(len(runs)), f"{interquartile_mean(scores):.1f}{spread}", arrival)
        table.add_row(name, *cells, *(column[number] for column in extra.values()))
    table.caption = (
        "score: mean of the last five evaluations; interquartile mean of the runs (95 % bootstrap); rounds: median"
    )
    Console().print(table)
    if options.out:
        draw_curves(groups, options.out)
        print(f"curves in {options.out}")


if __name__ == "__main__":
    guarded(main)

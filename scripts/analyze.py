"""Compare runs: a table and learning curves.

python scripts/analyze.py outputs/fed_* outputs/central_* --target 90 --out curves.png
"""

import argparse
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Column, Table

from data.command_line import Parser, guarded
from fed.analysis import draw_curves, grouped, last_score, reached, read_runs


def main() -> None:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    parser.add_argument("--target", type=float, default=90.0, help="score for rounds-to-target (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE.png", help="where to save the learning curves")
    options = parser.parse_args()
    groups = grouped(read_runs(options.runs))
    names = ("runs", "score", "worst … best", f"reached {options.target:g}", "round")
    table = Table(Column("method", overflow="fold"), *(Column(name, no_wrap=True) for name in names))
    for name, runs in groups.items():
        scores, rounds = [last_score(run) for run in runs], reached(runs, options.target)
        cells = [f"{np.mean(scores):.1f}", f"{min(scores):.1f} … {max(scores):.1f}", f"{len(rounds)} of {len(runs)}"]
        median = np.median([*rounds, *[np.inf] * (len(runs) - len(rounds))])  # never is infinitely late
        table.add_row(name, str(len(runs)), *cells, f"{median:.1f}" if np.isfinite(median) else "never")
    table.caption = "score: mean of a run's last five evaluations; round: median of the rounds to the target"
    Console().print(table)
    if options.out:
        draw_curves(groups, options.out)
        print(f"curves in {options.out}")


if __name__ == "__main__":
    guarded(main)

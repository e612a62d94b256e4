"""Benchmarks behind the numbers in docs/speed.md: python scripts/bench.py steps|widths|load|racing"""

import argparse

from rich.console import Console
from rich.table import Table

from data.bench_load import benchmark_load
from data.command_line import guarded
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["steps", "widths", "load", "racing"])
    guarded({"steps": steps, "widths": widths, "load": load, "racing": racing}[parser.parse_args().what])

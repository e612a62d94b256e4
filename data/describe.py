"""A split at a glance: a table in the terminal and a picture for a talk."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from data.clusters import mean_states
from data.dataset import Dataset
from data.errors import InputError
from data.randomness import generator
from data.shard_figure import draw_shards
from data.shards import Shards, state_moments

FORMATS = (".png", ".pdf", ".svg")
SHOWN = 20  # clients that the table lists; of more it lists an even sample


def describe(
    dataset: Dataset,
    shards: Shards,
    out: Path | None = None,
    title: str | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Print the shards as a table, save the picture where `out` says, and return the statistics."""
    title = title or dataset.name
    if out is not None and out.suffix.lower() not in FORMATS:
        raise InputError(f"Cannot save a picture as '{out}'; end its name in one of {', '.join(FORMATS)}.")
    statistics = shards.statistics(dataset)
    chance = shift_by_chance(dataset, shards)
    (console or Console()).print(shard_table(statistics, chance, title))
    if out is not None:
        picture = draw_shards(dataset, shards, title)
        out.parent.mkdir(parents=True, exist_ok=True)
        picture.savefig(out, dpi=150)
    return statistics


def shift_by_chance(dataset: Dataset, shards: Shards, deals: int = 20) -> float:
    """The mean state shift when the same pieces are dealt to the same clients at random.

    Few and correlated rows shift a client's mean without any design; only what exceeds this is the split's doing.
    """
    owned = shards.start_offsets[-1]
    pieces, owner = shards.pieces[:owned], shards.piece_client[:owned]
    _, mean, deviation = state_moments(dataset, shards)
    rows = np.diff(pieces, axis=1) + 1.0  # [U, 1]
    states = rows * (mean_states(dataset, pieces) - mean) / deviation
    rng = generator(0, "shift by chance")
    shifts = []
    for _ in range(deals):
        dealt = rng.permutation(owner)
        total, count = np.zeros((len(shards), states.shape[1])), np.zeros((len(shards), 1))
        np.add.at(total, dealt, states)
        np.add.at(count, dealt, rows)
        shifts.append(np.sqrt(np.square(total / count).mean(axis=1)).mean())
    return float(np.mean(shifts))


def shard_table(statistics: dict[str, Any], chance: float, title: str) -> Table:
    """One line per client, at most SHOWN of them, and one for all clients together."""
    clients = statistics["clients"]
    shown = np.unique(np.linspace(0, len(clients) - 1, min(len(clients), SHOWN)).round().astype(int))
    some = "" if len(shown) == len(clients) else f" ({len(shown)} of them shown)"
    count = f"{len(clients):,} clients" if len(clients) > 1 else "one client"
    table = Table(
        title=f"{title}: {count}{some}",
        caption=_caption(statistics, chance),
        show_footer=True,
    )
    pooled = statistics["pooled"]
    largest = np.abs(pooled["return_quantiles"]).max()
    digits = 0 if largest >= 100 else 1 if largest >= 10 else 3
    shifts = [client["state_shift"] for client in clients]
    footer = [
        "all",
        f"{pooled['rows']:,}",
        f"{pooled['episodes']:,}",
        *_quantiles(pooled, digits),
        f"{np.mean(shifts):.2f}",
    ]
    pieces = "pieces" if statistics["cut"] else "episodes"
    headers = ["client", "rows", pieces, "min", "25 %", "median", "75 %", "max", "shift"]
    for header, total in zip(headers, footer, strict=True):
        table.add_column(header, total, justify="left" if header == "client" else "right")
    for k in shown:
        client = clients[k]
        counts = [f"{client['rows']:,}", f"{client['episodes']:,}"]
        table.add_row(client["name"], *counts, *_quantiles(client, digits), f"{shifts[k]:.2f}")
    return table


def _quantiles(returns: dict[str, Any], digits: int) -> list[str]:
    return [f"{value:,.{digits}f}" for value in returns["return_quantiles"]]


def _caption(statistics: dict[str, Any], chance: float) -> str:
    lines = [
        f"min to max: returns of {'pieces' if statistics['cut'] else 'episodes'}",
        "shift: distance of the client's mean state from everybody's, in standard deviations of a feature "
        f"(root mean square over features), {chance:.2f} if the same episodes are dealt at random",
    ]
    if statistics["public"]["rows"]:
        lines.append(f"{statistics['public']['rows']:,} rows are public")
    if statistics["leftover"]:
        lines.append(f"{statistics['leftover']:,} rows are left over")
    if statistics["cut"]:
        lines.append(f"{statistics['cut']:,} pieces of episodes end in a cut, which counts as a timeout")
    return "; ".join(lines) + "."

"""A split at a glance: a table in the terminal and a picture for a talk."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console
from rich.table import Table

from data.dataset import Dataset
from data.errors import InputError
from data.randomness import generator
from data.shard_figure import draw_shards
from data.shards import PUBLIC, Shards, state_shift

SHOWN = 20  # clients that the table lists; of more it lists an even sample


def describe(
    dataset: Dataset, shards: Shards, out: Path | None = None, console: Console | None = None
) -> dict[str, Any]:
    """Print the shards as a table, save the picture where `out` says, and return the statistics."""
    formats = sorted(FigureCanvasAgg.get_supported_filetypes())
    if out is not None and out.suffix[1:].lower() not in formats:
        raise InputError(f"Cannot save a picture as '{out}'; end its name in one of .{', .'.join(formats)}.")
    statistics = shards.statistics(dataset)
    chance = shift_by_chance(dataset, shards)
    (console or Console()).print(shard_table(statistics, chance))
    if out is not None:
        picture = draw_shards(dataset, shards)
        out.parent.mkdir(parents=True, exist_ok=True)
        picture.savefig(out, dpi=150)
    return statistics


def shift_by_chance(dataset: Dataset, shards: Shards, seed: int = 0) -> float:
    """The mean state shift when the same pieces are dealt to the same clients at random: what shift means."""
    private = shards.piece_client != PUBLIC
    owner = generator(seed, "describe").permutation(shards.piece_client[private])
    dealt = Shards.of_pieces(dataset, shards.pieces[private], owner, shards.names)
    return float(state_shift(dataset, dealt).mean())


def shard_table(statistics: dict[str, Any], chance: float) -> Table:
    """One line per client, at most SHOWN of them, and one for all clients together."""
    clients = statistics["clients"]
    shown = np.unique(np.linspace(0, len(clients) - 1, min(len(clients), SHOWN)).round().astype(int))
    some = "" if len(shown) == len(clients) else f" ({len(shown)} of them shown)"
    count = f"{len(clients):,} clients" if len(clients) > 1 else "one client"
    table = Table(
        title=f"{statistics['dataset']}: {count}{some}",
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
    headers = ["client", "rows", "episodes", "return min", "25 %", "median", "75 %", "max", "shift"]
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
        "shift: distance of the client's mean state from everybody's, in standard deviations of a feature "
        f"(root mean square over features); the same episodes dealt at random: {chance:.2f}"
    ]
    if statistics["public"]["rows"]:
        lines.append(f"{statistics['public']['rows']:,} rows are public")
    if statistics["leftover"]:
        lines.append(f"{statistics['leftover']:,} rows are left over")
    if statistics["cut"]:
        lines.append(f"{statistics['cut']:,} pieces of episodes end in a cut, which counts as a timeout")
    return "; ".join(lines) + "."

"""The picture of a split: returns, sizes, states and the distance between clients.

Every client has one colour and one row, client 0 on top. Few clients are drawn one by one, many in groups of
neighbours: a thousand rows are no picture.
"""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator
from scipy.spatial.distance import cdist

from data.clusters import mean_states
from data.dataset import Dataset
from data.randomness import generator
from data.shards import Shards, state_moments

FEW = 20  # clients up to which each is drawn and named on its own
LEGIBLE = 12  # clients up to which a number fits in each cell of the map of distances
GROUPS = 40  # rows in which more clients are drawn
BINS = 60  # of the returns, for many clients
DOTS = 20_000  # at most so many pieces in the picture of the states
SAME_SCALE = 0.5  # the map of distances spans at least so many standard deviations: an iid split looks pale


def draw_shards(dataset: Dataset, shards: Shards, title: str) -> Figure:
    """A wide figure with four panels, readable from one client to a thousand."""
    figure = Figure(figsize=(17, 5.4), layout="constrained")
    ratios = {"width_ratios": [1.2, 0.45, 1.3, 1.4]}
    returns, sizes, states, distances = figure.subplots(1, 4, gridspec_kw=ratios)
    sizes.sharey(returns)
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.93, len(shards)))  # pure yellow fades on white
    means, _, deviation = state_moments(dataset, shards)
    if len(shards) <= FEW:
        _draw_returns(returns, dataset, shards, colours)
        _draw_sizes(sizes, shards, colours)
    else:
        _draw_grouped_returns(returns, dataset, shards)
        _draw_grouped_sizes(sizes, shards)
    _draw_states(states, dataset, shards, means, deviation, colours)
    _draw_distances(distances, means / deviation)
    returns.set_ylim(len(shards) - 0.5, -0.5)
    for panel in (returns, sizes, states):
        panel.spines[["top", "right"]].set_visible(False)
    clients = f"{len(shards):,} clients" if len(shards) > 1 else "one client"
    figure.suptitle(f"{title}: {len(shards.order):,} rows, {clients}", fontsize=15)
    return figure


def _groups(clients: int) -> np.ndarray:
    """[G+1] the first client of each group of neighbours; groups are single clients while they are few."""
    return np.linspace(0, clients, min(clients, GROUPS) + 1).round().astype(int)


def _owned_returns(dataset: Dataset, shards: Shards) -> tuple[np.ndarray, np.ndarray]:
    owned = shards.start_offsets[-1]
    return shards.returns(dataset)[:owned], shards.piece_client[:owned]


def _draw_returns(panel: Axes, dataset: Dataset, shards: Shards, colours: np.ndarray) -> None:
    returns, owner = _owned_returns(dataset, shards)
    jitter = generator(0, "picture of returns").uniform(-0.3, 0.3, len(owner))
    panel.grid(axis="x", color="0.9")
    panel.set_axisbelow(True)
    panel.scatter(returns, owner + jitter, s=10, color=colours[owner], alpha=0.6, linewidths=0)
    for k, part in enumerate(np.split(returns, shards.start_offsets[1:-1])):
        lower, median, upper = np.quantile(part, (0.25, 0.5, 0.75))
        panel.plot([lower, upper], [k, k], color="black", linewidth=1.6)
        panel.plot(median, k, "o", markersize=5.5, color="white", markeredgecolor="black", markeredgewidth=1.3)
    numbered = [name if name == f"client {k}" else f"{k}: {name}" for k, name in enumerate(shards.names)]
    panel.set_yticks(range(len(shards)), numbered)  # the other panels know a client by its number
    kind = "pieces" if len(shards.cut) else "episodes"
    panel.set(title=f"returns of {kind}", xlabel="return (line: quartiles, ring: median)")


def _draw_grouped_returns(panel: Axes, dataset: Dataset, shards: Shards) -> None:
    """Every row of the image is the histogram of one group's returns, as a fraction of the group."""
    returns, owner = _owned_returns(dataset, shards)
    groups = _groups(len(shards))
    edges = np.linspace(returns.min(), returns.max() + 1e-6, BINS + 1)
    count, *_ = np.histogram2d(owner, returns, bins=(groups, edges))
    share = count / np.maximum(count.sum(axis=1, keepdims=True), 1)
    panel.pcolormesh(edges, groups - 0.5, share, cmap="Greys", vmin=0, vmax=np.quantile(share[share > 0], 0.95))
    kind = "pieces" if len(shards.cut) else "episodes"
    panel.set(title=f"returns of {kind}", xlabel="return (dark: frequent)", ylabel="client")
    panel.yaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_sizes(panel: Axes, shards: Shards, colours: np.ndarray) -> None:
    panel.barh(np.arange(len(shards)), shards.sizes, height=0.7, color=colours)
    panel.set(title="rows")
    panel.tick_params(axis="y", labelleft=False)
    panel.xaxis.set_major_locator(MaxNLocator(2, integer=True))


def _draw_grouped_sizes(panel: Axes, shards: Shards) -> None:
    groups = _groups(len(shards))
    first, middle = groups[:-1], (groups[:-1] + groups[1:] - 1) / 2
    mean = np.add.reduceat(shards.sizes, first) / np.diff(groups)
    low, high = np.minimum.reduceat(shards.sizes, first), np.maximum.reduceat(shards.sizes, first)
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.93, len(middle)))
    panel.barh(middle, mean, height=0.8 * np.diff(groups), color=colours)
    panel.hlines(middle, low, high, color="black", linewidth=0.8)
    panel.set(title="rows of a client", xlabel="mean (line: range)", xlim=(0, None))
    panel.tick_params(axis="y", labelleft=False)
    panel.xaxis.set_major_locator(MaxNLocator(2, integer=True))


def _draw_states(
    panel: Axes, dataset: Dataset, shards: Shards, means: np.ndarray, deviation: np.ndarray, colours: np.ndarray
) -> None:
    """Mean states of pieces (dots) and of clients (discs), in the plane in which the pieces differ most."""
    owned = shards.start_offsets[-1]
    chosen = generator(0, "picture of states").permutation(owned)[:DOTS]
    pieces, owner = shards.pieces[chosen], shards.piece_client[chosen]
    states = mean_states(dataset, pieces) / deviation
    weight = (pieces[:, 1] - pieces[:, 0] + 1.0)[:, None]
    centre = (states * weight).sum(axis=0) / weight.sum()
    _, spread, axes = np.linalg.svd((states - centre) * np.sqrt(weight), full_matrices=False)
    axes = np.pad(axes[:2], ((0, 2 - len(axes[:2])), (0, 0)))  # a single feature or piece has one component
    axes *= np.where(axes.sum(axis=1, keepdims=True) < 0, -1, 1)  # the sign is arbitrary: keep it the same
    explained = 100 * np.square(np.pad(spread, (0, 2))[:2]) / max(np.square(spread).sum(), 1e-12)

    few = len(shards) <= FEW
    dots, discs = (states - centre) @ axes.T, (means / deviation - centre) @ axes.T
    area = np.clip(60 * np.sqrt(weight[:, 0] / weight.max()), 6, 40) * (1 if few else 0.6)
    panel.scatter(*dots.T, s=area, color=colours[owner], alpha=0.6, linewidths=0)
    for k in range(len(shards) if few else 0):
        dark = colours[k, :3] @ [0.3, 0.6, 0.1] < 0.55
        panel.scatter(*discs[k], s=190, color=colours[k], edgecolors="black", linewidths=1.2, zorder=3 + k)
        style = {"color": "white" if dark else "black", "fontsize": 9, "zorder": 3 + k}
        panel.text(*discs[k], str(k), ha="center", va="center", **style)
    kind = "piece" if len(shards.cut) else "episode"
    panel.set_title(f"mean state of each {kind}" + (" (disc: of each client)" if few else ", coloured by client"))
    panel.set_xlabel(f"first principal component ({explained[0]:.0f} % of the variance)")
    panel.set_ylabel(f"second ({explained[1]:.0f} %)")


def _draw_distances(panel: Axes, means: np.ndarray) -> None:
    """Root mean square over features of the difference between clients' mean states [K, S]."""
    clients, features = means.shape
    distance = cdist(means, means) / np.sqrt(features)
    groups = _groups(clients)
    members = np.diff(groups)
    total = np.add.reduceat(np.add.reduceat(distance, groups[:-1], axis=0), groups[:-1], axis=1)
    pairs = np.outer(members, members) - np.diag(members)  # a client is no pair with itself
    mean = total / np.maximum(pairs, 1)
    top = max(SAME_SCALE, mean.max())
    image = panel.pcolormesh(groups - 0.5, groups - 0.5, mean, cmap="Oranges", vmin=0, vmax=top)
    panel.figure.colorbar(image, ax=panel, label="standard deviations", shrink=0.8)
    title = "distance between mean states" + ("" if members.max() == 1 else "\n(mean over groups of clients)")
    panel.set(title=title, xlabel="client", ylabel="client", aspect="equal")
    panel.invert_yaxis()
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(FixedLocator(range(clients)) if clients <= FEW else MaxNLocator(10))
    for i, j in np.ndindex(mean.shape) if clients <= LEGIBLE else ():
        colour = "white" if mean[i, j] > 0.6 * top else "black"
        panel.text(j, i, f"{mean[i, j]:.1f}", ha="center", va="center", fontsize=9, color=colour)

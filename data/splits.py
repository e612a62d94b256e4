"""Who gets which part of the log: one rule per function, made from `configs/split/<rule>.yaml`.

Every rule is called `split(dataset, seed=...) -> Shards` and takes, besides its own options, the `Options`
that all splits share. docs/splits.md shows each by example and how to add one.
"""

import numpy as np

from data.clusters import fill_empty, kmeans, mean_states, nearest_centre, standardised
from data.dataset import Dataset
from data.errors import InputError, nearest
from data.shards import Shards
from data.units import Pool, Units, deal, draw_pool, is_number, nearest_owner, require_count

FIT_ROWS = 10_000  # rows that `support` clusters
VOTES = 100_000  # rows that vote on their unit's region, spread evenly over and inside the units


def iid(dataset: Dataset, *, seed: int, clients: int = 10, **options) -> Shards:
    """Units at random: every client sees the same distribution."""
    pool = draw_pool(dataset, seed, clients, **options)
    return pool.assign(deal(pool.rng.permutation(len(pool.units)), pool.units.rows, pool.shares))


def quantile(dataset: Dataset, *, seed: int, clients: int = 10, **options) -> Shards:
    """By episode return: client 0 has the lowest, the last client the highest.

    A segment counts with the return of its whole episode. Ties are broken at random, an episode at a time.
    """
    pool = draw_pool(dataset, seed, clients, **options)
    tie = pool.rng.permutation(len(dataset.returns))
    episode = pool.units.episode
    ranking = np.lexsort((pool.units.first, tie[episode], dataset.returns[episode]))
    return pool.assign(deal(ranking, pool.units.rows, pool.shares))


def cluster(dataset: Dataset, *, seed: int, clients: int = 10, **options) -> Shards:
    """By mean state: clients are k-means clusters of the units' standardised mean states.

    Client 0 has the lowest mean return.
    """
    pool = draw_pool(dataset, seed, clients, **options)
    _, label = kmeans(standardised(mean_states(dataset, pool.units.pieces)), clients, pool.rng)
    owner = _by_return(label, pool)
    return pool.assign(owner, limits=pool.limits(owner))


def support(dataset: Dataset, *, seed: int, clients: int = 10, **options) -> Shards:
    """By the region of state-action space that a unit visits most, relative to how much the others visit it.

    k-means makes one region per client out of rows. Periodic motion passes through every region alike, so a
    region that no unit prefers gets the unit that visits it most. Client 0 has the lowest mean return.
    """
    pool = draw_pool(dataset, seed, clients, **options)
    visits = _region_visits(pool)  # [U, K]
    relative = visits / np.maximum(visits.mean(axis=0), 1e-12)
    label = fill_empty(np.argmax(relative, axis=1), relative)
    owner = _by_return(label, pool)
    return pool.assign(owner, limits=pool.limits(owner))


def dirichlet(
    dataset: Dataset,
    *,
    seed: int,
    clients: int = 10,
    concentration: float = 0.5,
    by: str = "cluster",
    clusters: int = 10,
    **options,
) -> Shards:
    """Each class of units is shared out in proportions drawn from a Dirichlet distribution over clients.

    Classes are k-means clusters of mean states, or the values of a column. A large concentration gives every
    client the same mixture of classes, a small one gives each class to few clients. Proportions are of
    rows and their mean is `shares`: expected sizes follow `size_skew`.
    """
    if not (is_number(concentration) and concentration > 0):
        raise InputError(f"concentration={concentration} must be a number above 0.")
    require_count("clusters", clusters)
    pool = draw_pool(dataset, seed, clients, **options)
    if by == "cluster":
        _, label = kmeans(standardised(mean_states(dataset, pool.units.pieces)), clusters, pool.rng)
    else:
        _, label = np.unique(_unit_values(dataset, pool.units, by, also=("cluster",)), return_inverse=True)
    remedy = "use fewer clients, a larger concentration, or unit=segment for more and smaller units"
    return pool.assign(_dirichlet_owners(label, concentration, pool), remedy=remedy)


def source(
    dataset: Dataset,
    *,
    seed: int,
    clients: int | None = None,
    column: str = "source",
    clients_per_source: int = 1,
    **options,
) -> Shards:
    """By a column of the log (who drove, which track): each of its values is a client, or several clients."""
    require_count("clients_per_source", clients_per_source)
    values = np.unique(_column(dataset, column))
    count = len(values) * clients_per_source
    if clients not in (None, count):
        raise InputError(
            f"Column '{column}' of '{dataset.name}' has {len(values)} values: {count} clients, not {clients}, "
            f"with clients_per_source={clients_per_source}; set clients=null, or another clients_per_source."
        )
    pool = draw_pool(dataset, seed, count, **options)
    label = np.searchsorted(values, _unit_values(dataset, pool.units, column))
    owner = label * clients_per_source
    equal = np.full(clients_per_source, 1 / clients_per_source)
    for group in np.unique(label):
        members = pool.rng.permutation(np.flatnonzero(label == group))
        owner[members] += nearest_owner(pool.units.rows[members], equal)
    names = _source_names(dataset, column, values, clients_per_source)
    remedy = "set public=0, a smaller clients_per_source, or unit=segment for more and smaller units"
    return pool.assign(owner, names=names, limits=pool.limits(owner), remedy=remedy)


def _dirichlet_owners(label: np.ndarray, concentration: float, pool: Pool) -> np.ndarray:
    """[U] owners when every class of units is shared out in proportions of its own."""
    owner = np.empty(len(label), np.int64)
    owed = np.zeros(pool.clients)  # rows that rounding to whole units has kept from each client so far
    for group in range(label.max() + 1):
        members = pool.rng.permutation(np.flatnonzero(label == group))
        rows = pool.units.rows[members]
        due = pool.rng.dirichlet(concentration * pool.clients * pool.shares) * rows.sum()
        # A class with fewer units than clients reaches only some of them; who missed out is served first in
        # the next class, in a new order, yet gets no more of it than four times what the draw gave.
        wanted = np.clip(due + owed, 1e-3 * due, 4 * due)
        turn = pool.rng.permutation(pool.clients)
        owner[members] = turn[nearest_owner(rows, (wanted / wanted.sum())[turn])]
        owed += due - np.bincount(owner[members], rows, minlength=pool.clients)
    return owner


def _by_return(label: np.ndarray, pool: Pool) -> np.ndarray:
    """Labels renumbered so that groups stand in order of their mean episode return, as in `quantile`."""
    returns = pool.dataset.returns[pool.units.episode]
    mean = np.bincount(label, returns) / np.bincount(label)
    rank = np.empty(len(mean), np.int64)
    rank[np.argsort(mean, kind="stable")] = np.arange(len(mean))
    return rank[label]


def _region_visits(pool: Pool) -> np.ndarray:
    """[U, K] the fraction of each unit's rows that lie in each region of state-action space."""
    dataset, units = pool.dataset, pool.units
    votes = np.minimum(units.last - units.first + 1, max(1, VOTES // len(units)))  # [U] of each unit
    voter = np.repeat(np.arange(len(units)), votes)
    inside = np.arange(len(voter)) - np.repeat(np.cumsum(votes) - votes, votes)
    length = (units.last - units.first + 1)[voter]
    rows = units.first[voter] + inside * length // votes[voter]
    points = standardised(np.concatenate([dataset.observations[rows], dataset.actions[rows]], axis=1))
    fitted = pool.rng.permutation(len(points))[: max(FIT_ROWS, 10 * pool.clients)]
    centres, _ = kmeans(points[fitted], pool.clients, pool.rng)
    region = nearest_centre(points, centres.astype(points.dtype))
    visits = np.bincount(voter * pool.clients + region, minlength=len(units) * pool.clients)
    return visits.reshape(len(units), pool.clients) / votes[:, None]


def _column(dataset: Dataset, column: str, also: tuple[str, ...] = ()) -> np.ndarray:
    valid = [*dataset.columns, *also]
    if column not in dataset.columns:
        advice = nearest(column, valid) if valid else "load several logs by name to get a column 'source'."
        raise InputError(f"Dataset '{dataset.name}' has no column '{column}' to split by; {advice}")
    return dataset.columns[column]


def _unit_values(dataset: Dataset, units: Units, column: str, also: tuple[str, ...] = ()) -> np.ndarray:
    """[U] the value of a column in each unit, which must not change inside one."""
    values = _column(dataset, column, also)
    changes = np.concatenate([[0], np.cumsum(values[1:] != values[:-1])])
    mixed = np.flatnonzero(changes[units.first] != changes[units.last])
    if len(mixed):
        raise InputError(
            f"Column '{column}' of '{dataset.name}' changes inside {len(mixed):,} of {len(units):,} units, "
            f"first in the one at row {units.first[mixed[0]]:,}; split by a column that is constant in a unit."
        )
    return values[units.first]


def _source_names(dataset: Dataset, column: str, values: np.ndarray, parts: int) -> list[str]:
    labels = dataset.labels.get(column, [])
    names = [labels[v] if 0 <= v < len(labels) else f"{column} {v}" for v in values]
    return names if parts == 1 else [f"{name} {part}" for name in names for part in range(parts)]

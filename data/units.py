"""What a split deals out, and the options that every split shares.

A split rule draws a `Pool`, decides who owns each unit of it, and hands the answer to `Pool.assign`.
"""

from dataclasses import dataclass, fields

import numpy as np

from data.dataset import Dataset
from data.errors import InputError, nearest
from data.randomness import generator
from data.shards import PUBLIC, Shards


@dataclass(frozen=True)
class Options:
    """The options of every split; `configs/split/*.yaml` lists them with their defaults."""

    unit: str = "episode"  # or "segment"
    segment_length: int = 100  # rows of a segment; an episode's last one may be shorter
    size_skew: float | None = None  # exponent of a power law over clients' sizes: 0 equal, 1 Zipf
    rows_per_client: int | None = None  # keep at most so many rows of each client
    public: float = 0.0  # fraction of the units set aside for everybody


@dataclass(frozen=True, eq=False)
class Units:
    """Pieces that a split never divides between clients: whole episodes, or segments of them."""

    first: np.ndarray  # [U] first row
    last: np.ndarray  # [U] last row, inclusive
    episode: np.ndarray  # [U] the episode it came from
    rows: np.ndarray  # [U] trainable rows, at least one

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, chosen: np.ndarray) -> "Units":
        return Units(self.first[chosen], self.last[chosen], self.episode[chosen], self.rows[chosen])

    @property
    def pieces(self) -> np.ndarray:
        return np.stack([self.first, self.last], axis=1)


def cut_units(dataset: Dataset, unit: str, segment_length: int) -> Units:
    """Episodes, or segments of `segment_length` rows; a unit without a trainable row is no unit."""
    lengths = dataset.ends - dataset.starts + 1
    step = segment_length if unit == "segment" else lengths.max()
    count = -(-lengths // step)
    episode = np.repeat(np.arange(len(lengths)), count)
    inside = np.arange(len(episode)) - np.repeat(np.cumsum(count) - count, count)
    first = dataset.starts[episode] + inside * step
    last = np.minimum(first + step - 1, dataset.ends[episode])
    before = np.concatenate([[0], np.cumsum(dataset.trainable)])
    units = Units(first, last, episode, rows=before[last + 1] - before[first])
    return units[units.rows > 0]


@dataclass(frozen=True, eq=False)
class Pool:
    """The units a split deals out to `clients` clients, and the randomness it may use."""

    dataset: Dataset
    units: Units
    public: Units
    clients: int
    shares: np.ndarray  # [K] the fraction of all rows that each client should get, by `size_skew`
    rng: np.random.Generator
    options: Options

    def limits(self, owner: np.ndarray) -> np.ndarray:
        """[K] rows to keep so that groups of given sizes follow `size_skew`; no limit where that is null."""
        rows = np.bincount(owner, weights=self.units.rows, minlength=self.clients)
        if self.options.size_skew is None:
            return rows
        return np.maximum(1, np.floor((rows / self.shares).min() * self.shares))

    def assign(
        self,
        owner: np.ndarray,
        names: list[str] | None = None,
        limits: np.ndarray | None = None,
        remedy: str = "use fewer clients, or unit=segment for more and smaller units",
    ) -> Shards:
        """Shards in which `owner[u]` owns unit u; `remedy` says what to do about a client that is empty."""
        names = names or [f"client {k}" for k in range(self.clients)]
        empty = np.flatnonzero(np.bincount(owner, minlength=self.clients) == 0)
        if len(empty):
            others = f" and {len(empty) - 1:,} more" if len(empty) > 1 else ""
            raise InputError(
                f"This split of '{self.dataset.name}' over {self.clients:,} clients leaves "
                f"'{names[empty[0]]}'{others} without data; {remedy}."
            )
        pieces, owner = self._keep(owner, limits)
        return Shards.of_pieces(
            self.dataset,
            np.concatenate([pieces, self.public.pieces]),
            np.concatenate([owner, np.full(len(self.public), PUBLIC)]),
            names,
        )

    def _keep(self, owner: np.ndarray, limits: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Pieces within each client's limit, taken in random order; the one that overshoots is cut."""
        cap = np.full(self.clients, self.options.rows_per_client or np.inf)
        cap = cap if limits is None else np.minimum(cap, limits)
        taken = self.rng.permutation(len(owner))
        taken = taken[np.argsort(owner[taken], kind="stable")]
        units, owner = self.units[taken], owner[taken]
        filled = np.cumsum(units.rows) - units.rows  # rows taken before each unit, by all clients so far ...
        filled = filled - filled[np.searchsorted(owner, owner)]  # ... and by its own client
        room = cap[owner] - filled
        units, owner, room = units[room > 0], owner[room > 0], room[room > 0]
        kept = np.minimum(units.rows, room).astype(np.int64)
        trainable = np.flatnonzero(self.dataset.trainable)
        shortened = trainable[np.searchsorted(trainable, units.first) + kept - 1]
        last = np.where(kept < units.rows, shortened, units.last)
        return np.stack([units.first, last], axis=1), owner


def draw_pool(dataset: Dataset, seed: int, clients: int, **options) -> Pool:
    """Cut the dataset into units, set the public ones aside, and fix each client's share."""
    chosen = _checked(clients, options)
    if seed < 0:
        raise InputError(f"seed={seed} must be a whole number of at least 0.")
    rng = generator(seed, "split")
    units = cut_units(dataset, chosen.unit, chosen.segment_length)
    shuffled = rng.permutation(len(units))
    aside = max(1, round(chosen.public * len(units))) if chosen.public else 0
    public, private = np.sort(shuffled[:aside]), np.sort(shuffled[aside:])
    if clients > len(private):
        kind = f"{chosen.unit}s" + (f" of {chosen.segment_length:,} rows" if chosen.unit == "segment" else "")
        remedy = "a smaller segment_length" if chosen.unit == "segment" else "unit=segment"
        raise InputError(
            f"Dataset '{dataset.name}' has {len(private):,} {kind} to deal out, too few for {clients:,} "
            f"clients; use fewer clients or {remedy}."
        )
    weights = np.arange(1, clients + 1) ** -float(chosen.size_skew or 0.0)
    shares = rng.permutation(weights / weights.sum())  # which client is large must not follow from its rank
    return Pool(dataset, units[private], units[public], clients, shares, rng, chosen)


def deal(ranking: np.ndarray, rows: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """[U] owners when units are handed out in the order of `ranking`: first client 0 gets its share of the
    rows, then client 1, ...; as near as whole units allow, and never less than one unit."""
    clients, count = len(shares), len(ranking)
    owner = nearest_owner(rows[ranking], shares)
    k = np.arange(1, clients)
    bounds = np.searchsorted(owner, k)
    bounds = np.maximum.accumulate(np.maximum(bounds - k, 0)) + k
    bounds = np.minimum(bounds, count - clients + k)
    dealt = np.empty(count, np.int64)
    dealt[ranking] = np.repeat(np.arange(clients), np.diff(bounds, prepend=0, append=count))
    return dealt


def nearest_owner(rows: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """[U] owners of units laid end to end, each the client in whose share of the rows its middle lies."""
    middle = np.cumsum(rows) - rows / 2
    goals = np.cumsum(shares)[:-1] * rows.sum()
    return np.searchsorted(goals, middle, side="right")


def require_count(option: str, value: object) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise InputError(f"{option}={value} must be a whole number of at least 1.")


def is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and bool(np.isfinite(value))


def _checked(clients: int, options: dict) -> Options:
    """The options, or the first fault in them as a sentence."""
    valid = [field.name for field in fields(Options)]
    for unknown in set(options) - set(valid):
        raise InputError(f"A split has no option '{unknown}'; {nearest(unknown, ['clients', *valid])}")
    chosen = Options(**options)
    require_count("clients", clients)
    if chosen.unit not in ("episode", "segment"):
        raise InputError(f"unit={chosen.unit} is not one of episode, segment.")
    require_count("segment_length", chosen.segment_length)
    if chosen.rows_per_client is not None:
        require_count("rows_per_client", chosen.rows_per_client)
    if chosen.size_skew is not None and not (is_number(chosen.size_skew) and chosen.size_skew >= 0):
        raise InputError(f"size_skew={chosen.size_skew} must be null or at least 0 (0: equal, 1: Zipf).")
    if not (is_number(chosen.public) and 0 <= chosen.public < 1):
        raise InputError(f"public={chosen.public} must be a fraction of at least 0 and below 1.")
    return chosen

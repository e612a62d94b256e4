"""Who owns which rows of a dataset: the value every split makes and every sampler reads."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from data.dataset import Dataset

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
PUBLIC = -1  # the owner of a piece that was set aside for everybody


@dataclass(frozen=True, eq=False)
class Shards:
    """Who owns which rows: a permutation plus offsets over one dataset; nothing is copied.

    A *piece* is what is left of an episode in one client's hands: the whole of it, or a segment.
    A piece's first trainable row is an initial state. Where a piece ends before its episode does, the log
    ends and the task does not: a timeout (see `cut`).
    """

    order: np.ndarray  # [M] int64 trainable rows, client after client, ascending inside a client
    offsets: np.ndarray  # [K+1] client k owns order[offsets[k]:offsets[k+1]]
    starts: np.ndarray  # [M0] int64 trainable rows that begin a piece, client after client
    start_offsets: np.ndarray  # [K+1]
    names: list[str]  # one per client
    public: np.ndarray  # [P] int64 trainable rows set aside for everybody before the split
    leftover: int  # trainable rows that no client and no public slice owns
    pieces: np.ndarray  # [U, 2] first and last row (inclusive), client after client, then the public ones
    piece_client: np.ndarray  # [U] int64, PUBLIC for public pieces
    cut: np.ndarray  # [C] int64 rows at which a piece ends inside its episode: each counts as a timeout

    def __len__(self) -> int:
        return len(self.names)

    @property
    def sizes(self) -> np.ndarray:
        """[K] trainable rows of each client."""
        return np.diff(self.offsets)

    @property
    def episodes(self) -> np.ndarray:
        """[K] pieces of each client; each begins with an initial state."""
        return np.diff(self.start_offsets)

    def rows(self, client: int) -> np.ndarray:
        return self.order[self.offsets[client] : self.offsets[client + 1]]

    def initial_rows(self, client: int) -> np.ndarray:
        return self.starts[self.start_offsets[client] : self.start_offsets[client + 1]]

    def merged(self) -> "Shards":
        """One client that owns what these own together: the oracle that saw no row more than they did.

        Its rows are in the dataset's order, so the oracle is the same however they had been dealt.
        """
        return replace(
            self,
            order=np.sort(self.order),
            starts=np.sort(self.starts),
            offsets=self.offsets[[0, -1]],
            start_offsets=self.start_offsets[[0, -1]],
            names=["pooled"],
            piece_client=np.minimum(self.piece_client, 0),
        )

    def best(self, dataset: Dataset, share: float) -> "Shards":
        """Of each client's pieces the `share` with the highest returns, at least one; equal returns in log order.

        The rows of the others become leftovers. What is public stays.
        """
        if share == 1:
            return self
        own = self.piece_client != PUBLIC
        ranking = np.lexsort((self.pieces[:, 0], -self.returns(dataset), self.piece_client))  # public ones first
        first = np.count_nonzero(~own) + self.start_offsets[:-1]
        keep = ~own
        for start, count in zip(first, np.maximum(1, np.round(share * self.episodes).astype(int)), strict=True):
            keep[ranking[start : start + count]] = True
        return Shards.of_pieces(dataset, self.pieces[keep], self.piece_client[keep], self.names)

    @classmethod
    def of_pieces(cls, dataset: Dataset, pieces: np.ndarray, piece_client: np.ndarray, names: list[str]) -> "Shards":
        """Shards from pieces [U, 2] and the client (or PUBLIC) that owns each; pieces do not overlap."""
        ends = dataset.terminals | dataset.timeouts
        cut = pieces[~ends[pieces[:, 1]], 1]
        usable = dataset.trainable.copy()
        if dataset.shifted:
            usable[cut] = False  # the next state is in the row that follows, which may be another client's
        before = np.concatenate([[0], np.cumsum(usable)])  # usable rows before each row
        rows = before[pieces[:, 1] + 1] - before[pieces[:, 0]]
        owner = np.where(piece_client == PUBLIC, len(names), piece_client)
        by_client = np.lexsort((pieces[:, 0], owner))
        by_client = by_client[rows[by_client] > 0]
        pieces, rows, owner = pieces[by_client], rows[by_client], owner[by_client]

        trainable = np.flatnonzero(usable)
        # The j-th trainable row of a piece is trainable[before[first] + j]; this lays all pieces end to end.
        inside = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
        order = trainable[np.repeat(before[pieces[:, 0]], rows) + inside]
        starts = trainable[before[pieces[:, 0]]]

        clients = np.arange(len(names) + 1)
        start_offsets = np.searchsorted(owner, clients)
        offsets = np.concatenate([[0], np.cumsum(rows)])[start_offsets]
        owned = offsets[-1]
        return cls(
            order=order[:owned],
            offsets=offsets,
            starts=starts[: start_offsets[-1]],
            start_offsets=start_offsets,
            names=names,
            public=order[owned:],
            leftover=int(dataset.trainable.sum() - len(order)),
            pieces=pieces,
            piece_client=np.where(owner == len(names), PUBLIC, owner),
            cut=np.sort(cut),
        )

    def initial_weights(self) -> np.ndarray:
        """[K] (n0_i/N0)/(N_i/N): how much richer in initial states a client is than all are together.

        Where clients are weighted by their rows, an initial-state term with this factor adds up to that of the
        pooled data, however many episodes each client has.
        """
        return (self.episodes / self.episodes.sum()) / (self.sizes / self.sizes.sum())

    def returns_to_go(self, dataset: Dataset, discount: float) -> np.ndarray:
        """[N] discounted return from each row to the end of its piece; NaN in rows that are in no piece.

        Where a piece ends in a timeout or is cut, what would have come later is not in the log: the number is then
        a lower bound of the return, but only if rewards are never negative.
        """
        to_go = np.full(len(dataset), np.nan)
        first, row = self.pieces[:, 0], self.pieces[:, 1].copy()
        later = np.zeros(len(row))
        while len(row):  # backwards through all pieces at once; those that are done drop out
            later = dataset.rewards[row] + discount * later
            to_go[row] = later
            going = row > first
            first, row, later = first[going], row[going] - 1, later[going]
        return to_go

    def returns(self, dataset: Dataset) -> np.ndarray:
        """[U] undiscounted return of each piece, rows without a next state included."""
        total = np.concatenate([[0.0], np.cumsum(dataset.rewards, dtype=np.float64)])
        return total[self.pieces[:, 1] + 1] - total[self.pieces[:, 0]]

    def statistics(self, dataset: Dataset) -> dict[str, Any]:
        """What a run folder keeps of the split (`shards.json`): sizes, returns and shift of every client."""
        returns = self.returns(dataset)
        owned = returns[: self.start_offsets[-1]]
        public = returns[self.start_offsets[-1] :]
        shift = state_shift(dataset, self)
        clients = []
        for k, name in enumerate(self.names):
            mine = owned[self.start_offsets[k] : self.start_offsets[k + 1]]
            counts = {
                "name": name,
                "rows": int(self.sizes[k]),
                "episodes": len(mine),
                "initial_states": len(mine),
            }
            clients.append(counts | _return_statistics(mine) | {"state_shift": float(shift[k])})
        everyone = {"rows": len(self.order), "episodes": len(owned), **_return_statistics(owned)}
        return {
            "dataset": dataset.name,
            "clients": clients,
            "pooled": everyone,
            "public": {"rows": len(self.public), "episodes": len(public)} | _return_statistics(public),
            "leftover": self.leftover,
            "cut": len(self.cut),
        }


def _return_statistics(returns: np.ndarray) -> dict[str, Any]:
    if not len(returns):
        return {"return_mean": None, "return_quantiles": None}
    return {
        "return_mean": float(returns.mean()),
        "return_quantiles": np.quantile(returns, QUANTILES).tolist(),
    }


def state_moments(dataset: Dataset, shards: Shards) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean state of each client [K, S], and mean [S] and standard deviation [S] over all clients' rows.

    A constant feature gets deviation 1.
    """
    count, total, square = len(shards.order), 0.0, 0.0
    means = np.empty((len(shards), dataset.observations.shape[1]))
    for k in range(len(shards)):  # one client's states in memory at a time
        states = dataset.observations[shards.rows(k)].astype(np.float64)
        means[k] = states.mean(axis=0)
        total = total + states.sum(axis=0)
        square = square + np.square(states).sum(axis=0)
    mean = total / count
    deviation = np.sqrt(np.maximum(square / count - np.square(mean), 0.0))
    constant = deviation <= 1e-6 * np.maximum(1.0, np.abs(mean))
    return means, mean, np.where(constant, 1.0, deviation)


def state_shift(dataset: Dataset, shards: Shards) -> np.ndarray:
    """[K] how far a client's mean state lies from everybody's: root mean square over features, in standard
    deviations. 0 is no shift; at 1 a typical feature's mean is one standard deviation away."""
    means, mean, deviation = state_moments(dataset, shards)
    return np.sqrt(np.square((means - mean) / deviation).mean(axis=1))

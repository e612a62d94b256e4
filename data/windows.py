"""The next n steps of the log from every row: what they earned, and where they end."""

from dataclasses import dataclass

import numpy as np

from data.dataset import Dataset
from data.shards import Shards


@dataclass(frozen=True, eq=False)
class Windows:
    """For each dataset row that somebody trains on; a window is shorter where its piece ends."""

    rewards: np.ndarray  # [N] Σ_{k<m} γ^k r_{t+k}
    ends: np.ndarray  # [N] the window's last row: its next state is the window's, and its terminal too
    steps: np.ndarray  # [N] m, the steps in the window

    @classmethod
    def of(cls, dataset: Dataset, shards: Shards, steps: int, discount: float) -> "Windows":
        usable = np.zeros(len(dataset), bool)
        usable[shards.order] = usable[shards.public] = True
        first, last = shards.pieces.T
        lengths = last - first + 1
        rows = np.arange(lengths.sum()) + np.repeat(first - (np.cumsum(lengths) - lengths), lengths)
        # A piece's last row may have no next state: windows then end before it.
        ends = np.minimum(rows + steps, np.repeat(last - ~usable[last], lengths) + 1)  # exclusive
        inside = np.minimum(ends, np.repeat(last, lengths))
        to_go = shards.returns_to_go(dataset, discount)
        after = np.where(ends > np.repeat(last, lengths), 0.0, to_go[inside])
        count = np.maximum(ends - rows, 1)
        result = cls(np.zeros(len(dataset)), np.arange(len(dataset)), np.ones(len(dataset)))
        result.rewards[rows] = to_go[rows] - discount**count * after
        result.ends[rows], result.steps[rows] = rows + count - 1, count
        return result

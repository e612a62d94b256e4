"""One input space for all clients, from statistics instead of rows.

In round 0 each client sends (n, mean, M2) of its observations and rewards, in float64; the server merges them exactly
(Chan et al. 1979), so the pooled mean and standard deviation are those of the pooled rows, which nobody sent.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np

from data.dataset import Dataset
from data.errors import InputError

REWARD_CHOICES = ("scale", "none")


@dataclass(frozen=True, eq=False)
class Moments:
    """What one client reports in round 0."""

    n: int
    mean: np.ndarray  # [S + 1] of the observations and, last, the reward
    m2: np.ndarray  # [S + 1] sum of squared deviations
    binary: np.ndarray  # [S] bool: the feature takes no values but 0 and 1
    reward_bound: float  # largest |reward|

    @classmethod
    def of(cls, dataset: Dataset, rows: np.ndarray) -> "Moments":
        observations = dataset.observations[rows]
        values = np.column_stack([observations, dataset.rewards[rows]]).astype(np.float64)
        mean = values.mean(0)
        return cls(
            n=len(rows),
            mean=mean,
            m2=np.square(values - mean).sum(0),
            binary=((observations == 0) | (observations == 1)).all(0),
            reward_bound=float(np.abs(values[:, -1]).max()),
        )

    @property
    def nbytes(self) -> int:
        return sum(np.asarray(getattr(self, f.name)).nbytes for f in fields(self))

    def merge(self, other: "Moments") -> "Moments":
        n, shift = self.n + other.n, other.mean - self.mean
        return Moments(
            n=n,
            mean=self.mean + shift * (other.n / n),
            m2=self.m2 + other.m2 + shift**2 * (self.n * other.n / n),
            binary=self.binary & other.binary,
            reward_bound=max(self.reward_bound, other.reward_bound),
        )


@dataclass(frozen=True, eq=False)
class Normaliser:
    """x ↦ (x − mean)/std for observations, and r ↦ scale · r for rewards (a shift would change tasks that end)."""

    mean: np.ndarray  # [S] float32
    std: np.ndarray  # [S] float32
    reward_scale: float
    reward_bound: float  # largest |reward| after scaling
    reward_mean: float = 0.0  # after scaling

    @classmethod
    def pooled(cls, clients: Iterable[Moments], observations: bool, rewards: str) -> "Normaliser":
        if rewards not in REWARD_CHOICES:
            raise InputError(f"normalise.rewards is '{rewards}'; choose one of {', '.join(REWARD_CHOICES)}.")
        clients = iter(clients)
        total = next(clients)
        for moments in clients:
            total = total.merge(moments)
        std = np.sqrt(total.m2 / total.n)
        # Rounding leaves a constant feature with a tiny deviation: dividing by it would blow up noise.
        constant = std <= 1e-6 * np.maximum(1.0, np.abs(total.mean))
        alone = total.binary if observations else np.ones_like(total.binary)
        scale = 1.0 / float(std[-1]) if rewards == "scale" and not constant[-1] else 1.0
        return cls(
            mean=np.where(alone, 0.0, total.mean[:-1]).astype(np.float32),
            std=np.where(alone | constant[:-1], 1.0, std[:-1]).astype(np.float32),
            reward_scale=scale,
            reward_bound=total.reward_bound * scale,
            reward_mean=float(total.mean[-1]) * scale,
        )

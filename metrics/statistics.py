"""Statistics over seeds and tasks (Agarwal et al. 2021, arXiv 2108.13264): pure functions of scores `[runs]` or
`[runs, tasks]`, where a column holds the runs of one task."""

from collections.abc import Callable

import numpy as np
from scipy import stats

Statistic = Callable[[np.ndarray], float]


def interquartile_mean(scores: np.ndarray) -> float:
    """The mean of the middle half of all scores: steadier than the mean, and no single run decides it."""
    return float(stats.trim_mean(np.asarray(scores, dtype=np.float64), 0.25, axis=None))


def stratified_interval(
    scores: np.ndarray,
    statistic: Statistic = interquartile_mean,
    confidence: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> tuple[float, float]:
    """A percentile bootstrap interval: runs are drawn anew within each task; a single run has none (NaN)."""
    scores = _as_matrix(scores)
    if len(scores) < 2:
        return float("nan"), float("nan")
    random, (runs, tasks) = np.random.default_rng(seed), scores.shape
    drawn = random.integers(runs, size=(resamples, runs, tasks))
    values = [statistic(np.take_along_axis(scores, rows, axis=0)) for rows in drawn]
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def probability_of_improvement(a: np.ndarray, b: np.ndarray) -> float:
    """P(a run of a beats a run of b), a tie counted half, averaged over tasks: Mann–Whitney U over its maximum."""
    a, b = _as_matrix(a), _as_matrix(b)
    wins = [stats.mannwhitneyu(a[:, t], b[:, t]).statistic / (len(a) * len(b)) for t in range(a.shape[1])]
    return float(np.mean(wins))


def performance_profile(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """The share of runs, over all tasks, with a score above each threshold."""
    return (np.asarray(scores).reshape(1, -1) > np.asarray(thresholds).reshape(-1, 1)).mean(1)


def _as_matrix(scores: np.ndarray) -> np.ndarray:
    scores = np.asarray(scores, dtype=np.float64)
    return scores.reshape(-1, 1) if scores.ndim == 1 else scores

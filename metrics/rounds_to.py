"""Rounds-to-X: after how many rounds the smoothed score first reaches a target."""

from collections.abc import Sequence

import numpy as np


def smoothed(scores: Sequence[float], window: int) -> np.ndarray:
    """Trailing mean over up to `window` evaluations: it never looks ahead."""
    scores = np.asarray(scores, dtype=np.float64)
    total = np.concatenate([[0.0], np.cumsum(scores)])
    end = np.arange(1, len(scores) + 1)
    start = np.maximum(0, end - window)
    return (total[end] - total[start]) / (end - start)


def rounds_to(rounds: Sequence[int], scores: Sequence[float], target: float, window: int = 3) -> float | None:
    """The round, interpolated between evaluations, at which the smoothed score crosses `target`; None if never.

    None is a censored observation ("not within this run"), to be kept in any statistic over seeds. Round 0, the
    untrained policy, is where the curve begins and enters no mean.
    """
    rounds = np.asarray(rounds, dtype=np.float64)
    untrained = int(np.searchsorted(rounds, 0, side="right"))  # evaluations of round 0: one, or none
    curve = np.concatenate([np.asarray(scores[:untrained], dtype=np.float64), smoothed(scores[untrained:], window)])
    reached = np.flatnonzero(curve >= target)
    if len(reached) == 0:
        return None
    i = reached[0]
    if i == 0:
        return float(rounds[0])
    share = (target - curve[i - 1]) / (curve[i] - curve[i - 1])
    return float(rounds[i - 1] + share * (rounds[i] - rounds[i - 1]))

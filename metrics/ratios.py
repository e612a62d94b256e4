"""What density ratios look like over a client's data: pure functions of weights w ≥ 0, one for each row."""

import numpy as np

# Upper edges of the histogram's bins but the last: below 0.001, four bins a decade up to 1,000, and beyond.
HISTOGRAM_EDGES = np.logspace(-3, 3, 25)


def effective_sample_size(weights: np.ndarray) -> float:
    """ESS = (Σw)²/Σw², in [1, N]: how many equally weighted samples are worth as much. 0 if no weight is above 0."""
    largest = weights.max(initial=0.0)
    if largest <= 0:
        return 0.0
    scaled = weights / largest  # so that no square overflows or vanishes
    return float(scaled.sum() ** 2 / np.square(scaled).sum())


def ratio_statistics(weights: np.ndarray) -> dict[str, float | list[int]]:
    """Moments, effective sample size, its fraction ESS/N, and counts in the bins between `HISTOGRAM_EDGES`.

    If E[w] = 1 then ESS/N = 1/(1 + Var[w]): flat ratios that say nothing have a fraction near 1.
    """
    weights = np.asarray(weights, dtype=np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # a weight that is not finite shows in the result
        size = effective_sample_size(weights)
        return {
            "mean": float(weights.mean()),
            "std": float(weights.std()),
            "second_moment": float(np.square(weights).mean()),
            "ess": size,
            "ess_fraction": size / len(weights),
            "histogram": histogram(weights),
        }


def moments(values: np.ndarray) -> dict[str, float]:
    """Mean and standard deviation of values that are no ratios."""
    return {"mean": float(np.mean(values, dtype=np.float64)), "std": float(np.std(values, dtype=np.float64))}


def histogram(weights: np.ndarray) -> list[int]:
    """Counts below the first edge, between edges (the lower one included), and from the last edge on."""
    bins = np.searchsorted(HISTOGRAM_EDGES, weights, side="right")
    return np.bincount(bins, minlength=len(HISTOGRAM_EDGES) + 1).tolist()


def ratio_estimates(weights: np.ndarray, rewards: np.ndarray) -> tuple[float, float]:
    """E_D[w r], and self-normalised E_D[w r]/E_D[w] (NaN if no weight is above 0).

    Both estimate the reward per step, (1 − γ)V, of the policy whose ratios to the data are w.
    """
    plain, mean = float((weights * rewards).mean()), float(weights.mean())
    return plain, plain / mean if mean > 0 else float("nan")

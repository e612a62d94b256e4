"""Normalised scores."""

import numpy as np


def normalised_score(returns: np.ndarray | float, low: float, high: float) -> np.ndarray | float:
    """100 (R − low)/(high − low): 0 is the reference for a weak policy, 100 for an expert."""
    return 100.0 * (np.asarray(returns, dtype=np.float64) - low) / (high - low)

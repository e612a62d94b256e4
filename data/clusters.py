"""k-means with a seeded start and no empty cluster."""

import warnings

import numpy as np
from scipy.cluster.vq import kmeans2, vq
from scipy.spatial.distance import cdist

from data.dataset import Dataset
from data.errors import InputError


def standardised(features: np.ndarray) -> np.ndarray:
    """Features with mean 0 and standard deviation 1; a constant feature becomes 0."""
    features = features - features.mean(axis=0)
    deviation = features.std(axis=0)
    return features / np.where(deviation > 1e-6, deviation, 1.0)


def mean_states(dataset: Dataset, pieces: np.ndarray) -> np.ndarray:
    """[U, S] the mean state of each piece [U, 2] (first and last row, inclusive)."""
    means = np.empty((len(pieces), dataset.observations.shape[1]))
    for u, (first, last) in enumerate(pieces):
        means[u] = dataset.observations[first : last + 1].mean(axis=0, dtype=np.float64)
    return means


def kmeans(points: np.ndarray, k: int, rng: np.random.Generator, iterations: int = 10):
    """(centres [k, D], label [U]) of k clusters, none of them empty."""
    distinct = len(np.unique(points, axis=0))
    if distinct < k:
        raise InputError(f"k-means cannot make {k:,} clusters of {distinct:,} distinct points; ask for fewer.")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="One of the clusters is empty")  # filled below
        centres, label = kmeans2(points, _spread(points, k, rng), iter=iterations, minit="matrix")
    if len(np.unique(label)) < k:
        label = fill_empty(label, -cdist(points, centres))
    return centres, label


def _spread(points: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """k-means++ (Arthur and Vassilvitskii, 2007): each next centre is drawn in proportion to its squared
    distance from the centres so far. scipy's own is quadratic in k, which a thousand clients feel."""
    centres = np.empty((k, points.shape[1]), points.dtype)
    centres[0] = points[rng.integers(len(points))]
    distance = np.full(len(points), np.inf)
    for i in range(1, k):
        distance = np.minimum(distance, np.square(points - centres[i - 1]).sum(axis=1))
        reach = np.cumsum(distance, dtype=np.float64)
        drawn = np.searchsorted(reach, rng.random() * reach[-1], side="right")
        centres[i] = points[min(drawn, len(points) - 1)]
    return centres


def fill_empty(label: np.ndarray, affinity: np.ndarray) -> np.ndarray:
    """Labels in which a group that was empty has the member of `affinity` [U, K] that suits it best."""
    label = label.copy()
    count = np.bincount(label, minlength=affinity.shape[1])
    for empty in np.flatnonzero(count == 0):
        best = np.argmax(np.where(count[label] > 1, affinity[:, empty], -np.inf))  # nobody gives their last
        count[label[best]] -= 1
        label[best], count[empty] = empty, 1
    return label


def nearest_centre(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return vq(points, centres, check_finite=False)[0]

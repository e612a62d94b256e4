"""Geometry for tests, written independently of the tracks' own."""

from itertools import pairwise

import numpy as np
from scipy.spatial import cKDTree


def repeat_first(points: np.ndarray) -> np.ndarray:
    return np.concatenate([points, points[:1]])


def densely(polyline: np.ndarray, spacing: float = 0.005) -> np.ndarray:
    """Points along a closed polyline."""
    loop = repeat_first(polyline)
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(loop, axis=0), axis=1))])
    even = np.arange(0, along[-1], spacing)
    return np.stack([np.interp(even, along, values) for values in loop.T], axis=1)


def meeting_segments(*loops: np.ndarray) -> int:
    """How many pairs of segments of these closed polylines cross, other than where neighbours join."""
    start = np.concatenate(loops)
    end = np.concatenate([np.roll(loop, -1, axis=0) for loop in loops])
    first = np.cumsum([0, *(len(loop) for loop in loops)])
    following = np.concatenate([np.roll(np.arange(a, b), -1) for a, b in pairwise(first)])
    middle, half = (start + end) / 2, np.linalg.norm(end - start, axis=1).max() / 2
    i, j = cKDTree(middle).query_pairs(2 * half + 1e-9, output_type="ndarray").T
    apart = (following[i] != j) & (following[j] != i)
    i, j = i[apart], j[apart]
    sides = _side(start[i], end[i], start[j]) != _side(start[i], end[i], end[j])
    return int((sides & (_side(start[j], end[j], start[i]) != _side(start[j], end[j], end[i]))).sum())


def _side(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return (b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) > (b[:, 1] - a[:, 1]) * (c[:, 0] - a[:, 0])

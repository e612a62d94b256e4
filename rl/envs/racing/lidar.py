"""A planar LiDAR: sphere tracing in the distance field, and its noise.

At distance d from the nearest wall a beam may advance by d; it has arrived where d is nearly nothing.
"""

import math
from statistics import NormalDist

import numpy as np
from numba import njit

from rl.envs.racing.walls import between_cells, look_up

FIELD_OF_VIEW = 4.7  # radians
RANGE = 10.0  # metres
HIT = np.float32(0.05)  # cells from a wall at which a beam has arrived
ZERO = np.float32(0)
FLATTEST = np.float32(0.01)  # least approach per length that the last bit of the way is extrapolated with


def beam_directions(beams: int, field_of_view: float) -> np.ndarray:
    """[beams, 2] cosine and sine of each beam in the LiDAR's frame, from right to left; a single beam looks ahead."""
    angles = np.linspace(-0.5, 0.5, beams) * field_of_view if beams > 1 else np.zeros(beams)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _normal_quantiles(count: int) -> np.ndarray:
    """Equally likely values whose distribution is nearly normal and whose variance is exactly one half.

    Two draws from it added up are standard normal to within 1e-3 of its distribution, at the price of two look-ups.
    """
    values = np.array([NormalDist().inv_cdf((k + 0.5) / count) for k in range(count)])
    return (values / np.sqrt(2 * np.mean(values**2))).astype(np.float32)


_BITS = 11
_QUANTILES = _normal_quantiles(1 << _BITS)
_MASK = np.uint64((1 << _BITS) - 1)
_SHIFT = np.uint64(_BITS)
_WEYL = np.uint64(0x9E3779B97F4A7C15)


@njit(nogil=True, error_model="numpy")
def scrambled(key, counter):
    """SplitMix64's output number `counter` for the seed `key`: a generator without a state to carry along."""
    z = key + counter * _WEYL
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(nogil=True, error_model="numpy")
def add_noise(ranges, deviation, longest, key, number):
    """Adds Gaussian noise to scan `number` of the episode that `key` stands for; ranges stay in [0, longest]."""
    beams = ranges.shape[0]
    first = np.uint64(number) * np.uint64(beams)
    for k in range(beams):
        word = scrambled(key, first + np.uint64(k) + np.uint64(1))
        normal = _QUANTILES[word & _MASK] + _QUANTILES[(word >> _SHIFT) & _MASK]
        ranges[k] = min(max(ranges[k] + deviation * normal, ZERO), longest)


@njit(nogil=True, error_model="numpy")
def scan(out, cells, rows, columns, column, row, yaw, directions, reach, cell_size, scratch, active):
    """Noise-free ranges in metres of all beams from (column, row); `reach` in cells, scratch [4, beams] float32.

    Beams take their looks in turns, all one look and then all that are still on their way the next: one beam's looks
    wait for each other, those of different beams do not, and the processor works on several at once.
    """
    column, row, reach = np.float32(column), np.float32(row), np.float32(reach)
    along_column, along_row, free, step = scratch[0], scratch[1], scratch[2], scratch[3]
    first = max(look_up(cells, rows, columns, column, row), ZERO)
    cos, sin = math.cos(yaw), math.sin(yaw)
    for k in range(directions.shape[0]):
        along_column[k] = cos * directions[k, 0] - sin * directions[k, 1]
        along_row[k] = sin * directions[k, 0] + cos * directions[k, 1]
        out[k] = free[k] = step[k] = first
        active[k] = k
    count = np.uint64(directions.shape[0]) if first > ZERO else np.uint64(0)
    while count > np.uint64(0):
        kept = np.uint64(0)
        for a in range(count):
            k = np.uint64(active[a])
            gone = out[k]
            # Within the grid: its border is a wall too, and no step leads beyond the nearest wall.
            found = between_cells(cells, columns, column + gone * along_column[k], row + gone * along_row[k])
            step[k], free[k] = free[k], found
            gone += found
            out[k] = gone
            active[kept] = active[a]
            kept += np.uint64((found >= HIT) & (gone < reach))
        count = kept
    cell_size = np.float32(cell_size)
    for k in range(directions.shape[0]):
        gone = out[k]
        if ZERO < gone < reach:
            # The rest as if the wall went on straight: without it beams would end short by up to HIT / sin(angle).
            approach = max((step[k] - free[k]) / step[k], FLATTEST)
            gone += free[k] / approach - free[k]
        out[k] = cell_size * min(max(gone, ZERO), reach)

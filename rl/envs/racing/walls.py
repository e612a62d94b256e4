"""Walls as signed distances on a grid: look-ups between cells, and the car's outline against them.

Lengths are in cells here and the grid is flat, row after row: several tracks lie in one array, and a track is a slice.
"""

import math

import numpy as np
from numba import njit

CLOSEST_LOOK = 0.05  # cells between two looks along an edge where a wall is near


def in_cells(distance: np.ndarray, resolution: float) -> np.ndarray:
    """A track's distances (metres, [H, W]) as the functions here want them: flat, in cells, walled in at the border.

    The border counts as a wall like any other, so that what a distance says is free is free of it too.
    """
    rows, columns = (np.minimum(k, k[::-1]) - 1 for k in (np.arange(n, dtype=np.float32) for n in distance.shape))
    border = np.minimum(rows[:, None], columns[None, :])
    return np.minimum(distance / resolution, border).astype(np.float32).ravel()


@njit(nogil=True, error_model="numpy")
def look_up(cells, rows, columns, column, row):
    """Signed distance at a place anywhere; beyond the grid all is wall."""
    zero = np.float32(0)
    column = min(max(column, zero), np.float32(columns) - np.float32(1.001))
    row = min(max(row, zero), np.float32(rows) - np.float32(1.001))
    return between_cells(cells, columns, column, row)


@njit(nogil=True, error_model="numpy")
def between_cells(cells, columns, column, row):
    """Signed distance at a place within the grid, bilinear between the four cells around: exact for a straight wall.

    Single precision is enough: a ten-thousandth of a cell on grids of a thousand. Indices are unsigned because numba
    lets negative ones count from the end, and tests for them.
    """
    i, j = np.int32(row), np.int32(column)
    width = np.uint64(columns)
    k = np.uint64(i) * width + np.uint64(j)
    s, t = column - np.float32(j), row - np.float32(i)
    lower = cells[k] + s * (cells[k + np.uint64(1)] - cells[k])
    k += width
    upper = cells[k] + s * (cells[k + np.uint64(1)] - cells[k])
    return lower + t * (upper - lower)


@njit(nogil=True, error_model="numpy")
def hits_wall(cells, rows, columns, column, row, yaw, length, width):
    """Whether any point of the rectangle's outline lies in a wall.

    A distance d says that all within d is free, so an edge is walked in steps of d: nothing thin slips between looks.
    """
    half_diagonal = 0.5 * math.hypot(length, width)
    if look_up(cells, rows, columns, np.float32(column), np.float32(row)) > half_diagonal:
        return False
    cos, sin = math.cos(yaw), math.sin(yaw)
    for side in range(4):
        # Edges go round: front, left, rear, right; (along, aside) is the corner where an edge begins.
        along = 0.5 * length if side == 0 or side == 3 else -0.5 * length
        aside = 0.5 * width if side == 0 or side == 1 else -0.5 * width
        size = length if side % 2 == 0 else width
        # From front left backwards, from rear left to the right, from rear right forwards, from front right to left.
        step_along = -1.0 if side == 0 else (1.0 if side == 2 else 0.0)
        step_aside = -1.0 if side == 1 else (1.0 if side == 3 else 0.0)
        walked = 0.0
        while True:
            a, b = along + walked * step_along, aside + walked * step_aside
            at_column, at_row = column + a * cos - b * sin, row + a * sin + b * cos
            free = look_up(cells, rows, columns, np.float32(at_column), np.float32(at_row))
            if free <= 0:
                return True
            if walked >= size:
                break
            walked = min(walked + max(free, CLOSEST_LOOK), size)
    return False

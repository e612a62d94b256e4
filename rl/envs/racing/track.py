"""A race track: a centreline, its two walls, and the signed distance to them on a grid.

The walls are the centreline shifted by the free widths. On the inside of a corner tighter than the width the shifted
curve folds over itself; the fold is cut off, so that a wall is always a simple loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from data.centreline import Centreline, closed, crossing, enclosed_area
from data.errors import InputError

if TYPE_CHECKING:
    from rl.envs.racing.racing_line import RacingLine

RESOLUTION = 0.05  # metres a cell
BORDER = 0.3  # metres of grid beyond the walls
MOST_CELLS = 40_000_000


@dataclass(frozen=True, eq=False)
class Track:
    """What a simulator needs to know about a place to drive."""

    name: str
    centreline: Centreline
    distance: np.ndarray  # [H, W] float32, metres to the nearest wall at cell centres; negative where no car may be
    origin: tuple[float, float]  # x and y of the centre of cell [0, 0]; rows are y, columns are x
    resolution: float  # metres a cell
    walls: tuple[np.ndarray, ...]  # closed polylines [n, 2], first point not repeated

    @classmethod
    def from_centreline(
        cls,
        name: str,
        centreline: Centreline,
        resolution: float = RESOLUTION,
        reverse: bool = False,
        shoulder: float = 0.0,
    ) -> "Track":
        """Distances are exact at the cell centres, and so are not rounded to cells.

        reverse: driven the other way round. shoulder: metres between the road's edge and the wall, where a car may be.
        """
        if not 0 <= shoulder < np.inf:
            raise InputError(f"Track '{name}' cannot have a shoulder of {shoulder} m; choose 0 or more.")
        if reverse:
            centreline = centreline.reversed()
        wide = replace(centreline, left=centreline.left + shoulder, right=centreline.right + shoulder)
        walls = wall_polylines(name, wide)
        # No place on the track is further from both walls than half its width there.
        furthest = 0.5 * float((wide.left + wide.right).max())
        distance, origin = signed_distance(name, walls, furthest, resolution)
        return cls(name, centreline, distance, origin, resolution, walls)

    @cached_property
    def racing_line(self) -> "RacingLine":
        """The minimum-curvature line, off the walls by half an F1TENTH car, or by less on a track for smaller cars."""
        from rl.envs.racing.racing_line import MARGIN, minimum_curvature

        narrowest = 0.5 * float((self.centreline.left + self.centreline.right).min())
        return minimum_curvature(self.centreline, min(MARGIN, 0.45 * narrowest))


def wall_polylines(name: str, centreline: Centreline) -> tuple[np.ndarray, np.ndarray]:
    """The left and the right wall, neither of which crosses itself or the other."""
    # Begun where the line is straightest: a wall that began within a fold could not be followed out of it.
    order = np.roll(np.arange(len(centreline.points)), -int(np.abs(centreline.curvature).argmin()))
    points, normal = centreline.points[order], centreline.normal[order]
    walls = []
    for width in (centreline.left[order], -centreline.right[order]):
        # A corner can fold as much of the curve as goes around its inside, and a little of the straights beside it.
        reach = int(2 * np.pi * np.abs(width).max() / centreline.step) + 1
        walls.append(without_folds(points + width[:, None] * normal, min(reach, len(points) // 2)))
    left, right = walls
    for wall, other in ((left, left), (right, right), (left, right)):
        where = crossing(wall, other)
        if where < 0 and enclosed_area(wall) * enclosed_area(points) <= 0:
            where = 0  # it went through itself all along, and came out as a loop turned inside out
        if where >= 0:
            x, y = wall[where]
            raise InputError(
                f"The walls of track '{name}' cross near x = {x:.2f}, y = {y:.2f}; "
                "make it narrower there or move its stretches apart."
            )
    return left, right


@njit(cache=True, nogil=True)
def without_folds(wall, reach):
    """Where a segment meets one of the next `reach` segments, goes on from there and leaves out what lies between."""
    n = wall.shape[0]
    kept = np.empty((n, 2))
    kept[0] = wall[0]
    count, i = 1, 0
    while i < n - 1:
        ax, ay = kept[count - 1]
        bx, by = wall[i + 1]
        next_i, x, y = i + 1, bx, by
        for j in range(min(i + reach, n - 1), i + 1, -1):  # the furthest first: folds may lie within folds
            k = (j + 1) % n
            cx, cy, ex, ey = wall[j, 0], wall[j, 1], wall[k, 0] - wall[j, 0], wall[k, 1] - wall[j, 1]
            area = (bx - ax) * ey - (by - ay) * ex
            if area == 0.0:
                continue
            t = ((cx - ax) * ey - (cy - ay) * ex) / area
            u = ((cx - ax) * (by - ay) - (cy - ay) * (bx - ax)) / area
            if 0 < t <= 1 and 0 <= u <= 1:
                next_i, x, y = j, ax + t * (bx - ax), ay + t * (by - ay)
                break
        kept[count, 0], kept[count, 1] = x, y
        count += 1
        i = next_i
    return kept[:count].copy()


def signed_distance(
    name: str, walls: Sequence[np.ndarray], furthest: float, resolution: float
) -> tuple[np.ndarray, tuple[float, float]]:
    """([H, W] float32 distances, the centre of cell [0, 0]); places further than `furthest` from all walls are outside.

    A place is on the track if an odd number of the walls, which are closed, go around it.
    """
    if not resolution > 0:
        raise InputError(f"Track '{name}' cannot have cells of {resolution} m; choose a positive resolution.")
    corners = np.concatenate(walls)
    low = np.floor((corners.min(axis=0) - BORDER) / resolution) * resolution
    columns, rows = np.ceil((corners.max(axis=0) + BORDER - low) / resolution).astype(np.int64) + 1
    if columns * rows > MOST_CELLS:
        raise InputError(
            f"Track '{name}' covers {columns} × {rows} cells of {resolution} m; choose a coarser resolution."
        )
    reach = max(BORDER, furthest) + 2 * resolution
    squared = np.full((rows, columns), reach * reach)
    crossings = np.zeros((rows, columns + 1), np.int32)
    for wall in walls:
        segments = (closed(wall) - low) / resolution
        _nearest_wall(squared, segments, reach / resolution, resolution)
        _count_crossings(crossings, segments)
    inside = np.cumsum(crossings[:, :columns], axis=1) % 2 == 1
    distance = np.where(inside, 1.0, -1.0) * np.sqrt(squared)
    return distance.astype(np.float32), (float(low[0]), float(low[1]))


@njit(cache=True, nogil=True)
def _nearest_wall(squared, wall, reach, resolution):
    """Lowers squared distances (metres) to those of a polyline (in cells) wherever it is within `reach` cells."""
    rows, columns = squared.shape
    for k in range(wall.shape[0] - 1):
        ax, ay, bx, by = wall[k, 0], wall[k, 1], wall[k + 1, 0], wall[k + 1, 1]
        ex, ey = bx - ax, by - ay
        size = ex * ex + ey * ey
        first_row, last_row = max(0, int(min(ay, by) - reach)), min(rows - 1, int(max(ay, by) + reach) + 1)
        first, last = max(0, int(min(ax, bx) - reach)), min(columns - 1, int(max(ax, bx) + reach) + 1)
        for row in range(first_row, last_row + 1):
            uy = row - ay
            for column in range(first, last + 1):
                ux = column - ax
                t = (ux * ex + uy * ey) / size if size > 0 else 0.0
                t = min(max(t, 0.0), 1.0)
                dx, dy = ux - t * ex, uy - t * ey
                found = (dx * dx + dy * dy) * resolution * resolution
                if found < squared[row, column]:
                    squared[row, column] = found


@njit(cache=True, nogil=True)
def _count_crossings(crossings, wall):
    """Adds one at the first cell to the right of every place where the polyline passes a row of cell centres."""
    for k in range(wall.shape[0] - 1):
        ax, ay, bx, by = wall[k, 0], wall[k, 1], wall[k + 1, 0], wall[k + 1, 1]
        for row in range(int(np.ceil(min(ay, by))), int(np.floor(max(ay, by))) + 1):
            if (ay <= row) != (by <= row):
                x = ax + (row - ay) / (by - ay) * (bx - ax)
                crossings[row, int(np.ceil(x))] += 1

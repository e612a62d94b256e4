"""A closed centreline with widths, and where a car is along it.

Left and right are those of a driver who follows the points in order. Positions along the line are metres (`s`) in the
Python interface and steps (`s / step`, a float in [0, M)) in the compiled functions, where they also serve as indices.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import njit

from data.errors import InputError

LOOK_AHEAD = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)  # metres
FEATURES = 7  # of frenet_features, before the look-ahead points
SEARCH = 2.0  # metres of line to either side of the last known vertex in which a projection is looked for
MOST_POINTS = 50_000
_OVERSAMPLING = 10  # spline samples between two points of the line, to measure its arc length


@dataclass(frozen=True, eq=False)
class Centreline:
    """A closed curve sampled at even arc length and driven in the order of its points."""

    points: np.ndarray  # [M, 2] metres; the last point is one step before the first
    left: np.ndarray  # [M] free width to the left, metres
    right: np.ndarray  # [M]
    length: float  # of the closed polygon through the points, metres

    @classmethod
    def through(cls, points, left, right, spacing: float = 0.1, name: str = "The centreline") -> "Centreline":
        """The periodic cubic spline through `points`, sampled about every `spacing` metres.

        A last point that repeats the first is dropped, and so is any that repeats its predecessor. Widths are
        interpolated linearly. `name` begins the sentence when something is wrong.
        """
        from scipy.interpolate import CubicSpline

        points, left, right = _checked(points, left, right, spacing, name)
        knots = _cumulative_length(closed(points))
        if knots[-1] > MOST_POINTS * spacing:
            raise InputError(
                f"{name} is {knots[-1]:.0f} m long, more than {MOST_POINTS:,} points at {spacing} m; "
                "choose a wider spacing or check that its units are metres."
            )
        spline = CubicSpline(knots, closed(points), bc_type="periodic")
        dense = np.union1d(np.linspace(0, knots[-1], _OVERSAMPLING * round(knots[-1] / spacing + 16)), knots)
        along = _cumulative_length(spline(dense))
        count = max(16, round(along[-1] / spacing))
        even = np.interp(np.arange(count) * (along[-1] / count), along, dense)
        resampled = spline(even)
        where = crossing(resampled, resampled)
        if where >= 0:
            x, y = resampled[where]
            raise InputError(f"{name} crosses itself near x = {x:.2f}, y = {y:.2f}; a lap must be a simple loop.")
        widths = [np.interp(even, knots, closed(width)) for width in (left, right)]
        return cls(resampled, *widths, length=float(_cumulative_length(closed(resampled))[-1]))

    @property
    def step(self) -> float:
        """Metres from one point to the next."""
        return self.length / len(self.points)

    @cached_property
    def heading(self) -> np.ndarray:
        """[M] direction of driving at each point, radians."""
        tangent = np.roll(self.points, -1, axis=0) - np.roll(self.points, 1, axis=0)
        return np.arctan2(tangent[:, 1], tangent[:, 0])

    @cached_property
    def normal(self) -> np.ndarray:
        """[M, 2] unit vectors that point to the left."""
        return np.stack([-np.sin(self.heading), np.cos(self.heading)], axis=1)

    @cached_property
    def curvature(self) -> np.ndarray:
        """[M] 1/m, positive in a left turn."""
        return closed_curvature(self.points)

    def pose(self, s) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """x, y and heading at `s` metres from the first point; any number of laps on, or back."""
        place = np.asarray(s, dtype=np.float64) / self.step % len(self.points)
        i = np.minimum(place.astype(np.int64), len(self.points) - 1)  # −1e-20 % M is M
        j, t = (i + 1) % len(self.points), place - i
        x, y = np.moveaxis(self.points[i] + t[..., None] * (self.points[j] - self.points[i]), -1, 0)
        return x, y, wrapped(self.heading[i] + t * wrapped(self.heading[j] - self.heading[i]))

    def reversed(self) -> "Centreline":
        """The same line and start, driven the other way round."""
        order = -np.arange(len(self.points)) % len(self.points)
        return Centreline(self.points[order], self.right[order], self.left[order], self.length)


def closed(points: np.ndarray) -> np.ndarray:
    """The points with the first one repeated at the end."""
    return np.concatenate([points, points[:1]])


def wrapped(angle: np.ndarray) -> np.ndarray:
    """The same angle in [−π, π)."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


def closed_curvature(points: np.ndarray) -> np.ndarray:
    """[M] turn of the closed polygon at each point per metre of its two halves beside it; left turns are positive."""
    chord = np.roll(points, -1, axis=0) - points
    direction, size = np.arctan2(chord[:, 1], chord[:, 0]), np.hypot(chord[:, 0], chord[:, 1])
    return wrapped(direction - np.roll(direction, 1)) / (0.5 * (size + np.roll(size, 1)))


def enclosed_area(points: np.ndarray) -> float:
    """Of the closed polygon, m²; negative if it goes around clockwise."""
    x, y = points.T
    return 0.5 * float(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y))


def _checked(points, left, right, spacing: float, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    points = np.array(points, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise InputError(f"{name} has points of shape {points.shape}; give rows of x and y.")
    if not spacing > 0:
        raise InputError(f"{name} cannot be sampled every {spacing} m; choose a positive spacing.")
    left, right = (np.broadcast_to(np.asarray(w, dtype=np.float64), len(points)) for w in (left, right))
    bad = ~(np.isfinite(points).all(axis=1) & np.isfinite(left) & np.isfinite(right))
    if bad.any():
        raise InputError(
            f"{name} has {bad.sum()} points that are not finite, first at point {bad.argmax()}; repair them."
        )
    bad = (left <= 0) | (right <= 0)
    if bad.any():
        raise InputError(
            f"{name} has {bad.sum()} widths that are not positive, first at point {bad.argmax()}; repair them."
        )
    # A step of less than a hundredth of a millimetre is a repetition: it says nothing about where the line goes.
    new = np.linalg.norm(points - np.roll(points, -1, axis=0), axis=1) > 1e-5
    if new.sum() < 4:
        raise InputError(f"{name} has {new.sum()} different points; a loop needs at least 4.")
    return points[new], left[new], right[new]


def _cumulative_length(points: np.ndarray) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1))])


@njit(cache=True, nogil=True)
def crossing(one, other):
    """The first vertex of the closed polygon `one` whose segment meets a segment of the closed polygon `other`, or −1.

    Pass the same array twice to look for self-crossings: a segment's own neighbours are then left out.
    """
    same = one.shape[0] == other.shape[0] and np.all(one == other)
    n, m = one.shape[0], other.shape[0]
    for i in range(n):
        ax, ay = one[i, 0], one[i, 1]
        bx, by = one[(i + 1) % n, 0], one[(i + 1) % n, 1]
        low_x, high_x, low_y, high_y = min(ax, bx), max(ax, bx), min(ay, by), max(ay, by)
        for j in range(i + 2 if same else 0, m):
            if same and i == 0 and j == m - 1:
                continue
            cx, cy = other[j, 0], other[j, 1]
            k = j + 1 if j + 1 < m else 0
            dx, dy = other[k, 0], other[k, 1]
            if max(cx, dx) < low_x or min(cx, dx) > high_x or max(cy, dy) < low_y or min(cy, dy) > high_y:
                continue
            c = (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
            d = (bx - ax) * (dy - ay) - (by - ay) * (dx - ax)
            a = (dx - cx) * (ay - cy) - (dy - cy) * (ax - cx)
            b = (dx - cx) * (by - cy) - (dy - cy) * (bx - cx)
            if c * d <= 0 and a * b <= 0:
                return i
    return -1


@njit(cache=True, nogil=True)
def project(points, x, y, near):
    """(place, offset, vertex): where along the line, in steps; how far to its left; and the nearest vertex.

    Only vertices within SEARCH metres of line from the vertex `near` are considered, so that a neighbouring stretch of
    track is never mistaken for one's own; near = −1 considers all. The foot lies on the normal interpolated between
    two vertices, not on the polygon's own: it moves evenly when a car passes a vertex on the inside or the outside.
    """
    n = points.shape[0]
    first, count = 0, n
    if near >= 0:
        step = math.hypot(points[1, 0] - points[0, 0], points[1, 1] - points[0, 1])
        reach = int(SEARCH / step) + 2
        if 2 * reach + 1 < n:
            first, count = (near - reach) % n, 2 * reach + 1
    best, vertex = np.inf, 0
    j = first
    for _ in range(count):
        dx, dy = x - points[j, 0], y - points[j, 1]
        squared = dx * dx + dy * dy
        if squared < best:
            best, vertex = squared, j
        j += 1
        if j == n:
            j = 0
    i = vertex
    if _ahead(points, i, x, y) < 0:
        i = i - 1 if i > 0 else n - 1
    t, offset = _foot(points, i, x, y)
    place = i + t
    return (place if place < n else 0.0), offset, vertex


@njit(cache=True, nogil=True)
def _ahead(points, i, x, y):
    """How far the point is ahead of vertex i along the tangent there (not to scale)."""
    n = points.shape[0]
    before, after = (i - 1 if i > 0 else n - 1), (i + 1 if i + 1 < n else 0)
    tx, ty = points[after, 0] - points[before, 0], points[after, 1] - points[before, 1]
    return (x - points[i, 0]) * tx + (y - points[i, 1]) * ty


@njit(cache=True, nogil=True)
def _foot(points, i, x, y):
    """(t, offset) of the point seen from segment i: solves (q − p(t))·T(t) = 0, p and T linear between two vertices."""
    n = points.shape[0]
    h, j = (i - 1 if i > 0 else n - 1), (i + 1 if i + 1 < n else 0)
    k = j + 1 if j + 1 < n else 0
    tx, ty = points[j, 0] - points[h, 0], points[j, 1] - points[h, 1]
    turn_x, turn_y = points[k, 0] - points[i, 0] - tx, points[k, 1] - points[i, 1] - ty
    ex, ey = points[j, 0] - points[i, 0], points[j, 1] - points[i, 1]
    ux, uy = x - points[i, 0], y - points[i, 1]
    # c + b t + a t² = 0 with c ≥ 0 and the root in [0, 1] the one that stays finite as a → 0.
    a = -(ex * turn_x + ey * turn_y)
    b = ux * turn_x + uy * turn_y - (ex * tx + ey * ty)
    c = ux * tx + uy * ty
    root = math.sqrt(max(b * b - 4 * a * c, 0.0))
    t = 2 * c / (root - b) if root > b else 0.0
    t = min(max(t, 0.0), 1.0)
    fx, fy = ux - t * ex, uy - t * ey
    distance = math.hypot(fx, fy)
    return t, (distance if ex * fy - ey * fx >= 0 else -distance)


@njit(cache=True, nogil=True)
def frenet_features(
    out, points, heading, left, right, step, look_ahead, x, y, yaw, speed, yaw_rate, s_index_float, offset
):
    """Writes out[0..6] = offset, sin Δψ, cos Δψ, speed, yaw rate, free room left and right, with Δψ = yaw − heading;
    then x and y, in the car's frame, of the centreline point that lies each look-ahead distance beyond the projection.
    """
    n = points.shape[0]
    i = int(s_index_float)
    j, t = (i + 1) % n, s_index_float - i
    turn = (heading[j] - heading[i] + math.pi) % (2 * math.pi) - math.pi
    error = yaw - (heading[i] + t * turn)
    out[0], out[1], out[2], out[3], out[4] = offset, math.sin(error), math.cos(error), speed, yaw_rate
    out[5] = left[i] + t * (left[j] - left[i]) - offset
    out[6] = right[i] + t * (right[j] - right[i]) + offset
    cos, sin = math.cos(yaw), math.sin(yaw)
    for k in range(look_ahead.shape[0]):
        place = (s_index_float + look_ahead[k] / step) % n
        i = int(place)
        j, t = (i + 1) % n, place - i
        dx = points[i, 0] + t * (points[j, 0] - points[i, 0]) - x
        dy = points[i, 1] + t * (points[j, 1] - points[i, 1]) - y
        out[7 + 2 * k] = cos * dx + sin * dy
        out[8 + 2 * k] = -sin * dx + cos * dy

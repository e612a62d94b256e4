"""The minimum-curvature line of a track, and the greatest speed that the tyres allow along a line.

The line minimises ∫ κ² ds, and a little of its length, over lateral offsets from the centreline (Heilmeier et al.,
"Minimum curvature trajectory planning and control for an autonomous race car", 2020), here by Gauss-Newton steps on the
curvature of the polygon itself, each a least-squares problem with bounds that an interior-point method solves.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from scipy.sparse import csc_array, diags_array, vstack
from scipy.sparse.linalg import splu

from data.centreline import Centreline, closed_curvature, wrapped

MARGIN = 0.35  # metres from the car's middle to a wall: half an F1TENTH car's width and a hand's breadth
# Least curvature alone keeps to the outside of every long bend; a little weight on length costs hardly any curvature
# and takes up to a tenth off the lap times of our tracks.
SHORTNESS = 0.05  # 1/m²
ITERATIONS = 12
_TOLERANCE = 1e-4  # relative gain below which another Gauss-Newton step is not worth taking


@dataclass(frozen=True, eq=False)
class RacingLine:
    """A line with one point beside each point of the centreline."""

    points: np.ndarray  # [M, 2]
    heading: np.ndarray  # [M]
    curvature: np.ndarray  # [M] 1/m, left turns positive
    offset: np.ndarray  # [M] metres to the left of the centreline
    length: float

    @classmethod
    def beside(cls, centreline: Centreline, offset: np.ndarray) -> "RacingLine":
        points = centreline.points + offset[:, None] * centreline.normal
        chord = np.roll(points, -1, axis=0) - points
        size, direction = np.hypot(*chord.T), np.arctan2(chord[:, 1], chord[:, 0])
        # The tangent of the circle through a point and its two neighbours.
        share = np.roll(size, 1) / (size + np.roll(size, 1))
        before = np.roll(direction, 1)
        heading = wrapped(before + share * wrapped(direction - before))
        return cls(points, heading, closed_curvature(points), offset, float(size.sum()))


def minimum_curvature(centreline: Centreline, margin: float = MARGIN, shortness: float = SHORTNESS) -> RacingLine:
    """The line of least ∫ κ² ds + λ ∫ (ds/ds₀)² ds₀, with λ = `shortness` and ds₀ the centreline's own steps.

    It stays `margin` metres away from both walls, or mid-way between them where there is no such room.
    """
    low, high = _bounds(centreline, margin)
    offset = np.clip(0.0, low, high)
    residual, slope = _residual(centreline, offset, shortness)
    for _ in range(ITERATIONS):
        before = residual @ residual
        hessian, gradient = (slope.T @ slope).tocsc(), slope.T @ residual
        step = _bounded_minimum(hessian, gradient, low - offset, high - offset, 1e-6 * before)
        for _ in range(8):
            trial, trial_slope = _residual(centreline, offset + step, shortness)
            if trial @ trial <= before:
                break
            step = 0.5 * step
        else:
            break
        offset, residual, slope = offset + step, trial, trial_slope
        if before - residual @ residual <= _TOLERANCE * before:
            break
    return RacingLine.beside(centreline, offset)


def _residual(centreline: Centreline, offset: np.ndarray, shortness: float) -> tuple[np.ndarray, csc_array]:
    residual, slope = _curvature_residual(centreline, offset)
    if shortness == 0:
        return residual, slope
    scale = np.sqrt(shortness / centreline.step)
    points = centreline.points + offset[:, None] * centreline.normal
    chord = scale * (np.roll(points, -1, axis=0) - points)
    rows = np.arange(len(points))
    columns = np.concatenate([rows, (rows + 1) % len(rows)])
    slopes = [
        csc_array((scale * np.concatenate([-across, np.roll(across, -1)]), (np.tile(rows, 2), columns)))
        for across in centreline.normal.T
    ]
    return np.concatenate([residual, *chord.T]), vstack([slope, *slopes], format="csc")


def _bounds(centreline: Centreline, margin: float) -> tuple[np.ndarray, np.ndarray]:
    # Beyond the centre of a corner the lines across the track meet: a line there would go backwards.
    reach = min(
        int(8 * max(centreline.left.max(), centreline.right.max()) / centreline.step), len(centreline.points) // 2
    )
    left = 0.9 * _unfolded(centreline.points, centreline.normal, reach)
    right = 0.9 * _unfolded(centreline.points, -centreline.normal, reach)
    low, high = -np.minimum(centreline.right - margin, right), np.minimum(centreline.left - margin, left)
    middle, half = 0.5 * (low + high), np.maximum(0.5 * (high - low), 1e-3)
    return middle - half, middle + half


@njit(cache=True, nogil=True)
def _unfolded(points, normal, reach):
    """[M] how far one can go along each normal while its own point remains the nearest of the line."""
    n = points.shape[0]
    free = np.full(n, 1e9)
    for i in range(n):
        for k in range(-reach, reach + 1):
            j = (i + k) % n
            dx, dy = points[j, 0] - points[i, 0], points[j, 1] - points[i, 1]
            towards = dx * normal[i, 0] + dy * normal[i, 1]
            if towards > 1e-12:
                free[i] = min(free[i], (dx * dx + dy * dy) / (2 * towards))
    return free


def _curvature_residual(centreline: Centreline, offset: np.ndarray) -> tuple[np.ndarray, csc_array]:
    """r with r·r = ∫ κ² ds, and ∂r/∂offset: at a corner of the polygon that turns by θ between two chords of mean
    length m, κ = θ/m and r = θ/√m."""
    normal = centreline.normal
    points = centreline.points + offset[:, None] * normal
    after, before = np.roll(points, -1, axis=0) - points, points - np.roll(points, 1, axis=0)
    size = np.hypot(*after.T)
    size_before = np.roll(size, 1)
    direction = np.arctan2(after[:, 1], after[:, 0])
    turn = wrapped(direction - np.roll(direction, 1))
    mean = 0.5 * (size + size_before)

    # Moving the end of a chord along a normal n turns it by (e × n)/|e|² and lengthens it by (e · n)/|e|.
    following, preceding = np.roll(normal, -1, axis=0), np.roll(normal, 1, axis=0)
    turn_following = _cross(after, following) / size**2
    turn_preceding = _cross(before, preceding) / size_before**2
    turn_own = -_cross(after, normal) / size**2 - _cross(before, normal) / size_before**2
    mean_following = 0.5 * (after * following).sum(axis=1) / size
    mean_preceding = -0.5 * (before * preceding).sum(axis=1) / size_before
    mean_own = 0.5 * ((before * normal).sum(axis=1) / size_before - (after * normal).sum(axis=1) / size)

    root = np.sqrt(mean)
    rows = np.arange(len(points))
    columns = np.concatenate([(rows - 1) % len(rows), rows, (rows + 1) % len(rows)])
    slopes = [
        by_turn / root - 0.5 * turn / (root * mean) * by_mean
        for by_turn, by_mean in (
            (turn_preceding, mean_preceding),
            (turn_own, mean_own),
            (turn_following, mean_following),
        )
    ]
    return turn / root, csc_array((np.concatenate(slopes), (np.tile(rows, 3), columns)))


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]


def _bounded_minimum(
    hessian: csc_array, gradient: np.ndarray, low: np.ndarray, high: np.ndarray, tolerance: float
) -> np.ndarray:
    """The x in [low, high] that minimises ½ xᵀHx + gᵀx, by a primal-dual interior-point method.

    H is sparse and cyclic: a factorisation costs a millisecond, and some twenty suffice at any size.
    """
    x = 0.5 * (low + high)
    pull_low = pull_high = np.full(len(x), np.abs(hessian @ x + gradient).mean() + 1e-9)  # multipliers of the bounds
    for _ in range(60):
        room_low, room_high = x - low, high - x
        gap = (pull_low @ room_low + pull_high @ room_high) / (2 * len(x))
        if 2 * len(x) * gap < tolerance:
            break
        target = 0.1 * gap
        stiffness = pull_low / room_low + pull_high / room_high
        force = -(hessian @ x + gradient) + target / room_low - target / room_high
        move = splu(hessian + diags_array(stiffness, format="csc")).solve(force)
        move_low = target / room_low - pull_low - pull_low / room_low * move
        move_high = target / room_high - pull_high + pull_high / room_high * move
        length = _longest_step((room_low, move), (room_high, -move))
        length_pull = _longest_step((pull_low, move_low), (pull_high, move_high))
        x = x + length * move
        pull_low, pull_high = pull_low + length_pull * move_low, pull_high + length_pull * move_high
    return x


def _longest_step(*pairs: tuple[np.ndarray, np.ndarray]) -> float:
    """The greatest share of the moves, at most 1, that leaves all values positive."""
    shrinking = max(float((-move / value).max()) for value, move in pairs)
    return 1.0 if shrinking <= 0.99 else 0.99 / shrinking


def speed_profile(
    line_curvature: np.ndarray,
    steps_m: np.ndarray,
    grip_g: float,
    acceleration: float,
    braking: float,
    top_speed: float,
) -> np.ndarray:
    """[M] the greatest speeds, m/s, along a closed line whose point i + 1 lies steps_m[i] beyond point i.

    At both ends of every step (a_long / a_max)² + (v² κ / grip_g)² ≤ 1, where a_max is `acceleration` or `braking`:
    friction ellipses with the half-axis grip_g = μg across.
    """
    grip_curvature = np.abs(line_curvature) / grip_g
    squared = np.minimum(top_speed**2, 1 / np.maximum(grip_curvature, 1e-12))
    slowest = int(squared.argmin())
    steps, grip_curvature = np.roll(steps_m, -slowest), np.roll(grip_curvature, -slowest)
    squared = np.roll(squared, -slowest)  # from the slowest corner on, one lap settles all speeds
    squared = _reachable(squared, grip_curvature, steps, acceleration)
    backwards = -np.arange(len(squared))
    squared[backwards] = _reachable(squared[backwards], grip_curvature[backwards], steps[backwards - 1], braking)
    return np.sqrt(np.roll(squared, slowest))


def lap_time(steps_m: np.ndarray, speed: np.ndarray) -> float:
    """Seconds around a closed line, at constant acceleration within each step."""
    return float((2 * steps_m / (speed + np.roll(speed, -1))).sum())


@njit(cache=True, nogil=True)
def _reachable(squared, grip_curvature, steps, acceleration):
    """Squared speeds lowered to what can be reached from the point before, beginning with point 0."""
    n = squared.shape[0]
    out = squared.copy()
    for i in range(n):
        j = i + 1 if i + 1 < n else 0
        u = out[i]
        if out[j] <= u:
            continue
        gain = 2 * acceleration * steps[i]
        here = u + gain * np.sqrt(max(1 - (u * grip_curvature[i]) ** 2, 0.0))
        # There: the root of u' − u = gain √(1 − (u' k)²), since the tyres must also hold at the end of the step.
        k = (gain * grip_curvature[j]) ** 2
        there = (u + np.sqrt(max(u * u - (1 + k) * (u * u - gain * gain), 0.0))) / (1 + k)
        out[j] = min(out[j], here, there)
    return out

"""Drivers that know where they are: pure pursuit and Stanley, on a line with a speed for each of its points.

Either steers by geometry, as if tyres did not slip. Near the limit they do: this car needs 0.2 rad of slip for two
thirds of its grip. A driver with a feel for that turns the nose into the corner by the slip of the rear axle and adds
the difference of the two axles to the steering; without it the same line at the same speed ends in the outer wall.
"""

import math
from functools import lru_cache

import numpy as np
from numba import njit

from data.centreline import Centreline
from rl.envs.racing.cars import GRAVITY, Car
from rl.envs.racing.racing_line import RacingLine, minimum_curvature, speed_profile
from rl.envs.racing.track import Track

X, Y, HEADING, LINE_SPEED, CURVATURE = range(5)  # columns of a line
LINES = ("racing", "centre")
ROOM = 0.6  # of the car's length, from its side to a wall on the racing line: a sliding car is wider than a parked one
MOST_SLIP = 0.3  # radians of slip that the speed profile asks of the tyres
ACCELERATING, BRAKING = 0.5, 0.5  # shares of the engine's and the tyres' limit that the speed profile plans with
STANLEY_GAIN = 5.0  # 1/s
STANLEY_SOFTENING = 1.0  # m/s added to the speed, lest the steering chatters when the car crawls


@lru_cache(maxsize=64)
def racing_line(track: Track, margin: float) -> RacingLine:
    return minimum_curvature(track.centreline, margin)


@lru_cache(maxsize=512)
def driving_line(track: Track, car: Car, line: str) -> np.ndarray:
    """[M, 5] x, y, heading, the speed that this car's grip and engine allow, and curvature.

    Point i lies on the normal of point i of the centreline: the simulator's place is also the place along the line.
    """
    source: RacingLine | Centreline = track.centreline
    if line == "racing":
        source = racing_line(track, 0.5 * car.width + ROOM * car.length)
    steps = np.linalg.norm(np.roll(source.points, -1, axis=0) - source.points, axis=1)
    grip = car.grip * GRAVITY
    # The brush law: at slip α an axle gives 1 − (1 − Cα/3)³ of its grip.
    softer = min(car.stiffness_front, car.stiffness_rear)
    across = grip * (1 - (1 - min(softer * MOST_SLIP / 3, 1.0)) ** 3)
    along = min(car.a_max, grip)
    speed = speed_profile(source.curvature, steps, across, ACCELERATING * along, BRAKING * along, car.top_speed)
    return np.column_stack([source.points, source.heading, speed, source.curvature])


@njit(nogil=True)
def ahead_on(line, place, distance, column):
    """A column of the line, `distance` steps ahead of the place."""
    n = line.shape[0]
    ahead = (place + distance) % n
    i = int(ahead)
    j, t = (i + 1) % n, ahead - i
    return line[i, column] + t * (line[j, column] - line[i, column])


@njit(nogil=True)
def unit_slip(speed, curvature, grip):
    """Slip of an axle of stiffness 1 in a steady corner, signed as the corner: the brush law, inverted."""
    use = min(speed * speed * abs(curvature) / grip, 0.97)
    return math.copysign(3 * (1 - (1 - use) ** (1 / 3)), curvature)


@njit(nogil=True)
def pure_pursuit(line, place, x, y, yaw, wheelbase, rear, look_ahead):
    """δ = atan(2 L y / Ld²): the arc of the rear axle through the line's point that is Ld away, y to its left."""
    cos, sin = math.cos(yaw), math.sin(yaw)
    x, y = x - rear * cos, y - rear * sin
    n = line.shape[0]
    i = int(place)
    # A car beside the line aims further ahead, lest it turns across the track to get there.
    look_ahead += math.hypot(line[i, X] - x, line[i, Y] - y)
    before = distance = 0.0
    for _ in range(n):  # until the first point that is far enough; the target lies on the segment that ends there
        distance = math.hypot(line[i, X] - x, line[i, Y] - y)
        if distance >= look_ahead:
            break
        before = distance
        i = i + 1 if i + 1 < n else 0
    h = i - 1 if i > 0 else n - 1
    t = (look_ahead - before) / max(distance - before, 1e-9)
    t = min(max(t, 0.0), 1.0)
    dx = line[h, X] + t * (line[i, X] - line[h, X]) - x
    dy = line[h, Y] + t * (line[i, Y] - line[h, Y]) - y
    return math.atan(2 * wheelbase * (cos * dy - sin * dx) / (dx * dx + dy * dy))


@njit(nogil=True)
def stanley(line, place, x, y, yaw, speed, front):
    """δ = (ψ_line − ψ) − atan(k e / v), with e how far the front axle is to the left of the line."""
    x, y = x + front * math.cos(yaw), y + front * math.sin(yaw)
    n = line.shape[0]
    i = int(place)
    best, nearest = np.inf, i
    for _ in range(12):  # the front axle is no more than a few points ahead of the car's middle
        squared = (line[i, X] - x) ** 2 + (line[i, Y] - y) ** 2
        if squared < best:
            best, nearest = squared, i
        i = i + 1 if i + 1 < n else 0
    heading = line[nearest, HEADING]
    error = math.cos(heading) * (y - line[nearest, Y]) - math.sin(heading) * (x - line[nearest, X])
    turn = (heading - yaw + math.pi) % (2 * math.pi) - math.pi
    return turn - math.atan(STANLEY_GAIN * error / (max(speed, 0.0) + STANLEY_SOFTENING))

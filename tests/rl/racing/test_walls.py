"""The car's outline against walls in closed form."""

import math

import numpy as np
import pytest

from rl.envs.racing.walls import hits_wall, in_cells
from tests.rl.racing.rooms import RESOLUTION, grid

LOW, HIGH = (-3.0, -3.0), (3.0, 3.0)
LENGTH, WIDTH = 0.58, 0.31


def hits(distance: np.ndarray, x: float, y: float, yaw: float) -> bool:
    column, row = (x - LOW[0]) / RESOLUTION, (y - LOW[1]) / RESOLUTION
    size = LENGTH / RESOLUTION, WIDTH / RESOLUTION
    return hits_wall(in_cells(distance, RESOLUTION), *distance.shape, column, row, yaw, *size)


@pytest.mark.parametrize("wall_angle", [0.0, 0.4, math.pi / 2, 2.5])
@pytest.mark.parametrize("yaw", [0.0, 0.3, math.pi / 4, 1.2, math.pi / 2, 2.8, -2.0])
def test_a_car_crashes_exactly_when_a_corner_passes_a_straight_wall(wall_angle, yaw):
    x, y = grid(LOW, HIGH)
    nx, ny = math.cos(wall_angle), math.sin(wall_angle)  # free where n·(x, y) < 1
    distance = 1.0 - (nx * x + ny * y)
    reach = 0.5 * LENGTH * abs(math.cos(yaw - wall_angle)) + 0.5 * WIDTH * abs(math.sin(yaw - wall_angle))
    for gap, crash in ((1e-3, False), (-1e-3, True)):
        away = 1.0 - reach - gap
        assert hits(distance, away * nx, away * ny, yaw) is crash


@pytest.mark.parametrize("yaw", [0.0, 0.5, 2.0])
def test_a_post_hits_the_middle_of_an_edge_that_no_corner_touches(yaw):
    x, y = grid(LOW, HIGH)
    distance = np.hypot(x, y) - 0.1
    for side in (1, -1):
        for size, direction in ((LENGTH, yaw), (WIDTH, yaw + math.pi / 2)):
            for gap, crash in ((6e-3, False), (-6e-3, True)):  # bilinear distances to a curve are off by a little
                away = side * (0.1 + 0.5 * size + gap)
                assert hits(distance, away * math.cos(direction), away * math.sin(direction), yaw) is crash


def test_beyond_the_map_there_is_wall():
    x, _ = grid(LOW, HIGH)
    assert not hits(np.full_like(x, 1.0), 0.0, 0.0, 0.0)
    assert hits(np.full_like(x, 1.0), 2.9, 0.0, 0.0)
    assert hits(np.full_like(x, 1.0), 20.0, -50.0, 0.0)

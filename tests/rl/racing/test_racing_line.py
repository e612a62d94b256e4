"""Racing lines and speed profiles against closed forms, and within their limits everywhere."""

import numpy as np
import pytest

from data.centreline import Centreline
from rl.envs.racing.generator import generate
from rl.envs.racing.named import TRACKS, track
from rl.envs.racing.racing_line import lap_time, minimum_curvature, speed_profile

GRIP, ACCELERATION, BRAKING, TOP_SPEED = 1.0489 * 9.81, 9.51, 7.0, 8.0


def circle(radius: float, half_width: float = 1.0) -> Centreline:
    angle = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    points = radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return Centreline.through(points, half_width, half_width)


def steps_between(points: np.ndarray) -> np.ndarray:
    return np.linalg.norm(np.roll(points, -1, axis=0) - points, axis=1)


def bending(points: np.ndarray, curvature: np.ndarray) -> float:
    """∫ κ² ds"""
    steps = steps_between(points)
    return float((curvature**2 * (steps + np.roll(steps, 1)) / 2).sum())


def test_on_a_circle_least_curvature_is_the_outside():
    line = minimum_curvature(circle(5.0), margin=0.35, shortness=0.0)
    assert line.offset == pytest.approx(-0.65, abs=1e-3)
    assert line.curvature == pytest.approx(1 / 5.65, rel=1e-3)
    assert line.length == pytest.approx(2 * np.pi * 5.65, rel=1e-3)


@pytest.mark.parametrize("shortness", [0.015, 0.02, 0.03])
def test_on_a_circle_curvature_and_length_balance_as_in_the_closed_form(shortness):
    """2π/R + λ 2πR²/R₀ is least at R³ = R₀/(2λ)."""
    line = minimum_curvature(circle(5.0, 1.5), margin=0.2, shortness=shortness)
    assert np.linalg.norm(line.points, axis=1) == pytest.approx(np.cbrt(5.0 / (2 * shortness)), rel=5e-3)


def test_a_right_angle_is_cut_from_outside_to_inside_to_outside():
    line = track("Harbour").racing_line
    centreline = track("Harbour").centreline
    corner = int(
        np.argmin(np.linalg.norm(centreline.points - [0.44, 11.56], axis=1))
    )  # the first corner, a right-hander
    before, after = (corner - 25) % len(line.offset), (corner + 15) % len(line.offset)
    assert line.offset[corner] == pytest.approx(-(centreline.right[corner] - 0.35), abs=0.05)
    assert line.offset[before] > line.offset[corner] + 0.3
    assert line.offset[after] > line.offset[corner] + 0.3


@pytest.mark.parametrize("name", TRACKS)
def test_a_racing_line_is_straighter_and_faster_and_off_the_walls(name):
    built = track(name)
    line, centre = built.racing_line, built.centreline
    assert line.points == pytest.approx(centre.points + line.offset[:, None] * centre.normal)
    assert (line.offset <= centre.left - 0.35 + 1e-6).all()
    assert (line.offset >= 0.35 - centre.right - 1e-6).all()
    assert bending(line.points, line.curvature) < bending(centre.points, centre.curvature)
    least = minimum_curvature(centre, shortness=0.0)
    assert bending(least.points, least.curvature) <= bending(line.points, line.curvature) * 1.001
    times = [
        lap_time(steps, speed_profile(curvature, steps, GRIP, ACCELERATION, BRAKING, TOP_SPEED))
        for points, curvature in ((line.points, line.curvature), (centre.points, centre.curvature))
        for steps in [steps_between(points)]
    ]
    assert times[0] < times[1]


def test_no_small_change_of_a_line_has_less_curvature():
    centre = generate(5)
    line = minimum_curvature(centre, shortness=0.0)
    least = bending(line.points, line.curvature)
    place = np.arange(len(centre.points))
    for seed in range(30):
        random = np.random.default_rng(seed)
        apart = (place - random.integers(len(place)) + len(place) // 2) % len(place) - len(place) // 2
        bump = random.choice([-0.05, 0.05]) * np.exp(-0.5 * (apart / random.uniform(5, 30)) ** 2)
        offset = np.clip(line.offset + bump, 0.35 - centre.right, centre.left - 0.35)
        changed = Centreline(centre.points + offset[:, None] * centre.normal, centre.left, centre.right, line.length)
        assert bending(changed.points, changed.curvature) > least * (1 - 2e-4)


def test_heading_follows_the_line():
    line = track("Esses").racing_line
    ahead = np.roll(line.points, -1, axis=0) - np.roll(line.points, 1, axis=0)
    assert np.cos(line.heading - np.arctan2(ahead[:, 1], ahead[:, 0])) == pytest.approx(1, abs=1e-4)


def test_a_road_too_narrow_for_the_margin_has_its_line_in_the_middle():
    angle = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    points = 5 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    line = minimum_curvature(Centreline.through(points, 0.2, 0.4), margin=0.35)
    assert line.offset == pytest.approx(-0.1, abs=2e-3)


@pytest.mark.parametrize("radius", [2.0, 5.0])
def test_speed_on_a_circle_is_what_the_grip_holds(radius):
    line = circle(radius)
    speed = speed_profile(line.curvature, steps_between(line.points), GRIP, ACCELERATION, BRAKING, 20.0)
    assert speed == pytest.approx(np.sqrt(GRIP * radius), rel=0.01)
    expected = 2 * np.pi * np.sqrt(radius / GRIP)
    assert lap_time(steps_between(line.points), speed) == pytest.approx(expected, rel=0.01)


def test_speed_between_two_corners_is_that_of_full_throttle_and_full_brakes():
    """One slow point on an otherwise straight line: v² = v₀² + 2as on the way out, v² = v₀² + 2bs on the way in."""
    curvature, steps = np.zeros(400), np.full(400, 0.1)
    curvature[100] = GRIP / 4.0  # 2 m/s
    speed = speed_profile(curvature, steps, GRIP, ACCELERATION, BRAKING, TOP_SPEED)
    after = 0.1 * ((np.arange(400) - 100) % 400)
    # With the grip all spent at the corner itself, throttle and brakes work from the next point on.
    out = 4.0 + 2 * ACCELERATION * np.maximum(after - 0.1, 0)
    into = 4.0 + 2 * BRAKING * np.maximum(40 - after - 0.1, 0)
    expected = np.sqrt(np.minimum(np.minimum(out, into), TOP_SPEED**2))
    expected[100] = 2.0
    assert speed == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", TRACKS)
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_friction_ellipse_holds_at_both_ends_of_every_step(name, share):
    line, grip = track(name).racing_line, share * GRIP
    steps = steps_between(line.points)
    speed = speed_profile(line.curvature, steps, grip, ACCELERATION, BRAKING, TOP_SPEED)
    along = (np.roll(speed, -1) ** 2 - speed**2) / (2 * steps)
    used = np.where(along > 0, along / ACCELERATION, along / BRAKING)
    across = speed**2 * line.curvature / grip
    assert (used**2 + across**2).max() <= 1 + 1e-9
    assert (used**2 + np.roll(across, -1) ** 2).max() <= 1 + 1e-9
    assert speed.max() <= TOP_SPEED
    # Nothing is given away: at every point the tyres, the motor or the top speed are at their limit.
    at_limit = np.maximum(used**2 + np.maximum(across, np.roll(across, -1)) ** 2, speed**2 / TOP_SPEED**2)
    assert np.median(at_limit) > 0.98

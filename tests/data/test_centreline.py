"""Centrelines against closed forms on a circle, and against each other."""

import numpy as np
import pytest

from data.centreline import FEATURES, LOOK_AHEAD, Centreline, closed_curvature, crossing, frenet_features, project
from data.errors import InputError

RADIUS = 5.0


def on_circle(angle, radius=RADIUS) -> np.ndarray:
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=-1)


@pytest.fixture(scope="module")
def circle() -> Centreline:
    """Driven anti-clockwise from (5, 0), given by points at uneven distances."""
    uneven = np.arange(1, 60) + np.random.default_rng(0).uniform(-0.3, 0.3, 59)
    return Centreline.through(on_circle(np.concatenate([[0.0], uneven]) * np.pi / 30), 1.0, 1.5)


@pytest.fixture(scope="module")
def wavy() -> Centreline:
    angle = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    return Centreline.through(on_circle(angle, (8 + 2 * np.sin(5 * angle))[:, None]), 1 + 0.3 * np.sin(angle), 0.9)


def test_a_circle_has_its_length_curvature_and_headings(circle):
    steps = np.linalg.norm(np.diff(circle.points, axis=0, append=circle.points[:1]), axis=1)
    assert circle.length == pytest.approx(2 * np.pi * RADIUS, rel=1e-4)
    assert steps == pytest.approx(circle.step, rel=1e-3)
    assert circle.step == pytest.approx(0.1, rel=0.01)
    assert circle.curvature == pytest.approx(1 / RADIUS, rel=0.02)
    angle = np.arctan2(circle.points[:, 1], circle.points[:, 0])
    assert np.cos(circle.heading - angle - np.pi / 2) == pytest.approx(1, abs=1e-5)
    assert circle.normal == pytest.approx(-circle.points / RADIUS, abs=2e-3)


def test_points_begin_at_the_first_one_given_and_go_its_way(circle):
    assert circle.points[0] == pytest.approx([RADIUS, 0])
    assert circle.points[5, 1] > 0


def test_a_projection_is_the_closed_form_on_a_circle(circle):
    random = np.random.default_rng(1)
    angle, radius = random.uniform(0, 2 * np.pi, 500), random.uniform(3.5, 6, 500)
    for place, (x, y) in enumerate(on_circle(angle, radius[:, None])):
        at, offset, vertex = project(circle.points, x, y, -1)
        assert 0 <= at < len(circle.points)
        assert np.cos(at * circle.step / RADIUS - angle[place]) == pytest.approx(1, abs=1e-6)
        assert offset == pytest.approx(RADIUS - radius[place], abs=1e-3)
        assert project(circle.points, x, y, (vertex + 7) % len(circle.points)) == (at, offset, vertex)


def test_a_projection_gives_back_where_a_pose_was_taken(wavy):
    s = np.random.default_rng(2).uniform(-wavy.length, 2 * wavy.length, 300)
    offset = np.random.default_rng(3).uniform(-0.6, 0.6, 300)
    x, y, heading = wavy.pose(s)
    for i in range(len(s)):
        aside = x[i] - offset[i] * np.sin(heading[i]), y[i] + offset[i] * np.cos(heading[i])
        at, found, _ = project(wavy.points, *aside, -1)
        apart = (at * wavy.step - s[i] + wavy.length / 2) % wavy.length - wavy.length / 2
        assert (apart, found) == pytest.approx((0, offset[i]), abs=5e-3)


@pytest.mark.parametrize("radius", [4.0, 6.0])
def test_a_car_on_a_parallel_line_makes_even_progress(circle, radius):
    places = [project(circle.points, x, y, -1)[0] for x, y in on_circle(np.linspace(0.1, 6, 3000), radius)]
    progress = np.diff(places)
    assert progress == pytest.approx(progress.mean(), rel=0.05)


def test_a_projection_near_a_vertex_does_not_jump_to_the_other_side_of_a_hairpin():
    x = np.linspace(0, 10, 101)
    there, back = np.stack([x, np.zeros(101)], axis=1), np.stack([x[::-1], np.full(101, 0.8)], axis=1)
    points = np.concatenate([there, back])
    at, offset, _ = project(points, 5.0, 0.6, 50)
    assert (at, offset) == pytest.approx((50, 0.6))
    at, offset, _ = project(points, 5.0, 0.6, -1)
    assert (at, offset) == pytest.approx((151, 0.2))


def test_frenet_features_are_the_closed_form_on_a_circle(circle):
    angle, offset, error, speed, yaw_rate = 1.2, 0.4, 0.3, 3.0, -0.5
    x, y = on_circle(angle, RADIUS - offset)
    yaw = angle + np.pi / 2 + error
    out = np.zeros(FEATURES + 2 * len(LOOK_AHEAD))
    at, found, _ = project(circle.points, x, y, -1)
    line = (circle.points, circle.heading, circle.left, circle.right, circle.step, np.array(LOOK_AHEAD))
    frenet_features(out, *line, x, y, yaw, speed, yaw_rate, at, found)
    expected = [offset, np.sin(error), np.cos(error), speed, yaw_rate, 1.0 - offset, 1.5 + offset]
    assert out[:FEATURES] == pytest.approx(expected, abs=2e-3)
    ahead = on_circle(angle + np.array(LOOK_AHEAD) / RADIUS) - [x, y]
    into_car = np.array([[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]])
    assert out[FEATURES:].reshape(-1, 2) == pytest.approx(ahead @ into_car, abs=5e-3)


def test_the_line_driven_backwards_turns_the_other_way_and_swaps_its_sides(wavy):
    back = wavy.reversed()
    assert (back.points[0], back.points[1]) == (pytest.approx(wavy.points[0]), pytest.approx(wavy.points[-1]))
    assert back.curvature[0] == pytest.approx(-wavy.curvature[0])
    assert np.array_equal(back.left[1:], wavy.right[:0:-1])
    assert np.array_equal(back.reversed().points, wavy.points)


def test_repeated_points_change_nothing():
    corners = on_circle(np.linspace(0, 2 * np.pi, 20, endpoint=False))
    plain = Centreline.through(corners, 1.0, 1.0)
    repeated = Centreline.through(np.concatenate([corners[:7], corners[6:], corners[:1]]), 1.0, 1.0)
    assert np.array_equal(plain.points, repeated.points)


def test_widths_follow_the_given_ones():
    angle = np.linspace(0, 2 * np.pi, 100, endpoint=False)
    line = Centreline.through(on_circle(angle), 1 + 0.5 * np.sin(angle), 2.0)
    assert line.left == pytest.approx(1 + 0.5 * line.points[:, 1] / RADIUS, abs=2e-3)
    assert line.right == pytest.approx(2.0)


def test_curvature_is_that_of_the_circle_even_at_uneven_steps():
    angle = np.cumsum(np.random.default_rng(4).uniform(0.01, 0.03, 300))
    angle *= 2 * np.pi / (angle[-1] + 0.02)
    assert closed_curvature(on_circle(angle)) == pytest.approx(0.2, rel=1e-3)
    assert closed_curvature(on_circle(-angle)) == pytest.approx(-0.2, rel=1e-3)


def test_crossings_are_those_that_brute_force_finds():
    random = np.random.default_rng(5)
    found = []
    for _ in range(200):
        angle = np.sort(random.uniform(0, 2 * np.pi, 8))
        points = on_circle(angle) if random.uniform() < 0.5 else random.uniform(0, 1, (5, 2))
        found.append(crossing(points, points) >= 0)
        assert found[-1] == _crosses_itself(points)
    assert 20 < sum(found) < 180
    ring = on_circle(np.arange(6))
    assert crossing(ring, 0.4 * ring) == -1
    assert crossing(ring, ring + 3.0) >= 0


def _crosses_itself(points: np.ndarray) -> bool:
    """By solving for the intersection of every two segments that do not share a point."""
    n = len(points)
    for i in range(n):
        for j in range(i + 2, n if i else n - 1):
            a, b, c, d = points[i], points[(i + 1) % n], points[j], points[(j + 1) % n]
            t, u = np.linalg.solve(np.stack([b - a, c - d], axis=1), c - a)
            if 0 <= t <= 1 and 0 <= u <= 1:
                return True
    return False


EIGHT = np.array([[0, 0], [4, 4], [8, 4], [8, 0], [4, 0], [0, 4.0], [-2, 2]])
SQUARE = np.array([[0, 0], [4, 0], [4, 4], [0, 4.0]])


@pytest.mark.parametrize(
    ("points", "left", "sentence"),
    [
        (EIGHT, 1.0, "crosses itself near x = "),
        (SQUARE[:3], 1.0, "has 3 different points"),
        (SQUARE, [1, 1, 0, 1], "1 widths that are not positive, first at point 2"),
        (np.where(SQUARE == 4, np.nan, SQUARE), 1.0, "3 points that are not finite, first at point 1"),
        (np.zeros((4, 3)), 1.0, r"points of shape \(4, 3\)"),
        (SQUARE * 1e6, 1.0, "check that its units are metres"),
    ],
)
def test_a_line_that_is_no_lap_is_refused_with_a_sentence(points, left, sentence):
    with pytest.raises(InputError, match=sentence):
        Centreline.through(points, left, 1.0)

"""The LiDAR against distances in closed form, and its noise."""

import numpy as np
import pytest
from scipy import stats

from rl.envs.racing.lidar import FIELD_OF_VIEW, RANGE, add_noise, beam_directions, scan
from rl.envs.racing.walls import in_cells
from tests.rl.racing.rooms import RESOLUTION, grid


def ranges(distance, low, place, yaw, beams, field_of_view=FIELD_OF_VIEW) -> tuple[np.ndarray, np.ndarray]:
    """Scanned ranges, and the beams' directions in the room."""
    directions = beam_directions(beams, field_of_view)
    out, scratch, active = np.empty(beams, np.float32), np.empty((4, beams), np.float32), np.empty(beams, np.uint32)
    column, row = (np.array(place) - low) / RESOLUTION
    cells = in_cells(distance, RESOLUTION)
    scan(out, cells, *distance.shape, column, row, yaw, directions, RANGE / RESOLUTION, RESOLUTION, scratch, active)
    return out, yaw + (np.linspace(-0.5, 0.5, beams) * field_of_view if beams > 1 else np.zeros(1))


@pytest.mark.parametrize("beams", [1, 2, 54, 1080])
@pytest.mark.parametrize(("place", "yaw"), [((0.0, 0.0), 0.0), ((1.3, -2.2), 0.7), ((-3.8, 0.8), 3.0)])
def test_ranges_in_a_circular_room_are_chords(beams, place, yaw):
    radius, low = 4.0, (-4.5, -4.5)
    x, y = grid(low, (4.5, 4.5))
    found, angle = ranges(radius - np.hypot(x, y), low, place, yaw, beams)
    along = place[0] * np.cos(angle) + place[1] * np.sin(angle)
    chord = -along + np.sqrt(along**2 + radius**2 - np.dot(place, place))
    assert found == pytest.approx(chord, abs=1e-3)


@pytest.mark.parametrize("beams", [1, 54, 1080])
@pytest.mark.parametrize(("aside", "yaw"), [(0.0, 0.0), (0.8, 0.3), (-1.0, 2.0)])
def test_ranges_in_a_corridor_are_those_of_its_walls_even_at_grazing_angles(beams, aside, yaw):
    half, low = 1.1, (-11.0, -1.5)
    _, y = grid(low, (11.0, 1.5))
    found, angle = ranges(half - np.abs(y), low, (0.0, aside), yaw, beams)
    with np.errstate(divide="ignore"):
        true = np.where(np.sin(angle) > 0, half - aside, half + aside) / np.abs(np.sin(angle))
    assert found == pytest.approx(np.clip(true, 0, RANGE), abs=2e-3)


def test_a_beam_that_meets_nothing_ends_at_its_range():
    x, _ = grid((-11.0, -11.0), (11.0, 11.0))
    found, _ = ranges(np.full_like(x, 50.0), (-11.0, -11.0), (0.0, 0.0), 0.0, 54)
    assert np.array_equal(found, np.full(54, RANGE, np.float32))


def test_the_map_ends_in_walls():
    low = (-3.0, -3.0)
    x, _ = grid(low, (3.0, 3.0))
    found, _ = ranges(np.full_like(x, 0.5), low, (0.0, 0.0), 0.0, 1)
    assert found[0] == pytest.approx(2.9, abs=0.011)  # the last cell but one is at 2.9


def test_no_beam_steps_over_a_thin_wall():
    low, gap = (-1.0, -1.0), 0.06  # metres: little more than a cell
    x, _ = grid(low, (9.0, 1.0))
    distance = np.maximum(4.0 - x, x - 4.0 - gap)  # free on both sides
    found, angle = ranges(distance, low, (0.0, 0.0), 0.0, 99, field_of_view=0.4)
    assert found == pytest.approx(4.0 / np.cos(angle), abs=0.01)


def test_in_a_wall_all_ranges_are_zero():
    x, _ = grid((-2.0, -2.0), (2.0, 2.0))
    found, _ = ranges(x, (-2.0, -2.0), (-1.0, 0.0), 0.0, 54)
    assert not found.any()


def test_beams_go_from_right_to_left():
    low = (-4.5, -4.5)
    x, y = grid(low, (4.5, 4.5))
    found, _ = ranges(4.0 - np.hypot(x, y), low, (0.0, 3.0), 0.0, 54)  # heading along x, the wall is close on the left
    assert found[40] < 2 < found[13]


def noisy(key: int, number: int, beams: int = 20_000, deviation: float = 1.0) -> np.ndarray:
    out = np.full(beams, 5.0, np.float32)
    add_noise(out, np.float32(deviation), np.float32(RANGE), np.uint64(key), number)
    return out


def test_noise_is_normal_with_the_given_deviation():
    drawn = (noisy(7, 0, 200_000, 0.8) - 5.0) / 0.8
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    assert drawn.std() == pytest.approx(1.0, abs=0.01)
    assert stats.kurtosis(drawn) == pytest.approx(0.0, abs=0.05)


def test_noise_is_independent_between_scans_keys_and_beams():
    one, next_scan, other_key = noisy(7, 0), noisy(7, 1), noisy(8, 0)
    assert np.array_equal(one, noisy(7, 0))
    assert not (one == next_scan).all()
    pairs = [(one, next_scan), (one, other_key), (one[:-1], one[1:])]
    assert max(abs(np.corrcoef(*pair)[0, 1]) for pair in pairs) < 0.03  # four standard errors of 20,000


def test_noise_leaves_ranges_within_their_limits():
    wild = noisy(1, 0, deviation=50.0)
    assert (wild.min(), wild.max()) == (0.0, RANGE)

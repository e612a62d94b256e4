"""Generated tracks: the same for a seed, as asked for, and never through themselves."""

import numpy as np
import pytest

from data.errors import InputError
from rl.envs.racing.generator import GAP, generate
from rl.envs.racing.named import track
from rl.envs.racing.track import Track, wall_polylines
from tests.rl.racing.geometry import meeting_segments

VARIETY = [{}, {"sharpness": 0.0}, {"sharpness": 1.0}, {"corners": 6, "length": 50.0, "width": 1.8}, {"corners": 16}]


@pytest.mark.parametrize("seed", range(0, 200, 40))
def test_neither_centreline_nor_walls_ever_cross(seed):
    for each in range(seed, seed + 40):
        line = generate(each, **VARIETY[each % len(VARIETY)])
        assert meeting_segments(line.points, *wall_polylines("generated", line)) == 0


def test_length_and_width_are_those_asked_for():
    for seed in range(10):
        line = generate(seed, length=65.0, width=2.0, width_spread=0.2)
        assert line.length == pytest.approx(65.0, rel=1e-3)
        assert line.left.min() >= 0.8 - 1e-9
        assert line.left.max() <= 1.2 + 1e-9
        assert np.ptp(line.left) > 0.05
    assert generate(0, width=2.0, width_spread=0.0).left == pytest.approx(1.0)


@pytest.mark.parametrize("corners", [5, 8, 12, 15])
def test_there_are_as_many_corners_as_asked_for(corners):
    """At full sharpness all corners are equally tight, with straights between: they can be counted in the curvature."""
    for seed in range(8):
        line = generate(seed, corners=corners, length=100.0, sharpness=1.0)
        turning = np.abs(line.curvature) > 0.3 * np.abs(line.curvature).max()
        assert (turning & ~np.roll(turning, 1)).sum() == corners


def test_sharpness_makes_corners_tighter_and_no_tighter_than_a_car_can_drive():
    tightness = []
    for sharpness in (0.0, 0.5, 1.0):
        lines = [generate(seed, sharpness=sharpness) for seed in range(20)]
        assert all(np.abs(line.curvature).max() < 1 / 1.2 for line in lines)
        tightness.append(np.mean([(line.curvature**2).mean() for line in lines]))
    assert tightness[0] * 1.3 < tightness[1]
    assert tightness[1] * 1.3 < tightness[2]


def test_a_seed_gives_one_track_and_another_seed_another():
    one, again, other = generate(3), generate(3), generate(4)
    assert np.array_equal(one.points, again.points)
    assert np.array_equal(one.left, again.left)
    assert one.points.shape != other.points.shape or not np.allclose(one.points, other.points)


def test_laps_go_either_way_round():
    clockwise = sum(generate(seed).curvature.mean() < 0 for seed in range(20))
    assert 3 < clockwise < 17


def test_a_generated_track_can_be_built():
    built = Track.from_centreline("generated", generate(1))
    assert built.distance.max() == pytest.approx(1.1, abs=0.15)
    assert GAP > 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"length": 12.0, "corners": 20}, "No track of 12 m with 20 corners .* make it longer or narrower"),
        ({"length": 20.0, "width": 9.0}, "No track of 20 m"),
        ({"corners": 3}, "choose 4 to 100"),
        ({"sharpness": 1.5}, "not between 0 and 1"),
        ({"length": -1.0}, "cannot be"),
        ({"width_spread": 1.0}, "width spread of 1.0"),
        ({"seed": -1}, "Seed -1 is negative"),
    ],
)
def test_the_impossible_is_refused_with_a_sentence(options, sentence):
    with pytest.raises(InputError, match=sentence):
        generate(**{"seed": 0, **options})


def test_a_mapping_names_a_generated_track():
    made = track({"seed": 3, "corners": 8})
    assert np.array_equal(made.centreline.points, generate(3, corners=8).points)
    assert track({"corners": 8, "seed": 3}) is made
    with pytest.raises(InputError, match="has no 'corner'; did you mean 'corners'"):
        track({"seed": 3, "corner": 8})
    with pytest.raises(InputError, match="needs a seed"):
        track({"corners": 8})

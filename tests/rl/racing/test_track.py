"""Tracks: exact distances, simple walls, and named circuits that a car can drive."""

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.path import Path as Outline
from scipy.spatial import cKDTree

from data.centreline import Centreline
from data.errors import InputError
from data.track_files import write_centreline
from rl.envs.racing.layouts import LAYOUTS
from rl.envs.racing.named import TRACKS, track
from rl.envs.racing.polygon import turns
from rl.envs.racing.track import Track
from tests.rl.racing.geometry import densely, meeting_segments

ANGLE = np.linspace(0, 2 * np.pi, 100, endpoint=False)
CIRCLE = 5 * np.stack([np.cos(ANGLE), np.sin(ANGLE)], axis=1)


def cells(built: Track) -> np.ndarray:
    """[H, W, 2] where the centres of the cells are."""
    rows, columns = built.distance.shape
    x, y = built.origin[0] + built.resolution * np.arange(columns), built.origin[1] + built.resolution * np.arange(rows)
    return np.stack(np.meshgrid(x, y), axis=-1)


@pytest.mark.parametrize("resolution", [0.05, 0.11])
def test_distances_in_a_ring_are_the_closed_form(resolution):
    ring = Track.from_centreline("ring", Centreline.through(CIRCLE, 1.0, 1.2), resolution)
    radius = np.linalg.norm(cells(ring), axis=-1)
    exact = np.minimum(radius - 4.0, 6.2 - radius)
    assert ring.distance[exact > -0.3] == pytest.approx(exact[exact > -0.3], abs=1e-3)
    assert (ring.distance[exact < -0.3] < -0.29).all()
    assert exact[[0, -1]].max() < -0.29
    assert exact[:, [0, -1]].max() < -0.29


@pytest.mark.parametrize("name", TRACKS)
def test_distances_are_those_to_the_drawn_walls(name):
    built = track(name)
    places = cells(built).reshape(-1, 2)
    picked = np.random.default_rng(0).choice(len(places), 4000, replace=False)
    places, distance = places[picked], built.distance.ravel()[picked]
    nearest, _ = cKDTree(np.concatenate([densely(wall) for wall in built.walls])).query(places)
    inside = np.logical_xor(*(Outline(wall).contains_points(places) for wall in built.walls))
    counted = inside | (nearest < 0.3)
    assert distance[counted] == pytest.approx(np.where(inside, nearest, -nearest)[counted], abs=3e-3)
    assert (distance[~inside] < 3e-3).all()


@pytest.mark.parametrize("name", TRACKS)
def test_a_named_track_can_be_driven_by_an_f1tenth_car(name):
    built = track(name)
    line = built.centreline
    assert 45 <= line.length <= 110
    assert min(line.left.min(), line.right.min()) >= 0.8
    assert max(line.left.max(), line.right.max()) <= 1.3
    radius = 1 / np.abs(line.curvature).max()
    assert radius > 1.2
    inside = np.maximum(line.curvature * line.left, -line.curvature * line.right)
    assert inside.max() < 0.9  # the walls need no cutting: they turn less sharply than they would fold
    assert meeting_segments(line.points, *built.walls) == 0
    on_line = cKDTree(np.concatenate(built.walls)).query(line.points)[0]
    assert on_line == pytest.approx(np.minimum(line.left, line.right), abs=0.02)


@pytest.mark.parametrize("name", TRACKS)
def test_the_corners_of_a_named_track_leave_its_straights_straight(name):
    corners = np.array(LAYOUTS[name], dtype=float)
    angle, edges = turns(corners[:, :2])
    tangent = corners[:, 2] * np.tan(np.abs(angle) / 2)
    assert (tangent + np.roll(tangent, 1) < edges).all()


def test_there_are_many_named_tracks_of_either_direction():
    assert len(TRACKS) >= 8
    assert all(name.isalnum() and name[0].isupper() for name in TRACKS)
    clockwise = [np.sum(track(name).centreline.curvature) < 0 for name in TRACKS]
    assert min(sum(clockwise), len(TRACKS) - sum(clockwise)) >= 3


def test_names_are_known_without_compilers_and_solvers():
    code = "import sys, rl.envs.racing.named as named; print(len(named.TRACKS), {'numba', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{len(TRACKS)} set()"


def test_a_corner_tighter_than_the_road_is_wide_has_walls_that_do_not_fold():
    """Corners of 0.3 m and 1 m of road on either side: on the inside four straight walls meet at right angles."""
    side, radius = 10.0, 0.3
    quarter = np.linspace(0, np.pi / 2, 20)
    corner = radius * np.stack([np.sin(quarter), 1 - np.cos(quarter)], axis=1) + [side / 2 - radius, -side / 2]
    turned = [np.linalg.matrix_power(np.array([[0, -1], [1, 0]]), k) for k in range(4)]
    corners = np.concatenate([corner @ rotation.T for rotation in turned])
    edge = np.linspace(0, 1, 40, endpoint=False)[1:, None]
    gaps = zip(corners, np.roll(corners, -1, axis=0), strict=True)
    dense = np.concatenate(
        [np.concatenate([[a], a + edge * (b - a)]) if np.linalg.norm(b - a) > 1 else [a] for a, b in gaps]
    )
    built = Track.from_centreline("square", Centreline.through(dense, 1.0, 1.0))
    assert meeting_segments(*built.walls) == 0
    places = cells(built)
    within = np.abs(places).max(axis=-1)
    inner = built.walls[0]  # driven anti-clockwise, the left wall is the inner one
    assert np.abs(np.abs(inner).max(axis=1) - 4.0).max() < 0.02
    assert (built.distance[within < 3.95] < 0).all()
    assert (built.distance[(within > 4.05) & (within < 5.5) & (np.abs(places).min(axis=-1) < 4)] > 0).all()


def test_stretches_that_overlap_are_refused():
    x = np.linspace(0, 10, 60)
    arc = np.linspace(-np.pi / 2, np.pi / 2, 20)[1:-1]
    end = 0.6 * np.stack([np.cos(arc), np.sin(arc)], axis=1)
    slot = np.concatenate([np.c_[x, 0 * x - 0.6], end + np.array([10, 0]), np.c_[x[::-1], 0 * x + 0.6], -end])
    with pytest.raises(InputError, match="The walls of track 'slot' cross near x = "):
        Track.from_centreline("slot", Centreline.through(slot, 1.0, 1.0))


def test_a_track_is_built_once(tmp_path):
    assert track("Oval") is track("Oval")
    assert track("Oval", resolution=0.1) is track("Oval", resolution=0.1)
    assert track("Oval", resolution=0.1).resolution == 0.1
    file = tmp_path / "ring.csv"
    write_centreline(file, Centreline.through(CIRCLE, 1.0, 1.0))
    first = track(str(file))
    assert track(file) is first
    assert first.name == "ring"
    write_centreline(file, Centreline.through(2 * CIRCLE, 1.0, 1.0))
    assert track(str(file)).centreline.length == pytest.approx(2 * first.centreline.length, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("Harbor", {}, "There is no track 'Harbor', .* did you mean 'Harbour'?"),
        ("nowhere/line.csv", {}, "'nowhere/line.csv' does not exist"),
        ("Oval", {"width": 2.0}, "has no option 'width'"),
        ("Oval", {"resolution": 0.0}, "choose a positive resolution"),
        ("Oval", {"resolution": 0.001}, "choose a coarser resolution"),
    ],
)
def test_a_track_that_cannot_be_had_is_a_sentence(name, options, sentence):
    with pytest.raises(InputError, match=sentence):
        track(name, **options)


def test_a_shoulder_moves_the_walls_and_not_the_road():
    ring = Centreline.through(CIRCLE, np.full(100, 1.0), np.full(100, 1.0))
    wide = Track.from_centreline("ring", ring, shoulder=0.3)
    radius = np.linalg.norm(cells(wide), axis=-1)
    near = np.abs(radius - 5) < 1.5
    np.testing.assert_allclose(wide.distance[near], 1.3 - np.abs(radius[near] - 5), atol=0.005)
    assert np.array_equal(wide.centreline.left, ring.left)
    with pytest.raises(InputError, match="cannot have a shoulder"):
        track("Forest", shoulder=-1.0)


def test_a_reversed_track_is_the_same_road_the_other_way_round():
    road, back = track("Forest"), track("Forest", reverse=True)
    assert np.allclose(back.centreline.points[1], road.centreline.points[-1])
    assert np.allclose(back.centreline.left[1], road.centreline.right[-1])
    np.testing.assert_allclose(road.distance, back.distance, atol=0.005)

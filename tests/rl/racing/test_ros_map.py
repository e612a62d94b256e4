"""ROS maps: our own tracks, drawn as pixels, come back within a few centimetres."""

import imageio.v3 as imageio
import numpy as np
import pytest
from scipy.ndimage import binary_dilation, map_coordinates
from scipy.spatial import cKDTree

from data.errors import InputError
from rl.envs.racing.named import track
from rl.envs.racing.track import Track
from tests.rl.racing.geometry import densely

PIXEL = 0.05


def distances(built: Track, places: np.ndarray) -> np.ndarray:
    column, row = ((places - built.origin) / built.resolution).T
    return map_coordinates(built.distance, [row, column], order=1, cval=-1.0)


def raster(built: Track, yaw: float) -> tuple[np.ndarray, np.ndarray]:
    """([H, W] where the road is, the first row being the lowest; the world's x and y of the lower left corner)."""
    turn = np.array([[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]])
    walls = np.concatenate(built.walls) @ turn  # in the map's frame
    corner = walls.min(axis=0) - 0.5
    width, height = np.ceil((walls.max(axis=0) + 0.5 - corner) / PIXEL).astype(int)
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    places = (corner + PIXEL * np.stack([x, y], axis=-1)) @ turn.T
    return distances(built, places.reshape(-1, 2)).reshape(height, width) > 0, turn @ corner


def write_map(folder, pixels: np.ndarray, corner=(0.0, 0.0), yaw: float = 0.0, name: str = "map", **settings) -> str:
    imageio.imwrite(folder / f"{name}.png", pixels[::-1].astype(np.uint8))
    written = {"image": f"{name}.png", "resolution": PIXEL, "origin": [float(corner[0]), float(corner[1]), yaw]}
    written |= {"negate": 0, "occupied_thresh": 0.65, "free_thresh": 0.196} | settings
    lines = [f"{key}: {value}" for key, value in written.items() if value is not None]
    (folder / f"{name}.yaml").write_text("\n".join(lines))
    return str(folder / f"{name}.yaml")


def assert_alike(read: Track, built: Track) -> None:
    line, original = read.centreline, built.centreline
    apart, where = cKDTree(densely(original.points)).query(line.points)
    assert apart.max() < 0.06
    assert line.length == pytest.approx(original.length, rel=0.01)
    at = (where * 0.005 / original.step).astype(int) % len(original.left)
    assert line.left == pytest.approx(original.left[at], abs=0.08)
    assert line.right == pytest.approx(original.right[at], abs=0.08)
    rows, columns = np.nonzero(built.distance > 0.1)
    places = np.array(built.origin) + built.resolution * np.stack([columns, rows], axis=1)
    assert distances(read, places) == pytest.approx(built.distance[rows, columns], abs=0.05)
    rows, columns = np.nonzero(built.distance < -0.1)
    places = np.array(built.origin) + built.resolution * np.stack([columns, rows], axis=1)
    assert (distances(read, places) < 0).all()


@pytest.mark.parametrize(("name", "clockwise"), [("Harbour", True), ("Hairpins", False)])
@pytest.mark.parametrize("yaw", [0.0, 0.4])
def test_a_track_drawn_as_a_map_comes_back(tmp_path, name, clockwise, yaw):
    built = track(name)
    road, corner = raster(built, yaw)
    read = track(write_map(tmp_path, np.where(road, 254, 0), corner, yaw), clockwise=clockwise)
    assert_alike(read, built)
    assert (read.centreline.curvature.mean() < 0) == clockwise
    from_origin = np.linalg.norm(read.centreline.points, axis=1)
    assert from_origin[0] == pytest.approx(from_origin.min(), abs=0.02)


def test_thin_walls_on_white_and_unknown_ground_are_a_track_too(tmp_path):
    """SLAM maps: white road and white infield, black lines for walls, grey beyond."""
    built = track("Oval")
    road, corner = raster(built, 0.0)
    pixels = np.where(road, 254, np.where(binary_dilation(road, iterations=2), 0, 254))
    pixels[:5] = 205
    assert_alike(track(write_map(tmp_path, pixels, corner)), built)


def test_negated_and_coloured_images_are_read(tmp_path):
    built = track("Oval")
    road, corner = raster(built, 0.0)
    plain = track(write_map(tmp_path, np.where(road, 254, 0), corner))
    negated = track(write_map(tmp_path, np.where(road, 1, 255), corner, negate=1, name="negated"))
    colours = np.repeat(np.where(road, 254, 0)[..., None], 4, axis=2)
    coloured = track(write_map(tmp_path, colours, corner, name="coloured"))
    assert np.array_equal(plain.distance, negated.distance)
    assert np.array_equal(plain.distance, coloured.distance)


def test_an_obstacle_on_the_road_is_a_wall_that_the_line_avoids(tmp_path):
    built = track("Oval")
    road, corner = raster(built, 0.0)
    free = track(write_map(tmp_path, np.where(road, 254, 0), corner))
    obstacle = np.array([10.0, 0.6])
    column, row = ((obstacle - corner) / PIXEL).astype(int)
    road[row - 2 : row + 3, column - 2 : column + 3] = False
    blocked = track(write_map(tmp_path, np.where(road, 254, 0), corner, name="blocked"))
    assert len(blocked.walls) == len(free.walls) + 1
    assert distances(blocked, obstacle[None])[0] < 0 < distances(free, obstacle[None])[0]
    nearest = [np.linalg.norm(read.centreline.points - obstacle, axis=1).min() for read in (free, blocked)]
    assert nearest[1] > nearest[0] + 0.1


def test_a_racing_line_on_a_map_stays_on_the_road(tmp_path):
    built = track("Harbour")
    road, corner = raster(built, 0.0)
    read = track(write_map(tmp_path, np.where(road, 254, 0), corner))
    assert distances(read, read.racing_line.points).min() > 0.25


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"image": "absent.png"}, "absent.png' of the map .* does not exist"),
        ({"resolution": None}, "lacks resolution"),
        ({"resolution": "fine"}, "no number"),
        ({"resolution": -1.0}, "not positive"),
        ({"origin": "[1.0, 2.0]"}, "the origin is a list of x, y and yaw"),
        ({"mode": "raw"}, "mode raw"),
        ({"image": "map.yaml"}, "cannot be read"),
        ({"negate": 1}, "shows no road that goes around"),
    ],
)
def test_a_faulty_map_is_refused_with_a_sentence(tmp_path, settings, sentence):
    road, corner = raster(track("Oval"), 0.0)
    path = write_map(tmp_path, np.where(road, 254, 0), corner, **settings)
    with pytest.raises(InputError, match=sentence) as raised:
        track(path)
    assert "\n" not in str(raised.value)


def test_a_road_with_a_gap_in_its_wall_is_refused(tmp_path):
    road, corner = raster(track("Oval"), 0.0)
    road[:40, 200:210] = True
    with pytest.raises(InputError, match="walls have no gaps"):
        track(write_map(tmp_path, np.where(road, 254, 0), corner))

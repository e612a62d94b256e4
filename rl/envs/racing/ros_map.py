"""Tracks from ROS occupancy maps (yaml + image).

The road is the free area that goes around in a ring without touching the edge of the image. Its centreline is the set
of places as far from the inner wall as from the outer one: always a single loop, since from a place nearer to one wall
the straight way to that wall never leaves the places that are nearer to it.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.centreline import Centreline, closed, enclosed_area
from data.errors import InputError
from rl.envs.racing.track import RESOLUTION, Track, signed_distance

SMOOTHING = 0.3  # metres along the centreline, to take the pixels' steps out of it
WALL_SMOOTHING = 2.0  # pixels along a wall
_OUTSIDE = 1  # label of whatever is joined to the edge of the padded image


@dataclass(frozen=True)
class Occupancy:
    """What is free, with the lower left corner of the map as its first cell."""

    free: np.ndarray  # [H, W] bool
    resolution: float
    origin: tuple[float, float, float]  # x, y of the corner of cell [0, 0], and the map's yaw

    def place(self, pixels: np.ndarray) -> np.ndarray:
        """World coordinates of (column, row), where whole numbers are the centres of cells."""
        x, y, yaw = self.origin
        u, v = ((pixels + 0.5) * self.resolution).T
        return np.stack([x + np.cos(yaw) * u - np.sin(yaw) * v, y + np.sin(yaw) * u + np.cos(yaw) * v], axis=1)


def read_ros_map(
    path: str | Path, *, resolution: float = RESOLUTION, clockwise: bool = False, spacing: float = 0.1
) -> Track:
    """The track in a map, whose direction of driving a map does not tell; laps begin nearest to the world's origin."""
    path = Path(path)
    if not spacing > 0:
        raise InputError(f"The map '{path}' cannot have a centreline with points every {spacing} m.")
    occupancy = read_occupancy(path)
    outside, inside = _around_and_within(path, occupancy.free)
    line, furthest = _between(path, outside, inside, occupancy, spacing)
    if (enclosed_area(line) > 0) == clockwise:
        line = line[::-1]
    line = np.roll(line, -int(np.hypot(*line.T).argmin()), axis=0)
    outer, inner = _outlines(~outside, occupancy), _outlines(inside, occupancy)
    left, right = (outer, inner) if clockwise else (inner, outer)
    centreline = Centreline.through(line, _room(line, left), _room(line, right), spacing, name=f"The line in '{path}'")
    distance, origin = signed_distance(path.stem, outer + inner, furthest, resolution)
    return Track(path.stem, centreline, distance, origin, resolution, (*outer, *inner))


def read_occupancy(path: Path) -> Occupancy:
    import imageio.v3 as imageio
    import yaml

    try:
        settings = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"'{path}' cannot be read as yaml ({' '.join(str(error).split())}).") from error
    image, resolution, origin, negate, free_below = _settings(path, settings)
    try:
        pixels = imageio.imread(image, plugin="pillow")
    except (OSError, ValueError) as error:
        raise InputError(f"The image '{image}' of the map '{path}' cannot be read ({error}).") from error
    if pixels.dtype == bool:
        pixels = pixels * np.uint8(255)
    if pixels.dtype != np.uint8:
        raise InputError(f"The image '{image}' has pixels of {pixels.dtype}; save it with 8 bits a channel.")
    if pixels.ndim == 3:  # colours count by their mean and transparency not at all, as in ROS's map_server
        pixels = pixels[..., : 3 if pixels.shape[2] >= 3 else 1].mean(axis=2)
    occupied = pixels / 255.0 if negate else 1 - pixels / 255.0
    return Occupancy(occupied[::-1] < free_below, resolution, origin)


def _settings(path: Path, settings) -> tuple[Path, float, tuple[float, float, float], bool, float]:
    needed = ("image", "resolution", "origin")
    missing = [key for key in needed if not isinstance(settings, dict) or key not in settings]
    if missing:
        raise InputError(f"The map '{path}' lacks {', '.join(missing)}; a ROS map yaml has {', '.join(needed)}.")
    if settings.get("mode", "trinary") == "raw":
        raise InputError(f"The map '{path}' has the mode raw; only trinary and scale tell walls from road.")
    try:
        resolution = float(settings["resolution"])
        x, y, yaw = (float(value) for value in settings["origin"])
        free_below = float(settings.get("free_thresh", 0.196))
        negate = bool(int(settings.get("negate", 0)))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"The map '{path}' has a resolution, origin, threshold or negate that is no number ({error}); "
            "the origin is a list of x, y and yaw."
        ) from error
    if not (resolution > 0 and np.isfinite([resolution, x, y, yaw]).all() and 0 < free_below <= 1):
        raise InputError(
            f"The map '{path}' has a resolution or a threshold that is not positive, or an infinite origin."
        )
    image = path.parent / str(settings["image"])
    if not image.is_file():
        raise InputError(f"The image '{image}' of the map '{path}' does not exist; put it beside the yaml.")
    return image, resolution, (x, y, yaw), negate, free_below


def _around_and_within(path: Path, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(what is not road and lies around its ring, what is not road and lies within). Obstacles on the road belong to
    whichever of the two they are nearer to."""
    from scipy.ndimage import distance_transform_edt, label

    areas, _ = label(free)
    sizes = np.bincount(areas.ravel())
    sizes[0] = 0  # whatever is not free
    sizes[np.concatenate([areas[0], areas[-1], areas[:, 0], areas[:, -1]])] = 0  # it goes on beyond the image
    for area in np.argsort(sizes)[::-1]:
        if sizes[area] == 0:
            break
        # Padded, so that all that reaches the edge of the image is one piece, and the first to be labelled.
        rest = label(np.pad(areas != area, 1, constant_values=True), np.ones((3, 3)))[0][1:-1, 1:-1]
        holes = np.bincount(rest.ravel(), minlength=3)
        holes[: _OUTSIDE + 1] = 0
        if 20 * holes.max() < sizes[area]:
            continue  # a room with a pillar at most, but no ring
        outside, inside = rest == _OUTSIDE, rest == holes.argmax()
        if np.count_nonzero(holes) > 1:
            nearer_inside = distance_transform_edt(~inside) < distance_transform_edt(~outside)
            belongs = np.bincount(rest.ravel(), nearer_inside.ravel(), len(holes)) > 0.5 * holes
            belongs[holes == 0] = False
            inside = belongs[rest]
            outside = (rest > 0) & ~inside
        return outside, inside
    raise InputError(
        f"The map '{path}' shows no road that goes around in a ring between two walls; check its thresholds, "
        "negate, and that walls have no gaps."
    )


def _outlines(mask: np.ndarray, occupancy: Occupancy) -> list[np.ndarray]:
    """The boundaries of a mask as closed polylines in the world."""
    from contourpy import contour_generator
    from scipy.ndimage import gaussian_filter1d

    loops = contour_generator(z=np.pad(mask, 1).astype(np.float64)).lines(0.5)
    return [
        occupancy.place(gaussian_filter1d(loop[:-1] - 1, min(WALL_SMOOTHING, len(loop) / 16), axis=0, mode="wrap"))
        for loop in loops
    ]


def _between(
    path: Path, outside: np.ndarray, inside: np.ndarray, occupancy: Occupancy, spacing: float
) -> tuple[np.ndarray, float]:
    """([n, 2] the places as far from the one mask as from the other, smoothed; metres from road to wall at most)."""
    from contourpy import contour_generator
    from scipy.ndimage import distance_transform_edt, gaussian_filter1d

    to_inside, to_outside = distance_transform_edt(~inside), distance_transform_edt(~outside)
    loops = contour_generator(z=to_inside - to_outside).lines(0.0)
    line = closed(occupancy.place(max(loops, key=len)[:-1]))
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
    if along[-1] < 20 * spacing:
        raise InputError(f"The road in the map '{path}' is only {along[-1]:.2f} m around; check the map's resolution.")
    even = np.linspace(0, along[-1], round(along[-1] / spacing), endpoint=False)
    line = np.stack([np.interp(even, along, values) for values in line.T], axis=1)
    furthest = float(np.minimum(to_inside, to_outside).max()) * occupancy.resolution
    return gaussian_filter1d(line, SMOOTHING / spacing, axis=0, mode="wrap"), furthest


def _room(line: np.ndarray, walls: list[np.ndarray]) -> np.ndarray:
    """[n] metres from each point to the nearest wall, whose points are no more than a pixel apart."""
    from scipy.spatial import cKDTree

    return cKDTree(np.concatenate(walls)).query(line)[0]

"""Which track a DeepRacer job drove on, and what its poses look like from the centreline."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numba import njit

from data.centreline import FEATURES, Centreline, closed, frenet_features, project
from data.errors import InputError
from data.track_files import read_centreline

SAME_LENGTH = 1e-3  # metres; a log repeats the waypoints' own length to the last digits
_LOOKED_AT = 2_000  # poses


@dataclass(frozen=True, eq=False)
class Poses:
    """Where a car was, row by row."""

    x: np.ndarray  # [R] metres
    y: np.ndarray
    yaw: np.ndarray  # [R] radians
    speed: np.ndarray  # [R] m/s
    yaw_rate: np.ndarray  # [R] rad/s
    fresh: np.ndarray  # [R] whether a drive begins here: the car may be anywhere

    def at(self, rows: np.ndarray) -> "Poses":
        return Poses(*(column[rows] for column in vars(self).values()))


def tracks_folder(path: Path) -> Path:
    """The folder `tracks` beside a job or beside a folder that it lies in."""
    tried = [folder / "tracks" for folder in (path.absolute(), *path.absolute().parents)]
    for folder in tried:
        if any(folder.glob("*.npy")):
            return folder
    raise InputError(
        f"There are no waypoints for the DeepRacer job '{path}': none of '{tried[0]}', '{tried[1]}' and so on up holds "
        "a .npy file; put the tracks of deepracer-analysis there."
    )


def matching_track(job: str, folder: Path, length: float, poses: Poses) -> Path:
    """The waypoint file that is as long as the log says and lies where the car drove, in its direction if there is one.

    Files with the same waypoints exist, for tracks that only look different; the first by name is as good as any.
    """
    lengths = {file: _length(file) for file in sorted(folder.glob("*.npy"))}
    as_long = [file for file, found in lengths.items() if abs(found - length) <= SAME_LENGTH]
    if not as_long:
        closest = sorted(lengths, key=lambda file: abs(lengths[file] - length))[:1]
        hint = "".join(f" (the nearest is {file.name}, {lengths[file]:.3f} m)" for file in closest)
        raise InputError(
            f"DeepRacer job '{job}' drove on a track of {length:.3f} m, which is none of the {len(lengths)} in "
            f"'{folder}'{hint}; put its waypoints there."
        )
    rows = np.linspace(0, len(poses.x) - 1, min(len(poses.x), _LOOKED_AT)).astype(int)
    position, yaw = np.stack([poses.x[rows], poses.y[rows]], axis=1), poses.yaw[rows]
    there, facing = {}, {}
    for file in as_long:
        there[file], facing[file] = _overlay(np.load(file, allow_pickle=False), position, yaw)
    matching = [file for file in as_long if there[file]]
    if not matching:
        raise InputError(
            f"DeepRacer job '{job}' did not drive where the tracks of its length lie (tried in '{folder}': "
            f"{', '.join(file.name for file in as_long)}); put the waypoints of its track there."
        )
    return min(matching, key=lambda file: (facing[file] < 0.5, file.name))


def _length(file: Path) -> float:
    """Metres round the centre of a waypoint file; infinite if it is none."""
    try:
        waypoints = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return np.inf  # not ours to judge: another track may be the one
    if waypoints.ndim != 2 or waypoints.shape[1] != 6 or waypoints.dtype.kind not in "fiu":
        return np.inf
    return float(np.linalg.norm(np.diff(closed(waypoints[:, :2]), axis=0), axis=1).sum())


def _overlay(waypoints: np.ndarray, position: np.ndarray, yaw: np.ndarray) -> tuple[bool, float]:
    """Whether the poses lie on the track, by their median, and which share of them faces along it."""
    centre = waypoints[:, :2]
    ahead = np.roll(centre, -1, axis=0) - np.roll(centre, 1, axis=0)
    distance = np.linalg.norm(position[:, None] - centre, axis=2)  # [poses, waypoints]
    at = distance.argmin(axis=1)
    width = np.linalg.norm(waypoints[:, 2:4] - waypoints[:, 4:6], axis=1).max()
    spacing = np.linalg.norm(np.diff(centre, axis=0), axis=1).max()
    along = np.cos(yaw) * ahead[at, 0] + np.sin(yaw) * ahead[at, 1]
    return bool(np.median(distance.min(axis=1)) <= (width + spacing) / 2), float(np.mean(along > 0))


@dataclass(frozen=True, eq=False)
class Seen:
    """Poses seen from the centreline, in the direction in which each drive began."""

    features: np.ndarray  # [R, 7 + 2 · look-aheads] float32: the simulator's Frenet observation
    laps: np.ndarray  # [R] position along the line, in [0, 1)
    mostly_reversed: bool  # more rows are driven against the order of the waypoints than with it


def seen_from(track: Path, poses: Poses, look_ahead: Sequence[float]) -> Seen:
    """A simulator may be told to alternate directions; the car is put down facing the way it is to go."""
    line = read_centreline(track)
    _, at_start = _see(line, poses.at(poses.fresh), look_ahead)
    forward = (at_start[:, 2] > 0)[np.cumsum(poses.fresh) - 1]  # cos Δψ
    laps, features = np.empty(len(poses.x)), np.empty((len(poses.x), at_start.shape[1]))
    for rows, way in ((forward, line), (~forward, line.reversed())):
        laps[rows], features[rows] = _see(way, poses.at(rows), look_ahead)
    return Seen(features.astype(np.float32), laps, bool(np.mean(forward) < 0.5))


def _see(line: Centreline, poses: Poses, look_ahead: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """[R] laps and [R, F] features."""
    places = np.empty(len(poses.x))
    features = np.empty((len(poses.x), FEATURES + 2 * len(look_ahead)))
    _fill(
        *(places, features, line.points, line.heading, line.left, line.right, line.step, np.array(look_ahead, float)),
        *(poses.x, poses.y, poses.yaw, poses.speed, poses.yaw_rate, poses.fresh),
    )
    return places / len(line.points), features


@njit(cache=True, nogil=True)
def _fill(places, features, points, heading, left, right, step, look_ahead, x, y, yaw, speed, yaw_rate, fresh):
    near = -1
    for i in range(x.shape[0]):
        place, offset, near = project(points, x[i], y[i], -1 if fresh[i] else near)
        frenet_features(
            features[i],
            points,
            heading,
            left,
            right,
            step,
            look_ahead,
            x[i],
            y[i],
            yaw[i],
            speed[i],
            yaw_rate[i],
            place,
            offset,
        )
        places[i] = place

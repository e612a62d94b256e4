"""Tracks by name or from a file, each built once in a process."""

from collections.abc import Mapping
from functools import cache, lru_cache
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from data.errors import InputError, nearest
from rl.envs.racing.layouts import LAYOUTS
from rl.envs.racing.polygon import rounded_polygon

if TYPE_CHECKING:
    from data.centreline import Centreline
    from rl.envs.racing.track import Track

TRACKS = tuple(LAYOUTS)
_OF_A_TRACK = {"resolution", "reverse", "shoulder"}
_OPTIONS = {
    ".csv": {*_OF_A_TRACK, "spacing", "width"},
    ".npy": {*_OF_A_TRACK, "spacing"},
    ".yaml": {"resolution", "spacing", "clockwise"},
    ".yml": {"resolution", "spacing", "clockwise"},
}


def track(name_or_path: str | Mapping[str, object], **options) -> "Track":
    """One of TRACKS, or the track in a file: a centreline or raceline csv, DeepRacer waypoints npy, a ROS map yaml.

    A mapping of arguments of `generate`, e.g. {"seed": 7, "corners": 12}, makes a track at random.

    Options are those of Track.from_centreline (a ROS map has its walls already: `resolution` alone) and, for a file,
    those of its reader.
    """
    if isinstance(name_or_path, Mapping):
        _check_options("generated", options, _OF_A_TRACK)
        return _generated(tuple(sorted(name_or_path.items())), tuple(sorted(options.items())))
    name = str(name_or_path)
    if name in LAYOUTS:
        _check_options(name, options, _OF_A_TRACK)
        return _named(name, tuple(sorted(options.items())))
    path = Path(name).expanduser()
    kind = path.suffix.lower()
    if kind not in _OPTIONS:
        raise InputError(
            f"There is no track '{name}', nor is it a file of kind {', '.join(_OPTIONS)}; {nearest(name, TRACKS)}"
        )
    if not path.is_file():
        raise InputError(f"The track file '{name}' does not exist; check its path.")
    _check_options(name, options, _OPTIONS[kind])
    changed = path.stat()
    return _from_file(str(path.resolve()), (changed.st_mtime_ns, changed.st_size), tuple(sorted(options.items())))


def _check_options(name: str, options: dict[str, object], known: set[str]) -> None:
    for option in options:
        if option not in known:
            raise InputError(f"The track '{name}' has no option '{option}'; {nearest(option, known)}")


@cache
def _named(name: str, options: tuple[tuple[str, object], ...]) -> "Track":
    from rl.envs.racing.track import Track

    return Track.from_centreline(name, named_centreline(name), **dict(options))


@lru_cache(maxsize=256)
def _generated(arguments: tuple[tuple[str, object], ...], options: tuple[tuple[str, object], ...]) -> "Track":
    from rl.envs.racing.generator import generate
    from rl.envs.racing.track import Track

    known = signature(generate).parameters
    for name, _ in arguments:
        if name not in known:
            raise InputError(f"A generated track has no '{name}'; {nearest(name, known)}")
    if "seed" not in dict(arguments):
        raise InputError("A generated track needs a seed, e.g. {'seed': 7}.")
    centreline = generate(**dict(arguments))
    return Track.from_centreline(f"generated {dict(arguments)['seed']}", centreline, **dict(options))


@lru_cache(maxsize=256)
def _from_file(path: str, changed: tuple[int, int], options: tuple[tuple[str, object], ...]) -> "Track":
    """`changed` is here for the cache alone: a file that is written anew is read anew."""
    from data.track_files import read_centreline
    from rl.envs.racing.ros_map import read_ros_map
    from rl.envs.racing.track import Track

    options = dict(options)
    if Path(path).suffix.lower() in (".yaml", ".yml"):
        return read_ros_map(path, **options)
    of_track = {key: options.pop(key) for key in _OF_A_TRACK if key in options}
    return Track.from_centreline(Path(path).stem, read_centreline(path, **options), **of_track)


def named_centreline(name: str) -> "Centreline":
    from data.centreline import Centreline

    points, widths = rounded_polygon(np.array(LAYOUTS[name], dtype=np.float64))
    return Centreline.through(points, widths, widths, name=f"Track '{name}'")

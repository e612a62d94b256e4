"""D4RL by name: `hopper-medium-replay` → the published file, from the cache, the d4rl package or the network.

There is no stand-in: a name whose file cannot be had is an error that says which file to put where.
The addresses are DATASET_URLS of `d4rl/infos.py`, D4RL 1.1.
"""

import http.client
import importlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import h5py

from data.errors import InputError

ADDRESS = "http://rail.eecs.berkeley.edu/datasets/offline_rl/"
TIMEOUT_SECONDS = 30  # of silence, not of the whole download

_MUJOCO = ("halfcheetah", "hopper", "walker2d", "ant")
_QUALITIES = ("random", "medium", "expert", "medium-replay", "medium-expert", "full-replay")
_MAZES = {"u-maze": "umaze", "big-maze": "medium", "hardest-maze": "large"}


@dataclass(frozen=True)
class Archived:
    """A published D4RL dataset."""

    name: str
    path: str  # below ADDRESS
    env_id: str | None  # the Gymnasium environment that can evaluate it
    time_limit: int  # D4RL's own, for files that store no timeouts


def _mujoco() -> dict[str, str]:
    paths = {}
    for task in _MUJOCO:
        for quality in _QUALITIES:
            file = f"{task}_{quality}".replace("-", "_")
            paths |= {f"{task}-{quality}-v{v}": f"gym_mujoco_v{v}/{file}-v{v}.hdf5" for v in (1, 2)}
            if quality not in ("medium-replay", "full-replay"):
                paths[f"{task}-{quality}-v0"] = f"gym_mujoco/{file}.hdf5"
        mixed = task.replace("walker2d", "walker")  # the v0 replays were published under another name
        paths[f"{task}-medium-replay-v0"] = f"gym_mujoco/{mixed}_mixed.hdf5"
    return paths | {"ant-random-expert-v0": "gym_mujoco/ant_random_expert.hdf5"}


def _adroit() -> dict[str, str]:
    paths = {}
    for task in ("pen", "hammer", "relocate", "door"):
        paths |= {
            f"{task}-human-v0": f"hand_dapg/{task}-v0_demos_clipped.hdf5",
            f"{task}-cloned-v0": f"hand_dapg/{task}-demos-v0-bc-combined.hdf5",
            f"{task}-expert-v0": f"hand_dapg/{task}-v0_expert_clipped.hdf5",
        }
        for quality in ("human", "cloned", "expert"):
            paths[f"{task}-{quality}-v1"] = f"hand_dapg_v1/{task}-{quality}-v1.hdf5"
    return paths


def _maze2d() -> dict[str, str]:
    paths = {
        "maze2d-open-v0": "maze2d/maze2d-open-sparse.hdf5",
        "maze2d-open-dense-v0": "maze2d/maze2d-open-dense.hdf5",
    }
    for maze in ("umaze", "medium", "large", "eval-umaze", "eval-medium", "eval-large"):
        paths[f"maze2d-{maze}-v1"] = f"maze2d/maze2d-{maze}-sparse-v1.hdf5"
        paths[f"maze2d-{maze}-dense-v1"] = f"maze2d/maze2d-{maze}-dense-v1.hdf5"
    return paths


def _antmaze() -> dict[str, str]:
    paths = {}
    for layout, maze in _MAZES.items():
        for goals in (False, True):
            kind = ("-diverse" if goals else "") if maze == "umaze" else ("-diverse" if goals else "-play")
            starts = goals or maze != "umaze"
            file = f"Ant_maze_{layout}_noisy_multistart_{starts}_multigoal_{goals}_sparse"
            paths[f"antmaze-{maze}{kind}-v0"] = f"ant_maze_new/{file}.hdf5"
            paths[f"antmaze-{maze}{kind}-v2"] = f"ant_maze_v2/{file}_fixed.hdf5"
    return paths


_KITCHEN = {
    "kitchen-complete-v0": "kitchen/mini_kitchen_microwave_kettle_light_slider-v0.hdf5",
    "kitchen-partial-v0": "kitchen/kitchen_microwave_kettle_light_slider-v0.hdf5",
    "kitchen-mixed-v0": "kitchen/kitchen_microwave_kettle_bottomburner_light-v0.hdf5",
}

PATHS = _mujoco() | _adroit() | _maze2d() | _antmaze() | _KITCHEN

# Ant is not among them: D4RL's logs have 111 observations, Gymnasium's Ant-v5 has 105 and Ant-v4 27.
_EVALUATED_IN = {"halfcheetah": "HalfCheetah-v5", "hopper": "Hopper-v5", "walker2d": "Walker2d-v5"}

# The longest matching beginning of a name counts; 1000 where none matches.
_TIME_LIMITS = {
    "pen": 100,
    "hammer": 200,
    "relocate": 200,
    "door": 200,
    "kitchen": 280,
    "antmaze-umaze": 700,
    "maze2d-open": 150,
    "maze2d-umaze": 300,
    "maze2d-eval-umaze": 300,
    "maze2d-medium": 600,
    "maze2d-eval-medium": 600,
    "maze2d-large": 800,
    "maze2d-eval-large": 800,
}


def archived(name: str) -> Archived | None:
    """The dataset that a name means: `-` or `_`, with a version or else the newest; None if D4RL has none."""
    name = name.strip().lower().replace("_", "-")
    if name not in PATHS:
        versions = [known for known in PATHS if re.fullmatch(re.escape(name) + r"-v\d", known)]
        if not versions:
            return None
        name = max(versions)
    limits = [steps for start, steps in _TIME_LIMITS.items() if name.startswith(f"{start}-")]
    return Archived(name, PATHS[name], _EVALUATED_IN.get(name.split("-")[0]), limits[0] if limits else 1000)


def file_of(dataset: Archived) -> Path:
    """The dataset's file: cached, else through the d4rl package, else downloaded."""
    folder = Path(os.environ.get("D4RL_DATASET_DIR") or "~/.d4rl/datasets").expanduser()
    target = folder / Path(dataset.path).name
    if target.exists():
        return target
    address = ADDRESS + dataset.path
    by_package, package_fault = _through_package(address)
    if by_package is not None:
        return by_package
    print(f"Downloading {dataset.name} from {address}", file=sys.stderr)
    try:
        download(address, target)
    except (OSError, http.client.HTTPException, InputError) as error:
        raise InputError(
            f"D4RL dataset '{dataset.name}' is not in the cache, {package_fault}, and its download failed "
            f"({error}); fetch {address} on another machine and put it at '{target}'."
        ) from error
    return target


def _through_package(address: str) -> tuple[Path | None, str]:
    """The file as the d4rl package fetches it, or why it did not."""
    if importlib.util.find_spec("d4rl") is None:
        return None, "the d4rl package is not installed"
    try:
        offline_env = importlib.import_module("d4rl.offline_env")
        return Path(offline_env.download_dataset_from_url(address)), ""
    except Exception as error:  # d4rl raises a bare Exception where MuJoCo 2.1 is missing; the reason is told
        return None, f"the d4rl package failed ({_first_line(error)})"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".:; ") if lines else type(error).__name__


def download(address: str, target: Path) -> None:
    """Fetch an HDF5 file; `target` exists only when it is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as reply,
        tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as partial,
    ):
        try:
            shutil.copyfileobj(reply, partial, 1 << 20)
            partial.flush()
            expected = reply.headers.get("Content-Length")
            if expected is not None and int(expected) != partial.tell():
                raise InputError(f"only {partial.tell():,} of {int(expected):,} bytes arrived")
            if not h5py.is_hdf5(partial.name):
                raise InputError("what arrived is not an HDF5 file")
            os.replace(partial.name, target)
        except BaseException:  # also on Ctrl-C: half a file must not stay
            os.unlink(partial.name)
            raise

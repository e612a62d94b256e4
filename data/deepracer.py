"""Real AWS DeepRacer logs: sim-traces become transitions that our simulator could have logged.

What a row of a trace means was read in the simulator's public source and checked against the logs:

- X and Y are the middle of the bumper, FRONT ahead of the middle of the car, which is what our simulator calls x and y.
- A row's action is sent when its pose is read and turns the car from then on: rows n and n + 1 are state and next state
  of action n. Where row n + 1 says `off_track`, that transition is a terminal; its own action has no consequence.
- `tstamp` is read after the next camera image has arrived: a pose belongs to the stamp of the row before.
- In rows `prepare` and `pause` the car is held where it will start, and actions are not carried out: they are left out.
- The car starts standing. Newer simulators put it back to its start one row late; the row before that is left out too.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data.dataset import Dataset, Environment
from data.deepracer_traces import (
    FAILED,
    FINISHED,
    MAX_SPEED,
    MAX_STEERING,
    STANDING,
    Traces,
    has_traces,
    read_traces,
    trace_files,
)
from data.errors import InputError
from data.spaces import Spaces
from data.validation import validate

ENV_ID = "FedRacing/Custom-v0"
LOOK_AHEAD = (0.2, 0.4, 0.6, 0.8, 1.0, 1.3, 1.6, 2.0, 2.5, 3.0)  # metres; a lap has 17
SUBSTEPS = 7  # physics steps of 0.01 s between two actions …
PERIOD = 1 / 15  # … because the camera, at 15 images a second, paces the car
FRONT = 0.14  # metres
SHOULDER = 0.225  # metres beside the road: a car fails when all its wheels have left it, not when the first does
STALL = 0.25  # seconds between two poses: the simulation hung while the car went on, as in no other transition
PHASES = ["training", "evaluation"]
_BACK = 2e-3  # metres; a DeepRacer has no reverse gear


def is_deepracer(path: Path) -> bool:
    """Whether a path is a sim-trace file or a folder with sim-traces somewhere below."""
    return has_traces(path)


def deepracer_jobs(path: Path) -> dict[str, Path]:
    """The jobs at or below a path: name → what `load_deepracer` takes. Workers and evaluations belong to their job."""
    if path.is_file():
        return {path.stem: path}
    jobs = sorted(trace_files(path))
    inner = {job.relative_to(path).as_posix(): job for job in jobs if job != path}
    if len(jobs) == len(inner):
        return inner
    if inner:
        raise InputError(
            f"'{path}' is a DeepRacer job with other jobs in its folder ({', '.join(inner)}); "
            "pass one of them, or give each a folder of its own."
        )
    return {path.absolute().name: path}


def load_deepracer(path: Path, name: str, tracks: Path | None = None) -> Dataset:
    """All episodes of one job, as rows of our simulator's Frenet observation.

    tracks: the folder of waypoint files; by default the nearest folder `tracks` beside or above the job.
    """
    from data import deepracer_tracks  # numba takes a second that other logs do not need

    traces = read_traces(_files_of_one_job(path, name))
    drives = Drives.of(traces)
    if not drives.linked.any():
        raise InputError(f"DeepRacer job '{name}' has no two rows in which the car drives; log longer episodes.")
    running = np.flatnonzero(drives.running)
    poses = deepracer_tracks.Poses(*drives.motion[running].T.copy(), fresh=drives.fresh[running])
    folder = tracks or deepracer_tracks.tracks_folder(path)
    track = deepracer_tracks.matching_track(name, folder, _track_length(name, traces), poses)
    seen = deepracer_tracks.seen_from(track, poses, LOOK_AHEAD)
    here = np.flatnonzero(drives.linked)  # rows of the traces that are states of a transition
    columns = _transitions(traces, drives, here, seen.features, seen.laps)
    limit = np.array([np.radians(MAX_STEERING), MAX_SPEED], np.float32)
    return validate(
        name,
        columns,
        spaces=Spaces(seen.features.shape[1], np.array([-limit[0], 0], np.float32), limit),
        environment=_environment(track, seen.mostly_reversed),
        extra={"phase": traces.evaluation[here].astype(np.int64), "iteration": traces.iteration[here]},
        labels={"phase": PHASES},
        notes=(_note(name, traces, drives),),
    )


def _files_of_one_job(path: Path, name: str) -> list[Path]:
    jobs = trace_files(path)
    own = jobs.get(path.parent if path.is_file() else path)
    if own:
        return own
    if not jobs:
        raise InputError(f"'{name}' is no DeepRacer job: there are no sim-traces in it; pass the folder of a job.")
    raise InputError(
        f"'{name}' holds {len(jobs)} DeepRacer jobs ({', '.join(deepracer_jobs(path))}); pass one of them."
    )


def _track_length(name: str, traces: Traces) -> float:
    lengths = traces["track_len"]
    other = np.flatnonzero(np.abs(lengths - lengths[0]) > 1e-3)
    if len(other):
        raise InputError(
            f"DeepRacer job '{name}' drove on tracks of {lengths[0]:.3f} and {lengths[other[0]]:.3f} m (the latter in "
            f"'{traces.files[traces.file[other[0]]]}'); load what was driven on each track by itself."
        )
    return float(lengths[0])


@dataclass(frozen=True, eq=False)
class Drives:
    """Which rows follow each other in one drive, and how the car moves in them."""

    running: np.ndarray  # [R] the car drives, or has just ended its drive
    fresh: np.ndarray  # [R] the row before belongs to another drive
    linked: np.ndarray  # [R] the next row is the next state
    put_back: np.ndarray  # [R] the next row is where the drive begins: the car was put back there
    stalled: np.ndarray  # [R] it would be, had the simulation not hung
    motion: np.ndarray  # [R, 5] x, y, yaw, speed, yaw rate, of the middle of the car

    @classmethod
    def of(cls, traces: Traces) -> "Drives":
        yaw = np.radians(traces["yaw"])
        x, y = traces["X"] - FRONT * np.cos(yaw), traces["Y"] - FRONT * np.sin(yaw)
        dx, dy, turn = (np.diff(column, append=column[-1]) for column in (x, y, yaw))  # to the next row
        turn = (turn + np.pi) % (2 * np.pi) - np.pi

        # An evaluation may go on from lap to lap, under a new episode number: steps tell what follows what.
        follows = np.append((np.diff(traces["steps"]) == 1) & (np.diff(traces.file) == 0), False)
        running = ~traces.has_status(STANDING)
        moves = follows & running & _next(running) & ~traces.has_status((*FINISHED, *FAILED))
        forward = dx * np.cos(yaw) + dy * np.sin(yaw)
        put_back = moves & ~_before(moves) & (forward < -_BACK)
        moves &= ~put_back

        clock = np.where(_before(follows), np.roll(traces["tstamp"], 1), traces["tstamp"] - PERIOD)
        duration = np.where(moves, np.diff(clock, append=clock[-1]), 0.0)
        speed, yaw_rate = (_rate(step, duration, moves) for step in (np.hypot(dx, dy), turn))
        stalled = moves & (duration > STALL)
        linked = moves & ~stalled
        motion = np.stack([x, y, yaw, speed, yaw_rate], axis=1)
        return cls(running, ~_before(linked), linked, put_back, stalled, motion)


def _before(column: np.ndarray) -> np.ndarray:
    """The entry of the row before; False, or 0, for the first."""
    return np.concatenate([np.zeros(1, column.dtype), column[:-1]])


def _next(column: np.ndarray) -> np.ndarray:
    return np.concatenate([column[1:], np.zeros(1, column.dtype)])


def _rate(step: np.ndarray, duration: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """[R] change per second up to each row: over the last two steps, as the stamps jitter; 0 where a drive begins."""

    def over_the_last_two(column: np.ndarray) -> np.ndarray:
        last = _before(np.where(moves, column, 0.0))
        return last + np.where(_before(moves), _before(last), 0.0)

    shortest = over_the_last_two(np.full(len(step), 0.5 * PERIOD))
    seconds = np.maximum(over_the_last_two(duration), shortest)
    return over_the_last_two(step) / np.where(seconds > 0, seconds, 1.0)


def _transitions(
    traces: Traces, drives: Drives, here: np.ndarray, features: np.ndarray, laps: np.ndarray
) -> dict[str, np.ndarray]:
    now = np.cumsum(drives.running)[here] - 1  # features and laps are those of running rows only
    gained = laps[now + 1] - laps[now]
    terminals = traces.has_status(FAILED)[here + 1]
    goes_on = drives.linked[here + 1] & (traces["episode"][here + 1] == traces["episode"][here])
    return {
        "observations": features[now],
        "actions": np.stack([np.radians(traces["steer"][here]), traces["throttle"][here]], axis=1),
        "rewards": 100 * (gained - np.round(gained)),  # the line is crossed, not a lap lost
        "next_observations": features[now + 1],
        "terminals": terminals,
        "timeouts": ~terminals & ~goes_on,
    }


def _environment(track: Path, mostly_reversed: bool) -> Environment:
    kwargs: dict[str, Any] = {
        "track": str(track),
        "car": "deepracer",
        "observation": "frenet",
        "look_ahead": list(LOOK_AHEAD),
        "substeps": SUBSTEPS,
        "speeds": [0.0, MAX_SPEED],
        "laps": 1,  # where DeepRacer ends an episode
        "track_options": {"shoulder": SHOULDER},
    }
    if mostly_reversed:
        kwargs["track_options"]["reverse"] = True
    way = " reversed" if mostly_reversed else ""
    return Environment(ENV_ID, kwargs, name=f"{track.stem}{way} (our simulator)")


def _note(name: str, traces: Traces, drives: Drives) -> str:
    counts = {
        "in which the car was held (prepare, pause)": traces.has_status(STANDING),
        "before it was put back to its start": drives.put_back,
        "over which the simulation hung": drives.stalled,
    }
    told = [f"{np.count_nonzero(rows):,} {what}" for what, rows in counts.items() if rows.any()]
    return f"Dataset '{name}': rows left out: {', '.join(told) or 'none'}."

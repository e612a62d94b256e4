"""AWS DeepRacer sim-trace files: finding them, telling jobs apart, and reading them line by line.

A job leaves folders such as `training-simtrace/`, `evaluation-20220709200242/evaluation-simtrace/` or, with several
workers, `0/training-simtrace/`, `1/training-simtrace/`, with one `<iteration>-iteration.csv` for every policy update.
"""

import io
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.errors import InputError, nearest

# The simulator's statuses: the car stands and actions are not carried out; it drives; the drive is over.
STANDING = ("prepare", "pause", "park")
DRIVING = ("in_progress",)
FINISHED = ("lap_complete", "time_up")  # the log ends, the task does not
FAILED = ("off_track", "crashed", "immobilized", "reversed")
STATUSES = (*STANDING, *DRIVING, *FINISHED, *FAILED)
MAX_STEERING, MAX_SPEED = 30.0, 4.0  # degrees and m/s: the car's own limits

_NUMBERS = ("episode", "steps", "X", "Y", "yaw", "steer", "throttle", "track_len", "tstamp")
_COLUMNS = (*_NUMBERS, "episode_status")
_TRACE = re.compile(r"\d+-iteration\.csv")
# Folders that divide one job: what the simulator was doing, a worker's number, the start of an evaluation.
_PART_OF_A_JOB = re.compile(r"(training|evaluation)([-_].*)?|sim-?trace|\d{1,3}|\d{14}(-.*)?")


@dataclass(frozen=True, eq=False)
class Traces:
    """Rows of a job's files, one file after another; angles as logged, in degrees."""

    files: tuple[Path, ...]
    file: np.ndarray  # [R] index into files
    numbers: dict[str, np.ndarray]  # column → [R] float64
    status: np.ndarray  # [R] index into STATUSES

    def __len__(self) -> int:
        return len(self.file)

    def __getitem__(self, column: str) -> np.ndarray:
        return self.numbers[column]

    def has_status(self, statuses: tuple[str, ...]) -> np.ndarray:
        """[R] whether a row's status is one of these."""
        return np.isin(self.status, [STATUSES.index(status) for status in statuses])

    @property
    def evaluation(self) -> np.ndarray:
        """[R] whether a row was logged in evaluation, not in training."""
        return np.array([_is_evaluation(file) for file in self.files])[self.file]

    @property
    def iteration(self) -> np.ndarray:
        """[R] how often the driver had been trained, as the file's name says; −1 where it does not."""
        numbers = [int(file.name.split("-")[0]) if _TRACE.fullmatch(file.name) else -1 for file in self.files]
        return np.array(numbers)[self.file]


def trace_files(path: Path) -> dict[Path, list[Path]]:
    """The sim-trace files at or below a path, by the folder of their job, in order of logging."""
    found = [path] if path.is_file() else sorted(path.rglob("*.csv"), key=_in_order_of_logging)
    jobs: dict[Path, list[Path]] = {}
    for file in found:
        if _is_trace(file):
            jobs.setdefault(_job_of(file, path), []).append(file)
    return jobs


def has_traces(path: Path) -> bool:
    """Whether a path is a sim-trace file or a folder with one somewhere below."""
    files = [path] if path.is_file() else path.rglob("*.csv") if path.is_dir() else []
    return any(_is_trace(file) for file in files)


def _is_trace(file: Path) -> bool:
    if not file.is_file() or file.suffix != ".csv":
        return False
    if _TRACE.fullmatch(file.name):
        return True
    with file.open("rb") as opened:
        return opened.read(14) == b"episode,steps,"


def _job_of(file: Path, root: Path) -> Path:
    folder = file.parent
    while folder != root and root in folder.parents and _PART_OF_A_JOB.fullmatch(folder.name):
        folder = folder.parent
    return folder


def _is_evaluation(file: Path) -> bool:
    return any(folder.startswith("evaluation") for folder in (file.parent.name, file.parent.parent.name))


def _in_order_of_logging(file: Path) -> tuple:
    number = int(file.name.split("-")[0]) if _TRACE.fullmatch(file.name) else -1
    return _is_evaluation(file), file.parent, number, file.name


def read_traces(files: list[Path]) -> Traces:
    """Read files with the header of a sim-trace; the first malformed line is an InputError."""
    parts = [_read(file) for file in files]
    return Traces(
        tuple(files),
        np.repeat(np.arange(len(parts)), [len(status) for _, status in parts]),
        {key: np.concatenate([numbers[key] for numbers, _ in parts]) for key in _NUMBERS},
        np.concatenate([status for _, status in parts]),
    )


def _read(file: Path) -> tuple[dict[str, np.ndarray], np.ndarray]:
    import pandas  # half a second that other logs do not need

    try:
        data = file.read_bytes().rstrip()
        header = data.partition(b"\n")[0].decode().strip().split(",")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"'{file}' cannot be read ({error}); fetch it anew.") from error
    missing = [column for column in _COLUMNS if column not in header]
    if missing:
        raise InputError(
            f"'{file}' has no column {missing[0]} in its first line; pass the sim-trace files of a DeepRacer job."
        )
    _check_fields(file, data, len(header))
    try:
        table = pandas.read_csv(
            io.BytesIO(data), usecols=list(_COLUMNS), engine="c", quoting=3, keep_default_na=False, low_memory=False
        )
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"'{file}' cannot be read ({error}); drop or repair what is damaged.") from error
    numbers = {key: _as_numbers(file, key, table[key].to_numpy()) for key in _NUMBERS}
    status = _as_statuses(file, table["episode_status"].astype(str).to_numpy(dtype=object))
    _check_order(file, numbers)
    _check_limits(file, numbers)
    return numbers, status


def _line(row: int) -> int:
    """The line of a row of data, as an editor counts: the header is line 1."""
    return int(row) + 2


def _check_fields(file: Path, data: bytes, expected: int) -> None:
    characters = np.frombuffer(data + b"\n", np.uint8)
    ends, commas = np.flatnonzero(characters == ord("\n")), np.flatnonzero(characters == ord(","))
    fields = np.diff(np.searchsorted(commas, ends), prepend=0) + 1
    wrong = np.flatnonzero(fields != expected)
    if len(wrong):
        raise InputError(
            f"'{file}' has {fields[wrong[0]]} fields in line {wrong[0] + 1} where its first line has {expected}; "
            "drop or repair the line."
        )
    if len(fields) == 1:
        raise InputError(f"'{file}' has no rows below its first line; leave the file out.")


def _as_numbers(file: Path, key: str, column: np.ndarray) -> np.ndarray:
    import pandas

    numbers = pandas.to_numeric(column, errors="coerce") if column.dtype.kind not in "fiu" else column
    numbers = np.asarray(numbers, dtype=np.float64)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        raise InputError(
            f"'{file}' has {str(column[wrong[0]])!r} for {key} in line {_line(wrong[0])} where a finite number is "
            "needed; drop or repair the line."
        )
    return numbers


def _as_statuses(file: Path, column: np.ndarray) -> np.ndarray:
    codes = {status: code for code, status in enumerate(STATUSES)}
    status = np.array([codes.get(entry, -1) for entry in column], dtype=np.int64)
    wrong = np.flatnonzero(status < 0)
    if len(wrong):
        raise InputError(
            f"'{file}' has the episode_status {column[wrong[0]]!r} in line {_line(wrong[0])}; "
            f"{nearest(column[wrong[0]], STATUSES)}"
        )
    return status


def _check_order(file: Path, numbers: dict[str, np.ndarray]) -> None:
    stamps = numbers["tstamp"]
    wrong = np.flatnonzero((np.diff(stamps) < 0) & (np.diff(numbers["episode"]) == 0))
    if len(wrong):
        row = wrong[0] + 1
        raise InputError(
            f"'{file}' goes back in time in line {_line(row)} (tstamp {stamps[row]} after {stamps[row - 1]}); "
            "put its lines in the order in which they were logged."
        )


def _check_limits(file: Path, numbers: dict[str, np.ndarray]) -> None:
    for key, low, high, unit in (
        ("steer", -MAX_STEERING, MAX_STEERING, "°"),
        ("throttle", 0.0, MAX_SPEED, " m/s"),
    ):
        column = numbers[key]
        wrong = np.flatnonzero((column < low * (1 + 1e-6)) | (column > high * (1 + 1e-6)))
        if len(wrong):
            raise InputError(
                f"'{file}' has {key} {column[wrong[0]]:g}{unit} in line {_line(wrong[0])}, beyond the DeepRacer's "
                f"{low:g} to {high:g}{unit}; check its units."
            )

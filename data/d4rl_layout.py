"""Files in D4RL's layout: one HDF5 file with flat columns, with or without next observations."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from data.errors import InputError
from data.validation import FLAGS, FLOATS, check_layout


@dataclass
class Log:
    """What a file holds, before validation."""

    columns: dict[str, np.ndarray]
    shifted: bool  # no next observations are stored: they are the observations one row on
    env_id: str | None
    extra: dict[str, np.ndarray] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_d4rl_layout(path: Path, name: str, time_limit: int | None = None) -> Log:
    """Read a file's columns; `time_limit` says when episodes end in a file that has no timeouts."""
    with opened(path, name) as file:
        stored = {key: _column(file, key, name) for key in (*FLOATS, *FLAGS) if key in file}
        rows = check_layout(name, {key: (column.shape, column.dtype) for key, column in stored.items()})
        columns = {key: _read(stored[key], rows) for key in stored if key != "observations"}
        if shifted := "next_observations" not in stored:
            columns["observations"], columns["next_observations"] = _read_shifted(stored["observations"], rows)
        else:
            columns["observations"] = _read(stored["observations"], rows)
        env_id = file.attrs.get("env")
        log = Log(columns, shifted, env_id if isinstance(env_id, str) else None)
        _read_free_form(file, rows, log)
    if "timeouts" not in columns and time_limit is not None:
        columns["timeouts"] = _timeouts_by_step(columns["terminals"], time_limit)
        log.notes.append(f"Dataset '{name}' has no timeouts; as in D4RL, an episode ends after {time_limit} steps.")
    return log


@contextmanager
def opened(path: Path, name: str) -> Iterator[h5py.File]:
    """An HDF5 file to read; not being one, or being damaged anywhere, is an InputError."""
    try:
        with path.open("rb"):
            pass
        if not h5py.is_hdf5(path):
            raise InputError(
                f"Dataset '{name}' is not an HDF5 file; pass a file in the D4RL layout or a Minari folder."
            )
        with h5py.File(path, "r") as file:
            yield file
    except OSError as error:
        raise InputError(
            f"Dataset '{name}' cannot be read from '{path}' ({error}); delete the file and fetch or make it anew."
        ) from error


def _column(file: h5py.File, key: str, name: str) -> h5py.Dataset:
    if not isinstance(file[key], h5py.Dataset):
        raise InputError(f"Dataset '{name}' has a group where the column {key} should be; store it as an array.")
    return file[key]


def _read(column: h5py.Dataset, rows: int) -> np.ndarray:
    if column.name.lstrip("/") in FLAGS:
        return column[()]
    # HDF5 converts while it reads, so that float64 columns never stand in memory at full width.
    values = np.empty((rows, *column.shape[1:]), np.float32)
    column.read_direct(values)
    return values


def _read_shifted(column: h5py.Dataset, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Observations and next observations as two views of one array: half the memory, and no copy."""
    states = np.empty((rows + 1, *column.shape[1:]), np.float32)
    column.read_direct(states, dest_sel=np.s_[:rows])
    states[rows] = states[rows - 1]
    return states[:rows], states[1:]


def _timeouts_by_step(terminals: np.ndarray, time_limit: int) -> np.ndarray:
    """True at every `time_limit`-th row after an episode's start, unless the row is a terminal."""
    terminals = terminals.reshape(-1).astype(bool)
    rows = np.arange(len(terminals))
    first = np.concatenate([[0], np.flatnonzero(terminals[:-1]) + 1])
    steps = rows - first[np.searchsorted(first, rows, side="right") - 1]
    return (steps % time_limit == time_limit - 1) & ~terminals


def _read_free_form(file: h5py.File, rows: int, log: Log) -> None:
    """Integer columns of one value a row, at the top or in `infos`; a `labels` attribute names the values."""
    infos = file["infos"] if isinstance(file.get("infos"), h5py.Group) else {}
    for key, column in [*file.items(), *infos.items()]:
        named = isinstance(column, h5py.Dataset) and key not in (*FLOATS, *FLAGS)
        if named and column.shape == (rows,) and column.dtype.kind in "iu":
            log.extra[key] = column[()]
            if "labels" in column.attrs:
                log.labels[key] = [str(label) for label in column.attrs["labels"]]

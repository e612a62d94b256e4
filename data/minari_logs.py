"""Minari datasets: a folder, or an id that is local or downloaded.

Minari stores a group per episode with T+1 observations, so every row has its next state. The file is read
with h5py's low-level calls: thousands of short episodes cost a fraction of what an object per episode does.
"""

import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from data.d4rl_layout import opened
from data.dataset import Dataset, Environment, References
from data.errors import InputError
from data.references import environment_references
from data.spaces import Spaces, from_spaces, own_settings, spaces_of
from data.validation import validate

ID = re.compile(r"(?:[-\w][-\w/]*[-\w]/)?[-\w]+-v\d+")  # (namespace/)name-vN, as Minari parses it
_PER_STEP = {"actions": "actions", "rewards": "rewards", "terminals": "terminations", "timeouts": "truncations"}


def is_minari_folder(folder: Path) -> bool:
    return (folder / "data" / "metadata.json").is_file()


def local_folder(dataset_id: str) -> Path:
    """Where Minari keeps, or would keep, a dataset."""
    # Minari's own function for this creates the folder, and a look-up must not.
    return Path(os.environ.get("MINARI_DATASETS_PATH") or "~/.minari/datasets").expanduser() / dataset_id


def local_ids() -> list[str]:
    """Ids of the Minari datasets on this machine."""
    root = local_folder("")
    found = (path.parent.parent.relative_to(root).as_posix() for path in root.rglob("data/metadata.json"))
    return sorted(dataset_id for dataset_id in found if ID.fullmatch(dataset_id))


def fetched_folder(dataset_id: str, known: Sequence[str] = ()) -> Path:
    """The folder of a dataset id, downloaded if it is not local; `known` ids are what a typing error meant."""
    folder = local_folder(dataset_id)
    if is_minari_folder(folder):
        return folder
    import minari

    try:
        minari.load_dataset(dataset_id, download=True)
    except Exception as error:  # Minari's back ends raise what their clients raise; the reason is told
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        nearest = difflib.get_close_matches(dataset_id, [*known, *local_ids()], n=1)
        hint = f"did you mean '{nearest[0]}', or else " if nearest else ""
        raise InputError(
            f"Minari dataset '{dataset_id}' is not on this machine and could not be downloaded ({reason}); "
            f"{hint}fetch it where there is a network and put it at '{folder}'."
        ) from error
    return folder


def load_minari_folder(folder: Path, name: str, env: str | None = None) -> Dataset:
    """Load a Minari dataset with flat Box observations and actions."""
    metadata = _metadata(folder, name)
    if metadata.get("data_format", "hdf5") != "hdf5":
        raise InputError(
            f"Dataset '{name}' is stored as {metadata['data_format']}; only Minari's hdf5 format is supported."
        )
    spaces = _spaces(metadata, name)
    with opened(folder / "data" / "main_data.hdf5", name) as file:
        episodes = _Episodes.of(file, name, len(spaces.action_low))
        columns, extra = episodes.columns(), episodes.integer_infos()
    if env is not None:
        spaces = spaces_of(env)
    labels = metadata.get("labels")
    return validate(
        name,
        columns,
        spaces=spaces,
        environment=_environment(metadata, name, env),
        extra=extra,
        labels=labels if isinstance(labels, dict) else {},
    )


@dataclass
class _Episodes:
    """The open episode columns of a file, by group, in order."""

    name: str
    groups: list[h5py.h5g.GroupID]
    observations: list[h5py.h5d.DatasetID]
    per_step: dict[str, list[h5py.h5d.DatasetID]]
    steps: np.ndarray  # [E]

    @classmethod
    def of(cls, file: h5py.File, name: str, action_size: int) -> "_Episodes":
        indices = sorted(int(key[8:]) for key in file if re.fullmatch(r"episode_\d+", key))
        if not indices:
            raise InputError(f"Dataset '{name}' has no episodes; log some experience first.")
        groups = [h5py.h5g.open(file.id, b"episode_%d" % index) for index in indices]
        per_step = {key: _open_each(groups, stored, name) for key, stored in _PER_STEP.items()}
        observations = _open_each(groups, "observations", name)
        steps = np.array([column.shape[0] if column.shape else 0 for column in per_step["rewards"]])
        size = observations[0].shape[1:]
        for index, opened_columns in enumerate(zip(observations, *per_step.values(), strict=True)):
            wanted = ((steps[index] + 1, *size), (steps[index], action_size), *[(steps[index],)] * 3)
            for column, shape, kinds in zip(opened_columns, wanted, ("fiu", "fiu", "fiu", "b", "b"), strict=True):
                if column.shape != shape or column.dtype.kind not in kinds:
                    stored = h5py.h5i.get_name(column).decode().lstrip("/")
                    raise InputError(
                        f"Dataset '{name}' has {stored} of {column.dtype} and shape {column.shape} where "
                        f"{'booleans' if kinds == 'b' else 'numbers'} of shape {shape} are needed; "
                        "an episode of T steps has T + 1 observations and T of everything else."
                    )
        return cls(name, groups, observations, per_step, steps)

    def columns(self) -> dict[str, np.ndarray]:
        columns = {
            key: _read_each(opened_columns, bool if key in ("terminals", "timeouts") else np.float32)
            for key, opened_columns in self.per_step.items()
        }
        states = _read_each(self.observations, np.float32)  # [N + E, S]
        lasts = np.cumsum(self.steps + 1) - 1
        keep = np.ones(len(states), bool)
        keep[lasts] = False
        columns["observations"] = states[keep]
        columns["next_observations"] = states[np.flatnonzero(keep) + 1]
        # A group is an episode even if its writer flagged no end. Its last state is known: it is a timeout.
        ends = np.cumsum(self.steps)[self.steps > 0] - 1
        columns["timeouts"][ends] |= ~columns["terminals"][ends]
        return columns

    def integer_infos(self) -> dict[str, np.ndarray]:
        """`infos` of one integer a step; Minari logs one more, at the reset, which is left out."""
        infos = [_object(group, b"infos") for group in self.groups]
        if not all(isinstance(group, h5py.h5g.GroupID) for group in infos):
            return {}
        found = {}
        for key in infos[0]:
            columns = [_object(group, key) for group in infos]
            if all(_is_integer_column(column, n) for column, n in zip(columns, self.steps, strict=True)):
                values = _read_each(columns, np.int64)
                if len(values) > self.steps.sum():
                    counts = np.array([column.shape[0] for column in columns])
                    at_reset = (np.cumsum(counts) - counts)[counts > self.steps]
                    values = np.delete(values, at_reset)
                found[key.decode()] = values
        return found


def _object(group: h5py.h5g.GroupID, key: bytes) -> Any:
    return h5py.h5o.open(group, key) if key in group else None


def _is_integer_column(column: Any, steps: int) -> bool:
    is_integer = isinstance(column, h5py.h5d.DatasetID) and column.dtype.kind in "iu"
    return is_integer and column.shape in ((steps,), (steps + 1,))


def _open_each(groups: list[h5py.h5g.GroupID], key: str, name: str) -> list[h5py.h5d.DatasetID]:
    columns = [_object(group, key.encode()) for group in groups]
    for group, column in zip(groups, columns, strict=True):
        if not isinstance(column, h5py.h5d.DatasetID):
            episode = h5py.h5i.get_name(group).decode().lstrip("/")
            raise InputError(f"Dataset '{name}' has no array {key} in {episode}; write the dataset anew.")
    return columns


def _read_each(columns: list[h5py.h5d.DatasetID], dtype: type) -> np.ndarray:
    """One array of all episodes' rows, read into place."""
    counts = [column.shape[0] for column in columns]
    values = np.empty((sum(counts), *columns[0].shape[1:]), dtype)
    start = 0
    for column, count in zip(columns, counts, strict=True):
        if count:
            column.read(h5py.h5s.ALL, h5py.h5s.ALL, values[start : start + count])
        start += count
    return values


def _metadata(folder: Path, name: str) -> dict[str, Any]:
    try:
        return json.loads((folder / "data" / "metadata.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"Dataset '{name}' has unreadable Minari metadata ({error}); fetch it anew.") from error


def _spaces(metadata: Mapping[str, Any], name: str) -> Spaces:
    from minari.serialization import deserialize_space

    missing = [key for key in ("observation_space", "action_space") if key not in metadata]
    if missing:
        raise InputError(f"Dataset '{name}' describes no {missing[0]}; write it anew with Minari 0.5 or newer.")
    observation_space, action_space = (
        deserialize_space(metadata[key]) for key in ("observation_space", "action_space")
    )
    return from_spaces(observation_space, action_space, f"Dataset '{name}'")


def _environment(metadata: Mapping[str, Any], name: str, chosen: str | None) -> Environment | None:
    """The environment to evaluate in: the one it was logged in, with its settings, unless the caller chose another."""
    spec = metadata.get("eval_env_spec") or metadata.get("env_spec")
    try:
        logged = json.loads(spec) if spec else None
        settings = own_settings(str(logged["id"]), dict(logged.get("kwargs") or {})) if logged else {}
        environment = Environment(str(logged["id"]), settings) if logged else None
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"Dataset '{name}' has an unreadable env_spec ({error!r}); fetch it anew.") from error
    logged_id = environment.id if environment else None
    if chosen is not None and chosen != logged_id:
        environment = Environment(chosen)
    if environment is None:
        return None
    return replace(environment, references=_references(metadata, name, logged_id, environment.id))


def _references(metadata: Mapping[str, Any], name: str, logged_id: str | None, env_id: str) -> References | None:
    low, high = metadata.get("ref_min_score"), metadata.get("ref_max_score")
    if env_id != logged_id and "/" in env_id:
        return None  # another member of a family: it has references of its own
    if low is None or high is None or not low < high:
        return environment_references(env_id)
    elsewhere = f", evaluated in {env_id}" if env_id != logged_id else ""
    return References(float(low), float(high), f"references of Minari dataset '{name}'{elsewhere}")

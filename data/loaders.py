"""`load`: the one way in. A path or a name becomes a validated Dataset; several become one, with a source column."""

import difflib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from data import pendulum  # noqa: F401  (it registers its recipe)
from data.d4rl_archive import PATHS, Archived, archived, file_of
from data.d4rl_layout import read_d4rl_layout
from data.dataset import Dataset, Environment, environment_names
from data.deepracer import deepracer_jobs, is_deepracer, load_deepracer
from data.errors import InputError
from data.minari_logs import ID, fetched_folder, is_minari_folder, load_minari_folder, local_folder, local_ids
from data.recipes import check_version, known_ids, recipe_of
from data.references import d4rl_references, environment_references
from data.spaces import Spaces, registered, spaces_of, symmetric
from data.validation import validate

_FILE_ENDINGS = (".hdf5", ".h5")


def load(path: str | os.PathLike | Mapping[str, str], env: str | None = None) -> Dataset:
    """Load and validate logs.

    path: a file in the D4RL layout, a Minari folder, DeepRacer sim-traces, a D4RL name, a Minari id, or several of
    these by name.
    env: the environment's id, where it is not the one that the log names.
    """
    if isinstance(path, Mapping):
        return _load_sources(path, env)
    if not isinstance(path, str | os.PathLike) or not str(path).strip():
        raise InputError(f"A dataset is a path or a name, not {path!r}; see docs/data.md.")
    text = os.fspath(path).strip()
    place = Path(text).expanduser()
    if place.exists() and not is_minari_folder(place) and is_deepracer(place):
        return _load_deepracer(place, text, env)
    if place.is_dir():
        return _load_folder(place, text, env)
    if place.exists():
        return _load_file(place, text, env)
    if text.endswith(_FILE_ENDINGS) or text.startswith(("~", ".", "/")):
        raise InputError(f"There is no dataset at '{text}'; {_nearest_file(place)}")
    if (named := archived(text)) is not None:
        return _load_archived(named, env)
    if "/" in text and ID.fullmatch(text):
        if (make := recipe_of(text)) is not None and not is_minari_folder(local_folder(text)):
            make(text)  # real logs, made here by a documented recipe
        check_version(text)
        return load_minari_folder(fetched_folder(text, known=known_ids()), text, env)
    if ID.fullmatch(text) and text in local_ids():
        return load_minari_folder(fetched_folder(text), text, env)
    raise InputError(f"'{text}' is no file, no folder, no D4RL name and no Minari id; {_nearest_name(text)}")


def _load_file(path: Path, name: str, env: str | None) -> Dataset:
    if path.suffix not in _FILE_ENDINGS:
        raise InputError(
            f"Dataset '{name}' is not an .hdf5 file; convert it to the D4RL layout or to Minari (docs/data.md)."
        )
    log = read_d4rl_layout(path, name)
    env_id = env or log.env_id
    spaces, notes = _spaces(name, env_id, chosen=env is not None)
    dataset = validate(
        name,
        log.columns,
        shifted=log.shifted,
        spaces=spaces,
        environment=Environment(env_id, references=environment_references(env_id)) if env_id else None,
        extra=log.extra,
        labels=log.labels,
        notes=(*log.notes, *notes),
    )
    return replace(dataset, name=path.stem)


def _spaces(name: str, env_id: str | None, chosen: bool) -> tuple[Spaces | None, tuple[str, ...]]:
    """Spaces to check against; an id that only a file names must not make us import or fail."""
    if env_id is None:
        return None, ()
    if chosen or registered(env_id):
        return spaces_of(env_id), ()
    return None, (f"Dataset '{name}' names '{env_id}', which Gymnasium does not know: sizes are unchecked.",)


def _load_folder(folder: Path, name: str, env: str | None) -> Dataset:
    if not is_minari_folder(folder):
        files = sorted(entry.name for entry in folder.iterdir() if entry.suffix in _FILE_ENDINGS)
        hint = f"pass a file in it, such as '{files[0]}'." if files else "pass a file or the folder of a Minari id."
        raise InputError(f"Folder '{name}' is no Minari dataset (it has no data/metadata.json); {hint}")
    return replace(load_minari_folder(folder, name, env), name=folder.name)


def _load_deepracer(path: Path, name: str, env: str | None) -> Dataset:
    """One job, or a folder of several: each is a source, and so can be a client."""
    jobs = deepracer_jobs(path)
    if len(jobs) > 1:
        return _load_sources({job: str(folder) for job, folder in jobs.items()}, env)
    dataset = load_deepracer(next(iter(jobs.values())), name)
    return dataset if env is None else replace(dataset, environments=(Environment(env),))


def _load_archived(named: Archived, env: str | None) -> Dataset:
    log = read_d4rl_layout(file_of(named), named.name, named.time_limit)
    env_id = env or named.env_id
    if env_id is None:  # every D4RL task here has actions in [−1, 1]
        spaces = symmetric(log.columns["observations"].shape[1], log.columns["actions"].shape[1], 1.0)
    else:
        spaces = spaces_of(env_id)
    return validate(
        named.name,
        log.columns,
        shifted=log.shifted,
        spaces=spaces,
        environment=Environment(env_id, references=d4rl_references(named.name, env_id)) if env_id else None,
        extra=log.extra,
        labels=log.labels,
        notes=tuple(log.notes),
    )


def _load_sources(paths: Mapping[str, str], env: str | None) -> Dataset:
    if not paths:
        raise InputError("No data source is named; give at least one, as name: path.")
    sources = {str(name): load(path, env) for name, path in paths.items()}
    names, parts = list(sources), list(sources.values())
    first = parts[0]
    for name, part in sources.items():
        for what, ours, theirs in (
            ("environment", *_families(first, part)),
            ("observation size", first.observations.shape[1], part.observations.shape[1]),
            ("action size", first.actions.shape[1], part.actions.shape[1]),
        ):
            if ours != theirs:
                raise InputError(
                    f"Sources '{names[0]}' and '{name}' differ in {what} ({ours} and {theirs}); "
                    "only logs of one environment, or of one family such as FedRacing/…, can be put together."
                )
    return _concatenate(names, parts)


def _families(one: Dataset, other: Dataset) -> list[str | None]:
    """What must be equal: environments of one namespace are made to share their spaces; others stand for themselves."""
    ids = [", ".join(sorted({e.id for e in part.environments})) or None for part in (one, other)]
    namespaces = {e.id.rpartition("/")[0] for part in (one, other) for e in part.environments}
    of_one_family = len(namespaces) == 1 and "" not in namespaces and None not in ids
    return [None, None] if of_one_family else ids


def _concatenate(names: list[str], parts: list[Dataset]) -> Dataset:
    stacked = {
        key: np.concatenate([getattr(part, key) for part in parts])
        for key in ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts", "trainable")
    }
    shared = set.intersection(*(set(part.columns) for part in parts)) - {"source", "environment"}
    # A column whose values mean different things in two sources cannot be one column.
    shared = {key for key in shared if all(part.labels.get(key) == parts[0].labels.get(key) for part in parts)}
    left_out = sorted({key for part in parts for key in part.columns} - shared)
    notes = [note for part in parts for note in part.notes]
    if left_out:
        notes.append(f"Columns that the sources do not share were left out: {', '.join(left_out)}.")
    columns = {key: np.concatenate([part.columns[key] for part in parts]) for key in sorted(shared)}
    columns["source"] = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts])
    environments, columns["environment"] = _merged_environments(parts)
    labels = {key: parts[0].labels[key] for key in shared if key in parts[0].labels}
    labels |= {"source": names, "environment": environment_names(environments)}
    if len(environments) < 2:
        del columns["environment"]
    return Dataset(
        name="+".join(names),
        **stacked,
        action_low=np.min([part.action_low for part in parts], axis=0),
        action_high=np.max([part.action_high for part in parts], axis=0),
        shifted=any(part.shifted for part in parts),
        environments=environments,
        columns=columns,
        labels={key: label for key, label in labels.items() if key in columns},
        notes=tuple(notes),
    )


def _merged_environments(parts: list[Dataset]) -> tuple[tuple[Environment, ...], np.ndarray]:
    """The distinct environments of all parts, and which one each row is from."""
    merged: list[Environment] = []
    indices = []
    for part in parts:
        numbers = []  # of the part's environments among the merged ones
        for environment in part.environments:
            known = next((i for i, other in enumerate(merged) if environment.is_like(other)), None)
            if known is None:
                known = len(merged)
                merged.append(environment)
            elif environment.bounds != merged[known].bounds:  # a score must mean one thing
                merged[known] = replace(merged[known], references=None)
            numbers.append(known)
        own = part.columns["environment"] if len(numbers) > 1 else np.zeros(len(part), np.int32)
        if numbers:
            indices.append(np.array(numbers, np.int32)[own])
    return tuple(merged), np.concatenate(indices) if indices else np.zeros(0, np.int32)


def _nearest_file(place: Path) -> str:
    if not place.parent.is_dir():
        return f"there is no folder '{place.parent}' either."
    found = [entry.name for entry in place.parent.iterdir() if entry.is_dir() or entry.suffix in _FILE_ENDINGS]
    nearest = difflib.get_close_matches(place.name, found, n=1)
    if nearest:
        return f"did you mean '{nearest[0]}' in the same folder?"
    return "check the path; it counts from the folder that the command runs in."


def _nearest_name(text: str) -> str:
    unversioned = {name.rpartition("-v")[0] for name in PATHS}
    known = [*unversioned, *PATHS, *local_ids(), *known_ids()]
    nearest = difflib.get_close_matches(text.lower().replace("_", "-"), known, n=1)
    return f"did you mean '{nearest[0]}'?" if nearest else "docs/data.md lists what can be loaded."

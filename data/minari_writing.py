"""Logs made here, written as Minari datasets: whole or not at all, and never over logs of another recipe."""

import json
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data.dataset import References
from data.errors import InputError
from data.minari_logs import ID, is_minari_folder, local_folder


def ensure_minari(
    dataset_id: str,
    recipe: Mapping[str, Any],
    make_episodes: Callable[[], list],
    *,
    env: Any,
    algorithm: str,
    references: Callable[[], References | None],
    labels: Mapping[str, list[str]],
) -> str:
    """Write the dataset unless it is there; gives the id that `load` and `minari.load_dataset` take.

    recipe: settings, seed and version that decide every array (JSON values); stored, and compared when it exists.
    make_episodes, references: Minari `EpisodeBuffer`s, and what scores 0 and 100; called only if they are needed.
    env: id, `EnvSpec` or environment, as Minari takes it. labels: names of the values of integer infos.
    """
    if not ID.fullmatch(dataset_id):
        raise InputError(f"'{dataset_id}' is no Minari id; it must look like 'fedrl/pendulum/mixed-v0'.")
    folder = local_folder(dataset_id)
    if is_minari_folder(folder):
        _check_same_recipe(folder, dataset_id, dict(recipe))
        print(f"{dataset_id} is there already, at {folder}", file=sys.stderr)
        return dataset_id
    print(f"Making {dataset_id} at {folder}", file=sys.stderr)
    try:
        with _moved_when_complete(folder, dataset_id) as root, _minari_root(root):
            dataset = _create(dataset_id, make_episodes(), env, algorithm, references(), recipe)
            dataset.storage.update_metadata({"labels": dict(labels), "recipe": dict(recipe)})
    except OSError as error:
        raise InputError(
            f"Dataset '{dataset_id}' cannot be written ({error}); set MINARI_DATASETS_PATH to a folder of yours."
        ) from error
    return dataset_id


def _check_same_recipe(folder: Path, dataset_id: str, recipe: dict) -> None:
    found = json.loads((folder / "data" / "metadata.json").read_text()).get("recipe")
    if found != recipe:
        raise InputError(
            f"Dataset '{dataset_id}' is there already, made by the recipe {found} and not {recipe}; "
            f"choose another id or delete it with `minari delete {dataset_id}`."
        )


def _create(dataset_id: str, episodes: list, env: Any, algorithm: str, references: References | None, recipe: Mapping):
    import minari

    if references is None:
        raise InputError(f"Dataset '{dataset_id}' would have no scores: its expert is no better than its weak driver.")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`(code_permalink|author|author_email)` is set to None")
        return minari.create_dataset_from_buffers(
            dataset_id,
            episodes,
            env=env,
            eval_env=env,
            algorithm_name=algorithm,
            description=f"Made by scripts/make_dataset.py with {dict(recipe)}; references: {references.label}.",
            ref_min_score=references.low,
            ref_max_score=references.high,
        )


@contextmanager
def _moved_when_complete(folder: Path, dataset_id: str) -> Iterator[Path]:
    """A root to write in; a dataset that exists in Minari's own is whole, even if two processes make it."""
    root = local_folder("")
    root.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=root, prefix=".making-"))
    try:
        yield aside
        folder.parent.mkdir(parents=True, exist_ok=True)
        for namespace in (aside / dataset_id).parents:
            described, target = namespace / "namespace_metadata.json", root / namespace.relative_to(aside)
            if described.is_file() and not (target / described.name).exists():
                shutil.copy(described, target)
            if namespace == aside:
                break
        if not folder.exists():
            (aside / dataset_id).rename(folder)
    finally:
        shutil.rmtree(aside)


@contextmanager
def _minari_root(root: Path) -> Iterator[None]:
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(root)
    try:
        yield
    finally:
        if before is None:
            del os.environ["MINARI_DATASETS_PATH"]
        else:
            os.environ["MINARI_DATASETS_PATH"] = before

"""Datasets that are made on the spot: who makes the logs of an id that is not on this machine yet.

A recipe is named by the beginning of its ids. Packages that can make logs register here when they are imported, so
that `data.load` finds them without knowing them.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from data.errors import InputError
from data.minari_logs import is_minari_folder, local_folder


@dataclass(frozen=True)
class Recipe:
    make: Callable[[str], object]  # writes the logs of an id
    examples: list[str]  # ids that are offered after a typing error
    version: int  # raised when a change of the code changes the logs


_RECIPES: dict[str, Recipe] = {}


def register(beginning: str, make: Callable[[str], object], examples: list[str], version: int) -> None:
    """`make(dataset_id)` writes the logs of any id that begins so."""
    _RECIPES[beginning] = Recipe(make, examples, version)


def _recipe(dataset_id: str) -> Recipe | None:
    return next((recipe for beginning, recipe in _RECIPES.items() if dataset_id.startswith(beginning)), None)


def recipe_of(dataset_id: str) -> Callable[[str], object] | None:
    recipe = _recipe(dataset_id)
    return recipe and recipe.make


def known_ids() -> list[str]:
    return [example for recipe in _RECIPES.values() for example in recipe.examples]


def check_version(dataset_id: str) -> None:
    """Refuse logs that an older version of their recipe has left in the cache."""
    recipe, folder = _recipe(dataset_id), local_folder(dataset_id)
    if recipe is None or not is_minari_folder(folder):
        return
    found = json.loads((folder / "data" / "metadata.json").read_text()).get("recipe", {}).get("version")
    if found != recipe.version:
        raise InputError(
            f"Dataset '{dataset_id}' was made by version {found} of its recipe and the code has {recipe.version}; "
            f"delete it with `minari delete {dataset_id}` to have it made anew."
        )

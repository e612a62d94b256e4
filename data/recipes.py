"""Datasets that are made on the spot: who makes the logs of an id that is not on this machine yet.

A recipe is named by the beginning of its ids. Packages that can make logs register here when they are imported, so
that `data.load` finds them without knowing them.
"""

from collections.abc import Callable

_RECIPES: dict[str, tuple[Callable[[str], object], list[str]]] = {}


def register(beginning: str, make: Callable[[str], object], examples: list[str]) -> None:
    """`make(dataset_id)` writes the logs of any id that begins so; the examples are offered after a typing error."""
    _RECIPES[beginning] = (make, examples)


def recipe_of(dataset_id: str) -> Callable[[str], object] | None:
    found = [make for beginning, (make, _) in _RECIPES.items() if dataset_id.startswith(beginning)]
    return found[0] if found else None


def known_ids() -> list[str]:
    return [example for _, examples in _RECIPES.values() for example in examples]

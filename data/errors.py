"""Faults that a person can mend, and the words for them."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Input that cannot be used: one sentence saying what is wrong, where, and what to do.

    Scripts print the sentence and exit with code 2; nothing has been written by then.
    """


def nearest(word: object, known: Iterable[str]) -> str:
    """A clause to end such a sentence with: the closest known name, or all of them."""
    known = sorted(set(known))
    close = difflib.get_close_matches(str(word), known, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}."

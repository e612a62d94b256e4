"""Validation at the border: columns of any origin become a Dataset, or one sentence says why not.

It happens once, on load; whatever comes after trusts the columns.
"""

from collections.abc import Mapping

import numpy as np

from data.dataset import Dataset, Environment
from data.errors import InputError
from data.spaces import Spaces

REQUIRED = ("observations", "actions", "rewards", "terminals")
MATRICES = ("observations", "actions", "next_observations")
FLOATS = ("observations", "actions", "rewards", "next_observations")
FLAGS = ("terminals", "timeouts")

SLIGHT_OVERSHOOT = 0.01  # of the action range; at most this much is clipped …
RARE_OVERSHOOT = 0.01  # … in fewer than this share of the entries
ROUNDING = 1e-5  # of the action range: float rounding, clipped however often it occurs


def validate(
    name: str,
    columns: Mapping[str, np.ndarray],
    *,
    shifted: bool = False,
    spaces: Spaces | None = None,
    environment: Environment | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
    labels: Mapping[str, list[str]] | None = None,
    notes: tuple[str, ...] = (),
) -> Dataset:
    """Check the columns and make a Dataset; the first fault is an InputError of one sentence.

    columns: observations, actions, rewards, terminals, and timeouts or next_observations or both.
    shifted: next_observations is observations one row on, so an episode's last row has no next state.
    spaces: what the columns must fit; without it the action range is that of the data.
    extra: free-form integer columns of N rows; labels name their values.
    """
    columns, shifted = _numbers(name, columns, shifted)
    if spaces is not None:
        _check_sizes(name, columns, spaces, environment)

    columns["timeouts"], end_notes = _timeouts(name, columns, shifted)
    low, high, columns["actions"], action_notes = _fit_actions(name, columns["actions"], spaces, environment)
    # Where no next states are stored, an episode's last row can be learnt from only if nothing follows it.
    cut_off = columns["timeouts"] & ~columns["terminals"] if shifted else np.zeros(len(columns["rewards"]), bool)
    if cut_off.all():
        raise InputError(f"Dataset '{name}' has no row with a next state to train on; log longer episodes.")
    free_form, free_form_notes = _free_form(name, extra or {}, labels or {}, len(cut_off))
    return Dataset(
        name=name,
        **columns,
        trainable=~cut_off,
        shifted=shifted,
        action_low=low,
        action_high=high,
        environments=() if environment is None else (environment,),
        columns=free_form,
        labels={key: list((labels or {})[key]) for key in free_form if key in (labels or {})},
        notes=(*notes, *end_notes, *action_notes, *free_form_notes),
    )


def _numbers(name: str, columns: Mapping[str, np.ndarray], shifted: bool) -> tuple[dict[str, np.ndarray], bool]:
    """The columns as finite float32 and as flags, next observations made if need be."""
    check_layout(name, {key: (column.shape, column.dtype) for key, column in columns.items()})
    numbers = {key: _as_float32(columns[key], key) for key in FLOATS if key in columns}
    numbers |= {key: _as_flags(name, columns[key], key) for key in FLAGS if key in columns}
    if "next_observations" not in numbers:
        observations = numbers["observations"]
        numbers["next_observations"], shifted = np.concatenate([observations[1:], observations[-1:]]), True
    for key in FLOATS:
        if not (shifted and key == "next_observations"):  # those are observations once more
            _check_finite(name, numbers[key], key)
    return numbers, shifted


def check_layout(name: str, layout: Mapping[str, tuple[tuple[int, ...], np.dtype]]) -> int:
    """Check names, shapes and types of columns before anything is read; gives the number of rows."""
    missing = [key for key in REQUIRED if key not in layout]
    if missing:
        found = ", ".join(sorted(layout)) or "none"
        raise InputError(
            f"Dataset '{name}' has no column {' nor '.join(missing)} (found: {found}); "
            "store it under that name or convert the file to the D4RL layout."
        )
    rows = layout["observations"][0][0] if layout["observations"][0] else 0
    for key, (shape, dtype) in layout.items():
        if dtype.kind not in "fiub":
            raise InputError(
                f"Dataset '{name}' stores {key} as {dtype}, not as numbers; write it as a float or boolean array."
            )
        form = "[rows, size]" if key in MATRICES else "[rows]"
        fits = len(shape) == 2 and shape[1] > 0 if key in MATRICES else len(shape) == 1 or shape[1:] == (1,)
        if not fits:
            raise InputError(f"Dataset '{name}' has {key} of shape {shape} where {form} is needed; reshape them.")
        if shape[0] != rows:
            raise InputError(
                f"Dataset '{name}' has {shape[0]:,} rows of {key} but {rows:,} of observations; "
                "every column needs as many rows."
            )
    if rows == 0:
        raise InputError(f"Dataset '{name}' is empty: it has no rows and no episodes; log some experience first.")
    if "next_observations" in layout and layout["next_observations"][0] != layout["observations"][0]:
        raise InputError(
            f"Dataset '{name}' has next_observations of size {layout['next_observations'][0][1]} "
            f"but observations of size {layout['observations'][0][1]}; they must be the same."
        )
    return rows


def _as_float32(column: np.ndarray, key: str) -> np.ndarray:
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and the finite check says so
        column = np.ascontiguousarray(column, dtype=np.float32)
    return column if key in MATRICES else column.reshape(-1)


def _as_flags(name: str, column: np.ndarray, key: str) -> np.ndarray:
    column = column.reshape(-1)
    if column.dtype == bool:
        return column
    wrong = np.flatnonzero((column != 0) & (column != 1))  # NaN is neither
    if len(wrong):
        raise InputError(
            f"Dataset '{name}' has {len(wrong):,} {key} that are neither 0 nor 1, first at row {wrong[0]:,} "
            f"({column[wrong[0]]}); store {key} as booleans."
        )
    return column.astype(bool)


def _check_finite(name: str, column: np.ndarray, key: str) -> None:
    flat = column.reshape(-1)
    # One NaN or infinity makes the sum of squares so, at a fraction of the cost of looking at each entry.
    # The sum can also overflow for finite values: then the exact look below decides.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.dot(flat, flat)):
            return
    finite = np.isfinite(column)
    rows = np.flatnonzero(~(finite.all(axis=1) if column.ndim == 2 else finite))
    if len(rows) == 0:
        return
    broken = column[rows][~finite[rows]]
    fault = "NaN" if np.isnan(broken).all() else "infinite" if np.isinf(broken).all() else "NaN or infinite"
    raise InputError(
        f"Dataset '{name}' has {len(rows):,} {fault} {key}, first at row {rows[0]:,}; drop or repair them."
    )


def _check_sizes(name: str, columns: Mapping[str, np.ndarray], spaces: Spaces, environment: Environment | None) -> None:
    of = f"environment '{environment.id}'" if environment else "its own description"
    for key, size in (("observations", spaces.observation_size), ("actions", len(spaces.action_low))):
        if columns[key].shape[1] != size:
            raise InputError(
                f"Dataset '{name}' has {key} of size {columns[key].shape[1]} but {of} has size {size}; "
                "pass the environment that the log was made in."
            )


def _timeouts(name: str, columns: Mapping[str, np.ndarray], shifted: bool) -> tuple[np.ndarray, list[str]]:
    notes = []
    if "timeouts" in columns:
        timeouts = columns["timeouts"]
    elif shifted:
        raise InputError(
            f"Dataset '{name}' has neither timeouts nor next_observations, so where an episode was cut short "
            "cannot be known; add the boolean column timeouts (all false if no episode was cut)."
        )
    else:
        jumps = (columns["next_observations"][:-1] != columns["observations"][1:]).any(axis=1)
        timeouts = np.append(jumps, False) & ~columns["terminals"]
        notes.append(
            f"Dataset '{name}' has no timeouts; {timeouts.sum():,} were taken from rows whose next observation "
            "is not the next row's."
        )
    if not (timeouts[-1] or columns["terminals"][-1]):
        timeouts = timeouts.copy()
        timeouts[-1] = True
        notes.append(
            f"Dataset '{name}' stops in the middle of an episode; its last row {len(timeouts) - 1:,} "
            "is marked as a timeout."
        )
    return timeouts, notes


def _fit_actions(name: str, actions: np.ndarray, spaces: Spaces | None, environment: Environment | None):
    """Action range, actions within it, and notes."""
    if spaces is None or not spaces.bounded:
        low, high = actions.min(axis=0), actions.max(axis=0)
        constant = low == high
        low, high = np.where(constant, low - 1, low), np.where(constant, high + 1, high)
        what = "names no known environment" if spaces is None else "has an unbounded action space"
        return low, high, actions, [f"Dataset '{name}' {what}, so the action range is that of its data."]
    low, high = spaces.action_low, spaces.action_high
    if actions.min() >= low.max() and actions.max() <= high.min():  # flat extremes are fast, and usually enough
        return low, high, actions, []
    overshoot = np.maximum(low - actions, actions - high) / (high - low)  # [N, A], positive outside
    outside = np.count_nonzero(overshoot > 0)
    if outside == 0:
        return low, high, actions, []
    worst, share = float(overshoot.max()), np.count_nonzero(overshoot > ROUNDING) / overshoot.size
    of = f"the action range of '{environment.id}'" if environment else "its action range"
    if worst > SLIGHT_OVERSHOOT or share >= RARE_OVERSHOOT:
        row = int(np.flatnonzero((overshoot > ROUNDING).any(axis=1))[0])
        raise InputError(
            f"Dataset '{name}' has {outside:,} action entries outside {of} (by up to {worst:.1%} of it), "
            f"first at row {row:,} ({np.array2string(actions[row], precision=3)}); "
            "rescale the actions to the environment's units."
        )
    note = f"Dataset '{name}' has {outside:,} action entries beyond {of} by at most {worst:.2g} of it; clipped."
    return low, high, np.clip(actions, low, high), [note]


def _free_form(
    name: str, extra: Mapping[str, np.ndarray], labels: Mapping[str, list[str]], rows: int
) -> tuple[dict[str, np.ndarray], list[str]]:
    columns, notes = {}, []
    for key, column in extra.items():
        if column.shape != (rows,) or column.dtype.kind not in "iub":
            raise InputError(
                f"Dataset '{name}' has a column '{key}' of {column.dtype} and shape {column.shape} where "
                f"{rows:,} integers are needed; leave it out or store one integer a row."
            )
        low, high = int(column.min()), int(column.max())
        if key in labels and not 0 <= low <= high < len(labels[key]):
            raise InputError(
                f"Dataset '{name}' has values {low} to {high} in its column '{key}' but {len(labels[key])} "
                "labels for it; give each value from 0 on a label."
            )
        if low < -(2**31) or high >= 2**31:
            notes.append(f"Dataset '{name}' has a column '{key}' that does not fit 32 bits; it was left out.")
        else:
            columns[key] = column.astype(np.int32)
    return columns, notes

"""Centrelines from files: TUM/F1TENTH centreline csv, raceline csv, DeepRacer waypoints npy."""

import re
from pathlib import Path

import numpy as np

from data.centreline import Centreline
from data.errors import InputError

WIDTH = 2.2  # metres of road around a raceline, which says nothing about walls
CENTRELINE = ("x_m", "y_m", "w_tr_right_m", "w_tr_left_m")
RACELINE = ("s_m", "x_m", "y_m", "psi_rad", "kappa_radpm", "vx_mps", "ax_mps2")


def read_centreline(path: str | Path, *, width: float | None = None, spacing: float = 0.1) -> Centreline:
    """The closed line in a `.csv` or `.npy` file, sampled every `spacing` metres and driven in the file's order.

    `width` is that of the road around a raceline (metres, half to either side); other kinds have their own widths.
    """
    path = Path(path)
    if path.suffix.lower() not in _READERS:
        raise InputError(f"'{path}' is no centreline file; its name must end in {' or '.join(_READERS)}.")
    if not path.is_file():
        raise InputError(f"The track file '{path}' does not exist; check its path.")
    points, left, right = _READERS[path.suffix.lower()](path, width)
    return Centreline.through(points, left, right, spacing, name=f"The line in '{path}'")


def write_centreline(path: str | Path, centreline: Centreline) -> None:
    """A centreline csv that `read_centreline` and TUM/F1TENTH tools read."""
    rows = np.column_stack([centreline.points, centreline.right, centreline.left])
    np.savetxt(path, rows, fmt="%.6f", delimiter=", ", header=", ".join(CENTRELINE), comments="# ")


def _read_csv(path: Path, width: float | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' cannot be read as text ({error}); give a csv file in UTF-8.") from error
    rows, numbers, header = [], [], ()
    for number, line in enumerate(lines, start=1):
        fields = [field.strip() for field in re.split("[;,]", line.strip().lstrip("#"))]
        if line.lstrip().startswith("#") or (not rows and "x_m" in fields):
            # Files may begin with lines about their making; the columns are named by the one that says x_m.
            header = tuple(fields) if "x_m" in fields else header
        elif line.strip():
            rows.append(_row(path, number, fields, rows))
            numbers.append(number)
    if len(rows) < 4:
        raise InputError(f"'{path}' has {len(rows)} rows of numbers; a closed line needs at least 4.")
    return _columns(path, np.array(rows), np.array(numbers), header, width)


def _row(path: Path, number: int, fields: list[str], rows: list[list[float]]) -> list[float]:
    try:
        row = [float(field) for field in fields]
    except ValueError as error:
        raise InputError(f"'{path}', line {number}: {error}; every line must hold numbers only.") from error
    if not np.isfinite(row).all():
        raise InputError(f"'{path}', line {number}: a number is not finite; repair or remove the line.")
    if rows and len(row) != len(rows[0]):
        raise InputError(f"'{path}', line {number}: {len(row)} numbers where the lines before have {len(rows[0])}.")
    return row


def _columns(path: Path, rows: np.ndarray, numbers: np.ndarray, header: tuple[str, ...], width: float | None):
    if not header:
        header = {len(CENTRELINE): CENTRELINE, len(RACELINE): RACELINE}.get(rows.shape[1], ())
    if len(header) != rows.shape[1] or not {"x_m", "y_m"} <= set(header):
        raise InputError(
            f"'{path}' has {rows.shape[1]} columns and no header that names them; "
            f"begin it with '# {', '.join(CENTRELINE)}' or '# {'; '.join(RACELINE)}'."
        )
    column = dict(zip(header, rows.T, strict=True))
    points = np.stack([column["x_m"], column["y_m"]], axis=1)
    _check_closed(path, points)
    if {"w_tr_right_m", "w_tr_left_m"} <= set(header):
        if width is not None:
            raise InputError(f"'{path}' has widths of its own; leave width={width} out.")
        bad = (column["w_tr_left_m"] <= 0) | (column["w_tr_right_m"] <= 0)
        if bad.any():
            raise InputError(f"'{path}', line {numbers[bad.argmax()]}: a width is not positive; repair the line.")
        return points, column["w_tr_left_m"], column["w_tr_right_m"]
    half = np.full(len(points), 0.5 * _checked_width(path, width))
    return points, half, half


def _checked_width(path: Path, width: float | None) -> float:
    width = WIDTH if width is None else width
    if not width > 0:
        raise InputError(f"'{path}' cannot have a road of {width} m; choose a positive width.")
    return float(width)


def _read_npy(path: Path, width: float | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """DeepRacer: rows of centre x, y, inner border x, y and outer border x, y.

    The inner border lies to the left on a lap driven anti-clockwise and to the right on one driven clockwise.
    """
    if width is not None:
        raise InputError(f"'{path}' has widths of its own; leave width={width} out.")
    try:
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"'{path}' cannot be read as a NumPy array ({error}); give DeepRacer waypoints.") from error
    if rows.ndim != 2 or rows.shape[1] != 6 or rows.dtype.kind not in "fiu":
        raise InputError(f"'{path}' holds {rows.dtype} of shape {rows.shape}; waypoints are rows of 6 numbers.")
    rows = rows.astype(np.float64)
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise InputError(f"'{path}', row {bad.argmax()}: a number is not finite; repair or remove the row.")
    _check_closed(path, rows[:, :2])
    borders = [_signed_distances(rows[:, :2], border) for border in (rows[:, 2:4], rows[:, 4:])]
    left = max(borders, key=np.median)
    right = min(borders, key=np.median)
    bad = (left <= 0) | (right >= 0)
    if bad.any():
        raise InputError(f"'{path}', row {bad.argmax()}: the centre is not between the borders; repair the row.")
    return rows[:, :2], left, -right


def _signed_distances(points: np.ndarray, border: np.ndarray) -> np.ndarray:
    """[M] from each point of a closed line to the nearest of a closed border, positive to the left of the line.

    To the nearest and not to the one in the same row: in some files the borders are sampled at a pace of their own.
    """
    start, edge = border, np.roll(border, -1, axis=0) - border
    to_start = points[:, None] - start  # [M, n, 2]
    share = (to_start * edge).sum(axis=-1) / np.maximum((edge**2).sum(axis=-1), 1e-12)
    apart = np.clip(share, 0, 1)[..., None] * edge - to_start
    squared = (apart**2).sum(axis=-1)
    nearest = apart[np.arange(len(points)), squared.argmin(axis=1)]
    # Across a repeated point the direction is that of the wider neighbourhood, so two points are skipped each way.
    ahead = np.roll(points, -2, axis=0) - np.roll(points, 2, axis=0)
    side = np.sign(ahead[:, 0] * nearest[:, 1] - ahead[:, 1] * nearest[:, 0])
    return side * np.sqrt(squared.min(axis=1))


def _check_closed(path: Path, points: np.ndarray) -> None:
    """A gap between the ends that is far wider than any between neighbours belongs to a line that is no loop."""
    gaps = np.linalg.norm(np.roll(points, -1, axis=0) - points, axis=1)
    if gaps[-1] > 3 * gaps[:-1].max() + 1e-9:
        raise InputError(
            f"The line in '{path}' is not closed: its ends are {gaps[-1]:.2f} m apart, its points at most "
            f"{gaps[:-1].max():.2f} m; a lap must end where it began."
        )


_READERS = {".csv": _read_csv, ".npy": _read_npy}

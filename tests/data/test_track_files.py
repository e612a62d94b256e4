"""Readers of track files: what was written is what is read, and what is wrong is named by its line."""

from pathlib import Path

import numpy as np
import pytest

from data.centreline import Centreline
from data.errors import InputError
from data.track_files import read_centreline, write_centreline

REAL = Path(__file__).parents[3] / "shared" / "data" / "deepracer" / "tracks"
ANGLE = np.linspace(0, 2 * np.pi, 120, endpoint=False)
CIRCLE = 5 * np.stack([np.cos(ANGLE), np.sin(ANGLE)], axis=1)


def lines(rows: np.ndarray, separator: str) -> str:
    return "\n".join(separator.join(f"{value:.6f}" for value in row) for row in rows) + "\n"


def test_a_centreline_comes_back_as_it_was_written(tmp_path):
    written = Centreline.through(CIRCLE, 1 + 0.2 * np.cos(ANGLE), 0.8)
    write_centreline(tmp_path / "circle.csv", written)
    read = read_centreline(tmp_path / "circle.csv")
    assert (tmp_path / "circle.csv").read_text().startswith("# x_m, y_m, w_tr_right_m, w_tr_left_m\n")
    assert read.points == pytest.approx(written.points, abs=1e-3)
    assert read.left == pytest.approx(written.left, abs=1e-3)
    assert read.right == pytest.approx(0.8)


@pytest.mark.parametrize(
    "header", ["", "# x_m,y_m,w_tr_right_m,w_tr_left_m\n", "x_m, y_m, w_tr_right_m, w_tr_left_m\n"]
)
def test_a_centreline_csv_needs_no_particular_header(tmp_path, header):
    file = tmp_path / "line.csv"
    file.write_text("# made elsewhere\n" + header + lines(np.c_[CIRCLE, np.full((120, 2), [0.7, 0.9])], ","))
    read = read_centreline(file)
    assert (read.right[0], read.left[0]) == pytest.approx((0.7, 0.9))
    assert read.length == pytest.approx(10 * np.pi, rel=1e-3)


def test_a_raceline_csv_gets_the_width_asked_for(tmp_path):
    file = tmp_path / "raceline.csv"
    rest = np.zeros((120, 4))
    header = "# 3a1f\n# s_m; x_m; y_m; psi_rad; kappa_radpm; vx_mps; ax_mps2\n"
    file.write_text(header + lines(np.c_[5 * ANGLE, CIRCLE, rest], "; "))
    assert read_centreline(file, width=3.0).left == pytest.approx(1.5)
    assert read_centreline(file).right == pytest.approx(1.1)
    assert read_centreline(file).length == pytest.approx(10 * np.pi, rel=1e-3)


@pytest.mark.parametrize("way", [1, -1])
@pytest.mark.parametrize("repeated", [False, True])
def test_deepracer_borders_end_up_on_their_sides(tmp_path, way, repeated):
    """Inner (here at 4.6 m) is left on an anti-clockwise lap; borders may be sampled at a pace of their own."""
    unit = CIRCLE[::way] / 5
    rows = np.concatenate([5 * unit, 4.6 * np.roll(unit, 3, axis=0), 5.3 * np.roll(unit, -4, axis=0)], axis=1)
    if repeated:
        rows = np.concatenate([rows, rows[:1]])
    np.save(tmp_path / "waypoints.npy", rows)
    read = read_centreline(tmp_path / "waypoints.npy")
    inner, outer = (read.left, read.right) if way == 1 else (read.right, read.left)
    assert np.sign(read.curvature.mean()) == way
    assert inner == pytest.approx(0.4, abs=0.01)
    assert outer == pytest.approx(0.3, abs=0.01)


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the real waypoints in ../shared/data/deepracer/tracks")
def test_every_real_deepracer_track_is_read_or_refused():
    refused = {}
    for path in sorted(REAL.glob("*.npy")):
        try:
            read = read_centreline(path)
        except InputError as error:
            refused[path.stem] = str(error)
            continue
        waypoints = np.load(path)
        polygon = np.linalg.norm(np.diff(waypoints[:, :2], axis=0, append=waypoints[:1, :2]), axis=1).sum()
        assert read.length == pytest.approx(polygon, rel=0.01), path.stem
        assert min(read.left.min(), read.right.min()) > 0.25, path.stem
        assert max(read.left.max(), read.right.max()) < 0.8, path.stem
        if path.stem.endswith(("_cw", "_ccw")):
            assert (read.curvature.mean() < 0) == path.stem.endswith("_cw"), path.stem
    assert list(refused) == ["Straight_track"]
    assert "is not closed: its ends are 5.7" in refused["Straight_track"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0,0,1,1\n1,0,1,1\n1,x,1,1\n", "line 3: could not convert string to float: 'x'"),
        ("# x_m, y_m, w_tr_right_m, w_tr_left_m\n0,0,1,1\n1,0,1\n", "line 3: 3 numbers where the lines before have 4"),
        ("0,0,1,1\n1,0,1,nan\n", "line 2: a number is not finite"),
        ("0,0,1,1\n\n1,0,1,1\n1,1,0,1\n0,1,1,1\n", "line 4: a width is not positive"),
        ("0,0\n1,0\n1,1\n0,1\n", "has 2 columns and no header"),
        ("0,0,1,1\n1,0,1,1\n", "has 2 rows of numbers"),
        ("", "has 0 rows of numbers"),
        ("0,0,1,1\n1,0,1,1\n2,0,1,1\n3,0,1,1\n4,0,1,1\n", "is not closed: its ends are 4.00 m apart"),
    ],
)
def test_a_faulty_csv_is_refused_with_its_line(tmp_path, text, sentence):
    (tmp_path / "line.csv").write_text(text)
    with pytest.raises(InputError, match=sentence) as raised:
        read_centreline(tmp_path / "line.csv")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (np.zeros((10, 4)), r"shape \(10, 4\); waypoints are rows of 6 numbers"),
        (np.full((10, 6), np.nan), "row 0: a number is not finite"),
        (np.array([["a"] * 6] * 10), "waypoints are rows of 6 numbers"),
        (np.c_[CIRCLE, CIRCLE * 0.9, CIRCLE * 0.8], "the centre is not between the borders"),
    ],
)
def test_a_faulty_npy_is_refused_with_a_sentence(tmp_path, array, sentence):
    np.save(tmp_path / "waypoints.npy", array)
    with pytest.raises(InputError, match=sentence):
        read_centreline(tmp_path / "waypoints.npy")


def test_nothing_is_unpickled(tmp_path):
    np.save(tmp_path / "waypoints.npy", np.array([{}] * 6, dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read as a NumPy array"):
        read_centreline(tmp_path / "waypoints.npy")


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("absent.csv", {}, "does not exist"),
        ("line.txt", {}, "must end in .csv or .npy"),
        ("line.csv", {"width": 2.0}, "has widths of its own"),
        ("binary.csv", {}, "cannot be read as text"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(tmp_path, name, options, sentence):
    (tmp_path / "line.csv").write_text(lines(np.c_[CIRCLE, np.ones((120, 2))], ","))
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x80")
    with pytest.raises(InputError, match=sentence):
        read_centreline(tmp_path / name, **options)

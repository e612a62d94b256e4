"""D4RL by name: which file, from where, with which references."""

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from data import load
from data.d4rl_archive import PATHS, archived, download
from data.d4rl_layout import read_d4rl_layout
from data.errors import InputError
from data.references import d4rl_references, environment_references

ROWS = 40
NOBODY = "http://127.0.0.1:9/"  # a closed port: no network, whatever the machine has


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.mark.parametrize("name", ["hopper_medium_replay", "hopper-medium-replay", "hopper-medium-replay-v2"])
def test_a_d4rl_name_loads_the_cached_file(name, tmp_path, write):
    write(tmp_path / "d4rl" / "hopper_medium_replay-v2.hdf5", env=None)
    dataset = load(name)
    assert (dataset.name, dataset.environments[0].id) == ("hopper-medium-replay-v2", "Hopper-v5")
    references = dataset.environments[0].references
    assert (references.low, references.high) == (-20.272305, 3234.3)


def test_d4rl_names_without_a_gymnasium_environment_have_none(tmp_path, write):
    write(tmp_path / "d4rl" / "pen-human-v1.hdf5", env=None)
    dataset = load("pen_human")
    assert dataset.environments == ()
    assert (dataset.action_low == -1).all()
    assert dataset.notes == ()


def test_d4rl_files_without_timeouts_end_episodes_by_the_time_limit(tmp_path, write):
    terminals = np.arange(ROWS) == 14
    path = write(tmp_path / "x.hdf5", without=("timeouts", "next_observations"), terminals=terminals)
    log = read_d4rl_layout(path, "x", time_limit=10)
    assert list(np.flatnonzero(log.columns["timeouts"])) == [9, 24, 34]


def test_a_d4rl_file_that_cannot_be_had_says_what_to_put_where(tmp_path, monkeypatch, fault):
    monkeypatch.setattr("data.d4rl_archive.ADDRESS", NOBODY)
    told = fault("hopper-medium-v2")
    assert NOBODY + "gym_mujoco_v2/hopper_medium-v2.hdf5" in told
    assert str(tmp_path / "d4rl" / "hopper_medium-v2.hdf5") in told
    assert "the d4rl package" in told
    assert not list((tmp_path / "d4rl").glob("*"))


def test_a_package_that_fails_to_import_is_told_not_hidden(tmp_path, monkeypatch, fault):
    package = tmp_path / "packages" / "d4rl"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise Exception('You appear to be missing MuJoCo.')")
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr("data.d4rl_archive.ADDRESS", NOBODY)
    assert "the d4rl package failed (You appear to be missing MuJoCo)" in fault("hopper-medium-v2")


@pytest.fixture
def server(tmp_path, write):
    folder = tmp_path / "served"
    write(folder / "good.hdf5")
    (folder / "page.hdf5").write_text("<html>moved</html>")
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=folder)) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def test_a_download_is_there_whole_or_not_at_all(server, tmp_path):
    target = tmp_path / "cache" / "x.hdf5"
    with pytest.raises(InputError, match="not an HDF5 file"):
        download(f"{server}/page.hdf5", target)
    with pytest.raises(OSError, match="404"):
        download(f"{server}/absent.hdf5", target)
    assert list(target.parent.iterdir()) == []
    download(f"{server}/good.hdf5", target)
    assert len(load(target)) == ROWS
    assert list(target.parent.iterdir()) == [target]


def test_an_unknown_name_gets_the_nearest_known_one(fault):
    assert "did you mean 'hopper-medium" in fault("hopper-meduim")
    assert "did you mean 'walker2d-expert" in fault("walker2d_expertt")
    assert "docs/data.md" in fault("qqqqqqqqqq")


def test_the_archive_is_d4rls():
    assert len(PATHS) == 122
    assert PATHS["walker2d-medium-replay-v0"] == "gym_mujoco/walker_mixed.hdf5"
    assert PATHS["antmaze-medium-play-v2"].endswith(
        "Ant_maze_big-maze_noisy_multistart_True_multigoal_False_sparse_fixed.hdf5"
    )
    assert archived("door-human").name == "door-human-v1"
    assert archived("maze2d-large").time_limit == 800
    assert archived("hopper-meduim") is None


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("halfcheetah-medium-v2", -280.178953, 12135.0),
        ("walker2d-expert-v0", 1.629008, 4592.3),
        ("ant-medium-v2", -325.6, 3879.7),
        ("maze2d-umaze-v1", 23.85, 161.86),
        ("maze2d-medium-v1", 13.13, 277.39),
        ("maze2d-large-v1", 6.7, 273.99),
        ("maze2d-large-dense-v1", 30.569041, 303.4857382709002),
        ("door-human-v1", -56.512833, 2880.5693087298737),
        ("pen-cloned-v0", 96.262799, 3076.8331017826877),
        ("antmaze-umaze-v2", 0.0, 1.0),
        ("kitchen-mixed-v0", 0.0, 4.0),
    ],
)
def test_references_are_d4rls(name, low, high):
    references = d4rl_references(name)
    assert (references.low, references.high) == (low, high)


def test_there_are_no_references_where_d4rl_has_none():
    assert d4rl_references("maze2d-eval-umaze-v1") is None
    assert environment_references("Pendulum-v1") is None
    assert environment_references(None) is None

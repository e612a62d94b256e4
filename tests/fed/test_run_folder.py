import os
import shutil

import h5py
import pytest
from omegaconf import OmegaConf

from data.errors import InputError


def test_an_existing_folder_is_refused_without_resume(configure, run):
    run(configure("rounds=0"))
    with pytest.raises(InputError, match="exists; continue it with --resume, or name another folder with --out"):
        run(configure("rounds=0"))


def test_resume_starts_a_run_that_is_not_there(configure, run):
    assert len(run(configure("rounds=0"), resume=True).history()) == 1


def test_resume_of_another_configuration_is_refused_and_names_the_difference(configure, run):
    run(configure("rounds=1"))
    with pytest.raises(InputError, match=r"seed was 0 and is now 5"):
        run(configure("rounds=1", "seed=5"), resume=True)


def test_a_prolonged_run_trains_as_a_longer_one_does(configure, run):
    run(configure("rounds=1"))
    prolonged = run(configure("rounds=2"), resume=True)
    longer = run(configure("rounds=2", out="longer"))
    assert [r["metrics"] for r in prolonged.history()[1:]] == [r["metrics"] for r in longer.history()[1:]]


def test_a_folder_that_is_no_run_is_refused(configure, run, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="is not a run folder"):
        run(configure("rounds=1"), resume=True)


def test_bad_input_writes_nothing(configure, run, tmp_path):
    for override in ("fed.fraction=0", "split.clients=500", "data.path=absent.hdf5", "fed.shared=[ghost]"):
        with pytest.raises(InputError):
            run(configure(override, out="never"))
    assert not (tmp_path / "never").exists()


def test_resume_on_changed_data_is_refused(configure, run, pendulum_file, tmp_path):
    own = tmp_path / "own.hdf5"
    shutil.copy(pendulum_file, own)
    run(configure("rounds=1", f"data.path={own}"))
    with h5py.File(own, "r+") as file:
        file["rewards"][7] = 0.0
    with pytest.raises(InputError, match=r"data of .* has changed since it began"):
        run(configure("rounds=2", f"data.path={own}"), resume=True)


def test_a_prolonged_run_does_not_call_itself_finished_until_it_is(configure, run):
    folder = run(configure("rounds=1"))
    seen = []
    run(configure("rounds=2"), resume=True, observe=lambda r: seen.append((folder.path / "summary.json").exists()))
    assert not any(seen)
    assert (folder.path / "summary.json").exists()


def test_a_resumed_run_keeps_its_layout_on_a_machine_with_other_cores(configure, run, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    run(configure("rounds=1"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    folder = run(configure("rounds=2"), resume=True)
    assert OmegaConf.load(folder.path / "config.yaml").engine.width == 2


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda path: (path / "checkpoints" / "last.safetensors").unlink(), "has rounds but no last.safetensors"),
        (
            lambda path: (path / "checkpoints" / "last.safetensors").write_bytes(b"torn"),
            "cannot be read as safetensors",
        ),
        (lambda path: (path / "rounds.jsonl").write_text('{"round": 0}'), "has lost records"),
        (lambda path: (path / "rounds.jsonl").unlink(), "has lost records"),
        (lambda path: next((path / "clients").iterdir()).unlink(), "is missing; restore it"),
        (lambda path: (path / "config.yaml").write_text("a: [b"), "cannot be read as settings"),
    ],
)
def test_a_damaged_run_is_refused_and_left_as_it_is(configure, run, damage, sentence):
    folder = run(configure("rounds=2"))
    damage(folder.path)
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=sentence):
        run(configure("rounds=3"), resume=True)
    assert before == {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def test_fewer_rounds_than_are_done_are_refused(configure, run):
    run(configure("rounds=2"))
    with pytest.raises(InputError, match="has done 2 rounds, more than rounds=1"):
        run(configure("rounds=1"), resume=True)


def test_two_processes_do_not_share_a_run(configure, run):
    folder = run(configure("rounds=1"))
    with folder.locked(), pytest.raises(InputError, match="is being run by another process"):
        run(configure("rounds=2"), resume=True)


def test_a_run_killed_in_its_first_write_can_be_resumed(configure, run, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.yaml.123").write_text("half")
    assert len(run(configure("rounds=1"), resume=True).history()) == 2

"""The Pendulum logs: reproducible, readable by plain Minari, made once."""

import runpy
import subprocess
import sys
from pathlib import Path

import minari
import numpy as np
import pytest

from data import load
from data.command_line import guarded
from data.errors import InputError
from data.minari_logs import local_folder
from data.pendulum import (
    EXPERT_RETURN,
    RANDOM_RETURN,
    SKILLS,
    STEPS,
    ensure_pendulum,
    measure_references,
)

ID = "tests/pendulum-v0"
SCRIPT = Path(__file__).parents[2] / "scripts" / "make_dataset.py"


def test_a_seed_reproduces_the_logs_bit_for_bit(tmp_path, monkeypatch):
    one = load(ensure_pendulum(ID, episodes=8, seed=3)).fingerprint()
    other = load(ensure_pendulum("tests/other-v0", episodes=8, seed=4)).fingerprint()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "elsewhere"))
    assert load(ensure_pendulum(ID, episodes=8, seed=3)).fingerprint() == one
    assert other != one


def test_more_episodes_begin_with_the_same_ones():
    few, more = load(ensure_pendulum(ID, 4)), load(ensure_pendulum("tests/more-v0", 12))
    assert np.array_equal(few.observations, more.observations[: len(few)])


def test_plain_minari_reads_the_logs():
    dataset = minari.load_dataset(ensure_pendulum(ID, episodes=8))
    assert (dataset.total_episodes, dataset.total_steps) == (8, 8 * STEPS)
    assert dataset[0].observations.shape == (STEPS + 1, 3)
    assert dataset[0].truncations[-1]
    assert not dataset[0].terminations.any()
    assert minari.get_normalized_score(dataset, np.array([EXPERT_RETURN])) == pytest.approx(1.0)


def test_rows_carry_their_skill_and_the_references_of_the_environment():
    dataset = load(ensure_pendulum(ID, episodes=40))
    assert dataset.labels["skill"] == list(SKILLS)
    references = dataset.environments[0].references
    assert (references.low, references.high) == (RANDOM_RETURN, EXPERT_RETURN)
    skill = dataset.columns["skill"][dataset.starts]
    means = [dataset.returns[skill == k].mean() for k in range(len(SKILLS))]
    assert means == sorted(means)
    assert dataset.timeouts.sum() == 40
    assert dataset.trainable.all()


def test_logged_actions_cover_the_range():
    actions = load(ensure_pendulum(ID, episodes=8)).actions
    assert (np.histogram(actions, bins=10, range=(-2, 2))[0] > 0.01 * actions.size).all()


def test_the_references_are_what_the_drivers_reach():
    low, high = measure_references(100, seed=1)
    # Four standard errors: returns of the two drivers scatter by about 290 and 95.
    assert low == pytest.approx(RANDOM_RETURN, abs=120)
    assert high == pytest.approx(EXPERT_RETURN, abs=40)


def test_logs_are_made_once_and_never_under_another_recipe(capsys):
    ensure_pendulum(ID, episodes=4)
    written = (local_folder(ID) / "data" / "main_data.hdf5").stat().st_mtime_ns
    ensure_pendulum(ID, episodes=4)
    assert "is there already" in capsys.readouterr().err
    assert (local_folder(ID) / "data" / "main_data.hdf5").stat().st_mtime_ns == written
    with pytest.raises(InputError, match="choose another id"):
        ensure_pendulum(ID, episodes=8)


def test_an_interrupted_run_leaves_nothing_behind(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(minari, "create_dataset_from_buffers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ensure_pendulum(ID, episodes=4)
    assert list(local_folder("").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "file" / "minari"))
    with pytest.raises(InputError, match="MINARI_DATASETS_PATH"):
        ensure_pendulum(ID, episodes=4)


def test_the_script_makes_the_logs_and_prints_the_id():
    arguments = ["pendulum", "--id", ID, "--episodes", "4", "--seed", "1"]
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ID)
    assert len(load(ID)) == 4 * STEPS


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["pendulum", "--episodes", "0"], "0 episodes are too few"),
        (["pendulum", "--episodes", "many"], "invalid int value: 'many'"),
        (["pendulum", "--seed", "-1"], "Seed -1 is negative"),
        (["pendulum", "--id", "../escape-v0"], "is no Minari id"),
        (["pendullum"], "invalid choice: 'pendullum'"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(arguments, sentence, capsys):
    main = runpy.run_path(str(SCRIPT))["main"]
    with pytest.raises(SystemExit) as stopped:
        guarded(lambda: main(arguments))
    told = capsys.readouterr().err
    assert stopped.value.code == 2
    assert sentence in told
    assert told.count("\n") == 1
    assert not local_folder("").exists()

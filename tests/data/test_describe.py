"""The table and the picture of a split."""

import importlib.util
import io
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from matplotlib import image
from rich.console import Console

from data import splits
from data.dataset import Dataset
from data.describe import describe, shift_by_chance
from data.errors import InputError
from data.shards import Shards, state_shift


@pytest.fixture
def dataset() -> Dataset:
    """60 episodes of 20 rows from two sources whose states lie apart."""
    rng = np.random.default_rng(0)
    source = np.repeat([0, 1], 600)
    observations = (rng.normal(size=(1200, 3)) + 4 * source[:, None]).astype(np.float32)
    timeouts = np.zeros(1200, bool)
    timeouts[19::20] = True
    actions = rng.uniform(-1, 1, (1200, 1)).astype(np.float32)
    return Dataset(
        name="two-sources",
        observations=observations,
        actions=actions,
        rewards=np.repeat(np.arange(60), 20).astype(np.float32),
        next_observations=observations,
        terminals=np.zeros(1200, bool),
        timeouts=timeouts,
        trainable=np.ones(1200, bool),
        action_low=-np.ones(1, np.float32),
        action_high=np.ones(1, np.float32),
        columns={"source": source},
        labels={"source": ["novice", "expert"]},
    )


def printed(dataset: Dataset, shards: Shards, **options) -> str:
    stream = io.StringIO()
    describe(dataset, shards, console=Console(file=stream, width=160), **options)
    return stream.getvalue()


def test_the_table_has_every_client_with_size_returns_and_shift(dataset):
    text = printed(dataset, splits.source(dataset, seed=0))
    line = next(line for line in text.splitlines() if "expert" in line)
    cells = [cell.strip() for cell in line.strip("│").split("│")]
    assert cells[:4] == ["expert", "600", "30", "600"]
    assert cells[7] == "1,180"
    assert "novice" in text
    assert "standard deviations" in " ".join(text.split())


def test_the_table_reports_what_is_public_left_over_and_cut(dataset):
    shards = splits.iid(dataset, seed=0, clients=4, rows_per_client=50, public=0.1)
    text = " ".join(printed(dataset, shards).split())
    assert "120 rows are public" in text
    assert "880 rows are left over" in text
    assert "4 pieces of episodes end in a cut" in text


def test_of_many_clients_the_table_shows_an_even_sample(dataset):
    text = printed(dataset, splits.iid(dataset, seed=0, clients=60))
    assert "20 of them shown" in text
    assert "client 0 " in text
    assert "client 59 " in text


def test_sources_are_shifted_further_than_chance(dataset):
    shards = splits.source(dataset, seed=0)
    assert state_shift(dataset, shards).mean() > 3 * shift_by_chance(dataset, shards)


def test_a_random_split_is_shifted_as_far_as_chance(dataset):
    mean = np.mean([state_shift(dataset, splits.iid(dataset, seed=seed, clients=6)).mean() for seed in range(20)])
    assert shift_by_chance(dataset, splits.iid(dataset, seed=0, clients=6)) == pytest.approx(mean, rel=0.2)


@pytest.mark.parametrize("clients", [1, 10, 60])
def test_the_picture_is_drawn_for_any_number_of_clients(clients, dataset, tmp_path):
    out = tmp_path / "new folder" / "split.png"
    printed(dataset, splits.iid(dataset, seed=0, clients=clients), out=out)
    pixels = image.imread(out)
    assert pixels.shape[1] > 2000
    assert pixels.std() > 0.1


def test_the_picture_bears_a_single_feature_and_constant_states(dataset, tmp_path):
    flat = Dataset(**{**vars(dataset), "observations": np.ones((1200, 1), np.float32)})
    printed(flat, splits.iid(flat, seed=0, clients=3), out=tmp_path / "flat.png")
    assert (tmp_path / "flat.png").exists()


def test_the_same_split_makes_the_same_picture(dataset, tmp_path):
    for name in ("one.png", "two.png"):
        printed(dataset, splits.quantile(dataset, seed=0, clients=5), out=tmp_path / name)
    assert np.array_equal(image.imread(tmp_path / "one.png"), image.imread(tmp_path / "two.png"))


def test_nothing_is_saved_or_printed_for_a_name_that_is_no_picture(dataset, tmp_path):
    stream = io.StringIO()
    out = tmp_path / "folder" / "split.xyz"
    with pytest.raises(InputError, match=r"split.xyz'; end its name in one of .*\.png"):
        describe(dataset, splits.iid(dataset, seed=0, clients=2), out, console=Console(file=stream))
    assert not out.parent.exists()
    assert stream.getvalue() == ""


@pytest.fixture
def script():
    path = Path(__file__).parents[2] / "scripts" / "make_dataset.py"
    spec = importlib.util.spec_from_file_location("make_dataset", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def log(dataset, tmp_path) -> str:
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        for key in ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts"):
            file[key] = getattr(dataset, key)
    return str(tmp_path / "log.hdf5")


def test_the_script_describes_a_file(script, log, tmp_path, capsys):
    out = tmp_path / "split.png"
    arguments = ["describe", log, "--split", "quantile", "--clients", "3", "--out", str(out), "rows_per_client=100"]
    script.main(arguments)
    assert out.exists()
    assert "3 clients" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--split", "quantil"], "did you mean 'quantile'?"),
        (["cliens=3"], "did you mean 'clients'?"),
        (["--clients", "61"], "unit=segment"),
        (["--split", "source"], "no column 'source'"),
    ],
)
def test_the_script_answers_bad_input_with_a_sentence_and_saves_nothing(arguments, sentence, script, log, tmp_path):
    with pytest.raises(InputError, match=re.escape(sentence)):
        script.main(["describe", log, "--out", str(tmp_path / "split.png"), *arguments])
    assert not (tmp_path / "split.png").exists()

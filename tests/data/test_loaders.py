"""What `load` accepts in the D4RL layout, alone and put together, and how it refuses the rest."""

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from data import load, loaders, recipes
from data.dataset import Dataset, Environment, References, environment_names
from data.errors import InputError
from data.references import environment_references
from data.spaces import own_settings, symmetric
from data.validation import validate

ROWS = 40
SHARED = Path(__file__).parents[3] / "shared" / "data" / "mujoco"


def test_a_file_keeps_its_rows_environment_and_references(tmp_path, write, hopper_columns):
    dataset = load(write(tmp_path / "logs.hdf5"))
    for key, column in hopper_columns.items():
        assert np.array_equal(getattr(dataset, key), column)
    assert (dataset.name, dataset.environments[0].id) == ("logs", "Hopper-v5")
    assert dataset.environments[0].references == environment_references("Hopper-v5")
    assert dataset.environments[0].references.label == "D4RL references (made for gym v2), evaluated in Hopper-v5"
    assert dataset.trainable.all()


def test_without_next_observations_the_next_row_follows_except_at_ends(tmp_path, write):
    dataset = load(write(tmp_path / "x.hdf5", without=("next_observations",)))
    going_on = ~(dataset.terminals | dataset.timeouts)[:-1]
    assert np.array_equal(dataset.next_observations[:-1][going_on], dataset.observations[1:][going_on])
    assert np.array_equal(dataset.trainable, ~dataset.timeouts)
    assert np.isfinite(dataset.next_observations).all()
    assert np.shares_memory(dataset.observations, dataset.next_observations)  # no copy of a large log


def test_other_number_types_and_columns_of_width_one_are_converted(tmp_path, write, hopper_columns):
    columns = hopper_columns
    path = write(
        tmp_path / "x.hdf5",
        observations=columns["observations"].astype(np.float64),
        rewards=np.arange(ROWS)[:, None],
        terminals=columns["terminals"].astype(np.uint8)[:, None],
    )
    dataset = load(path)
    assert dataset.observations.dtype == dataset.rewards.dtype == np.float32
    assert np.array_equal(dataset.observations, columns["observations"])
    assert np.array_equal(dataset.rewards, np.arange(ROWS))
    assert np.array_equal(dataset.terminals, columns["terminals"])


def test_integer_columns_are_kept_with_their_labels_and_others_ignored(tmp_path, write):
    path = write(tmp_path / "x.hdf5")
    with h5py.File(path, "a") as file:
        file["infos/driver"] = np.arange(ROWS) % 2
        file["infos/driver"].attrs["labels"] = ["calm", "bold"]
        file["infos/qpos"] = np.zeros((ROWS, 6))
        file["metadata/algorithm"] = "SAC"
    dataset = load(path)
    assert list(dataset.columns) == ["driver"]
    assert dataset.columns["driver"].dtype == np.int32
    assert dataset.labels == {"driver": ["calm", "bold"]}


def test_the_caller_overrides_the_environment(tmp_path, write, fault):
    path = write(tmp_path / "x.hdf5")
    assert load(path, env="Hopper-v4").environments[0].id == "Hopper-v4"
    assert "observations of size 11 but environment 'Ant-v5' has size 105" in fault(path, env="Ant-v5")
    assert "knows no environment 'Hoper-v5'; did you mean 'Hopper-v5'?" in fault(path, env="Hoper-v5")


def test_an_environment_that_only_the_file_names_is_kept_but_not_imported(tmp_path, write):
    dataset = load(write(tmp_path / "x.hdf5", env="antigravity:Real-Car-v0"))
    assert dataset.environments[0].id == "antigravity:Real-Car-v0"
    assert "Gymnasium does not know" in dataset.notes[0]


def test_home_and_relative_paths_work(tmp_path, monkeypatch, write):
    write(tmp_path / "x.hdf5")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for path in ("~/x.hdf5", "x.hdf5", "./x.hdf5", Path("x.hdf5")):
        assert len(load(path)) == ROWS


def test_broken_files_are_sentences(tmp_path, write, fault, hopper_columns):
    good = write(tmp_path / "good.hdf5").read_bytes()
    (tmp_path / "cut.hdf5").write_bytes(good[: len(good) // 2])
    (tmp_path / "text.hdf5").write_text("observations,actions")
    (tmp_path / "empty.hdf5").write_bytes(b"")
    (tmp_path / "log.csv").write_text("a,b")
    assert "cannot be read" in fault(tmp_path / "cut.hdf5")
    assert "is not an HDF5 file" in fault(tmp_path / "text.hdf5")
    assert "is not an HDF5 file" in fault(tmp_path / "empty.hdf5")
    assert "is not an .hdf5 file" in fault(tmp_path / "log.csv")
    assert "no column rewards" in fault(write(tmp_path / "x.hdf5", without=("rewards",)))
    assert "is empty" in fault(write(tmp_path / "x.hdf5", **{k: v[:0] for k, v in hopper_columns.items()}))


def test_a_damaged_block_is_a_sentence(tmp_path, fault, hopper_columns):
    path = tmp_path / "x.hdf5"
    with h5py.File(path, "w") as file:
        for key, column in hopper_columns.items():
            file.create_dataset(key, data=column, chunks=column.shape, fletcher32=True)
        block = file["rewards"].id.get_chunk_info(0).byte_offset
    raw = bytearray(path.read_bytes())
    raw[block] ^= 0xFF
    path.write_bytes(raw)
    assert "cannot be read" in fault(path)


def test_columns_of_objects_and_groups_are_refused_unread(tmp_path, write, fault, hopper_columns):
    path = write(tmp_path / "x.hdf5", without=("rewards", "actions"))
    with h5py.File(path, "a") as file:
        file.create_dataset("rewards", data=["1.0"] * ROWS, dtype=h5py.string_dtype())
        file["actions"] = hopper_columns["actions"]
    assert "stores rewards as object, not as numbers" in fault(path)
    with h5py.File(path, "a") as file:
        del file["rewards"]
        file.create_group("rewards")
    assert "a group where the column rewards should be" in fault(path)


def test_a_wrong_path_names_the_nearest_file(tmp_path, write, fault):
    write(tmp_path / "hopper_medium.hdf5")
    assert "did you mean 'hopper_medium.hdf5'" in fault(tmp_path / "hopper_meduim.hdf5")
    assert "there is no folder" in fault(tmp_path / "nowhere" / "x.hdf5")
    assert "is no Minari dataset" in fault(tmp_path)
    assert "pass a file in it, such as 'hopper_medium.hdf5'" in fault(tmp_path)
    assert "path or a name" in fault("")
    assert "path or a name" in fault(None)


# ---- several sources ----


def test_sources_are_put_together_with_a_column_that_tells_them_apart(tmp_path, write):
    paths = {"expert": str(write(tmp_path / "a.hdf5")), "medium": str(write(tmp_path / "b.hdf5"))}
    dataset = load(paths)
    assert len(dataset) == 2 * ROWS
    assert dataset.labels["source"] == ["expert", "medium"]
    assert dataset.columns["source"].dtype == np.int32
    assert np.array_equal(dataset.columns["source"], np.repeat([0, 1], ROWS))
    assert len(dataset.ends) == 2 * len(load(paths["expert"]).ends)
    assert dataset.environments[0].references == environment_references("Hopper-v5")


def test_sources_that_differ_are_refused(tmp_path, write, fault, hopper_columns):
    one = str(write(tmp_path / "a.hdf5"))
    other = str(write(tmp_path / "b.hdf5", env="Hopper-v4"))
    assert "'one' and 'other' differ in environment (Hopper-v5 and Hopper-v4)" in fault({"one": one, "other": other})
    narrow = hopper_columns["observations"][:, :4]
    other = str(write(tmp_path / "b.hdf5", env=None, observations=narrow, next_observations=narrow))
    free = str(write(tmp_path / "a.hdf5", env=None))
    assert "differ in observation size (11 and 4)" in fault({"one": free, "other": other})
    assert "No data source" in fault({})


def test_a_column_that_not_all_sources_have_is_left_out_with_a_note(tmp_path, write):
    one, other = write(tmp_path / "a.hdf5"), write(tmp_path / "b.hdf5")
    with h5py.File(one, "a") as file:
        file["driver"] = np.arange(ROWS)
    dataset = load({"one": str(one), "other": str(other)})
    assert list(dataset.columns) == ["source"]
    assert "left out: driver" in dataset.notes[0]


# ---- data beside the repository ----


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the logs in ../shared/data/mujoco")
def test_the_regenerated_logs_load():
    dataset = load(SHARED / "hopper_medium.hdf5")
    assert len(dataset) == 60_000
    assert dataset.returns.mean() == pytest.approx(1484, abs=30)
    both = load({"expert": str(SHARED / "halfcheetah_expert.hdf5"), "medium": str(SHARED / "halfcheetah_medium.hdf5")})
    assert both.environments[0].id == "HalfCheetah-v5"
    assert both.environments[0].references.label == "D4RL references (made for gym v2), evaluated in HalfCheetah-v5"


# ---- several environments ----


def in_environment(env_id: str, rows: int, low: float = 0.0, **kwargs) -> Dataset:
    columns = {
        "observations": np.zeros((rows, 2)),
        "next_observations": np.zeros((rows, 2)),
        "actions": np.zeros((rows, 1)),
        "rewards": np.zeros(rows),
        "terminals": np.zeros(rows, bool),
    }
    environment = Environment(env_id, kwargs, References(low, 10.0, "made up"))
    return validate(env_id, columns, spaces=symmetric(2, 1, 1.0), environment=environment)


def test_environments_of_one_family_are_put_together_and_told_apart(monkeypatch):
    parts = {
        "a": in_environment("Race/Oval-v0", 3, car="wet"),
        "b": in_environment("Race/Esses-v0", 4, car="dry"),
        "c": in_environment("Race/Oval-v0", 2, car="wet"),
        "d": in_environment("Race/Oval-v0", 1, car="dry"),
    }
    monkeypatch.setattr(loaders, "load", lambda path, env: parts[path])
    dataset = loaders._load_sources({name: name for name in parts}, None)
    assert dataset.labels["environment"] == ["Oval wet", "Esses dry", "Oval dry"]
    assert list(dataset.columns["environment"]) == [0] * 3 + [1] * 4 + [0] * 2 + [2]
    assert all(environment.references.high == 10.0 for environment in dataset.environments)
    parts["c"] = in_environment("Race/Oval-v0", 2, low=1.0, car="wet")
    assert loaders._load_sources({name: name for name in parts}, None).environments[0].references is None
    parts["e"] = dataset  # one that was put together before
    again = loaders._load_sources({name: name for name in ("b", "e")}, None)
    assert len(again.columns["environment"]) == len(again) == 4 + 10
    assert list(again.columns["environment"][4:]) == [1] * 3 + [0] * 4 + [1] * 2 + [2]
    parts["b"] = in_environment("Other/Esses-v0", 4)
    with pytest.raises(InputError, match="differ in environment"):
        loaders._load_sources({name: name for name in parts}, None)


def test_names_of_environments_are_short_and_distinct():
    oval, wet = Environment("Race/Oval-v0", {"beams": 9}), Environment("Race/Oval-v0", {"beams": 9, "car": "wet"})
    assert environment_names([oval]) == ["Race/Oval-v0"]
    assert environment_names([oval, wet]) == ["Oval", "Oval wet"]
    assert len(set(environment_names([oval, Environment("Other/Oval-v0", {"beams": 9})]))) == 2
    assert environment_names([replace(oval, name="mine"), wet]) == ["mine", "Oval wet"]


def test_settings_that_an_id_stands_for_are_not_repeated():
    import rl.envs  # noqa: F401  (it registers racing)

    assert own_settings("FedRacing/Oval-v0", {"track": "Oval", "car": "wet"}) == {"car": "wet"}
    assert own_settings("FedRacing/Oval-v0", {"track": "Kidney"}) == {"track": "Kidney"}
    assert own_settings("Unknown-v0", {"a": 1}) == {"a": 1}


def test_logs_that_are_not_there_are_made_by_the_recipe_of_their_name(monkeypatch):
    monkeypatch.setenv("MINARI_REMOTE", "nowhere://at-all")
    made = []
    recipes.register("fedrl/test/", made.append, ["fedrl/test/one-v0"], version=1)
    try:
        with pytest.raises(InputError, match="could not be downloaded"):
            load("fedrl/test/two-v0")
        assert made == ["fedrl/test/two-v0"]
        assert "fedrl/test/one-v0" in recipes.known_ids()
    finally:
        recipes._RECIPES.pop("fedrl/test/")

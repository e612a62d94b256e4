"""Minari datasets: episodes become rows, and what does not fit is a sentence."""

import json
from pathlib import Path

import gymnasium
import h5py
import minari
import numpy as np
import pytest
from minari.data_collector import EpisodeBuffer

from data import load

pytestmark = pytest.mark.filterwarnings("ignore:.*is set to None:UserWarning", "ignore:env_spec is None:UserWarning")


def episode(steps: int, size: int = 3, terminated: bool = False, flagged: bool = True, **infos) -> EpisodeBuffer:
    random = np.random.default_rng(steps)
    last = np.arange(steps) == steps - 1
    return EpisodeBuffer(
        observations=random.uniform(-1, 1, (steps + 1, size)).astype(np.float32),
        actions=random.uniform(-2, 2, (steps, 1)).astype(np.float32),
        rewards=random.normal(size=steps),
        terminations=last & terminated,
        truncations=last & flagged & ~np.bool_(terminated),
        infos=infos or None,
    )


def write_minari(dataset_id: str, episodes: list[EpisodeBuffer], **options) -> Path:
    minari.create_dataset_from_buffers(dataset_id, episodes, **({"env": "Pendulum-v1"} | options))
    return Path(minari.load_dataset(dataset_id).storage.data_path).parent


def test_a_minari_id_and_its_folder_give_the_same_columns():
    buffers = [episode(5, terminated=True), episode(7), *(episode(n) for n in range(8, 18))]
    folder = write_minari("logs/b-v0", buffers, ref_min_score=-10.0, ref_max_score=90.0)
    dataset = load("logs/b-v0")
    assert dataset.fingerprint() == load(folder).fingerprint()
    assert np.array_equal(dataset.observations, np.concatenate([b.observations[:-1] for b in buffers]))
    assert np.array_equal(dataset.next_observations, np.concatenate([b.observations[1:] for b in buffers]))
    assert np.array_equal(dataset.actions, np.concatenate([b.actions for b in buffers]))
    assert list(np.flatnonzero(dataset.terminals)) == [4]
    assert list(dataset.ends) == list(np.cumsum([len(b) for b in buffers]) - 1)
    assert dataset.trainable.all()
    environment = dataset.environments[0]
    assert (environment.id, environment.references.low, environment.references.high) == ("Pendulum-v1", -10.0, 90.0)


def test_a_minari_episode_without_an_end_is_a_timeout():
    write_minari("logs/b-v0", [episode(5, flagged=False), episode(6)])
    dataset = load("logs/b-v0")
    assert list(np.flatnonzero(dataset.timeouts)) == [4, 10]


def test_minari_integer_infos_become_columns_at_either_length():
    first = {"driver": np.arange(6), "lap": np.arange(5), "speed": np.zeros(5)}
    second = {"driver": np.arange(10, 14), "lap": np.arange(10, 13), "speed": np.zeros(3)}
    write_minari("logs/b-v0", [episode(5, **first), episode(3, **second)])
    columns = load("logs/b-v0").columns
    assert sorted(columns) == ["driver", "lap"]
    assert list(columns["driver"]) == [1, 2, 3, 4, 5, 11, 12, 13]
    assert list(columns["lap"]) == [0, 1, 2, 3, 4, 10, 11, 12]


def test_minari_spaces_other_than_flat_boxes_are_refused(fault):
    box, actions = gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Box(-2, 2, (1,))
    buffer = episode(5)
    nested = EpisodeBuffer(**{**vars(buffer), "observations": {"goal": buffer.observations}})
    spaces = {"env": None, "observation_space": gymnasium.spaces.Dict(goal=box), "action_space": actions}
    write_minari("logs/dict-v0", [nested], **spaces)
    assert "has Dict observations, but only flat Box observations are supported" in fault("logs/dict-v0")
    discrete = EpisodeBuffer(**{**vars(buffer), "actions": np.zeros(5, np.int64)})
    spaces = {"env": None, "observation_space": box, "action_space": gymnasium.spaces.Discrete(2)}
    write_minari("logs/discrete-v0", [discrete], **spaces)
    assert "has Discrete actions" in fault("logs/discrete-v0")


def test_damaged_minari_data_are_sentences(fault):
    folder = write_minari("logs/b-v0", [episode(5), episode(6)])
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        del file["episode_1/rewards"]
    assert "no array rewards in episode_1" in fault("logs/b-v0")
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        file["episode_1/rewards"] = np.zeros(4)
    assert "episode_1/" in fault("logs/b-v0")
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        del file["episode_0"], file["episode_1"]
    assert "has no episodes" in fault("logs/b-v0")
    (folder / "data" / "main_data.hdf5").unlink()
    assert "cannot be read" in fault("logs/b-v0")
    (folder / "data" / "metadata.json").write_text("{")
    assert "unreadable Minari metadata" in fault("logs/b-v0")


def test_the_settings_of_a_minari_environment_are_kept():
    folder = write_minari("logs/b-v0", [episode(5)])
    path = folder / "data" / "metadata.json"
    metadata = json.loads(path.read_text())
    metadata["env_spec"] = json.dumps({**json.loads(metadata["env_spec"]), "kwargs": {"g": 9.8}})
    path.write_text(json.dumps(metadata))
    assert load("logs/b-v0").environments[0].kwargs == {"g": 9.8}
    assert load("logs/b-v0", env="Pendulum-v1").environments[0].kwargs == {"g": 9.8}


def test_a_minari_download_that_fails_is_a_sentence(monkeypatch, fault):
    monkeypatch.setenv("MINARI_REMOTE", "nowhere://at-all")
    told = fault("mujoco/hopper/expert-v0")
    assert "could not be downloaded" in told
    assert "mujoco/hopper/expert-v0" in told
    assert "did you mean 'fedrl/pendulum/mixed-v0'" in fault("fedrl/pendulum/mixd-v0")

"""A small Pendulum log and small runs on it."""

from pathlib import Path

import gymnasium as gym
import h5py
import numpy as np
import pytest
from omegaconf import DictConfig

from fed.config import compose
from fed.run_folder import RunFolder
from fed.server import federate, prepare

SMALL = ["algo.hidden=[16,16]", "updates_per_round=7", "batch_size=16", "eval.episodes=2", "eval.every=2"]


@pytest.fixture(scope="session", autouse=True)
def own_minari_cache(tmp_path_factory):
    """Nothing of this machine's datasets is seen, and nothing is added to them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(tmp_path_factory.mktemp("minari")))
        yield


@pytest.fixture(scope="session")
def pendulum_file(tmp_path_factory) -> Path:
    """Twelve episodes of random torques in Pendulum-v1, in the D4RL layout."""
    env, columns = gym.make("Pendulum-v1"), {"observations": [], "actions": [], "rewards": [], "next_observations": []}
    env.action_space.seed(0)
    for episode in range(12):
        observation, _ = env.reset(seed=episode)
        for _ in range(200):
            action = env.action_space.sample()
            following, reward, *_ = env.step(action)
            for name, value in zip(columns, (observation, action, reward, following), strict=True):
                columns[name].append(value)
            observation = following
    path = tmp_path_factory.mktemp("logs") / "pendulum.hdf5"
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            file[name] = np.asarray(values, dtype=np.float32)
        file["terminals"] = np.zeros(2400, dtype=bool)
        file["timeouts"] = np.arange(2400) % 200 == 199
        file.attrs["env"] = "Pendulum-v1"
    return path


@pytest.fixture
def configure(pendulum_file, tmp_path):
    """`configure("seed=1", root="centralized", out="a")` → a composed configuration of a small run."""

    def configure(*overrides: str, root: str = "train", out: str = "run") -> DictConfig:
        base = ["algo=sac", "data=file", f"data.path={pendulum_file}", "rounds=3", "split.clients=4"]
        return compose(root, [*base, f"out={tmp_path / out}", *SMALL, *overrides])

    return configure


@pytest.fixture
def run():
    """Run a configuration to its end and return its folder."""

    def run(config: DictConfig, resume: bool = False, observe=lambda record: None) -> RunFolder:
        experiment, folder = prepare(config, resume)
        federate(experiment, folder, observe)
        return folder

    return run

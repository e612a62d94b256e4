"""Small logs in the D4RL layout, and caches of the tests' own."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from data import load
from data.errors import InputError

ROWS = 40


@pytest.fixture(autouse=True)
def own_caches(tmp_path, monkeypatch):
    """Nothing of this machine's caches is seen, nothing is written to them."""
    monkeypatch.setenv("D4RL_DATASET_DIR", str(tmp_path / "d4rl"))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


@pytest.fixture
def hopper_columns() -> dict[str, np.ndarray]:
    """Forty rows of Hopper's sizes: episodes of ten, ending in a terminal and in a timeout by turns."""
    random = np.random.default_rng(0)
    return {
        "observations": random.normal(size=(ROWS, 11)).astype(np.float32),
        "actions": random.uniform(-1, 1, (ROWS, 3)).astype(np.float32),
        "rewards": random.normal(size=ROWS).astype(np.float32),
        "next_observations": random.normal(size=(ROWS, 11)).astype(np.float32),
        "terminals": np.arange(ROWS) % 20 == 9,
        "timeouts": np.arange(ROWS) % 20 == 19,
    }


@pytest.fixture
def write(hopper_columns):
    """Write a file in the D4RL layout: `write(path, env=…, without=(…), rewards=…)`."""

    def write(path: Path, env: str | None = "Hopper-v5", without: tuple[str, ...] = (), **changes) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(path, "w") as file:
            if env is not None:
                file.attrs["env"] = env
            for key, column in (hopper_columns | changes).items():
                if key not in without:
                    file[key] = column
        return path

    return write


@pytest.fixture
def fault():
    """The sentence with which `load` refuses."""

    def fault(path, env: str | None = None) -> str:
        with pytest.raises(InputError) as raised:
            load(path, env)
        assert "\n" not in str(raised.value)
        return str(raised.value)

    return fault

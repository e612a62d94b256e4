"""How long loading takes against what h5py needs to read the same arrays."""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from data.loaders import load

OBSERVATION_SIZE, ACTION_SIZE, EPISODE_STEPS = 11, 3, 1_000  # as in Hopper-v5


@dataclass(frozen=True)
class LoadTiming:
    """Median seconds for one file layout, files warm in the page cache."""

    layout: str
    rows: int
    read_seconds: float  # h5py alone
    load_seconds: float  # with validation

    @property
    def ratio(self) -> float:
        return self.load_seconds / self.read_seconds

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows {self.layout}: load {self.load_seconds * 1e3:.1f} ms, "
            f"h5py {self.read_seconds * 1e3:.1f} ms, ratio {self.ratio:.2f}"
        )


def benchmark_load(rows: int = 1_000_000, repeats: int = 15) -> list[LoadTiming]:
    """Time `load` on an uncompressed D4RL-layout file, with and without next observations."""
    timings = []
    with tempfile.TemporaryDirectory() as folder:
        for layout, stores_next in (("with next_observations", True), ("without next_observations", False)):
            path = Path(folder) / "bench.hdf5"
            _write_log(path, rows, stores_next)
            read, loaded = _interleaved(lambda p=path: _read_all(p), lambda p=path: load(p), repeats)
            timings.append(LoadTiming(layout, rows, read, loaded))
    return timings


def _write_log(path: Path, rows: int, stores_next: bool) -> None:
    random = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file.attrs["env"] = "Hopper-v5"
        file["observations"] = random.standard_normal((rows, OBSERVATION_SIZE), np.float32)
        file["actions"] = random.uniform(-1, 1, (rows, ACTION_SIZE)).astype(np.float32)
        file["rewards"] = random.standard_normal(rows, np.float32)
        file["terminals"] = np.zeros(rows, bool)
        file["timeouts"] = np.arange(rows) % EPISODE_STEPS == EPISODE_STEPS - 1
        if stores_next:
            file["next_observations"] = random.standard_normal((rows, OBSERVATION_SIZE), np.float32)


def _read_all(path: Path) -> dict[str, np.ndarray]:
    with h5py.File(path, "r") as file:
        return {key: column[()] for key, column in file.items()}


def _interleaved(first: Callable, second: Callable, repeats: int) -> tuple[float, float]:
    """Median seconds of both, taken in turns so that a busy moment of the machine meets both."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats + 1):
        for action, taken in zip((first, second), seconds, strict=True):
            start = time.perf_counter()
            result = action()
            taken.append(time.perf_counter() - start)
            del result
    return statistics.median(seconds[0][1:]), statistics.median(seconds[1][1:])  # the first turn warms up

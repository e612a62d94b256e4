"""Promises that take minutes: learning, and a thousand clients."""

import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from fed.files import load_tensors

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "data" / "mujoco"
pytestmark = pytest.mark.slow


def script(name: str, *arguments: object) -> None:
    subprocess.run([sys.executable, str(ROOT / "scripts" / name), *map(str, arguments)], check=True)


def last_scores(folder: Path) -> list[float]:
    records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [record["score"] for record in records if record["score"] is not None][-5:]


def test_the_main_job_learns_to_drive_on_tracks_seen_and_not_seen(tmp_path):
    """An untrained policy scores about −5, and so much is reached with every seed tried; teams alone stay far below."""
    script("run_fed.py", "--out", tmp_path / "fed")
    script("run_fed.py", "--fed", "local", "--out", tmp_path / "local", "eval.every=15")
    summary = json.loads((tmp_path / "fed" / "summary.json").read_text())["last"]
    assert summary["score"] > 70
    assert summary["episode_metrics"]["lap_completed"] > 0.8
    assert summary["held_out"]["score"] > 60
    alone = json.loads((tmp_path / "local" / "summary.json").read_text())["last"]
    assert alone["score"] < summary["score"] - 15
    assert alone["own_score"] > alone["score"]


def test_sac_learns_to_swing_up_and_the_oracle_too(tmp_path):
    """Both start near 10 (random is 0, the expert controller 100); so much is reached with every seed tried."""
    pendulum = ["--algo", "sac", "--data", "pendulum", "--rounds", 50]
    script("run_fed.py", *pendulum, "--out", tmp_path / "fed")
    script("run_centralized.py", *pendulum, "--out", tmp_path / "central")
    assert min(last_scores(tmp_path / "fed")) > 80
    assert min(last_scores(tmp_path / "central")) > 80


def test_a_thousand_clients_fit_in_two_gib(tmp_path):
    script("make_dataset.py", "pendulum", "--episodes", 1200, "--id", "fedrl/pendulum/thousand-v0")
    many = ["--data", "fedrl/pendulum/thousand-v0", "--split", "iid", "split.clients=1000", "fed.fraction=0.05"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    script("run_fed.py", *many, "algo.hidden=[64,64]", "--rounds", 3, "--out", tmp_path / "many")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # of the largest child so far, in KiB
    assert before < 2 * 1024**2
    assert peak < 2 * 1024**2
    files = list((tmp_path / "many" / "clients").iterdir())
    assert 50 < len(files) <= 150  # those who took part in three rounds, one file each


@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared/data/mujoco/hopper_mixed.hdf5")
def test_the_hopper_file_runs_with_the_environment_it_names(tmp_path):
    data = ["--data", SHARED / "hopper_mixed.hdf5", "--split", "quantile", "--rounds", 5]
    script("run_fed.py", "--algo", "sac", *data, "--out", tmp_path / "hopper")
    assert json.loads((tmp_path / "hopper" / "summary.json").read_text())["environments"][0]["id"] == "Hopper-v5"


def test_a_run_killed_at_twenty_random_moments_ends_bit_for_bit_where_the_unbroken_one_does(tmp_path):
    """With partial participation, personal modules, a server optimiser, error feedback and clients that are lost."""
    settings = ["--algo", "sac", "--data", "pendulum", "--split", "iid", "split.clients=6", "--fed", "fedadam"]
    settings += ["fed.fraction=0.5", "fed.shared=[actor]", "compression.kind=top_k", "clients.drop_after=0.2"]
    settings += ["--rounds", 150, "updates_per_round=20", "eval.every=50", "eval.episodes=1"]
    script("run_fed.py", *settings, "--out", tmp_path / "whole")
    command = [sys.executable, ROOT / "scripts" / "run_fed.py", *settings, "--out", tmp_path / "killed", "--resume"]
    random, killed, done = np.random.default_rng(0), 0, []
    for _ in range(100):
        process = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)
        if killed < 20:
            done.append(_wait_for_rounds(process, tmp_path / "killed" / "rounds.jsonl", int(random.integers(1, 8))))
            time.sleep(random.uniform(0, 0.1))
            process.kill()
            killed += process.wait() == -signal.SIGKILL
        elif process.wait() == 0:
            break
    assert killed == 20
    assert len(set(done)) > 10  # it was killed in many rounds
    whole, broken = tmp_path / "whole", tmp_path / "killed"
    assert _without_times(whole) == _without_times(broken)
    names = sorted(path.relative_to(whole) for path in whole.rglob("*.safetensors"))
    assert names == sorted(path.relative_to(broken) for path in broken.rglob("*.safetensors"))
    for name in names:
        tensors, others = load_tensors(whole / name)[0], load_tensors(broken / name)[0]
        assert tensors.keys() == others.keys()
        assert all(torch.equal(tensors[key], others[key]) for key in tensors)


def _wait_for_rounds(process: subprocess.Popen, records: Path, more: int) -> int:
    """Until so many rounds more are recorded, or the process has ended."""

    def count() -> int:
        return records.read_bytes().count(b"\n") if records.exists() else 0

    begun = count()
    while process.poll() is None and count() < begun + more:
        time.sleep(0.005)
    return count()


def _without_times(run: Path) -> list[dict]:
    records = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if "seconds" not in key} for record in records]

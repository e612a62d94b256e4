"""The scripts as a user types them."""

import errno
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import pytest
import torch

from data.command_line import guarded
from fed import cli
from fed.config import options
from fed.files import load_tensors, write_atomically
from scripts import evaluate

ROOT = Path(__file__).parent.parent
SMALL = ["algo.hidden=[16,16]", "updates_per_round=3", "batch_size=16", "eval.episodes=2", "split.clients=2"]


def script(name: str, *arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "scripts" / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.fixture
def call(monkeypatch, capsys):
    """Call a script's main in this process: (exit code, standard output, standard error)."""

    def call(*arguments: object, root: str = "train") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["run_fed.py", *map(str, arguments)])
        code = 0
        try:
            guarded(lambda: cli.main(root, "run_fed.py", "test"))
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_scripts_run_from_the_shell_and_from_any_folder(pendulum_file, tmp_path):
    done = script("run_fed.py", "--data", pendulum_file, "--rounds", 2, "--out", "mine", *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "results in mine" in done.stderr
    records = [json.loads(line) for line in (tmp_path / "mine" / "rounds.jsonl").read_text().splitlines()]
    assert [record["round"] for record in records] == [0, 1, 2]
    played = script("evaluate.py", "mine", "--episodes", 3, "--picture", "p.png", "--export", "p.pt", cwd=tmp_path)
    assert played.returncode == 0, played.stderr
    assert (tmp_path / "p.png").stat().st_size > 10_000
    assert (tmp_path / "p.pt").exists()
    refused = script("run_fed.py", "--data", pendulum_file, "--out", "mine", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("simulator", [True, False])
def test_a_policys_value_is_estimated_from_its_logs_with_and_without_a_simulator(
    call, pendulum_file, tmp_path, monkeypatch, capsys, simulator
):
    logs = tmp_path / "logs.hdf5"
    shutil.copy(pendulum_file, logs)
    if not simulator:
        with h5py.File(logs, "r+") as file:
            del file.attrs["env"]
    assert call("--algo", "bc", "--data", logs, "--rounds", 1, "--out", tmp_path / "run", *SMALL)[0] == 0
    words = [tmp_path / "run", "--offline", "--updates", 9, "--batch-size", 8, "--gamma", 0.5, "--episodes", 2]
    monkeypatch.setattr(sys, "argv", ["evaluate.py", *map(str, words)])
    evaluate.main()
    out = capsys.readouterr().out
    assert "γ = 0.5, 9 updates of Q" in out
    assert "fitted" in out
    assert ("played" in out) == simulator
    assert ("score" in out) == simulator


def test_flags_are_sugar_for_overrides(call, pendulum_file):
    code, out, _ = call("--algo", "bc", "--fed", "local", "--split", "iid", "--seed", 3, "--rounds", 4, "--show")
    assert code == 0
    for line in ("_target_: rl.bc.BC", "_target_: data.splits.iid", "seed: 3", "rounds: 4", "shared: []"):
        assert line in out
    assert f"path: {pendulum_file}" in call("--data", pendulum_file, "--show")[1]
    assert "pooled: true" in call("--show", root="centralized")[1]


def test_help_lists_what_there_is_to_choose(call):
    code, out, _ = call("--help")
    assert code == 0
    assert ", ".join(options("algo")) in out
    assert "fedavg, fedavgm" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--alog", "sac"], "there is no flag '--alog'; did you mean '--algo'?"),
        (["--algo", "sca"], "There is no algo 'sca'; did you mean 'sac'?"),
        (["--data", "pendulm"], "There is no data 'pendulm'; did you mean 'pendulum'?"),
        (["--data", "absent.hdf5"], "There is no dataset at 'absent.hdf5'"),
        (["fed.shared=actor"], "fed.shared is actor; it must be all or a list such as [actor]."),
        (["seed=0,1"], "'seed=0,1' names several values; add -m to run each of them."),
        (["--resume"], "--resume needs --out"),
        (["--rounds", "-1"], "rounds is -1; it must be a whole number of at least 0."),
        (["seed=99999999999999999999999999"], "seed is"),
        (["choices.algo=bc"], "cannot be set"),
        (["algo@x=bc"], "cannot be set"),
        (["algo.clip=abc"], "algo.clip is abc; it must be a number above 0, or null."),
        (["algo.hidden=64"], "algo.hidden is 64; it must be a list of layer sizes"),
        (["algo.hidden=null"], "algo.hidden is None; it must be a list of layer sizes"),
        (["algo.target_entropy=abc"], "algo.target_entropy is abc"),
        (["engine.width=2.5"], "engine.width is 2.5"),
        (["engine.threads=10000000"], "engine.threads is 10000000"),
        (["fed.shared=null"], "fed.shared is None"),
        (["fed.aggregator.weighting=foo"], "choose one of size, rows, uniform"),
        (["+algo.foo=1"], "rl.sac.SAC takes no 'foo'"),
        (["algo._target_=rl.sac.SACK"], "cannot be made"),
        (["data.env=5"], "data.env is 5; it must be a text, or null."),
        (["data.path=null"], "data.path is None"),
        (["device=foo"], "device is foo; it must be cpu or cuda."),
        (["--config", "absent.yaml"], "There is no file 'absent.yaml'"),
        (["-m", "seed=0,0"], "the same ones twice"),
        (["-m", "split.clients=range(1,1)"], "names no values"),
        (["rounds=x"], "rounds takes a whole number"),
        (["fed.fraction=2"], "fed.fraction is 2; it must be a number above 0 and at most 1."),
        (["split.clients=0"], "clients"),
        (["eval.episodes=0"], "eval.episodes is 0"),
        (["eval.every=0"], "eval.every is 0"),
        (["algo.hidden=[]"], "algo.hidden"),
        (["data.env=Pendulum-v9"], "Pendulum-v9"),
        (["engine.width=0"], "engine.width is 0"),
        (["device=cuda"], "torch finds no CUDA device"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2_and_writes_nothing(
    call, pendulum_file, tmp_path, monkeypatch, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    data = [] if "--data" in arguments else ["--data", str(pendulum_file)]
    algo = [] if "--algo" in arguments or "-m" in arguments else ["--algo", "sac"]
    code, out, err = call(*data, *algo, *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert not (tmp_path / "outputs").exists()


def test_a_sweep_makes_a_folder_for_each_combination(call, pendulum_file, tmp_path):
    code, _, err = call(
        "-m", "seed=0,1", "algo=bc,sac", "--data", pendulum_file, "--rounds", 1, "--out", tmp_path / "s", *SMALL
    )
    assert code == 0, err
    folders = sorted(path.name for path in (tmp_path / "s").iterdir())
    assert folders == ["seed=0,algo=bc", "seed=0,algo=sac", "seed=1,algo=bc", "seed=1,algo=sac"]


def test_a_fault_in_any_job_of_a_sweep_shows_before_the_first_runs(call, pendulum_file, tmp_path):
    code, _, err = call("-m", "algo=bc,sca", "--data", pendulum_file, "--out", tmp_path / "s", *SMALL)
    assert code == 2
    assert "did you mean 'sac'?" in err
    assert not (tmp_path / "s").exists()


def test_runs_are_compared_in_a_table_and_a_picture(call, tmp_path):
    """On the project's own Pendulum logs, which have references and so scores."""
    for root, out in (("train", "fed"), ("centralized", "central")):
        code, _, err = call("--data", "pendulum", "--rounds", 1, "--out", tmp_path / out, *SMALL, root=root)
        assert code == 0, err
    done = script("analyze.py", tmp_path / "fed", tmp_path / "central", "--target", 1000, "--out", tmp_path / "c.png")
    assert done.returncode == 0, done.stderr
    assert "bc centralised" in done.stdout
    assert "never" in done.stdout
    assert (tmp_path / "c.png").stat().st_size > 10_000
    assert "…" not in done.stdout  # nothing is cut off at 80 columns
    parent = script("analyze.py", tmp_path)
    assert "bc fedavg" in parent.stdout  # a folder of runs stands for them
    assert "bc centralised" in parent.stdout
    assert script("analyze.py", tmp_path / "absent").returncode == 2


def test_code_that_only_a_file_names_is_not_imported(call, pendulum_file, tmp_path, monkeypatch):
    evil = tmp_path / "evil.hdf5"
    shutil.copy(pendulum_file, evil)
    with h5py.File(evil, "r+") as file:
        file.attrs["env"] = "evilmod:Thing-v0"
    (tmp_path / "evilmod.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    code, _, err = call("--data", evil, "--out", tmp_path / "run", *SMALL)
    assert code == 2
    assert "which is not registered here" in err
    assert "evilmod" not in sys.modules


def test_a_job_of_a_sweep_that_cannot_run_does_not_stop_the_others(call, pendulum_file, tmp_path):
    small = [item for item in SMALL if not item.startswith("split")]
    sweep = ["-m", "split.clients=2,500", "--data", pendulum_file, "--rounds", 1, "--out", tmp_path / "s"]
    code, _, err = call(*sweep, *small)
    assert code == 2
    assert "Job split.clients=500 did not run" in err
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["split.clients=2"]


def test_resume_takes_the_runs_own_settings_and_refuses_others(call, pendulum_file, tmp_path):
    out = ["--out", tmp_path / "run", "--resume"]
    assert call("--algo", "bc", "--data", pendulum_file, "--rounds", 1, *out, *SMALL)[0] == 0
    code, _, err = call("--rounds", 2, *out)
    assert code == 0, err
    assert "bc · fedavg" in err
    assert "is finished" not in err
    code, _, err = call(*out)
    assert code == 0
    assert "is finished" in err
    code, _, err = call("--algo", "sac", *out)
    assert code == 2
    assert "choices.algo was bc and is now sac" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_told_to_stop_says_how_to_go_on_and_does(call, pendulum_file, tmp_path, number):
    small = ["--data", pendulum_file, "--rounds", 200, "--out", tmp_path / "run", *SMALL, "eval=none"]
    command = [sys.executable, str(ROOT / "scripts" / "run_fed.py"), *map(str, small)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    records = tmp_path / "run" / "rounds.jsonl"
    while process.poll() is None and not (records.exists() and records.read_bytes().count(b"\n") > 2):
        time.sleep(0.01)
    process.send_signal(number)
    assert "Finished rounds are saved" in process.communicate()[1]
    assert process.returncode != 0
    code, _, err = call(*small, "--resume")
    assert code == 0, err


def test_a_full_disk_is_a_sentence_and_costs_the_round_in_progress_only(call, pendulum_file, tmp_path, monkeypatch):
    small = ["--data", pendulum_file, "--rounds", 3, *SMALL]
    assert call(*small, "--out", tmp_path / "whole")[0] == 0

    def full(path: Path, content: bytes) -> None:
        if "round000002" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_atomically(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("fed.files.write_atomically", full)
        code, _, err = call(*small, "--out", tmp_path / "full")
    assert code == 2
    assert "No space left on device" in err
    assert "--resume goes on" in err
    assert call(*small, "--out", tmp_path / "full", "--resume")[0] == 0
    whole, full_run = (
        load_tensors(tmp_path / name / "checkpoints" / "last.safetensors")[0] for name in ("whole", "full")
    )
    assert all(torch.equal(whole[name], full_run[name]) for name in whole)


def test_several_files_are_named_sources(call, pendulum_file, tmp_path):
    sources = f"first={pendulum_file},second={pendulum_file}"
    small = [item for item in SMALL if not item.startswith("split")]
    code, _, err = call("--data", sources, "--split", "source", "--rounds", 1, "--out", tmp_path / "run", *small)
    assert code == 0, err
    shards = json.loads((tmp_path / "run" / "shards.json").read_text())
    assert [client["name"] for client in shards["clients"]] == ["first", "second"]

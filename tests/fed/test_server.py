"""The identities that make a federated run believable."""

import json

import pytest
import torch

from fed.experiment import Experiment
from fed.files import load_tensors
from fed.run_folder import RunFolder
from fed.server import federate

TIMES = ("seconds", "seconds_train", "seconds_evaluate")
ALGOS = pytest.mark.parametrize("algo", ["bc", "sac"])


def history(folder: RunFolder) -> list[dict]:
    """The records without their wall-clock times."""
    return [{key: value for key, value in record.items() if key not in TIMES} for record in folder.history()]


def tensors_of(folder: RunFolder) -> dict[str, torch.Tensor]:
    """The checkpoint and every client's file."""
    found = dict(load_tensors(folder.checkpoint)[0])
    for path in sorted(folder.clients.folder.iterdir()):
        found |= {f"{path.name}:{name}": tensor for name, tensor in load_tensors(path)[0].items()}
    return found


def assert_same_bits(a: RunFolder, b: RunFolder) -> None:
    left, right = tensors_of(a), tensors_of(b)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


@ALGOS
def test_fedavg_of_one_client_is_the_centralised_run(configure, run, algo):
    federated = run(configure(f"algo={algo}", "split.clients=1", out="fed"))
    central = run(configure(f"algo={algo}", root="centralized", out="central"))
    assert_same_bits(federated, central)
    assert [r["score"] for r in history(federated)] == [r["score"] for r in history(central)]
    assert [r["return_mean"] for r in history(federated)] == [r["return_mean"] for r in history(central)]


@ALGOS
def test_parameters_agree_at_any_chunk_width(configure, run, algo):
    layouts = {"a": (4, 1), "b": (2, 2), "c": (1, 2), "d": (3, 1)}
    runs = {
        name: run(configure(f"algo={algo}", f"engine.width={w}", f"engine.workers={n}", "engine.threads=1", out=name))
        for name, (w, n) in layouts.items()
    }
    reference = load_tensors(runs["a"].checkpoint)[0]
    for other in runs.values():
        for name, tensor in load_tensors(other.checkpoint)[0].items():
            torch.testing.assert_close(tensor, reference[name], atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("extra", [[], ["fed=local"], ["fed.fraction=0.5"], ["fed.shared=[critic]"]])
def test_resumed_equals_unbroken_bit_for_bit(configure, run, extra):
    unbroken = run(configure("rounds=5", *extra, out="unbroken"))

    class Killed(Exception):
        pass

    def kill_at_two(record):
        if record["round"] == 2:
            raise Killed

    with pytest.raises(Killed):
        run(configure("rounds=5", *extra, out="broken"), observe=kill_at_two)
    broken = run(configure("rounds=5", *extra, out="broken"), resume=True)
    assert_same_bits(unbroken, broken)
    assert history(unbroken) == history(broken)


def test_what_a_killed_round_left_behind_is_forgotten(configure, run):
    unbroken = run(configure("rounds=4", "fed.fraction=0.5", out="unbroken"))
    broken = run(configure("rounds=2", "fed.fraction=0.5", out="broken"))
    kept = sorted(broken.clients.folder.iterdir())
    orphan = broken.clients.folder / kept[0].name.replace(kept[0].name.split(".")[1], "round000003")
    orphan.write_bytes(b"half of a client's file")
    with broken.records.open("a") as file:
        file.write('{"round": 3, "sco')
    resumed = run(configure("rounds=4", "fed.fraction=0.5", out="broken"), resume=True)
    assert_same_bits(unbroken, resumed)
    assert history(unbroken) == history(resumed)


def test_the_same_seed_gives_the_same_run_and_another_seed_another(configure, run):
    first, again = run(configure(out="a")), run(configure(out="b"))
    other = run(configure("seed=1", out="c"))
    assert_same_bits(first, again)
    assert history(first) == history(again)
    assert not torch.equal(tensors_of(first)["actor"], tensors_of(other)["actor"])


def test_each_record_has_what_the_analysis_needs(configure, run):
    folder = run(configure("fed.fraction=0.5"))
    records = folder.history()
    needed = {"round", "score", "return_mean", "participants", "weights", "bytes_up", "bytes_down", "seconds"}
    assert [record["round"] for record in records] == [0, 1, 2, 3]
    assert all(needed <= record.keys() for record in records)
    assert [record["return_mean"] is None for record in records] == [False, True, False, False]
    for record in records[1:]:
        assert len(record["participants"]) == 2
        assert sum(record["weights"]) == pytest.approx(1)
    size = sum(load_tensors(folder.checkpoint)[0][name].nbytes for name in ("actor", "critic", "temperature"))
    assert records[1]["bytes_up"] == records[1]["bytes_down"] == 2 * size


def test_the_local_floor_shares_nothing_and_scores_every_client(configure, run):
    folder = run(configure("fed=local"))
    records = folder.history()
    assert all(record["bytes_up"] == 0 for record in records[1:])
    assert "actor" not in load_tensors(folder.checkpoint)[0]
    actors = [folder.clients.load(k)["actor"] for k in range(4)]
    assert not torch.equal(actors[0], actors[1])


def test_the_summary_says_on_which_data_and_with_which_code(configure, run):
    folder = run(configure())
    summary = json.loads((folder.path / "summary.json").read_text())
    assert summary["finished"]
    assert summary["environment"] == "Pendulum-v1"
    assert len(summary["data"]["hash"]) >= 32
    assert "torch" in summary["libraries"]
    assert json.loads((folder.path / "shards.json").read_text())


def test_a_client_that_fails_is_left_out_and_said_so(configure, run):
    """Rewards so large that a square overflows: the critic's gradient is not finite from the first update on."""
    experiment = Experiment.build(configure("normalise.rewards=none", "fed.shared=all"))
    ill = experiment.shards.rows(2)
    experiment.dataset.rewards[ill] = 1e30
    folder = RunFolder.open(experiment.config, resume=False)
    federate(experiment, folder)
    for record in folder.history()[1:]:
        assert list(record["failures"]) == ["2"]
        assert "critic" in record["failures"]["2"]
        assert record["weights"][2] == 0
        assert sum(record["weights"]) == pytest.approx(1)
    assert all(torch.isfinite(tensor).all() for tensor in load_tensors(folder.checkpoint)[0].values())


def test_values_beyond_what_any_policy_earns_are_flagged(configure, run):
    folder = run(
        configure("algo.initial_temperature=1000.0", "algo.critic_lr=0.1", "algo.gamma=0.9", "updates_per_round=40")
    )
    assert any(record.get("flags") for record in folder.history())
    assert json.loads((folder.path / "summary.json").read_text())["rounds_with_flags"] > 0

"""The identities that make a federated run believable."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fed.config import options
from fed.files import load_tensors
from fed.run_folder import RunFolder
from fed.server import federate, prepare
from fed.trained import TrainedRun
from tests.rl.test_networks import plain_copy

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


class Killed(Exception):
    pass


def assert_resumes_bit_for_bit(configure, run, *settings: str) -> RunFolder:
    """A run that is killed after its second round and resumed ends where the unbroken one does."""
    unbroken = run(configure(*settings, out="unbroken"))

    def kill_at_two(record):
        if record["round"] == 2:
            raise Killed

    with pytest.raises(Killed):
        run(configure(*settings, out="broken"), observe=kill_at_two)
    broken = run(configure(*settings, out="broken"), resume=True)
    assert_same_bits(unbroken, broken)
    assert history(unbroken) == history(broken)
    return unbroken


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
    assert_resumes_bit_for_bit(configure, run, "rounds=5", *extra)


def test_what_a_killed_round_left_behind_is_forgotten(configure, run):
    unbroken = run(configure("rounds=4", "fed.fraction=0.5", out="unbroken"))
    broken = run(configure("rounds=2", "fed.fraction=0.5", out="broken"))
    (broken.clients.folder / "000000.round000009.safetensors").write_bytes(b"half of a client's file")
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
    assert summary["environments"][0]["id"] == "Pendulum-v1"
    assert len(summary["data"]["hash"]) >= 32
    assert "torch" in summary["libraries"]
    assert json.loads((folder.path / "shards.json").read_text())


def test_a_client_that_fails_is_left_out_and_said_so(configure, run):
    """Rewards so large that a square overflows: the critic's gradient is not finite from the first update on."""
    experiment, folder = prepare(configure("normalise.rewards=none", "fed.shared=all"))
    experiment.dataset.rewards[experiment.shards.rows(2)] = 1e30
    federate(experiment, folder)
    for record in folder.history()[1:]:
        assert list(record["failures"]) == ["2"]
        assert "critic" in record["failures"]["2"]
        assert record["weights"][2] == 0
        assert sum(record["weights"]) == pytest.approx(1)
    assert all(torch.isfinite(tensor).all() for tensor in load_tensors(folder.checkpoint)[0].values())


@pytest.mark.parametrize("algo", options("algo"))
def test_with_every_learner_a_nan_stops_its_client_with_a_sentence_and_never_the_run(configure, algo):
    small = ["rounds=1", "updates_per_round=3", "eval=none"]
    for broken in ([2], [0, 1, 2, 3]):
        experiment, folder = prepare(configure(f"algo={algo}", *small, out=f"run{len(broken)}"))
        for client in broken:
            experiment.dataset.observations[experiment.shards.rows(client)] = np.nan
        federate(experiment, folder)
        record = folder.history()[-1]
        assert list(record["failures"]) == [str(client) for client in broken]
        assert all("not finite" in why for why in record["failures"].values())
        assert [weight > 0 for weight in record["weights"]] == [client not in broken for client in range(4)]
        state = load_tensors(folder.checkpoint)[0]
        assert all(torch.isfinite(tensor).all() for tensor in state.values())
    assert all(torch.equal(state[name], row) for name, row in experiment.initial.items())


def test_values_beyond_what_any_policy_earns_are_flagged(configure, run):
    folder = run(
        configure("algo.initial_temperature=1000.0", "algo.critic_lr=0.1", "algo.gamma=0.9", "updates_per_round=40")
    )
    assert any(record.get("flags") for record in folder.history())
    assert json.loads((folder.path / "summary.json").read_text())["rounds_with_flags"] > 0


def test_a_client_goes_on_where_it_stood(configure, run):
    """Local training over rounds is training without rounds: parameters, moments and targets carry over."""
    folder = run(configure("fed=local", "rounds=3", "engine.width=4"))
    experiment, _ = prepare(configure("fed=local", "rounds=3", out="never"))
    cohort = experiment.make_learner(4)
    cohort.broadcast(experiment.initial)
    for round in (1, 2, 3):
        for batch in experiment.sampler.batches(range(4), round, 7):
            cohort.update(batch)
    for client in range(4):
        for name, tensor in folder.clients.load(client).items():
            assert torch.equal(tensor, cohort.state()[name][client]), name


def test_the_policy_normalises_and_rescales_by_the_datas_own_statistics(configure):
    experiment, _ = prepare(configure())
    row, raw = experiment.initial["actor"], experiment.dataset.observations[:5]
    mean, std = experiment.dataset.observations.mean(0), experiment.dataset.observations.std(0)
    network = plain_copy(experiment.make_learner(1).actor.network, row)
    expected = 2 * torch.tanh(network(torch.from_numpy((raw - mean) / std))[:, :1])  # Pendulum: torque in ±2
    np.testing.assert_allclose(experiment.policy([row]).act(raw[None])[0], expected.detach(), atol=1e-3)


def test_rounds_draw_their_own_participants_and_batches(configure, run):
    records = run(configure("rounds=6", "fed.fraction=0.5", "eval=none")).history()[1:]
    assert len({tuple(record["participants"]) for record in records}) > 1
    losses = [
        record["metrics"]["actor_loss"]
        for record in run(
            configure(
                "fed=local",
                "algo.actor_lr=1e-30",
                "algo.critic_lr=1e-30",
                "algo.temperature_lr=1e-30",
                "eval=none",
                out="still",
            )
        ).history()[1:]
    ]
    assert len(set(losses)) == len(losses)  # nothing moves, so only the batches differ


def test_the_local_score_is_that_of_the_policies_on_disk(configure, run):
    folder = run(configure("fed=local", "rounds=2"))
    trained = TrainedRun.load(folder.path)
    evaluation = trained.evaluate(episodes=2, seed=10_000)
    assert folder.history()[-1]["return_mean"] == pytest.approx(evaluation.returns.mean(), rel=1e-6)


@pytest.mark.parametrize("moment", range(1, 12))
def test_a_run_killed_at_any_write_resumes_bit_for_bit(configure, run, monkeypatch, moment):
    """Two of four clients a round, the critic personal; every rename and deletion in turn is the last thing done."""
    settings = ["rounds=3", "fed.fraction=0.5", "fed.shared=[actor,temperature]", "eval=none"]
    unbroken = run(configure(*settings, out="unbroken"))

    class Killed(BaseException):
        pass

    calls = []

    def dying(original):
        def call(*arguments, **options):
            calls.append(original)
            if len(calls) > 2 * moment:
                raise Killed
            return original(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", dying(Path.replace))
        patch.setattr(Path, "unlink", dying(Path.unlink))
        with pytest.raises(Killed):
            run(configure(*settings, out="broken"))
    broken = run(configure(*settings, out="broken"), resume=True)
    assert_same_bits(unbroken, broken)
    assert history(unbroken) == history(broken)


def test_when_everybody_fails_the_model_stays_and_the_run_goes_on(configure):
    experiment, folder = prepare(configure("normalise.rewards=none"))
    experiment.dataset.rewards[:] = 1e30
    summary = federate(experiment, folder)
    assert summary["rounds_with_failures"] == 3
    state = load_tensors(folder.checkpoint)[0]
    assert all(torch.equal(state[name], row) for name, row in experiment.initial.items())
    assert folder.history()[-1]["weights"] == [0.0] * 4


def test_returns_that_are_not_finite_are_recorded_as_such(configure, run):
    """A step so large that the actor stays finite and its actions do not."""
    records = run(configure("algo=bc", "algo.lr=1e30", "rounds=2")).history()
    assert any("evaluation_failed" in record or record.get("failures") for record in records)


def test_a_client_trains_on_its_best_episodes_where_only_they_are_asked_for(configure, run):
    experiment, folder = prepare(configure("top=0.34", "rounds=1"))  # of three episodes each
    federate(experiment, folder)
    whole, _ = prepare(configure(out="whole"))
    assert experiment.shards.episodes.tolist() == [1, 1, 1, 1]
    for k in range(4):
        best = whole.shards.returns(whole.dataset)[whole.shards.piece_client == k].max()
        assert experiment.shards.returns(experiment.dataset)[k] == pytest.approx(best)
    shards = json.loads((folder.path / "shards.json").read_text())
    assert [client["episodes"] for client in shards["clients"]] == [1, 1, 1, 1]
    pooled, _ = prepare(configure("top=0.5", root="centralized", out="pooled"))
    assert pooled.shards.episodes.tolist() == [6]

"""Rules, faults and compression in whole runs."""

import json
import shutil

import h5py
import pytest
import torch

from data.errors import InputError
from fed.config import options
from fed.files import load_tensors
from fed.server import prepare
from tests.fed.test_server import assert_resumes_bit_for_bit, assert_same_bits, tensors_of

RATIOS = ("ratio_weighted", "reference_buffer")


def learner_for(rule: str) -> str:
    return "optidice" if rule in RATIOS else "fedora" if rule == "fedora" else "sac"


@pytest.mark.parametrize("rule", [rule for rule in options("fed") if rule not in ("fedavg", "local")])
def test_every_rule_runs_and_a_resumed_run_ends_where_the_unbroken_one_does(configure, run, rule):
    settings = [f"fed={rule}", f"algo={learner_for(rule)}", "fed.fraction=0.75"]
    unbroken = assert_resumes_bit_for_bit(configure, run, *settings)
    state, start = tensors_of(unbroken), prepare(configure(*settings, out="start"))[0].initial
    assert all(torch.isfinite(tensor).all() for tensor in state.values())
    assert not torch.equal(state["actor"], start["actor"])


def test_fedprox_without_mu_is_fedavg(configure, run):
    assert_same_bits(run(configure(out="a")), run(configure("fed=fedprox", "fed.local.mu=0.0", out="b")))


def test_fednova_with_equal_steps_and_the_plain_server_step_are_fedavg(configure, run):
    fedavg = load_tensors(run(configure(out="a")).checkpoint)[0]
    nova = load_tensors(run(configure("fed=fednova", out="b")).checkpoint)[0]
    plain = load_tensors(run(configure("fed=fedavgm", "fed.server.beta=0.0", out="c")).checkpoint)[0]
    for name in ("actor", "critic"):
        torch.testing.assert_close(nova[name], fedavg[name], atol=1e-5, rtol=1e-3)
        torch.testing.assert_close(plain[name], fedavg[name], atol=1e-5, rtol=1e-3)


def test_ratio_weights_by_size_alone_are_fedavg_by_rows(configure, run):
    common = ["algo=optidice", "algo.warm_up=0"]
    fedavg = run(configure(*common, "fed.aggregator.weighting=rows", out="a"))
    by_size = ["fed=ratio_weighted", "fed.aggregator.mixture=0.0", "fed.aggregator.policy=size"]
    other = run(configure(*common, *by_size, out="b"))
    for name, tensor in load_tensors(fedavg.checkpoint)[0].items():
        torch.testing.assert_close(load_tensors(other.checkpoint)[0][name], tensor, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("rule", ["fedavg", "median", "geometric_median"])
def test_shared_moments_are_averaged_too(configure, run, rule):
    folder = run(configure(f"fed={rule}", "fed.optimiser_state=average"))
    state = load_tensors(folder.checkpoint)[0]
    assert state["actor/adam_steps"] == 3 * 7
    assert (state["actor/adam_v"] >= 0).all()
    assert state["actor/adam_v"].sum() > 0
    kept = load_tensors(next(folder.clients.folder.iterdir()))[0]
    assert not any("adam" in name for name in kept)
    plain = run(configure(f"fed={rule}", out="plain")).history()[-1]
    assert folder.history()[-1]["bytes_down"] > 2.9 * plain["bytes_down"]


def test_with_one_client_it_does_not_matter_where_its_moments_are(configure, run):
    local = load_tensors(run(configure("split.clients=1", out="a")).checkpoint)[0]
    average = load_tensors(run(configure("split.clients=1", "fed.optimiser_state=average", out="b")).checkpoint)[0]
    reset = load_tensors(run(configure("split.clients=1", "fed.optimiser_state=reset", out="c")).checkpoint)[0]
    assert torch.equal(local["actor"], average["actor"])
    assert not torch.equal(local["actor"], reset["actor"])


def test_the_record_tells_weights_drift_and_bytes(configure, run):
    record = run(configure("algo=optidice", "algo.warm_up=0", "compression.kind=int8")).history()[-1]
    assert sum(record["weights"]) == pytest.approx(1)
    assert sum(record["module_weights"]["actor"]) == pytest.approx(1)
    drift = record["drift"]
    assert len(drift["norms"]) == len(drift["cosines"]) == 4
    assert -1 <= drift["pairwise_cosine"] <= 1
    assert -1 <= drift["cosine"] <= 1
    assert record["bytes_up"] < 0.3 * record["bytes_down"]


def test_liars_are_screened_and_what_is_not_finite_never_reaches_the_model(configure, run):
    lying = ["clients.adversaries=[2]", "clients.attack=non_finite"]
    record = run(configure(*lying, out="a")).history()[-1]
    assert list(record["screened"]) == ["2"]
    assert record["weights"][2] == 0
    loud = ["clients.adversaries=[1]", "clients.attack=scale", "clients.strength=1000", "screen.norm=6"]
    record = run(configure(*loud, out="b")).history()[-1]
    assert list(record["screened"]) == ["1"]


def test_a_client_with_flipped_rewards_learns_something_else_and_the_others_do_not(configure, run):
    honest = run(configure("fed=local", out="a"))
    flipped = run(configure("fed=local", "clients.adversaries=[1]", "clients.attack=flip_rewards", out="b"))
    for client in range(4):
        a, b = honest.clients.load(client), flipped.clients.load(client)
        assert torch.equal(a["critic"], b["critic"]) == (client != 1)


def test_slow_clients_take_fewer_updates_and_are_told(configure, run):
    slow = ["clients.slowness=1.0", "clients.time_limit=0.5"]
    partial = run(configure(*slow, "updates_per_round=20", out="a"))
    steps = partial.history()[-1]["steps"]
    assert min(steps) < max(steps) <= 20
    for client, taken in enumerate(steps):
        assert partial.clients.load(client)["critic/adam_steps"] == 3 * taken
    dropped = run(configure(*slow, "updates_per_round=20", "clients.late=drop", out="b")).history()[-1]["dropped"]
    assert set(dropped) == {str(client) for client, taken in enumerate(steps) if taken < 20}


def test_too_few_answers_are_asked_for_again_and_then_stop_the_run_with_what_it_has(configure, run):
    lost = ["clients.drop_after=0.5", "clients.quorum=0.75", "fed.fraction=1.0"]
    repeated = run(configure(*lost, "clients.attempts=50", out="a"))
    assert max(record.get("attempts", 1) for record in repeated.history()) > 1
    assert all(len(record.get("dropped", {})) <= 1 for record in repeated.history())
    with pytest.raises(InputError, match=r"saved as it was after round 0; --resume with another clients\.quorum"):
        run(configure("clients.drop_before=1.0", "clients.quorum=0.5", out="b"))
    _, folder = prepare(configure("clients.drop_before=1.0", "clients.quorum=0.5", out="b"), resume=True)
    stopped = json.loads(folder.records.read_text())
    assert stopped["round"] == 0
    run(configure("clients.drop_before=1.0", "clients.quorum=0.0", out="b"), resume=True)  # content with nobody


def test_controls_stay_the_mean_of_the_clients_own_when_messages_are_lost_or_screened(configure, run):
    settings = ["fed=scaffold", "clients.drop_after=0.4", "clients.adversaries=[0]", "clients.attack=non_finite"]
    folder = run(configure(*settings, "rounds=4"))
    assert any("dropped" in record for record in folder.history())
    shards = json.loads((folder.path / "shards.json").read_text())["clients"]
    sizes = torch.tensor([float(client["rows"]) for client in shards])
    state = load_tensors(folder.checkpoint)[0]
    for module in ("actor", "critic"):
        server = state[f"control/{module}"]
        own = [(folder.clients.load(k) or {}).get(f"control/{module}", torch.zeros_like(server)) for k in range(4)]
        assert server.abs().max() > 0
        torch.testing.assert_close(server, (sizes @ torch.stack(own)) / sizes.sum(), atol=1e-5, rtol=1e-3)


def test_what_is_compressed_away_and_never_arrives_is_not_forgotten(configure, run):
    """A client whose messages are all lost still owes its first steps."""
    kept = run(configure("compression.kind=top_k", "clients.drop_after=1.0")).clients.load(0)
    assert not any(name.startswith("error/") for name in kept)


@pytest.mark.parametrize("algo", [["algo=td3"], ["algo=optidice", "algo.warm_up=0.4"]])
@pytest.mark.parametrize("rule", ["fedavg", "median", "adaptive"])
def test_chunks_that_have_trained_other_objectives_go_together(configure, run, algo, rule):
    """Slow clients end before the actor's first step, or before the warm-up is over."""
    slow = ["clients.slowness=2.0", "clients.time_limit=0.5", "engine.width=1", f"fed={rule}"]
    history = run(configure(*algo, *slow)).history()
    assert history[-1]["metrics"]["actor_loss"] is not None


def test_a_module_that_only_the_data_names_is_not_imported_for_rollouts_either(configure, pendulum_file, tmp_path):
    path = tmp_path / "strange.hdf5"
    shutil.copy(pendulum_file, path)
    with h5py.File(path, "a") as file:
        file.attrs["env"] = "this_is_not_there:Env-v0"
    settings = ["fed=reference_buffer", "algo=optidice", "eval=none", f"data.path={path}"]
    with pytest.raises(InputError, match="not registered here"):
        prepare(configure(*settings))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["clients.adversaries=[99]"], "there are clients 0 to 3"),
        (["fed=fedprox", "fed.local.mu=-1"], "at least 0"),
        (["fed=fedprox", "fed.local.mu={nobody: 1.0}"], "the shared modules are"),
        (["fed=fedavgm", "fed.server.lr=-1"], "above 0"),
        (["fed=scaffold", "fed.local.batches=0"], "at least 1"),
        (["clients.available=/nowhere.json"], "a JSON list with a list of clients"),
        (["fed.aggregator.weighting=[1,2]"], "there are 4 clients"),
        (["fed.server=abc"], "a mapping with a _target_"),
        (["fed.server={lr: 1.0}"], "a mapping with a _target_"),
        (["fed=reference_buffer", "algo=optidice", "fed.reference.rows_from=x"], "rollouts or public"),
        (["fed=reference_buffer", "algo=optidice", "fed.reference.rows=0"], "at least 1"),
        (["clients.time_limit=inf"], "above 0"),
    ],
)
def test_a_fault_in_the_settings_is_a_sentence_before_anything_is_written(configure, tmp_path, settings, sentence):
    with pytest.raises(InputError, match=sentence):
        prepare(configure(*settings))
    assert not (tmp_path / "run").exists()


def test_mu_can_be_given_by_module(configure, run):
    plain = load_tensors(run(configure(out="a")).checkpoint)[0]
    held = load_tensors(run(configure("fed=fedprox", "fed.local.mu={actor: 0.0}", out="b")).checkpoint)[0]
    assert torch.equal(plain["critic"], held["critic"])


def test_a_rule_that_the_learner_cannot_serve_is_a_sentence_before_anything_runs(configure):
    with pytest.raises(InputError, match="algo=optidice"):
        prepare(configure("fed=ratio_weighted", "algo=bc"))
    with pytest.raises(InputError, match="algo=fedora"):
        prepare(configure("fed=fedora", "algo=sac"))
    without = configure("fed=reference_buffer", "algo=optidice", "fed.reference.rows_from=public")
    with pytest.raises(InputError, match=r"split\.public"):
        prepare(without)


def test_lambda_can_be_set_right_on_the_reference_rows(configure, run):
    """The mean ratio of the new global dual on them is then 1."""
    settings = ["algo=optidice", "fed=reference_buffer", "fed.reference.rows_from=public", "split.public=0.2"]
    folder = run(configure(*settings, "fed.reference.renormalise=true"))
    experiment, _ = prepare(configure(*settings, "fed.reference.renormalise=true", out="again"))
    cohort = experiment.make_learner(1)
    cohort.broadcast({name: row for name, row in load_tensors(folder.checkpoint)[0].items() if name in cohort.params})
    reference = experiment.clients(folder.clients).reference({})
    assert reference.values(cohort)["ratio"].mean() == pytest.approx(1, abs=1e-3)


def test_the_best_by_evaluation_is_kept_beside_the_last(configure, run):
    folder = run(configure("rounds=4", "eval.every=1"))
    best = load_tensors(folder.checkpoint.with_name("best.safetensors"))[1]
    scores = {record["round"]: record["return_mean"] for record in folder.history()}
    assert scores[best["round"]] == max(scores.values())

import os

import numpy as np
import pytest
import torch

from data.errors import InputError
from fed.engines import inprocess
from fed.engines.inprocess import Layout
from fed.files import load_tensors
from fed.server import federate, prepare
from metrics.ratios import ratio_statistics


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)


@pytest.mark.parametrize(
    ("participants", "hidden", "expected"),
    [
        (10, 64, Layout(width=5, workers=2, threads=1)),  # a cohort on each core
        (50, 64, Layout(width=13, workers=2, threads=1)),  # four chunks in two even waves, not 16, 16, 16 and 2
        (1, 64, Layout(width=1, workers=1, threads=1)),  # too small to share
        (1, 256, Layout(width=1, workers=1, threads=2)),  # alone: both cores inside an operation
    ],
)
def test_the_layout_fills_the_cores(two_cores, participants, hidden, expected):
    assert Layout.choose(participants, hidden, None, None, None) == expected


def test_what_the_user_chose_is_kept(two_cores):
    assert Layout.choose(10, 64, width=3, workers=None, threads=None) == Layout(width=3, workers=2, threads=1)
    assert Layout.choose(10, 64, width=None, workers=1, threads=2) == Layout(width=10, workers=1, threads=2)


RATIOS = ["algo=bc", "algo._target_=tests.fed.ratio_learner.RatioLearner", "algo.lr=0.01"]


@pytest.fixture
def ratio_run(configure, run, monkeypatch):
    monkeypatch.setattr(inprocess, "SWEEP_ROWS", 100)  # so that a sweep has several parts
    return lambda *overrides, **options: run(configure(*RATIOS, *overrides, **options))


def test_ratio_statistics_are_those_of_the_returned_model_over_all_of_a_clients_rows(ratio_run, configure):
    """Alone, a client returns what is in its file; so its ratios can be computed again, without the engine."""
    folder = ratio_run("fed=local", "split.size_skew=1.0", "rounds=2")
    experiment, _ = prepare(configure("split.size_skew=1.0", out="never"))
    record = folder.history()[-1]
    assert record["ratios"].keys() == {"mean", "std", "second_moment", "ess", "ess_fraction", "histogram"}
    for client in range(4):
        coefficient = folder.clients.load(client)["coefficient"].item()
        rewards = experiment.dataset.rewards[experiment.shards.rows(client)] * experiment.normaliser.reward_scale
        expected = ratio_statistics(np.exp(coefficient * rewards))
        assert coefficient > 0
        for name in ("mean", "std", "second_moment", "ess", "ess_fraction"):
            assert record["ratios"][name][client] == pytest.approx(expected[name], rel=1e-4)
        assert sum(record["ratios"]["histogram"][client]) == len(rewards)


def test_histograms_are_kept_in_evaluation_rounds_only(ratio_run):
    records = ratio_run("rounds=3").history()  # eval.every is 2
    assert ["histogram" in record["ratios"] for record in records[1:]] == [False, True, True]
    unseen = ratio_run("rounds=3", "eval=none", "eval.every=null", out="unseen").history()
    assert ["histogram" in record["ratios"] for record in unseen[1:]] == [False, False, True]


def test_statistics_are_in_the_order_of_the_participants(ratio_run):
    whole = ratio_run("fed=local", "engine.width=4", "rounds=1").history()[-1]
    chunks = ratio_run("fed=local", "engine.width=1", "rounds=1", out="chunks").history()[-1]
    for name in whole["ratios"]:
        np.testing.assert_allclose(whole["ratios"][name], chunks["ratios"][name], rtol=1e-4)


def test_weighted_rows_favour_what_the_weights_favour_and_resume_bit_for_bit(ratio_run, configure):
    records = ratio_run("rounds=6", "algo.lr=0.5", "updates_per_round=20").history()
    drawn = [record["metrics"]["drawn_reward"] for record in records[1:]]
    assert drawn[-1] > drawn[0] + 0.1
    half = ratio_run("rounds=3", "algo.lr=0.5", "updates_per_round=20", out="half")
    experiment, folder = prepare(
        configure(*RATIOS, "rounds=6", "algo.lr=0.5", "updates_per_round=20", out="half"), resume=True
    )
    federate(experiment, folder)
    assert [r["metrics"] for r in half.history()[1:]] == [r["metrics"] for r in records[1:]]


def test_a_metric_is_the_mean_over_the_updates_that_had_it(ratio_run):
    records = ratio_run("rounds=2", "updates_per_round=4").history()
    assert [record["metrics"]["steps"] for record in records[1:]] == [1.0, 5.0]  # of steps 0 and 2, 4 and 6


def test_learners_without_row_statistics_leave_none(configure, run):
    assert all("ratios" not in record for record in run(configure("rounds=1")).history())


def test_a_value_beyond_its_bound_is_flagged_by_name(ratio_run):
    record = ratio_run("rounds=3").history()[-1]
    assert set(record["flags"]) == {"0", "1", "2", "3"}
    assert "coefficient is" in record["flags"]["0"]
    assert "beyond the bound 0.01" in record["flags"]["0"]


def test_ratios_of_a_failed_client_are_null_and_the_others_go_on(configure):
    """Rewards so large that exp(c · r) and then the actor's gradient are not finite."""
    experiment, folder = prepare(configure(*RATIOS, "normalise.rewards=none", "algo.lr=0.1"))
    rows = experiment.shards.rows(1)
    experiment.dataset.observations[rows] = np.nan
    federate(experiment, folder)
    for record in folder.history()[1:]:
        assert list(record["failures"]) == ["1"]
        assert record["ratios"]["mean"][1] is None
        assert all(record["ratios"]["mean"][k] > 0 for k in (0, 2, 3))


@pytest.mark.parametrize("shared", ["fed=fedavg", "fed=local"])
def test_when_all_clients_freeze_the_run_ends_with_the_state_it_had(configure, shared):
    experiment, folder = prepare(configure(*RATIOS, shared))
    experiment.dataset.observations[:] = np.nan
    summary = federate(experiment, folder)
    assert summary["rounds_with_failures"] == 3
    assert all(len(record["failures"]) == 4 for record in folder.history()[1:])
    assert all("not finite" in why for record in folder.history()[1:] for why in record["failures"].values())
    state = load_tensors(folder.checkpoint)[0]
    assert all(torch.equal(state[name], experiment.initial[name]) for name in experiment.shared)
    assert not folder.clients.committed


def test_another_number_of_rounds_is_another_run_where_learning_goes_by_a_schedule(configure, run):
    run(configure("algo=bc", "algo.schedule=cosine", "rounds=2"))
    run(configure("algo=bc", "algo.schedule=cosine", "rounds=2"), resume=True)
    with pytest.raises(InputError, match="learns by a schedule over its 2 rounds, so rounds=3 would be another run"):
        run(configure("algo=bc", "algo.schedule=cosine", "rounds=3"), resume=True)


def test_a_schedule_sees_how_far_the_run_is(configure, run):
    """Under a linear schedule the last update is a small one: two runs of other lengths differ from the second on."""
    short, long = (run(configure("algo=bc", "algo.schedule=linear", f"rounds={n}", out=str(n))) for n in (1, 2))
    first = [record["metrics"]["actor_loss"] for record in (short.history()[1], long.history()[1])]
    assert first[0] != first[1]

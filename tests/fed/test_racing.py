"""Federations of racing teams: several environments, one held out."""

import json

import numpy as np
import pytest

from data.errors import InputError
from fed.config import compose
from fed.files import load_tensors
from fed.offline import FQESettings, LoggedRun, played_values
from fed.server import prepare
from fed.trained import TrainedRun
from rl.envs.racing.laps import save_laps
from rl.envs.racing.logs import ensure_racing
from rl.envs.racing.references import references

TEAMS = {"oval": "fedrl/racing/oval-nominal-expert-v0", "wet": "fedrl/racing/kidney-wet-medium-v0"}
TWO = ["split=iid", "split.clients=2", "split.unit=segment"]
SMALL = ["algo.hidden=[16]", "updates_per_round=2", "batch_size=16", "eval.episodes=2", "eval.every=1", "rounds=2"]


@pytest.fixture(scope="module", autouse=True)
def logs():
    """Short logs under the ids that would otherwise be made with ten thousand rows."""
    for dataset_id in TEAMS.values():
        ensure_racing(dataset_id, transitions=400)


@pytest.fixture
def team_config(tmp_path):
    def team_config(*overrides: str, root: str = "train", out: str = "run"):
        sources = ",".join(f"{name}:{path}" for name, path in TEAMS.items())
        base = ["data=racing_fleet", f"data.path={{{sources}}}", f"out={tmp_path / out}", "eval.max_steps=40"]
        return compose(root, [*base, *SMALL, *overrides])

    return team_config


def test_a_team_is_a_client_and_every_track_is_scored_by_its_own_references(team_config, run):
    folder = run(team_config())
    record = folder.history()[-1]
    assert record["participants"] == [0, 1]
    assert list(record["environments"]) == ["Oval nominal", "Kidney wet", "Harbour"]
    scores = [record["environments"][name]["score"] for name in ("Oval nominal", "Kidney wet")]
    assert record["score"] == pytest.approx(np.mean(scores))
    assert record["held_out"]["score"] == pytest.approx(record["environments"]["Harbour"]["score"])
    summary = json.loads((folder.path / "summary.json").read_text())
    bounds = {e["name"]: (e["references"]["low"], e["references"]["high"]) for e in summary["environments"]}
    low, high = bounds["Kidney wet"]
    returned = record["environments"]["Kidney wet"]["return_mean"]
    assert scores[1] == pytest.approx(100 * (returned - low) / (high - low))
    assert len(set(bounds.values())) == 3
    assert set(record["episode_metrics"]) == {"progress", "laps", "lap_completed", "lap_time", "crashed"}


def test_local_teams_are_scored_everywhere_and_at_home(team_config, run):
    folder = run(team_config("fed=local"))
    record = folder.history()[-1]
    trained = TrainedRun.load(folder.path)
    returns = trained.evaluate(episodes=2, seed=10_000).returns.mean(2)  # [clients, environments]
    scores = np.array(
        [
            [
                100 * (r - e.references.low) / (e.references.high - e.references.low)
                for r, e in zip(row, envs, strict=True)
            ]
            for row, envs in zip(returns, [trained.environments] * 2, strict=True)
        ]
    )
    assert record["own_score"] == pytest.approx((scores[0, 0] + scores[1, 1]) / 2)
    assert record["score"] == pytest.approx(scores[:, :2].mean())


@pytest.mark.parametrize("fed", ["fedavg", "local"])
def test_a_fleets_value_is_estimated_track_by_track(team_config, run, fed):
    folder = run(team_config(f"fed={fed}", "eval=none"))
    trained = TrainedRun.load(folder.path)
    logged = LoggedRun.load(folder.path, trained)
    lines, column = logged.lines(), logged.experiment.dataset.columns["environment"]
    names = {"fedavg": ["Oval nominal", "Kidney wet"], "local": ["client 0, Oval nominal", "client 1, Kidney wet"]}
    assert [line.name for line in lines] == names[fed]
    assert [line.policy for line in lines] == ([0, 0] if fed == "fedavg" else [0, 1])
    for v, line in enumerate(lines):
        assert set(column[line.rows]) == set(column[line.starts]) == {v}
    values, _ = logged.fitted_values(FQESettings(gamma=0.5, updates=4, batch_size=8))
    assert np.isfinite(values[np.concatenate([line.starts for line in lines])]).all()
    played, unseen = played_values(trained, gamma=0.5, episodes=2, seed=0)
    assert played.shape == (1 if fed == "fedavg" else 2, 2, 2)  # the held-out track has no logs to estimate from
    assert unseen < 0.01


def test_a_resumed_fleet_ends_bit_for_bit_where_the_unbroken_one_does(team_config, run):
    unbroken = run(team_config("rounds=3", out="unbroken"))
    run(team_config("rounds=1", out="broken"))
    resumed = run(team_config("rounds=3", out="broken"), resume=True)
    for name, tensor in load_tensors(unbroken.checkpoint)[0].items():
        assert tensor.equal(load_tensors(resumed.checkpoint)[0][name])
    assert [r["score"] for r in resumed.history()] == [r["score"] for r in unbroken.history()]


def test_the_oracle_and_other_splits_take_the_pooled_fleet(team_config, run):
    oracle = run(team_config(root="centralized", out="oracle")).history()[-1]
    assert oracle["participants"] == [0]
    dealt = run(team_config("split=iid", "split.clients=3", "split.unit=segment", "fed=local", out="iid")).history()[-1]
    assert len(dealt["client_scores"]) == 3
    assert list(dealt["environments"]) == list(oracle["environments"])


@pytest.mark.parametrize(
    ("held_out", "sentence"),
    [
        ("[FedRacing/Harbor-v0]", "FedRacing/Harbor-v0"),
        ("[{id:FedRacing/Harbour-v0,car:wett}]", "did you mean 'wet'"),
        ("[{id:FedRacing/Harbour-v0,observation:frenet}]", r"shape \(27,\) but the data have 110"),
        ("[FedRacing/Oval-v0]", "logs come from it"),
        ("[{car:wet}]", "data.held_out"),
        ("5", "data.held_out"),
    ],
)
def test_a_held_out_environment_that_cannot_be_is_a_sentence(team_config, held_out, sentence):
    with pytest.raises(InputError, match=sentence):
        prepare(team_config(f"data.held_out={held_out}"))


def test_a_held_out_track_is_seen_as_the_logs_see_theirs(team_config):
    ensure_racing("fedrl/racing/oval-nominal-expert-frenet-v0", transitions=200)
    path = "data.path={a: fedrl/racing/oval-nominal-expert-frenet-v0}"
    experiment, _ = prepare(team_config(path))
    assert experiment.evaluator.environments[1].kwargs == {"car": "nominal", "observation": "frenet"}


def test_a_chosen_track_has_references_of_its_own(team_config):
    experiment, _ = prepare(team_config(f"data.path={TEAMS['wet']}", "data.env=FedRacing/Oval-v0", *TWO))
    measured = references("FedRacing/Oval-v0", {})
    assert experiment.evaluator.environments[0].bounds == (measured.low, measured.high)
    same, _ = prepare(team_config(f"data.path={TEAMS['wet']}", "data.env=FedRacing/Kidney-v0", *TWO))
    assert same.evaluator.environments[0].kwargs == {"car": "wet"}


def test_a_policy_that_is_not_finite_is_recorded_and_does_not_stop_the_run(team_config):
    experiment, _ = prepare(team_config())
    broken = experiment.policy([experiment.initial["actor"] * float("nan")])
    assert np.isnan(experiment.evaluator(broken).returns).all()


def test_a_run_that_was_not_evaluated_can_be_later(team_config, run):
    trained = TrainedRun.load(run(team_config("eval=none")).path)
    assert [environment.name for environment in trained.environments] == ["Oval nominal", "Kidney wet", "Harbour"]
    assert trained.environments[2].held_out
    assert all(environment.bounds for environment in trained.environments)


def test_the_laps_of_a_run_are_drawn(team_config, run, tmp_path):
    trained = TrainedRun.load(run(team_config()).path)
    traces = save_laps(trained.policy, trained.environments, 0, 0, tmp_path / "laps.png", "title")
    assert (tmp_path / "laps.png").stat().st_size > 20_000
    assert [trace.track.name for trace in traces] == ["Oval", "Kidney", "Harbour"]
    for trace in traces:
        assert trace.crashed or trace.lap_time or trace.seconds == pytest.approx(40.0)
        assert len(trace.positions) == len(trace.speeds)

import numpy as np
import pytest

from data.dataset import Environment, References
from fed.scoring import client_record, evaluation_record, last_results
from rl.envs.evaluation import Evaluation

EASY = Environment("A-v0", references=References(0.0, 10.0, "easy"), name="easy")
HARD = Environment("B-v0", references=References(100.0, 300.0, "hard"), name="hard")
AWAY = Environment("C-v0", references=References(0.0, 1.0, "away"), name="away", held_out=True)
ENVIRONMENTS = [EASY, HARD, AWAY]
RETURNS = np.array([[[4.0, 6.0], [100.0, 200.0], [1.0, 1.0]], [[10.0, 10.0], [300.0, 300.0], [0.0, 1.0]]])  # [K, V, E]
LAP_TIMES = np.array([[[5.0, np.nan], [np.nan, np.nan], [8.0, 9.0]], [[7.0, 6.0], [np.nan, np.nan], [8.0, 7.0]]])


def evaluation(policies: slice = slice(None)) -> Evaluation:
    lengths = np.full(RETURNS.shape, 10)
    returns = RETURNS[policies]
    return Evaluation(
        returns,
        discounted=returns,
        unseen=np.zeros_like(returns),
        lengths=lengths[policies],
        metrics={"lap_time": LAP_TIMES[policies]},
    )


def test_scores_are_normalised_in_each_environment_and_then_averaged():
    record = evaluation_record(evaluation(slice(0, 1)), ENVIRONMENTS)
    assert record["score"] == pytest.approx((50 + 25) / 2)
    assert record["held_out"]["score"] == pytest.approx(100)
    assert {name: means["score"] for name, means in record["environments"].items()} == {
        "easy": 50.0,
        "hard": 25.0,
        "away": 100.0,
    }


def test_an_episode_without_a_lap_does_not_enter_the_lap_time():
    record = evaluation_record(evaluation(), ENVIRONMENTS)
    assert record["episode_metrics"]["lap_time"] == pytest.approx((5 + 7 + 6) / 3)
    assert record["environments"]["hard"]["episode_metrics"]["lap_time"] is None


def test_without_references_there_is_a_return_and_no_score():
    record = evaluation_record(evaluation(), [EASY, Environment("B-v0", name="hard"), AWAY])
    assert record["score"] is None
    assert record["return_mean"] == pytest.approx(RETURNS[:, :2].mean())
    assert client_record(evaluation(), [EASY, Environment("B-v0", name="hard"), AWAY], [0, 1], [[0], [1]]) == {}


def test_a_client_is_scored_everywhere_and_at_home():
    record = client_record(evaluation(), ENVIRONMENTS, [3, 7], own=[[1], [0, 1]])
    assert record["client_scores"] == {"3": 37.5, "7": 100.0}
    assert record["own_score"] == pytest.approx((25 + 100) / 2)


def test_results_are_means_of_the_last_five_evaluations_after_training_began():
    def record(round: int, score: float | None) -> dict:
        return {"round": round, "score": score, "return_mean": score, "environments": {"a": {"score": score}}}

    records = [record(0, 1000.0), *(record(k, float(k)) for k in range(1, 8)), record(8, None)]
    results = last_results(records)
    assert results["score"] == pytest.approx(np.mean([3, 4, 5, 6, 7]))
    assert results["environments"]["a"]["score"] == pytest.approx(5)
    assert last_results(records[:1]) == {}

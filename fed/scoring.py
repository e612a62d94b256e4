"""From played episodes to a round's record: scores, returns, and what the environments say of an episode's end.

A score is normalised in each environment by that environment's references, then averaged.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from data.dataset import Environment
from metrics.scores import normalised_score
from rl.envs.evaluation import Evaluation

LAST_EVALUATIONS = 5  # a run's result is their mean, never the best one
RESULTS = ("score", "own_score", "return_mean", "episode_length", "episode_metrics", "held_out", "environments")


def evaluation_record(evaluation: Evaluation, environments: Sequence[Environment]) -> dict[str, Any]:
    """The means over policies, the environments that the data come from, and episodes; held-out ones apart."""
    seen = [v for v, environment in enumerate(environments) if not environment.held_out]
    held_out = [v for v, environment in enumerate(environments) if environment.held_out]
    record = _means(evaluation, environments, seen)
    if held_out:
        record["held_out"] = _means(evaluation, environments, held_out)
    if len(environments) > 1:
        record["environments"] = {
            environment.name: _means(evaluation, environments, [v]) for v, environment in enumerate(environments)
        }
    return record


def client_record(
    evaluation: Evaluation,
    environments: Sequence[Environment],
    clients: Sequence[int],
    own: Sequence[Sequence[int]],
) -> dict[str, Any]:
    """Where actors are personal: each client's score, and the mean over clients of what each scores at home.

    own: the environments that each client's rows come from.
    """
    scores = scores_of(evaluation.returns, environments)  # [K, V]
    seen = np.array([not environment.held_out for environment in environments])
    if np.isnan(scores[:, seen]).any():
        return {}
    at_home = [scores[k, list(environments_of_k)].mean() for k, environments_of_k in enumerate(own)]
    return {
        "client_scores": dict(zip(map(str, clients), scores[:, seen].mean(1).tolist(), strict=True)),
        "own_score": float(np.mean(at_home)),
    }


def scores_of(returns: np.ndarray, environments: Sequence[Environment]) -> np.ndarray:
    """[K, V, E] → [K, V], NaN where an environment has no references."""
    scores = np.full(returns.shape[:2], np.nan)
    for v, environment in enumerate(environments):
        if environment.references is not None:
            low, high = environment.references.low, environment.references.high
            scores[:, v] = normalised_score(returns[:, v].mean(1), low, high)
    return scores


def _means(evaluation: Evaluation, environments: Sequence[Environment], chosen: list[int]) -> dict[str, Any]:
    returns = evaluation.returns[:, chosen]
    score = scores_of(evaluation.returns, environments)[:, chosen].mean()
    means = {
        "score": None if np.isnan(score) else float(score),
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "episode_length": float(evaluation.lengths[:, chosen].mean()),
    }
    if evaluation.metrics:
        means["episode_metrics"] = {
            name: mean_of_known(values[:, chosen]) for name, values in evaluation.metrics.items()
        }
    return means


def mean_of_known(values: np.ndarray) -> float | None:
    """An episode without a lap has no lap time; if none has one, there is no mean."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def last_results(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The mean of each result over the last evaluations of a policy that has been trained."""
    evaluated = [record for record in records if record["return_mean"] is not None and record["round"] > 0]
    results = [{name: record[name] for name in RESULTS if name in record} for record in evaluated]
    return mean_of_records(results[-LAST_EVALUATIONS:])


def mean_of_records(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The mean of each number, in dictionaries within dictionaries too; null where no record knows it."""
    means = {}
    for name in records[-1] if records else ():
        values = [record[name] for record in records if record.get(name) is not None]
        if values and isinstance(values[0], dict):
            means[name] = mean_of_records(values)
        else:
            means[name] = float(np.mean(values)) if values else None
    return means

import numpy as np
import pytest
from scipy import stats

from metrics.statistics import (
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
)


def test_the_interquartile_mean_is_that_of_the_middle_half():
    assert interquartile_mean([1.0, 2.0, 3.0, 100.0]) == 2.5
    assert interquartile_mean(np.array([[0.0, 10.0], [20.0, 1e6]])) == 15.0
    assert interquartile_mean([7.0]) == 7.0
    assert interquartile_mean([1.0, 2.0, 3.0, 4.0, 50.0]) == 3.0  # five runs: the lowest and the highest go


def test_the_interval_agrees_with_scipys_bootstrap():
    scores = np.random.default_rng(1).normal(50, 10, size=12)
    expected = stats.bootstrap((scores,), np.mean, method="percentile", n_resamples=20_000, rng=0).confidence_interval
    found = stratified_interval(scores, statistic=lambda x: float(np.mean(x)), resamples=20_000)
    np.testing.assert_allclose(found, (expected.low, expected.high), atol=0.3)


def test_the_interval_has_the_stated_coverage():
    """Percentile intervals of a mean of 20 are a little narrow: about 93 of 100 hold the truth."""
    random = np.random.default_rng(0)
    held = 0
    for trial in range(400):
        low, high = stratified_interval(random.normal(size=20), lambda x: float(np.mean(x)), resamples=300, seed=trial)
        held += low <= 0 <= high
    assert 0.89 < held / 400 < 0.98


def test_runs_are_drawn_within_their_task():
    """Tasks far apart: between tasks nothing is drawn, so the interval is that of the noise within them."""
    random = np.random.default_rng(0)
    scores = np.stack([random.normal(0, 1, 30), random.normal(1000, 1, 30)], axis=1)
    low, high = stratified_interval(scores, lambda x: float(np.mean(x)))
    assert high - low < 1.5


def test_a_single_run_has_no_interval():
    assert np.isnan(stratified_interval([5.0])).all()


def test_the_probability_of_improvement_by_hand():
    assert probability_of_improvement([3.0, 4.0], [1.0, 2.0]) == 1.0
    assert probability_of_improvement([1.0, 3.0], [2.0, 2.0]) == 0.5
    assert probability_of_improvement([2.0, 2.0], [2.0, 1.0]) == pytest.approx(0.75)
    two_tasks = np.array([[3.0, 0.0], [4.0, 0.0]]), np.array([[1.0, 5.0], [2.0, 5.0]])
    assert probability_of_improvement(*two_tasks) == 0.5


def test_the_profile_counts_runs_above_each_threshold():
    np.testing.assert_allclose(performance_profile([[10.0, 60.0], [30.0, 90.0]], [0, 30, 95]), [1.0, 0.5, 0.0])

import numpy as np
import pytest

from metrics.ratios import HISTOGRAM_EDGES, effective_sample_size, histogram, ratio_statistics


def test_the_effective_sample_size_is_n_for_equal_weights_and_1_for_a_single_one():
    assert effective_sample_size(np.full(7, 0.3)) == pytest.approx(7)
    assert effective_sample_size(np.array([0, 0, 5.0])) == pytest.approx(1)
    assert effective_sample_size(np.array([1.0, 3.0])) == pytest.approx(16 / 10)


def test_the_effective_sample_size_does_not_depend_on_the_scale_of_weights():
    weights = np.random.default_rng(0).exponential(size=50)
    for scale in (1e-200, 1e-3, 1e200):
        assert effective_sample_size(weights * scale) == pytest.approx(effective_sample_size(weights))


def test_weights_that_are_all_zero_are_worth_no_sample():
    assert effective_sample_size(np.zeros(4)) == 0
    assert ratio_statistics(np.zeros(4))["ess_fraction"] == 0


def test_at_mean_one_the_fraction_follows_from_the_variance():
    weights = np.random.default_rng(0).exponential(size=1000)
    weights /= weights.mean()
    statistics = ratio_statistics(weights)
    assert statistics["mean"] == pytest.approx(1)
    assert statistics["ess_fraction"] == pytest.approx(1 / (1 + statistics["std"] ** 2))
    assert statistics["second_moment"] == pytest.approx(1 + statistics["std"] ** 2)


def test_each_weight_is_in_one_bin():
    weights = np.array([0.0, 1e-9, 0.001, 0.9, 1.0, 1.5, 999.0, 1000.0, 1e9])
    counts = histogram(weights)
    assert len(counts) == len(HISTOGRAM_EDGES) + 1
    assert sum(counts) == len(weights)
    assert (counts[0], counts[1], counts[-1]) == (2, 1, 2)


def test_a_weight_that_is_not_finite_shows():
    assert not np.isfinite(ratio_statistics(np.array([1.0, np.inf]))["mean"])
    assert not np.isfinite(ratio_statistics(np.array([1.0, np.nan]))["ess"])

import numpy as np
import pytest

from metrics.rounds_to import rounds_to, smoothed
from metrics.scores import normalised_score


def test_scores_are_0_at_the_low_and_100_at_the_high_reference():
    np.testing.assert_allclose(normalised_score([-20.0, 3234.0, 1607.0], -20, 3234), [0, 100, 50])


def test_smoothing_looks_back_only():
    np.testing.assert_allclose(smoothed([0, 3, 6, 9], window=3), [0, 1.5, 3, 6])


def test_rounds_to_interpolates_between_evaluations():
    assert rounds_to([0, 10, 20], [0, 40, 80], target=50, window=1) == pytest.approx(12.5)


def test_rounds_to_uses_the_smoothed_score():
    """A lone spike does not count: the means over two are 0, 0, 45, 45, 60."""
    assert rounds_to([0, 1, 2, 3, 4], [0, 0, 90, 0, 120], target=60, window=2) == pytest.approx(4.0)


def test_the_untrained_policy_holds_back_no_mean():
    """It is where the curve begins: from −20 in round 0 to 80 in round 5."""
    assert rounds_to([0, 5, 10], [-20, 80, 80], target=60, window=3) == pytest.approx(4.0)


def test_a_target_never_reached_is_censored_not_dropped():
    assert rounds_to([0, 1], [0, 10], target=50) is None


def test_a_target_reached_from_the_start_takes_no_rounds():
    assert rounds_to([0, 1], [60, 70], target=50) == 0.0

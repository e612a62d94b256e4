import dataclasses

import numpy as np
import pytest

from data.errors import InputError
from data.normaliser import Moments, Normaliser
from tests.data.small import small_dataset


def pooled(dataset, cuts, observations=True, rewards="scale") -> Normaliser:
    rows = np.split(np.arange(len(dataset)), cuts)
    return Normaliser.pooled([Moments.of(dataset, own) for own in rows], observations, rewards)


def test_pooled_statistics_are_those_of_the_pooled_rows():
    dataset = small_dataset(rows=1000)
    normaliser = pooled(dataset, [17, 400, 401])
    np.testing.assert_allclose(normaliser.mean, dataset.observations.astype(np.float64).mean(0), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(normaliser.std, dataset.observations.astype(np.float64).std(0), rtol=1e-6)
    assert normaliser.reward_scale == pytest.approx(1 / dataset.rewards.astype(np.float64).std())
    assert normaliser.reward_bound == pytest.approx(np.abs(dataset.rewards).max() * normaliser.reward_scale)


def test_a_far_off_mean_does_not_cost_precision():
    dataset = small_dataset(rows=1000)
    shifted = dataclasses.replace(dataset, observations=(dataset.observations * 0.01 + 1000).astype(np.float32))
    expected = shifted.observations.astype(np.float64).std(0)
    np.testing.assert_allclose(pooled(shifted, [300]).std, expected, rtol=1e-4)


def test_constants_get_std_one_and_flags_are_left_alone():
    dataset = small_dataset(rows=100)
    observations = dataset.observations.copy()
    observations[:, 0] = 3.0
    observations[:, 1] = np.arange(100) % 2
    normaliser = pooled(dataclasses.replace(dataset, observations=observations), [50])
    assert (normaliser.mean[0], normaliser.std[0]) == (3.0, 1.0)
    assert (normaliser.mean[1], normaliser.std[1]) == (0.0, 1.0)


def test_normalisation_can_be_switched_off():
    normaliser = pooled(small_dataset(rows=100), [50], observations=False, rewards="none")
    assert not normaliser.mean.any()
    assert (normaliser.std == 1).all()
    assert normaliser.reward_scale == 1.0


def test_an_unknown_choice_for_rewards_is_a_sentence():
    with pytest.raises(InputError, match="choose one of scale, none"):
        pooled(small_dataset(rows=100), [50], rewards="standardise")

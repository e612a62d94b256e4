"""Promises that every learner keeps."""

import pytest
import torch

from data.errors import InputError
from tests.rl.learners import ACTIONS, NAMES, OBSERVATIONS, make, random_batch, select

pytestmark = pytest.mark.parametrize("name", NAMES)


def test_a_stacked_cohort_equals_cohorts_of_one(name):
    stacked = make(name, 3)
    batches = [random_batch(stacked, 3, 32, seed=step) for step in range(5)]
    for batch in batches:
        stacked.update(batch)
    for k in range(3):
        alone = make(name, 1)
        for batch in batches:
            alone.update(select(batch, [k]))
        for key, tensor in alone.state().items():
            torch.testing.assert_close(stacked.state()[key][k], tensor[0], atol=1e-5, rtol=1e-4)


def test_one_clients_loss_has_no_gradient_in_another(name):
    learner = make(name, 3)
    for objective in learner.objectives():
        losses, _ = objective(random_batch(learner, 3, 16))
        for module, loss in losses.items():
            (grad,) = torch.autograd.grad(loss[1], learner.params[module], retain_graph=True)
            assert grad[1].abs().sum() > 0
            assert grad[0].abs().sum() == 0
            assert grad[2].abs().sum() == 0


def test_a_nan_in_one_client_freezes_it_and_leaves_the_others_bit_equal(name):
    healthy, ill = make(name, 3), make(name, 3)
    for step in range(4):
        batch = random_batch(healthy, 3, 16, seed=step)
        healthy.update(batch)
        if step == 2:
            frozen = {key: tensor[1].clone() for key, tensor in ill.state().items()}
            batch.observations[1] = float("nan")
        ill.update(batch)
    assert ill.active == [0, 2]
    assert "not finite after 2 updates" in ill.failures[1]
    for key, tensor in ill.state().items():
        assert torch.equal(tensor[[0, 2]], healthy.state()[key][[0, 2]]), key
        assert torch.equal(tensor[1], frozen[key]), key


def test_a_client_whose_last_step_overflowed_is_frozen_too(name):
    """Only the next gradient would show it, and there may be none."""
    learner = make(name, 2)
    learner.params["actor"].data[1, 3] = float("inf")
    learner.freeze_non_finite()
    assert learner.active == [0]
    assert learner.failures == {1: "its actor is not finite"}


def test_the_same_batches_give_the_same_bits(name):
    states = []
    for _ in range(2):
        learner = make(name, 2)
        for step in range(3):
            learner.update(random_batch(learner, 2, 16, seed=step))
        states.append(learner.state())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_a_saved_state_goes_on_as_if_it_had_never_stopped(name):
    first = make(name, 2)
    batches = [random_batch(first, 2, 16, seed=step) for step in range(4)]
    for batch in batches[:2]:
        first.update(batch)
    second = make(name, 2, seed=9)
    second.load({key: tensor.clone() for key, tensor in first.state().items()})
    for batch in batches[2:]:
        first.update(batch)
        second.update(batch)
    assert all(torch.equal(first.state()[key], second.state()[key]) for key in first.state())


def test_a_state_that_does_not_fit_is_refused_with_a_sentence(name):
    learner = make(name, 2)
    with pytest.raises(InputError, match=r"'ghost'.*does not know"):
        learner.load({"ghost": torch.zeros(2, 3)})
    with pytest.raises(InputError, match="other network sizes"):
        learner.load({"actor": torch.zeros(7)})


def test_metrics_are_per_client_and_bounds_name_metrics(name):
    learner = make(name, 3)
    metrics = learner.update(random_batch(learner, 3, 16))
    assert metrics
    assert all(value.shape == (3,) and not value.requires_grad for value in metrics.values())
    assert set(learner.bounds) <= set(metrics)


def test_gradients_are_clipped_per_client(name):
    """Client 0's huge gradient must not shrink client 1's: a joint norm would couple them."""
    joint, alone = make(name, 2, clip=0.5), make(name, 1, clip=0.5)
    batch = random_batch(joint, 2, 16)
    batch.rewards[0] *= 1e4
    batch.observations[0] *= 100
    joint.update(batch)
    alone.update(select(batch, [1]))
    torch.testing.assert_close(joint.state()["actor/adam_m"][1], alone.state()["actor/adam_m"][0])
    norm = torch.linalg.vector_norm(joint.state()["actor/adam_m"][0]) / 0.1  # after one step m = (1 − β₁) g
    assert norm <= 0.5 + 1e-4


def test_one_full_batch_step_on_clients_weighted_by_size_is_the_centralised_step(name):
    """For each loss by itself, at the same parameters and with the same noise for each row."""
    sizes = [8, 24, 32]
    central = make(name, 1)
    pooled = random_batch(central, 1, sum(sizes))
    cuts = torch.tensor([0, *sizes]).cumsum(0).tolist()
    for number, objective in enumerate(central.objectives()):
        losses, _ = objective(pooled)
        for module in losses:
            (whole,) = torch.autograd.grad(losses[module].sum(), central.params[module], retain_graph=True)
            federated = torch.zeros_like(whole)
            for size, first in zip(sizes, cuts, strict=False):
                client = make(name, 1)
                own, _ = client.objectives()[number](select(pooled, slice(None), slice(first, first + size)))
                (grad,) = torch.autograd.grad(own[module].sum(), client.params[module])
                federated += size / sum(sizes) * grad
            torch.testing.assert_close(federated, whole, atol=1e-6, rtol=1e-4)


def test_policies_stay_in_the_action_bounds(name):
    learner = make(name, 2)
    actions = learner.actor.mode(learner.params["actor"], torch.randn(2, 50, OBSERVATIONS) * 100)
    assert actions.shape == (2, 50, ACTIONS)
    assert actions.abs().max() <= 1

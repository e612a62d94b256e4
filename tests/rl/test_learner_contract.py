"""Promises that every learner keeps."""

import pytest
import torch

from data.errors import InputError
from rl.deployment import Policy
from tests.rl.learners import ACTIONS, NAMES, OBSERVATIONS, bandit_batch, make, random_batch, select, settings

pytestmark = pytest.mark.parametrize("name", NAMES)


def test_every_client_has_a_row_of_everything(name):
    learner = make(name, 3)
    row = learner.initial(torch.Generator().manual_seed(0))
    assert {module: theta.shape for module, theta in learner.params.items()} == {
        module: (3, len(theta)) for module, theta in row.items()
    }
    assert set(learner.target_of.values()) <= set(row)
    assert all(len(tensor) == 3 for tensor in learner.state().values())


def test_a_stacked_cohort_equals_cohorts_of_one(name):
    _compare_stacked_with_alone(name, layer_norm=False)


def test_layer_norm_keeps_clients_apart_too(name):
    _compare_stacked_with_alone(name, layer_norm=True)


def _compare_stacked_with_alone(name: str, layer_norm: bool) -> None:
    stacked = make(name, 3, layer_norm=layer_norm)
    batches = [random_batch(stacked, 3, 32, seed=step, step=step) for step in range(5)]
    for batch in batches:
        stacked.update(batch)
    for k in range(3):
        alone = make(name, 1, layer_norm=layer_norm)
        for batch in batches:
            alone.update(select(batch, [k]))
        for key, tensor in alone.state().items():
            torch.testing.assert_close(stacked.state()[key][k], tensor[0], atol=1e-5, rtol=1e-4)


def test_one_clients_loss_has_no_gradient_in_another(name):
    learner = make(name, 3)
    batch = random_batch(learner, 3, 16)
    for objective in learner.objectives(batch):
        losses, _ = objective(batch)
        for module, loss in losses.items():
            (grad,) = torch.autograd.grad(loss[1], learner.params[module], retain_graph=True)
            assert grad[1].abs().sum() > 0
            assert grad[0].abs().sum() == 0
            assert grad[2].abs().sum() == 0


def test_a_nan_in_one_client_freezes_it_and_leaves_the_others_bit_equal(name):
    healthy, ill = make(name, 3), make(name, 3)
    for step in range(4):
        batch = random_batch(healthy, 3, 16, seed=step, step=step)
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
    """A learner draws nothing itself: torch's own seed does not matter."""
    states = []
    for seed in range(2):
        torch.manual_seed(seed)
        learner = make(name, 2)
        for step in range(3):
            learner.update(random_batch(learner, 2, 16, seed=step, step=step))
        states.append(learner.state())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_a_saved_state_goes_on_as_if_it_had_never_stopped(name):
    first = make(name, 2)
    batches = [random_batch(first, 2, 16, seed=step, step=step) for step in range(4)]
    for batch in batches[:2]:
        first.update(batch)
    first.end_round()
    second = make(name, 2, seed=9)
    second.load({key: tensor.clone() for key, tensor in first.state().items()})
    first.begin_round()
    second.begin_round()
    for batch in batches[2:]:
        first.update(batch)
        second.update(batch)
    assert all(torch.equal(first.state()[key], second.state()[key]) for key in first.state())


def test_modules_without_optimiser_state_begin_afresh(name):
    """As a broadcast to a new client does: targets copy their modules, Adam knows nothing, nobody is frozen."""
    used = make(name, 2)
    for step in range(2):
        used.update(random_batch(used, 2, 16, seed=step, step=step))
    used.active, used.failures = [1], {0: "a reason"}
    modules = {module: theta[1].detach().clone() for module, theta in used.params.items()}
    fresh = make(name, 2, seed=None)
    for learner in (used, fresh):
        learner.broadcast(modules)
        assert (learner.active, learner.failures) == ([0, 1], {})
    assert all(torch.equal(used.state()[key], fresh.state()[key]) for key in fresh.state())
    for target, module in used.target_of.items():
        assert torch.equal(used.targets[target][0], modules[module])
    assert all(optimiser.steps.sum() == 0 for optimiser in used.optimisers.values())


def test_loading_a_part_of_a_clients_state_leaves_the_rest_alone(name):
    learner = make(name, 2)
    learner.update(random_batch(learner, 2, 16))
    before = {key: tensor.clone() for key, tensor in learner.state().items()}
    learner.load({"actor": torch.ones(before["actor"].shape[1])}, row=1)
    for key, tensor in learner.state().items():
        changed = key == "actor"
        assert torch.equal(tensor[0], before[key][0])
        assert torch.equal(tensor[1], torch.ones_like(tensor[1]) if changed else before[key][1])


def test_a_state_that_does_not_fit_is_refused_with_a_sentence(name):
    learner = make(name, 2)
    with pytest.raises(InputError, match=r"'ghost'.*does not know"):
        learner.load({"ghost": torch.zeros(2, 3)})
    with pytest.raises(InputError, match="other network sizes"):
        learner.load({"actor": torch.zeros(7)})
    with pytest.raises(InputError, match="other network sizes"):
        learner.load({"actor": learner.params["actor"].detach()}, row=0)  # all clients' rows for one client
    with pytest.raises(InputError, match=r"lacks actor, which \w+ needs"):
        learner.broadcast({module: theta[0].detach() for module, theta in learner.params.items() if module != "actor"})


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


def test_a_schedule_scales_every_learning_rate(name):
    """Adam's first step moves the parameter with the largest gradient by lr: by nothing at the end of a schedule."""
    for schedule, progress, factor in (
        ("constant", 1.0, 1.0),
        ("cosine", 0.5, 0.5),
        ("cosine", 1.0, 0.0),
        ("linear", 0.25, 0.75),
        ("linear", 1.0, 0.0),
    ):
        learner = make(name, 1, schedule=schedule)
        before = {module: theta.detach().clone() for module, theta in learner.params.items()}
        batch = random_batch(learner, 1, 32, progress=progress)
        trained = {module for objective in learner.objectives(batch) for module in objective(batch)[0]}
        learner.update(batch)
        for module in trained:
            moved = (learner.params[module].detach() - before[module]).abs().max().item()
            assert moved == pytest.approx(factor * learner.optimisers[module].lr, rel=1e-2)


# A loss that is scaled by an average over the client's own batch is not a sum over rows.
SCALED_BY_OWN_BATCH = {"td3_bc": {"actor"}, "fedora": {"actor"}}


def test_one_full_batch_step_on_clients_weighted_by_size_is_the_centralised_step(name):
    """For each loss by itself, at the same parameters and with the same noise for each row."""
    sizes = [8, 24, 32]
    central = make(name, 1)
    pooled = random_batch(central, 1, sum(sizes))
    cuts = torch.tensor([0, *sizes]).cumsum(0).tolist()
    for number, objective in enumerate(central.objectives(pooled)):
        losses, _ = objective(pooled)
        for module in losses.keys() - SCALED_BY_OWN_BATCH.get(name, set()):
            (whole,) = torch.autograd.grad(losses[module].sum(), central.params[module], retain_graph=True)
            federated = torch.zeros_like(whole)
            for size, first in zip(sizes, cuts, strict=False):
                client = make(name, 1)
                rows = select(pooled, slice(None), slice(first, first + size))
                own, _ = client.objectives(rows)[number](rows)
                (grad,) = torch.autograd.grad(own[module].sum(), client.params[module])
                federated += size / sum(sizes) * grad
            torch.testing.assert_close(federated, whole, atol=1e-6, rtol=1e-4)


def test_policies_stay_in_the_action_bounds(name):
    learner = make(name, 2)
    actions = learner.actor.mode(learner.params["actor"], torch.randn(2, 50, OBSERVATIONS) * 100)
    assert actions.shape == (2, 50, ACTIONS)
    assert actions.abs().max() <= 1


def test_the_deployed_policy_acts_as_the_learner_does(name):
    learner = make(name, 2, layer_norm=True)
    learner.update(random_batch(learner, 2, 16))  # from here on the clients differ
    zero, one = torch.zeros(OBSERVATIONS), torch.ones(ACTIONS)
    policy = Policy(learner.actor, learner.params["actor"].detach(), zero, zero + 1, -one, one)
    observations = torch.randn(2, 9, OBSERVATIONS)
    actions = learner.actor.mode(learner.params["actor"], observations)
    for client in range(2):
        torch.testing.assert_close(policy.module(client)(observations[client]), actions[client], atol=1e-6, rtol=1e-5)


def test_weights_and_statistics_of_rows_are_per_row(name):
    learner = make(name, 2)
    batch = random_batch(learner, 2, 16)
    values = dict(learner.row_statistics(batch))
    if learner.weighted_rows:
        values["weights"] = learner.row_weights(batch)
        assert (values["weights"] >= 0).all()
        assert learner.refresh_every >= 1
    assert all(value.shape == (2, 16) and value.isfinite().all() for value in values.values())


def test_the_good_action_of_a_bandit_is_found(name):
    updates = 300
    lr = {key: 3e-3 if key == "actor_lr" else 1e-2 for key in settings(name) if key.endswith("lr")}
    learner = make(name, 2, hidden=[32, 32], **lr)
    for step in range(updates):
        learner.update(bandit_batch(learner, 2, 64, seed=step, step=step, progress=step / updates))
    observations = torch.randn(2, 100, OBSERVATIONS, generator=torch.Generator().manual_seed(0))
    mode = learner.actor.mode(learner.params["actor"], observations).mean(1)
    assert not learner.failures
    assert (mode - 0.5).abs().max() < 0.12

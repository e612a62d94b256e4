"""TD3 and TD3+BC."""

import pytest
import torch

from tests.rl.learners import ACTIONS, OBSERVATIONS, make, random_batch, select
from tests.rl.plain_td3 import PlainTD3
from tests.rl.test_networks import plain_copy
from tests.rl.test_sac import as_row


def plain_from(learner, k: int, alpha: float | None) -> PlainTD3:
    """The independent single-client TD3, started from client k's parameters."""
    plain = PlainTD3(OBSERVATIONS, ACTIONS, [16, 16], alpha)
    plain.actor.load_state_dict(plain_copy(learner.actor.network, learner.params["actor"][k].detach()).state_dict())
    for i, row in enumerate(learner.params["critic"][k].detach().chunk(2)):
        plain.critics[i].load_state_dict(plain_copy(learner.critic, row).state_dict())
    plain.copy_to_targets()
    return plain


@pytest.mark.parametrize(("name", "alpha"), [("td3", None), ("td3_bc", 2.5)])
def test_a_stacked_cohort_equals_separate_runs_of_a_plain_loop(name, alpha):
    cohort = make(name, 3)
    plains = [plain_from(cohort, k, alpha) for k in range(3)]
    for step in range(20):
        batch = random_batch(cohort, 3, 32, seed=step, step=step)
        cohort.update(batch)
        for k, plain in enumerate(plains):
            own = select(batch, [k])
            columns = (own.observations, own.actions, own.rewards, own.next_observations, own.terminals)
            plain.update(*(column[0] for column in columns), own.noise[:, 0])
    for k, plain in enumerate(plains):
        rows = {
            "actor": as_row(plain.actor),
            "critic": torch.cat([as_row(critic) for critic in plain.critics]),
            "actor_target": as_row(plain.actor_target),
            "critic_target": torch.cat([as_row(target) for target in plain.critic_targets]),
        }
        for module, row in rows.items():
            torch.testing.assert_close(cohort.state()[module][k], row, atol=2e-5, rtol=1e-3)


def test_actor_and_targets_move_at_every_second_update_of_the_critics():
    learner = make("td3", 1, delay=2)
    for step in range(4):
        before = {key: tensor.clone() for key, tensor in learner.state().items()}
        learner.update(random_batch(learner, 1, 16, seed=step, step=step))
        moved = {key for key in before if not torch.equal(before[key], learner.state()[key])}
        assert "critic" in moved
        for key in ("actor", "actor_target", "critic_target", "actor/adam_steps"):
            assert (key in moved) == (step % 2 == 1)


def test_the_noise_on_the_targets_action_is_clipped_and_so_is_the_action():
    learner = make("td3", 1)
    batch = random_batch(learner, 1, 8)
    batch.terminals.zero_()
    with torch.no_grad():
        learner.targets["actor_target"].zero_()  # its action is 0
        far, edge = (learner.evaluate_policy(noisy(batch, size))[0]["critic"] for size in (1e6, 0.5 / 0.2))
        torch.testing.assert_close(far, edge)
        learner.targets["actor_target"][:, -ACTIONS:] = 50.0  # the last layer's bias: its action is 1
        above, at = (learner.evaluate_policy(noisy(batch, size))[0]["critic"] for size in (2.0, 0.0))
        torch.testing.assert_close(above, at)


def noisy(batch, size: float):
    batch.noise.fill_(size)
    return batch


def test_the_scale_of_rewards_does_not_move_td3_bc_between_imitation_and_value():
    """λ = α / mean|Q|: a critic a hundred times as large gives the actor the same gradient."""
    learner = make("td3_bc", 1)
    batch = random_batch(learner, 1, 32)
    grads = []
    for scale in (1.0, 100.0):
        last = learner.first_critic.cuts[-2] + learner.first_critic.cuts[-1]
        for head in learner.params["critic"].data.chunk(2, dim=1):
            head[:, -last:] *= scale
        losses, _ = learner.improve_policy(batch)
        grads.append(torch.autograd.grad(losses["actor"].sum(), learner.params["actor"])[0])
    torch.testing.assert_close(grads[0], grads[1], atol=1e-6, rtol=1e-4)


def test_td3_bc_without_value_is_imitation():
    learner = make("td3_bc", 1, alpha=1e-12)
    batch = random_batch(learner, 1, 32)
    losses, metrics = learner.improve_policy(batch)
    actions = learner.actor.mode(learner.params["actor"], batch.observations)
    torch.testing.assert_close(losses["actor"], torch.nn.functional.mse_loss(actions, batch.actions).reshape(1))
    torch.testing.assert_close(metrics["imitation_error"], losses["actor"].detach())


@pytest.mark.parametrize("name", ["td3", "td3_bc"])
def test_a_better_action_than_the_logged_ones_is_found(name):
    """Reward −2|a − 0.5|, episodes of one step, logged actions around 0: value must pull the actor to 0.5."""
    learner = make(name, 1, hidden=[32, 32], actor_lr=3e-3, critic_lr=1e-2)
    for step in range(700):
        batch = random_batch(learner, 1, 64, seed=step, step=step)
        batch.rewards.copy_(-2 * (batch.actions - 0.5).abs().sum(-1))
        batch.terminals.fill_(1.0)
        learner.update(batch)
    mode = learner.actor.mode(learner.params["actor"], torch.randn(1, 100, OBSERVATIONS))
    assert (mode.mean((0, 1)) - 0.5).abs().max() < 0.15

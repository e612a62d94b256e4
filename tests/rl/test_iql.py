import pytest
import torch
from scipy.stats import expectile

from rl.iql import expectile_loss
from tests.rl.learners import ACTIONS, OBSERVATIONS, make, random_batch, select
from tests.rl.plain_iql import PlainIQL
from tests.rl.test_networks import plain_copy
from tests.rl.test_sac import as_row

POLICIES = ["gaussian", "tanh_gaussian"]


def plain_from(learner, k: int, policy: str) -> PlainIQL:
    """The independent single-client IQL, started from client k's parameters."""
    plain = PlainIQL(OBSERVATIONS, ACTIONS, [16, 16], policy)
    plain.actor.load_state_dict(plain_copy(learner.actor.network, learner.params["actor"][k].detach()).state_dict())
    plain.value.load_state_dict(plain_copy(learner.value, learner.params["value"][k].detach()).state_dict())
    for i, row in enumerate(learner.params["critic"][k].detach().chunk(2)):
        plain.critics[i].load_state_dict(plain_copy(learner.critic, row).state_dict())
    plain.targets.load_state_dict(plain.critics.state_dict())
    return plain


@pytest.mark.parametrize("policy", POLICIES)
def test_a_stacked_cohort_equals_separate_runs_of_a_plain_loop(policy):
    cohort = make("iql", 3, policy=policy)
    plains = [plain_from(cohort, k, policy) for k in range(3)]
    for step in range(20):
        batch = random_batch(cohort, 3, 32, seed=step)
        batch.actions[0, :5] = 1.0  # on the bound
        batch.rewards[1] *= 20  # so that weights reach their limit
        cohort.update(batch)
        for k, plain in enumerate(plains):
            own = select(batch, [k])
            columns = (own.observations, own.actions, own.rewards, own.next_observations, own.terminals)
            plain.update(*(column[0] for column in columns))
    for k, plain in enumerate(plains):
        torch.testing.assert_close(cohort.params["actor"][k], as_row(plain.actor), atol=2e-5, rtol=1e-3)
        torch.testing.assert_close(cohort.params["value"][k], as_row(plain.value), atol=2e-5, rtol=1e-3)
        critics = torch.cat([as_row(critic) for critic in plain.critics])
        targets = torch.cat([as_row(target) for target in plain.targets])
        torch.testing.assert_close(cohort.params["critic"][k], critics, atol=2e-5, rtol=1e-3)
        torch.testing.assert_close(cohort.targets["critic_target"][k], targets, atol=2e-5, rtol=1e-3)
        if policy == "gaussian":
            torch.testing.assert_close(cohort.params["log_std"][k], plain.log_std.detach(), atol=1e-5, rtol=1e-4)


def test_the_expectile_loss_is_least_at_the_expectile():
    x = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for level in (0.1, 0.5, 0.7, 0.9):
        v = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        optimiser = torch.optim.LBFGS([v], max_iter=200, tolerance_change=1e-14, line_search_fn="strong_wolfe")

        def closure(v=v, level=level, optimiser=optimiser):
            optimiser.zero_grad()
            loss = expectile_loss(x - v, level).mean()
            loss.backward()
            return loss

        optimiser.step(closure)
        assert v.item() == pytest.approx(expectile(x.numpy(), alpha=level), abs=1e-6)


def test_the_value_of_a_state_is_the_expectile_of_its_actions_rewards():
    """One state, episodes of one step, reward = the action's first component."""
    learner = make("iql", 1, expectile=0.8, critic_lr=1e-2, value_lr=1e-2, tau=0.1)
    for step in range(250):
        batch = random_batch(learner, 1, 128, seed=step)
        batch.observations.zero_()
        batch.rewards.copy_(batch.actions[..., 0])
        batch.terminals.fill_(1.0)
        learner.update(batch)
    rewards = torch.randn(100_000, generator=torch.Generator().manual_seed(0)).tanh().numpy()
    value = learner.value(learner.params["value"], torch.zeros(1, 1, OBSERVATIONS)).item()
    assert value == pytest.approx(expectile(rewards, alpha=0.8), abs=0.05)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("beta", "expected"), [(10.0, 0.5), (0.0, 0.0)])
def test_the_policy_goes_to_the_better_of_the_logged_actions(policy, beta, expected):
    """Half of the rows play 0.5 and earn 1, half −0.5 and earn 0; β = 0 clones both."""
    learner = make("iql", 1, beta=beta, policy=policy, actor_lr=3e-3, critic_lr=1e-2, value_lr=1e-2, tau=0.1)
    for step in range(250):
        batch = random_batch(learner, 1, 64, seed=step)
        good = torch.arange(64) % 2 == 0
        batch.actions.mul_(0.1).add_(torch.where(good, 0.5, -0.5).view(1, 64, 1))
        batch.rewards.copy_(good.float().expand(1, 64))
        batch.terminals.fill_(1.0)
        learner.update(batch)
    observations = torch.randn(1, 200, OBSERVATIONS, generator=torch.Generator().manual_seed(0))
    mode = learner.actor.mode(learner.params["actor"], observations)
    assert (mode.mean((0, 1)) - expected).abs().max() < 0.1


def test_a_rows_weight_is_limited():
    learner = make("iql", 1, beta=1000.0)
    batch = random_batch(learner, 1, 16)
    with torch.no_grad():
        _, metrics = learner.learn(batch)
    assert 0 < metrics["weight"].item() <= 100


def test_terminals_do_not_bootstrap():
    learner = make("iql", 1)
    batch = random_batch(learner, 1, 8)
    batch.terminals.fill_(1.0)
    with torch.no_grad():
        losses, _ = learner.learn(batch)
        pairs = torch.cat([batch.observations, batch.actions], -1)
        q = learner.critic(learner.params["critic"], pairs).squeeze(-1)
    torch.testing.assert_close(losses["critic"], (q - batch.rewards.unsqueeze(1)).square().mean(2).sum(1))

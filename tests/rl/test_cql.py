import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import kstest, uniform

from tests.rl.learners import ACTIONS, OBSERVATIONS, make, random_batch, select
from tests.rl.plain_cql import PlainCQL
from tests.rl.test_networks import plain_copy
from tests.rl.test_sac import as_row

VARIANTS = [
    {},
    {"lagrange": 5.0},
    {"max_backup": True, "backup_entropy": True},
    {"calibrated": True},
    {"bc_steps": 10},
]


def plain_from(learner, k: int, **variant) -> PlainCQL:
    """The independent single-client CQL, started from client k's parameters."""
    plain = PlainCQL(OBSERVATIONS, ACTIONS, [16, 16], sampled_actions=learner.sampled_actions, **variant)
    plain.actor.load_state_dict(plain_copy(learner.actor.network, learner.params["actor"][k].detach()).state_dict())
    for i, row in enumerate(learner.params["critic"][k].detach().chunk(2)):
        plain.critics[i].load_state_dict(plain_copy(learner.critic, row).state_dict())
    plain.targets.load_state_dict(plain.critics.state_dict())
    return plain


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_stacked_cohort_equals_separate_runs_of_a_plain_loop(variant):
    cohort = make("cql", 2, sampled_actions=3, **variant)
    plains = [plain_from(cohort, k, **variant) for k in range(2)]
    for step in range(20):
        batch = random_batch(cohort, 2, 32, seed=step, step=step)
        cohort.update(batch)
        for k, plain in enumerate(plains):
            own = select(batch, [k])
            columns = (own.observations, own.actions, own.rewards, own.next_observations, own.terminals)
            returns = None if own.returns is None else own.returns[0]
            plain.update(*(column[0] for column in columns), own.noise[:, 0], returns, step)
    for k, plain in enumerate(plains):
        torch.testing.assert_close(cohort.params["actor"][k], as_row(plain.actor), atol=2e-5, rtol=1e-3)
        critics = torch.cat([as_row(critic) for critic in plain.critics])
        targets = torch.cat([as_row(target) for target in plain.targets])
        torch.testing.assert_close(cohort.params["critic"][k], critics, atol=2e-5, rtol=1e-3)
        torch.testing.assert_close(cohort.targets["critic_target"][k], targets, atol=2e-5, rtol=1e-3)
        temperature = plain.log_temperature.detach()
        torch.testing.assert_close(cohort.params["temperature"][k], temperature, atol=1e-5, rtol=1e-4)
        if cohort.lagrange is not None:
            torch.testing.assert_close(cohort.params["alpha"][k], plain.log_alpha.detach(), atol=1e-5, rtol=1e-4)


def test_uniform_actions_span_the_whole_range():
    learner = make("cql", 1, sampled_actions=100)
    batch = random_batch(learner, 1, 64)
    none = torch.empty(0, 1, 64, ACTIONS)
    with torch.no_grad():
        actions, log_density = learner.propose(batch, none, none.sum(-1))
    drawn = actions[:100].flatten()
    assert drawn.min() < -0.99
    assert drawn.max() > 0.99
    assert kstest(drawn.numpy(), uniform(-1, 2).cdf).pvalue > 0.01
    torch.testing.assert_close(log_density[:, :, :100], torch.full((1, 1, 100, 64), math.log(1 / 2**ACTIONS)))


@torch.no_grad()
def set_linear(learner, slope: float) -> None:
    """Make every critic Q(s,a) = slope · a_1, by hand: two units carry relu(a_1) and relu(−a_1) to the output."""
    theta = learner.params["critic"].zero_()
    weights = learner.critic.layers(theta.view(learner.critics, -1))[::2]
    weights[0][:, OBSERVATIONS, 0], weights[0][:, OBSERVATIONS, 1] = 1, -1
    for weight in weights[1:-1]:
        weight[:, 0, 0] = weight[:, 1, 1] = 1
    weights[-1][:, 0, 0], weights[-1][:, 1, 0] = slope, -slope


@pytest.mark.parametrize("slope", [0.5, 2.0, -4.0])
def test_the_importance_sampled_logsumexp_estimates_the_integral(slope):
    """∫ exp(c·a₁) da over [−1, 1]² = 2 · 2 sinh(c)/c. The estimate is a sum over 3N actions, so log 3N above."""
    learner = make("cql", 1, sampled_actions=3000)
    set_linear(learner, slope)
    batch = random_batch(learner, 1, 16)
    with torch.no_grad():
        _, metrics = learner.evaluate_policy(batch)
    estimate = metrics["conservative_gap"] + slope * batch.actions[..., 0].mean() - math.log(3 * 3000)
    assert estimate.item() == pytest.approx(math.log(4 * math.sinh(slope) / slope), abs=0.02)


def bandit(learner, step: int):
    """Episodes of one step that earn 1; the data's actions lie in [0.2, 0.6]²."""
    batch = random_batch(learner, 1, 64, seed=step)
    batch.actions.copy_(0.4 + 0.2 * torch.erf(batch.actions.atanh() / math.sqrt(2)))
    batch.rewards.fill_(1.0)
    batch.terminals.fill_(1.0)
    return replace(batch, returns=torch.ones(1, 64))


def trained(updates: int = 200, **changes):
    learner = make("cql", 1, sampled_actions=4, critic_lr=3e-3, actor_lr=1e-3, **changes)
    for step in range(updates):
        metrics = learner.update(bandit(learner, step))
    return learner, metrics


@torch.no_grad()
def q_at(learner, actions: torch.Tensor) -> float:
    observations = torch.randn(1, len(actions), OBSERVATIONS, generator=torch.Generator().manual_seed(1))
    return learner.q(learner.params["critic"], observations, actions.unsqueeze(0)).mean().item()


def test_the_gap_is_positive_and_actions_outside_the_data_are_worth_less():
    random = torch.Generator().manual_seed(0)
    inside = 0.2 + 0.4 * torch.rand(500, ACTIONS, generator=random)
    outside = -torch.rand(500, ACTIONS, generator=random)
    conservative, metrics = trained(alpha=1.0)
    bold, bold_metrics = trained(alpha=1e-6)
    assert metrics["conservative_gap"] > 0
    assert metrics["conservative_gap"] < bold_metrics["conservative_gap"]
    assert q_at(conservative, outside) < q_at(bold, outside) - 0.5
    assert q_at(conservative, outside) < q_at(conservative, inside) - 0.5
    assert abs(q_at(bold, outside) - q_at(bold, inside)) < 0.3


@pytest.mark.parametrize(("target_gap", "direction"), [(-100.0, 1), (100.0, -1)])
def test_a_gap_above_its_target_raises_alpha_and_one_below_lowers_it(target_gap, direction):
    learner = make("cql", 1, lagrange=target_gap)
    before = learner.params["alpha"].detach().clone()
    metrics = learner.update(random_batch(learner, 1, 32))
    assert metrics["alpha"].item() == pytest.approx(10.0)
    assert (learner.params["alpha"].detach() - before).sign().item() == direction


def test_the_maximum_in_the_backup_is_never_below_the_plain_backup():
    plain, most = make("cql", 1), make("cql", 1, max_backup=True)
    batch = random_batch(plain, 1, 64)
    with torch.no_grad():
        actions = torch.tanh(torch.randn(11, 1, 64, ACTIONS, generator=torch.Generator().manual_seed(0)))
        log_prob = torch.zeros(11, 1, 64)
        low, high = plain.backup(batch, actions, log_prob), most.backup(batch, actions, log_prob)
    assert (high >= low).all()
    assert (high > low).any()


def test_a_calibrated_penalty_has_no_gradient_in_policy_values_below_the_logged_return():
    learner = make("cql", 1, calibrated=True, sampled_actions=2)
    assert learner.returns_discount == learner.gamma
    batch = replace(random_batch(learner, 1, 3), returns=torch.zeros(1, 3))
    q = torch.tensor([-1.0, 1.0]).view(1, 1, 2, 1).repeat(1, 2, 3, 3).requires_grad_()  # below, above; for 3 sources
    torch.logsumexp(learner.at_least_returns(q, batch), 2).sum().backward()
    pushed = (q.grad[0, 0, :, 0] > 0).tolist()
    assert pushed == [True, True, False, True, False, True]


def test_calibration_keeps_up_the_value_of_a_policy_outside_the_data():
    """The policy stands still, far from the data's actions."""
    values = []
    for calibrated in (True, False):
        learner = make("cql", 1, sampled_actions=4, critic_lr=3e-3, actor_lr=1e-9, calibrated=calibrated)
        bias = learner.actor.network.layers(learner.params["actor"].data)[-1]
        bias[0, 0, :ACTIONS], bias[0, 0, ACTIONS:] = -1.0, -1.5  # mode tanh(−1), σ = e^−1.5
        for step in range(150):
            learner.update(bandit(learner, step))
        values.append(q_at(learner, torch.full((100, ACTIONS), math.tanh(-1.0))))
    assert values[0] > values[1] + 10


def test_batches_bring_returns_only_if_they_are_needed():
    assert make("cql", 1).returns_discount is None


def test_while_it_clones_the_actor_does_not_see_the_critics():
    learner = make("cql", 1, bc_steps=5)
    early, late = (random_batch(learner, 1, 16, step=step) for step in (4, 5))
    before = [learner.improve_policy(batch)[0]["actor"].item() for batch in (early, late)]
    learner.params["critic"].data.mul_(2.0)
    after = [learner.improve_policy(batch)[0]["actor"].item() for batch in (early, late)]
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_critics_have_as_many_layers_as_asked():
    assert make("cql", 1, hidden=[8, 4]).critic.sizes[1:-1] == (8, 4, 4)
    assert make("cql", 1, hidden=[8, 4], critic_layers=2).critic.sizes[1:-1] == (8, 4)
    assert make("cql", 1, hidden=[8, 4], critic_layers=1).critic.sizes[1:-1] == (8,)

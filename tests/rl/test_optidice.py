"""OptiDICE against what does not share its code: numerical conjugates, convex and linear programs, a plain loop."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from scipy.optimize import linprog, minimize

from data.batch import Batch, Window
from data.errors import InputError
from rl.divergences import DIVERGENCES
from rl.learner import Task
from rl.networks import MLP
from rl.policies import TanhMixture
from tests.rl.learners import ACTIONS, OBSERVATIONS, make, random_batch, select, settings
from tests.rl.plain_optidice import PlainOptiDICE
from tests.rl.test_networks import plain_copy
from tests.rl.test_sac import as_row

WITH_NETS = {"extraction": "projection", "advantage": "regression", "draw_rows": False}


# -- divergences ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", DIVERGENCES)
def test_the_conjugate_is_the_largest_wx_minus_f(name):
    divergence, x = DIVERGENCES[name], torch.linspace(-3, 3, 61, dtype=torch.float64)
    w = torch.cat([torch.zeros(1, dtype=torch.float64), torch.logspace(-6, 2, 200_001, dtype=torch.float64)])
    largest = torch.stack([(w * point - divergence.f(w)).max() for point in x])
    torch.testing.assert_close(divergence.conjugate(x), largest, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_the_ratio_is_the_slope_of_the_conjugate_and_log_ratio_its_logarithm(name):
    divergence = DIVERGENCES[name]
    x = torch.linspace(-2.95, 3, 60, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(divergence.conjugate(x).sum(), x)
    torch.testing.assert_close(divergence.ratio(x.detach()), slope)
    seen = divergence.ratio(x.detach()) > 0
    torch.testing.assert_close(divergence.log_ratio(x.detach())[seen], slope[seen].log())


# -- a tabular problem ---------------------------------------------------------------------------------------------
class Chain:
    """Five states in a ring, two actions (step on, or stay), deterministic; rows are drawn unevenly."""

    states, gamma = 5, 0.9

    def __init__(self):
        self.pairs = [(s, a) for s in range(self.states) for a in range(2)]
        self.following = np.array([(s + 1) % self.states if a == 0 else s for s, a in self.pairs])
        self.rewards = np.array([0.1, 0.0, 0.2, 0.9, 0.0, 0.3, 1.0, 0.2, 0.0, 0.6])
        self.counts = np.array([6, 2, 4, 3, 5, 2, 1, 4, 3, 6])
        self.data = self.counts / self.counts.sum()
        self.start = np.array([0.5, 0.25, 0.25, 0.0, 0.0])

    def flow(self) -> tuple[np.ndarray, np.ndarray]:
        """A d = b: what is in a state is what starts there and what comes there."""
        out = np.array([[float(s == state) for s, _ in self.pairs] for state in range(self.states)])
        into = np.array([[float(s2 == state) for s2 in self.following] for state in range(self.states)])
        return out - self.gamma * into, (1 - self.gamma) * self.start

    def regularised_optimum(self, alpha: float) -> np.ndarray:
        """w of max_d d·r − α Σ d_D f(d/d_D) under the flow, f soft-χ², by scipy."""
        a, b = self.flow()

        def f(w):
            return np.where(w < 1, w * (np.log(np.maximum(w, 1e-300)) - 1) + 1, 0.5 * (w - 1) ** 2)

        def loss(w):
            return -(self.data * (w * self.rewards - alpha * f(w))).sum()

        constraint = {"type": "eq", "fun": lambda w: a @ (self.data * w) - b}
        found = minimize(
            loss, np.ones(10), bounds=[(1e-9, None)] * 10, constraints=[constraint],
            method="SLSQP", options={"maxiter": 2000, "ftol": 1e-14},
        )  # fmt: skip
        assert found.success
        return found.x

    def best_value(self) -> float:
        a, b = self.flow()
        return -linprog(-self.rewards, A_eq=a, b_eq=b).fun

    def batch(self) -> Batch:
        """Every row as often as it was logged, every initial state as often as it begins an episode."""
        rows, one_hot = np.repeat(np.arange(10), self.counts), torch.eye(self.states)
        first = torch.tensor([s for s, _ in self.pairs])[rows]
        return Batch(
            observations=one_hot[first].unsqueeze(0),
            actions=torch.tensor([[0.5 - a] for _, a in self.pairs])[rows].unsqueeze(0),
            rewards=torch.tensor(self.rewards, dtype=torch.float32)[rows].unsqueeze(0),
            next_observations=one_hot[torch.tensor(self.following)[rows]].unsqueeze(0),
            terminals=torch.zeros(1, len(rows)),
            noise=torch.zeros(1, 1, len(rows), 1),
            initial_observations=one_hot[[0, 0, 1, 2]].unsqueeze(0),
            initial_weight=torch.ones(1),
            progress=0.0,
        )

    def learned(self, updates: int = 2000, **changes) -> tuple[np.ndarray, object]:
        """The ratio of each pair, from a table for ν: a network without hidden layers on one-hot states."""
        learner = make_tabular(gamma=self.gamma, warm_up=0.5, draw_rows=False, **changes)
        batch = self.batch()
        for update in range(updates):
            learner.update(replace(batch, progress=0.0 if update < updates // 2 else 0.499 * (update / updates)))
        first = np.cumsum(self.counts) - self.counts
        return learner.row_statistics(batch)["ratio"][0].numpy()[first], learner


def make_tabular(**changes):
    changes = {"hidden": [], "steps": 1, "schedule": "cosine", "nu_lr": 1e-1, "lambda_lr": 5e-2} | changes
    learner = instantiate(OmegaConf.merge(settings("optidice"), changes))(Task(5, 1, 1.0), 1, device="cpu")
    learner.broadcast(learner.initial(torch.Generator().manual_seed(0)))
    return learner


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_the_learned_ratios_are_those_of_the_convex_program(alpha):
    chain = Chain()
    ratio, _ = chain.learned(alpha=alpha)
    np.testing.assert_allclose(ratio, chain.regularised_optimum(alpha), atol=0.02)
    assert (chain.data * ratio).sum() == pytest.approx(1, abs=5e-3)  # E[w] = 1


def test_with_little_regularisation_the_ratios_earn_what_the_linear_program_does():
    chain = Chain()
    ratio, _ = chain.learned(alpha=0.01)
    value = (chain.data * ratio * chain.rewards).sum()
    assert value == pytest.approx(chain.best_value(), rel=0.03)
    assert (chain.data * chain.rewards).sum() < 0.6 * chain.best_value()  # the data alone earn much less


@pytest.mark.parametrize("advantage", ["regression", "minimax"])
def test_an_advantage_network_gives_the_same_ratios_where_the_next_state_is_certain(advantage):
    """A network on (s, a), because the action tells rows of a state apart."""
    chain = Chain()
    ratio, _ = chain.learned(alpha=1.0, advantage=advantage, hidden=[32], nu_lr=1e-2)
    np.testing.assert_allclose(ratio, chain.regularised_optimum(1.0), atol=0.1)


# -- identities ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("steps", [1, 4])
def test_the_gauge_changes_neither_loss_nor_ratios_where_episodes_go_on(steps):
    """ν − c and λ + (1 − γ)c."""
    learner = make("optidice", 1, gamma=0.9, steps=steps)
    batch = random_batch(learner, 1, 64)
    batch.terminals.zero_()

    def both() -> tuple[torch.Tensor, torch.Tensor]:
        losses, _ = learner.fit_dual(batch)
        return (losses["nu"] + learner.params["dual"][:, 0]).detach(), learner.row_weights(batch)

    loss, ratio = both()
    learner.params["nu"].data[:, -1] -= 3.0  # the bias of the last layer
    learner.params["dual"].data[:, 0] += (1 - 0.9) * 3.0
    shifted_loss, shifted_ratio = both()
    torch.testing.assert_close(shifted_loss, loss, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(shifted_ratio, ratio, atol=1e-5, rtol=1e-5)


def test_a_windows_residual_is_the_discounted_mean_of_the_steps_in_it():
    """In a log the states follow on each other: what ν adds inside a window cancels."""
    one, several = make("optidice", 1, steps=1), make("optidice", 1, steps=4)
    several.params["nu"].data.normal_(generator=torch.manual_seed(0))
    one.params["nu"].data.copy_(several.params["nu"].data)
    states, rewards, gamma = torch.randn(5, OBSERVATIONS), torch.randn(4), one.gamma
    blank = random_batch(one, 1, 4)
    steps = replace(blank, observations=states[None, :4], rewards=rewards[None], next_observations=states[None, 1:])
    steps.terminals.zero_()
    discounts = gamma ** torch.arange(4.0)
    window = Window(
        (discounts * rewards).sum().view(1, 1), states[None, 4:], torch.zeros(1, 1), torch.full((1, 1), 4.0)
    )
    whole = replace(select(steps, slice(None), slice(0, 1)), window=window)
    mean = (discounts * one.logged_residual(steps, one.params)[0]).sum() / discounts.sum()
    torch.testing.assert_close(several.logged_residual(whole, several.params)[0, 0], mean, atol=1e-4, rtol=1e-4)


def test_starting_at_the_mean_reward_is_a_choice_of_gauge():
    """With `centred`, x starts at (r − r̄)/α for rows that go on; with a terminal, at what is lost by it."""
    learner = make_tabular(gamma=0.9, alpha=0.5, warm_up=0.0, draw_rows=False)
    learner.offset = 0.4 / (1 - 0.9)
    batch = Chain().batch()
    x = learner.x(batch, learner.params)
    torch.testing.assert_close(x, (batch.rewards - 0.4) / 0.5)
    ended = learner.x(replace(batch, terminals=torch.ones_like(batch.terminals)), learner.params)
    torch.testing.assert_close(ended, (batch.rewards - 0.4 / 0.1) / 0.5)


def test_the_federated_dual_is_the_centralised_one_only_with_the_factor_on_initial_states():
    """One full-batch gradient, weighted by rows, on shards whose episodes are few or many."""
    rows, starts = [40, 24, 16], [1, 6, 3]
    central = make("optidice", 1)
    pooled = random_batch(central, 1, sum(rows))
    initial = torch.randn(1, sum(starts), OBSERVATIONS)
    nu = central.params["nu"]
    nu.data += 0.1 * torch.randn_like(nu)

    def gradient(batch: Batch) -> torch.Tensor:
        losses, _ = central.fit_dual(batch)
        return torch.cat(
            torch.autograd.grad(losses["nu"].sum() + losses["dual"].sum(), [nu, central.params["dual"]]), 1
        )

    def federated(with_factor: bool) -> torch.Tensor:
        total, row, start = 0.0, 0, 0
        for n, n0 in zip(rows, starts, strict=True):
            factor = (n0 / sum(starts)) / (n / sum(rows)) if with_factor else 1.0
            own = replace(
                select(pooled, slice(None), slice(row, row + n)),
                initial_observations=initial[:, start : start + n0],
                initial_weight=torch.tensor([factor]),
            )
            total, row, start = total + n / sum(rows) * gradient(own), row + n, start + n0
        return total

    whole = gradient(replace(pooled, initial_observations=initial, initial_weight=torch.ones(1)))
    torch.testing.assert_close(federated(True), whole, atol=1e-6, rtol=1e-4)
    assert (federated(False) - whole).abs().max() > 1e-4


def test_a_stacked_cohort_equals_separate_runs_of_a_plain_loop():
    settings = {"nu_lr": 1e-3, "lambda_lr": 1e-3, "actor_lr": 1e-3}
    likelihood = {"schedule": "constant", "warm_up": 0.0, "steps": 1, "policy_loss": "likelihood"}
    cohort = make("optidice", 3, **likelihood, **settings)
    plains = []
    for k in range(3):
        plain = PlainOptiDICE(OBSERVATIONS, ACTIONS, [16, 16], alpha=cohort.alpha, gamma=cohort.gamma)
        plain.nu.load_state_dict(plain_copy(cohort.nu, cohort.params["nu"][k].detach()).state_dict())
        plain.actor.load_state_dict(plain_copy(cohort.actor.network, cohort.params["actor"][k].detach()).state_dict())
        plain.optimise(**settings)
        plains.append(plain)
    for step in range(20):
        batch = replace(random_batch(cohort, 3, 32, seed=step), initial_weight=torch.ones(3))
        cohort.update(batch)
        for k, plain in enumerate(plains):
            columns = (batch.observations, batch.actions, batch.rewards, batch.next_observations, batch.terminals)
            drawn = (batch.weighted.observations[k], batch.weighted.actions[k])
            plain.update(*(column[k] for column in columns), batch.initial_observations[k], drawn)
    for k, plain in enumerate(plains):
        torch.testing.assert_close(cohort.params["nu"][k], as_row(plain.nu), atol=2e-5, rtol=1e-3)
        torch.testing.assert_close(cohort.params["dual"][k], plain.lam.detach(), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(cohort.params["actor"][k], as_row(plain.actor), atol=2e-5, rtol=1e-3)


# -- options -------------------------------------------------------------------------------------------------------
def test_what_the_orthogonal_gradient_adds_is_orthogonal_to_the_semi_gradient():
    directions = {}
    for gradient in ("semi", "orthogonal"):
        learner = make("optidice", 2, gradient=gradient)
        learner.params["nu"].data += 0.1 * torch.randn(learner.params["nu"].shape, generator=torch.manual_seed(0))
        losses, _ = learner.fit_dual(random_batch(learner, 2, 32))
        (directions[gradient],) = torch.autograd.grad(losses["nu"].sum(), learner.params["nu"])
    added = directions["orthogonal"] - directions["semi"]
    lengths = added.norm(dim=1) * directions["semi"].norm(dim=1)
    assert (added.norm(dim=1) > 0).all()
    assert ((added * directions["semi"]).sum(1).abs() < 1e-4 * lengths).all()


def test_the_broadcast_dual_weighs_the_whole_round_and_the_local_one_moves():
    for ratios, moves in (("broadcast", False), ("local", True)):
        learner = make("optidice", 2, ratios=ratios)
        batch = random_batch(learner, 2, 32)
        learner.begin_round()
        before = learner.row_weights(batch)
        for step in range(3):
            learner.update(random_batch(learner, 2, 32, seed=step))
        assert torch.equal(before, learner.row_weights(batch)) != moves
        learner.begin_round()
        assert not torch.equal(before, learner.row_weights(batch))


def test_a_ratio_in_the_loss_pulls_as_rows_drawn_in_proportion_to_it_do():
    learner = make("optidice", 1, draw_rows=False, normalise_ratios=True)
    batch = random_batch(learner, 1, 64)
    counts = torch.randint(1, 4, (64,), generator=torch.manual_seed(0))
    learner.row_weights = lambda rows: counts.float().unsqueeze(0)
    factor, _ = learner.imitate(batch)
    drawn = make("optidice", 1)
    repeated = torch.repeat_interleave(torch.arange(64), counts)
    rows = replace(batch, observations=batch.observations[:, repeated], actions=batch.actions[:, repeated])
    in_proportion, _ = drawn.imitate(replace(batch, weighted=rows))
    torch.testing.assert_close(factor["actor"], in_proportion["actor"])


def test_ratios_are_clipped_where_asked():
    learner = make("optidice", 1, largest_ratio=0.5, defensive=0.0)
    assert learner.row_weights(random_batch(learner, 1, 64)).max() == 0.5


def test_a_defensive_mixture_keeps_every_row():
    learner, pure = make("optidice", 1, defensive=0.2), make("optidice", 1, defensive=0.0)
    batch = random_batch(learner, 1, 64)
    torch.testing.assert_close(learner.row_weights(batch), 0.8 * pure.row_weights(batch) + 0.2)


def test_the_gradient_penalty_flattens_a_steep_nu():
    slopes = {}
    for penalty in (0.0, 1.0):
        learner = make("optidice", 1, gradient_penalty=penalty, nu_lr=1e-2)
        learner.params["nu"].data.normal_(generator=torch.manual_seed(0))
        for step in range(50):
            learner.update(random_batch(learner, 1, 32, seed=step))
        slopes[penalty] = learner.steepness(random_batch(learner, 1, 64).observations).item()
    assert slopes[1.0] < 0.9 * slopes[0.0]


def test_an_absorbing_state_is_worth_what_staying_there_is():
    """One state, one row that ends: ν(absorbing) is free, and the flow puts 1 of ratio on each of the two rows."""
    learner = make_tabular(gamma=0.5, alpha=1.0, absorbing=True, warm_up=0.5, draw_rows=False)
    batch = replace(Chain().batch(), terminals=torch.ones(1, 36), progress=0.0)
    for _ in range(1500):
        learner.update(batch)
    _, stays = learner.params["dual"].detach()[0]
    ratio = learner.row_statistics(batch)["ratio"].mean()
    absorbed = learner.divergence.ratio((-(1 - 0.5) * stays - learner.params["dual"].detach()[0, 0]) / 1.0)
    # All mass starts in the data (1 − γ) and is absorbed: γ of it is in the absorbing state, half the rows each.
    assert float(ratio / 2) == pytest.approx(0.5, abs=0.02)
    assert float(absorbed / 2) == pytest.approx(0.5, abs=0.02)


def test_the_behaviour_mixture_is_a_density():
    mixture = TanhMixture(MLP((2, 8, 3 * 3)), 3)
    theta = mixture.network.init(torch.Generator().manual_seed(0)).unsqueeze(0)
    u = torch.linspace(-60, 60, 200_001)
    state = torch.randn(2, generator=torch.manual_seed(0)).expand(1, len(u), 2)
    density = mixture.log_density(theta, state, u.view(1, -1, 1)).exp()[0]
    assert float(torch.trapezoid(density, u)) == pytest.approx(1, abs=1e-3)


def test_both_extractions_find_the_better_of_two_habits():
    """Logged: action −0.5 earning 0 and +0.5 earning 1, in equal numbers, whatever the state, and so on for ever."""
    for changes in ({}, WITH_NETS):
        learner = make("optidice", 1, warm_up=0.0, steps=1, actor_lr=3e-3, nu_lr=3e-3, alpha=0.1, **changes)
        for step in range(800):
            batch = random_batch(learner, 1, 64, seed=step, progress=0.1)
            good = (torch.rand(1, 64, 1, generator=torch.manual_seed(step)) < 0.5).float()
            batch.actions.copy_(good - 0.5 + 0.05 * batch.actions)
            batch.rewards.copy_(good.squeeze(-1))
            batch.terminals.zero_()
            if learner.weighted_rows:
                index = torch.multinomial(learner.row_weights(batch), 64, replacement=True)[0]
                drawn = replace(batch, observations=batch.observations[:, index], actions=batch.actions[:, index])
                batch = replace(batch, weighted=drawn)
            learner.update(batch)
        mode = learner.actor.mode(learner.params["actor"], torch.randn(1, 100, OBSERVATIONS))
        assert (mode - 0.5).abs().mean() < 0.12, changes


def test_a_projection_without_what_it_needs_is_a_sentence():
    with pytest.raises(InputError, match=r"advantage=regression"):
        make("optidice", 1, extraction="projection")
    with pytest.raises(InputError, match=r"draw_rows=false"):
        make("optidice", 1, extraction="projection", advantage="minimax")

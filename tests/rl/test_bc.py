import pytest
import torch

from tests.rl.learners import ACTIONS, OBSERVATIONS, make, random_batch, select
from tests.rl.test_networks import plain_copy
from tests.rl.test_sac import as_row


def likelihood(out: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    mean, log_std = out.chunk(2, -1)
    normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
    a = actions.clamp(-0.999, 0.999)
    return -(normal.log_prob(torch.atanh(a)) - torch.log1p(-a.square())).sum(-1).mean()


def squared(out: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    return ACTIONS * torch.nn.functional.mse_loss(torch.tanh(out[:, :ACTIONS]), actions)


@pytest.mark.parametrize("loss", [likelihood, squared])
def test_a_stacked_cohort_equals_separate_runs_of_a_plain_loop(loss):
    cohort = make("bc", 3, loss=loss.__name__)
    plains = [plain_copy(cohort.actor.network, cohort.params["actor"][k].detach()) for k in range(3)]
    adams = [torch.optim.Adam(plain.parameters(), 1e-3) for plain in plains]
    for step in range(20):
        batch = random_batch(cohort, 3, 32, seed=step)
        cohort.update(batch)
        for k, (plain, adam) in enumerate(zip(plains, adams, strict=True)):
            own = select(batch, [k])
            adam.zero_grad()
            loss(plain(own.observations[0]), own.actions[0]).backward()
            adam.step()
    for k, plain in enumerate(plains):
        torch.testing.assert_close(cohort.params["actor"][k], as_row(plain), atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("loss", ["likelihood", "squared"])
def test_bc_recovers_a_linear_policy(loss):
    learner = make("bc", 2, loss=loss, lr=3e-3)
    gain = torch.randn(OBSERVATIONS, ACTIONS, generator=torch.Generator().manual_seed(1)) * 0.3
    for step in range(500):
        batch = random_batch(learner, 2, 128, seed=step)
        batch.actions.copy_(torch.tanh(batch.observations @ gain))
        learner.update(batch)
    test = random_batch(learner, 2, 500, seed=999).observations
    error = learner.actor.mode(learner.params["actor"], test) - torch.tanh(test @ gain)
    assert error.square().mean().sqrt() < 0.05


def test_squared_error_does_not_train_the_spread():
    learner = make("bc", 1, loss="squared")
    (grad,) = torch.autograd.grad(
        learner.squared_error(random_batch(learner, 1, 16))[0]["actor"].sum(), learner.params["actor"]
    )
    weight, bias = learner.actor.network.layers(grad)[-2:]
    assert (weight[..., ACTIONS:] == 0).all()
    assert (bias[..., ACTIONS:] == 0).all()
    assert weight[..., :ACTIONS].abs().sum() > 0

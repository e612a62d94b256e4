import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from rl.networks import MLP
from rl.policies import Deterministic, TanhGaussian


def test_log_likelihoods_are_those_of_torch_distributions():
    torch.manual_seed(0)
    policy = TanhGaussian(MLP((5, 16, 4)))
    theta, s = torch.randn(3, policy.network.parameters) * 0.1, torch.randn(3, 7, 5)
    noise = torch.randn(3, 7, 2)
    action, log_prob = policy.sample(theta, s, noise)
    mean, log_std = policy.distribution(theta, s)
    reference = Independent(TransformedDistribution(Normal(mean, log_std.exp()), TanhTransform()), 1)
    torch.testing.assert_close(log_prob, reference.log_prob(action), atol=2e-3, rtol=1e-3)
    inside = torch.rand(3, 7, 2) * 1.8 - 0.9
    torch.testing.assert_close(policy.log_prob(theta, s, inside), reference.log_prob(inside), atol=1e-4, rtol=1e-4)


def test_the_likelihood_of_an_action_on_the_bound_is_finite_and_so_is_its_gradient():
    policy = TanhGaussian(MLP((5, 16, 4)))
    theta = torch.randn(1, policy.network.parameters, requires_grad=True)
    log_prob = policy.log_prob(theta, torch.randn(1, 4, 5), torch.tensor([1.0, -1.0]).expand(1, 4, 2))
    (grad,) = torch.autograd.grad(log_prob.sum(), theta)
    assert torch.isfinite(log_prob).all()
    assert torch.isfinite(grad).all()


def test_actions_stay_inside_the_bounds():
    policy = TanhGaussian(MLP((3, 8, 4)))
    theta, s = torch.randn(2, policy.network.parameters) * 50, torch.randn(2, 100, 3)
    action, log_prob = policy.sample(theta, s, torch.randn(2, 100, 2))
    assert action.abs().max() <= 1
    assert policy.mode(theta, s).abs().max() <= 1
    assert torch.isfinite(log_prob).all()


def test_a_deterministic_policy_is_the_tanh_of_its_network():
    policy = Deterministic(MLP((3, 8, 2)))
    theta, s = torch.randn(2, policy.network.parameters) * 50, torch.randn(2, 100, 3)
    assert torch.equal(policy.mode(theta, s), torch.tanh(policy.network(theta, s)))
    assert policy.mode(theta, s).abs().max() <= 1

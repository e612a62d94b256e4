import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from rl.policies import TanhGaussian


def test_log_likelihoods_are_those_of_torch_distributions():
    torch.manual_seed(0)
    policy = TanhGaussian.build(5, 2, [16])
    theta, s = torch.randn(3, policy.network.parameters) * 0.1, torch.randn(3, 7, 5)
    noise = torch.randn(3, 7, 2)
    action, log_prob = policy.sample(theta, s, noise)
    mean, log_std = policy.distribution(theta, s)
    reference = Independent(TransformedDistribution(Normal(mean, log_std.exp()), TanhTransform()), 1)
    torch.testing.assert_close(log_prob, reference.log_prob(action), atol=2e-3, rtol=1e-3)
    inside = torch.rand(3, 7, 2) * 1.8 - 0.9
    torch.testing.assert_close(policy.log_prob(theta, s, inside), reference.log_prob(inside), atol=1e-4, rtol=1e-4)


def test_the_likelihood_of_an_action_on_the_bound_is_finite_and_so_is_its_gradient():
    policy = TanhGaussian.build(5, 2, [16])
    theta = torch.randn(1, policy.network.parameters, requires_grad=True)
    log_prob = policy.log_prob(theta, torch.randn(1, 4, 5), torch.tensor([1.0, -1.0]).expand(1, 4, 2))
    (grad,) = torch.autograd.grad(log_prob.sum(), theta)
    assert torch.isfinite(log_prob).all()
    assert torch.isfinite(grad).all()


def test_actions_stay_inside_the_bounds():
    policy = TanhGaussian.build(3, 2, [8])
    theta, s = torch.randn(2, policy.network.parameters) * 50, torch.randn(2, 100, 3)
    action, log_prob = policy.sample(theta, s, torch.randn(2, 100, 2))
    assert action.abs().max() <= 1
    assert policy.mode(theta, s).abs().max() <= 1
    assert torch.isfinite(log_prob).all()

import pytest
import torch
from torch import nn

from rl.networks import MLP


def plain_copy(mlp: MLP, row: torch.Tensor) -> nn.Sequential:
    """The same network as nn.Linear modules, filled by hand from the row's documented layout."""
    modules, at = [], 0
    for fan_in, fan_out in zip(mlp.sizes[:-1], mlp.sizes[1:], strict=True):
        linear = nn.Linear(fan_in, fan_out).to(row.dtype)
        weight, at = row[at : at + fan_in * fan_out], at + fan_in * fan_out
        bias, at = row[at : at + fan_out], at + fan_out
        linear.weight.data.copy_(weight.view(fan_in, fan_out).T)
        linear.bias.data.copy_(bias)
        norm = [nn.LayerNorm(fan_out, elementwise_affine=False)] if mlp.layer_norm else []
        modules += [linear, *norm, nn.ReLU()]
    return nn.Sequential(*modules[: -1 - mlp.layer_norm])


@pytest.mark.parametrize("layer_norm", [False, True])
def test_each_row_is_an_independent_network_with_the_gradients_of_plain_autograd(layer_norm):
    mlp = MLP((4, 8, 6, 1), layer_norm=layer_norm)
    theta = torch.randn(3, mlp.parameters, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)
    out = mlp(theta, x)
    out.square().sum().backward()
    for k in range(3):
        plain, x_k = plain_copy(mlp, theta[k].detach()), x[k].detach().requires_grad_()
        expected = plain(x_k)
        expected.square().sum().backward()
        torch.testing.assert_close(out[k], expected)
        torch.testing.assert_close(x.grad[k], x_k.grad)
        flat = [g for layer in plain if isinstance(layer, nn.Linear) for g in (layer.weight.grad.T, layer.bias.grad)]
        torch.testing.assert_close(theta.grad[k], torch.cat([g.flatten() for g in flat]))


@pytest.mark.parametrize("layer_norm", [False, True])
def test_gradients_pass_a_numerical_check(layer_norm):
    mlp = MLP((3, 5, 4, 2), layer_norm=layer_norm)
    theta = torch.randn(2, mlp.parameters, dtype=torch.float64, requires_grad=True)
    x = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda theta, x: mlp(theta, x), (theta, x))


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("heads", [1, 2])
def test_the_plain_form_has_the_same_values_and_gradients(heads, layer_norm):
    mlp = MLP((4, 8, 6, 1), heads, layer_norm)
    theta = torch.randn(3, mlp.parameters, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)
    fast, plain = mlp(theta, x), mlp.plain(theta, x)
    torch.testing.assert_close(fast, plain)
    for one, other in zip(*(torch.autograd.grad(y.square().sum(), (theta, x)) for y in (fast, plain)), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_the_plain_form_has_a_second_derivative(layer_norm):
    """As a gradient penalty needs: the gradient in the parameters of the gradient's norm in the input."""
    mlp = MLP((3, 5, 1), layer_norm=layer_norm)
    theta = torch.randn(2, mlp.parameters, dtype=torch.float64, requires_grad=True)
    x = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)

    def penalty(theta: torch.Tensor) -> torch.Tensor:
        (slope,) = torch.autograd.grad(mlp.plain(theta, x).sum(), x, create_graph=True)
        return slope.square().sum((1, 2))

    assert torch.autograd.gradcheck(penalty, (theta,))


def test_an_ensemble_is_its_members_side_by_side():
    single, twin = MLP((4, 8, 1)), MLP((4, 8, 1), heads=2)
    theta = torch.randn(3, twin.parameters)
    x = torch.randn(3, 5, 4)
    out = twin(theta, x)
    assert out.shape == (3, 2, 5, 1)
    for head, rows in enumerate(theta.chunk(2, dim=1)):
        torch.testing.assert_close(out[:, head], single(rows.contiguous(), x))


def test_the_input_is_left_alone():
    mlp = MLP((4, 8, 1))
    x = torch.randn(2, 5, 4)
    before = x.clone()
    mlp(torch.randn(2, mlp.parameters), x)
    assert torch.equal(x, before)


def test_initial_weights_have_the_bounds_of_nn_linear():
    mlp = MLP((16, 64, 3))
    row = mlp.init(torch.Generator().manual_seed(0))
    first, last = row[: 17 * 64], row[17 * 64 :]
    assert 0.24 < first.abs().max() <= 0.25
    assert 0.118 < last.abs().max() <= 0.125

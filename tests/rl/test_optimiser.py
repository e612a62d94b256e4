import torch

from rl.optimiser import RowAdam


def test_rows_move_as_separate_torch_adams_also_with_unequal_step_counts():
    theta = torch.randn(3, 10)
    separate = [theta[k].clone().requires_grad_() for k in range(3)]
    adams = [torch.optim.Adam([p], lr=1e-2) for p in separate]
    rows = RowAdam(theta, lr=1e-2)
    for active in ([0, 1, 2], [0, 2], [2], [0, 1, 2], [0, 1, 2]):
        grad = torch.randn(3, 10)
        rows.step(grad, active)
        for k in active:
            separate[k].grad = grad[k].clone()
            adams[k].step()
    torch.testing.assert_close(theta, torch.stack([p.detach() for p in separate]))
    assert rows.steps.tolist() == [4, 3, 5]


def test_a_row_that_is_left_out_keeps_parameters_and_moments_bit_for_bit():
    theta = torch.randn(2, 4)
    rows = RowAdam(theta, lr=1e-2)
    rows.step(torch.randn(2, 4), [0, 1])
    before = {name: tensor[1].clone() for name, tensor in {**rows.state(), "theta": theta}.items()}
    rows.step(torch.randn(2, 4), [0])
    after = {**rows.state(), "theta": theta}
    assert all(torch.equal(before[name], after[name][1]) for name in before)


def test_a_schedules_factor_scales_the_step_and_not_the_moments():
    theta, start, grad = torch.randn(2, 4), {}, torch.randn(2, 4)
    for factor in (1.0, 0.25):
        copy = theta.clone()
        rows = RowAdam(copy, lr=1e-2)
        rows.step(grad, [0, 1], factor)
        start[factor] = (copy - theta, rows.m, rows.v)
    torch.testing.assert_close(start[0.25][0], 0.25 * start[1.0][0])
    assert torch.equal(start[0.25][1], start[1.0][1])
    assert torch.equal(start[0.25][2], start[1.0][2])

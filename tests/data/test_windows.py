"""Windows of several steps against a loop over rows."""

import numpy as np
import pytest
import torch

from data.splits import iid
from data.windows import Windows
from tests.data.small import small_dataset
from tests.data.test_sampler import make_sampler

GAMMA = 0.9


@pytest.mark.parametrize("unit", ["episode", "segment"])
def test_a_window_holds_what_the_log_holds_and_ends_with_its_piece(unit):
    dataset = small_dataset()
    shards = iid(dataset, seed=0, clients=3, unit=unit)
    windows, usable = Windows.of(dataset, shards, 4, GAMMA), set(shards.order.tolist())
    for first, last in shards.pieces:
        for row in (row for row in range(first, last + 1) if row in usable):
            inside = [r for r in range(row, min(row + 4, last + 1)) if r in usable]
            assert windows.ends[row] == inside[-1]
            assert windows.steps[row] == len(inside)
            earned = sum(GAMMA**k * dataset.rewards[r] for k, r in enumerate(inside))
            assert windows.rewards[row] == pytest.approx(earned, abs=1e-5)


def test_a_batch_brings_the_window_of_each_row_and_starts_anywhere_in_the_first_one():
    dataset = small_dataset()
    sampler = make_sampler(dataset, window=(4, GAMMA), initial_states=True)
    windows = Windows.of(dataset, sampler.shards, 4, GAMMA)
    rows = torch.from_numpy(sampler.shards.rows(1)[:8].copy())[None]
    window = sampler.gather(rows, torch.empty(0)).window
    ends = windows.ends[rows[0]]
    expected = (dataset.next_observations[ends] - sampler.mean.numpy()) * sampler.inverse_std.numpy()
    np.testing.assert_allclose(window.observations[0], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(window.rewards[0], windows.rewards[rows[0]] * sampler.reward_scale, rtol=1e-5)
    assert window.terminals[0].bool().tolist() == dataset.terminals[ends].tolist()
    starts = sampler.shards.initial_rows(1)
    drawn = {row for block in range(20) for row in sampler._draw_initial(1, 1, block).flatten().tolist()}
    assert drawn == {row for start in starts for row in range(start, start + int(windows.steps[start]))}

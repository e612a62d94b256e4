from dataclasses import replace

import pytest
import torch

from data.errors import InputError
from fed.aggregators.mean import Mean
from fed.update import Update


def update(clients: list[int], rows: list[int], theta: torch.Tensor) -> Update:
    return Update(clients, {"actor": theta}, rows, metrics={}, flags={}, failures={})


THETA = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
STATE = {"actor": torch.zeros(6)}


def test_the_mean_is_weighted_by_rows():
    mean = Mean("size")
    mean.accumulate(update([0, 1, 2, 3], [10, 20, 30, 40], THETA))
    new = mean.finalise(STATE)
    torch.testing.assert_close(new.state["actor"], 0.1 * THETA[0] + 0.2 * THETA[1] + 0.3 * THETA[2] + 0.4 * THETA[3])
    assert new.weights == {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}


def test_a_module_trained_on_weighted_rows_counts_what_they_weigh():
    """Its loss over the pooled rows is Σ_i mass_i times the mean over client i's drawn rows."""
    sent = replace(update([0, 1], [10, 30], THETA[:2]), sizes={"actor": [6.0, 2.0]})
    sent.shared["nu"] = THETA[2:]
    for weighting, first in (("size", 0.75), ("rows", 0.25), ("uniform", 0.5)):
        mean = Mean(weighting)
        mean.accumulate(sent)
        new = mean.finalise(STATE | {"nu": torch.zeros(6)})
        torch.testing.assert_close(new.state["actor"], first * THETA[0] + (1 - first) * THETA[1])
        by_rows = 0.5 if weighting == "uniform" else 0.25
        torch.testing.assert_close(new.state["nu"], by_rows * THETA[2] + (1 - by_rows) * THETA[3])
        assert new.weights == {0: by_rows, 1: 1 - by_rows}


def test_streaming_equals_all_at_once_in_any_order():
    whole, parts = Mean("size"), Mean("size")
    whole.accumulate(update([0, 1, 2, 3], [10, 20, 30, 40], THETA))
    parts.accumulate(update([2, 3], [30, 40], THETA[2:]))
    parts.accumulate(update([0], [10], THETA[:1]))
    parts.accumulate(update([1], [20], THETA[1:2]))
    assert torch.equal(whole.finalise(STATE).state["actor"], parts.finalise(STATE).state["actor"])


def test_one_client_is_returned_exactly():
    mean = Mean("size")
    mean.accumulate(update([7], [12345], THETA[:1]))
    assert torch.equal(mean.finalise(STATE).state["actor"], THETA[0])


def test_equal_updates_are_a_fixed_point():
    mean = Mean("uniform")
    mean.accumulate(update([0, 1, 2], [1, 2, 3], THETA[:1].expand(3, 6)))
    torch.testing.assert_close(mean.finalise(STATE).state["actor"], THETA[0])


def test_with_nobody_to_average_the_state_stays_and_modules_not_shared_are_kept():
    mean = Mean()
    mean.accumulate(update([], [], THETA[:0]))  # a chunk whose clients have all failed
    new = mean.finalise({"actor": torch.ones(6)})
    assert torch.equal(new.state["actor"], torch.ones(6))
    assert new.weights == {}


def test_a_round_does_not_remember_the_one_before():
    mean = Mean()
    mean.accumulate(update([0], [1], THETA[:1]))
    mean.finalise(STATE)
    mean.accumulate(update([1], [1], THETA[1:2]))
    assert torch.equal(mean.finalise(STATE).state["actor"], THETA[1])


def test_an_unknown_weighting_is_a_sentence():
    with pytest.raises(InputError, match="choose one of size, rows, uniform"):
        Mean("volume")

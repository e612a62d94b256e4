"""What arrives of a client's step, what it costs, and what the client must remember."""

import numpy as np
import pytest
import torch

from data.errors import InputError
from fed.compression import Compression
from fed.config import compose

SENT = {"actor": torch.linspace(-1, 1, 40), "critic": torch.zeros(10)}
STEP = {
    name: torch.from_numpy(np.random.default_rng(place).normal(0, 0.1, row.shape)).float()
    for place, (name, row) in enumerate(SENT.items())
}
OWN = {name: SENT[name] + STEP[name] for name in SENT}
MOMENTS = {name: torch.linspace(0, 3, 40) for name in ("actor/adam_m", "actor/adam_v")}
MOMENTS["actor/adam_steps"] = torch.tensor(7.0)
MOMENT_BYTES = 4 * (40 + 40 + 1)
LOSSY = ("float16", "int8", "top_k")


def send(kind, client=0, round=1, sent=SENT, own=OWN, errors=None, keep=0.1, seed=0):
    return Compression(kind, keep, seed).send(client, round, sent, own, errors or {})


def received(kind, **given) -> dict[str, torch.Tensor]:
    """The steps that arrive."""
    arrived = send(kind, **given)[0]
    return {name: arrived[name] - SENT[name] for name in SENT}


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("none", 4 * 50),
        ("float16", 2 * 50),
        ("int8", 50 + 2 * 4),  # and a scale for each of the two modules
        ("top_k", (4 + 1) * 8),  # a tenth of each module, values and places
    ],
)
def test_the_bytes_are_those_of_the_message(kind, size):
    assert send(kind)[2] == size
    assert send(kind, own=OWN | MOMENTS, sent=SENT | MOMENTS)[2] == size + MOMENT_BYTES


@pytest.mark.parametrize(("keep", "count"), [(0.001, 1), (0.05, 2), (0.5, 20), (1.0, 40)])
def test_top_k_sends_its_share_and_at_least_one(keep, count):
    arrived, _, size = send("top_k", own={"actor": OWN["actor"]}, keep=keep)
    assert size == 8 * count
    assert (arrived["actor"] != SENT["actor"]).sum() == count


@pytest.mark.parametrize("kind", ["none", *LOSSY])
def test_moments_are_sent_as_they_are(kind):
    arrived, left, _ = send(kind, own=OWN | MOMENTS, sent={**SENT, **{name: 9 * row for name, row in MOMENTS.items()}})
    assert arrived.keys() == (OWN | MOMENTS).keys()
    assert all(torch.equal(arrived[name], MOMENTS[name]) for name in MOMENTS)
    assert not any("adam" in name for name in left)


def test_without_compression_everything_arrives_and_nothing_is_remembered():
    arrived, left, _ = send("none")
    assert all(torch.equal(arrived[name], OWN[name]) for name in OWN)
    assert left == {}


def test_float16_arrives_to_half_precision_of_the_step():
    for name, step in received("float16").items():
        exact = (OWN[name] - SENT[name]).numpy()
        np.testing.assert_allclose(step.numpy(), exact.astype(np.float16), rtol=0, atol=2e-7)
        np.testing.assert_allclose(step.numpy(), exact, rtol=2**-10, atol=2e-7)
    assert send("float16")[1] == {}


# -- int8 ----------------------------------------------------------------------------------------------------------
def units() -> dict[str, float]:
    return {name: (OWN[name] - SENT[name]).abs().max().item() / 127 for name in SENT}


def test_int8_arrives_in_whole_units_less_than_one_away():
    for round in range(20):
        for name, step in received("int8", round=round).items():
            unit, exact = units()[name], (OWN[name] - SENT[name]).double()
            counts = step.double() / unit
            torch.testing.assert_close(counts, counts.round(), rtol=0, atol=1e-3)
            assert counts.abs().max() <= 127.001
            assert ((step.double() - exact) / unit).abs().max() < 1.001


def test_int8_is_right_in_the_mean():
    """Within five standard errors; to round to the nearest would be off by up to half a unit."""
    count = 2000
    total = {name: torch.zeros_like(row, dtype=torch.float64) for name, row in SENT.items()}
    for round in range(count):
        for name, step in received("int8", round=round).items():
            total[name] += step.double()
    for name, sum_ in total.items():
        exact = (OWN[name] - SENT[name]).double()
        part = (exact / units()[name]) % 1
        error = (sum_ / count - exact) / units()[name]
        standard = (part * (1 - part) / count).sqrt()
        assert (error.abs() <= 5 * standard + 1e-4).all()
        assert ((part > 0.3) & (part < 0.7)).any()  # there is something that could be off


def test_int8_modules_have_a_scale_each():
    own = {"actor": SENT["actor"] + 1000 * STEP["actor"], "critic": OWN["critic"]}
    step = received("int8", own=own)["critic"]
    assert (step - STEP["critic"]).abs().max() < units()["critic"] * 1.001


# -- top_k ---------------------------------------------------------------------------------------------------------
def test_top_k_sends_the_largest_changes_and_remembers_the_rest():
    arrived, left, _ = send("top_k")
    for name in SENT:
        step = (OWN[name] - SENT[name]).numpy()
        largest = np.argsort(-np.abs(step))[: len(step) // 10]
        expected = np.zeros_like(step)
        expected[largest] = step[largest]
        np.testing.assert_allclose((arrived[name] - SENT[name]).numpy(), expected, atol=2e-7)
        np.testing.assert_allclose(left[f"error/{name}"].numpy(), step - expected, atol=2e-7)


def test_top_k_loses_nothing_over_the_rounds():
    """What has arrived, and what the client still remembers, is all that it has stepped."""
    random, errors = torch.Generator().manual_seed(0), {}
    arrived_sum, true_sum = torch.zeros(40).double(), torch.zeros(40).double()
    server = {"actor": torch.zeros(40)}
    for round in range(1, 31):
        step = 0.1 * torch.randn(40, generator=random)
        arrived, errors, _ = send(
            "top_k", round=round, sent=server, own={"actor": server["actor"] + step}, errors=errors
        )
        assert errors.keys() == {"error/actor"}
        true_sum += step.double()
        arrived_sum += (arrived["actor"] - server["actor"]).double()
        server = arrived
        torch.testing.assert_close(arrived_sum + errors["error/actor"].double(), true_sum, rtol=0, atol=1e-5)
    assert (arrived_sum - true_sum).abs().max() > 0.1  # the memory is not empty


def test_what_is_always_too_small_arrives_in_the_end():
    step, errors, total = torch.tensor([1.0, 0.3]), {}, torch.zeros(2)
    for round in range(10):
        arrived, errors, _ = send(
            "top_k", round=round, sent={"actor": torch.zeros(2)}, own={"actor": step}, errors=errors, keep=0.5
        )
        total += arrived["actor"]
    assert total[1] >= 2.0


def test_what_a_client_remembers_of_other_things_does_not_disturb_it():
    kept = {"actor/adam_m": torch.randn(40), "said/actor": torch.randn(40)}
    for kind in LOSSY:
        one, other = send(kind), send(kind, errors=kept)
        assert all(torch.equal(one[0][name], other[0][name]) for name in SENT)


# -- all of them ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", LOSSY)
def test_who_has_not_moved_sends_the_model_back(kind):
    arrived, left, _ = send(kind, own=SENT)
    assert all(torch.equal(arrived[name], SENT[name]) for name in SENT)
    assert all((error == 0).all() for error in left.values())


@pytest.mark.parametrize("kind", LOSSY)
def test_the_same_seed_client_and_round_send_the_same(kind):
    one, again = send(kind, client=3, round=5), send(kind, client=3, round=5)
    assert all(torch.equal(one[0][name], again[0][name]) for name in SENT)


@pytest.mark.parametrize("changed", [{"client": 4}, {"round": 6}, {"seed": 1}])
def test_another_seed_client_or_round_rounds_otherwise(changed):
    one, other = (received("int8", **{"client": 3, "round": 5, **given})["actor"] for given in ({}, changed))
    assert not torch.equal(one, other)


@pytest.mark.parametrize("kind", LOSSY)
def test_what_was_sent_and_what_the_client_has_are_not_changed(kind):
    sent, own = ({name: row.clone() for name, row in rows.items()} for rows in (SENT, OWN))
    errors = {f"error/{name}": torch.ones_like(row) for name, row in SENT.items()}
    send(kind, sent=sent, own=own, errors=errors)
    assert all(torch.equal(sent[name], SENT[name]) and torch.equal(own[name], OWN[name]) for name in SENT)
    assert all((error == 1).all() for error in errors.values())


@pytest.mark.parametrize("kind", LOSSY)
def test_a_step_that_is_not_finite_is_not_made_finite(kind):
    """The server must see it, to leave it out."""
    arrived = send(kind, own=OWN | {"actor": torch.full((40,), torch.nan)})[0]
    assert not arrived["actor"].isfinite().all()
    assert arrived["critic"].isfinite().all()


@pytest.mark.parametrize(
    ("kind", "keep", "sentence"),
    [
        ("zip", 0.1, "kind is zip; it must be none, float16, int8 or top_k"),
        ("top_k", 0.0, "keep is 0.0; it must be a number above 0 and at most 1"),
        ("top_k", 1.5, "keep is 1.5; it must be a number above 0 and at most 1"),
    ],
)
def test_a_setting_that_does_not_do_is_a_sentence(kind, keep, sentence):
    with pytest.raises(InputError, match=sentence):
        compose("train", [f"compression.kind={kind}", f"compression.keep={keep}"])

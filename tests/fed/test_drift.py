"""How far clients have moved apart, against norms and cosines one by one."""

from itertools import combinations

import numpy as np
import pytest
import torch

from fed import drift
from fed.drift import Drift
from fed.screening import Screen
from fed.update import Update

PARAMETERS = {"nu": 7, "actor": 12}


def federation(clients: int, parameters: dict[str, int] = PARAMETERS, seed: int = 0) -> tuple[dict, dict, dict]:
    """What was sent, what each client has come to, and what the server has made of it."""
    random = torch.Generator().manual_seed(seed)
    sent = {name: torch.randn(size, generator=random) for name, size in parameters.items()}
    shared = {name: row + 0.3 + torch.randn(clients, len(row), generator=random) for name, row in sent.items()}
    weights = torch.rand(clients, generator=random)
    state = {name: weights / weights.sum() @ rows for name, rows in shared.items()}
    moments = {"actor/adam_m": torch.randn(clients, parameters["actor"], generator=random)}
    moments["actor/adam_steps"] = torch.arange(clients).float()
    still = {name: torch.zeros(rows.shape[1:]) for name, rows in moments.items()}
    return sent | still, shared | moments, state | {name: rows[0] for name, rows in moments.items()}


def update(shared: dict[str, torch.Tensor], places: list[int], names: list[int] | None = None) -> Update:
    clients = [names[place] for place in places] if names else places
    return Update(
        clients, {n: rows[places] for n, rows in shared.items()}, [1] * len(places), metrics={}, flags={}, failures={}
    )


def steps_by_hand(sent: dict, shared: dict, state: dict) -> tuple[np.ndarray, np.ndarray]:
    """[K, P] of the clients and [P] of the server: modules only."""
    modules = [name for name in sent if "/" not in name]
    own = np.concatenate([(shared[n] - sent[n]).double().numpy() for n in modules], axis=1)
    return own, np.concatenate([(state[n] - sent[n]).double().numpy() for n in modules])


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def recorded(sent: dict, updates: list[Update], state: dict, chosen: list[int]) -> dict:
    found = Drift(sent)
    for part in updates:
        found.accumulate(part)
    return found.record(state, chosen)


def test_norms_and_cosines_are_what_they_are_one_by_one():
    sent, shared, state = federation(6)
    record = recorded(sent, [update(shared, list(range(6)))], state, list(range(6)))
    own, whole = steps_by_hand(sent, shared, state)
    assert record["norms"] == pytest.approx(np.linalg.norm(own, axis=1).tolist())
    assert record["global_norm"] == pytest.approx(np.linalg.norm(whole))
    pairs = [cosine(a, b) for a, b in combinations(own, 2)]
    assert record["pairwise_cosine"] == pytest.approx(np.mean(pairs))
    near = [cosine(step, whole) for step in own]
    assert record["cosines"] == pytest.approx(near)
    assert record["cosine"] == pytest.approx(np.mean(near))


def test_clients_that_go_the_same_way_or_opposite_ways():
    sent = {"actor": torch.zeros(3)}
    way = torch.tensor([1.0, 2.0, -2.0])
    same = recorded(
        sent, [update({"actor": torch.stack([way, 2 * way, 5 * way])}, [0, 1, 2])], {"actor": way}, [0, 1, 2]
    )
    assert same["norms"] == pytest.approx([3.0, 6.0, 15.0])
    assert same["pairwise_cosine"] == pytest.approx(1)
    assert same["cosines"] == pytest.approx([1, 1, 1])
    apart = recorded(sent, [update({"actor": torch.stack([way, -way])}, [0, 1])], {"actor": way}, [0, 1])
    assert apart["pairwise_cosine"] == pytest.approx(-1)
    assert apart["cosines"] == pytest.approx([1, -1])
    assert apart["cosine"] == pytest.approx(0)


def test_in_chunks_and_in_any_order_the_record_is_the_same():
    sent, shared, state = federation(9)
    whole = recorded(sent, [update(shared, list(range(9)))], state, list(range(9)))
    parts = [update(shared, places) for places in ([8, 2], [0], [], [7, 6, 5, 4], [1, 3])]
    in_chunks = recorded(sent, parts, state, list(range(9)))
    assert in_chunks.keys() == whole.keys()
    for name, value in whole.items():
        assert in_chunks[name] == pytest.approx(value), name


def test_participants_of_whom_nothing_arrived_have_null():
    sent, shared, state = federation(3)
    record = recorded(sent, [update(shared, [0, 1, 2], names=[11, 5, 7])], state, [5, 6, 7, 11])
    own, whole = steps_by_hand(sent, shared, state)
    by_name = dict(zip([11, 5, 7], own, strict=True))
    assert record["norms"][1] is record["cosines"][1] is None
    for place, client in ((0, 5), (2, 7), (3, 11)):
        assert record["norms"][place] == pytest.approx(np.linalg.norm(by_name[client]))
        assert record["cosines"][place] == pytest.approx(cosine(by_name[client], whole))


def test_where_nobody_answers_or_nothing_is_shared_there_is_no_drift():
    sent, shared, state = federation(3)
    assert recorded(sent, [], state, [0, 1]) == {}
    assert recorded(sent, [update(shared, [])], state, [0, 1]) == {}
    assert recorded({}, [update({}, [0, 1])], {}, [0, 1]) == {}


def test_one_client_has_nobody_to_be_compared_with():
    sent, shared, _ = federation(1)
    state = {name: rows[0] for name, rows in shared.items()}
    record = recorded(sent, [update(shared, [0])], state, [0])
    assert record["pairwise_cosine"] is None
    assert record["cosine"] == pytest.approx(1)
    assert record["norms"] == pytest.approx([record["global_norm"]])


def test_where_the_server_stands_still_there_is_no_direction_to_compare_with():
    sent, shared, _ = federation(3)
    record = recorded(sent, [update(shared, [0, 1, 2])], sent, [0, 1, 2])
    assert record["global_norm"] == 0
    assert record["cosine"] is None


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_client_that_has_not_moved_is_at_right_angles_to_the_others(moved):
    steps = torch.zeros(3, 4)
    steps[:moved] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    record = recorded({"actor": torch.zeros(4)}, [update({"actor": steps}, [0, 1, 2])], {"actor": steps[0]}, [0, 1, 2])
    pairs = [0.0 if not a.any() or not b.any() else cosine(a, b) for a, b in combinations(steps.double().numpy(), 2)]
    assert record["pairwise_cosine"] == pytest.approx(np.mean(pairs))


def test_updates_that_have_been_on_disk_have_the_same_drift():
    sent, shared, state = federation(4)
    records = []
    for held in (100, 0):
        came = Screen(norm=50.0, cosine=None, held=held)([update(shared, [0, 1]), update(shared, [2, 3])], sent, {})
        records.append(recorded(sent, list(came), state, [0, 1, 2, 3]))
    assert records[1]["norms"] == pytest.approx(records[0]["norms"])
    assert records[1]["cosines"] == pytest.approx(records[0]["cosines"])
    assert records[1]["cosine"] == pytest.approx(records[0]["cosine"])


# -- sketches ------------------------------------------------------------------------------------------------------
def test_of_a_large_model_the_single_cosines_are_estimates_and_the_rest_is_exact():
    sent, shared, state = federation(5, {"nu": 4000, "actor": 5000})
    record = recorded(sent, [update(shared, [0, 1, 2]), update(shared, [3, 4])], state, list(range(5)))
    own, whole = steps_by_hand(sent, shared, state)
    near = [cosine(step, whole) for step in own]
    assert record["norms"] == pytest.approx(np.linalg.norm(own, axis=1).tolist())
    assert record["cosine"] == pytest.approx(np.mean(near))
    assert record["pairwise_cosine"] == pytest.approx(np.mean([cosine(a, b) for a, b in combinations(own, 2)]))
    assert record["cosines"] == pytest.approx(near, abs=5 / drift.SKETCH**0.5)
    assert record["cosines"] != pytest.approx(near, abs=1e-6)  # it is a sketch


def test_a_sketch_holds_each_place_once_and_the_same_ones_every_time():
    places = drift.sketch_places(10_000).tolist()
    assert len(set(places)) == len(places) == drift.SKETCH
    assert 0 <= min(places) < max(places) < 10_000
    assert drift.sketch_places(10_000).tolist() == places
    assert drift.sketch_places(20).tolist() == list(range(20))


@pytest.mark.parametrize("width", [1, 4, 9])
def test_of_very_many_clients_single_cosines_are_not_recorded(monkeypatch, width):
    sent, shared, state = federation(9)
    parts = [update(shared, list(range(first, min(9, first + width)))) for first in range(0, 9, width)]
    monkeypatch.setattr(drift, "SKETCHED", 9)
    whole = recorded(sent, parts, state, list(range(9)))
    assert len(whole.pop("cosines")) == 9
    for limit in (1, 5, 8):
        monkeypatch.setattr(drift, "SKETCHED", limit)
        assert recorded(sent, parts, state, list(range(9))) == whole

"""Who takes part in a round, how far they get, and who is lost."""

import json
import math
from collections import Counter

import numpy as np
import pytest

from data.errors import InputError
from fed.participation import Participation, participants_per_round, read_availability

TEN = np.full(10, 100)


def visits(participation: Participation, rounds: int) -> list[int]:
    """How often each client is asked in rounds 1, 2, …"""
    seen = Counter(client for round in range(1, rounds + 1) for client in participation.draw(round))
    return [seen[client] for client in range(len(participation.sizes))]


# -- who is asked --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("clients", "fraction", "count"),
    [(10, 1.0, 10), (10, 0.3, 3), (10, 0.01, 1), (1, 0.5, 1), (7, 0.5, 4), (1000, 0.1, 100)],
)
def test_a_fraction_of_the_clients_is_asked_and_never_nobody(clients, fraction, count):
    assert participants_per_round(clients, fraction) == count
    for sampling in ("uniform", "cyclic", "size"):
        asked = Participation(np.full(clients, 5), fraction, 0, sampling).draw(1)
        assert len(set(asked)) == len(asked) == count
        assert asked == sorted(asked)
        assert set(asked) <= set(range(clients))


@pytest.mark.parametrize("sampling", ["uniform", "size"])
def test_the_same_seed_draws_the_same_and_another_seed_others(sampling):
    sizes = np.arange(1, 41)
    draws = [[Participation(sizes, 0.25, seed, sampling).draw(r) for r in range(1, 6)] for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert len({tuple(asked) for asked in draws[0]}) == 5  # and every round others


def test_a_round_does_not_depend_on_the_rounds_before():
    participation = Participation(TEN, 0.3, 0)
    straight = [participation.draw(round) for round in range(1, 9)]
    assert Participation(TEN, 0.3, 0).draw(8) == straight[7]


@pytest.mark.parametrize("sampling", ["uniform", "cyclic", "size"])
def test_another_attempt_asks_others(sampling):
    participation = Participation(np.arange(1, 31), 0.3, 0, sampling)
    attempts = [participation.draw(4, attempt) for attempt in range(3)]
    assert len({tuple(asked) for asked in attempts}) == 3
    assert all(len(asked) == 9 for asked in attempts)
    assert participation.draw(4, 2) == attempts[2]


def test_uniform_sampling_asks_everybody_about_equally_often_whatever_their_sizes():
    """600 rounds with 3 of 10 are 180 visits each, with a standard deviation of √(600 · 0.3 · 0.7) = 11."""
    assert np.abs(np.array(visits(Participation(np.arange(1, 11) ** 3, 0.3, 0), 600)) - 180).max() < 5 * 11.3


@pytest.mark.parametrize(("clients", "fraction"), [(10, 0.3), (10, 0.5), (7, 0.3), (9, 1.0), (5, 0.2)])
def test_cyclic_sampling_visits_everybody_equally_often(clients, fraction):
    participation = Participation(np.full(clients, 5), fraction, 0, "cyclic")
    count = len(participation.draw(1))
    assert visits(participation, clients) == [count] * clients
    enough = visits(participation, math.ceil(clients / count))
    assert min(enough) >= 1  # nobody waits longer than one turn


def test_cyclic_sampling_goes_on_where_the_round_before_ended():
    participation = Participation(TEN, 0.4, 0, "cyclic")
    assert [participation.draw(r) for r in (1, 2, 3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 8, 9]]


def test_sampling_by_size_asks_clients_in_proportion_to_their_rows():
    """One of three in a round: 600, 300 and 100 rows, in 1,000 rounds, within five standard deviations."""
    seen = visits(Participation(np.array([600, 300, 100]), 1 / 3, 0, "size"), 1000)
    for count, share in zip(seen, (0.6, 0.3, 0.1), strict=True):
        assert abs(count - 1000 * share) < 5 * math.sqrt(1000 * share * (1 - share))


# -- who can be reached --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("sampling", ["uniform", "cyclic", "size"])
def test_only_those_who_can_be_reached_are_asked_and_the_trace_begins_anew(sampling):
    trace = ((0, 1, 2, 3, 4), (5, 6), (1, 3, 5, 7, 9))
    participation = Participation(TEN, 0.3, 0, sampling, trace)
    for round in range(1, 31):
        asked, there = participation.draw(round), trace[(round - 1) % 3]
        assert set(asked) <= set(there)
        assert len(set(asked)) == len(asked) == min(3, len(there))


def test_over_the_rounds_everybody_who_can_be_reached_is_asked():
    trace = ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))
    for sampling in ("uniform", "cyclic", "size"):
        assert min(visits(Participation(TEN, 0.2, 0, sampling, trace), 60)) >= 1


def test_a_trace_is_read_in_order_and_without_doubles(tmp_path):
    (tmp_path / "trace.json").write_text("[[2, 0, 2], [1]]")
    assert read_availability(str(tmp_path / "trace.json"), 3) == ((0, 2), (1,))
    assert read_availability(None, 3) is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[[0, 1", r"cannot be read .*it must be a JSON list with a list of clients for each round"),
        ("5", r"holds something else.*such as \[\[0, 1\], \[1, 2\]\]"),
        ("[0, 1]", "holds something else.*a JSON list with a list of clients"),
        ("null", "holds something else.*a JSON list with a list of clients"),
        ('[["a"]]', "holds something else.*a JSON list with a list of clients"),
        ("[]", "has no round, or one that nobody is in; every round needs clients from 0 to 2"),
        ("[[0], []]", "has no round, or one that nobody is in; every round needs clients from 0 to 2"),
        ("[[0, 3]]", "names client 3 of 3; every round needs clients from 0 to 2"),
        ("[[-1, 0]]", "names client -1 of 3; every round needs clients from 0 to 2"),
    ],
)
def test_a_trace_that_does_not_do_is_a_sentence(content, sentence, tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(content)
    with pytest.raises(InputError, match=sentence) as error:
        read_availability(str(path), 3)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("name", ["nowhere.json", "."])
def test_a_trace_that_is_no_file_is_a_sentence(name, tmp_path):
    with pytest.raises(InputError, match=r"clients\.available: .* cannot be read .*it must be a JSON list"):
        read_availability(str(tmp_path / name), 3)


@pytest.mark.parametrize("trace", [{"1": [0, 2], "2": [1]}, ["12", "0"], [[0.7, 1.9]]], ids=["object", "text", "parts"])
def test_a_trace_that_is_no_list_of_lists_of_whole_numbers_is_a_sentence(trace, tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    with pytest.raises(InputError, match="a JSON list with a list of clients"):
        read_availability(str(path), 3)


def test_a_trace_with_a_number_beyond_all_bounds_is_a_sentence(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text("[[Infinity]]")
    with pytest.raises(InputError, match="a JSON list with a list of clients"):
        read_availability(str(path), 3)


# -- how far they get ----------------------------------------------------------------------------------------------
def test_without_a_time_limit_everybody_takes_all_updates():
    slow = Participation(TEN, 1.0, 0, slowness=3.0)
    assert [slow.steps(client, 50) for client in range(10)] == [50] * 10


@pytest.mark.parametrize(("limit", "steps"), [(2.0, 40), (1.0, 40), (0.5, 20), (0.26, 10), (0.01, 0)])
def test_clients_of_speed_one_get_as_far_as_the_time_goes(limit, steps):
    partial, drop = (Participation(TEN, 1.0, 0, time_limit=limit, late=late) for late in ("partial", "drop"))
    assert [partial.steps(client, 40) for client in range(10)] == [steps] * 10
    assert [drop.steps(client, 40) for client in range(10)] == [steps if steps == 40 else 0] * 10


def test_a_time_limit_is_not_cut_short_by_rounding():
    assert Participation(TEN, 1.0, 0, time_limit=0.29).steps(0, 100) == 29


def test_speeds_are_log_normal():
    """So many updates that steps/updates is limit · speed; 400 clients, within five standard errors."""
    participation = Participation(np.full(400, 1), 1.0, 0, slowness=0.5, time_limit=1e-3)
    logs = np.log([participation.steps(client, 10**9) / 1e6 for client in range(400)])
    assert abs(logs.mean()) < 5 * 0.5 / math.sqrt(400)
    assert abs(logs.std() - 0.5) < 5 * 0.5 / math.sqrt(800)
    assert len(set(logs)) == 400


def test_a_slow_client_does_what_it_can_or_is_not_waited_for():
    shared = {"slowness": 1.0, "time_limit": 1.0}
    partial, drop = (Participation(TEN, 1.0, 3, late=late, **shared) for late in ("partial", "drop"))
    done = [partial.steps(client, 1000) for client in range(10)]
    assert max(done) == 1000 > min(done) > 0
    assert [drop.steps(client, 1000) for client in range(10)] == [steps if steps == 1000 else 0 for steps in done]


def test_a_client_keeps_its_speed_and_another_seed_gives_it_another():
    shared = {"slowness": 1.0, "time_limit": 0.1}
    one, again, other = (Participation(TEN, 1.0, seed, **shared) for seed in (0, 0, 1))
    steps = [[p.steps(client, 10**6) for client in range(10)] for p in (one, again, one, other)]
    assert steps[0] == steps[1] == steps[2] != steps[3]


# -- who is lost ---------------------------------------------------------------------------------------------------
def test_nobody_is_lost_by_default():
    assert {Participation(TEN, 1.0, 0).lost(client, round) for client in range(10) for round in range(20)} == {None}


def test_clients_are_lost_as_often_as_said():
    """Before: 0.2; after: 0.5 of those that are left; 2,000 draws, within five standard deviations."""
    lossy = Participation(TEN, 1.0, 0, drop_before=0.2, drop_after=0.5)
    found = Counter(lossy.lost(client, round) for client in range(10) for round in range(200))
    for when, chance in (("before", 0.2), ("after", 0.4), (None, 0.4)):
        assert abs(found[when] - 2000 * chance) < 5 * math.sqrt(2000 * chance * (1 - chance))


@pytest.mark.parametrize(("settings", "when"), [({"drop_before": 1.0}, "before"), ({"drop_after": 1.0}, "after")])
def test_a_chance_of_one_loses_everybody(settings, when):
    lossy = Participation(TEN, 1.0, 0, **settings)
    assert {lossy.lost(client, round) for client in range(10) for round in range(20)} == {when}


def test_losses_are_drawn_from_seed_client_round_and_attempt():
    def losses(seed: int = 0, attempt: int = 0) -> list[list[str | None]]:
        lossy = Participation(TEN, 1.0, seed, drop_before=0.5)
        return [[lossy.lost(client, round, attempt) for client in range(10)] for round in range(1, 11)]

    assert losses() == losses()
    assert losses() != losses(seed=1)
    assert losses() != losses(attempt=1)
    assert losses()[0] != losses()[1]
    assert len({tuple(column) for column in zip(*losses(), strict=True)}) == 10  # clients are not lost together

"""Which updates are left out before aggregation, and what is said of them."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch

from data.errors import InputError
from fed.config import compose
from fed.screening import Screen
from fed.update import Update


def sent(parameters: int) -> dict[str, torch.Tensor]:
    row = torch.linspace(-1, 1, parameters)
    return {"nu": row, "actor": 0.5 * row, "actor/adam_m": row, "actor/adam_steps": torch.tensor(0.0)}


def chunks(steps: torch.Tensor, width: int) -> list[Update]:
    """Clients 100, 101, … whose `nu` and `actor` have taken these steps `[K, 2, P]`."""
    base, count = sent(steps.shape[2]), len(steps)
    shared = {
        "nu": base["nu"] + steps[:, 0],
        "actor": base["actor"] + steps[:, 1],
        "actor/adam_m": torch.zeros(count, steps.shape[2]),
        "actor/adam_steps": torch.arange(count).float(),
    }
    whole = Update(
        clients=list(range(100, 100 + count)),
        shared=shared,
        rows=list(range(1, count + 1)),
        metrics={"loss": [float(k) for k in range(count)]},
        flags={},
        failures={},
        statistics={"ratio": {"ess": [10.0 * k for k in range(count)]}},
        steps=[5] * count,
        bytes=[8] * count,
        extras={"control/actor": 2 * steps[:, 1]},
        round=3,
    )
    bounds = [*range(0, count, width), count]
    return [whole.only(list(range(first, last))) for first, last in pairwise(bounds)]


def honest_steps(clients: int, parameters: int, seed: int = 0) -> torch.Tensor:
    """A common direction, and a little of their own."""
    random = torch.Generator().manual_seed(seed)
    common = torch.randn(1, 2, parameters, generator=random)
    return common + 0.5 * torch.randn(clients, 2, parameters, generator=random)


def screened(screen: Screen, updates: list[Update], parameters: int) -> tuple[list[Update], dict[int, str]]:
    dropped: dict[int, str] = {}
    return list(screen(updates, sent(parameters), dropped)), dropped


def kept(updates: list[Update]) -> list[int]:
    return [client for update in updates for client in update.clients]


OFF = Screen(None, None, 100)
SCREENS = {"off": OFF, "norm": Screen(5.0, None, 100), "cosine": Screen(None, 5.0, 100), "both": Screen(5.0, 5.0, 100)}
every_screen = pytest.mark.parametrize("screen", SCREENS.values(), ids=SCREENS)


# -- what is not finite --------------------------------------------------------------------------------------------
@every_screen
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["nu", "actor", "actor/adam_m", "actor/adam_steps", "control/actor"])
def test_what_is_not_finite_is_always_left_out_and_named(screen, name, bad):
    updates = chunks(honest_steps(9, 30), width=4)
    tensors = updates[1].extras if name == "control/actor" else updates[1].shared
    tensors[name][2] = bad if tensors[name].ndim == 1 else torch.where(torch.arange(30) == 7, bad, tensors[name][2])
    passed, dropped = screened(screen, updates, 30)
    assert dropped == {106: f"its {name} is not finite"}
    assert kept(passed) == [c for c in range(100, 109) if c != 106]
    assert all(
        rows.isfinite().all() for update in passed for rows in [*update.shared.values(), *update.extras.values()]
    )


@every_screen
def test_where_nobody_is_finite_nobody_is_left(screen):
    passed, dropped = screened(screen, chunks(torch.full((5, 2, 30), torch.nan), width=2), 30)
    assert kept(passed) == []
    assert dropped.keys() == set(range(100, 105))


@every_screen
def test_of_a_client_that_stays_everything_stays_in_its_place(screen):
    steps = honest_steps(9, 30)
    updates = chunks(steps, width=4)
    updates[0].shared["nu"][1] = torch.nan  # of client 101
    passed, _ = screened(screen, updates, 30)
    for update in passed:
        for place, client in enumerate(update.clients):
            k = client - 100
            torch.testing.assert_close(update.shared["actor"][place], sent(30)["actor"] + steps[k, 1])
            torch.testing.assert_close(update.extras["control/actor"][place], 2 * steps[k, 1])
            assert update.shared["actor/adam_steps"][place] == k
            assert update.rows[place] == k + 1
            assert update.metrics["loss"][place] == k
            assert update.statistics["ratio"]["ess"][place] == 10 * k
        assert update.round == 3


# -- what is unlike the others -------------------------------------------------------------------------------------
@pytest.mark.parametrize("factor", [100.0, 0.01])
def test_a_step_of_quite_another_length_is_left_out_with_a_sentence(factor):
    steps = honest_steps(10, 50)
    steps[[2, 7]] *= factor
    passed, dropped = screened(SCREENS["norm"], chunks(steps, width=3), 50)
    assert dropped.keys() == {102, 107}
    norm = steps[2].norm().item()
    assert dropped[102].startswith(f"the norm of its step, {norm:.3g}, is ")
    assert dropped[102].endswith(" deviations from the median")
    assert kept(passed) == [c for c in range(100, 110) if c not in dropped]


def test_a_step_in_quite_another_direction_is_left_out_with_a_sentence():
    steps = honest_steps(10, 50)
    steps[4] *= -1
    steps[8] = torch.randn(2, 50, generator=torch.Generator().manual_seed(9))
    passed, dropped = screened(SCREENS["cosine"], chunks(steps, width=3), 50)
    assert dropped.keys() == {104, 108}
    assert "the cosine of its step to the median's, -0." in dropped[104]
    assert dropped[104].endswith(" deviations below")
    assert kept(passed) == [c for c in range(100, 110) if c not in dropped]


def test_the_norm_screen_does_not_see_directions_nor_the_cosine_screen_lengths():
    steps = honest_steps(10, 50)
    steps[4] *= -1
    steps[6] *= 50
    for name, expected in (("norm", {106}), ("cosine", {104}), ("both", {104, 106}), ("off", set())):
        assert screened(SCREENS[name], chunks(steps, width=10), 50)[1].keys() == expected


def test_four_of_ten_liars_are_left_out_and_all_honest_clients_stay():
    for seed in range(20):
        steps = honest_steps(10, 50, seed)
        steps[:4] *= -20
        passed, dropped = screened(Screen(8.0, 8.0, 100), chunks(steps, width=3), 50)
        assert dropped.keys() == {100, 101, 102, 103}
        assert kept(passed) == list(range(104, 110))


def test_whoever_is_nearest_to_the_median_direction_stays():
    """Unlike the others, too, but not to be left out for it."""
    steps = honest_steps(11, 50)
    steps[5] = steps[torch.arange(11) != 5].median(0).values
    assert 105 not in screened(Screen(None, 1.0, 100), chunks(steps, width=11), 50)[1]


def test_a_smaller_bound_leaves_out_more():
    steps = honest_steps(40, 50) * torch.linspace(0.5, 2, 40)[:, None, None]
    counts = [len(screened(Screen(norm, None, 100), chunks(steps, width=40), 50)[1]) for norm in (0.5, 1.0, 3.0)]
    assert counts[0] > counts[1] > counts[2] == 0


@every_screen
@pytest.mark.parametrize("spread", [0.0, 1e-7, 1e-4])
def test_clients_that_agree_are_not_left_out_by_chance(screen, spread):
    """All but one are equal: its tiny difference is many median deviations, which are zero."""
    steps = honest_steps(1, 50).expand(9, 2, 50).clone()
    steps[3] *= 1 + spread
    steps[3, 0, 0] += spread
    passed, dropped = screened(screen, chunks(steps, width=4), 50)
    assert dropped == {}
    assert kept(passed) == list(range(100, 109))


@every_screen
def test_one_client_alone_and_two_clients_are_never_unlike_the_others(screen):
    for count in (1, 2):
        steps = honest_steps(count, 50) * torch.tensor([1.0, -300.0])[:count, None, None]
        assert screened(screen, chunks(steps, width=1), 50)[1] == {}


@every_screen
def test_without_updates_nothing_comes_out(screen):
    assert screened(screen, [], 30) == ([], {})


# -- on disk and by sketches ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("held", [0, 5, 9])
@pytest.mark.parametrize("parameters", [50, 3000], ids=["whole", "sketched"])
def test_on_disk_the_same_are_left_out_and_the_rest_is_the_same_to_the_bit(held, parameters):
    steps = honest_steps(12, parameters)
    steps[2] *= 100
    steps[9] *= -1
    updates = chunks(steps, width=4)
    in_memory, here = screened(Screen(5.0, 5.0, 100), updates, parameters)
    on_disk, there = screened(Screen(5.0, 5.0, held), updates, parameters)
    assert here.keys() == there.keys() == {102, 109}
    assert kept(in_memory) == kept(on_disk)
    for one, other in zip(in_memory, on_disk, strict=True):
        assert one.shared.keys() == other.shared.keys()
        assert one.extras.keys() == other.extras.keys()
        assert all(torch.equal(rows, other.shared[name]) for name, rows in one.shared.items())
        assert all(torch.equal(rows, other.extras[name]) for name, rows in one.extras.items())
        assert (one.rows, one.metrics, one.statistics) == (other.rows, other.metrics, other.statistics)


def test_norms_are_exact_even_where_directions_are_sketched():
    steps = honest_steps(12, 3000)
    steps[2] *= 100
    reasons = [screened(Screen(5.0, None, held), chunks(steps, width=4), 3000)[1][102] for held in (100, 0)]
    assert reasons[0] == reasons[1]


def test_the_files_are_gone_afterwards(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stream = Screen(5.0, 5.0, 0)(chunks(honest_steps(6, 20), width=2), sent(20), {})
    next(stream)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 3
    list(stream)
    assert list(tmp_path.iterdir()) == []


# -- streaming -----------------------------------------------------------------------------------------------------
def asked(updates: list[Update], log: list[int]) -> Iterator[Update]:
    for place, update in enumerate(updates):
        log.append(place)
        yield update


def test_without_comparisons_updates_stream_one_by_one():
    log: list[int] = []
    stream = OFF(asked(chunks(honest_steps(6, 20), width=2), log), sent(20), {})
    assert log == []
    for place in range(3):
        assert next(stream).clients == [100 + 2 * place, 101 + 2 * place]
        assert log == list(range(place + 1))


def test_to_compare_all_updates_are_awaited():
    log: list[int] = []
    next(SCREENS["norm"](asked(chunks(honest_steps(6, 20), width=2), log), sent(20), {}))
    assert log == [0, 1, 2]


@pytest.mark.parametrize("screen", SCREENS.values(), ids=SCREENS)
def test_clients_that_share_no_module_are_let_through(screen):
    alone = Update([4, 5], {}, [10, 20], metrics={}, flags={}, failures={})
    assert kept(list(screen([alone], {}, {}))) == [4, 5]


@pytest.mark.parametrize("name", ["norm", "cosine"])
def test_a_bound_that_does_not_do_is_a_sentence(name):
    with pytest.raises(InputError, match=rf"screen.{name} is 0; it must be a number above 0, or null"):
        compose("train", [f"screen.{name}=0"])

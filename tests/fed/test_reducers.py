"""What every aggregation rule of configs/fed promises, and what each of them promises of itself."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
import yaml
from omegaconf import DictConfig, OmegaConf
from scipy.special import softmax

from data.errors import InputError
from fed.aggregators.base import Aggregation, Aggregator
from fed.config import CONFIGS, compose, made
from fed.update import Update

# -- twelve clients, and rules from the configuration ------------------------------------------------------------
CLIENTS = 12  # enough for Krum's three liars
RANDOM = np.random.default_rng(0)
ROWS = RANDOM.integers(50, 500, CLIENTS).tolist()
STEPS = RANDOM.integers(1, 20, CLIENTS).tolist()
SENT = {
    "nu": torch.from_numpy(RANDOM.normal(size=4)).float(),
    "actor": torch.from_numpy(RANDOM.normal(size=6)).float(),
    "actor/adam_m": torch.from_numpy(RANDOM.normal(size=6)).float(),
    "actor/adam_v": torch.from_numpy(RANDOM.exponential(size=6)).float(),
    "actor/adam_steps": torch.tensor(100.0),
}
SHARED = {
    "nu": torch.from_numpy(RANDOM.normal(size=(CLIENTS, 4))).float(),
    "actor": torch.from_numpy(RANDOM.normal(size=(CLIENTS, 6))).float(),
    "actor/adam_m": torch.from_numpy(RANDOM.normal(size=(CLIENTS, 6))).float(),
    "actor/adam_v": torch.from_numpy(
        RANDOM.exponential(size=(CLIENTS, 6)) * RANDOM.integers(0, 2, (CLIENTS, 6))
    ).float(),
    "actor/adam_steps": 100.0 + torch.tensor(STEPS).float(),
}
MASSES = RANDOM.uniform(10, 400, CLIENTS).tolist()
LOSSES, CHANGES = RANDOM.uniform(1, 3, CLIENTS).tolist(), RANDOM.normal(0, 0.3, CLIENTS).tolist()
VALUES = {of: RANDOM.exponential(size=(CLIENTS, 40)) for of in ("ratio", "reference_ratio", "value")}
STATISTICS = {
    of: {
        "mean": values.mean(1).tolist(),
        "std": values.std(1).tolist(),
        "second_moment": (values**2).mean(1).tolist(),
        "ess": (values.sum(1) ** 2 / (values**2).sum(1)).tolist(),
        "ess_fraction": (values.sum(1) ** 2 / (values**2).sum(1) / 40).tolist(),
    }
    for of, values in VALUES.items()
}


def update(clients: list[int], round: int = 1) -> Update:
    """What these of the twelve clients send."""

    def of(values: list) -> list:
        return [values[client] for client in clients]

    return Update(
        clients=list(clients),
        shared={name: rows[list(clients)] for name, rows in SHARED.items()},
        rows=of(ROWS),
        metrics={"actor_loss": of(LOSSES)},
        flags={},
        failures={},
        statistics={value: {name: of(numbers) for name, numbers in s.items()} for value, s in STATISTICS.items()},
        sizes={"actor": of(MASSES)},
        steps=of(STEPS),
        changes={"actor_loss": of(CHANGES)},
        round=round,
    )


EVERYBODY = list(range(CLIENTS))
FILES = sorted((CONFIGS / "fed").glob("*.yaml"))
RULES = [path.stem for path in FILES if "aggregator" in yaml.safe_load(path.read_text())]
VARIANTS = [
    "fedavg weighting=uniform",
    "fednova weighting=uniform",
    "krum keep=4",
    "ratio_weighted shuffled=true",
    "ratio_weighted policy=same mixture=0.5",
    "ratio_weighted measure=inverse_variance",
]


@cache
def settings(name: str) -> DictConfig:
    return compose("train", [f"fed={name}"]).fed.aggregator


def rule(chosen: str) -> Aggregator:
    """A rule by the name of its file, with settings of its aggregator: `krum keep=4`."""
    name, *changes = chosen.split()
    return made(OmegaConf.merge(settings(name), OmegaConf.from_dotlist(changes)))


def reduced(aggregator: Aggregator, *updates: Update) -> Aggregation:
    for part in updates:
        aggregator.accumulate(part)
    return aggregator.finalise(SENT)


def assert_alike(one: Aggregation, other: Aggregation) -> None:
    assert one.state.keys() == other.state.keys()
    for name, tensor in one.state.items():
        torch.testing.assert_close(tensor, other.state[name], msg=lambda text, name=name: f"{name}: {text}")
    assert one.weights == pytest.approx(other.weights)
    assert one.module_weights.keys() == other.module_weights.keys()
    for name, weights in one.module_weights.items():
        assert weights == pytest.approx(other.module_weights[name])


every_rule = pytest.mark.parametrize("chosen", RULES + VARIANTS)
WEIGHING = [chosen for chosen in RULES + VARIANTS if chosen not in ("median", "trimmed_mean")]


# -- the contract ------------------------------------------------------------------------------------------------
def test_the_contract_covers_the_rules_that_the_configurations_name():
    covered = {type(rule(chosen)).__name__ for chosen in RULES}
    streaming = {"Mean", "FedNova", "RatioWeighted", "Fedora", "Adaptive"}
    assert covered >= streaming | {"Median", "TrimmedMean", "Krum", "GeometricMedian"}


@every_rule
def test_the_order_of_clients_and_of_chunks_does_not_matter(chosen):
    straight = reduced(rule(chosen), update(EVERYBODY))
    backwards = reduced(rule(chosen), update(EVERYBODY[::-1]))
    assert_alike(straight, backwards)
    mixed = [update([7, 2, 9]), update([11]), update([0, 10, 5, 1]), update([8, 3, 6, 4])]
    assert_alike(reduced(rule(chosen), *mixed), reduced(rule(chosen), *mixed[::-1]))


@every_rule
def test_chunk_by_chunk_equals_all_at_once(chosen):
    parts = [update(EVERYBODY[:5]), update(EVERYBODY[5:6]), update(EVERYBODY[6:])]
    assert_alike(reduced(rule(chosen), *parts), reduced(rule(chosen), update(EVERYBODY)))


@every_rule
def test_equal_updates_are_a_fixed_point(chosen):
    same = {name: rows[:1].expand(rows.shape) for name, rows in SHARED.items()}
    new = reduced(rule(chosen), replace(update(EVERYBODY), shared=same, steps=[7] * CLIENTS))
    for name, rows in SHARED.items():
        torch.testing.assert_close(new.state[name], rows[0])


@every_rule
def test_where_nobody_has_moved_nothing_moves(chosen):
    """Whatever the numbers of steps."""
    same = {name: row.expand(CLIENTS, *row.shape) for name, row in SENT.items()}
    new = reduced(rule(chosen), replace(update(EVERYBODY), shared=same))
    for name, row in SENT.items():
        torch.testing.assert_close(new.state[name], row)


@every_rule
def test_one_client_is_returned(chosen):
    new = reduced(rule(chosen), update([4]))
    for name, rows in SHARED.items():
        assert new.state[name].shape == SENT[name].shape
        torch.testing.assert_close(new.state[name], rows[4])
    assert new.weights == pytest.approx({4: 1.0})


@pytest.mark.parametrize("chosen", WEIGHING)
def test_weights_are_not_negative_and_sum_to_one(chosen):
    new = reduced(rule(chosen), update(EVERYBODY[:5]), update(EVERYBODY[5:]))
    for weights in [new.weights, *new.module_weights.values()]:
        assert weights.keys() <= set(EVERYBODY)
        assert min(weights.values()) >= 0
        assert sum(weights.values()) == pytest.approx(1)


@pytest.mark.parametrize("chosen", [c for c in WEIGHING if not c.startswith("fednova")])  # goes beyond its mean
def test_the_weights_are_those_the_models_are_averaged_with(chosen):
    new = reduced(rule(chosen), update(EVERYBODY))
    for name, rows in SHARED.items():
        weights = new.module_weights.get(name, new.weights)
        expected = sum(weights.get(client, 0.0) * rows[client].double().numpy() for client in EVERYBODY)
        np.testing.assert_allclose(new.state[name].numpy(), expected, rtol=1e-5, atol=1e-6)


@every_rule
def test_an_empty_chunk_is_passed_over(chosen):
    with_empty = reduced(rule(chosen), update([]), update(EVERYBODY[:7]), update([]), update(EVERYBODY[7:]), update([]))
    assert_alike(with_empty, reduced(rule(chosen), update(EVERYBODY[:7]), update(EVERYBODY[7:])))


@every_rule
@pytest.mark.parametrize("chunks", [[], [update([])]], ids=["no chunk", "an empty chunk"])
def test_without_any_update_the_state_stays(chosen, chunks):
    new = reduced(rule(chosen), *chunks)
    assert new.weights == {}
    assert new.state.keys() == SENT.keys()
    assert all(torch.equal(new.state[name], SENT[name]) for name in SENT)


@every_rule
def test_a_round_does_not_remember_the_one_before(chosen):
    aggregator = rule(chosen)
    reduced(aggregator, replace(update(EVERYBODY[:10]), shared={n: 1e3 * rows[:10] for n, rows in SHARED.items()}))
    assert_alike(reduced(aggregator, update(EVERYBODY)), reduced(rule(chosen), update(EVERYBODY)))
    assert_alike(reduced(aggregator), reduced(rule(chosen)))


@every_rule
def test_what_was_sent_and_what_came_back_are_left_as_they_were(chosen):
    sent = {name: row.clone() for name, row in SENT.items()}
    came = update(EVERYBODY)
    reduced(rule(chosen), came)
    assert all(torch.equal(SENT[name], row) for name, row in sent.items())
    assert all(torch.equal(came.shared[name], rows) for name, rows in SHARED.items())


@every_rule
def test_shared_moments_stay_moments(chosen):
    """Second moments are not negative, and counts of steps lie among the clients'; both keep their shape."""
    new = reduced(rule(chosen), update(EVERYBODY[:3]), update(EVERYBODY[3:])).state
    assert new["actor/adam_v"].shape == (6,)
    assert (new["actor/adam_v"] >= 0).all()
    assert new["actor/adam_steps"].shape == ()
    assert SHARED["actor/adam_steps"].min() <= new["actor/adam_steps"] <= SHARED["actor/adam_steps"].max()


@every_rule
def test_what_clients_do_not_share_stays_with_the_server(chosen):
    came = update(EVERYBODY)
    new = reduced(rule(chosen), replace(came, shared={"actor": came.shared["actor"]}))
    assert not torch.equal(new.state["actor"], SENT["actor"])
    assert torch.equal(new.state["nu"], SENT["nu"])


@pytest.mark.parametrize(
    "chosen",
    RULES,
)
def test_clients_that_share_nothing_change_nothing(chosen):
    new = reduced(rule(chosen), replace(update(EVERYBODY), shared={}))
    assert all(torch.equal(new.state[name], SENT[name]) for name in SENT)


# -- the mean ----------------------------------------------------------------------------------------------------
def test_a_list_gives_each_client_its_weight():
    given = "[0.5,0,2,1.5]"
    new = reduced(rule(f"fedavg weighting={given}"), update([3, 0]), update([1, 2]))
    assert new.weights == pytest.approx({0: 0.125, 1: 0.0, 2: 0.5, 3: 0.375})
    for name, rows in SHARED.items():
        torch.testing.assert_close(new.state[name], 0.125 * rows[0] + 0.5 * rows[2] + 0.375 * rows[3])


def test_a_list_that_weighs_nobody_who_answered_leaves_the_state():
    new = reduced(rule("fedavg weighting=[1,0,0]"), update([1, 2]))
    assert torch.equal(new.state["actor"], SENT["actor"])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("[1,2,3]", "has 3 numbers and there are 12 clients"),
        ("[1,-1]", "numbers of at least 0, and one above"),
        ("[0,0]", "numbers of at least 0, and one above"),
    ],
)
def test_a_list_that_does_not_do_is_a_sentence(given, sentence):
    with pytest.raises(InputError, match=sentence):
        rule(f"fedavg weighting={given}").check(CLIENTS)


# -- FedNova -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("weighting", "sizes"), [("size", ROWS), ("uniform", [1] * CLIENTS)])
def test_fednova_is_the_papers_sum_of_normalised_steps(weighting, sizes):
    chunks = [replace(update(clients), sizes={}) for clients in (EVERYBODY[5:], EVERYBODY[:5])]
    new = reduced(rule(f"fednova weighting={weighting}"), *chunks)
    share = np.array(sizes) / sum(sizes)
    tau = (share * STEPS).sum()
    for name in ("actor", "nu"):
        start = SENT[name].double().numpy()
        direction = sum(p * (SHARED[name][i].double().numpy() - start) / STEPS[i] for i, p in enumerate(share))
        np.testing.assert_allclose(new.state[name].numpy(), start + tau * direction, rtol=1e-5, atol=1e-5)


def test_fednova_of_two_clients_by_hand():
    came = replace(
        update([0, 1]), shared={"actor": torch.tensor([[2.0], [30.0]])}, rows=[1, 3], steps=[1, 10], sizes={}
    )
    aggregator = rule("fednova")
    aggregator.accumulate(came)
    new = aggregator.finalise({"actor": torch.tensor([10.0])}).state["actor"]
    # τ = 1/4 · 1 + 3/4 · 10 = 7.75; Σ p Δ/τ_i = 1/4 · (−8)/1 + 3/4 · 20/10 = −0.5
    torch.testing.assert_close(new, torch.tensor([10.0 - 7.75 * 0.5]))


@pytest.mark.parametrize("steps", [1, 3, 7, 100])
def test_fednova_with_equal_numbers_of_steps_is_fedavg(steps):
    came = replace(update(EVERYBODY), steps=[steps] * CLIENTS, sizes={})
    nova, average = reduced(rule("fednova"), came), reduced(rule("fedavg"), came)
    for name in SENT:
        torch.testing.assert_close(nova.state[name], average.state[name], rtol=3e-7, atol=1e-7)
    assert nova.weights == pytest.approx(average.weights, rel=1e-12)


def test_fednova_with_equal_numbers_of_steps_is_fedavg_for_modules_trained_on_weighted_rows_too():
    came = replace(update(EVERYBODY), steps=[10] * CLIENTS)
    nova, average = reduced(rule("fednova"), came), reduced(rule("fedavg"), came)
    torch.testing.assert_close(nova.state["actor"], average.state["actor"])


# -- weights from ratios -------------------------------------------------------------------------------------------
def by_hand(measure: str, of: str = "ratio") -> np.ndarray:
    values = VALUES[of]
    return {
        "ess": values.sum(1) ** 2 / (values**2).sum(1),
        "ess_fraction": values.sum(1) ** 2 / (values**2).sum(1) / values.shape[1],
        "inverse_variance": 1 / (values / values.mean(1, keepdims=True)).var(1),
        "size": np.array(ROWS),
    }[measure]


@pytest.mark.parametrize("measure", ["ess", "ess_fraction", "inverse_variance", "size"])
@pytest.mark.parametrize("mixture", [0.0, 0.3, 1.0])
def test_ratio_weights_are_the_measure_mixed_with_the_rows(measure, mixture):
    aggregator = rule(f"ratio_weighted measure={measure} mixture={mixture}")
    new = reduced(aggregator, update(EVERYBODY[:4]), update(EVERYBODY[4:]))
    weights = np.array(ROWS) ** (1 - mixture) * by_hand(measure) ** mixture
    weights /= weights.sum()
    assert [new.weights[client] for client in EVERYBODY] == pytest.approx(weights.tolist())
    np.testing.assert_allclose(new.state["nu"].numpy(), weights @ SHARED["nu"].double().numpy(), rtol=1e-5, atol=1e-6)


def test_the_reference_buffer_weighs_by_the_ratios_on_its_own_rows():
    new = reduced(rule("reference_buffer"), update(EVERYBODY))
    weights = by_hand("ess_fraction", "reference_ratio")
    assert [new.weights[client] for client in EVERYBODY] == pytest.approx((weights / weights.sum()).tolist())


def test_nu_lambda_and_the_advantage_net_get_identical_weights():
    came = update(EVERYBODY)
    shared = dict.fromkeys(("nu", "dual", "advantage"), SHARED["nu"]) | {"actor": SHARED["actor"]}
    came = replace(came, shared=shared, sizes=came.sizes | {"dual": MASSES})
    aggregator = rule("ratio_weighted")
    aggregator.accumulate(came)
    new = aggregator.finalise({name: rows[0] for name, rows in shared.items()})
    assert torch.equal(new.state["nu"], new.state["dual"])
    assert torch.equal(new.state["nu"], new.state["advantage"])
    assert new.module_weights.keys() == {"actor"}


@pytest.mark.parametrize(("policy", "weights"), [("mass", MASSES), ("size", ROWS), ("same", by_hand("ess"))])
def test_the_policy_is_weighed_as_asked(policy, weights):
    shared = {"nu": SHARED["nu"], "actor": SHARED["actor"], "behaviour": SHARED["actor"]}
    aggregator = rule(f"ratio_weighted policy={policy}")
    aggregator.accumulate(replace(update(EVERYBODY), shared=shared))
    new = aggregator.finalise({name: rows[0] for name, rows in shared.items()})
    share = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    torch.testing.assert_close(new.state["actor"], (share @ SHARED["actor"].double()).float())
    others = torch.tensor(by_hand("ess") if policy == "same" else ROWS, dtype=torch.float64)  # it has no masses
    torch.testing.assert_close(new.state["behaviour"], (others / others.sum() @ SHARED["actor"].double()).float())


def test_ratios_that_are_all_zero_fall_back_to_the_rows():
    zero = {"ratio": {name: [0.0] * CLIENTS for name in STATISTICS["ratio"]}}
    for measure in ("ess", "inverse_variance"):
        aggregator = rule(f"ratio_weighted measure={measure}")
        new = reduced(aggregator, replace(update(EVERYBODY), statistics=zero))
        assert new.weights == pytest.approx({client: ROWS[client] / sum(ROWS) for client in EVERYBODY})


def test_a_client_whose_ratios_are_all_zero_has_next_to_no_weight():
    ess = [0.0, *STATISTICS["ratio"]["ess"][1:]]
    new = reduced(
        rule("ratio_weighted"),
        replace(update(EVERYBODY), statistics={"ratio": STATISTICS["ratio"] | {"ess": ess}}),
    )
    assert 0 <= new.weights[0] < 1e-9


def test_ratios_without_any_variance_have_a_large_but_finite_weight():
    flat = {"mean": [1.0, 2.0, 2.0], "std": [0.0, 0.0, 2.0], "ess": [1.0] * 3, "ess_fraction": [1.0] * 3}
    aggregator = rule("ratio_weighted measure=inverse_variance")
    new = reduced(aggregator, replace(update([0, 1, 2]), statistics={"ratio": flat}))
    assert new.weights[0] == pytest.approx(new.weights[1])  # whatever the scale of the ratios
    assert new.weights[0] > 100 * new.weights[2] > 0
    assert torch.isfinite(new.state["nu"]).all()


def test_the_shuffled_control_deals_the_same_weights_to_others():
    straight = reduced(rule("ratio_weighted"), update(EVERYBODY))
    shuffled = [reduced(rule("ratio_weighted shuffled=true"), update(EVERYBODY, r)) for r in (1, 2)]
    for new in shuffled:
        assert sorted(new.weights.values()) == pytest.approx(sorted(straight.weights.values()))
        assert sum(new.weights[c] != pytest.approx(straight.weights[c]) for c in EVERYBODY) > CLIENTS / 2
        expected = sum(new.weights[client] * SHARED["nu"][client].double() for client in EVERYBODY)
        torch.testing.assert_close(new.state["nu"], expected.float())
    assert shuffled[0].weights != pytest.approx(shuffled[1].weights)


def test_the_shuffled_control_is_the_same_for_the_same_round():
    aggregator = rule("ratio_weighted shuffled=true")
    first, other, again = (reduced(aggregator, update(EVERYBODY, round)) for round in (5, 6, 5))
    assert first.weights == again.weights != other.weights
    assert all(torch.equal(first.state[name], again.state[name]) for name in SENT)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("measure=variance", "measure is 'variance'; choose one of ess, ess_fraction"),
        ("policy=none", "policy is 'none'; choose one of same, mass, size"),
        ("mixture=1.5", "mixture is 1.5; it must be from 0 to 1"),
    ],
)
def test_a_ratio_setting_that_does_not_do_is_a_sentence(setting, sentence):
    with pytest.raises(InputError, match=sentence):
        rule(f"ratio_weighted {setting}")


# -- weights that are a softmax ------------------------------------------------------------------------------------
def valued(clients: list[int], values: list[float]) -> Update:
    return replace(update(clients), statistics={"value": {"mean": values}})


@pytest.mark.parametrize("beta", [0.0, 0.1, 3.0])
@pytest.mark.parametrize("scale", [1.0, 1e6, -1e6])
def test_fedora_weighs_by_the_softmax_of_the_values_however_large(beta, scale):
    values = (scale * np.linspace(0.9, 1.1, CLIENTS) + np.sin(EVERYBODY)).tolist()
    aggregator = rule(f"fedora beta={beta}")
    new = reduced(aggregator, *(valued(EVERYBODY[i : i + 3], values[i : i + 3]) for i in range(0, CLIENTS, 3)))
    expected = softmax(beta * np.array(values))
    np.testing.assert_allclose([new.weights[client] for client in EVERYBODY], expected, rtol=1e-7, atol=1e-300)
    np.testing.assert_allclose(new.state["actor"].numpy(), expected @ SHARED["actor"].double().numpy(), rtol=1e-5)


def test_fedora_with_nearby_huge_values_keeps_their_differences():
    values = [1e6, 1e6 + 10, 1e6 - 5]
    for parts in ([[0, 1, 2]], [[2], [0], [1]], [[1], [0, 2]]):
        new = reduced(rule("fedora"), *(valued(part, [values[client] for client in part]) for part in parts))
        assert [new.weights[c] for c in range(3)] == pytest.approx(softmax([0.0, 1.0, -0.5]).tolist(), rel=1e-7)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["fedora", "ratio_weighted"])
def test_a_client_whose_statistics_are_not_finite_does_not_stop_the_others(name, bad):
    of = {"fedora": "value", "ratio_weighted": "ratio"}[name]
    numbers = {key: [bad, *values[1:]] for key, values in STATISTICS[of].items()}
    new = reduced(rule(name), replace(update(EVERYBODY), statistics={of: numbers}))
    assert sum(new.weights[client] for client in EVERYBODY[1:]) == pytest.approx(1)
    assert torch.isfinite(new.state["nu"]).all()
    assert not torch.equal(new.state["nu"], SENT["nu"])


def changed(losses: list[float], changes: list[float]) -> Update:
    clients = list(range(len(losses)))
    return replace(update(clients), metrics={"actor_loss": losses}, changes={"actor_loss": changes})


def test_adaptive_weights_are_rows_times_the_softmax_of_the_relative_fall():
    losses, changes = [2.0, -4.0, 1.0], [-1.0, 1.0, 0.0]  # fell by 1/2, rose by 1/4 of its size, stayed
    new = reduced(rule("adaptive temperature=0.25"), changed(losses, changes))
    expected = softmax(np.array([0.5, -0.25, 0.0]) / 0.25 + np.log(ROWS[:3]))
    assert [new.weights[client] for client in range(3)] == pytest.approx(expected.tolist())


@pytest.mark.parametrize(("rising", "favoured"), [("false", 0), ("true", 1)])
def test_adaptive_favours_whoever_gets_better(rising, favoured):
    came = replace(changed([1.0, 1.0], [-0.2, 0.2]), rows=[100, 100])
    new = reduced(rule(f"adaptive rising={rising}"), came)
    assert new.weights[favoured] > 0.9


def test_adaptive_at_a_high_temperature_is_fedavg_by_rows():
    new = reduced(rule("adaptive temperature=1e9"), update(EVERYBODY))
    assert new.weights == pytest.approx({client: ROWS[client] / sum(ROWS) for client in EVERYBODY})


def test_adaptive_bounds_the_gain_and_reads_no_number_as_the_worst():
    came = replace(changed([1.0, 1.0, 1.0, 0.0], [-1e9, -1.0, math.nan, 1.0]), rows=[10] * 4)
    new = reduced(rule("adaptive temperature=1.0"), came)
    assert [new.weights[c] for c in range(4)] == pytest.approx(softmax([1.0, 1.0, -1.0, 0.0]).tolist())


def test_adaptive_reads_a_metric_that_is_no_number_as_the_worst_too():
    came = replace(changed([1.0, math.nan], [0.5, math.nan]), rows=[10, 10])
    new = reduced(rule("adaptive"), came)
    assert new.weights[1] < new.weights[0]


def test_adaptive_by_a_metric_that_nobody_reports_is_a_sentence():
    with pytest.raises(InputError, match="metric is 'critic_loss'; this learner reports actor_loss"):
        reduced(rule("adaptive metric=critic_loss"), update(EVERYBODY))


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ("fedora beta=-1", "beta is -1; it must be at least 0"),
        ("adaptive temperature=0", "temperature is 0; it must be above 0"),
    ],
)
def test_a_softmax_setting_that_does_not_do_is_a_sentence(chosen, sentence):
    with pytest.raises(InputError, match=sentence):
        rule(chosen)

"""The server's optimisers against plain numpy, on a quadratic, and through a checkpoint."""

import numpy as np
import pytest
import torch

from data.errors import InputError
from fed.config import compose, made
from fed.files import load_tensors, save_tensors
from fed.server_optimisers import Adam, Momentum, Yogi

MADE = {
    "fedavgm": lambda: Momentum(0.7, 0.9),
    "fedadam": lambda: Adam(0.05, 0.9, 0.99, 1e-3),
    "fedyogi": lambda: Yogi(0.05, 0.9, 0.99, 1e-3),
}
each = pytest.mark.parametrize("name", MADE)


def rounds(count: int, seed: int = 0) -> list[np.ndarray]:
    """What the rounds suggest: steps of quite different lengths, some of them zero."""
    random = np.random.default_rng(seed)
    steps = random.normal(size=(count, 5)) * 10.0 ** random.integers(-3, 2, (count, 1))
    steps[:, 4] = 0.0
    return list(steps)


def by_hand(name: str, theta: np.ndarray, deltas: list[np.ndarray]) -> list[np.ndarray]:
    """Reddi et al. 2020, algorithm 2, and FedAvgM, one parameter at a time."""
    path, first, second = [], np.zeros_like(theta), np.zeros_like(theta)
    theta = theta.copy()
    for delta in deltas:
        for i, d in enumerate(delta):
            if name == "fedavgm":
                first[i] = 0.9 * first[i] + d
                theta[i] += 0.7 * first[i]
                continue
            first[i] = 0.9 * first[i] + 0.1 * d
            if name == "fedadam":
                second[i] = 0.99 * second[i] + 0.01 * d * d
            elif second[i] > d * d:
                second[i] -= 0.01 * d * d
            elif second[i] < d * d:
                second[i] += 0.01 * d * d
            theta[i] += 0.05 * first[i] / (np.sqrt(second[i]) + 1e-3)
        path.append(theta.copy())
    return path


@each
def test_an_optimiser_is_what_the_paper_says_round_after_round(name):
    optimiser, start, deltas = MADE[name](), np.linspace(-1, 1, 5), rounds(12)
    theta = {"actor": torch.from_numpy(start)}
    for delta, expected in zip(deltas, by_hand(name, start, deltas), strict=True):
        theta = optimiser.step(theta, {"actor": theta["actor"] + torch.from_numpy(delta)})
        np.testing.assert_allclose(theta["actor"].numpy(), expected, rtol=1e-9, atol=1e-9)


@each
def test_modules_do_not_get_into_each_others_way(name):
    both, alone = MADE[name](), MADE[name]()
    theta = {"actor": torch.zeros(5).double(), "critic": torch.ones(5).double()}
    single = {"critic": torch.ones(5).double()}
    for a, b in zip(rounds(5), rounds(5, seed=1), strict=True):
        steps = {"actor": torch.from_numpy(a), "critic": torch.from_numpy(b)}
        theta = both.step(theta, {module: theta[module] + steps[module] for module in theta})
        single = alone.step(single, {"critic": single["critic"] + steps["critic"]})
    assert torch.equal(theta["critic"], single["critic"])
    assert not torch.equal(theta["actor"], theta["critic"] - 1)


def test_plain_momentum_takes_the_suggested_step():
    optimiser, theta = Momentum(1.0, 0.0), {"actor": torch.linspace(-1, 1, 5).double()}
    for delta in rounds(5):
        reduced = {"actor": theta["actor"] + torch.from_numpy(delta)}
        theta = optimiser.step(theta, reduced)
        torch.testing.assert_close(theta["actor"], reduced["actor"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [Adam, Yogi])
def test_without_momentum_and_with_lr_and_tau_large_and_alike_adam_and_yogi_take_the_suggested_step(kind):
    """Δ · lr/(√v + τ) → Δ."""
    optimiser, theta = kind(1e9, 0.0, 0.0, 1e9), {"actor": torch.linspace(-1, 1, 5).double()}
    for delta in rounds(5):
        reduced = {"actor": theta["actor"] + torch.from_numpy(delta)}
        theta = optimiser.step(theta, reduced)
        torch.testing.assert_close(theta["actor"], reduced["actor"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "optimiser",
    [Momentum(1.0, 0.0), Momentum(1.0, 0.9), Adam(0.1, 0.9, 0.99, 0.1), Yogi(0.1, 0.9, 0.99, 0.1)],
    ids=["plain", "momentum", "adam", "yogi"],
)
def test_the_optimum_of_a_quadratic_is_reached(optimiser):
    """Client i has ½‖θ − b_i‖² and takes four gradient steps of 0.1; the pooled optimum is the mean of the b_i."""
    optima = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 3)))
    theta = {"actor": torch.full((3,), 4.0).double()}
    for _ in range(1500):
        models = theta["actor"].expand(5, 3).clone()
        for _ in range(4):
            models -= 0.1 * (models - optima)
        theta = optimiser.step(theta, {"actor": models.mean(0)})
    torch.testing.assert_close(theta["actor"], optima.mean(0), rtol=0, atol=1e-4)


@each
def test_moments_that_clients_share_are_taken_as_they_are(name):
    old = {"actor": torch.zeros(3), "actor/adam_m": torch.zeros(3), "actor/adam_steps": torch.tensor(0.0)}
    new = {"actor": torch.ones(3), "actor/adam_m": torch.randn(3), "actor/adam_steps": torch.tensor(7.0)}
    optimiser = MADE[name]()
    for _ in range(3):
        stepped = optimiser.step(old, new)
        assert stepped.keys() == new.keys()
        assert torch.equal(stepped["actor/adam_m"], new["actor/adam_m"])
        assert torch.equal(stepped["actor/adam_steps"], new["actor/adam_steps"])
    assert not torch.equal(stepped["actor"], new["actor"])
    assert all(kept.startswith("actor/") and "adam" not in kept for kept in optimiser.state)


@pytest.mark.parametrize("kind", [Adam, Yogi])
@pytest.mark.parametrize("beta_2", [0.0, 0.5, 0.99])
def test_the_second_moment_never_becomes_negative(kind, beta_2):
    optimiser, theta = kind(0.1, 0.9, beta_2, 1e-3), {"actor": torch.zeros(5)}
    for delta in rounds(60):
        theta = optimiser.step(theta, {"actor": theta["actor"] + torch.from_numpy(delta).float()})
        (v,) = (tensor for kept, tensor in optimiser.state.items() if kept.endswith("/v"))
        assert (v >= 0).all()
        assert torch.isfinite(theta["actor"]).all()


def test_yogi_forgets_a_large_step_more_slowly_than_adam():
    v = {}
    for kind in (Adam, Yogi):
        optimiser = kind(0.1, 0.9, 0.9, 1e-3)
        for delta in (100.0, *[0.1] * 50):
            optimiser.step({"actor": torch.zeros(1)}, {"actor": torch.tensor([delta])})
        v[kind] = optimiser.state["actor/v"].item()
    assert v[Yogi] > 0.9 * 0.1 * 100**2 > 10 * v[Adam]


@each
def test_a_saved_optimiser_goes_on_as_if_nothing_had_happened(name, tmp_path):
    straight, first = MADE[name](), MADE[name]()
    theta = {"actor": torch.linspace(-1, 1, 5), "critic": torch.ones(5)}
    other = dict(theta)
    for place, delta in enumerate(rounds(10)):
        step = torch.from_numpy(delta).float()
        theta = straight.step(theta, {module: row + step for module, row in theta.items()})
        if place == 5:
            save_tensors(tmp_path / "server", first.state)
            first = MADE[name]()
            first.state = load_tensors(tmp_path / "server")[0]
        other = first.step(other, {module: row + step for module, row in other.items()})
    assert all(torch.equal(theta[module], other[module]) for module in theta)
    forgetful = MADE[name]().step(theta, theta)  # a fresh one stands still where nothing is suggested
    assert torch.equal(forgetful["actor"], theta["actor"])
    assert not torch.equal(straight.step(theta, theta)["actor"], theta["actor"])


@each
def test_the_parameters_keep_their_kind_and_what_was_given_is_not_changed(name):
    old, reduced = {"actor": torch.zeros(3)}, {"actor": torch.ones(3)}
    new = MADE[name]().step(old, reduced)["actor"]
    assert new.dtype == torch.float32
    assert torch.equal(old["actor"], torch.zeros(3))
    assert torch.equal(reduced["actor"], torch.ones(3))


@pytest.mark.parametrize(("name", "kind"), [("fedavgm", Momentum), ("fedadam", Adam), ("fedyogi", Yogi)])
def test_a_configuration_makes_its_optimiser(name, kind):
    optimiser = made(compose("train", [f"fed={name}"]).fed.server)
    assert type(optimiser) is kind
    new = optimiser.step({"actor": torch.zeros(2)}, {"actor": torch.tensor([1.0, -1.0])})["actor"]
    assert new[0] > 0 > new[1]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Momentum(0.0, 0.9), "lr=0.0, beta=0.9; lr must be above 0"),
        (lambda: Momentum(1.0, 1.0), "beta at least 0 and below 1"),
        (lambda: Adam(1.0, 0.9, 1.0, 1e-3), r"beta_2 must be in \[0, 1\)"),
        (lambda: Yogi(1.0, 0.9, 0.9, 0.0), "tau above 0"),
    ],
)
def test_a_setting_that_does_not_do_is_a_sentence(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()

"""Rules that withstand clients that lie: how many of them, and what the rules are by definition."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import trim_mean

from data.errors import InputError
from fed.aggregators.base import Aggregation, Aggregator
from fed.aggregators.geometric_median import GeometricMedian
from fed.aggregators.krum import Krum
from fed.aggregators.mean import Mean
from fed.aggregators.median import Median
from fed.aggregators.trimmed_mean import TrimmedMean
from fed.update import Update

DRAWS = 20
LIES = ("scattered", "together", "mirrored")


def reduced(aggregator: Aggregator, models: np.ndarray, rows: list[int] | None = None) -> Aggregation:
    """Models `[K, P]` as two modules, so that a rule which looks at distances must look at both."""
    theta, half = torch.from_numpy(models).float(), models.shape[1] // 2
    shared = {"actor": theta[:, :half], "critic": theta[:, half:]}
    clients = list(range(len(models)))
    aggregator.accumulate(Update(clients, shared, rows or [1] * len(models), metrics={}, flags={}, failures={}))
    return aggregator.finalise({name: torch.zeros(part.shape[1]) for name, part in shared.items()})


def point(aggregation: Aggregation) -> np.ndarray:
    return torch.cat([aggregation.state["actor"], aggregation.state["critic"]]).double().numpy()


def federation(seed: int, clients: int, liars: int, lies: str, size: float) -> tuple[np.ndarray, list[int]]:
    """Honest clients around a point, and liars far from it: each elsewhere, all at one place, or opposite the truth."""
    random = np.random.default_rng([seed, clients, liars])
    truth = random.normal(size=6)
    models = truth + 0.3 * random.normal(size=(clients, 6))
    lying = random.choice(clients, liars, replace=False).tolist()
    if lies == "scattered":
        models[lying] = size * random.choice([-1, 1], (liars, 6)) * random.uniform(1, 10, (liars, 6))
    elif lies == "together":
        models[lying] = size * random.choice([-1, 1], 6)
    else:
        models[lying] = -size * models[lying]
    return models, [client for client in range(clients) if client not in lying]


def radius_and_centre(models: np.ndarray) -> tuple[float, np.ndarray]:
    centre = models.mean(0)
    return np.linalg.norm(models - centre, axis=1).max(), centre


# -- as many liars as promised -------------------------------------------------------------------------------------
@pytest.mark.parametrize("lies", LIES)
@pytest.mark.parametrize(
    ("aggregator", "clients", "liars"),
    [
        (Median(3), 10, 3),
        (Median(3), 10, 4),
        (Median(3), 9, 4),
        (Median(3), 3, 1),
        (TrimmedMean(0.3, 4), 10, 3),
        (TrimmedMean(0.3, 4), 11, 4),
        (TrimmedMean(0.3, 4), 4, 1),
        (TrimmedMean(0.1, 4), 10, 1),
    ],
)
def test_each_parameter_stays_within_the_honest_ones(aggregator, clients, liars, lies):
    for seed in range(DRAWS):
        models, honest = federation(seed, clients, liars, lies, size=1e8)
        found = point(reduced(aggregator, models))
        assert (found >= models[honest].min(0) - 1e-6).all()
        assert (found <= models[honest].max(0) + 1e-6).all()


@pytest.mark.parametrize("lies", LIES)
@pytest.mark.parametrize("keep", [1, 4, 7])
@pytest.mark.parametrize(("clients", "liars"), [(10, 3), (9, 3), (12, 3), (7, 2), (3, 0)])
def test_krum_keeps_honest_clients_only(clients, liars, keep, lies):
    keep = min(keep, clients - liars)
    for seed in range(DRAWS):
        models, honest = federation(seed, clients, liars, lies, size=100)
        new = reduced(Krum(liars, keep), models)
        assert len(new.weights) == keep
        assert new.weights.keys() <= set(honest)
        np.testing.assert_allclose(point(new), models[list(new.weights)].mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lies", LIES)
@pytest.mark.parametrize(("clients", "liars", "iterations"), [(10, 1, 20), (10, 3, 20), (9, 4, 100)])
def test_the_geometric_median_stays_near_the_honest_clients(clients, liars, iterations, lies):
    """For lies of a thousand times their spread. The sum of distances from its point is no larger than from the honest
    centre, and by the triangle inequality it is within 2(n − f)/(n − 2f) of their radius."""
    bound = 2 * (clients - liars) / (clients - 2 * liars)
    for seed in range(10):
        models, honest = federation(seed, clients, liars, lies, size=1e3)
        radius, centre = radius_and_centre(models[honest])
        found = point(reduced(GeometricMedian(iterations, 1e-6, 3), models))
        assert np.linalg.norm(found - centre) <= bound * radius


@pytest.mark.parametrize("iterations", [20, 2000])
@pytest.mark.parametrize("size", [1e9, 1e12])
def test_the_geometric_median_stays_near_the_honest_clients_however_large_the_lie(size, iterations):
    models, honest = federation(0, 10, 3, "together", size)
    radius, centre = radius_and_centre(models[honest])
    found = point(reduced(GeometricMedian(iterations, 1e-6, 3), models))
    assert np.linalg.norm(found - centre) <= 2 * 7 / 4 * radius


@pytest.mark.parametrize("lies", LIES)
def test_the_mean_withstands_nobody(lies):
    for seed in range(DRAWS):
        models, honest = federation(seed, 10, 1, lies, size=100)
        radius, centre = radius_and_centre(models[honest])
        assert np.linalg.norm(point(reduced(Mean("uniform"), models)) - centre) > 3.5 * radius


def test_half_of_the_clients_is_too_many_for_a_median():
    models, honest = federation(0, 10, 5, "together", size=1e6)
    found = point(reduced(Median(3), models))
    assert (np.abs(found) > np.abs(models[honest]).max()).all()


# -- what the rules are --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("clients", [3, 4, 9, 10])
def test_the_median_is_numpys(clients):
    models = np.random.default_rng(clients).normal(size=(clients, 8))
    np.testing.assert_allclose(point(reduced(Median(3), models)), np.median(models, axis=0), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("trim", "clients"), [(0.3, 10), (0.25, 8), (0.2, 10), (0.0, 7), (0.1, 20), (0.4, 5)])
def test_the_trimmed_mean_is_scipys(trim, clients):
    models = np.random.default_rng(clients).normal(size=(clients, 8))
    expected = trim_mean(models, trim + 1e-9, axis=0)  # scipy rounds down: 0.3 of 10 must be 3
    np.testing.assert_allclose(point(reduced(TrimmedMean(trim, 1), models)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("trim", "clients", "out"), [(0.3, 11, 4), (0.1, 5, 1), (0.49, 4, 1), (0.49, 5, 2), (0.3, 1, 0)]
)
def test_the_share_that_is_trimmed_is_rounded_up_while_somebody_is_left(trim, clients, out):
    models = np.random.default_rng(clients).normal(size=(clients, 4))
    expected = np.sort(models, axis=0)[out : clients - out].mean(0)
    np.testing.assert_allclose(point(reduced(TrimmedMean(trim, 1), models)), expected, rtol=1e-5, atol=1e-6)


def scores(models: np.ndarray, liars: int) -> list[float]:
    """Krum's, one after the other."""
    found = []
    for i, model in enumerate(models):
        distances = sorted(sum((model - other) ** 2) for j, other in enumerate(models) if j != i)
        found.append(sum(distances[: len(models) - liars - 2]))
    return found


@pytest.mark.parametrize(("clients", "liars"), [(3, 0), (7, 2), (10, 3), (12, 1), (30, 4)])
def test_krum_takes_those_with_the_lowest_scores(clients, liars):
    for seed, keep in product(range(5), (1, 3)):
        models = np.random.default_rng([seed, clients]).normal(size=(clients, 6)).astype(np.float32).astype(float)
        new = reduced(Krum(liars, keep), models)
        best = np.argsort(scores(models, liars))[:keep].tolist()
        assert new.weights == pytest.approx(dict.fromkeys(best, 1 / keep))
        np.testing.assert_allclose(point(new), models[best].mean(0), rtol=1e-5, atol=1e-6)


def test_krum_does_not_look_at_moments():
    """The client whose Adam moments are far off is still the one in the middle."""
    models = torch.tensor([[0.0], [1.0], [1.1], [1.2], [9.0]])
    moments = torch.tensor([[0.0], [0.0], [1e6], [0.0], [0.0]])
    krum = Krum(1, 1)
    krum.accumulate(
        Update(list(range(5)), {"a": models, "a/adam_m": moments}, [1] * 5, metrics={}, flags={}, failures={})
    )
    new = krum.finalise({"a": torch.zeros(1), "a/adam_m": torch.zeros(1)})
    assert new.weights == {2: 1.0}
    assert new.state["a/adam_m"].item() == 1e6


def test_the_geometric_median_minimises_the_sum_of_distances():
    for seed in range(5):
        models = np.random.default_rng(seed).normal(size=(8, 6))
        models[:2] *= 20

        def total(x: np.ndarray, models: np.ndarray = models) -> float:
            return np.linalg.norm(models - x, axis=1).sum()

        best = minimize(total, np.median(models, axis=0), tol=1e-12)
        usual, long = (point(reduced(GeometricMedian(n, 1e-6, 3), models)) for n in (20, 1000))
        np.testing.assert_allclose(long, best.x, atol=1e-4)
        assert total(usual) <= 1.001 * best.fun


def test_the_geometric_median_may_lie_on_a_client():
    """Three of five agree: the sum of distances is smallest there."""
    models = np.array([[1.0, 2.0]] * 3 + [[50.0, -3.0], [-7.0, 40.0]])
    new = reduced(GeometricMedian(20, 1e-6, 3), models)
    np.testing.assert_allclose(point(new), [1.0, 2.0], atol=1e-3)
    assert min(new.weights[client] for client in range(3)) > 0.33


def test_very_many_equal_models_are_their_own_geometric_median():
    found = point(reduced(GeometricMedian(21, 1e-6, 3), np.ones((256, 4))))
    np.testing.assert_allclose(found, np.ones(4))


# -- too few clients -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("aggregator", "least"),
    [(Median(3), 3), (TrimmedMean(0.3, 4), 4), (Krum(3, 1), 9), (Krum(0, 1), 3), (GeometricMedian(20, 1e-6, 5), 5)],
)
def test_with_fewer_clients_than_it_needs_a_rule_takes_the_mean_and_says_so(aggregator, least):
    models = np.random.default_rng(0).normal(size=(least, 4)) * 10
    rows = list(range(1, least + 1))
    few = reduced(aggregator, models[:-1], rows[:-1])
    np.testing.assert_allclose(point(few), np.average(models[:-1], axis=0, weights=rows[:-1]), rtol=1e-5, atol=1e-5)
    assert few.weights == pytest.approx({client: rows[client] / sum(rows[:-1]) for client in range(least - 1)})
    assert few.note == f"{least - 1} of at least {least} clients answered: the mean was taken instead"
    enough = reduced(aggregator, models, rows)
    assert enough.note == ""
    assert not np.allclose(point(enough), np.average(models, axis=0, weights=rows))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Median(0), "least is 0; it must be at least 1"),
        (lambda: TrimmedMean(0.5, 3), "trim is 0.5; it must be at least 0 and below 0.5"),
        (lambda: Krum(-1, 1), "liars=-1, keep=1; they must be at least 0 and 1"),
        (lambda: Krum(1, 0), "liars=1, keep=0; they must be at least 0 and 1"),
        (lambda: GeometricMedian(0, 1e-6, 3), "iterations of at least 1 and a smoothing above 0"),
        (lambda: GeometricMedian(5, 0.0, 3), "iterations of at least 1 and a smoothing above 0"),
    ],
)
def test_a_setting_that_does_not_do_is_a_sentence(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()

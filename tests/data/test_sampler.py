import numpy as np
import pytest
import torch

from data.normaliser import Moments, Normaliser
from data.sampler import BLOCK, Sampler, cumulative_weights, inverse_cdf
from data.shards import Shards
from data.splits import iid
from tests.data.small import small_dataset


@pytest.fixture
def dataset():
    return small_dataset()


def make_sampler(dataset, seed=0, batch_size=16, size_skew=0.0, **asked) -> Sampler:
    shards = iid(dataset, seed=0, clients=4, size_skew=size_skew)
    normaliser = Normaliser.pooled([Moments.of(dataset, shards.rows(k)) for k in range(4)], True, "scale")
    return Sampler(dataset, shards, normaliser, batch_size=batch_size, noise_draws=2, seed=seed, **asked)


def test_indices_and_noise_do_not_depend_on_the_chunk_width(dataset):
    sampler = make_sampler(dataset)
    together = list(sampler.batches([0, 1, 2, 3], round=5, updates=BLOCK + 3))
    for k in range(4):
        alone = list(sampler.batches([k], round=5, updates=BLOCK + 3))
        for whole, own in zip(together, alone, strict=True):
            assert torch.equal(whole.observations[k], own.observations[0])
            assert torch.equal(whole.noise[:, k], own.noise[:, 0])


def test_a_shorter_round_draws_a_prefix_of_a_longer_one(dataset):
    sampler = make_sampler(dataset)
    short, long = list(sampler.batches([1], 2, 5)), list(sampler.batches([1], 2, 50))
    assert len(short) == 5
    assert len(long) == 50
    assert all(torch.equal(a.actions, b.actions) for a, b in zip(short, long, strict=False))


def test_draws_differ_between_clients_rounds_blocks_and_seeds(dataset):
    sampler = make_sampler(dataset)
    base = next(sampler.batches([0], 1, 1)).noise
    others = [
        next(sampler.batches([1], 1, 1)).noise,
        next(sampler.batches([0], 2, 1)).noise,
        list(sampler.batches([0], 1, BLOCK + 1))[BLOCK].noise,
        next(make_sampler(dataset, seed=1).batches([0], 1, 1)).noise,
    ]
    assert not any(torch.equal(base, other) for other in others)


def test_a_client_sees_its_own_rows_only_and_in_the_end_all_of_them(dataset):
    sampler = make_sampler(dataset)
    position = {tuple(row): i for i, row in enumerate(dataset.rewards[:, None] * sampler.reward_scale)}
    for k in range(4):
        rewards = torch.cat([batch.rewards.flatten() for batch in sampler.batches([k], 1, 200)]).numpy()
        drawn = {position[(value,)] for value in rewards}
        assert drawn == set(sampler.shards.rows(k).tolist())


def test_a_batch_holds_the_rows_normalised_with_actions_in_the_unit_box(dataset):
    sampler = make_sampler(dataset)
    rows = torch.tensor([[3, 19, 39]])
    batch = sampler.gather(rows, torch.zeros(0, 1, 3, 1))
    raw = dataset.observations[rows.numpy()]
    mean, std = dataset.observations.mean(0), dataset.observations.std(0)
    np.testing.assert_allclose(batch.observations.numpy(), (raw - mean) / std, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(batch.actions.numpy(), dataset.actions[rows.numpy()] / 2, rtol=1e-6)
    assert batch.terminals.tolist() == [[0.0, 1.0, 0.0]]  # row 39 is a timeout: it bootstraps


def test_sampling_does_not_change_the_dataset(dataset):
    before = dataset.fingerprint()
    list(make_sampler(dataset).batches([0, 1], 1, 10))
    assert dataset.fingerprint() == before


def test_what_a_learner_asks_for_changes_no_other_draw(dataset):
    plain = make_sampler(dataset).batches([0, 2], 3, BLOCK + 2)
    asked = make_sampler(dataset, rounds=4, initial_states=True, returns_discount=0.9)
    ones = torch.ones(2, asked.shards.sizes.max())
    for a, b in zip(plain, asked.batches([0, 2], 3, BLOCK + 2, lambda: ones), strict=True):
        for name in ("observations", "actions", "rewards", "next_observations", "terminals", "noise"):
            assert torch.equal(getattr(a, name), getattr(b, name))
        assert a.initial_observations is a.initial_weight is a.returns is a.weighted is None


def test_a_seed_means_the_same_draws_in_every_version(dataset):
    """Rows and noise as they were drawn when runs were first recorded."""
    rows, noise = make_sampler(dataset)._draw(client=1, round=2, block=0)
    places = np.searchsorted(make_sampler(dataset).shards.rows(1), rows[0, :8])
    assert places.tolist() == [0, 3, 83, 40, 13, 1, 79, 85]
    np.testing.assert_allclose(noise[0, 0, :3, 0], [-0.07088228, -2.9460928, -1.5992457], rtol=1e-6)


def test_batches_know_their_place_in_the_run(dataset):
    sampler = make_sampler(dataset, rounds=4)
    batches = [batch for round in range(1, 5) for batch in sampler.batches([0], round, 5)]
    assert [batch.step for batch in batches] == list(range(20))
    assert [batch.progress for batch in batches] == [step / 20 for step in range(20)]
    assert next(make_sampler(dataset).batches([0], 7, 5)).progress == 0.0


def test_initial_states_are_the_clients_own_at_any_chunk_width(dataset):
    sampler = make_sampler(dataset, initial_states=True)
    together = list(sampler.batches([0, 1, 2, 3], 1, 40))
    for k in range(4):
        alone = list(sampler.batches([k], 1, 40))
        assert all(
            torch.equal(a.initial_observations[k], b.initial_observations[0])
            for a, b in zip(together, alone, strict=True)
        )
        starts = sampler.gather(torch.from_numpy(sampler.shards.initial_rows(k))[None], torch.zeros(0)).observations[0]
        drawn = torch.cat([batch.initial_observations[0] for batch in alone])
        assert {tuple(row.tolist()) for row in drawn} == {tuple(row.tolist()) for row in starts}


def test_initial_weights_make_the_clients_initial_states_add_up_to_the_pooled_ones(dataset):
    """Σ_i N_i/N · c_i · mean over client i's initial states = mean over all initial states."""
    pieces = np.array([[0, 19], [20, 39], [40, 44], [45, 49], [50, 59], [60, 60]])
    shards = Shards.of_pieces(dataset, pieces, np.array([0, 0, 1, 1, 1, 2]), names=["a", "b", "c"])
    states = dataset.observations[:, 0].astype(np.float64)
    share = shards.sizes / shards.sizes.sum()
    means = np.array([states[shards.initial_rows(k)].mean() for k in range(len(shards))])
    assert len(set(shards.initial_weights())) > 1
    np.testing.assert_allclose((share * shards.initial_weights() * means).sum(), states[shards.starts].mean())


def test_the_initial_weight_counts_all_clients_not_only_the_cohort(dataset):
    sampler = make_sampler(dataset, size_skew=1.0, initial_states=True)
    everyone = next(sampler.batches([0, 1, 2, 3], 1, 1)).initial_weight
    assert torch.equal(next(sampler.batches([2], 1, 1)).initial_weight, everyone[2:3])
    np.testing.assert_allclose(everyone, sampler.shards.initial_weights(), rtol=1e-6)


def test_returns_to_go_are_discounted_inside_the_piece(dataset):
    sampler = make_sampler(dataset, returns_discount=0.9)
    to_go = sampler.shards.returns_to_go(dataset, 0.9)
    first, last = sampler.shards.pieces[3]
    rewards = dataset.rewards[first : last + 1].astype(np.float64)
    expected = [(rewards[t:] * 0.9 ** np.arange(len(rewards) - t)).sum() for t in range(len(rewards))]
    np.testing.assert_allclose(to_go[first : last + 1], expected)
    batch = sampler.gather(torch.tensor([[int(first), int(last)]]), torch.zeros(0))
    np.testing.assert_allclose(batch.returns[0], np.array(expected)[[0, -1]] * sampler.reward_scale, rtol=1e-5)


@pytest.mark.parametrize("chunk", [7, 1000])
def test_a_sweep_goes_over_each_row_of_each_client_once(dataset, chunk):
    sampler = make_sampler(dataset, size_skew=1.0)
    parts = list(sampler.sweep([3, 0], chunk))
    rewards = torch.cat([batch.rewards for batch, _ in parts], dim=1)
    owned = torch.cat([mask for _, mask in parts], dim=1)
    assert all(len(batch.noise) == 0 and batch.rewards.shape[1] <= chunk for batch, _ in parts)
    for k, client in enumerate([3, 0]):
        expected = dataset.rewards[sampler.shards.rows(client)] * sampler.reward_scale
        np.testing.assert_allclose(rewards[k][owned[k]], expected, rtol=1e-6)


def test_weighted_rows_follow_the_weights_at_any_chunk_width(dataset):
    sampler = make_sampler(dataset, size_skew=1.0)
    widest = sampler.shards.sizes.max()
    weights = torch.rand(4, widest, generator=torch.Generator().manual_seed(0)) ** 3
    together = [batch.weighted for batch in sampler.batches([0, 1, 2, 3], 1, 2000, lambda: weights)]
    for k in range(4):
        own = sampler.shards.sizes[k]
        alone = sampler.batches([k], 1, 40, lambda k=k, own=own: weights[k : k + 1, :own])
        assert all(torch.equal(a.rewards[k], b.weighted.rewards[0]) for a, b in zip(together, alone, strict=False))
        drawn = torch.cat([batch.rewards[k] for batch in together]).double().mean()
        rewards = dataset.rewards[sampler.shards.rows(k)] * sampler.reward_scale
        p = weights[k, :own].double().numpy() / weights[k, :own].double().sum().item()
        deviation = np.sqrt((p * rewards**2).sum() - (p * rewards).sum() ** 2)
        assert abs(drawn.item() - (p * rewards).sum()) < 4 * deviation / np.sqrt(2000 * 16)


def test_a_row_of_weight_zero_is_never_drawn_and_useless_weights_are_uniform():
    owned = torch.tensor([[True] * 4, [True] * 4, [True, True, False, False], [True] * 4])
    weights = torch.tensor([[0.0, 1, 0, 0], [0, 0, 0, 0], [0, torch.nan, 5, 5], [torch.inf, 1, 1, 1]])
    cumulative = cumulative_weights(weights, owned)
    uniform = torch.tensor([0.0, 0.3, 0.6, 1 - 2**-53], dtype=torch.float64).expand(4, 4)
    places = inverse_cdf(cumulative, uniform)
    assert places.tolist() == [[1, 1, 1, 1], [0, 1, 2, 3], [0, 0, 1, 1], [0, 1, 2, 3]]


@pytest.mark.parametrize(("every", "asked"), [(1, 40), (10, 4), (40, 1)])
def test_weights_are_asked_for_when_a_round_begins_and_every_so_many_updates(dataset, every, asked):
    sampler, calls = make_sampler(dataset), []

    def weights() -> torch.Tensor:
        calls.append(1)
        return torch.ones(1, sampler.shards.sizes[0])

    list(sampler.batches([0], 1, 40, weights, refresh_every=every))
    assert len(calls) == asked

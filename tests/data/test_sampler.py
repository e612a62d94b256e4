import numpy as np
import pytest
import torch

from data.normaliser import Moments, Normaliser
from data.sampler import BLOCK, Sampler
from data.splits import iid
from tests.data.small import small_dataset


@pytest.fixture
def dataset():
    return small_dataset()


def make_sampler(dataset, seed=0, batch_size=16) -> Sampler:
    shards = iid(dataset, seed=0, clients=4)
    normaliser = Normaliser.pooled([Moments.of(dataset, shards.rows(k)) for k in range(4)], True, "scale")
    return Sampler(dataset, shards, normaliser, batch_size=batch_size, noise_draws=2, seed=seed)


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

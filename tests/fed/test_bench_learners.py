"""The parts of `scripts/bench.py learners` that need neither d3rlpy nor an hour."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from data.errors import InputError
from fed import bench_learners
from fed.bench_learners import D3rlpy, d3rlpy_orders, finished, our_learner, write_arrays
from fed.bench_rows import Rows, leading_episodes, normalised_columns, same_rows
from fed.bench_settings import HIDDEN, PAIRS, SEEDS
from rl.learner import Task
from tests.data.small import small_dataset


@pytest.fixture
def rows() -> Rows:
    """Two sources of 10 episodes with 20 rows each, of which 3 and 4 fit."""
    dataset = replace(small_dataset(), columns={"source": np.repeat([0, 1], 200).astype(np.int32)})
    # Where an episode goes on, the next state is the next row's: normalised_columns relies on it.
    inside = ~(dataset.terminals | dataset.timeouts)[:-1]
    dataset.next_observations[:-1][inside] = dataset.observations[1:][inside]
    return Rows("small", dataset, same_rows(leading_episodes(dataset, [79, 80]), SEEDS))


def test_whole_episodes_from_the_beginning_of_each_source_are_taken(rows):
    assert rows.shards.rows(0).tolist() == [*range(60), *range(200, 280)]


def test_all_seeds_own_the_same_rows_and_draw_different_ones(rows):
    learner = our_learner("bc", rows.task, SEEDS)
    batch = next(rows.batches(learner, updates=1))
    assert all(rows.shards.rows(seed).tolist() == rows.shards.rows(0).tolist() for seed in range(SEEDS))
    assert not batch.observations[0].equal(batch.observations[1])


def test_d3rlpy_gets_the_transitions_that_our_learners_see(rows):
    """d3rlpy's next state is the next row's observation; it draws no last row but that of a terminal."""
    columns = normalised_columns(rows)
    drawn = ~columns["timeouts"]
    following = np.append(columns["observations"][1:], columns["observations"][-1:], axis=0)
    learner = our_learner("bc", rows.task, 1)
    sampler = rows.sampler(learner)
    ours = sampler.gather(torch.from_numpy(rows.shards.rows(0))[None], torch.empty(0))
    bootstrapped = ~columns["terminals"][drawn]
    for theirs, mine in (
        (columns["observations"][drawn], ours.observations[0]),
        (columns["actions"][drawn], ours.actions[0]),
        (columns["rewards"][drawn], ours.rewards[0]),
        (columns["terminals"][drawn], ours.terminals[0]),
        (following[drawn][bootstrapped], ours.next_observations[0][torch.from_numpy(bootstrapped)]),
    ):
        np.testing.assert_allclose(theirs, mine.numpy(), atol=1e-6)


@pytest.mark.parametrize("name", PAIRS)
def test_our_settings_exist_and_every_seed_starts_elsewhere(name):
    learner = our_learner(name, Task(3, 1, 1.0), 2)
    assert learner.hidden == tuple(HIDDEN)
    assert not learner.params["actor"][0].equal(learner.params["actor"][1])


def test_a_piece_made_with_other_settings_is_not_finished(tmp_path, rows):
    order, other = d3rlpy_orders(rows, "bc")[:2]
    path = tmp_path / "new" / "piece.npz"
    assert not finished(path, order)
    write_arrays(path, made_with=json.dumps(order))
    assert finished(path, order)
    assert not finished(path, other)


def test_data_that_are_not_there_are_a_sentence(tmp_path):
    with pytest.raises(InputError, match="say with --data which folder holds hopper_expert"):
        Rows.load("hopper", tmp_path)


@pytest.mark.parametrize(
    ("python", "fault"), [("/no/python", "cannot be started"), (sys.executable, "without an answer")]
)
def test_an_interpreter_without_d3rlpy_is_a_sentence(python, fault, tmp_path, monkeypatch):
    monkeypatch.setattr(bench_learners, "FOLDER", tmp_path)
    with pytest.raises(InputError, match=rf"{fault}.*requirements-d3rlpy.txt"):
        D3rlpy(python)({"do": "time"})

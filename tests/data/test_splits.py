"""What every split promises, and what each rule promises on top."""

import dataclasses
import json
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from omegaconf import OmegaConf

import data
from data import splits
from data.dataset import Dataset
from data.errors import InputError
from data.shards import PUBLIC, Shards, state_shift
from data.split_config import FOLDER, split_named

KINDS = sorted(path.stem for path in FOLDER.glob("*.yaml"))
RANDOM = ["iid", "dirichlet"]
HOPPER = Path(__file__).parents[3] / "shared" / "data" / "mujoco" / "hopper_mixed.hdf5"


def make_dataset(lengths, states=None, rewards=None, columns=None, labels=None, untrainable=(), seed=0) -> Dataset:
    """Episodes of the given lengths, every second one a timeout; states [E, S] are the episodes' mean states."""
    rng = np.random.default_rng(seed)
    lengths = np.asarray(lengths)
    rows, ends = lengths.sum(), np.cumsum(lengths) - 1
    states = rng.normal(size=(len(lengths), 3)) if states is None else np.asarray(states)
    observations = np.repeat(states, lengths, axis=0) + 0.1 * rng.normal(size=(rows, states.shape[1]))
    rewards = rng.normal(size=len(lengths)) if rewards is None else np.asarray(rewards)
    terminals, timeouts, trainable = np.zeros((3, rows), bool)
    terminals[ends[::2]], timeouts[ends[1::2]], trainable[:] = True, True, True
    trainable[list(untrainable)] = False
    return Dataset(
        name="small",
        observations=observations.astype(np.float32),
        actions=rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        rewards=np.repeat(rewards / lengths, lengths).astype(np.float32),
        next_observations=observations.astype(np.float32),
        terminals=terminals,
        timeouts=timeouts,
        trainable=trainable,
        action_low=-np.ones(2, np.float32),
        action_high=np.ones(2, np.float32),
        columns={name: np.repeat(values, lengths) for name, values in (columns or {}).items()},
        labels=labels or {},
    )


@pytest.fixture
def dataset() -> Dataset:
    """120 episodes of 20 to 60 rows; the last row of a timeout has no next state."""
    lengths = np.random.default_rng(1).integers(20, 60, 120)
    ends = np.cumsum(lengths) - 1
    columns = {"source": np.arange(120) % 4, "skill": np.arange(120) // 60}
    labels = {"source": ["novice", "medium", "expert", "crashing"]}
    return make_dataset(lengths, columns=columns, labels=labels, untrainable=ends[1::2])


def split(kind: str, dataset: Dataset, seed: int = 0, **options) -> Shards:
    if kind == "source":
        options = {name: value for name, value in options.items() if name != "clients"}
    return getattr(splits, kind)(dataset, seed=seed, **options)


def contents(shards: Shards) -> list[list[int]]:
    return [shards.rows(k).tolist() for k in range(len(shards))]


VARIANTS = [
    {},
    {"unit": "segment", "segment_length": 7},
    {"size_skew": 0.5},
    {"rows_per_client": 90, "public": 0.1},
    {"unit": "segment", "segment_length": 15, "rows_per_client": 40, "size_skew": 1.0, "public": 0.2},
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_every_trainable_row_has_one_owner_or_is_counted_as_left_over(kind, options, dataset):
    shards = split(kind, dataset, clients=6, **options)
    owned = np.concatenate([shards.order, shards.public])
    assert len(np.unique(owned)) == len(owned)
    assert dataset.trainable[owned].all()
    assert len(owned) + shards.leftover == dataset.trainable.sum()
    assert shards.order.dtype == shards.starts.dtype == shards.public.dtype == np.int64
    if not options:
        assert shards.leftover == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_every_client_has_rows_and_initial_states_of_its_own(kind, options, dataset):
    shards = split(kind, dataset, clients=6, **options)
    for k in range(len(shards)):
        assert len(shards.rows(k)) >= 1
        assert len(shards.initial_rows(k)) >= 1
        assert np.isin(shards.initial_rows(k), shards.rows(k)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_whole_episodes_stay_together(kind, dataset):
    shards = split(kind, dataset, clients=5)
    owner = np.full(len(dataset), -1)
    for k in range(len(shards)):
        owner[shards.rows(k)] = k
    for first, last in zip(dataset.starts, dataset.ends, strict=True):
        rows = np.arange(first, last + 1)
        assert len(np.unique(owner[rows[dataset.trainable[rows]]])) == 1
    assert len(shards.cut) == 0
    assert sorted(shards.starts) == sorted(dataset.starts)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_makes_the_same_split(kind, dataset):
    assert contents(split(kind, dataset, seed=3)) == contents(split(kind, dataset, seed=3))


@pytest.mark.parametrize("kind", RANDOM)
def test_another_seed_makes_another_split(kind, dataset):
    assert contents(split(kind, dataset, seed=3)) != contents(split(kind, dataset, seed=4))


@pytest.mark.parametrize("kind", KINDS)
def test_the_yaml_makes_the_split_that_the_function_makes(kind, dataset):
    made = split_named(kind)(dataset, seed=1)
    assert contents(made) == contents(getattr(splits, kind)(dataset, seed=1))
    common = {"clients", "unit", "segment_length", "size_skew", "rows_per_client", "public"}
    assert common <= set(OmegaConf.load(FOLDER / f"{kind}.yaml"))


def test_a_segment_starts_with_an_initial_state_and_ends_with_a_timeout():
    dataset = make_dataset([10, 4, 7])
    shards = splits.iid(dataset, seed=0, clients=2, unit="segment", segment_length=4)
    assert sorted(shards.starts) == [0, 4, 8, 10, 14, 18]
    assert shards.cut.tolist() == [3, 7, 17]  # 9, 13 and 20 end an episode
    assert len(shards.pieces) == 6


def test_a_start_and_a_client_need_trainable_rows():
    """An episode of one row without a next state is owned by nobody and starts nothing."""
    dataset = make_dataset([5, 1, 5], untrainable=[5])
    shards = splits.iid(dataset, seed=0, clients=2)
    assert sorted(shards.starts) == [0, 6]
    with pytest.raises(InputError, match="2 episodes"):
        splits.iid(dataset, seed=0, clients=3)


def test_rows_per_client_is_exact_and_the_cut_counts_as_a_timeout(dataset):
    shards = splits.quantile(dataset, seed=0, clients=10, rows_per_client=250)
    assert shards.sizes.tolist() == [250] * 10
    whole = set(dataset.ends)
    assert set(shards.cut) == {last for _, last in shards.pieces if last not in whole}
    assert 1 <= len(shards.cut) <= 10  # at most the last unit of each client


def test_sizes_follow_size_skew():
    dataset = make_dataset([10] * 2000)
    sizes = splits.iid(dataset, seed=0, clients=8, size_skew=1.0).sizes
    wanted = len(dataset) / np.arange(1, 9) / (1 / np.arange(1, 9)).sum()
    assert np.abs(np.sort(sizes)[::-1] - wanted).max() <= 10
    assert (np.diff(splits.iid(dataset, seed=0, clients=8).sizes) == 0).all()


def test_groups_are_trimmed_to_size_skew_only_when_asked(dataset):
    shards = splits.source(dataset, seed=0, size_skew=0.0)
    assert len(set(shards.sizes)) == 1
    assert shards.leftover > 0
    assert splits.source(dataset, seed=0).leftover == 0


def test_public_units_belong_to_no_client(dataset):
    shards = splits.iid(dataset, seed=0, clients=5, public=0.25)
    assert (shards.piece_client == PUBLIC).sum() == 30
    assert len(np.intersect1d(shards.public, shards.order)) == 0
    assert len(shards.public) + len(shards.order) == dataset.trainable.sum()


def test_quantile_is_a_sort_by_return():
    dataset = make_dataset([10] * 12, rewards=[5, 1, 9, 3, 7, 11, 0, 2, 10, 4, 8, 6])
    shards = splits.quantile(dataset, seed=0, clients=4)
    by_hand = np.array_split(np.argsort(dataset.returns), 4)
    for k, episodes in enumerate(by_hand):
        assert sorted(shards.rows(k) // 10) == sorted(np.repeat(episodes, 10))


def test_quantile_ranks_a_segment_by_its_episode():
    dataset = make_dataset([20, 20, 20], rewards=[2.0, 0.0, 1.0])
    shards = splits.quantile(dataset, seed=0, clients=3, unit="segment", segment_length=5)
    assert [set(shards.rows(k) // 20) for k in range(3)] == [{1}, {2}, {0}]


def test_quantile_breaks_ties_at_random():
    dataset = make_dataset([10] * 40, rewards=np.zeros(40))
    first, second = (splits.quantile(dataset, seed=seed, clients=2).rows(0) for seed in (0, 1))
    assert set(first) != set(second)


def test_cluster_finds_separate_blobs():
    blob = np.arange(30) % 3
    dataset = make_dataset([10] * 30, states=np.eye(3)[blob] * 20, rewards=blob.astype(float))
    shards = splits.cluster(dataset, seed=0, clients=3)
    for k in range(3):  # in order of return
        assert set(blob[shards.rows(k) // 10]) == {k}


def test_support_finds_the_region_an_episode_visits_most():
    region = np.arange(30) % 3
    dataset = make_dataset([20] * 30, states=np.eye(3)[region] * 20, rewards=region.astype(float))
    shards = splits.support(dataset, seed=0, clients=3)
    for k in range(3):
        assert set(region[shards.rows(k) // 20]) == {k}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["cluster", "support"])
def test_no_cluster_stays_empty(kind, seed):
    states = np.concatenate([np.zeros((30, 3)), np.full((1, 3), 50.0)])  # one far outlier, the rest noise
    shards = split(kind, make_dataset([5] * 31, states=states, seed=seed), seed=seed, clients=12)
    assert shards.sizes.min() >= 1


def class_shares(shards: Shards, label: np.ndarray) -> np.ndarray:
    """[K, C] the mixture of classes in each client."""
    counts = np.array([np.bincount(label[shards.rows(k)], minlength=label.max() + 1) for k in range(len(shards))])
    return counts / counts.sum(axis=1, keepdims=True)


def test_dirichlet_goes_from_iid_to_one_class_per_client_with_concentration():
    source = np.arange(2000) % 5
    dataset = make_dataset([4] * 2000, columns={"source": source})
    label = dataset.columns["source"]
    even = splits.dirichlet(dataset, seed=0, clients=8, concentration=1e4, by="source")
    assert np.abs(class_shares(even, label) - 0.2).max() < 0.02
    assert np.abs(even.sizes / len(dataset) - 1 / 8).max() < 0.01
    skewed = splits.dirichlet(dataset, seed=0, clients=8, concentration=0.1, by="source")
    assert class_shares(skewed, label).max(axis=1).mean() > 0.6


def test_dirichlet_sizes_follow_size_skew_on_average():
    dataset = make_dataset([4] * 2000, columns={"source": np.arange(2000) % 5})
    shards = splits.dirichlet(dataset, seed=0, clients=4, concentration=1e4, by="source", size_skew=1.0)
    wanted = (1 / np.arange(1, 5)) / (1 / np.arange(1, 5)).sum()
    assert np.abs(np.sort(shards.sizes / len(dataset))[::-1] - wanted).max() < 0.02


def test_dirichlet_leaves_nobody_out_where_classes_have_fewer_units_than_clients():
    dataset = make_dataset([4] * 100, columns={"source": np.arange(100) % 10})
    for seed in range(5):
        shards = splits.dirichlet(dataset, seed=seed, clients=40, concentration=1e4, by="source")
        assert shards.sizes.min() >= 4


def test_source_makes_a_client_of_each_value_with_its_name(dataset):
    shards = splits.source(dataset, seed=0)
    assert shards.names == ["novice", "medium", "expert", "crashing"]
    for k in range(4):
        assert set(dataset.columns["source"][shards.rows(k)]) == {k}
    assert splits.source(dataset, seed=0, column="skill").names == ["skill 0", "skill 1"]


def test_a_source_can_be_several_clients(dataset):
    shards = splits.source(dataset, seed=0, column="skill", clients_per_source=3)
    assert len(shards) == 6
    assert shards.names[:4] == ["skill 0 0", "skill 0 1", "skill 0 2", "skill 1 0"]
    for k in range(6):
        assert set(dataset.columns["skill"][shards.rows(k)]) == {k // 3}


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        ("iid", {"unit": "row"}, "unit=row is not one of episode, segment"),
        ("iid", {"clients": 0}, "clients=0 must be a whole number"),
        ("iid", {"clients": "ten"}, "clients=ten must be a whole number"),
        ("iid", {"segment_length": 0}, "segment_length=0"),
        ("iid", {"rows_per_client": -1}, "rows_per_client=-1"),
        ("iid", {"size_skew": -0.5}, "size_skew=-0.5 must be null or at least 0"),
        ("iid", {"size_skew": "steep"}, "size_skew=steep"),
        ("iid", {"public": 1.0}, "public=1.0 must be a fraction"),
        ("iid", {"segment_lenght": 5}, "no option 'segment_lenght'; did you mean 'segment_length'"),
        ("iid", {"clients": 121}, "120 episodes .* fewer clients or unit=segment"),
        ("iid", {"clients": 9999, "unit": "segment"}, "smaller segment_length"),
        ("dirichlet", {"concentration": 0.0}, "concentration=0.0 must be a number above 0"),
        ("dirichlet", {"by": "skil"}, "no column 'skil' .* did you mean 'skill'"),
        ("dirichlet", {"clusters": 500}, "cannot make 500 clusters of 120 distinct points"),
        (
            "dirichlet",
            {"clients": 60, "concentration": 0.001},
            "without data; .* larger concentration, or unit=segment",
        ),
        ("source", {"column": "sorce"}, "no column 'sorce' .* did you mean 'source'"),
        ("source", {"clients": 3}, "has 4 values: 4 clients, not 3"),
        ("source", {"clients_per_source": 40}, "too few for 160 clients"),
    ],
    ids=str,
)
def test_what_cannot_be_split_is_a_sentence(kind, options, sentence, dataset):
    with pytest.raises(InputError, match=sentence):
        getattr(splits, kind)(dataset, seed=0, **options)


def test_a_negative_seed_is_a_sentence(dataset):
    with pytest.raises(InputError, match="seed=-1 must be"):
        splits.iid(dataset, seed=-1)


def test_a_column_that_changes_inside_a_unit_is_a_sentence(dataset):
    dataset.columns["lap"] = np.arange(len(dataset)) // 100
    with pytest.raises(InputError, match="Column 'lap' of 'small' changes inside"):
        splits.source(dataset, seed=0, column="lap")


def test_an_unknown_split_or_option_names_the_nearest():
    with pytest.raises(InputError, match="no split 'quantil'; did you mean 'quantile'"):
        split_named("quantil")
    with pytest.raises(InputError, match="no option 'client'; did you mean 'clients'"):
        split_named("iid", ["client=3"])
    with pytest.raises(InputError, match="cannot be read"):
        split_named("iid", ["clients=[3"])


def test_without_stored_next_states_the_row_at_a_cut_is_not_trained_on(dataset):
    """Its next state is in the row that follows, which may belong to somebody else."""
    shifted = dataclasses.replace(dataset, shifted=True)
    segments = {"seed": 0, "clients": 4, "unit": "segment", "segment_length": 10}
    stored, unstored = splits.iid(dataset, **segments), splits.iid(shifted, **segments)
    assert len(stored.cut) > 0
    assert set(stored.order) - set(unstored.order) == set(stored.cut) & set(stored.order)
    assert unstored.leftover == len(set(stored.cut) & set(stored.order))


def test_merged_owns_what_the_clients_owned_and_nothing_else(dataset):
    shards = splits.quantile(dataset, seed=0, clients=4, rows_per_client=100, public=0.1)
    merged = shards.merged()
    assert merged.sizes.tolist() == [400]
    assert set(merged.rows(0)) == set(shards.order)
    assert set(merged.initial_rows(0)) == set(shards.starts)
    assert merged.statistics(dataset)["pooled"] == shards.statistics(dataset)["pooled"]


def test_the_best_share_keeps_each_clients_highest_returns_and_at_least_one():
    lengths = [10] * 11
    dataset = make_dataset(lengths, rewards=[3, 1, 2, 4, 9, 9, 9, 5, 0, 7, 6])
    pieces = np.stack([dataset.starts, dataset.ends], axis=1)
    owner = np.array([0, 0, 0, 0, 1, 1, 1, 2, PUBLIC, PUBLIC, PUBLIC])
    best = Shards.of_pieces(dataset, pieces, owner, ["a", "b", "c"]).best(dataset, 0.4)
    kept = [sorted(set((best.rows(k) // 10).tolist())) for k in range(3)]
    assert kept == [[0, 3], [4], [7]]  # of equal returns the first; of a single episode that one
    assert best.episodes.tolist() == [2, 1, 1]
    assert len(best.public) == 30
    assert best.leftover == 40


def test_the_best_share_of_the_pooled_rows_is_that_of_everybodys_episodes(dataset):
    shards = splits.iid(dataset, seed=0, clients=4)
    pooled = shards.merged().best(dataset, 0.5)
    count = round(0.5 * len(dataset.returns))
    expected = np.sort(dataset.returns)[-count:]
    np.testing.assert_allclose(np.sort(pooled.returns(dataset)), expected)
    assert pooled.names == ["pooled"]
    statistics = pooled.statistics(dataset)
    assert statistics["clients"][0]["episodes"] == count
    assert statistics["clients"][0]["rows"] + statistics["leftover"] == dataset.trainable.sum()


def test_the_whole_is_the_best_share_of_one(dataset):
    shards = splits.iid(dataset, seed=0, clients=4)
    assert shards.best(dataset, 1.0) is shards


def test_statistics_are_those_of_the_rows(dataset):
    shards = splits.quantile(dataset, seed=0, clients=6, public=0.1)
    statistics = json.loads(json.dumps(shards.statistics(dataset)))
    for k, client in enumerate(statistics["clients"]):
        episodes = np.isin(dataset.starts, shards.initial_rows(k))
        assert client["rows"] == len(shards.rows(k))
        assert client["episodes"] == client["initial_states"] == episodes.sum()
        assert client["return_mean"] == pytest.approx(dataset.returns[episodes].mean())
        assert client["return_quantiles"] == pytest.approx(
            np.quantile(dataset.returns[episodes], [0, 0.25, 0.5, 0.75, 1])
        )
    assert statistics["public"]["rows"] == len(shards.public)
    assert statistics["leftover"] == 0


def test_state_shift_is_in_standard_deviations():
    states = np.array([[0.0, 5.0]] * 20 + [[2.0, 5.0]] * 20)  # the second feature does not differ
    dataset = make_dataset([10] * 40, states=states, columns={"source": np.repeat([0, 1], 20)})
    shift = state_shift(dataset, splits.source(dataset, seed=0))
    assert shift == pytest.approx([1 / np.sqrt(2)] * 2, abs=0.02)  # one feature of two is one deviation away


@pytest.mark.parametrize("kind", ["iid", "quantile", "cluster", "dirichlet", "support"])
def test_a_million_rows_and_a_thousand_clients_take_about_a_second(kind):
    dataset = make_dataset([500] * 2000)
    _ = dataset.starts, dataset.returns
    options = {"concentration": 1e4} if kind == "dirichlet" else {}
    began = time.perf_counter()
    shards = split(kind, dataset, clients=1000, **options)
    assert time.perf_counter() - began < 10  # generous: a shared machine
    assert len(shards) == 1000
    held = (shards.order, shards.offsets, shards.starts, shards.pieces, shards.piece_client)
    assert sum(array.nbytes for array in held) < 1.1 * 8 * len(dataset)  # indices only


@pytest.mark.skipif(not HOPPER.exists(), reason="../shared/data/mujoco/hopper_mixed.hdf5 is absent")
@pytest.mark.parametrize("kind", ["iid", "quantile", "cluster", "support", "dirichlet"])
def test_regenerated_hopper_logs_split_into_ten(kind):
    from data.loaders import load

    dataset = load(str(HOPPER))
    shards = split(kind, dataset, clients=10)
    assert len(shards) == 10
    assert shards.sizes.sum() == dataset.trainable.sum()


def test_the_split_that_the_docs_add_works_with_its_yaml(dataset, tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "splits.md").read_text().partition("## Add a split")[2]
    code, config = (text.partition(f"```{language}\n")[2].partition("```")[0] for language in ("python", "yaml"))
    module = ModuleType("data.length")
    exec(code, vars(module))
    monkeypatch.setitem(sys.modules, "data.length", module)
    monkeypatch.setattr(data, "length", module, raising=False)
    (tmp_path / "length.yaml").write_text(config)
    shards = split_named("length", ["clients=4"], folder=tmp_path)(dataset, seed=0)
    lengths = [np.diff(shards.pieces[shards.piece_client == k], axis=1) for k in range(4)]
    assert all(lengths[k].max() <= lengths[k + 1].min() for k in range(3))

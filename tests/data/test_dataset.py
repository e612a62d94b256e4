"""What a Dataset promises, and what validation refuses."""

import numpy as np
import pytest

from data.dataset import Dataset, Environment
from data.errors import InputError
from data.spaces import _KNOWN, spaces_of, symmetric
from data.validation import validate

ROWS = 20


def log(**changes) -> dict[str, np.ndarray]:
    """Two episodes of ten rows: one ends in a terminal, one in a timeout."""
    random = np.random.default_rng(0)
    columns = {
        "observations": random.normal(size=(ROWS, 3)).astype(np.float32),
        "actions": random.uniform(-1, 1, (ROWS, 2)).astype(np.float32),
        "rewards": np.arange(ROWS, dtype=np.float32),
        "next_observations": random.normal(size=(ROWS, 3)).astype(np.float32),
        "terminals": np.arange(ROWS) == 9,
        "timeouts": np.arange(ROWS) == 19,
    } | changes
    return {key: column for key, column in columns.items() if column is not None}


def checked(**changes) -> Dataset:
    return validate("x.hdf5", log(**changes), spaces=symmetric(3, 2, 1.0), environment=Environment("Reacher-v5"))


def fault(**changes) -> str:
    with pytest.raises(InputError) as raised:
        checked(**changes)
    return str(raised.value)


def with_values(column: str, rows: list[int], value: float) -> np.ndarray:
    values = log()[column].copy()
    values[rows] = value
    return values


def test_columns_are_float32_and_flags_stay_apart():
    dataset = checked(rewards=np.arange(ROWS), observations=log()["observations"].astype(np.float64))
    for column in (dataset.observations, dataset.actions, dataset.rewards, dataset.next_observations):
        assert column.dtype == np.float32
    assert list(np.flatnonzero(dataset.terminals)) == [9]
    assert list(np.flatnonzero(dataset.timeouts)) == [19]
    assert dataset.notes == ()


def test_episodes_are_found_by_their_ends():
    dataset = checked()
    assert list(dataset.starts) == [0, 10]
    assert list(dataset.ends) == [9, 19]
    assert list(dataset.returns) == [sum(range(10)), sum(range(10, 20))]


def test_a_timeout_without_a_next_state_is_not_trained_on_but_counts_in_the_return():
    dataset = checked(next_observations=None)
    assert list(np.flatnonzero(~dataset.trainable)) == [19]
    assert dataset.returns[1] == sum(range(10, 20))
    follows = np.arange(ROWS - 1) != 9
    assert np.array_equal(dataset.next_observations[:-1][follows], dataset.observations[1:][follows])
    assert np.isfinite(dataset.next_observations).all()


def test_a_terminal_at_the_time_limit_is_trained_on():
    dataset = checked(next_observations=None, terminals=np.isin(np.arange(ROWS), [9, 19]))
    assert dataset.trainable.all()


def test_a_timeout_with_a_next_state_is_trained_on():
    assert checked().trainable.all()


def test_a_tail_without_an_end_becomes_a_timeout_and_is_noted():
    dataset = checked(timeouts=np.zeros(ROWS, bool))
    assert dataset.timeouts[-1]
    assert "middle of an episode" in dataset.notes[0]
    assert "row 19" in dataset.notes[0]


def test_missing_timeouts_are_taken_from_jumps_between_rows():
    observations = log()["observations"]
    following = np.concatenate([observations[1:], observations[:1]])
    following[4] += 1
    dataset = checked(next_observations=following, timeouts=None)
    assert list(np.flatnonzero(dataset.timeouts)) == [4, 19]
    assert "no timeouts" in dataset.notes[0]


def test_missing_timeouts_and_next_observations_are_refused():
    assert "neither timeouts nor next_observations" in fault(timeouts=None, next_observations=None)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"rewards": with_values("rewards", [12, 13, 15], np.nan)},
            "Dataset 'x.hdf5' has 3 NaN rewards, first at row 12; drop or repair them.",
        ),
        (
            {"observations": with_values("observations", [7], np.inf)},
            "Dataset 'x.hdf5' has 1 infinite observations, first at row 7; drop or repair them.",
        ),
        ({"next_observations": with_values("next_observations", [3], np.nan)}, "1 NaN next_observations"),
        ({"actions": with_values("actions", [5], np.nan)}, "1 NaN actions, first at row 5"),
        ({"rewards": np.full(ROWS, 1e60)}, "20 infinite rewards"),
        ({"rewards": None}, "no column rewards (found: actions, next_observations, observations, terminals, timeouts)"),
        ({"rewards": np.zeros(ROWS - 1)}, "19 rows of rewards but 20 of observations"),
        ({"rewards": np.zeros((ROWS, 2))}, "rewards of shape (20, 2)"),
        ({"observations": np.zeros(ROWS)}, "observations of shape (20,) where [rows, size] is needed"),
        ({"next_observations": np.zeros((ROWS, 4))}, "next_observations of size 4 but observations of size 3"),
        ({"rewards": np.array(["a"] * ROWS)}, "stores rewards as <U1, not as numbers"),
        ({"rewards": np.array([None] * ROWS)}, "stores rewards as object, not as numbers"),
        ({"terminals": np.full(ROWS, 2)}, "20 terminals that are neither 0 nor 1, first at row 0"),
        ({"actions": np.zeros((ROWS, 3))}, "actions of size 3 but environment 'Reacher-v5' has size 2"),
        ({"actions": with_values("actions", [5], 1.5)}, "outside the action range of 'Reacher-v5' (by up to 25.0%"),
        ({"actions": with_values("actions", list(range(20)), 1.01)}, "40 action entries outside"),
    ],
)
def test_each_fault_is_one_sentence(changes, sentence):
    told = fault(**changes)
    assert sentence in told
    assert "x.hdf5" in told
    assert "\n" not in told


def test_no_rows_is_a_sentence():
    empty = {key: column[:0] for key, column in log().items()}
    with pytest.raises(InputError, match="is empty"):
        validate("x.hdf5", empty)


def test_nothing_to_train_on_is_a_sentence():
    one = {key: column[-1:] for key, column in log(next_observations=None).items()}
    with pytest.raises(InputError, match="no row with a next state"):
        validate("x.hdf5", one)


def test_large_finite_values_are_not_mistaken_for_infinite_ones():
    assert checked(rewards=np.full(ROWS, 1e30)).rewards[0] == np.float32(1e30)


def test_rare_slight_overshoot_is_clipped_and_counted():
    columns = {key: np.tile(column, (20, 1) if column.ndim == 2 else 20) for key, column in log().items()}
    columns["actions"][3, 1] = 1.01
    dataset = validate("x.hdf5", columns, spaces=symmetric(3, 2, 1.0))
    assert dataset.actions.max() == 1.0
    assert "1 action entries" in dataset.notes[0]


def test_action_ranges_that_differ_by_dimension_are_checked_each():
    spaces = symmetric(3, 2, 1.0)
    spaces.action_high[:] = [1.0, 5.0]
    wide = with_values("actions", [0], 0.5)
    wide[0, 1] = 4.0
    assert validate("x", log(actions=wide), spaces=spaces).notes == ()
    with pytest.raises(InputError, match="outside"):
        validate("x", log(actions=wide[:, ::-1]), spaces=spaces)


def test_without_an_environment_the_action_range_is_that_of_the_data():
    constant = with_values("actions", list(range(ROWS)), 0.5)
    constant[:, 1] = log()["actions"][:, 1]
    dataset = validate("x.hdf5", log(actions=constant))
    assert dataset.action_low[0] == -0.5
    assert dataset.action_high[0] == 1.5
    assert dataset.action_high[1] == constant[:, 1].max()
    assert "action range is that of its data" in dataset.notes[0]


def test_free_form_columns_must_fit_their_labels_and_32_bits():
    skill = np.arange(ROWS) % 2
    dataset = validate("x", log(), extra={"skill": skill, "clock": skill + 2**40}, labels={"skill": ["weak", "able"]})
    assert list(dataset.columns) == ["skill"]
    assert dataset.labels == {"skill": ["weak", "able"]}
    assert "'clock' that does not fit 32 bits" in dataset.notes[-1]
    with pytest.raises(InputError, match="values 0 to 1 in its column 'skill' but 1 labels"):
        validate("x", log(), extra={"skill": skill}, labels={"skill": ["weak"]})
    with pytest.raises(InputError, match="one integer a row"):
        validate("x", log(), extra={"skill": skill[1:]})


def test_fingerprint_follows_the_data_and_nothing_else():
    one, same, other = checked(), checked(), checked(rewards=with_values("rewards", [3], 0.5))
    assert one.fingerprint() == same.fingerprint()
    assert one.fingerprint() != other.fingerprint()
    views = validate("y", log(observations=np.asfortranarray(log()["observations"])), spaces=symmetric(3, 2, 1.0))
    assert views.fingerprint() == one.fingerprint()


@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
@pytest.mark.parametrize("env_id", _KNOWN)
def test_known_spaces_agree_with_gymnasium(env_id):
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make(env_id)
    spaces = spaces_of(env_id)
    assert (spaces.observation_size,) == env.observation_space.shape
    assert np.array_equal(spaces.action_low, env.action_space.low)
    assert np.array_equal(spaces.action_high, env.action_space.high)
    env.close()


def test_an_environment_outside_the_table_is_asked_from_gymnasium():
    assert spaces_of("MountainCarContinuous-v0").observation_size == 2
    with pytest.raises(InputError, match="Discrete actions"):
        spaces_of("CartPole-v1")
    with pytest.raises(InputError, match="did you mean 'Hopper-v5'"):
        spaces_of("Hoper-v5")

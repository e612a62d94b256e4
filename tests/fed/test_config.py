import shutil
from itertools import product

import pytest

from data.errors import InputError
from fed import config as fed_config
from fed.config import CONFIGS, compose, expand, options


def test_groups_and_values_compose():
    config = compose("train", ["algo=bc", "split=iid", "split.clients=3", "rounds=7"])
    assert config.choices.algo == "bc"
    assert config.split.clients == 3
    assert config.rounds == 7
    assert config.algo.hidden == config.data.hidden


def test_every_named_option_composes():
    for group in ("algo", "fed", "data", "split", "engine", "eval"):
        for name in options(group):
            extra = ["data.path=x"] if name in ("file", "deepracer") else []
            assert compose("train", [f"{group}={name}", *extra]).choices[group] == name


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("algo=sack", "There is no algo 'sack'; did you mean 'sac'?"),
        ("split=quantiles", "There is no split 'quantiles'; did you mean 'quantile'?"),
        ("roundz=3", "There is no setting 'roundz'; did you mean 'rounds'?"),
        ("clients=3", "There is no setting 'clients'; did you mean 'split.clients'?"),
        ("algo.gama=0.9", "There is no setting 'algo.gama'; did you mean 'algo.gamma'?"),
        ("rounds=many", "rounds=many does not fit: rounds takes a whole number (now 30)."),
        ("rounds=2.5", "rounds=2.5 does not fit: rounds takes a whole number (now 30)."),
        ("rounds=true", "rounds=True does not fit: rounds takes a whole number (now 30)."),
        ("fed.fraction=half", "fed.fraction=half does not fit: fed.fraction takes a number (now 1.0)."),
        ("algo.gamma=nan", "algo.gamma=nan does not fit: algo.gamma takes a number (now 0.99)."),
        ("rounds", "'rounds' is not of the form key=value; write for example rounds=20."),
        ("~seed", "'~seed' would delete a setting; give it a value instead."),
    ],
)
def test_a_wrong_key_or_value_is_a_sentence_with_the_nearest_name(override, sentence):
    with pytest.raises(InputError) as error:
        compose("train", ["algo=sac", override] if override.startswith("algo.") else [override])
    assert str(error.value) == sentence


def test_a_runs_own_config_file_gives_the_run_again(tmp_path):
    from omegaconf import OmegaConf

    first = compose("train", ["algo=bc", "split.clients=3", "out=somewhere", "data=file", "data.path={a: x, b: y}"])
    path = tmp_path / "config.yaml"
    path.write_text(OmegaConf.to_yaml(first))
    again = compose("train", ["rounds=9"], path)
    assert again.out is None
    first.out, first.rounds = None, 9
    assert again == first


def test_sources_by_name_are_replaced_as_a_whole_or_one_by_one():
    assert compose("train", ["data.path={a: x}"]).data.path == {"a": "x"}
    assert compose("train", ["data.path=x"]).data.path == "x"
    path = compose("train", ["data.path.oval=x"]).data.path
    assert path.oval == "x"
    assert len(path) == 10


def test_a_config_file_with_a_wrong_key_is_refused(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("algo:\n  clipp: 0.9\n")
    with pytest.raises(InputError, match=r"did you mean 'algo\.clip'"):
        compose("train", [], path)
    with pytest.raises(InputError, match="There is no file"):
        compose("train", [], tmp_path / "absent.yaml")


def test_a_sweep_expands_to_every_combination():
    assert expand(["seed=0,1", "algo=bc"]) == [["seed=0", "algo=bc"], ["seed=1", "algo=bc"]]
    assert len(expand(["seed=range(3)", "algo=bc,sac"])) == 6


@pytest.fixture
def tuned(tmp_path, monkeypatch):
    """Tuned settings for BC on Pendulum, in a copy of the configurations."""
    shutil.copytree(CONFIGS, tmp_path / "configs", ignore=shutil.ignore_patterns("tuned"))
    folder = tmp_path / "configs" / "tuned"
    folder.mkdir()
    (folder / "pendulum_bc.yaml").write_text("updates_per_round: 777\nalgo:\n  lr: 0.25\n")
    monkeypatch.setattr(fed_config, "CONFIGS", tmp_path / "configs")
    return folder


@pytest.mark.parametrize("root", ["train", "centralized"])
def test_tuned_settings_hold_for_their_data_and_learner_alone(tuned, root):
    config = compose(root, ["data=pendulum", "algo=bc"])
    assert (config.updates_per_round, config.algo.lr) == (777, 0.25)
    assert config.choices.split == "dirichlet"  # the data still say which split suits them
    assert config.pooled == (root == "centralized")
    plain = compose(root, ["data=racing_fleet", "algo=bc"])
    assert (plain.updates_per_round, plain.algo.lr) == (100, 1e-3)
    assert compose(root, ["data=pendulum", "algo=sac"]).updates_per_round == 100


def test_what_is_typed_or_in_a_file_wins_over_tuned_settings(tuned, tmp_path):
    typed = compose("train", ["data=pendulum", "algo=bc", "algo.lr=0.5", "split=iid"])
    assert (typed.updates_per_round, typed.algo.lr, typed.choices.split) == (777, 0.5, "iid")
    path = tmp_path / "mine.yaml"
    path.write_text("data: pendulum\nalgo: bc\nupdates_per_round: 5\n")
    config = compose("train", [], path)
    assert (config.updates_per_round, config.algo.lr) == (5, 0.25)
    assert compose("train", ["updates_per_round=6"], path).updates_per_round == 6


def test_each_job_of_a_sweep_has_its_own_tuned_settings(tuned):
    jobs = [compose("train", job) for job in expand(["data=pendulum", "algo=bc,sac"])]
    assert [job.updates_per_round for job in jobs] == [777, 100]


def test_tuned_files_are_named_after_data_and_learner_and_compose():
    known = {f"{data}_{algo}": (data, algo) for data, algo in product(options("data"), options("algo"))}
    for name in options("tuned"):
        data, algo = known[name]
        compose("train", [f"data={data}", f"algo={algo}", "data.path=x"])


@pytest.mark.parametrize("value", ["0", "1.5", "half"])
def test_the_share_of_best_episodes_is_above_0_and_at_most_1(value):
    with pytest.raises(InputError, match="top"):
        compose("train", [f"top={value}"])

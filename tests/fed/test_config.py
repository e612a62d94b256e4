import pytest

from data.errors import InputError
from fed.config import compose, expand, options


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

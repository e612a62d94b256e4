from pathlib import Path

import numpy as np
import pytest

from data.errors import InputError
from fed.analysis import Run, extra_cells, grouped, reached


def run(**settings) -> Run:
    base = {"pooled": False, "seed": 0, "choices.algo": "sac", "choices.fed": "fedavg", "choices.split": "iid"}
    base |= {"choices.data": "pendulum", "split.clients": 10, "fed.fraction": 1.0}
    rounds = np.arange(10)
    results = {"score": 70.0, "held_out": {"score": 60.0, "episode_metrics": {"lap_completed": 0.5}}}
    settings = base | {k.replace("__", "."): v for k, v in settings.items()}
    return Run(Path("run"), settings, rounds, rounds * 10.0, results)


def test_seeds_of_one_method_share_a_group_and_methods_do_not():
    groups = grouped([run(), run(seed=1), run(choices__fed="local", fed__shared="[]"), run(pooled=True)])
    assert {name: len(runs) for name, runs in groups.items()} == {"sac fedavg": 2, "sac local": 1, "sac centralised": 1}


def test_what_differs_names_the_group():
    groups = grouped([run(), run(fed__fraction=0.5), run(choices__split="quantile"), run(pooled=True)])
    assert set(groups) == {
        "sac fedavg, split=iid, fed.fraction=1.0",
        "sac fedavg, split=iid, fed.fraction=0.5",
        "sac fedavg, split=quantile, fed.fraction=1.0",
        "sac centralised",
    }


def test_oracles_that_saw_other_rows_are_not_one_group():
    assert len(grouped([run(pooled=True), run(pooled=True, split__rows_per_client=100)])) == 2


def test_columns_appear_where_some_run_knows_them():
    cells = extra_cells(
        {"one": [run(), run()], "other": [Run(Path("x"), {}, np.arange(1), np.arange(1), {"score": 1})]}
    )
    assert cells == {"held out": ["60.0", "–"], "laps, held out": ["50%", "–"]}


def test_a_run_that_never_arrives_is_missing():
    assert len(reached([run(), run()], target=50)) == 2
    assert reached([run()], target=1000) == []


def test_a_folder_that_is_no_run_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="is not a run folder"):
        Run.read(tmp_path)

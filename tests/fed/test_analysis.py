from pathlib import Path

import numpy as np
import pytest

from data.errors import InputError
from fed.analysis import Run, grouped, last_score, reached


def run(**settings) -> Run:
    base = {"pooled": False, "seed": 0, "choices.algo": "sac", "choices.fed": "fedavg", "choices.split": "iid"}
    base |= {"choices.data": "pendulum", "split.clients": 10, "fed.fraction": 1.0}
    rounds = np.arange(10)
    return Run(Path("run"), base | {k.replace("__", "."): v for k, v in settings.items()}, rounds, rounds * 10.0)


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


def test_scores_are_of_the_last_rounds_and_a_run_that_never_arrives_is_missing():
    assert last_score(run()) == 70.0
    assert len(reached([run(), run()], target=50)) == 2
    assert reached([run()], target=1000) == []


def test_a_folder_that_is_no_run_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="is not a run folder"):
        Run.read(tmp_path)

"""The table of ratios, on numbers that one can work out by hand."""

import numpy as np
import pytest

from data.errors import InputError
from fed.bench_ratios import TIMES, VARIANTS, _weigh, benchmark_ratios
from fed.config import compose
from tests.data.small import small_dataset


def test_weight_is_told_by_source_time_and_return():
    dataset = small_dataset(rows=1000, episode=250)
    rows = np.arange(len(dataset))
    dataset.columns["source"] = (rows >= len(rows) // 2).astype(np.int64)
    first = dataset.columns["source"] == 0
    row = _weigh("task", "variant", np.where(first, 3.0, 1.0), dataset, rows)
    assert row.mean == pytest.approx((3 * first.sum() + (~first).sum()) / len(rows))
    assert row.expert_share == pytest.approx(3 * first.sum() / (3 * first.sum() + (~first).sum()))
    assert row.by_time["expert"][0] == 3
    assert row.by_time["medium"][0] == 1
    assert len(row.by_time["expert"]) == len(TIMES) - 1


def test_every_variant_is_a_configuration_and_a_missing_folder_is_a_sentence(tmp_path):
    for overrides in VARIANTS.values():
        compose("train", ["algo=optidice", *overrides])
    with pytest.raises(InputError, match="--data"):
        next(benchmark_ratios(tmp_path))

import os

import pytest

from fed.engines.inprocess import Layout


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)


@pytest.mark.parametrize(
    ("participants", "hidden", "expected"),
    [
        (10, 64, Layout(width=5, workers=2, threads=1)),  # a cohort on each core
        (50, 64, Layout(width=13, workers=2, threads=1)),  # four chunks in two even waves, not 16, 16, 16 and 2
        (1, 64, Layout(width=1, workers=1, threads=1)),  # too small to share
        (1, 256, Layout(width=1, workers=1, threads=2)),  # alone: both cores inside an operation
    ],
)
def test_the_layout_fills_the_cores(two_cores, participants, hidden, expected):
    assert Layout.choose(participants, hidden, None, None, None) == expected


def test_what_the_user_chose_is_kept(two_cores):
    assert Layout.choose(10, 64, width=3, workers=None, threads=None) == Layout(width=3, workers=2, threads=1)
    assert Layout.choose(10, 64, width=None, workers=1, threads=2) == Layout(width=10, workers=1, threads=2)

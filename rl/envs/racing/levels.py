"""Levels of logged driving: which drivers share a log, and when they drive in it.

A level is a sequence of phases of equal length, each a mix of drivers by share of its steps (not of episodes: a random
driver's are thirty times shorter than an expert's). Only `replay` has more than one phase: it is what a learner leaves
behind, from random to expert.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

Mix = Mapping[str, float]
Episode = TypeVar("Episode")

LEVELS: dict[str, tuple[Mix, ...]] = {
    "random": ({"random": 1.0},),
    "novice": (
        {
            "weave": 0.1,
            "novice_pursuit": 0.3,
            "novice_stanley": 0.2,
            "novice_gap": 0.2,
            "novice_reckless": 0.2,
        },
    ),
    "medium": ({"medium_pursuit": 0.25, "medium_stanley": 0.25, "medium_gap": 0.25, "medium_disparity": 0.25},),
    "expert": ({"expert_pursuit": 0.4, "expert_stanley": 0.4, "expert": 0.2},),
    "mixed": (
        {
            "expert_stanley": 0.15,
            "expert_pursuit": 0.15,
            "medium_disparity": 0.15,
            "medium_pursuit": 0.15,
            "novice_reckless": 0.1,
            "novice_gap": 0.1,
            "weave": 0.1,
            "random": 0.1,
        },
    ),
    "replay": (
        {"random": 1.0},
        {"weave": 1.0},
        {"novice_pursuit": 1.0},
        {"novice_pursuit": 0.5, "medium_pursuit": 0.5},
        {"medium_pursuit": 1.0},
        {"medium_pursuit": 0.5, "expert_pursuit": 0.5},
        {"expert_pursuit": 1.0},
    ),
}


def due(level: str, steps: float, total: int) -> dict[str, float]:
    """Steps that each driver should have driven when `steps` of `total` are logged."""
    phases = LEVELS[level]
    length = total / len(phases)
    owed: dict[str, float] = {}
    for k, mix in enumerate(phases):
        for driver, share in mix.items():
            owed[driver] = owed.get(driver, 0.0) + share * min(max(steps - k * length, 0.0), length)
    return owed


def in_order(level: str, streams: Mapping[str, Sequence[Episode]], total: int) -> list[Episode]:
    """Episodes with at least `total` steps, taken from each driver's stream as the level has it.

    The next episode is of the driver who is furthest behind what is due half-way through it, counted in such episodes.
    What is due sums to the steps logged, so somebody is always behind, and nobody is asked for more than he owes in the
    end.
    """
    taken = dict.fromkeys(streams, 0)
    used = dict.fromkeys(streams, 0)
    order, steps = [], 0
    while steps < total:
        behind = {}
        for driver, left in streams.items():
            if used[driver] < len(left):
                length = len(left[used[driver]])
                owed = due(level, min(steps + length / 2, total), total)[driver]
                behind[driver] = (owed - taken[driver]) / length
        driver = max(behind, key=behind.__getitem__)
        episode = streams[driver][used[driver]]
        order.append(episode)
        used[driver] += 1
        taken[driver] += len(episode)
        steps += len(episode)
    return order

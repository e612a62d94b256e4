"""A small dataset made on the spot."""

import numpy as np

from data.dataset import Dataset


def small_dataset(
    rows: int = 400, episode: int = 20, observations: int = 3, actions: int = 1, seed: int = 0
) -> Dataset:
    """Episodes of equal length; every second one ends in a terminal, the others in a timeout."""
    random = np.random.default_rng(0)
    last = np.arange(rows) % episode == episode - 1
    even = (np.arange(rows) // episode) % 2 == 0
    return Dataset(
        name="small",
        observations=random.normal(size=(rows, observations)).astype(np.float32),
        actions=random.uniform(-2, 2, (rows, actions)).astype(np.float32),
        rewards=random.normal(size=rows).astype(np.float32),
        next_observations=random.normal(size=(rows, observations)).astype(np.float32),
        terminals=last & even,
        timeouts=last & ~even,
        trainable=np.ones(rows, dtype=bool),
        action_low=np.full(actions, -2, dtype=np.float32),
        action_high=np.full(actions, 2, dtype=np.float32),
    )

"""Episodes of a policy as a dataset: what it does where it is played, row by row."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from data.dataset import Dataset, Environment
from rl.deployment import Policy
from rl.envs.evaluation import make_batch


def rollouts(
    policy: Policy, environments: Sequence[Environment], episodes: int, seed: int, max_steps: int, like: Dataset
) -> Dataset:
    """`episodes` of the (one) policy in each environment, deterministic actions; columns and units as in `like`."""
    played = [part for e in environments for part in _play(policy, e, episodes, seed, max_steps)]
    columns = {name: np.concatenate([part[name] for part in played]) for name in played[0]}
    return replace(
        like, name="rollouts", trainable=np.ones(len(columns["rewards"]), bool), shifted=False, columns={}, **columns
    )


def _play(policy: Policy, environment: Environment, episodes: int, seed: int, max_steps: int) -> list[dict]:
    """All episodes of one environment side by side; each is cut off where it ends."""
    batch = make_batch(environment, episodes)
    observations, _ = batch.reset(seed=[seed + episode for episode in range(episodes)])
    steps: list[tuple] = []
    length = np.zeros(episodes, dtype=int)
    running = np.ones(episodes, dtype=bool)
    while running.any() and len(steps) < max_steps:
        actions = policy.act(observations[None])[0]
        following, rewards, terminated, truncated, _ = batch.step(actions)
        steps.append((observations, actions, rewards, following, terminated))
        length[running] += 1
        running &= ~(terminated | truncated)
        observations = following
    batch.close()
    names = ("observations", "actions", "rewards", "next_observations", "terminals")
    stacked = {name: np.stack([step[i] for step in steps]) for i, name in enumerate(names)}  # [T, E, …]
    parts = []
    for episode, count in enumerate(length):
        part = {name: values[:count, episode] for name, values in stacked.items()}
        part = {name: values.astype(bool if name == "terminals" else np.float32) for name, values in part.items()}
        part["timeouts"] = np.arange(count) == count - 1
        part["timeouts"] &= ~part["terminals"]
        parts.append(part)
    return parts

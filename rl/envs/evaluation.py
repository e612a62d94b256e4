"""Online evaluation: deterministic policies of K clients in batched Gymnasium environments."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import gymnasium as gym
import numpy as np

from data.dataset import Environment
from data.errors import InputError
from rl.deployment import Policy

LARGEST_BATCH = 1024  # episodes at once
COLUMNS = ("returns", "discounted", "unseen", "lengths")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """E episodes of each of K policies in each of V environments."""

    returns: np.ndarray  # [K, V, E] undiscounted
    discounted: np.ndarray  # [K, V, E] Σ γᵗ rₜ, γ the evaluator's discount
    unseen: np.ndarray  # [K, V, E] γᵀ where an episode was stopped after T steps, 0 where the task ended
    lengths: np.ndarray  # [K, V, E]
    metrics: dict[str, np.ndarray]  # name → [K, V, E]: what the environments say of an episode when it ends


class Evaluator:
    """Plays the same E initial states for every policy and every round: differences are the policy's."""

    def __init__(
        self, environments: Sequence[Environment], episodes: int, seed: int, max_steps: int, discount: float = 1.0
    ):
        self.environments, self.episodes, self.seed, self.max_steps = environments, episodes, seed, max_steps
        self.discount = discount
        self.batches: list[gym.vector.VectorEnv] = []

    def __call__(self, policy: Policy) -> Evaluation:
        """Many policies are played a group at a time."""
        group = max(1, LARGEST_BATCH // (self.episodes * len(self.environments)))
        parts = [self._play(replace(policy, theta=theta)) for theta in policy.theta.split(group)]
        metrics = {name: np.concatenate([part.metrics[name] for part in parts]) for name in parts[0].metrics}
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
        return Evaluation(**columns, metrics=metrics)

    def _play(self, policy: Policy) -> Evaluation:
        """All environments step by step side by side: one call of the policy serves them all."""
        clients, episodes = len(policy.theta), self.episodes
        seeds = [self.seed + episode for _ in range(clients) for episode in range(episodes)]
        played = [_Episodes(batch, seeds, self.discount) for batch in self._batches(clients * episodes)]
        for _ in range(self.max_steps):
            running = [part for part in played if part.running.any()]
            if not running:
                break
            observations = np.stack([part.observations for part in running])  # [R, K · E, S]
            by_client = observations.reshape(len(running), clients, episodes, -1).swapaxes(0, 1)
            actions = policy.act(by_client.reshape(clients, len(running) * episodes, -1))
            by_part = actions.reshape(clients, len(running), episodes, -1).swapaxes(0, 1)
            for part, chosen in zip(running, by_part, strict=True):
                part.step(chosen.reshape(clients * episodes, -1))

        def arranged(columns: list[np.ndarray]) -> np.ndarray:
            return np.stack([column.reshape(clients, episodes) for column in columns], axis=1)

        names = sorted(set.intersection(*(set(part.metrics) for part in played)))
        return Evaluation(
            **{name: arranged([getattr(part, name) for part in played]) for name in COLUMNS},
            metrics={name: arranged([part.metrics[name] for part in played]) for name in names},
        )

    def _batches(self, count: int) -> list[gym.vector.VectorEnv]:
        if not self.batches or self.batches[0].num_envs != count:
            self.close()
            self.batches = [make_batch(environment, count) for environment in self.environments]
        return self.batches

    def close(self) -> None:
        for batch in self.batches:
            batch.close()
        self.batches = []


class _Episodes:
    """One episode in each environment of a batch."""

    def __init__(self, batch: gym.vector.VectorEnv, seeds: list[int], discount: float):
        self.batch, self.discount = batch, discount
        self.observations, _ = batch.reset(seed=seeds)
        self.returns, self.lengths = np.zeros(batch.num_envs), np.zeros(batch.num_envs, dtype=np.int64)
        self.discounted, self.unseen = np.zeros(batch.num_envs), np.ones(batch.num_envs)
        self.running = np.ones(batch.num_envs, dtype=bool)
        names = batch.metadata.get("episode_metrics", ())
        self.metrics = {name: np.full(batch.num_envs, np.nan) for name in names}

    def step(self, actions: np.ndarray) -> None:
        finite = np.isfinite(actions).all(axis=1)
        for values in (self.returns, self.discounted):
            values[self.running & ~finite] = np.nan  # a policy that is no policy any more
        self.running &= finite
        self.observations, rewards, terminated, truncated, infos = self.batch.step(np.nan_to_num(actions))
        self.returns[self.running] += rewards[self.running]
        self.discounted[self.running] += (self.unseen * rewards)[self.running]
        self.unseen[self.running] *= np.where(terminated, 0.0, self.discount)[self.running]
        self.lengths[self.running] += 1
        for name, values in self.metrics.items():
            if name in infos:
                values[self.running] = infos[name][self.running]
        self.running &= ~(terminated | truncated)  # an environment that is done starts again; it no longer counts


def make_batch(environment: Environment, count: int) -> gym.vector.VectorEnv:
    """`count` copies: natively batched where the environment is, one after another where it is not."""
    try:
        return gym.make_vec(environment.id, num_envs=count, **environment.kwargs)
    except (gym.error.Error, ImportError, TypeError) as error:
        raise InputError(
            f"The environment '{environment.id}' cannot be made ({error}); name another with data.env=… or "
            "data.held_out=[…], or switch evaluation off with eval=none."
        ) from error


def check(environment: Environment, observation_size: int, action_size: int) -> None:
    """Fail now rather than after the first round of training."""
    batch = make_batch(environment, 1)
    batch.close()
    for what, space, size in (
        ("observations", batch.single_observation_space, observation_size),
        ("actions", batch.single_action_space, action_size),
    ):
        if space.shape != (size,):
            raise InputError(
                f"The environment '{environment.id}' has {what} of shape {space.shape} but the data have {size}; "
                "make it with the settings of the logs, or name another."
            )


def with_references(environment: Environment) -> Environment:
    """The environment with the returns that score 0 and 100 there: racing measures them, with drivers of its own."""
    if environment.references is not None or not environment.id.startswith("FedRacing/"):
        return environment
    from rl.envs.racing.references import references  # drivers and simulator are compiled only where they are needed

    return replace(environment, references=references(environment.id, dict(environment.kwargs)))

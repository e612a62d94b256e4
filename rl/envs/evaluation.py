"""Online evaluation: deterministic policies of K clients in batched Gymnasium environments."""

from dataclasses import dataclass, replace

import gymnasium as gym
import numpy as np

from data.errors import InputError
from rl.deployment import Policy

LARGEST_BATCH = 256  # environments at once


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Undiscounted returns and lengths of E episodes for each of K policies."""

    returns: np.ndarray  # [K, E]
    lengths: np.ndarray  # [K, E]


class Evaluator:
    """Plays the same E initial states for every policy and every round: differences are the policy's."""

    def __init__(self, env_id: str, episodes: int, seed: int, max_steps: int):
        self.env_id, self.episodes, self.seed, self.max_steps = env_id, episodes, seed, max_steps
        self.envs: gym.vector.VectorEnv | None = None

    def check(self) -> None:
        """Fail now rather than after the first round of training."""
        make_environments(self.env_id, 1).close()

    def __call__(self, policy: Policy) -> Evaluation:
        """Many policies are played a group at a time, each group in one batch of environments."""
        group = max(1, LARGEST_BATCH // self.episodes)
        played = [self._play(replace(policy, theta=theta)) for theta in policy.theta.split(group)]
        returns, lengths = ([getattr(part, name) for part in played] for name in ("returns", "lengths"))
        return Evaluation(np.concatenate(returns), np.concatenate(lengths))

    def _play(self, policy: Policy) -> Evaluation:
        clients = len(policy.theta)
        envs = self._environments(clients * self.episodes)
        seeds = [self.seed + episode for _ in range(clients) for episode in range(self.episodes)]
        observations, _ = envs.reset(seed=seeds)
        returns, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, dtype=np.int64)
        running = np.ones(envs.num_envs, dtype=bool)
        for _ in range(self.max_steps):
            actions = policy.act(observations.reshape(clients, self.episodes, -1))
            observations, rewards, terminated, truncated, _ = envs.step(actions.reshape(envs.num_envs, -1))
            returns[running] += rewards[running]
            lengths[running] += 1
            running &= ~(terminated | truncated)  # an environment that is done starts again; it no longer counts
            if not running.any():
                break
        shape = (clients, self.episodes)
        return Evaluation(returns.reshape(shape), lengths.reshape(shape))

    def _environments(self, count: int) -> gym.vector.VectorEnv:
        if self.envs is None or self.envs.num_envs != count:
            self.close()
            self.envs = make_environments(self.env_id, count)
        return self.envs

    def close(self) -> None:
        if self.envs is not None:
            self.envs.close()
            self.envs = None


def make_environments(env_id: str, count: int) -> gym.vector.VectorEnv:
    """`count` copies: natively batched where the environment is, one after another where it is not."""
    try:
        return gym.make_vec(env_id, num_envs=count)
    except (gym.error.Error, ImportError) as error:
        raise InputError(
            f"The environment '{env_id}' cannot be made ({error}); name another with data.env=…, "
            "or switch evaluation off with eval=none."
        ) from error

"""Logs of Pendulum-v1 by drivers of four skills, written as a Minari dataset.

Real dynamics through Gymnasium, hand-written drivers: anyone can make the same logs, bit for bit, in seconds.
With θ = 0 upright, Pendulum-v1 is θ̈ = 15 sin θ + 3u, |u| ≤ 2. A driver pumps energy E = ½θ̇² + 15 cos θ
towards that of the upright rest, 15, and near the top balances with u = −(kθ θ + kω θ̇).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from data.dataset import References
from data.errors import InputError
from data.minari_writing import ensure_minari
from data.randomness import generator
from data.recipes import register

DATASET_ID = "fedrl/pendulum/mixed-v0"
ENV_ID = "Pendulum-v1"
EPISODES = 1_000
STEPS = 200  # Pendulum-v1's time limit
WIDTH = 100  # episodes that run side by side
UPRIGHT_ENERGY, MAX_TORQUE = 15.0, 2.0


@dataclass(frozen=True)
class Driver:
    """A controller and its exploration."""

    pump_gain: float = 0.0
    pump_torque: float = 0.0
    balance: tuple[float, float] = (0.0, 0.0)  # (kθ, kω)
    catch_torque: float = 0.0  # balance where that asks for less torque than this, else pump
    noise: float = 0.0  # standard deviation of Gaussian noise on the torque
    random_share: float = 0.0  # share of steps with a uniformly random torque


# (19.69, 5.26) is the discrete-time LQR gain at the top for the reward's own costs θ² + 0.1 θ̇² + 0.001 u².
EXPERT = Driver(1.0, MAX_TORQUE, (19.69, 5.26), catch_torque=8.0)
RANDOM = Driver(random_share=1.0)
DRIVERS = {
    "random": RANDOM,
    "weak": Driver(0.2, 0.7, noise=0.7, random_share=0.3),  # swings up, never balances
    "medium": Driver(0.5, 1.2, (8.0, 2.0), catch_torque=2.0, noise=0.5, random_share=0.3),
    "expert": Driver(1.0, MAX_TORQUE, (19.69, 5.26), catch_torque=8.0, noise=0.3, random_share=0.05),
}
SKILLS = tuple(DRIVERS)

# Mean returns that `measure_references` gave over 10,000 episodes each; constants, so that a score means the
# same for any number of logged episodes.
RANDOM_RETURN, EXPERT_RETURN, REFERENCE_EPISODES = -1224.33, -150.12, 10_000
VERSION = 1  # of the recipe; raise it when a change here changes the logs


@dataclass(frozen=True)
class Episodes:
    """Episodes that ran side by side."""

    observations: np.ndarray  # [n, STEPS + 1, 3] float32: cos θ, sin θ, θ̇
    actions: np.ndarray  # [n, STEPS, 1] float32
    rewards: np.ndarray  # [n, STEPS]


def torque(drivers: Sequence[Driver], observations: np.ndarray) -> np.ndarray:
    """[n] the noise-free torque that each driver asks for, before clipping."""
    cos, sin, speed = observations.T.astype(np.float64)
    gain, pump_limit, catch = np.array([(d.pump_gain, d.pump_torque, d.catch_torque) for d in drivers]).T
    angle_gain, speed_gain = np.array([d.balance for d in drivers]).T
    missing_energy = UPRIGHT_ENERGY - (0.5 * speed**2 + UPRIGHT_ENERGY * cos)
    # At rest the direction of the speed is neither way: pump to the right rather than not at all.
    pump = np.where(speed >= 0, 1.0, -1.0) * np.clip(gain * missing_energy, -pump_limit, pump_limit)
    balance = -(angle_gain * np.arctan2(sin, cos) + speed_gain * speed)
    return np.where(np.abs(balance) < catch, balance, pump)


def run(drivers: Sequence[Driver], seed: int, purpose: str) -> Iterator[Episodes]:
    """One episode for each driver, in blocks of WIDTH."""
    for block, first in enumerate(range(0, len(drivers), WIDTH)):
        yield _run_block(drivers[first : first + WIDTH], generator(seed, purpose, block))


def _run_block(drivers: Sequence[Driver], random: np.random.Generator) -> Episodes:
    import gymnasium

    n = len(drivers)
    noise, share = np.array([(driver.noise, driver.random_share) for driver in drivers]).T
    # Drawn at full width, so that an episode does not depend on how many come after it.
    starts = random.integers(2**31, size=WIDTH)[:n].tolist()
    normal = random.standard_normal((STEPS, WIDTH))[:, :n]
    chance = random.uniform(size=(STEPS, WIDTH))[:, :n]
    uniform = random.uniform(-MAX_TORQUE, MAX_TORQUE, (STEPS, WIDTH))[:, :n]
    observations = np.empty((n, STEPS + 1, 3), np.float32)
    actions = np.empty((n, STEPS, 1), np.float32)
    rewards = np.empty((n, STEPS))

    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(ENV_ID, disable_env_checker=True)] * n)
    observations[:, 0], _ = envs.reset(seed=starts)
    for t in range(STEPS):
        asked = torque(drivers, observations[:, t]) + noise * normal[t]
        chosen = np.where(chance[t] < share, uniform[t], asked)
        actions[:, t, 0] = np.clip(chosen, -MAX_TORQUE, MAX_TORQUE)
        observations[:, t + 1], rewards[:, t], _, _, _ = envs.step(actions[:, t])
    envs.close()
    return Episodes(observations, actions, rewards)


def measure_references(episodes: int, seed: int = 0) -> tuple[float, float]:
    """Mean returns of the random and of the noise-free expert driver."""
    low, high = (
        np.concatenate([block.rewards.sum(axis=1) for block in run([driver] * episodes, seed, purpose)]).mean()
        for driver, purpose in ((RANDOM, "pendulum reference random"), (EXPERT, "pendulum reference expert"))
    )
    return float(low), float(high)


def ensure_pendulum(dataset_id: str = DATASET_ID, episodes: int = EPISODES, seed: int = 0) -> str:
    """Make the logs unless they are there; gives the id that `load` and `minari.load_dataset` take."""
    if episodes < len(SKILLS):
        raise InputError(f"{episodes} episodes are too few; {len(SKILLS)} skills need at least one each.")
    if seed < 0:
        raise InputError(f"Seed {seed} is negative; choose 0 or more.")
    label = f"random and noise-free expert driver of data/pendulum.py, {REFERENCE_EPISODES:,} episodes each"
    return ensure_minari(
        dataset_id,
        {"episodes": episodes, "seed": seed, "version": VERSION},
        lambda: _episode_buffers(episodes, seed),
        env=ENV_ID,
        algorithm="energy-shaping swing-up with LQR balance, at four skills",
        references=lambda: References(RANDOM_RETURN, EXPERT_RETURN, label),
        labels={"skill": list(SKILLS)},
    )


def _episode_buffers(episodes: int, seed: int) -> list:
    from minari.data_collector import EpisodeBuffer
    from rich.console import Console
    from rich.progress import track

    skills = np.arange(episodes) % len(SKILLS)
    blocks = run([DRIVERS[SKILLS[skill]] for skill in skills], seed, "pendulum")
    console = Console(stderr=True)
    buffers = []
    for block in track(blocks, "Driving", total=-(-episodes // WIDTH), console=console):
        for i in range(len(block.rewards)):
            buffers.append(
                EpisodeBuffer(
                    observations=block.observations[i],
                    actions=block.actions[i],
                    rewards=block.rewards[i],
                    terminations=np.zeros(STEPS, bool),
                    truncations=np.arange(STEPS) == STEPS - 1,
                    # Minari logs one info more than steps, at the reset.
                    infos={"skill": np.full(STEPS + 1, skills[len(buffers)], np.int32)},
                )
            )
    return buffers


register(DATASET_ID, ensure_pendulum, [DATASET_ID], VERSION)

"""One episode to look at: its rewards, and its frames where the environment can draw them."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import gymnasium as gym
import imageio.v3 as imageio
import numpy as np
import torch
from matplotlib.figure import Figure

from data.errors import InputError
from rl.deployment import Policy

STILLS = 8
WITHOUT_A_SCREEN = {"MUJOCO_GL": "egl", "SDL_VIDEODRIVER": "dummy"}  # read when the first frame is drawn


@dataclass
class Episode:
    rewards: list[float] = field(default_factory=list)
    frames: list[np.ndarray] = field(default_factory=list)
    no_frames_because: str = ""


def play(policy: Policy, env_id: str, seed: int, max_steps: int, client: int = 0) -> Episode:
    """Play one episode with deterministic actions, drawing every step if the environment can."""
    for variable, value in WITHOUT_A_SCREEN.items():
        os.environ.setdefault(variable, value)
    module, episode = policy.module(client), Episode()
    env = gym.make(env_id, render_mode="rgb_array")
    observation, _ = env.reset(seed=seed)
    for _ in range(max_steps):
        _draw(env, episode)
        with torch.no_grad():
            action = module(torch.as_tensor(observation[None], dtype=torch.float32))[0].numpy()
        observation, reward, terminated, truncated, _ = env.step(action)
        episode.rewards.append(float(reward))
        if terminated or truncated:
            break
    return episode


def _draw(env: gym.Env, episode: Episode) -> None:
    if episode.no_frames_because:
        return
    try:
        episode.frames.append(env.render())
    except Exception as error:  # graphics drivers raise errors of their own kinds; the episode itself is sound
        episode.no_frames_because = f"{type(error).__name__} while drawing (MuJoCo needs EGL: install libegl1)"


def save_video(episode: Episode, path: Path, fps: int = 30) -> None:
    """An animated GIF, at most 300 pixels wide."""
    if not episode.frames:
        raise InputError(f"The episode cannot be drawn: {episode.no_frames_because}; --picture works without.")
    path.parent.mkdir(parents=True, exist_ok=True)
    step = max(1, episode.frames[0].shape[1] // 300)
    imageio.imwrite(path, [frame[::step, ::step] for frame in episode.frames], duration=1000 / fps, loop=0)


def save_picture(episode: Episode, returns: np.ndarray, path: Path, title: str) -> None:
    """Stills along the episode, its rewards, and the returns of all episodes played."""
    figure = Figure(figsize=(11, 4.6 if episode.frames else 2.8), layout="constrained")
    figure.suptitle(title)
    rows = figure.subfigures(2, 1, height_ratios=[1, 1.3]) if episode.frames else [None, figure]
    if episode.frames:
        picks = np.linspace(0, len(episode.frames) - 1, STILLS).astype(int)
        for axis, index in zip(rows[0].subplots(1, STILLS), picks, strict=True):
            axis.imshow(episode.frames[index])
            axis.set_title(f"step {index}", fontsize=8)
            axis.axis("off")
    left, right = rows[1].subplots(1, 2, width_ratios=[2, 1])
    left.plot(episode.rewards, color="#0072B2", linewidth=1.5)
    left.set(xlabel="step of the first episode", ylabel="reward")
    right.hist(returns, bins=min(20, max(5, len(returns) // 4)), color="#0072B2", edgecolor="white")
    right.axvline(returns.mean(), color="#D55E00", linewidth=2, label=f"mean {returns.mean():.1f}")
    right.set(xlabel=f"return of {len(returns)} episodes", ylabel="episodes")
    right.legend(frameon=False)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)

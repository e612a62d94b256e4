"""One episode to look at: its rewards, and its frames where the environment can draw them."""

import os
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path

import gymnasium as gym
import imageio.v3 as imageio
import numpy as np
import torch
from matplotlib.figure import Figure

from data.dataset import Environment
from data.errors import InputError
from rl.deployment import Policy

STILLS = 8
WITH_A_TRACKING_CAMERA = ("Ant-", "HalfCheetah-", "Hopper-", "Humanoid-", "Swimmer-", "Walker2d-")
VIDEO_FRAMES = 250
WITHOUT_A_SCREEN = {"MUJOCO_GL": "egl", "SDL_VIDEODRIVER": "dummy"}  # read when the first frame is drawn


@dataclass
class Episode:
    rewards: list[float] = field(default_factory=list)
    frames: dict[int, np.ndarray] = field(default_factory=dict)  # step → picture
    no_frames_because: str = ""


def play(
    policy: Policy, environment: Environment, seed: int, max_steps: int, client: int = 0, draw: Container[int] = ()
) -> Episode:
    """Play one episode with deterministic actions, drawing the steps in `draw` if the environment can.

    Drawing a step may take longer than a thousand steps: play once to learn the length, then again to draw a few.
    """
    for variable, value in WITHOUT_A_SCREEN.items():
        os.environ.setdefault(variable, value)
    module, episode = policy.module(client), Episode()
    following = {"camera_name": "track"} if draw and environment.id.startswith(WITH_A_TRACKING_CAMERA) else {}
    env = gym.make(environment.id, render_mode="rgb_array" if draw else None, **following, **environment.kwargs)
    observation, _ = env.reset(seed=seed)
    for step in range(max_steps):
        if step in draw and not episode.no_frames_because:
            _draw(env, step, episode)
        with torch.no_grad():
            action = module(torch.as_tensor(observation[None], dtype=torch.float32))[0].numpy()
        observation, reward, terminated, truncated, _ = env.step(action)
        episode.rewards.append(float(reward))
        if terminated or truncated:
            break
    return episode


def evenly(steps: int, count: int) -> set[int]:
    """`count` steps of an episode, or all if it is shorter, from the first to the last."""
    return set(np.linspace(0, steps - 1, min(count, steps)).round().astype(int).tolist())


def _draw(env: gym.Env, step: int, episode: Episode) -> None:
    try:
        episode.frames[step] = env.render()
    except Exception as error:  # graphics drivers raise errors of their own kinds; the episode itself is sound
        episode.no_frames_because = f"{type(error).__name__} while drawing (MuJoCo needs EGL: install libegl1)"


def save_video(episode: Episode, path: Path, fps: int = 30) -> None:
    """An animated GIF, at most about 300 pixels wide."""
    if not episode.frames:
        raise InputError(f"The episode cannot be drawn: {episode.no_frames_because}; --picture works without.")
    path.parent.mkdir(parents=True, exist_ok=True)
    frames = list(episode.frames.values())
    every = max(1, frames[0].shape[1] // 300)
    imageio.imwrite(path, [frame[::every, ::every] for frame in frames], duration=1000 / fps, loop=0)


def save_picture(episode: Episode, returns: np.ndarray, path: Path, title: str) -> None:
    """Stills along the episode, its rewards, and the returns of all episodes played."""
    figure = Figure(figsize=(11, 4.6 if episode.frames else 2.8), layout="constrained")
    figure.suptitle(title)
    rows = figure.subfigures(2, 1, height_ratios=[1, 1.3]) if episode.frames else [None, figure]
    if episode.frames:
        shown = sorted(evenly(len(episode.frames), STILLS))
        for axis, index in zip(rows[0].subplots(1, len(shown)), shown, strict=True):
            step, frame = list(episode.frames.items())[index]
            axis.imshow(frame)
            axis.set_title(f"step {step}", fontsize=8)
            axis.axis("off")
    left, right = rows[1].subplots(1, 2, width_ratios=[2, 1])
    left.plot(episode.rewards, color="#0072B2", linewidth=1.5)
    left.set(xlabel="step of the first episode", ylabel="reward")
    right.hist(returns, bins=min(20, max(5, len(returns) // 4)), color="#0072B2", edgecolor="white")
    right.axvline(returns.mean(), color="#D55E00", linewidth=2)
    right.set_title(f"mean {returns.mean():.1f}", color="#D55E00", fontsize=10)
    right.yaxis.get_major_locator().set_params(integer=True)
    right.set(xlabel=f"return of {len(returns)} episodes", ylabel="episodes")
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)

import imageio.v3 as imageio
import numpy as np
import pytest
import torch

from data.dataset import Environment
from data.errors import InputError
from rl.deployment import Policy
from rl.envs.episode import Episode, evenly, play, save_picture, save_video
from rl.networks import MLP
from rl.policies import TanhGaussian

PENDULUM = Environment("Pendulum-v1")


@pytest.fixture
def policy() -> Policy:
    actor = TanhGaussian(MLP((3, 8, 2)))
    theta = torch.randn(1, actor.network.parameters, generator=torch.Generator().manual_seed(0))
    return Policy(actor, theta, torch.zeros(3), torch.ones(3), torch.tensor([-2.0]), torch.tensor([2.0]))


def test_an_episode_is_drawn_at_the_steps_asked_for_and_is_the_same_episode(policy, tmp_path):
    bare = play(policy, PENDULUM, seed=3, max_steps=1000)
    drawn = play(policy, PENDULUM, seed=3, max_steps=1000, draw=evenly(len(bare.rewards), 5))
    assert bare.rewards == drawn.rewards
    assert list(drawn.frames) == [0, 50, 100, 149, 199]
    save_video(drawn, tmp_path / "v.gif")
    assert len(imageio.imread(tmp_path / "v.gif")) == 5
    save_picture(drawn, np.array([-1.0, -2.0]), tmp_path / "p.png", "title")
    assert (tmp_path / "p.png").stat().st_size > 10_000


def test_without_frames_there_is_a_picture_and_no_video(tmp_path):
    blind = Episode(rewards=[0.0, 1.0], no_frames_because="EGLError while drawing")
    save_picture(blind, np.array([1.0, 2.0]), tmp_path / "p.png", "title")
    assert (tmp_path / "p.png").exists()
    with pytest.raises(InputError, match="EGLError while drawing"):
        save_video(blind, tmp_path / "v.gif")

import gymnasium as gym
import numpy as np
import pytest
import torch

from data.dataset import Environment
from data.errors import InputError
from rl.deployment import Policy
from rl.envs.evaluation import Evaluator
from rl.networks import MLP
from rl.policies import TanhGaussian

PENDULUM = Environment("Pendulum-v1")


@pytest.fixture
def policy() -> Policy:
    actor = TanhGaussian(MLP((3, 8, 2)))
    theta = torch.randn(2, actor.network.parameters, generator=torch.Generator().manual_seed(0))
    bound = torch.tensor([2.0])
    return Policy(actor, theta, torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1.0, 2.0, 3.0]), -bound, bound)


def test_returns_are_those_of_playing_one_environment_at_a_time(policy):
    evaluation = Evaluator([PENDULUM], episodes=2, seed=7, max_steps=1000)(policy)
    assert (evaluation.lengths == 200).all()
    for k in range(2):
        module = policy.module(k)
        for episode in range(2):
            env = gym.make("Pendulum-v1")
            observation, _ = env.reset(seed=7 + episode)
            total, done = 0.0, False
            while not done:
                with torch.no_grad():
                    action = module(torch.from_numpy(observation[None]))[0].numpy()
                observation, reward, terminated, truncated, _ = env.step(action)
                total, done = total + reward, terminated or truncated
            assert evaluation.returns[k, 0, episode] == pytest.approx(total, rel=1e-3)


def test_an_episode_counts_until_its_first_end(policy):
    """Hopper falls early and is started again by the vector environment; what follows must not be added."""
    actor = TanhGaussian(MLP((11, 8, 6)))
    zero = torch.zeros(1, actor.network.parameters)
    still = Policy(actor, zero, torch.zeros(11), torch.ones(11), -torch.ones(3), torch.ones(3))
    evaluation = Evaluator([Environment("Hopper-v5")], episodes=3, seed=0, max_steps=2000, discount=0.9)(still)
    env = gym.make("Hopper-v5")
    for episode in range(3):
        env.reset(seed=episode)
        total, discounted, steps, done = 0.0, 0.0, 0, False
        while not done:
            _, reward, terminated, truncated, _ = env.step(np.zeros(3))
            total, discounted = total + reward, discounted + 0.9**steps * reward
            steps, done = steps + 1, terminated or truncated
        assert evaluation.lengths[0, 0, episode] == steps
        assert evaluation.returns[0, 0, episode] == pytest.approx(total)
        assert evaluation.discounted[0, 0, episode] == pytest.approx(discounted)
        assert evaluation.unseen[0, 0, episode] == 0  # it fell: nothing was to follow


def test_what_a_limit_cuts_off_is_weighed(policy):
    evaluation = Evaluator([PENDULUM], episodes=2, seed=7, max_steps=1000, discount=0.99)(policy)
    np.testing.assert_allclose(evaluation.unseen, 0.99**200)
    stopped = Evaluator([PENDULUM], episodes=2, seed=7, max_steps=50, discount=0.99)(policy)
    np.testing.assert_allclose(stopped.unseen, 0.99**50)


def test_environments_played_side_by_side_are_those_played_alone(policy):
    """Pendulums of two lengths of gravity, one ending earlier: each as if it were the only one."""
    moon, short = Environment("Pendulum-v1", {"g": 1.6}), Environment("Pendulum-v1", {"max_episode_steps": 50})
    settings = {"episodes": 2, "seed": 7, "max_steps": 1000}
    together = Evaluator([PENDULUM, moon, short], **settings)(policy)
    assert together.returns.shape == (2, 3, 2)
    for v, environment in enumerate((PENDULUM, moon, short)):
        alone = Evaluator([environment], **settings)(policy)
        np.testing.assert_allclose(together.returns[:, v], alone.returns[:, 0], rtol=1e-4)
        assert np.array_equal(together.lengths[:, v], alone.lengths[:, 0])
    assert not np.allclose(together.returns[:, 0], together.returns[:, 1])


def test_what_an_environment_says_of_an_episode_is_of_its_end():
    """At full speed straight ahead cars crash one after another; each starts anew, which must not count."""
    actor = TanhGaussian(MLP((27, 8, 4)))
    ahead = torch.tensor([0.0, 8.0])
    blind = Policy(actor, torch.zeros(1, actor.network.parameters), torch.zeros(27), torch.ones(27), ahead, ahead)
    oval = Environment("FedRacing/Oval-v0", {"observation": "frenet"})
    played = Evaluator([oval], episodes=6, seed=0, max_steps=2000)(blind)
    assert len(set(played.lengths.ravel())) > 1
    assert (played.metrics["crashed"] == 1).all()
    np.testing.assert_allclose(100 * played.metrics["progress"], played.returns, atol=1e-9)
    assert np.isnan(played.metrics["lap_time"]).all()


def test_evaluation_is_deterministic(policy):
    evaluator = Evaluator([PENDULUM], episodes=3, seed=0, max_steps=1000)
    assert np.array_equal(evaluator(policy).returns, evaluator(policy).returns)


def test_an_unknown_environment_is_a_sentence(policy):
    with pytest.raises(InputError, match=r"'Pendulum-v9' cannot be made.*data\.env="):
        Evaluator([Environment("Pendulum-v9")], episodes=1, seed=0, max_steps=10)(policy)

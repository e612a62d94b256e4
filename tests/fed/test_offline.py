"""Off-policy evaluation of a run: the same values as play, where both can be known."""

import h5py
import numpy as np
import pytest
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.envs.registration import register, registry

from data.errors import InputError
from fed.offline import FQESettings, LoggedRun, played_values
from fed.trained import TrainedRun
from metrics.ratios import ratio_estimates

RATIOS = ["algo=bc", "algo._target_=tests.fed.ratio_learner.RatioLearner", "algo.lr=0.01"]


class ConstantReward(PendulumEnv):
    """Every step earns 2: V is 2/(1 − γ), whatever the policy."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, 2.0, *rest


@pytest.fixture(scope="module", autouse=True)
def constant_environment():
    register("ConstantReward-v0", ConstantReward, max_episode_steps=20)
    yield
    del registry["ConstantReward-v0"]


@pytest.fixture
def constant_file(pendulum_file, tmp_path):
    path = tmp_path / "constant.hdf5"
    with h5py.File(pendulum_file) as old, h5py.File(path, "w") as new:
        for name in old:
            new[name] = old[name][:]
        new["rewards"][:] = 2.0
        new.attrs["env"] = "ConstantReward-v0"
    return path


def logged(folder) -> LoggedRun:
    return LoggedRun.load(folder.path, TrainedRun.load(folder.path))


@pytest.mark.parametrize("fed", ["fedavg", "local"])
def test_fitted_and_played_values_are_2_over_1_minus_gamma(configure, run, constant_file, fed):
    folder = run(configure(f"data.path={constant_file}", "algo=bc", f"fed={fed}", "rounds=1", "updates_per_round=50"))
    trained = TrainedRun.load(folder.path)
    values, earlier = logged(folder).fitted_values(FQESettings(gamma=0.9, updates=600, batch_size=32, lr=3e-3))
    starts = logged(folder).experiment.shards.starts
    assert len(starts) == 12
    assert values[starts].mean() == pytest.approx(20, rel=0.05)
    assert earlier[starts].mean() == pytest.approx(20, rel=0.1)
    assert np.isnan(np.delete(values, starts)).all()
    played, unseen = played_values(trained, gamma=0.9, episodes=2, seed=0)  # longer than the limit of 20 steps
    np.testing.assert_allclose(played, 20, rtol=0.01)
    assert unseen < 0.002
    assert played.shape[:2] == (1 if fed == "fedavg" else 4, 1)


def test_values_are_in_the_logs_units_whatever_the_reward_scale(configure, run, pendulum_file, tmp_path):
    path = tmp_path / "tenfold.hdf5"
    with h5py.File(pendulum_file) as old, h5py.File(path, "w") as new:
        for name in old:
            new[name] = old[name][:] * (10 if name == "rewards" else 1)
        new.attrs["env"] = "Pendulum-v1"
    settings = FQESettings(gamma=0.5, updates=60, batch_size=32)
    means = []
    for name, source in (("one", pendulum_file), ("ten", path)):
        offline = logged(run(configure(f"data.path={source}", "algo=bc", "rounds=1", "eval=none", out=name)))
        means.append(np.nanmean(offline.fitted_values(settings)[0]))
    assert means[1] == pytest.approx(10 * means[0], rel=1e-3)


def test_ratio_estimates_weigh_the_logs_rewards(configure, run):
    offline = logged(run(configure(*RATIOS, "rounds=2")))
    ratios, rewards = offline.density_ratios(), offline.experiment.dataset.rewards
    coefficient = offline.state["coefficient"].item()
    expected = np.exp(coefficient * rewards * offline.experiment.normaliser.reward_scale)
    np.testing.assert_allclose(ratios, expected, rtol=1e-4)
    plain, normalised = ratio_estimates(ratios, rewards)
    assert plain == pytest.approx((expected * rewards).mean(), rel=1e-4)
    assert normalised == pytest.approx((expected * rewards).sum() / expected.sum(), rel=1e-4)
    assert normalised > rewards.mean()


def test_a_learner_without_ratios_has_no_ratio_estimate(configure, run):
    assert logged(run(configure("algo=bc", "rounds=1"))).density_ratios() is None


def test_lines_share_the_initial_states_out(configure, run):
    shared = logged(run(configure("rounds=1"))).lines()
    assert [(line.name, len(line.starts)) for line in shared] == [("Pendulum-v1", 12)]
    own = logged(run(configure("rounds=1", "fed=local", out="local"))).lines()
    assert [line.name for line in own] == [f"client {k}" for k in range(4)]
    assert sum(len(line.starts) for line in own) == 12
    assert sorted(np.concatenate([line.starts for line in own])) == sorted(shared[0].starts)


def test_changed_data_are_refused(configure, run, pendulum_file, tmp_path):
    path = tmp_path / "own.hdf5"
    path.write_bytes(pendulum_file.read_bytes())
    folder = run(configure(f"data.path={path}", "rounds=1"))
    with h5py.File(path, "r+") as file:
        file["rewards"][3] = 0.0
    with pytest.raises(InputError, match="has changed since the run"):
        logged(folder)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"gamma": 1.0}, "--gamma is 1.0; it must be at least 0 and below 1"),
        ({"gamma": 0.9, "updates": 0}, "--updates is 0; it must be at least 1"),
        ({"gamma": 0.9, "batch_size": 0}, "--batch-size is 0"),
        ({"gamma": 0.9, "lr": 0.0}, "--lr is 0.0; it must be above 0"),
    ],
)
def test_settings_out_of_range_are_a_sentence(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        FQESettings(**settings)

"""Racing through Gymnasium: single and vector environments, seeds, ends of episodes, rewards, settings."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import rl.envs
from data.errors import InputError
from rl.envs.racing.named import TRACKS
from rl.envs.racing.track import Track
from tests.rl.racing.rooms import lane_keeping, ring

OVAL = "FedRacing/Oval-v0"
ROOT = Path(__file__).parents[3]


def rollout(env: gym.Env, steps: int, seed: int | None = None) -> list:
    """Observations, rewards and ends under actions that are the same for the same seed."""
    random = np.random.default_rng(0)
    observation, info = env.reset(seed=seed)
    rows = [(observation, 0.0, False, False, info)]
    for _ in range(steps):
        action = random.uniform([-0.05, 1.0], [0.1, 5.0]).astype(np.float32)
        rows.append(env.step(action))
        if rows[-1][2] or rows[-1][3]:
            rows.append((*env.reset()[:1], 0.0, False, False, {}))
    return rows


@pytest.mark.parametrize(
    "settings",
    [{}, {"observation": "frenet"}, {"car": "noisy", "reward": "cth", "beams": 1, "stack": 1}, {"reward": "lap"}],
)
def test_gymnasiums_checker_accepts_the_environment(settings):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(symmetric and normalized|infinity).*")
        check_env(gym.make(OVAL, **settings).unwrapped, skip_render_check=True)
        check_env(gym.make(OVAL, render_mode="rgb_array", **settings).unwrapped)


def test_every_track_is_registered_single_and_vector():
    for name in TRACKS:
        spec = gym.spec(f"FedRacing/{name}-v0")
        assert spec.entry_point
        assert spec.vector_entry_point
    assert gym.make(f"FedRacing/{TRACKS[-1]}-v0").unwrapped.simulator.tracks[0].name == TRACKS[-1]


def test_importing_the_ids_does_not_import_the_compiler():
    code = "import sys, rl.envs; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_any_track_file_is_an_environment(tmp_path):
    file = tmp_path / "circle.csv"
    angle = np.linspace(0, 2 * np.pi, 100, endpoint=False)
    rows = np.stack([8 * np.cos(angle), 8 * np.sin(angle), np.full(100, 1.2), np.full(100, 1.2)], axis=1)
    np.savetxt(file, rows, delimiter=", ", header="x_m, y_m, w_tr_right_m, w_tr_left_m")
    env = gym.make(rl.envs.CUSTOM, track=str(file), observation="frenet", car="deepracer", substeps=7)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    assert env.unwrapped.simulator.time[0] == pytest.approx(0.07)
    assert env.action_space.high[0] == pytest.approx(np.radians(30))
    assert env.unwrapped.simulator.tracks[0].centreline.length == pytest.approx(16 * np.pi, rel=1e-3)


def test_a_spec_survives_json_and_makes_the_same_environment():
    settings = {
        "car": {"base": "wet", "grip": 0.4},
        "observation": "frenet",
        "look_ahead": [1.0, 2.0],
        "speeds": [1, 6],
    }
    env = gym.make(OVAL, **settings)
    spec = EnvSpec.from_json(env.spec.to_json())
    assert json.loads(env.spec.to_json())["kwargs"]["car"] == settings["car"]
    other = gym.make(spec)
    assert other.unwrapped.simulator.cars == env.unwrapped.simulator.cars
    assert other.observation_space == env.observation_space
    assert other.action_space == env.action_space


def test_a_seed_reproduces_an_episode_and_another_does_not():
    one, again, other = (rollout(gym.make(OVAL, car="noisy"), 80, seed) for seed in (5, 5, 6))
    for a, b in zip(one, again, strict=True):
        assert np.array_equal(a[0], b[0])
        assert a[1:] == b[1:]
    assert not np.array_equal(one[0][0], other[0][0])


def test_the_next_episode_differs_without_a_new_seed():
    env = gym.make(OVAL)
    first, _ = env.reset(seed=5)
    second, _ = env.reset()
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("settings", [{}, {"observation": "frenet", "reward": "cth"}, {"reward": "lap", "car": "wet"}])
def test_the_vector_environment_is_single_ones_side_by_side(settings):
    count, steps = 5, 150
    envs = gym.make_vec("FedRacing/Hairpins-v0", num_envs=count, max_steps=60, **settings)
    reference = gym.make_vec(
        "FedRacing/Hairpins-v0", num_envs=count, vectorization_mode="sync", max_steps=60, **settings
    )
    random = np.random.default_rng(1)
    one, infos = envs.reset(seed=11)
    other, other_infos = reference.reset(seed=11)
    assert np.array_equal(one, other)
    ended = 0
    for _ in range(steps):
        actions = random.uniform([-0.2, 1.0], [0.2, 8.0], (count, 2)).astype(np.float32)
        one, *ends, infos = envs.step(actions)
        other, *other_ends, other_infos = reference.step(actions)
        assert np.array_equal(one, other)
        for a, b in zip(ends, other_ends, strict=True):
            assert np.array_equal(a, b)
        for name in ("progress", "laps", "crashed"):
            assert np.array_equal(infos[name], other_infos[name])
            assert np.array_equal(infos[f"_{name}"], other_infos[f"_{name}"])
        ended += (ends[1] | ends[2]).sum()
    assert ended > count  # ends, resets and second episodes were compared too
    envs.close()


def test_an_ended_environment_is_reset_by_the_next_step_with_reward_zero():
    envs = gym.make_vec(OVAL, num_envs=3, max_steps=4)
    assert envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    envs.reset(seed=0)
    forward = np.tile(np.float32([0.0, 3.0]), (3, 1))
    for _ in range(4):
        observations, rewards, terminated, truncated, infos = envs.step(forward)
    assert truncated.all()
    assert not terminated.any()
    assert (infos["progress"] > 0).all()
    assert (rewards > 0).all()
    fresh, rewards, terminated, truncated, infos = envs.step(forward)
    assert not (terminated | truncated).any()
    assert not rewards.any()
    assert not infos["progress"].any()
    assert not np.array_equal(fresh, observations)
    assert not fresh[:, -2].any()  # at rest again


def test_a_reset_mask_resets_only_those_it_names():
    envs = gym.make_vec(OVAL, num_envs=3)
    envs.reset(seed=0)
    observations, *_ = envs.step(np.tile(np.float32([0.0, 3.0]), (3, 1)))
    after, infos = envs.reset(seed=[None, 7, None], options={"reset_mask": np.array([False, True, False])})
    assert np.array_equal(after[[0, 2]], observations[[0, 2]])
    assert not np.array_equal(after[1], observations[1])
    assert infos["_progress"].tolist() == [False, True, False]


def test_a_vector_environment_takes_a_list_of_tracks_and_cars():
    tracks, cars = ["Oval", "Esses", "Oval"], ["wet", "nominal", {"mass": 5.0}]
    envs = gym.make_vec(rl.envs.CUSTOM, num_envs=3, track=tracks, car=cars)
    observations, _ = envs.reset(seed=[1, 2, 3])
    for i in range(3):
        alone, _ = gym.make(rl.envs.CUSTOM, track=tracks[i], car=cars[i]).reset(seed=i + 1)
        assert np.array_equal(observations[i], alone)


def test_a_crash_terminates_and_time_truncates():
    env = gym.make(OVAL, max_steps=300)
    env.reset(seed=0)
    for _ in range(300):
        _, _, terminated, truncated, info = env.step(np.float32([0.4, 4.0]))
        if terminated or truncated:
            break
    assert (terminated, truncated, info["crashed"]) == (True, False, True)
    env.reset(seed=0)
    ends = [env.step(np.float32([0.0, 0.0]))[2:4] for _ in range(300)]
    assert ends == [(False, False)] * 299 + [(False, True)]


def test_enough_laps_end_an_episode_and_info_tells_their_mean_time():
    env = gym.make(OVAL, laps=2, max_steps=5000, reward="lap", start="line")
    _, info = env.reset(seed=0)
    simulator, rewards, times = env.unwrapped.simulator, [], []
    assert "lap_time" not in info
    truncated = False
    while not truncated:
        laps = info["laps"]
        _, reward, terminated, truncated, info = env.step(lane_keeping(simulator, 4.0)[0])
        assert not terminated
        rewards.append(reward)
        if info["laps"] > laps:
            times.append(simulator.lap_time[0])
    assert info["laps"] == 2
    assert info["lap_time"] == pytest.approx(np.mean(times))
    assert sum(rewards) == 2.0
    assert len(rewards) * 0.04 == pytest.approx(sum(times), abs=0.04)


def test_rewards_are_what_they_are_called():
    envs = {name: gym.make(OVAL, reward=name, observation="frenet") for name in ("progress", "cth", "lap")}
    observations = {name: env.reset(seed=3)[0] for name, env in envs.items()}
    moved = 0.0
    while True:
        action = lane_keeping(envs["cth"].unwrapped.simulator, 4.0)[0] if moved < 20 else np.array([0.0, 4.0])
        rewards, ended = {}, False
        for name, env in envs.items():
            observations[name], rewards[name], ended, _, info = env.step(action)
        moved += rewards["progress"]
        offset, _, cos, speed = observations["cth"][:4].astype(np.float64)
        assert rewards["cth"] == pytest.approx(max(speed / 8 * cos - abs(offset), 0))
        assert rewards["lap"] == (-1.0 if ended else 0.0)
        if ended:
            break
    assert moved == pytest.approx(100 * info["progress"])
    assert moved > 20


def test_a_scan_observation_is_the_newest_scan_the_one_before_speed_and_yaw_rate():
    env = gym.make(OVAL, beams=20, stack=3)
    first, _ = env.reset(seed=0)
    assert first.shape == (62,)
    assert np.array_equal(first[:20], first[40:60])
    second, *_ = env.step(np.float32([0.1, 3.0]))
    third, *_ = env.step(np.float32([0.1, 3.0]))
    assert np.array_equal(third[20:40], second[:20])
    assert np.array_equal(third[40:60], first[:20])
    assert third[60:] == pytest.approx(env.unwrapped.simulator.state[0, [3, 5]], rel=1e-6)


def test_returned_arrays_are_the_callers_own():
    envs = gym.make_vec(OVAL, num_envs=2)
    observations, infos = envs.reset(seed=0)
    kept = observations.copy(), infos["progress"].copy()
    envs.step(np.tile(np.float32([0.0, 3.0]), (2, 1)))
    assert np.array_equal(observations, kept[0])
    assert np.array_equal(infos["progress"], kept[1])


def test_the_picture_shows_road_car_and_wreck():
    env = gym.make(OVAL, render_mode="rgb_array")
    env.reset(seed=0)
    frame = env.render()
    assert (frame.dtype, frame.shape[2]) == (np.uint8, 3)
    assert all(side % 16 == 0 for side in frame.shape[:2])
    blue = (frame == (30, 90, 200)).all(axis=2)
    car, track = env.unwrapped.simulator.cars[0], env.unwrapped.simulator.tracks[0]
    scale = env.unwrapped.picture.scale
    assert blue.sum() == pytest.approx(car.length * car.width * scale**2, rel=0.25)
    row, column = np.argwhere(blue).mean(axis=0)
    top = track.origin[1] + len(track.distance) * track.resolution
    place = track.origin[0] + column / scale, top - row / scale
    assert place == pytest.approx(env.unwrapped.simulator.state[0, :2], abs=2 / scale)
    while not env.step(np.float32([0.4, 4.0]))[2]:
        pass
    assert (env.render() == (208, 0, 0)).all(axis=2).any()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"car": "wett"}, "did you mean 'wet'"),
        ({"car": {"gripp": 1.0}}, "did you mean 'grip'"),
        ({"track": "Ovall"}, "did you mean 'Oval'"),
        ({"observation": "scans"}, "did you mean 'scan'"),
        ({"reward": "progres"}, "did you mean 'progress'"),
        ({"start": "lin"}, "did you mean 'line'"),
        ({"tyres": "brushes"}, "did you mean 'brush'"),
        ({"beam": 54}, "did you mean 'beams'"),
        ({"beams": 0}, "whole number of at least 1"),
        ({"max_steps": 1.5}, "whole number of at least 1"),
        ({"laps": 0}, "whole number of at least 1"),
    ],
)
@pytest.mark.parametrize("make", [gym.make, gym.make_vec])
def test_a_wrong_setting_is_a_sentence_with_the_nearest(make, settings, sentence):
    with pytest.raises(InputError, match=sentence):
        make(OVAL, **settings)


def test_a_custom_track_must_be_named():
    with pytest.raises(InputError, match="No track is named"):
        gym.make(rl.envs.CUSTOM)


def test_a_track_of_ones_own_needs_no_file():
    from rl.envs.racing.cars import CARS
    from rl.envs.racing.race import Race, Rules

    own: Track = ring()
    race = Race([own], [CARS["nominal"]], Rules(observation="frenet"))
    race.reset(np.array([0]), [1])
    rewards, *_ = race.step(np.array([[0.0, 2.0]]))
    assert rewards[0] > 0


def test_a_crash_at_the_last_step_terminates_and_does_not_truncate():
    def last_step(max_steps: int):
        env = gym.make("FedRacing/Oval-v0", max_steps=max_steps)
        env.reset(seed=0)
        for step in range(1, max_steps + 1):
            *_, terminated, truncated, _ = env.step(np.array([0.0, 8.0], np.float32))
            if terminated or truncated:
                return step, terminated, truncated
        return None

    step, *_ = last_step(1000)
    assert last_step(step) == (step, True, False)
    assert last_step(step - 1) == (step - 1, False, True)

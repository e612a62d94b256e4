"""Racing logs: who drives in them, that an environment replays them exactly, and what scores 0 and 100."""

import json

import gymnasium as gym
import minari
import numpy as np
import pytest

import rl.envs  # noqa: F401  registers the environments
from data import load, recipes
from data.errors import InputError
from data.minari_logs import local_folder
from data.randomness import generator
from rl.envs.racing.cars import CARS
from rl.envs.racing.drivers import DRIVERS, Drivers
from rl.envs.racing.levels import LEVELS, due, in_order
from rl.envs.racing.logs import VERSION, Log, Streams, drive_log, ensure_racing, racing_id
from rl.envs.racing.named import TRACKS, track
from rl.envs.racing.race import Rules
from rl.envs.racing.references import mean_returns, references
from rl.envs.racing.rollout import drive

FEW = 1_500  # transitions


@pytest.fixture(autouse=True)
def own_minari(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


def score(returns: np.ndarray, env_id: str, **kwargs) -> np.ndarray:
    found = references(env_id, kwargs)
    return 100 * (np.asarray(returns) - found.low) / (found.high - found.low)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("observation", ["", "-frenet"])
def test_an_environment_replays_a_log_exactly(level, observation):
    dataset = minari.load_dataset(ensure_racing(f"fedrl/racing/esses-noisy-{level}{observation}-v0", FEW))
    env = dataset.recover_environment()
    seeds = [metadata["seed"] for metadata in dataset.storage.get_episode_metadata(range(dataset.total_episodes))]
    for episode, seed in zip(dataset.iterate_episodes(), seeds, strict=True):
        first, _ = env.reset(seed=seed)
        steps = [env.step(action) for action in episode.actions]
        assert np.array_equal(episode.observations, [first, *(step[0] for step in steps)])
        assert np.array_equal(episode.rewards, [step[1] for step in steps])
        assert np.array_equal(episode.terminations, [step[2] for step in steps])
        assert not any(step[3] for step in steps[:-1])


def test_an_environment_made_by_hand_replays_a_log_too():
    dataset = minari.load_dataset(ensure_racing("fedrl/racing/kidney-wet-medium-v0", 300))
    env = gym.make("FedRacing/Kidney-v0", car="wet")
    env.reset(seed=next(iter(dataset.storage.get_episode_metadata([0])))["seed"])
    for action, seen in zip(dataset[0].actions, dataset[0].observations[1:], strict=True):
        assert np.array_equal(env.step(action)[0], seen)


def test_a_seed_reproduces_a_log_bit_for_bit(tmp_path, monkeypatch):
    name = "fedrl/racing/oval-worn-mixed-v0"
    one = load(ensure_racing(name, FEW)).fingerprint()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "elsewhere"))
    assert load(ensure_racing(name, FEW)).fingerprint() == one


def test_seed_track_car_and_level_each_change_the_driving():
    logs = [("oval-wet-expert-v0", None), ("oval-wet-expert-v1", None), ("oval-worn-expert-v0", None)]
    logs += [("kidney-wet-expert-v0", None), ("oval-wet-medium-v0", None), ("oval-wet-expert-v2", 5)]
    starts = [load(ensure_racing(f"fedrl/racing/{name}", 100, seed)).observations[0, -4:-2] for name, seed in logs]
    assert len({start.tobytes() for start in starts}) == len(logs)


def test_the_number_of_an_id_is_its_seed_unless_another_is_asked_for():
    name, other = "fedrl/racing/oval-wet-expert-v3", "fedrl/racing/oval-wet-expert-v0"
    ensure_racing(name, 100)
    assert load(ensure_racing(other, 100, seed=3)).fingerprint() == load(name).fingerprint()


def test_scans_and_features_are_of_the_same_driving():
    scans, features = (load(ensure_racing(f"fedrl/racing/esses-soft-mixed{kind}-v0", FEW)) for kind in ("", "-frenet"))
    assert scans.observations.shape[1] != features.observations.shape[1]
    assert np.array_equal(scans.actions, features.actions)
    assert np.array_equal(scans.rewards, features.rewards)


def test_how_many_drive_side_by_side_changes_nothing():
    log = Log.of("fedrl/racing/chicane-nominal-mixed-v0")
    wide = drive_log(log, FEW, 0)
    streams = Streams(log, FEW, 0)
    drive(track(log.track), CARS[log.car], Rules(), streams, width=3)
    narrow = in_order(log.level, streams.in_sequence(), FEW)
    assert [episode.entry for episode in wide] == [episode.entry for episode in narrow]
    for one, other in zip(wide[:-1], narrow[:-1], strict=True):
        assert np.array_equal(one.observations, other.observations)
        assert np.array_equal(one.actions, other.actions)


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_contains_the_drivers_it_says_in_the_shares_it_says(level):
    total = 6_000
    dataset = load(ensure_racing(f"fedrl/racing/oval-nominal-{level}-v0", total))
    assert len(dataset) == total  # exactly; the last episode is cut
    said = due(level, total, total)
    assert sum(said.values()) == pytest.approx(total)
    driver = dataset.columns["driver"]
    for k, name in enumerate(dataset.labels["driver"]):
        logged = (driver == k).sum()
        assert logged <= said.get(name, 0) + 1000  # no more than what is due and the rest of an episode
        assert logged >= said.get(name, 0) - 1000
    for start, end in zip(dataset.starts, dataset.ends, strict=True):
        assert len(set(driver[start : end + 1])) == 1


def test_crashes_are_terminals_and_ends_of_time_are_timeouts():
    random = load(ensure_racing("fedrl/racing/oval-nominal-random-v0", FEW))
    assert random.terminals.sum() == len(random.ends) - random.timeouts.sum() > 10
    assert random.timeouts.sum() <= 1  # the last episode may be cut
    expert = load(ensure_racing("fedrl/racing/oval-nominal-expert-v0", 2_500))
    assert expert.terminals.sum() == 0
    assert list(np.flatnonzero(expert.timeouts)) == [999, 1999, 2499]


def test_replay_gets_better_as_time_goes_on():
    dataset = load(ensure_racing("fedrl/racing/oval-nominal-replay-v0", 7_000))
    skill = [list(DRIVERS)[k].partition("_")[0] for k in dataset.columns["driver"][dataset.starts]]
    order = [name for i, name in enumerate(skill) if i == 0 or name != skill[i - 1]]
    assert [order[0], order[-1]] == ["random", "expert"]
    rank = {"random": 0, "weave": 1, "novice": 2, "medium": 3, "expert": 4}
    place = (dataset.starts + dataset.ends) / 2
    assert np.corrcoef(place, [rank[name] for name in skill])[0, 1] > 0.85


def test_the_next_episode_is_of_the_driver_who_is_furthest_behind():
    episodes = {driver: [range(10)] * 100 for driver in LEVELS["medium"][0]}
    order = in_order("medium", episodes, 400)
    assert len(order) == 40
    uneven = {"expert_pursuit": [range(7)] * 90, "expert_stanley": [range(30)] * 90, "expert": [range(100)] * 90}
    steps = sum(map(len, in_order("expert", uneven, 1_000)))
    assert 1_000 <= steps < 1_100


def test_levels_are_mixes_of_known_drivers():
    for level, phases in LEVELS.items():
        for mix in phases:
            assert set(mix) <= set(DRIVERS), level
            assert sum(mix.values()) == pytest.approx(1), level
    together = {driver for phases in LEVELS.values() for mix in phases for driver in mix}
    assert together == set(DRIVERS)  # every driver is in some log


def test_the_expert_scores_100_and_the_weak_driver_0_from_other_starts_too():
    for course, car in (("Oval", "wet"), ("Harbour", "nominal"), ("Summit", "soft")):
        env_id, settings = f"FedRacing/{course}-v0", {"track": course, "car": car}
        weak, expert = score(mean_returns(("weave", "expert"), settings, seed=1), env_id, car=car)
        assert expert == pytest.approx(100, abs=2)
        assert weak == pytest.approx(0, abs=6)


def test_levels_score_in_the_order_of_their_skill():
    means = []
    for level in ("random", "novice", "medium", "expert"):
        dataset = load(ensure_racing(f"fedrl/racing/quarry-nominal-{level}-v0", 5_000))
        found = dataset.environments[0].references
        measured = references("FedRacing/Quarry-v0", {"car": "nominal"})
        assert (found.low, found.high) == (measured.low, measured.high)
        means.append(100 * (dataset.returns.mean() - found.low) / (found.high - found.low))
    assert means == sorted(means)
    assert means[0] < 0 < means[1]
    assert 65 < means[3] < 100


def test_references_belong_to_track_car_and_reward_and_not_to_what_is_observed():
    plain = references("FedRacing/Oval-v0", {})
    assert plain.low < plain.high
    assert "'weave' and 'expert'" in plain.label
    assert references("FedRacing/Oval-v0", {"observation": "frenet", "beams": 9, "stack": 1}) is plain
    assert references("FedRacing/Oval-v0", {"car": "wet"}).high < plain.high
    assert references("FedRacing/Kidney-v0", {}).high != plain.high
    lap = references("FedRacing/Oval-v0", {"reward": "lap"})
    assert lap.low < 0 < lap.high < 10
    slow = references("FedRacing/Oval-v0", {"speeds": [0.0, 3.0]})
    assert slow.high == pytest.approx(100 * 40 * 3 / track("Oval").centreline.length, rel=0.1)


def test_references_are_what_the_environment_pays():
    """Against a plain loop through Gymnasium, from some of the same starts."""
    starts = generator(0, "racing references").integers(2**31, size=20).tolist()[:3]
    returns = []
    for start in starts:
        env = gym.make("FedRacing/Chicane-v0", car="wet")
        env.reset(seed=start)
        driver = Drivers(env.unwrapped.simulator, [DRIVERS["expert"]], [start])
        ended, total = False, 0.0
        while not ended:
            _, reward, terminated, truncated, _ = env.step(driver.act()[0].astype(np.float32))
            ended, total = terminated or truncated, total + reward
        returns.append(total)
    assert np.mean(returns) == pytest.approx(references("FedRacing/Chicane-v0", {"car": "wet"}).high, rel=0.02)


def test_plain_minari_reads_what_a_log_is():
    dataset = minari.load_dataset(ensure_racing("fedrl/racing/forest-heavy-novice-v0", FEW))
    assert dataset.total_steps == FEW
    assert dataset.env_spec.id == "FedRacing/Forest-v0"
    assert dataset.env_spec.kwargs["car"] == "heavy"
    metadata = json.loads((local_folder("fedrl/racing/forest-heavy-novice-v0") / "data" / "metadata.json").read_text())
    assert metadata["recipe"] == {"transitions": FEW, "seed": 0, "level": "novice", "version": 1}
    assert metadata["ref_min_score"] < metadata["ref_max_score"]
    assert "novice_gap" in metadata["algorithm_name"]


def test_logs_of_different_teams_can_be_put_together():
    names = {"one": "fedrl/racing/oval-wet-expert-v0", "two": "fedrl/racing/kidney-slow-random-v0"}
    for name in names.values():
        ensure_racing(name, 400)
    both = load(names)
    assert (both.labels["track"], both.labels["car"]) == (list(TRACKS), list(CARS))
    assert both.labels["driver"] == list(DRIVERS)
    first, last = ({key: both.labels[key][both.columns[key][row]] for key in ("track", "car")} for row in (0, -1))
    assert (first, last) == ({"track": "Oval", "car": "wet"}, {"track": "Kidney", "car": "slow"})
    assert len(both.environments) == 2


def test_a_log_that_is_not_there_is_made_by_loading_it():
    assert len(load("fedrl/racing/oval-slow-random-v0")) == 10_000


def test_logs_are_made_once_and_never_under_another_recipe(capsys):
    name = "fedrl/racing/oval-nominal-random-v0"
    ensure_racing(name, 200)
    ensure_racing(name, 200)
    assert "is there already" in capsys.readouterr().err
    for other in ({"transitions": 300}, {"transitions": 200, "seed": 1}):
        with pytest.raises(InputError, match="choose another id"):
            ensure_racing(name, **other)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("fedrl/racing/oval-v0", "is no racing log; ids are fedrl/racing/<track>-<car>-<level>-v0"),
        ("fedrl/racing/Oval-wet-expert-v0", "no known track: 'Oval'; did you mean 'oval'"),
        ("fedrl/racing/ovl-wet-expert-v0", "no known track: 'ovl'; did you mean 'oval'"),
        ("fedrl/racing/oval-wett-expert-v0", "no known car: 'wett'; did you mean 'wet'"),
        ("fedrl/racing/oval-wet-experts-v0", "no known level: 'experts'; did you mean 'expert'"),
        ("fedrl/racing/oval-wet-expert-lidar-v0", "is no racing log"),
    ],
)
def test_a_mistaken_id_is_a_sentence(name, sentence):
    with pytest.raises(InputError) as raised:
        ensure_racing(name)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not local_folder("").exists()


def test_impossible_wishes_are_sentences():
    with pytest.raises(InputError, match="0 transitions are too few"):
        ensure_racing("fedrl/racing/oval-wet-expert-v0", 0)
    with pytest.raises(InputError, match="Seed -1 is negative"):
        ensure_racing("fedrl/racing/oval-wet-expert-v0", seed=-1)


def test_logs_of_an_older_recipe_are_refused_by_name(monkeypatch):
    dataset_id = ensure_racing("fedrl/racing/oval-nominal-medium-v7", 200)
    monkeypatch.setattr(recipes, "_RECIPES", {"fedrl/racing/": recipes.Recipe(ensure_racing, [], VERSION + 1)})
    with pytest.raises(InputError, match=f"version {VERSION} of its recipe and the code has {VERSION + 1}"):
        load(dataset_id)


def test_a_seed_is_the_number_of_an_id():
    assert racing_id("Oval", "wet", "mixed", "frenet", 3) == "fedrl/racing/oval-wet-mixed-frenet-v3"

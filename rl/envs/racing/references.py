"""What scores 0 and 100 on a track with a car: returns of a weak and of an expert driver, measured there."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache

import gymnasium as gym
import numpy as np

from data.dataset import References
from data.randomness import generator
from rl.envs.racing.cars import named_car
from rl.envs.racing.drivers import EXPERT, WEAK
from rl.envs.racing.named import track as named_track
from rl.envs.racing.race import Rules
from rl.envs.racing.rollout import Entry, Listed, drive

EPISODES = 20
_SEEN = ("observation", "beams", "stack", "look_ahead", "render_mode")  # what the two drivers' returns do not depend on


def references(env_id: str, kwargs: Mapping[str, object]) -> References | None:
    """Of a `FedRacing/…` id and its settings; None where the expert does no better than the weak driver."""
    settings = {**gym.spec(env_id).kwargs, **kwargs}
    return _references(json.dumps({key: settings[key] for key in sorted(settings) if key not in _SEEN}))


@lru_cache(maxsize=256)
def _references(settings: str) -> References | None:
    low, high = mean_returns((WEAK, EXPERT), json.loads(settings))
    if not low < high:
        return None
    return References(low, high, f"mean returns of drivers '{WEAK}' and '{EXPERT}', {EPISODES} episodes each")


def mean_returns(
    drivers: Sequence[str], settings: Mapping[str, object], episodes: int = EPISODES, seed: int = 0
) -> list[float]:
    """Of named drivers in an environment made with these settings; all start from the same places."""
    rules = {key: value for key, value in settings.items() if key not in _SEEN}
    track = named_track(rules.pop("track"), **(rules.pop("track_options", None) or {}))
    car = named_car(rules.pop("car", "nominal"))
    starts = generator(seed, "racing references").integers(2**31, size=episodes).tolist()
    schedule = Listed(Entry(driver, start) for driver in drivers for start in starts)
    # Features instead of scans: they cost less, and who needs to see does.
    rules = Rules.named(rules | {"observation": "frenet", "look_ahead": ()})
    drive(track, car, rules, schedule, width=len(schedule.entries))
    returns = np.array([episode.rewards.sum() for episode in schedule.episodes]).reshape(len(drivers), episodes)
    return returns.mean(axis=1).tolist()

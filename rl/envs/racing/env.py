"""Racing as Gymnasium environments: one car, or many stepped together. Settings are those of Rules."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from data.errors import InputError, nearest
from rl.envs.racing.race import EPISODE_METRICS, Race, Rules, entrants
from rl.envs.racing.rendering import Picture

RENDER_MODES = ("rgb_array",)


def _metadata(rules: Rules) -> dict[str, Any]:
    return {
        "render_modes": list(RENDER_MODES),
        "render_fps": round(1 / rules.step_seconds),
        "episode_metrics": EPISODE_METRICS,  # names in info that say of an episode's last step how it went
    }


def _checked_mode(render_mode: str | None) -> str | None:
    if render_mode is not None and render_mode not in RENDER_MODES:
        raise InputError(f"There is no render_mode '{render_mode}'; {nearest(render_mode, RENDER_MODES)}")
    return render_mode


class RacingEnv(gym.Env):
    """One car. Action: steering angle (rad) and speed (m/s) to aim for; a crash terminates, time and laps truncate."""

    metadata = _metadata(Rules())

    def __init__(
        self,
        track: str | None = None,
        car: str | Mapping[str, object] = "nominal",
        *,
        track_options: Mapping[str, object] | None = None,
        render_mode: str | None = None,
        **rules,
    ):
        self.rules = Rules.named(rules)
        self.metadata, self.render_mode = _metadata(self.rules), _checked_mode(render_mode)
        self.race = Race(*entrants(1, track, car, track_options), self.rules)
        self.simulator = self.race.simulator
        self.action_space, self.observation_space = self.race.action_space, self.race.observation_space
        self.picture: Picture | None = None

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.race.reset(np.array([0]), [self.np_random])
        if self.picture is not None:
            self.picture.clear()
        return self.race.observations()[0], self._info()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        rewards, terminated, truncated = self.race.step(np.reshape(action, (1, -1)))
        ends = bool(terminated[0]), bool(truncated[0])
        return self.race.observations()[0], float(rewards[0]), *ends, self._info()

    def _info(self) -> dict[str, Any]:
        """Without lap_time until there is one: Gymnasium's checker, for one, takes NaN for a change."""
        info = {name: values[0].item() for name, values in self.race.info().items()}
        if not info["laps"]:
            del info["lap_time"]
        return info

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            gym.logger.warn("render() needs gym.make(…, render_mode='rgb_array').")
            return None
        if self.picture is None:
            self.picture = Picture(self.simulator.tracks[0])
        return self.picture.draw(self.simulator, 0)

    def close(self) -> None:
        self.simulator.close()


class RacingVectorEnv(gym.vector.VectorEnv):
    """Many cars in one compiled call; an environment that ended is reset by the next step, whose reward is 0.

    `track` and `car` may be lists with one entry for each environment.
    """

    metadata = _metadata(Rules()) | {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        num_envs: int = 1,
        track: str | Sequence[str] | None = None,
        car: str | Mapping[str, object] | Sequence[str | Mapping[str, object]] = "nominal",
        *,
        track_options: Mapping[str, object] | None = None,
        render_mode: str | None = None,
        **rules,
    ):
        self.rules, self.num_envs = Rules.named(rules), num_envs
        self.metadata = _metadata(self.rules) | {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.render_mode = _checked_mode(render_mode)
        self.race = Race(*entrants(num_envs, track, car, track_options), self.rules)
        self.simulator = self.race.simulator
        self.single_action_space, self.single_observation_space = self.race.action_space, self.race.observation_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.ended = np.zeros(num_envs, bool)
        self.pictures: list[Picture] = []

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Environment i gets seed + i, or its entry of a list; None goes on with its own generator."""
        which = self._asked_for(options)
        if isinstance(seed, (int, np.integer)):
            seed = [int(seed) + i for i in range(self.num_envs)]
        if seed is not None and len(seed) != self.num_envs:
            raise InputError(f"{len(seed)} seeds for {self.num_envs} environments; give one for each.")
        if seed is not None:
            own = self.simulator.generators
            seed = [own[i] if seed[i] is None else gym.utils.seeding.np_random(int(seed[i]))[0] for i in which]
        self.race.reset(which, seed)
        self.ended[which] = False
        self._clear(which)
        present = np.zeros(self.num_envs, bool)
        present[which] = True
        return self.race.observations(), self._infos(present)

    def _asked_for(self, options: dict | None) -> np.ndarray:
        """Gymnasium's reset_mask: reset some and leave the others as they are."""
        mask = (options or {}).get("reset_mask")
        if mask is None:
            return np.arange(self.num_envs)
        if np.shape(mask) != (self.num_envs,) or np.asarray(mask).dtype != bool or not np.any(mask):
            raise InputError(f"reset_mask must be {self.num_envs} booleans, one of them true.")
        return np.flatnonzero(mask)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        fresh = np.flatnonzero(self.ended)
        rewards, terminated, truncated = self.race.step(actions, np.flatnonzero(~self.ended) if len(fresh) else None)
        if len(fresh):
            self.race.reset(fresh)
            rewards[fresh], terminated[fresh], truncated[fresh] = 0.0, False, False
            self._clear(fresh)
        self.ended = terminated | truncated
        infos = self._infos(np.ones(self.num_envs, bool))
        return self.race.observations(), rewards, terminated, truncated, infos

    def _infos(self, present: np.ndarray) -> dict[str, Any]:
        """Gymnasium's layout: arrays, and under "_name" a mask of who has the entry."""
        infos = {}
        for name, values in self.race.info().items():
            infos[name], infos[f"_{name}"] = values, present.copy()
        infos["_lap_time"] &= infos["laps"] > 0
        return infos

    def render(self) -> tuple[np.ndarray, ...] | None:
        if self.render_mode is None:
            gym.logger.warn("render() needs gym.make_vec(…, render_mode='rgb_array').")
            return None
        if not self.pictures:
            self.pictures = [Picture(track) for track in self.simulator.tracks]
        return tuple(picture.draw(self.simulator, i) for i, picture in enumerate(self.pictures))

    def _clear(self, which: np.ndarray) -> None:
        if self.pictures:
            for i in which:
                self.pictures[i].clear()

    def close_extras(self, **kwargs: Any) -> None:
        self.simulator.close()

"""Sizes and action ranges of environments, without building a simulator where a fact will do."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from data.errors import InputError


@dataclass(frozen=True)
class Spaces:
    """What a dataset's columns must fit: observation size and action range."""

    observation_size: int
    action_low: np.ndarray  # [A] float32
    action_high: np.ndarray  # [A] float32

    @property
    def bounded(self) -> bool:
        return bool(np.isfinite(self.action_low).all() and np.isfinite(self.action_high).all())


# Building a MuJoCo environment takes longer than reading a million rows, so the usual ones are facts here:
# id → (observation size, action size, action bound); a test compares them with Gymnasium.
_KNOWN = {
    "Hopper-v4": (11, 3, 1.0),
    "Hopper-v5": (11, 3, 1.0),
    "HalfCheetah-v4": (17, 6, 1.0),
    "HalfCheetah-v5": (17, 6, 1.0),
    "Walker2d-v4": (17, 6, 1.0),
    "Walker2d-v5": (17, 6, 1.0),
    "Ant-v4": (27, 8, 1.0),
    "Ant-v5": (105, 8, 1.0),
    "Pendulum-v1": (3, 1, 2.0),
}


def symmetric(observation_size: int, action_size: int, bound: float) -> Spaces:
    high = np.full(action_size, bound, np.float32)
    return Spaces(observation_size, -high, high)


def spaces_of(env_id: str) -> Spaces:
    """The spaces of a Gymnasium environment; an unknown id or other than flat boxes is an InputError."""
    if env_id in _KNOWN:
        return symmetric(*_KNOWN[env_id])
    import gymnasium  # half a second that the environments above do not need

    try:
        env = gymnasium.make(env_id)
    except gymnasium.error.UnregisteredEnv as error:
        nearest = difflib.get_close_matches(env_id, [*_KNOWN, *gymnasium.registry], n=1)
        hint = f"did you mean '{nearest[0]}'?" if nearest else "import the package that registers it first."
        raise InputError(f"Gymnasium knows no environment '{env_id}'; {hint}") from error
    except (gymnasium.error.Error, ImportError) as error:
        raise InputError(f"Environment '{env_id}' cannot be made ({error}); install what it needs.") from error
    try:
        return from_spaces(env.observation_space, env.action_space, f"Environment '{env_id}'")
    finally:
        env.close()


def registered(env_id: str) -> bool:
    """Whether `spaces_of` can look the id up without importing code that a log file names."""
    if env_id in _KNOWN:
        return True
    import gymnasium

    return env_id in gymnasium.registry


def own_settings(env_id: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that an environment was made with beyond those that its id stands for."""
    import gymnasium

    given = gymnasium.registry[env_id].kwargs if env_id in gymnasium.registry else {}
    return {key: value for key, value in kwargs.items() if key not in given or given[key] != value}


def from_spaces(observation_space, action_space, owner: str) -> Spaces:
    """Sizes and ranges of two Gymnasium spaces, which must be flat boxes."""
    from gymnasium.spaces import Box

    for role, space in (("observations", observation_space), ("actions", action_space)):
        if not isinstance(space, Box) or len(space.shape) != 1:
            shape = f" of shape {space.shape}" if isinstance(space, Box) else ""
            raise InputError(
                f"{owner} has {type(space).__name__} {role}{shape}, but only flat Box {role} are supported; "
                "flatten them and write the dataset anew."
            )
    return Spaces(observation_space.shape[0], action_space.low.astype(np.float32), action_space.high.astype(np.float32))

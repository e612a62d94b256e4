"""Environments to learn and be evaluated in; importing this registers racing with Gymnasium and its logs with `data`.

`FedRacing/<Track>-v0` for every named track, `FedRacing/Custom-v0` with track="file"; the simulator itself is imported,
and compiled, when the first environment is made.
"""

import gymnasium

import rl.envs.racing.logs  # noqa: F401  (it registers its recipe)
from rl.envs.racing.named import TRACKS

CUSTOM = "FedRacing/Custom-v0"


def _register(env_id: str, **kwargs: str) -> None:
    gymnasium.register(
        env_id,
        entry_point="rl.envs.racing.env:RacingEnv",
        vector_entry_point="rl.envs.racing.env:RacingVectorEnv",
        kwargs=kwargs,
    )


for _name in TRACKS:
    _register(f"FedRacing/{_name}-v0", track=_name)
_register(CUSTOM)

"""Reference returns of D4RL: the facts that turn a return into a score.

score = 100 · (return − low) / (high − low), where low is a random policy's return and high an expert's.
The figures are REF_MIN_SCORE and REF_MAX_SCORE of `d4rl/infos.py`, D4RL 1.1.
"""

import re

from data.dataset import References

# A task's references hold for every dataset and version of it, e.g. hopper-medium-v0 and hopper-expert-v2.
D4RL_REFERENCES = {
    "halfcheetah": (-280.178953, 12135.0),
    "hopper": (-20.272305, 3234.3),
    "walker2d": (1.629008, 4592.3),
    "ant": (-325.6, 3879.7),
    "pen": (96.262799, 3076.8331017826877),
    "hammer": (-274.856578, 12794.134825156867),
    "relocate": (-6.425911, 4233.877797728884),
    "door": (-56.512833, 2880.5693087298737),
    "maze2d-open": (0.01, 20.66),
    "maze2d-umaze": (23.85, 161.86),
    "maze2d-medium": (13.13, 277.39),
    "maze2d-large": (6.7, 273.99),
    "maze2d-open-dense": (11.17817, 27.166538620695782),
    "maze2d-umaze-dense": (68.537689, 193.66285642381482),
    "maze2d-medium-dense": (44.264742, 297.4552547777125),
    "maze2d-large-dense": (30.569041, 303.4857382709002),
    "antmaze": (0.0, 1.0),
    "kitchen": (0.0, 4.0),
    "minigrid-fourrooms": (0.01442, 2.89685),
    "flow-ring": (-165.22, 24.42),
    "flow-merge": (118.67993, 330.03179),
    "carla-lane": (-0.8503839912088142, 1023.5784385429523),
    "carla-town": (-114.81579500772153, 2440.1772022247314),
    "bullet-halfcheetah": (-1275.766996, 2381.6725),
    "bullet-hopper": (20.058972, 1441.8059623430963),
    "bullet-ant": (373.705955, 2650.495),
    "bullet-walker2d": (16.523877, 1623.6476303317536),
    "bullet-maze2d-open": (8.75, 64.15),
    "bullet-maze2d-umaze": (32.46, 153.99),
    "bullet-maze2d-medium": (14.87, 238.05),
    "bullet-maze2d-large": (1.82, 285.92),
}

_LOCOMOTION = re.compile(r"(HalfCheetah|Hopper|Walker2d|Ant)-v\d+")


def d4rl_references(name: str, env_id: str | None = None) -> References | None:
    """References of a D4RL name such as `hopper-medium-v2`, or None if D4RL gives none."""
    task = re.sub(r"-v\d+$", "", name)
    while task and task not in D4RL_REFERENCES:
        task = task.rpartition("-")[0]
    if not task:
        return None
    return References(*D4RL_REFERENCES[task], _label(task, env_id))


def environment_references(env_id: str | None) -> References | None:
    """D4RL's references for a Gymnasium environment that D4RL has tasks in, e.g. `Hopper-v5`."""
    if env_id is None or not _LOCOMOTION.fullmatch(env_id):
        return None
    return d4rl_references(env_id.lower(), env_id)


def _label(task: str, env_id: str | None) -> str:
    made_for = " (made for gym v2)" if task in ("halfcheetah", "hopper", "walker2d", "ant") else ""
    return f"D4RL references{made_for}" + (f", evaluated in {env_id}" if env_id else "")

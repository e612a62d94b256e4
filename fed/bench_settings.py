"""What `scripts/bench.py learners` compares: the algorithms with the settings of both sides, and the rows.

Values are d3rlpy's defaults wherever both sides have the setting. What cannot be made equal is in docs/speed.md.
"""

import json
from dataclasses import dataclass, field
from typing import Any

HIDDEN = [256, 256]
BATCH = 256
SEEDS = 3
KEEP = [5_000, 8_000, 8_500, 9_000, 9_500, 10_000]  # updates after which the policy is stored and played
COUNTED = 5  # a score is the mean over the last evaluations

# Name → rows to take, in whole episodes, from the beginning of each file.
SETS = {
    "hopper": {"hopper_expert.hdf5": 50_000},
    "halfcheetah": {"halfcheetah_expert.hdf5": 25_000, "halfcheetah_medium.hdf5": 25_000},
}


@dataclass(frozen=True)
class Pair:
    """One algorithm of ours and d3rlpy's configuration class for it."""

    config: str
    same: tuple[tuple[str, str, Any], ...]  # our name of a setting, d3rlpy's name, and the value on both sides
    ours: dict[str, Any] = field(default_factory=dict)  # what only we have, set so that both do the same
    theirs: dict[str, Any] = field(default_factory=dict)

    def overrides(self) -> list[str]:
        """Our settings, in the form in which the configuration takes them."""
        settings = {"hidden": HIDDEN} | {name: value for name, _, value in self.same} | self.ours
        return [f"algo.{name}={json.dumps(value)}" for name, value in settings.items()]

    def d3rlpy_settings(self) -> dict[str, Any]:
        return {name: value for _, name, value in self.same} | self.theirs | {"batch_size": BATCH}


CRITICS = (
    ("actor_lr", "actor_learning_rate", 3e-4),
    ("critic_lr", "critic_learning_rate", 3e-4),
    ("gamma", "gamma", 0.99),
    ("tau", "tau", 0.005),
)
ENSEMBLE = ("critics", "n_critics", 2)
TEMPERATURE = (
    ("temperature_lr", "temp_learning_rate", 3e-4),
    ("initial_temperature", "initial_temperature", 1.0),
)

PAIRS = {  # cheapest first
    "bc": Pair(
        "BCConfig",
        (("lr", "learning_rate", 1e-3),),
        ours={"loss": "squared"},
        theirs={"policy_type": "deterministic"},
    ),
    "td3_bc": Pair(
        "TD3PlusBCConfig",
        (
            *CRITICS,
            ("alpha", "alpha", 2.5),
            ("smoothing_noise", "target_smoothing_sigma", 0.2),
            ("smoothing_clip", "target_smoothing_clip", 0.5),
            ("delay", "update_actor_interval", 2),
        ),
        theirs={"n_critics": 2},
    ),
    "iql": Pair(
        "IQLConfig",
        (*CRITICS, ENSEMBLE, ("expectile", "expectile", 0.7), ("beta", "weight_temp", 3.0)),
        ours={"value_lr": 3e-4, "policy": "gaussian"},
        theirs={"max_weight": 100.0},
    ),
    "sac": Pair("SACConfig", (*CRITICS, ENSEMBLE, *TEMPERATURE), ours={"backup_entropy": True}),
    "cql": Pair(
        "CQLConfig",
        (
            *CRITICS,
            ENSEMBLE,
            *TEMPERATURE,
            ("actor_lr", "actor_learning_rate", 1e-4),
            ("temperature_lr", "temp_learning_rate", 1e-4),
            ("alpha", "conservative_weight", 5.0),
            ("sampled_actions", "n_action_samples", 4),
            ("backup_entropy", "soft_q_backup", False),
            ("max_backup", "max_q_backup", False),
        ),
        ours={"lagrange": None, "critic_layers": 2},
        theirs={"alpha_learning_rate": 0.0, "initial_alpha": 1.0},  # no Lagrange multiplier
    ),
}

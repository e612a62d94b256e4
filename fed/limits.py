"""Kinds and ranges of settings: what the default in a configuration file does not say."""

import math
from collections.abc import Callable

import torch
from omegaconf import DictConfig, ListConfig, OmegaConf

from data.errors import InputError
from fed.adversaries import ATTACKS
from fed.compression import KINDS
from fed.participation import SAMPLING
from fed.reference import SOURCES
from rl.divergences import DIVERGENCES
from rl.learner import SCHEDULES

Limit = tuple[Callable[[object], bool], str]


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _whole(least: int, most: int = 2**63 - 1) -> Limit:
    words = f"a whole number of at least {least}" + (f" and at most {most}" if most < 2**63 - 1 else "")
    return lambda value: type(value) is int and least <= value <= most, words


def _or_null(limit: Limit) -> Limit:
    return lambda value: value is None or limit[0](value), f"{limit[1]}, or null"


def _one_of(*names: str) -> Limit:
    return lambda value: value in names, f"{', '.join(names[:-1])} or {names[-1]}"


def _is_sizes(value: object) -> bool:
    return isinstance(value, ListConfig) and len(value) > 0 and all(type(size) is int and size > 0 for size in value)


def _is_shared(value: object) -> bool:
    return value == "all" or (isinstance(value, ListConfig) and all(isinstance(name, str) for name in value))


def _is_clients(value: object) -> bool:
    """How many, or which."""
    several = isinstance(value, ListConfig) and all(type(client) is int and client >= 0 for client in value)
    return several or (type(value) is int and value >= 0)


def _is_mu(value: object) -> bool:
    values = value.values() if isinstance(value, DictConfig) and value else [value]
    return all(_is_number(mu) and mu >= 0 for mu in values)


def _is_weighting(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, ListConfig) and all(map(_is_number, value)))


def _is_path(value: object) -> bool:
    names = value.values() if isinstance(value, DictConfig) and value else [value]
    return all(isinstance(name, str) for name in names)


def _is_environments(value: object) -> bool:
    return isinstance(value, ListConfig) and all(
        isinstance(entry, str) or (isinstance(entry, DictConfig) and isinstance(entry.get("id"), str))
        for entry in value
    )


ABOVE_0 = (lambda value: _is_number(value) and value > 0, "a number above 0")
NOT_BELOW_0 = (lambda value: _is_number(value) and value >= 0, "a number of at least 0")
SHARE = (lambda value: _is_number(value) and 0 <= value <= 1, "a number from 0 to 1")
UP_TO_1 = (lambda value: _is_number(value) and 0 < value <= 1, "a number above 0 and at most 1")
TEXT = (lambda value: isinstance(value, str), "a text")
FLAG = (lambda value: isinstance(value, bool), "true or false")
RULE = (lambda value: isinstance(value, DictConfig) and "_target_" in value, "a mapping with a _target_")
# The algorithms' settings go by the names that the field has for them; those an algorithm lacks are passed over.
LIMITS: dict[str, Limit] = {
    "seed": _whole(0),
    "split_seed": _or_null(_whole(0)),
    "rounds": _whole(0),
    "updates_per_round": _whole(1),
    "batch_size": _whole(1, 2**20),
    "top": UP_TO_1,
    "out": _or_null(TEXT),
    "device": (lambda value: value == "cpu" or str(value).startswith("cuda"), "cpu or cuda"),
    "data.path": (_is_path, "a path, a name, or several as {name: path}"),
    "data.env": _or_null(TEXT),
    "data.held_out": (_is_environments, "a list of environment ids, or of {id: …, setting: …}"),
    "fed.fraction": UP_TO_1,
    "fed.optimiser_state": _one_of("local", "average", "reset"),
    "fed.local": _or_null(RULE),
    "fed.local.mu": (_is_mu, "a number of at least 0, or one by module such as {actor: 0.1}"),
    "fed.server": _or_null(RULE),
    "fed.reference": _or_null((lambda value: isinstance(value, DictConfig), "a mapping")),
    "fed.reference.rows_from": _one_of(*SOURCES),
    "fed.reference.rows": _whole(1),
    "fed.reference.episodes": _whole(1),
    "fed.reference.renormalise": FLAG,
    "fed.aggregator": RULE,
    "fed.aggregator.weighting": (_is_weighting, "size, rows, uniform, or a list with a number for each client"),
    "clients.sampling": _one_of(*SAMPLING),
    "clients.available": _or_null(TEXT),
    "clients.slowness": NOT_BELOW_0,
    "clients.time_limit": _or_null(ABOVE_0),
    "clients.late": _one_of("partial", "drop"),
    "clients.drop_before": SHARE,
    "clients.drop_after": SHARE,
    "clients.adversaries": _or_null((_is_clients, "how many, or a list such as [0,3]")),
    "clients.attack": _one_of(*ATTACKS),
    "clients.strength": (_is_number, "a number"),
    "clients.quorum": SHARE,
    "clients.attempts": _whole(1),
    "screen.norm": _or_null(ABOVE_0),
    "screen.cosine": _or_null(ABOVE_0),
    "screen.held": _whole(0),
    "compression.kind": _one_of(*KINDS),
    "compression.keep": UP_TO_1,
    "fed.shared": (_is_shared, "all or a list such as [actor]"),
    "eval.every": _or_null(_whole(1)),
    "eval.episodes": _whole(1),
    "eval.seed": _whole(0, 2**31),
    "eval.max_steps": _whole(1),
    "eval.max_clients": _whole(1),
    "engine.width": _or_null(_whole(1, 4096)),
    "engine.workers": _or_null(_whole(1, 256)),
    "engine.threads": _or_null(_whole(1, 256)),
    "algo.hidden": (_is_sizes, "a list of layer sizes such as [64,64]"),
    "algo.layer_norm": FLAG,
    "algo.schedule": _one_of(*SCHEDULES),
    "algo.gamma": (lambda value: _is_number(value) and 0 <= value < 1, "a number of at least 0 and below 1"),
    "algo.tau": UP_TO_1,
    "algo.critics": _whole(1),
    "algo.initial_temperature": ABOVE_0,
    "algo.target_entropy": _or_null((_is_number, "a number")),
    "algo.clip": _or_null(ABOVE_0),
    "algo.loss": _one_of("likelihood", "squared"),
    "algo.lr": ABOVE_0,
    "algo.actor_lr": ABOVE_0,
    "algo.critic_lr": ABOVE_0,
    "algo.temperature_lr": ABOVE_0,
    "algo.delay": _whole(1),
    "algo.smoothing_noise": NOT_BELOW_0,
    "algo.smoothing_clip": NOT_BELOW_0,
    "algo.alpha": ABOVE_0,
    "algo.to_server": NOT_BELOW_0,
    "algo.to_last": NOT_BELOW_0,
    "algo.decay": UP_TO_1,
    "algo.value_lr": ABOVE_0,
    "algo.critic_layers": _whole(1),
    "algo.lagrange": _or_null((_is_number, "a number")),
    "algo.sampled_actions": _whole(1),
    "algo.max_backup": FLAG,
    "algo.calibrated": FLAG,
    "algo.bc_steps": _whole(0),
    "algo.expectile": (lambda value: _is_number(value) and 0 < value < 1, "a number above 0 and below 1"),
    "algo.beta": NOT_BELOW_0,
    "algo.policy": _one_of("gaussian", "tanh_gaussian"),
    "algo.steps": _whole(1),
    "algo.divergence": _one_of(*DIVERGENCES),
    "algo.gradient": _one_of("full", "semi", "orthogonal"),
    "algo.starts": _one_of("episodes", "data"),
    "algo.centred": FLAG,
    "algo.absorbing": FLAG,
    "algo.nu_networks": _whole(1),
    "algo.gradient_penalty": NOT_BELOW_0,
    "algo.nu_lr": ABOVE_0,
    "algo.lambda_lr": ABOVE_0,
    "algo.advantage": _one_of("none", "regression", "minimax"),
    "algo.extraction": _one_of("weighted", "projection"),
    "algo.draw_rows": FLAG,
    "algo.ratios": _one_of("local", "broadcast"),
    "algo.defensive": SHARE,
    "algo.normalise_ratios": FLAG,
    "algo.largest_ratio": _or_null(ABOVE_0),
    "algo.refresh_every": _whole(1),
    "algo.warm_up": (lambda value: _is_number(value) and 0 <= value < 1, "a number of at least 0 and below 1"),
    "algo.policy_loss": _one_of("likelihood", "squared"),
    "algo.entropy": NOT_BELOW_0,
    "algo.components": _whole(1),
}


def check_limits(config: DictConfig) -> None:
    """Raise a sentence for the first setting that is of the wrong kind or out of its range."""
    for key, (fits, words) in LIMITS.items():
        group, _, name = key.rpartition(".")
        branch = OmegaConf.select(config, group) if group else config
        if branch is not None and name in branch and not fits(branch[name]):
            raise InputError(f"{key} is {branch[name]}; it must be {words}.")
    if config.device != "cpu" and not torch.cuda.is_available():
        raise InputError(f"device is '{config.device}' but torch finds no CUDA device; use device=cpu.")

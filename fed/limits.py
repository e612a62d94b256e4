"""Ranges of settings: what the kind of a value cannot say."""

from collections.abc import Callable

import torch
from omegaconf import DictConfig, OmegaConf

from data.errors import InputError

HIDDEN = "a list of layer sizes such as [64,64]"


def _at_least(least: int) -> tuple[Callable[[float], bool], str]:
    return lambda value: value >= least, f"at least {least}"


ABOVE_0 = (lambda value: value > 0, "above 0")
UP_TO_1 = (lambda value: 0 < value <= 1, "above 0 and at most 1")
# Keys that an algorithm does not have are passed over.
LIMITS = (
    ("seed", *_at_least(0)),
    ("split_seed", *_at_least(0)),
    ("rounds", *_at_least(0)),
    ("updates_per_round", *_at_least(1)),
    ("batch_size", *_at_least(1)),
    ("fed.fraction", *UP_TO_1),
    ("fed.shared", lambda value: value == "all" or not isinstance(value, str), "all or a list such as [actor]"),
    ("eval.every", *_at_least(1)),
    ("eval.episodes", *_at_least(1)),
    ("eval.seed", *_at_least(0)),
    ("eval.max_steps", *_at_least(1)),
    ("eval.max_clients", *_at_least(1)),
    ("engine.width", *_at_least(1)),
    ("engine.workers", *_at_least(1)),
    ("engine.threads", *_at_least(1)),
    ("algo.hidden", lambda sizes: len(sizes) > 0 and all(type(size) is int and size > 0 for size in sizes), HIDDEN),
    ("algo.gamma", lambda value: 0 <= value < 1, "at least 0 and below 1"),
    ("algo.tau", *UP_TO_1),
    ("algo.critics", *_at_least(1)),
    ("algo.initial_temperature", *ABOVE_0),
    ("algo.clip", *ABOVE_0),
    ("algo.lr", *ABOVE_0),
    ("algo.actor_lr", *ABOVE_0),
    ("algo.critic_lr", *ABOVE_0),
    ("algo.temperature_lr", *ABOVE_0),
)


def check_limits(config: DictConfig) -> None:
    """Values that must be in a range, each with a sentence."""
    for key, fits, words in LIMITS:
        value = OmegaConf.select(config, key)
        if value is not None and not fits(value):
            raise InputError(f"{key} is {value}; it must be {words}.")
    if config.device != "cpu" and not torch.cuda.is_available():
        raise InputError(f"device is '{config.device}' but torch finds no CUDA device; use device=cpu.")

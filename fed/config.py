"""Configuration: Hydra's groups and override grammar, with errors that name the nearest thing that exists.

`compose` is what the scripts and a notebook call: `compose("train", ["algo=bc", "split.clients=4"])`.
"""

import difflib
import math
from collections.abc import Container, Sequence
from pathlib import Path

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from data.errors import InputError, nearest

CONFIGS = Path(__file__).parent.parent / "configs"
GROUPS = ("algo", "fed", "data", "split", "engine", "eval")


def options(group: str) -> list[str]:
    """The names one can choose in a group."""
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


def compose(root: str, overrides: Sequence[str] = (), file: str | Path | None = None) -> DictConfig:
    """One configuration from a root (`train` or `centralized`), an optional YAML file, and `key=value` overrides."""
    parsed = _parse(overrides)
    settings = _read(file) if file is not None else {}
    for override in parsed:
        if override.is_sweep_override():
            raise InputError(f"'{override.input_line}' names several values; add -m to run each of them.")
    choices = dict(settings.pop("choices", {}))
    choices |= {o.key_or_group: o.value() for o in parsed if o.key_or_group in GROUPS}
    config = _compose_groups(root, choices)
    known = leaves(config)
    for key, value in leaves(settings, stop_at=known).items():
        _set(config, known, key, value)
    for override in parsed:
        if override.key_or_group not in GROUPS:
            _set(config, known, override.key_or_group, override.value(), new=override.is_force_add())
    try:
        OmegaConf.resolve(config)
    except OmegaConfBaseException as error:
        raise InputError(f"The configuration cannot be resolved: {str(error).splitlines()[0]}") from error
    return config


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """The jobs of a multirun: every combination of the values in `key=a,b` or `key=range(3)`."""
    batches = BasicSweeper.split_arguments(_parse(overrides), max_batch_size=None)
    return [list(job) for batch in batches for job in batch]


def _parse(overrides: Sequence[str]) -> list[Override]:
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except OverrideParseException as error:
        raise InputError(f"'{error.override}' is not of the form key=value; write for example rounds=20.") from error
    for override in parsed:
        if override.is_delete():
            raise InputError(f"'{override.input_line}' would delete a setting; give it a value instead.")
    return parsed


def _compose_groups(root: str, choices: dict[str, str]) -> DictConfig:
    for group, name in choices.items():
        if group not in GROUPS:
            raise InputError(f"'{group}' is no group of configurations; {nearest(group, GROUPS)}")
        if name not in options(group):
            raise InputError(f"There is no {group} '{name}'; {nearest(name, options(group))}")
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        whole = hydra_compose(root, [f"{group}={name}" for group, name in choices.items()], return_hydra_config=True)
    chosen = {group: whole.hydra.runtime.choices[group] for group in GROUPS}
    OmegaConf.set_struct(whole, False)
    del whole["hydra"]
    return OmegaConf.merge(whole, {"choices": chosen})


def _read(file: str | Path) -> dict:
    path = Path(file).expanduser()
    if not path.is_file():
        raise InputError(f"There is no file '{file}'; --config takes a YAML file, e.g. a run's config.yaml.")
    settings = OmegaConf.to_container(OmegaConf.load(path))
    if not isinstance(settings, dict):
        raise InputError(f"'{file}' holds no settings; it must be a YAML mapping, e.g. a run's config.yaml.")
    settings.pop("out", None)  # a run's settings may be used again, its folder may not
    return settings


def leaves(config: DictConfig | dict, stop_at: Container[str] = ()) -> dict[str, object]:
    """Dotted keys → values as written; what lies under a key in `stop_at` is one value."""

    def walk(prefix: str, value: object) -> dict[str, object]:
        if not isinstance(value, dict) or prefix in stop_at:
            return {prefix: value}
        return {k: v for key, item in value.items() for k, v in walk(f"{prefix}.{key}".lstrip("."), item).items()}

    return walk("", OmegaConf.to_container(config) if isinstance(config, DictConfig) else config)


def _set(config: DictConfig, known: dict[str, object], key: str, value: object, new: bool = False) -> None:
    if key in known:
        _check_kind(key, known[key], value)
    elif not new:
        raise InputError(f"There is no setting '{key}'; {_nearest_key(key, known)}")
    OmegaConf.update(config, key, value, force_add=True)


def _nearest_key(key: str, known: dict[str, object]) -> str:
    """By the whole dotted name, or by its last part alone: `clients` finds `split.clients`."""
    same_ending = [name for name in known if name.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
    if same_ending:
        return f"did you mean {' or '.join(repr(name) for name in same_ending)}?"
    endings = {name.rsplit(".", 1)[-1]: name for name in known}
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6) or [
        endings[match] for match in difflib.get_close_matches(key.rsplit(".", 1)[-1], endings, n=1, cutoff=0.6)
    ]
    return f"did you mean '{close[0]}'?" if close else "see --help, or the files in configs/."


def _check_kind(key: str, old: object, new: object) -> None:
    """A value must be of the kind the configuration file shows; null there means that anything goes."""
    if isinstance(old, str) and "${" in old:
        return
    kinds: list[tuple[type | tuple, type | tuple, str]] = [
        (bool, bool, "true or false"),
        (int, int, "a whole number"),
        (float, (int, float), "a number"),
        (list, list, "a list such as [64,64]"),
    ]
    for of_old, allowed, words in kinds:
        if isinstance(old, of_old):
            fits = isinstance(new, allowed) and (isinstance(new, bool) == isinstance(old, bool))
            if not fits or (isinstance(new, float) and not math.isfinite(new)):
                raise InputError(f"{key}={new} does not fit: {key} takes {words} (now {old}).")
            return

"""Configuration: Hydra's groups and override grammar, with errors that name the nearest thing that exists.

`compose` is what the scripts and a notebook call: `compose("train", ["algo=bc", "split.clients=4"])`.
"""

import difflib
import inspect
import math
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import InstantiationException, OverrideParseException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from data.errors import InputError, nearest
from fed.limits import check_limits

CONFIGS = Path(__file__).parent.parent / "configs"
OF_SEVERAL_KINDS = ("fed.local.mu",)  # a number or a mapping; fed/limits.py knows
GROUPS = ("algo", "fed", "data", "split", "engine", "eval")


def options(group: str) -> list[str]:
    """The names one can choose in a group."""
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


def compose(root: str, overrides: Sequence[str] = (), file: str | Path | None = None) -> DictConfig:
    """One configuration from a root (`train` or `centralized`), an optional YAML file, and `key=value` overrides."""
    parsed = _parse(overrides)
    settings = read_settings(Path(file).expanduser()) if file is not None else {}
    settings.pop("out", None)  # a run's settings may be used again, its folder may not
    for override in parsed:
        if override.is_sweep_override():
            raise InputError(f"'{override.input_line}' names several values; add -m to run each of them.")
        if override.package is not None or override.key_or_group.split(".")[0] == "choices":
            raise InputError(f"'{override.input_line}' cannot be set; choose with algo=…, data=… and so on.")
    choices = dict(settings.pop("choices", {}))
    choices |= {group: settings.pop(group) for group in GROUPS if isinstance(settings.get(group), str)}
    for override in parsed:
        if override.key_or_group in GROUPS:
            if override.value() != choices.get(override.key_or_group):
                settings.pop(override.key_or_group, None)  # the file's settings are those of another choice
            choices[override.key_or_group] = override.value()
    config = _compose_groups(root, choices)
    known = {key: value for key, value in leaves(config).items() if not key.startswith("choices.")}
    known.setdefault("data.path", None)  # several sources by name are one setting too, and so are those they replace
    for key, value in leaves(settings, stop_at=known).items():
        _set(config, known, key, value)
    for override in parsed:
        if override.key_or_group not in GROUPS:
            added = override.is_add() or override.is_force_add()
            _set(config, known, override.key_or_group, override.value(), added)
    if OmegaConf.is_missing(config.data, "path"):
        raise InputError(f"data={config.choices.data} needs to know which: data.path=PATH, or --data PATH.")
    try:
        OmegaConf.resolve(config)
    except OmegaConfBaseException as error:
        raise InputError(f"The configuration cannot be resolved: {str(error).splitlines()[0]}") from error
    check_limits(config)
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


def read_settings(path: Path) -> dict:
    """A YAML mapping of settings, or a sentence."""
    if not path.is_file():
        raise InputError(f"There is no file '{path}'; it should hold settings as YAML, as a run's config.yaml does.")
    try:
        settings = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"'{path}' cannot be read as settings ({reason}); it must be YAML.") from error
    if not isinstance(settings, dict) or not isinstance(settings.get("choices", {}), dict):
        raise InputError(f"'{path}' holds no settings; it must be a YAML mapping, e.g. a run's config.yaml.")
    return settings


def made(config: DictConfig) -> Any:
    """What a `_target_` makes; arguments that it does not take are a sentence."""
    settings = OmegaConf.to_container(config, resolve=True)
    try:
        target = get_object(settings["_target_"])
        takes = _parameters(target)
        anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
        for key in settings.keys() - takes.keys() - {"_target_", "_partial_"}:
            if not anything:
                raise InputError(f"{settings['_target_']} takes no '{key}'; {nearest(key, takes)}")
        return instantiate(settings)
    except (InstantiationException, ImportError, ValueError) as error:
        fault = error if isinstance(error, InputError) else error.__cause__
        if isinstance(fault, InputError):
            raise fault from None
        reason = str(error.__cause__ or error).splitlines()[0]
        raise InputError(f"'{settings['_target_']}' cannot be made: {reason}") from error


def _parameters(target: Any) -> dict[str, inspect.Parameter]:
    """Of a function or a class, with those that a class passes on to its parents as `**settings`."""
    takes = dict(inspect.signature(target).parameters)
    for parent in inspect.getmro(target)[1:-1] if inspect.isclass(target) else ():
        rest = [name for name, parameter in takes.items() if parameter.kind is parameter.VAR_KEYWORD]
        if not rest:
            break
        takes = {name: takes[name] for name in takes if name not in rest} | dict(inspect.signature(parent).parameters)
    return takes


def leaves(config: DictConfig | dict, stop_at: Container[str] = ()) -> dict[str, object]:
    """Dotted keys → values as written; what lies under a key in `stop_at` is one value."""

    def walk(prefix: str, value: object) -> dict[str, object]:
        if not isinstance(value, dict) or prefix in stop_at:
            return {prefix: value}
        return {k: v for key, item in value.items() for k, v in walk(f"{prefix}.{key}".lstrip("."), item).items()}

    return walk("", OmegaConf.to_container(config) if isinstance(config, DictConfig) else config)


def _set(config: DictConfig, known: dict[str, object], key: str, value: object, added: bool = False) -> None:
    if key in known:
        _check_kind(key, known[key], value)
    elif not added:
        raise InputError(f"There is no setting '{key}'; {_nearest_key(key, known)}")
    OmegaConf.update(config, key, value, merge=False, force_add=True)


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
    if (isinstance(old, str) and "${" in old) or key in OF_SEVERAL_KINDS:
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

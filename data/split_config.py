"""A split by name: `configs/split/<name>.yaml` with some options changed."""

from collections.abc import Callable, Sequence
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from data.errors import InputError, nearest
from data.shards import Shards

FOLDER = Path(__file__).parents[1] / "configs" / "split"


def split_named(name: str, overrides: Sequence[str] = (), folder: Path = FOLDER) -> Callable[..., Shards]:
    """The split `split(dataset, seed=...)` of that name; overrides are written `option=value`."""
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in names:
        raise InputError(f"There is no split '{name}'; {nearest(name, names)}")
    config = OmegaConf.load(folder / f"{name}.yaml")
    options = [key for key in config if not key.startswith("_")]
    for override in overrides:
        key, equals, _ = override.partition("=")
        if not equals:
            raise InputError(f"'{override}' is no option; write it as option=value.")
        if key not in options:
            raise InputError(f"Split '{name}' has no option '{key}'; {nearest(key, options)}")
    try:
        changed = OmegaConf.merge(config, OmegaConf.from_dotlist(list(overrides)))
        OmegaConf.resolve(changed)
    except (OmegaConfBaseException, YAMLError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"The options {' '.join(overrides)} cannot be read: {reason}.") from None
    return instantiate(changed)

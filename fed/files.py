"""Files that are either the old or the new version, never half of one; and tensors without pickle."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from data.errors import InputError


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside `path`, force it to disk, then rename over it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: object) -> None:
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, object] | None = None) -> None:
    """Named tensors as safetensors, with `facts` as JSON in the header."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {name: json.dumps(value) for name, value in (facts or {}).items()}
    write_atomically(path, safetensors.torch.save(whole, metadata=header))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict]:
    """The tensors and facts of a file written by `save_tensors`."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            return tensors, {name: json.loads(value) for name, value in (file.metadata() or {}).items()}
    except (safetensors.SafetensorError, OSError) as error:
        raise InputError(f"'{path}' cannot be read as safetensors ({error}); restore it from a copy.") from error

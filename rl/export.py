"""A policy as one file that runs without this project: TorchScript or ONNX."""

import logging
import os
import warnings
from pathlib import Path

import torch

from data.errors import InputError
from rl.deployment import Policy

FORMATS = (".pt", ".onnx")


def export_policy(policy: Policy, path: Path, client: int = 0) -> None:
    """Write `observation [B, S] → action [B, A]`, normalisation and action range inside; the ending says the format."""
    if path.suffix not in FORMATS:
        raise InputError(f"'{path}' must end in {' (TorchScript) or '.join(FORMATS)} (ONNX).")
    module = policy.module(client).cpu().eval()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    # Both exporters announce their successors or describe their progress at length; neither helps a user here.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if path.suffix == ".pt":
            torch.jit.script(module).save(str(temporary))
        else:
            _to_onnx(module, len(policy.mean), temporary)
    os.replace(temporary, path)


def _to_onnx(module: torch.nn.Module, observations: int, path: Path) -> None:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    torch.onnx.export(
        module,
        (torch.zeros(2, observations),),
        str(path),
        input_names=["observation"],
        output_names=["action"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        external_data=False,
        verbose=False,
    )

"""What a client sends, made smaller: its step θ_i − θ at lower precision, or the largest part of it.

The server sees what arrives: compression is applied to the step and undone at once, and the bytes are those of the
message. Down goes the whole model.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from data.randomness import generator
from fed.update import is_module

KINDS = ("none", "float16", "int8", "top_k")


@dataclass(frozen=True)
class Compression:
    """float16: half the bytes. int8 with stochastic rounding, which is right in the mean: a quarter, and a scale for
    each module. top_k: the `keep` share of the largest changes with their places; what is left out is added to the next
    step of this client (error feedback, Stich et al. 2018, arXiv 1809.07599)."""

    kind: str
    keep: float
    seed: int

    def send(
        self,
        client: int,
        round: int,
        sent: Mapping[str, Tensor],
        own: Mapping[str, Tensor],
        errors: Mapping[str, Tensor],
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], int]:
        """What arrives at the server, what the client must remember, and the bytes in between."""
        if self.kind == "none":
            return dict(own), {}, sum(row.nbytes for row in own.values())
        arrived, left, size = {}, {}, 0
        random = generator(self.seed, "compression", client, round)
        for name, row in own.items():
            if not is_module(name):  # Adam's moments, if they are shared
                arrived[name], size = row, size + row.nbytes
                continue
            step = row - sent[name]
            if self.kind == "float16":
                received, bytes_ = step.half().float(), 2 * step.numel()
            elif self.kind == "int8":
                received, bytes_ = self._int8(step, random), step.numel() + 4
            else:
                step = step + errors.get(f"error/{name}", torch.zeros_like(step)).to(step)
                received, bytes_ = self._largest(step)
                left[f"error/{name}"] = step - received
            arrived[name], size = sent[name] + received, size + bytes_
        return arrived, left, size

    def _int8(self, step: Tensor, random: np.random.Generator) -> Tensor:
        """Whole multiples of max|step|/127, rounded up or down by chance, so that the mean is right."""
        unit = step.abs().max() / 127
        if not unit > 0 or not unit.isfinite():
            return step
        chance = torch.from_numpy(random.random(len(step), dtype=np.float32)).to(step)
        return (step / unit + chance).floor().clamp(-127, 127) * unit

    def _largest(self, step: Tensor) -> tuple[Tensor, int]:
        count = max(1, round(self.keep * step.numel()))
        places = step.abs().topk(count).indices
        received = torch.zeros_like(step)
        received[places] = step[places]
        return received, count * 8  # a value and a place of four bytes each

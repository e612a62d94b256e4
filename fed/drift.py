"""How far clients have moved apart in a round: exact sums for any number of them, a sketch of each for a few."""

from collections.abc import Mapping

import torch
from torch import Tensor

from data.randomness import generator
from fed.update import Update, is_module

SKETCH = 1024  # parameters that a sketch looks at, the same for all clients
SKETCHED = 1000  # clients; beyond, single cosines are not recorded


def steps_of(update: Update, sent: Mapping[str, Tensor]) -> Tensor:
    """[k, P] what each client of a chunk has changed, all modules side by side."""
    names = [name for name in sent if is_module(name) and name in update.shared]
    return torch.cat([update.shared[name] - sent[name] for name in names], dim=1)


def sketch_places(parameters: int) -> Tensor:
    """Which parameters a sketch holds."""
    if parameters <= SKETCH:
        return torch.arange(parameters)
    return torch.from_numpy(generator(0, "sketch").choice(parameters, SKETCH, replace=False))


class Drift:
    """Norms and cosines of a round's updates, taken in as they come."""

    def __init__(self, sent: Mapping[str, Tensor]):
        self.sent = sent
        self.norms: dict[int, float] = {}
        self.sketches: dict[int, Tensor] = {}
        self.directions: Tensor | float = 0.0  # Σ Δ_i/‖Δ_i‖

    def accumulate(self, update: Update) -> None:
        if not update.clients or not any(map(is_module, update.shared)):
            return
        steps = steps_of(update, self.sent).double()
        norms = steps.norm(dim=1)
        self.norms.update(zip(update.clients, norms.tolist(), strict=True))
        self.directions = self.directions + (steps / norms.clamp_min(1e-300).unsqueeze(1)).sum(0)
        if len(self.norms) <= SKETCHED:
            sketches = steps[:, sketch_places(steps.shape[1]).to(steps.device)]
            self.sketches.update(zip(update.clients, sketches, strict=True))
        else:
            self.sketches.clear()

    def record(self, state: Mapping[str, Tensor], chosen: list[int]) -> dict:
        """`pairwise_cosine`: mean over pairs of clients; `cosine`: mean cosine of a client's step to the global one;
        `cosines`: of each participant, estimated on a sketch; `norms` of steps; null for whom nothing arrived."""
        count = len(self.norms)
        if not count:
            return {}
        names = [name for name in self.sent if is_module(name)]
        step = torch.cat([(state[name] - self.sent[name]).flatten() for name in names]).double()
        moved = sum(norm > 0 for norm in self.norms.values())  # a step of length 0 has no direction: its cosines are 0
        pairs = (self.directions.square().sum().item() - moved) / (count * (count - 1)) if count > 1 else None
        norm = step.norm().item()
        record = {
            "norms": [self.norms.get(client) for client in chosen],
            "global_norm": norm,
            "pairwise_cosine": pairs,
            "cosine": (self.directions @ step).item() / (count * norm) if norm > 0 else None,
        }
        if len(self.sketches) == count:
            whole = step[sketch_places(len(step)).to(step.device)]
            near = {c: torch.nn.functional.cosine_similarity(s, whole, dim=0).item() for c, s in self.sketches.items()}
            record["cosines"] = [near.get(client) for client in chosen]
        return record

"""Updates that are left out before aggregation: those that are not finite, and, if asked, those unlike the others."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from fed.aggregators.median import middle
from fed.drift import sketch_places, steps_of
from fed.files import load_tensors, save_tensors
from fed.update import Update, is_module


@dataclass(frozen=True)
class Screen:
    """`norm`, `cosine`: how many robust deviations (of the median, by the median absolute deviation) a step's log-norm
    may be away on either side, and its cosine to the clients' median direction below; null does not look.

    To compare, all updates of the round must be there: up to `held` clients in memory and compared as they are, beyond
    that on disk and compared by sketches.
    """

    norm: float | None
    cosine: float | None
    held: int

    def __call__(
        self, updates: Iterable[Update], sent: Mapping[str, Tensor], dropped: dict[int, str]
    ) -> Iterator[Update]:
        """The updates without those that are left out; `dropped` is told who and why."""
        finite = (self._finite(update, dropped) for update in updates)
        if self.norm is None and self.cosine is None:
            yield from finite
            return
        with tempfile.TemporaryDirectory(prefix="screen-") as folder:
            shelf = _Shelf(Path(folder), self.held)
            for update in finite:
                if update.clients and any(map(is_module, update.shared)):
                    shelf.put(update, steps_of(update, sent))
                else:
                    yield update  # there is nothing to compare
            reasons = self.outliers(*shelf.steps()) if shelf.clients else {}
            dropped.update(reasons)
            for update in shelf.take():
                yield update.only([place for place, client in enumerate(update.clients) if client not in reasons])

    def _finite(self, update: Update, dropped: dict[int, str]) -> Update:
        bad = {}
        for name, rows in [*update.shared.items(), *update.extras.items()]:
            sound = rows.flatten(1).isfinite().all(1).tolist() if rows.ndim > 1 else rows.isfinite().tolist()
            bad |= {c: f"its {name} is not finite" for c, fine in zip(update.clients, sound, strict=True) if not fine}
        dropped.update(bad)
        return (
            update.only([place for place, client in enumerate(update.clients) if client not in bad]) if bad else update
        )

    def outliers(self, clients: list[int], norms: Tensor, steps: Tensor) -> dict[int, str]:
        """Who is unlike the others, from the norms `[n]` and the steps `[n, d]`, or sketches of them."""
        reasons: dict[int, str] = {}
        if self.norm is not None:
            away = deviations(norms.clamp_min(1e-300).log())
            for client, far, norm in zip(clients, away.tolist(), norms.tolist(), strict=True):
                if abs(far) > self.norm:
                    reasons[client] = f"the norm of its step, {norm:.3g}, is {abs(far):.1f} deviations from the median"
        if self.cosine is not None:
            directions = steps / steps.norm(dim=1, keepdim=True).clamp_min(1e-300)
            common = middle(directions)
            cosines = directions @ common / common.norm().clamp_min(1e-300)
            for client, far, cosine in zip(clients, deviations(cosines).tolist(), cosines.tolist(), strict=True):
                if far < -self.cosine:
                    why = f"the cosine of its step to the median's, {cosine:.2f}, is {-far:.1f} deviations below"
                    reasons.setdefault(client, why)
        return reasons


def deviations(values: Tensor) -> Tensor:
    """(v − median)/(1.4826 · median absolute deviation); the spread counts as no less than a hundredth, so that clients
    that agree closely are not told apart by chance."""
    centred = values - middle(values)
    return centred / (1.4826 * middle(centred.abs())).clamp_min(0.01)


class _Shelf:
    """A round's updates, in memory or, beyond so many clients, on disk with a sketch each."""

    def __init__(self, folder: Path, held: int):
        self.folder, self.held = folder, held
        self.updates: list[Update] = []
        self.clients: list[int] = []
        self.norms: list[Tensor] = []
        self.compared: list[Tensor] = []
        self.sketched = False

    def put(self, update: Update, steps: Tensor) -> None:
        self.clients += update.clients
        self.norms.append(steps.double().norm(dim=1))
        self.compared.append(self._sketch(steps) if self.sketched else steps.double())
        self.updates.append(update)
        if not self.sketched and len(self.clients) > self.held:
            self.sketched = True
            self.compared = [self._sketch(part) for part in self.compared]
            self.updates = [self._spool(place, update) for place, update in enumerate(self.updates)]
        elif self.sketched:
            self.updates[-1] = self._spool(len(self.updates) - 1, update)

    def steps(self) -> tuple[list[int], Tensor, Tensor]:
        return self.clients, torch.cat(self.norms), torch.cat(self.compared)

    def take(self) -> Iterator[Update]:
        for place, update in enumerate(self.updates):
            if not self.sketched:
                yield update
                continue
            tensors = load_tensors(self._path(place))[0]
            shared = {
                name.removeprefix("shared:"): rows for name, rows in tensors.items() if name.startswith("shared:")
            }
            extras = {
                name.removeprefix("extras:"): rows for name, rows in tensors.items() if name.startswith("extras:")
            }
            yield replace(update, shared=shared, extras=extras)

    def _sketch(self, steps: Tensor) -> Tensor:
        return steps[:, sketch_places(steps.shape[1]).to(steps.device)].double()

    def _spool(self, place: int, update: Update) -> Update:
        tensors = {f"shared:{name}": rows for name, rows in update.shared.items()}
        save_tensors(self._path(place), tensors | {f"extras:{name}": rows for name, rows in update.extras.items()})
        return replace(update, shared={}, extras={})

    def _path(self, place: int) -> Path:
        return self.folder / f"{place}.safetensors"

"""Clients that lie, for tests and studies: what they do to the rewards they learn from, or to what they send."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from data.batch import Batch
from data.errors import InputError
from data.randomness import generator
from fed.update import is_module

ATTACKS = ("sign_flip", "scale", "noise", "non_finite", "stale", "flip_rewards")


@dataclass(frozen=True)
class Adversaries:
    """`strength` is what a step is multiplied by (sign_flip, scale), or the noise in its own root mean squares."""

    clients: frozenset[int]
    attack: str
    strength: float
    seed: int

    @classmethod
    def chosen(cls, who: int | Sequence[int], attack: str, strength: float, seed: int, clients: int) -> "Adversaries":
        """The clients that are named, or so many that the seed chooses."""
        strangers = [] if isinstance(who, int) else [client for client in who if client >= clients]
        if strangers:
            raise InputError(f"clients.adversaries names client {strangers[0]}; there are clients 0 to {clients - 1}.")
        if isinstance(who, int):
            who = generator(seed, "adversaries").choice(clients, min(who, clients), replace=False).tolist()
        return cls(frozenset(who), attack, strength, seed)

    def rows(self, clients: Sequence[int]) -> list[int]:
        return [row for row, client in enumerate(clients) if client in self.clients]

    def poison(self, batch: Batch, rows: list[int]) -> Batch:
        """Rewards with the opposite sign for these rows of the cohort."""
        sign = torch.ones(len(batch.rewards), 1, device=batch.rewards.device)
        sign[rows] = -1.0
        window = batch.window and replace(batch.window, rewards=sign * batch.window.rewards)
        returns = None if batch.returns is None else sign * batch.returns
        weighted = batch.weighted and self.poison(batch.weighted, rows)
        return replace(batch, rewards=sign * batch.rewards, window=window, returns=returns, weighted=weighted)

    def lie(
        self, client: int, round: int, sent: Mapping[str, Tensor], own: Mapping[str, Tensor], last: Mapping
    ) -> dict:
        """What a client says it has come to. `own`: what it has come to; `last`: what it had come to before."""
        lies = dict(own)
        random = generator(self.seed, "attack", client, round)
        for name in filter(is_module, own):
            step = own[name] - sent[name]
            if self.attack in ("sign_flip", "scale"):
                lies[name] = sent[name] + step * (self.strength if self.attack == "scale" else -self.strength)
            elif self.attack == "noise":
                noise = torch.from_numpy(random.standard_normal(len(step), dtype="float32")).to(step)
                lies[name] = own[name] + self.strength * step.square().mean().sqrt() * noise
            elif self.attack == "non_finite":
                lies[name] = torch.full_like(step, torch.nan)
            elif self.attack == "stale":
                lies[name] = last.get(f"before/{name}", sent[name]).to(step)
        return lies

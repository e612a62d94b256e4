"""FEDORA's clients (Rengarajan et al. 2024, arXiv 2305.03097): TD3+BC that trusts the server where it knows better.

The server's side, weights ∝ exp(β J), is `fed.aggregators.softmax.Fedora`.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from data.batch import Batch
from rl.learner import Losses, Metrics, Task
from rl.td3_bc import TD3BC


class FEDORA(TD3BC):
    """TD3+BC with an optimistic target, an actor held to the server's and to the client's own last one, and an
    `influence` of the client's own data that fades in rounds in which the server's value is above its own."""

    row_values = ("value",)

    def __init__(self, task: Task, clients: int, *, to_server: float, to_last: float, decay: float, **settings):
        self.to_server, self.to_last, self.decay = to_server, to_last, decay
        super().__init__(task, clients, **settings)
        actor = self.params["actor"].detach()
        self.memory = {"last_actor": torch.zeros_like(actor), "influence": actor.new_zeros(clients, 1)}

    def broadcast(self, rows: Mapping[str, Tensor]) -> None:
        """A client that is new has no last policy but the server's, and full influence."""
        super().broadcast(rows)
        self.memory["last_actor"].copy_(self.params["actor"].detach())
        self.memory["influence"].fill_(1.0)
        self.begin_round()

    def begin_round(self) -> None:
        """Keep what was sent."""
        self.server = {name: theta.detach().clone() for name, theta in self.params.items()}
        self.advantage = torch.zeros_like(self.memory["influence"]).squeeze(1)  # of the server, summed over the round

    def end_round(self) -> None:
        self.memory["influence"][self.advantage > 0] *= self.decay
        self.memory["last_actor"].copy_(self.params["actor"].detach())

    def next_value(self, batch: Batch, next_actions: Tensor) -> Tensor:
        """max(min_j Q̄_j, min_j Q_j of the server) at (s', a')."""
        server = self.q(self.server["critic"], batch.next_observations, next_actions).amin(1)
        return torch.maximum(super().next_value(batch, next_actions), server)

    def improve_policy(self, batch: Batch) -> tuple[Losses, Metrics]:
        """L(π) = influence · L_TD3+BC(π) + c_s E[(π − π_server)²] + c_l E[(π − π_last)²]."""
        losses, metrics = super().improve_policy(batch)
        actions = self.actor.mode(self.params["actor"], batch.observations)
        with torch.no_grad():
            server = self.actor.mode(self.server["actor"], batch.observations)
            last = self.actor.mode(self.memory["last_actor"], batch.observations)
            its_value = self.first_q(self.server["critic"], batch.observations, server)
            own_value = self.first_q(self.params["critic"], batch.observations, actions)
            self.advantage[self.active] += (its_value - own_value).mean(1)[self.active]
        influence = self.memory["influence"].squeeze(1)
        loss = influence * losses["actor"] + self.to_server * (actions - server).square().mean((1, 2))
        loss = loss + self.to_last * (actions - last).square().mean((1, 2))
        return {"actor": loss}, metrics | {"influence": influence.clone()}

    @torch.no_grad()
    def row_statistics(self, batch: Batch) -> dict[str, Tensor]:
        """Q₁(s, π(s)): what the client thinks its policy is worth."""
        actions = self.actor.mode(self.params["actor"], batch.observations)
        return {"value": self.first_q(self.params["critic"], batch.observations, actions)}

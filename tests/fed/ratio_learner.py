"""A small learner with known ratios, to see what the engine makes of them."""

import torch
from torch import Tensor

from data.batch import Batch
from rl.learner import Learner, Losses, Metrics, Task
from rl.policies import TanhGaussian


class RatioLearner(Learner):
    """BC on rows drawn in proportion to w = exp(c · reward); c, a second module, grows by its learning rate."""

    row_values = ("ratio",)
    weighted_rows = True
    refresh_every = 4
    bounds = {"coefficient": 0.01}  # noqa: RUF012

    def __init__(self, task: Task, clients: int, *, lr: float, loss: str, **common):  # BC's settings
        super().__init__(task, clients, lr={"actor": lr, "coefficient": lr}, **common)

    def build(self, task: Task) -> None:
        self.actor = TanhGaussian(self.mlp(task.observations, 2 * task.actions))

    def initial(self, generator: torch.Generator) -> dict[str, Tensor]:
        return {"actor": self.actor.network.init(generator), "coefficient": torch.zeros(1)}

    def objectives(self, batch: Batch) -> list:
        return [self.imitate, self.grow] if batch.step % 2 == 0 else [self.imitate]

    def imitate(self, batch: Batch) -> tuple[Losses, Metrics]:
        rows = batch.weighted
        log_prob = self.actor.log_prob(self.params["actor"], rows.observations, rows.actions)
        return {"actor": -log_prob.mean(1)}, {"drawn_reward": rows.rewards.mean(1)}

    def grow(self, batch: Batch) -> tuple[Losses, Metrics]:
        coefficient = self.params["coefficient"].squeeze(1)
        metrics = {"coefficient": coefficient.detach(), "steps": torch.full_like(coefficient, batch.step)}
        return {"coefficient": -coefficient}, metrics

    def row_weights(self, batch: Batch) -> Tensor:
        return torch.exp(self.params["coefficient"] * batch.rewards)

    def row_statistics(self, batch: Batch) -> dict[str, Tensor]:
        return {"ratio": self.row_weights(batch)}

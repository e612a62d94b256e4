"""TD3+BC (Fujimoto & Gu 2021, arXiv 2106.06860): TD3 whose actor is also held to the logged actions."""

from data.batch import Batch
from rl.learner import Losses, Metrics, Task
from rl.td3 import TD3


class TD3BC(TD3):
    """TD3 with imitation in the actor's loss; `alpha` weighs the critic against it."""

    def __init__(self, task: Task, clients: int, *, alpha: float, **settings):
        self.alpha = alpha
        super().__init__(task, clients, **settings)

    def improve_policy(self, batch: Batch) -> tuple[Losses, Metrics]:
        """L(π) = −λ E[Q₁(s, π(s))] + E[(π(s) − a)²], λ = α / E|Q₁(s, π(s))| of the client's own batch."""
        actions = self.actor.mode(self.params["actor"], batch.observations)
        q = self.first_q(self.params["critic"].detach(), batch.observations, actions)
        scale = self.alpha / q.detach().abs().mean(1)
        error = (actions - batch.actions).square().mean((1, 2))
        return {"actor": error - scale * q.mean(1)}, {"imitation_error": error.detach()}

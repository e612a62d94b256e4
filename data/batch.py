"""A batch for a cohort of K clients: what the sampler produces and a learner consumes."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """B transitions for each of K clients, normalised, actions in [−1, 1], with the noise the learner will need.

    The noise comes with the rows, so that a learner is a deterministic function of its batch.
    """

    observations: Tensor  # [K, B, S]
    actions: Tensor  # [K, B, A]
    rewards: Tensor  # [K, B]
    next_observations: Tensor  # [K, B, S]
    terminals: Tensor  # [K, B] 1 where the task ended; a timeout is 0 and bootstraps
    noise: Tensor  # [D, K, B, A] standard normal

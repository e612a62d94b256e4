"""A batch for a cohort of K clients: what the sampler produces and a learner consumes."""

from dataclasses import dataclass, fields, replace

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Window:
    """The next m ≤ n steps of the log from each row."""

    rewards: Tensor  # [K, B] Σ_{k<m} γ^k r_{t+k}
    observations: Tensor  # [K, B, S] the state after them
    terminals: Tensor  # [K, B] 1 where the task ended in them
    steps: Tensor  # [K, B] m


def _repeated(values: Tensor | None, clients: int) -> Tensor | None:
    return None if values is None else values.expand(clients, *values.shape[1:])


@dataclass(frozen=True, eq=False)
class Batch:
    """B transitions for each of K clients, normalised, actions in [−1, 1], with the noise the learner will need.

    The noise and the run's position come with the rows, so that a learner is a deterministic function of its batch.
    What only some learners need (the fields that may be None) is drawn only for those that ask.
    """

    observations: Tensor  # [K, B, S]
    actions: Tensor  # [K, B, A]
    rewards: Tensor  # [K, B]
    next_observations: Tensor  # [K, B, S]
    terminals: Tensor  # [K, B] 1 where the task ended; a timeout is 0 and bootstraps
    noise: Tensor  # [D, K, B, A] standard normal
    step: int = 0  # updates of the run before this one, the same for all clients of a round
    progress: float = 0.0  # step / all updates of the run, in [0, 1)
    returns: Tensor | None = None  # [K, B] what the log earned from this row on, discounted (`Shards.returns_to_go`)
    initial_observations: Tensor | None = None  # [K, B, S] from the client's initial states
    initial_weight: Tensor | None = None  # [K] (n0_i/N0)/(N_i/N): see `Shards.initial_weights`
    weighted: "Batch | None" = None  # rows drawn in proportion to the learner's weights; the noise is the same
    window: Window | None = None  # for learners that look several steps ahead

    @property
    def nbytes(self) -> int:
        """Of its rows, without noise."""
        window = [getattr(self.window, f.name) for f in fields(Window)] if self.window else []
        columns = (self.observations, self.actions, self.rewards, self.next_observations, self.terminals, *window)
        return sum(column.nbytes for column in columns)

    def repeated(self, clients: int) -> "Batch":
        """The rows of a cohort of one, `[1, B]`, the same for each of K clients; without noise."""
        window = self.window and Window(*(_repeated(getattr(self.window, f.name), clients) for f in fields(Window)))
        names = ("observations", "actions", "rewards", "next_observations", "terminals", "returns")
        columns = {name: _repeated(getattr(self, name), clients) for name in names}
        return replace(self, **columns, window=window)

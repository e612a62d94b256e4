"""What a run has learned: its policies, loaded from the run folder alone (the data need not be there)."""

from dataclasses import dataclass
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf

from data.dataset import Environment, References
from data.errors import InputError, nearest
from fed.config import made, read_settings
from fed.run_folder import Checkpoint, RunFolder
from rl.deployment import Policy
from rl.envs.evaluation import Evaluation, Evaluator, with_references
from rl.learner import Task


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """The latest policies of a run: the server's, or the clients' own where actors are personal."""

    config: DictConfig
    round: int
    environments: list[Environment]
    policy: Policy
    clients: list[int] | None  # whose policies the rows are; None: the server's one

    @classmethod
    def load(cls, path: Path) -> "TrainedRun":
        folder = RunFolder(path)
        if not folder.checkpoint.exists():
            raise InputError(f"'{path}' holds no finished round; it must be a run folder with checkpoints/.")
        config, last = OmegaConf.create(read_settings(path / "config.yaml")), Checkpoint.load(folder.checkpoint)
        if "actor" in last.state:
            clients, theta = None, last.state["actor"].unsqueeze(0)
        else:
            folder.clients.check(last.facts["clients"])
            folder.clients.committed, clients = last.facts["clients"], sorted(last.facts["clients"])
            if not clients:
                raise InputError(f"'{path}' has personal actors and none has trained yet; wait for its first round.")
            theta = torch.stack([folder.clients.load(client)["actor"] for client in clients])
        task = Task(len(last.constants["mean"]), len(last.constants["action_low"]), reward_bound=1.0)
        learner = made(config.algo)(task, 1, device="cpu")
        policy = Policy(learner.actor, theta, **last.constants)
        return cls(config, last.facts["round"], _environments(last.facts["environments"]), policy, clients)

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        for name, value, least in (("episodes", episodes, 1), ("seed", seed, 0)):
            if value < least:
                raise InputError(f"--{name} is {value}; it must be at least {least}.")
        if not self.environments:
            raise InputError("The run's data named no environment, so there is nothing to play; train with data.env=….")
        return Evaluator(self.environments, episodes, seed, self.config.eval.max_steps)(self.policy)

    def environment(self, name: str | None) -> Environment:
        """The one of this name; without a name, the first."""
        names = [environment.name for environment in self.environments]
        if name is not None and name not in names:
            raise InputError(f"The run has no environment '{name}'; {nearest(name, names)}")
        return self.environments[0 if name is None else names.index(name)]

    def row_of(self, client: int) -> int:
        """The row of a client's own policy."""
        if self.clients is None:
            raise InputError("The actor of this run is shared: there is one policy, and --client does not apply.")
        if client not in self.clients:
            raise InputError(f"Client {client} has no policy in this run; there are {self.clients}.")
        return self.clients.index(client)

    def name(self, row: int) -> str:
        return "server" if self.clients is None else f"client {self.clients[row]}"


def _environments(facts: list[dict]) -> list[Environment]:
    return [
        with_references(
            Environment(**fact | {"references": References(**fact["references"]) if fact["references"] else None})
        )
        for fact in facts
    ]

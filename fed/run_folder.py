"""A run on disk: new, resumable, finished or refused; never half-believed.

A round is committed by one atomic rename: the checkpoint, which carries the round's number, the length that
`rounds.jsonl` had then, and which client files are valid. Whatever a killed round wrote beyond that is cut off when
the run is resumed; whatever is missing of it is said, and nothing is touched.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from data.errors import InputError
from fed.clients import ClientStore
from fed.config import leaves, read_settings
from fed.files import load_tensors, save_tensors, write_atomically, write_json

# A resumed run may be moved, prolonged unless it learns by a schedule, and content with fewer answers.
FREE_TO_CHANGE = ("out", "rounds", "clients.quorum", "clients.attempts")
FACTS = ("round", "records_length", "clients", "data_hash", "environments")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A committed round: the server's modules, what turns an actor into a policy, and facts about the run."""

    state: dict[str, Tensor]
    server: dict[str, Tensor]  # of the server's optimiser
    constants: dict[str, Tensor]
    facts: dict

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        tensors, facts = load_tensors(path)
        missing = [name for name in FACTS if name not in facts]
        if missing:
            raise InputError(f"'{path}' is not a checkpoint of a run: it does not say its {missing[0]}.")
        parts: dict[str, dict[str, Tensor]] = {"": {}, "server": {}, "policy": {}}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition("/")
            kind, rest = (kind, rest) if kind in parts else ("", name)
            parts[kind][rest] = tensor
        facts["clients"] = {int(client): round for client, round in facts["clients"].items()}
        return cls(parts[""], parts["server"], parts["policy"], facts)


class RunFolder:
    def __init__(self, path: Path):
        self.path = path
        self.records = path / "rounds.jsonl"
        self.checkpoint = path / "checkpoints" / "last.safetensors"
        self.clients = ClientStore(path / "clients")

    @classmethod
    def at(cls, path: Path, resume: bool) -> "RunFolder":
        """The folder for a run, refused if something else is there; nothing is written yet."""
        folder = cls(path)
        if path.exists() and not resume:
            raise InputError(f"'{path}' exists; continue it with --resume, or name another folder with --out.")
        foreign = path.exists() and not (path.is_dir() and _may_be_a_run(path))
        if foreign:
            raise InputError(f"'{path}' is not a run folder; name another folder with --out.")
        return folder

    def check(self, config: DictConfig, data_hash: str, by_progress: bool = False) -> Checkpoint | None:
        """The last commit, after making sure that `config` may go on from it with what is there.

        by_progress: learning goes by the part of the run that is over, so another length is another run.
        """
        settings = self.path / "config.yaml"
        if settings.exists():
            old = read_settings(settings)
            self._check_same(leaves(old), leaves(config))
            if by_progress and old["rounds"] != config.rounds:
                raise InputError(
                    f"'{self.path}' learns by a schedule over its {old['rounds']} rounds, so rounds={config.rounds} "
                    "would be another run; name another --out, or train with algo.schedule=constant."
                )
        if not self.checkpoint.exists():
            if self.records.exists() and self.records.read_bytes().count(b"\n") > 1:
                raise InputError(f"'{self.path}' has rounds but no {self.checkpoint.name}; restore it, or begin anew.")
            return None
        last = Checkpoint.load(self.checkpoint)
        if last.facts["data_hash"] != data_hash:
            raise InputError(f"The data of '{self.path}' has changed since it began; start anew with another --out.")
        if last.facts["round"] > config.rounds:
            raise InputError(f"'{self.path}' has done {last.facts['round']} rounds, more than rounds={config.rounds}.")
        if not self.records.exists() or self.records.stat().st_size < last.facts["records_length"]:
            raise InputError(f"'{self.records}' has lost records; restore it from a copy, or begin anew.")
        self.clients.check(last.facts["clients"])
        return last

    def begin(self, config: DictConfig, shards: dict, last: Checkpoint | None) -> None:
        """Write what describes the run, and forget whatever lies beyond the last commit."""
        write_atomically(self.path / "config.yaml", OmegaConf.to_yaml(config, resolve=True).encode())
        write_json(self.path / "shards.json", shards)
        (self.path / "summary.json").unlink(missing_ok=True)  # it spoke of fewer rounds
        with self.records.open("ab") as file:
            file.truncate(last.facts["records_length"] if last else 0)
        self.clients.recover(last.facts["clients"] if last else {})

    def commit(
        self,
        record: dict,
        state: Mapping[str, Tensor],
        constants: Mapping[str, Tensor],
        facts: dict,
        best: bool = False,
    ) -> None:
        """Append the record, then make the round count; the best by evaluation is kept beside the last."""
        with self.records.open("ab") as file:
            file.write((json.dumps(record, allow_nan=False) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
        tensors = dict(state) | {f"policy/{name}": tensor for name, tensor in constants.items()}
        position = {
            "round": record["round"],
            "records_length": self.records.stat().st_size,
            "clients": self.clients.committed | self.clients.pending,
        }
        if best:
            save_tensors(self.checkpoint.with_name("best.safetensors"), tensors, facts | position)
        save_tensors(self.checkpoint, tensors, facts | position)
        self.clients.commit()

    def rounds_done(self) -> int | None:
        """The last committed round; None before the first."""
        return load_tensors(self.checkpoint)[1]["round"] if self.checkpoint.exists() else None

    def history(self) -> list[dict]:
        return [json.loads(line) for line in self.records.read_text().splitlines()]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time: two that resume the same run would delete each other's files."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("w")
        except OSError as error:
            raise InputError(f"'{self.path}' cannot be written ({error.strerror}); name another --out.") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(f"'{self.path}' is being run by another process.") from error
            yield

    def _check_same(self, old: dict, new: dict) -> None:
        different = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
        different = [key for key in different if key not in FREE_TO_CHANGE]
        if different:
            changes = ", ".join(f"{key} was {old.get(key)} and is now {new.get(key)}" for key in different)
            raise InputError(f"'{self.path}' is a run of another configuration ({changes}); name another --out.")


def _may_be_a_run(path: Path) -> bool:
    """It has a run's settings, or nothing but what a run killed in its first moment leaves."""
    return (path / "config.yaml").is_file() or all(entry.name.startswith(".") for entry in path.iterdir())


def with_the_layout_of_its_run(config: DictConfig) -> DictConfig:
    """A run keeps the layout that was chosen when it began, on whatever machine it is resumed."""
    old = Path(config.out) / "config.yaml"
    engine = read_settings(old).get("engine", {}) if old.is_file() else {}
    layout = {key: value for key, value in engine.items() if config.engine.get(key) is None}
    return OmegaConf.merge(config, {"engine": layout})

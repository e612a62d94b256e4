"""A run on disk: new, resumable, finished or refused; never half-believed.

A round is committed by one atomic rename: the checkpoint, which carries the round's number and the length that
`rounds.jsonl` had then. Whatever a killed round wrote beyond that is cut off when the run is resumed.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from data.errors import InputError
from fed.clients import ClientStore
from fed.config import leaves
from fed.files import load_tensors, save_tensors, write_atomically, write_json

FREE_TO_CHANGE = ("out", "rounds")  # a resumed run may be moved or prolonged


class RunFolder:
    def __init__(self, path: Path):
        self.path = path
        self.records = path / "rounds.jsonl"
        self.checkpoint = path / "checkpoints" / "last.safetensors"
        self.clients = ClientStore(path / "clients")

    @classmethod
    def open(cls, config: DictConfig, resume: bool) -> "RunFolder":
        """The folder `config.out`, checked against what may already be there; nothing is written yet."""
        folder = cls(Path(config.out))
        if not folder.path.exists():
            return folder
        if not resume:
            raise InputError(f"'{folder.path}' exists; continue it with --resume, or name another folder with --out.")
        old_path = folder.path / "config.yaml"
        if old_path.exists():
            _check_same(leaves(OmegaConf.load(old_path)), leaves(config), folder.path)
        elif any(folder.path.iterdir()):
            raise InputError(f"'{folder.path}' is not a run folder; name another folder with --out.")
        return folder

    def begin(self, config: DictConfig, shards: dict, data_hash: str) -> tuple[int, dict[str, Tensor]] | None:
        """Write what describes the run; return the last committed round and its state, if there is one."""
        tensors, facts = load_tensors(self.checkpoint) if self.checkpoint.exists() else ({}, {"data_hash": data_hash})
        if facts["data_hash"] != data_hash:
            raise InputError(f"The data of '{self.path}' has changed since it began; start anew with another --out.")
        (self.path / "summary.json").unlink(missing_ok=True)  # it spoke of fewer rounds
        write_atomically(self.path / "config.yaml", OmegaConf.to_yaml(config, resolve=True).encode())
        write_json(self.path / "shards.json", shards)
        if not tensors:
            self.records.write_bytes(b"")
            self.clients.recover(-1)
            return None
        os.truncate(self.records, facts["records_length"])
        self.clients.recover(facts["round"])
        return facts["round"], {name: tensor for name, tensor in tensors.items() if not name.startswith("policy/")}

    def commit(self, record: dict, state: Mapping[str, Tensor], constants: Mapping[str, Tensor], facts: dict) -> None:
        """Append the record, then make the round count."""
        with self.records.open("ab") as file:
            file.write((json.dumps(record, allow_nan=False) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
        tensors = dict(state) | {f"policy/{name}": tensor for name, tensor in constants.items()}
        facts = facts | {"round": record["round"], "records_length": self.records.stat().st_size}
        save_tensors(self.checkpoint, tensors, facts)
        self.clients.commit()

    def history(self) -> list[dict]:
        return [json.loads(line) for line in self.records.read_text().splitlines()]


def with_the_layout_of_its_run(config: DictConfig) -> DictConfig:
    """A run keeps the layout that was chosen when it began, on whatever machine it is resumed."""
    old = Path(config.out) / "config.yaml"
    if not old.is_file():
        return config
    layout = {key: value for key, value in OmegaConf.load(old).engine.items() if config.engine.get(key) is None}
    return OmegaConf.merge(config, {"engine": layout})


def _check_same(old: dict, new: dict, path: Path) -> None:
    different = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    different = [key for key in different if key not in FREE_TO_CHANGE]
    if different:
        changes = ", ".join(f"{key} was {old.get(key)} and is now {new.get(key)}" for key in different)
        raise InputError(f"'{path}' is a run of another configuration ({changes}); use its own, or another --out.")

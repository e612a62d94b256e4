"""What stays with a client between rounds: one file each, so a thousand clients cost disk, not memory."""

import re
from pathlib import Path

from torch import Tensor

from fed.files import load_tensors, save_tensors

_NAME = re.compile(r"(\d+)\.round(\d+)\.safetensors")


class ClientStore:
    """Optimiser moments, targets and personal modules of each client that has taken part.

    A file carries the round that wrote it and counts only once that round is committed. Until then the version
    before it is kept, so that a killed round can be run again from where its clients stood.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.committed: dict[int, int] = {}  # client → round of its valid file
        self.pending: dict[int, int] = {}

    def find(self, last_round: int) -> list[Path]:
        """Learn each client's valid file as of `last_round`; return the files that are not valid."""
        self.committed, self.pending = {}, {}
        files = sorted(self.folder.iterdir()) if self.folder.exists() else []
        for path in files:  # a client's files come in the order of their rounds
            match = _NAME.fullmatch(path.name)
            if match and int(match[2]) <= last_round:
                self.committed[int(match[1])] = int(match[2])
        valid = {self._path(*item) for item in self.committed.items()}
        return [path for path in files if path not in valid]

    def recover(self, last_round: int) -> None:
        """Delete what rounds after `last_round` wrote, and what the rounds before had replaced."""
        for path in self.find(last_round):
            path.unlink()

    def latest(self, client: int) -> dict[str, Tensor] | None:
        """The client's state after the round in progress, if it has taken part in it."""
        if client in self.pending:
            return load_tensors(self._path(client, self.pending[client]))[0]
        return self.load(client)

    def load(self, client: int) -> dict[str, Tensor] | None:
        """The client's state, or None if it has never taken part."""
        if client not in self.committed:
            return None
        return load_tensors(self._path(client, self.committed[client]))[0]

    def save(self, client: int, round: int, state: dict[str, Tensor]) -> None:
        save_tensors(self._path(client, round), state)
        self.pending[client] = round

    def commit(self) -> None:
        """The round is in the checkpoint: its files are now the valid ones."""
        for client, round in self.pending.items():
            if client in self.committed and self.committed[client] != round:
                self._path(client, self.committed[client]).unlink()
            self.committed[client] = round
        self.pending = {}

    def _path(self, client: int, round: int) -> Path:
        return self.folder / f"{client:06d}.round{round:06d}.safetensors"

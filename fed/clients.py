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

    def recover(self, last_round: int) -> None:
        """Forget what rounds after `last_round` wrote, and what they were to replace."""
        self.committed, self.pending = {}, {}
        if not self.folder.exists():
            return
        for path in sorted(self.folder.iterdir()):
            match = _NAME.fullmatch(path.name)
            client, round = (int(match[1]), int(match[2])) if match else (-1, last_round + 1)
            if round > last_round or self.committed.get(client, -1) > round:
                path.unlink()
                continue
            if client in self.committed:
                self._path(client, self.committed[client]).unlink()
            self.committed[client] = round

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

"""What stays with a client between rounds: one file each, so a thousand clients cost disk, not memory."""

from pathlib import Path

from torch import Tensor

from data.errors import InputError
from fed.files import load_tensors, save_tensors


class ClientStore:
    """Optimiser moments, targets and personal modules of each client that has taken part.

    A file carries the round that wrote it and counts only once that round is committed. Until then the version
    before it is kept, so that a killed round can be run again from where its clients stood.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.committed: dict[int, int] = {}  # client → round of its valid file
        self.pending: dict[int, int] = {}

    def check(self, committed: dict[int, int]) -> None:
        """Make sure that every client's valid file, as the checkpoint lists them, is there."""
        for client, round in committed.items():
            if not self._path(client, round).exists():
                raise InputError(f"'{self._path(client, round)}' is missing; restore it, or begin the run anew.")

    def recover(self, committed: dict[int, int]) -> None:
        """Keep the valid files; delete what a killed round wrote, and what the rounds before had replaced."""
        self.committed, self.pending = dict(committed), {}
        valid = {self._path(*item) for item in committed.items()}
        for path in self.folder.iterdir() if self.folder.exists() else ():
            if path not in valid:
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

    def take_back(self, client: int, kinds: tuple[str, ...]) -> None:
        """What the client sent in the round in progress never counted: tensors of these kinds (`kind/…`) are again what
        they were before it."""
        if client not in self.pending:
            return
        before, after = self.load(client) or {}, self.latest(client)
        kept = {name: tensor for name, tensor in after.items() if not name.startswith(kinds)}
        kept |= {name: tensor for name, tensor in before.items() if name.startswith(kinds)}
        self.save(client, self.pending[client], kept)

    def discard(self) -> None:
        """The round in progress will be tried again: forget what it wrote."""
        for client, round in self.pending.items():
            self._path(client, round).unlink()
        self.pending = {}

    def commit(self) -> None:
        """The round is in the checkpoint: its files are now the valid ones."""
        for client, round in self.pending.items():
            if client in self.committed and self.committed[client] != round:
                self._path(client, self.committed[client]).unlink()
            self.committed[client] = round
        self.pending = {}

    def _path(self, client: int, round: int) -> Path:
        return self.folder / f"{client:06d}.round{round:06d}.safetensors"

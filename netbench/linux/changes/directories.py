"""Directories of a run."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from netbench.linux.changes.base import Change, Machine
from netbench.linux.state import STATE_DIRECTORY


@dataclass(frozen=True, slots=True)
class AddRunDirectory(Change):
    """A directory of netbench's own under its state directory, for the sockets and the console of a guest."""

    path: str

    @property
    def argv(self) -> tuple[str, ...]:
        return "mkdir", "-p", "-m", "700", self.path

    def make(self, machine: Machine) -> None:
        Path(self.path).mkdir(mode=0o700, parents=True)

    def undo(self, machine: Machine) -> None:
        if Path(self.path).is_relative_to(STATE_DIRECTORY):
            shutil.rmtree(self.path, ignore_errors=True)  # gone already: undone already

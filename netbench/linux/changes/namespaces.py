"""Network namespaces."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pyroute2 import netns as namespaces

from netbench.hosts.signals import shielded
from netbench.linux.changes.base import Change, Machine
from netbench.linux.changes.requests import not_ours


@dataclass(frozen=True, slots=True)
class AddNamespace(Change):
    """A named network namespace."""

    name: str

    @property
    def argv(self) -> tuple[str, ...]:
        return "ip", "netns", "add", self.name

    @property
    def undo_argv(self) -> tuple[str, ...]:
        return "ip", "netns", "del", self.name

    def as_found(self, machine: Machine) -> Self:
        if (Path("/run/netns") / self.name).exists():
            raise not_ours(f"the network namespace {self.name}")
        return self

    def make(self, machine: Machine) -> None:
        with shielded():  # pyroute2 forks
            namespaces.create(self.name)

    def undo(self, machine: Machine) -> None:
        machine.netlink.forget(self.name)
        if (Path("/run/netns") / self.name).exists():
            namespaces.remove(self.name)

"""The changes that netbench makes on a machine with OpenVZ: containers, their start, and their NICs."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.changes import Change, MachineState
from netbench.linux.changes.base import not_ours
from netbench.model.interfaces import PREFIX
from netbench.vmm.openvz_tools import OpenVzContainer, box

_CREATE_S = 900.0  # a template may have to be downloaded and unpacked
_OTHERWISE_S = 300.0  # `vzctl stop` alone waits up to 120 s for a container to shut down


@dataclass(frozen=True, slots=True)
class OfContainer(Change):
    """A change to one container, by its name or number in `tool`."""

    tool: str
    ident: str

    @property
    def _box(self) -> OpenVzContainer:
        return box(self.tool, self.ident)

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        raise NotImplementedError

    @property
    def command(self) -> str:
        return " && ".join(map(shlex.join, self._commands))

    def make(self, host: Host) -> None:
        for command in self._commands:
            run_checked(host, command, timeout_s=_CREATE_S)


@dataclass(frozen=True, slots=True)
class AddContainer(OfContainer):
    """A container of netbench, made from a template; undo stops and destroys it."""

    name: str
    template: str
    memory_mib: int
    shares: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        made = self._box.create(self.name, self.template)
        return [made, self._box.configure(self.memory_mib, self.shares, self.features)]

    def found(self, look: MachineState) -> Self:
        exists, _ = self._box.status(look.host)
        if exists:
            raise not_ours(f"the container {self.ident}")
        return self

    def undo(self, host: Host) -> None:
        exists, runs = self._box.status(host)
        # A container with another name was made by somebody else meanwhile. One that is half made has no name yet.
        if not exists or not self.name.startswith(PREFIX) or self._box.name(host) not in ("", self.name):
            return
        if runs:
            run_checked(host, self._box.stop(at_once=True), timeout_s=_OTHERWISE_S)
        run_checked(host, self._box.destroy(), timeout_s=_OTHERWISE_S)


@dataclass(frozen=True, slots=True)
class StartContainer(OfContainer):
    """Start a container; one that `ran` before is left unchanged. Undo stops netbench's `own` containers at once."""

    own: bool
    ran: bool = False

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        return [] if self.ran else [self._box.start()]

    def found(self, look: MachineState) -> Self:
        exists, runs = self._box.status(look.host)
        if not exists:
            raise TestbedError(f"there is no container {self.ident}: name one that `{self._box.lister}` lists")
        return replace(self, ran=runs)

    def undo(self, host: Host) -> None:
        if not self.ran and self._box.status(host)[1]:
            run_checked(host, self._box.stop(at_once=self.own), timeout_s=_OTHERWISE_S)


@dataclass(frozen=True, slots=True)
class AddContainerNic(OfContainer):
    """A NIC of a running container: a pair of virtual Ethernet interfaces, both ends named `nic`."""

    nic: str
    mac: str
    host_mac: str

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        return self._box.add_nic(self.nic, self.mac, self.host_mac)

    def found(self, look: MachineState) -> Self:
        look.refuse_existing(None, self.nic)
        return self

    def undo(self, host: Host) -> None:
        # It is gone if the container has stopped, and may never have been made.
        if self._box.status(host)[1] and host.run(["ip", "link", "show", "dev", self.nic]).exit_code == 0:
            run_checked(host, self._box.remove_nic(self.nic), timeout_s=_OTHERWISE_S)

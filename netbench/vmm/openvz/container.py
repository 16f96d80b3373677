"""OpenVZ containers: the commands of its tools by their manual pages, and the changes they make.

None was ever run against OpenVZ. `vzctl` is that of OpenVZ 6 (vzctl(8), vzlist(8), version 4.11). `prlctl` is that of
Virtuozzo and OpenVZ 7 and later (prlctl(8)). Those have a vzctl(8) too: only it has an option for the name of the
machine's end of a NIC.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.changes import Change, MachineState
from netbench.linux.changes.base import not_ours
from netbench.model.paths import PREFIX

OpenVzTool = Literal["vzctl", "prlctl"]

_CREATE_S = 900.0  # a template may have to be downloaded and unpacked
_CHANGE_S = 300.0  # `vzctl stop` alone waits up to 120 s for a container to shut down
_OF_PRLCTL = {"destroy": "delete", "exec2": "exec"}  # its names of commands of vzctl


@dataclass(frozen=True, slots=True)
class OpenVzContainer:
    """A container, identified by its number (`vzctl`, which also accepts names) or its name (`prlctl`)."""

    tool: OpenVzTool
    ident: str

    def command(self, action: str, *words: str) -> list[str]:
        """Return a command of its tool for it; `action` is the name of vzctl's command."""
        return [self.tool, action if self.tool == "vzctl" else _OF_PRLCTL.get(action, action), self.ident, *words]

    def inside(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs a command in it, with that command's exit code: by its shell, as one string."""
        return self.command("exec2", shlex.join(argv))

    def status(self, host: Host) -> tuple[bool, bool]:
        """Return whether the container exists, and whether it runs; TestbedError for unexpected output.

        The output is one line: `CTID 101 exist mounted running` (vzctl(8), "status"), `CT name exist running` (prlctl).
        """
        command = self.command("status")
        output = run_checked(host, command, timeout_s=60.0).strip()
        words = output.split()[2:]  # a container may be called `running`
        if not {"exist", "deleted"} & set(words):
            raise TestbedError(f"`{' '.join(command)}` printed an unknown status: {output or 'nothing'}")
        return "exist" in words, "exist" in words and "running" in words

    def stop(self, host: Host, *, at_once: bool = True) -> None:
        """Stop it if it runs: at once, or by a shutdown."""
        if self.status(host)[1]:
            words = ("--fast" if self.tool == "vzctl" else "--kill",) if at_once else ()
            run_checked(host, self.command("stop", *words), timeout_s=_CHANGE_S)


@dataclass(frozen=True, slots=True)
class OpenVzChange(Change):
    """A change to one container, by its name or number in `tool`."""

    tool: OpenVzTool
    ident: str

    @property
    def _container(self) -> OpenVzContainer:
        return OpenVzContainer(self.tool, self.ident)

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
class AddContainer(OpenVzChange):
    """A container of netbench, made from a template (empty: the default in vz.conf(5)); undo stops and destroys it.

    Its memory, its CPU `shares` (options of both tools) and its kernel `features` are set permanently.
    """

    name: str
    template: str
    memory_mib: int
    shares: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        source = ["--ostemplate", self.template] if self.template else []
        features = ["--features", ",".join(f"{feature}:on" for feature in self.features)] if self.features else []
        settings, memory = [*self.shares, *features], f"{self.memory_mib}M"
        if self.tool == "prlctl":
            return [
                ["prlctl", "create", self.name, *source, "--vmtype", "ct"],
                self._container.command("set", "--autostart", "off", "--memsize", memory, *settings),
            ]
        return [
            self._container.command("create", *source, "--name", self.name),
            # "you must only set --ram and --swap"
            self._container.command("set", "--onboot", "no", "--ram", memory, "--swap", "0", *settings, "--save"),
        ]

    def with_former_state(self, state: MachineState) -> Self:
        if self._container.status(state.host)[0]:
            raise not_ours(f"the container {self.ident}")
        return self

    def undo(self, host: Host) -> None:
        if not self.name.startswith(PREFIX) or not self._container.status(host)[0]:
            return
        if self.tool == "vzctl":
            # One with another name was made by somebody else meanwhile. One that is half made has no name (`-`) yet.
            name = run_checked(host, ["vzlist", "-a", "-H", "-t", "-o", "name", self.ident]).strip()
            if name not in ("", "-", self.name):
                return
        elif self.ident != self.name:
            return
        self._container.stop(host)
        run_checked(host, self._container.command("destroy"), timeout_s=_CHANGE_S)


@dataclass(frozen=True, slots=True)
class StartContainer(OpenVzChange):
    """Start a container; one that `ran` before is left unchanged. Undo stops netbench's `own` containers at once."""

    own: bool
    ran: bool = False

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        return [] if self.ran else [self._container.command("start")]

    def with_former_state(self, state: MachineState) -> Self:
        exists, runs = self._container.status(state.host)
        if not exists:
            lister = "vzlist --all" if self.tool == "vzctl" else "prlctl list --all"
            raise TestbedError(f"there is no container {self.ident}: name one that `{lister}` lists")
        return replace(self, ran=runs)

    def undo(self, host: Host) -> None:
        if not self.ran:
            self._container.stop(host, at_once=self.own)


@dataclass(frozen=True, slots=True)
class AddContainerNic(OpenVzChange):
    """A NIC of a running container: a pair of virtual Ethernet interfaces, both ends named `nic`.

    The filter of MAC addresses, on by default, goes off. Nothing is saved (no --save): the NIC is removed when the
    container stops.
    """

    nic: str
    mac: str
    host_mac: str

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        change = ["vzctl", "set", self.ident]
        return [
            [*change, "--netif_add", f"{self.nic},{self.mac},{self.nic},{self.host_mac}"],
            [*change, "--ifname", self.nic, "--mac_filter", "off"],
        ]

    def with_former_state(self, state: MachineState) -> Self:
        state.refuse_existing(None, self.nic)
        return self

    def undo(self, host: Host) -> None:
        # It is gone if the container has stopped, and may never have been made.
        if self._container.status(host)[1] and host.run(["ip", "link", "show", "dev", self.nic]).exit_code == 0:
            run_checked(host, ["vzctl", "set", self.ident, "--netif_del", self.nic], timeout_s=_CHANGE_S)

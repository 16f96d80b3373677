"""Settings of the kernel, nftables tables, control groups, and directories of a run."""

import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

from netbench.errors import Fault, TestbedError
from netbench.hosts.base import Host, exists, refusal, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.remote_code import SCRATCH, program_command
from netbench.linux import connection_table
from netbench.linux.cgroups import USUAL_DIRECTORY, CpuController, find_controller
from netbench.linux.changes.base import Change, InNamespace, MachineState, not_ours
from netbench.linux.locks import STATE_DIRECTORY
from netbench.linux.netns import within_each
from netbench.linux.nft_rules import own_tables
from netbench.model.paths import PREFIX

T = TypeVar("T")

_EMPTY_S = 5.0  # time limit for the last process to leave a control group
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class SetSysctl(InNamespace):
    """A kernel setting; `old` is its former value. If `optional`, a setting that this kernel lacks is skipped.

    As for sysctl(8), a `/` in `key` means a dot in a name.
    """

    key: str
    value: str
    optional: bool = False
    old: str | None = None

    @property
    def command(self) -> str:
        return self._shell_command("sysctl", "-w", f"{self.key}={self.value}")

    @property
    def _path(self) -> str:
        return "/proc/sys/" + self.key.translate(str.maketrans("./", "/."))

    def with_former_state(self, state: MachineState) -> Self:
        try:
            return replace(self, old=self._read(state.host).strip())
        except TestbedError:
            if self.optional:
                return self
            raise

    def make(self, host: Host) -> None:
        if self.old is not None and self.old != self.value:
            self._write(host, self.value)

    def undo(self, host: Host) -> None:
        if self.old is None or self.old == self.value:
            return
        try:
            self._read(host)
        except TestbedError as error:
            if Fault.GONE in error.fault:
                return  # the interface was removed
            raise
        self._write(host, self.old)

    def _read(self, host: Host) -> str:
        if self.netns and host.shares_files:
            return self._by_thread(self.netns, Path.read_text)
        return self._within(host).read(self._path)

    def _write(self, host: Host, value: str) -> None:
        if self.netns and host.shares_files:
            self._by_thread(self.netns, lambda path: path.write_text(value))
        else:
            self._within(host).write(self._path, value)

    def _by_thread(self, netns: str, use: Callable[[Path], T]) -> T:
        """Read or write in a thread on this machine, where a command in a namespace takes several ms."""
        try:
            return within_each([netns], lambda _: use(Path(self._path)))[netns]
        except OSError as error:
            raise refusal(f"{self._path} of {netns}", error.strerror) from error


def of_nic(version: int, interface: str, name: str) -> str:
    """Return the key of an interface's setting `name` in the kernel's IPv4 or IPv6."""
    return f"net.ipv{version}.conf.{interface.replace('.', '/')}.{name}"


@dataclass(frozen=True, slots=True)
class ForgetConnections(InNamespace):
    """An empty connection table: a connection keeps the translated addresses of the UUT that saw its first packet.

    It is for namespaces that netbench has made. A host without Python keeps its connections.
    """

    @property
    def command(self) -> str:
        return self._shell_command("conntrack", "-F")

    def make(self, host: Host) -> None:
        if not host.shares_files:
            try:
                run_checked(self._within(host), program_command(host, connection_table))
            except TestbedError as error:
                if Fault.GONE not in error.fault:
                    raise
            return
        try:
            within_each([self.netns], lambda _: connection_table.flush())
        except OSError as error:
            raise refusal(f"flushing conntrack of {self.netns}", error.strerror) from error


@dataclass(frozen=True, slots=True)
class AddTable(InNamespace):
    """An nftables table of netbench; `rules` are an `nft -f` script that makes it, or replaces an existing one."""

    family: str
    table: str
    rules: str

    @property
    def command(self) -> str:
        return f"{self._shell_command('nft', '-f', '-')} <<'END'\n{self.rules}END"

    def with_former_state(self, state: MachineState) -> Self:
        if self._within(state.host).run(["nft", "list", "table", self.family, self.table]).exit_code == 0:
            raise not_ours(f"the nftables table {self.family} {self.table}")
        return self

    def make(self, host: Host) -> None:
        own_tables.add((self.family, self.table))
        run_checked(self._within(host), ["nft", "-f", "-"], stdin=self.rules)

    def undo(self, host: Host) -> None:
        # Adding it first makes the deletion succeed even if it did not exist.
        script = f"add table {self.family} {self.table}\ndelete table {self.family} {self.table}\n"
        run_checked(self._within(host), ["nft", "-f", "-"], stdin=script)
        own_tables.discard((self.family, self.table))


@dataclass(frozen=True, slots=True)
class AddRunDirectory(Change):
    """A directory of netbench, for the sockets and the console of a guest, or for temporary files of a run.

    One that existed before (`was_there`) is not netbench's, and stays.
    """

    path: str
    was_there: bool = False

    @property
    def command(self) -> str:
        return shlex.join(self._argv)

    @property
    def _argv(self) -> tuple[str, ...]:
        return "mkdir", "-p", "-m", "700", self.path

    def with_former_state(self, state: MachineState) -> Self:
        return replace(self, was_there=exists(state.host, self.path))

    def make(self, host: Host) -> None:
        run_checked(host, self._argv)

    def undo(self, host: Host) -> None:
        ours = Path(self.path).is_relative_to(STATE_DIRECTORY) or self.path.startswith(SCRATCH)
        if ours and not self.was_there:
            run_checked(host, ["rm", "-rf", self.path])


@dataclass(frozen=True, slots=True)
class AddCgroup(InNamespace):
    """A control group for the processes of one guest: a weight and a limit of CPU time, None: the default.

    `directory` and `version` default to the usual ones until detected. `switched_on` is true if netbench had to enable
    the cpu controller of version 2.
    """

    name: str
    weight: int | None = None
    limit: float | None = None
    directory: str = USUAL_DIRECTORY
    version: int = 2
    switched_on: bool = False

    @property
    def path(self) -> str:
        """Its directory."""
        return f"{self.directory}/{self.name}"

    @property
    def command(self) -> str:
        writes = [f"echo {text} >{self.path}/{file}" for file, text in self._settings]
        return " && ".join([shlex.join(("mkdir", self.path)), *writes])

    @property
    def _settings(self) -> list[tuple[str, str]]:
        return list(CpuController(self.directory, self.version).settings(self.weight, self.limit))

    @property
    def _switch(self) -> str:
        return f"{self.directory}/cgroup.subtree_control"

    def with_former_state(self, state: MachineState) -> Self:
        controller = find_controller(state.host)
        change = replace(self, directory=controller.directory, version=controller.version)
        if state.host.run(["test", "-e", change.path]).exit_code == 0:
            raise not_ours(f"the control group {change.path}")
        return replace(change, switched_on=change.version == 2 and "cpu" not in state.host.read(change._switch).split())

    def make(self, host: Host) -> None:
        if self.switched_on:
            try:
                host.write(self._switch, "+cpu")
            except TestbedError as error:
                raise TestbedError(
                    f"the cpu controller cannot be switched on for control groups in {self.directory} ({error}): "
                    "switch it on yourself, or leave cpu_weight and cpu_limit out of the topology"
                ) from error
        run_checked(host, ["mkdir", self.path])
        for file, text in self._settings:
            host.write(f"{self.path}/{file}", text)

    def undo(self, host: Host) -> None:
        if not self.name.startswith(PREFIX) or "/" in self.name:
            return

        remove_group(host, self.path)
        if self.switched_on:
            others = [name for name in host.run(["ls", self.directory]).stdout.split() if name.startswith(PREFIX)]
            with suppress(TestbedError):  # rejected if other software uses it by now
                if not others:
                    host.write(self._switch, "-cpu")


def remove_group(host: Host, path: str) -> None:
    """Remove a control group, if it exists, once its last process has gone; TestbedError lists those that stay."""

    def removed() -> bool:
        is_present = host.run(["test", "-d", path]).exit_code == 0
        return not is_present or host.run(["rmdir", path]).exit_code == 0

    if not wait_until(removed, _EMPTY_S, _POLL_S):
        inside = ", ".join(host.read(f"{path}/cgroup.procs").split())
        raise TestbedError(f"the control group {path} is still used by the processes {inside or 'unknown'}")

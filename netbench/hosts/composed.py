"""Hosts made of another host: its network namespace, part of its CPUs, or with the cause of its machine's death."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from typing import Protocol, runtime_checkable

from netbench.errors import MachineGoneError, MissingError, TestbedError
from netbench.hosts.base import Completed, Connection, FilesByCommand, GoneError, Host, Process
from netbench.hosts.local import LocalHost, require_tool
from netbench.hosts.python_modules import module_command


@runtime_checkable
class RunsNetbench(Protocol):
    """A machine that netbench's modules were copied to; `scratch` is a directory there for temporary files."""

    scratch: str

    def module_command(self, module: str, *arguments: str) -> list[str]:
        """Return the command that runs one of these modules; MissingError for other modules."""

    def bring(self, package: str) -> None:
        """Copy another package of this machine's Python there, for these modules, unless it is there."""


class _Inner:
    """The part that a composed host delegates to its inner host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def made_of(self) -> Host:
        """The inner host."""
        return self._host

    def __str__(self) -> str:
        return str(self._host)

    @property
    def name(self) -> str:
        return self._host.name

    @property
    def netns(self) -> str | None:
        return self._host.netns

    @property
    def shares_files(self) -> bool:
        return self._host.shares_files

    def read(self, path: str) -> str:
        return self._host.read(path)

    def write(self, path: str, text: str) -> None:
        self._host.write(path, text)

    def fetch(self, path: str, target: Path) -> None:
        self._host.fetch(path, target)

    def send(self, source: Path, path: str) -> None:
        self._host.send(source, path)


class Named(_Inner):
    """A host with the name that the topology uses."""

    def __init__(self, host: Host, name: str) -> None:
        super().__init__(host)
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        return self._host.run(argv, stdin=stdin, timeout_s=timeout_s)

    def spawn(self, argv: Sequence[str]) -> Process:
        return self._host.spawn(argv)


class Namespaced(FilesByCommand, _Inner):
    """A named network namespace of a host; files and CPUs are those of the host.

    `ip netns exec` also mounts the namespace's own /sys for each command, so that /sys/class/net and /proc/sys/net are
    those of the namespace, not of the machine. MachineGoneError if this machine has no namespace of that name.
    """

    def __init__(self, host: Host, netns: str) -> None:
        super().__init__(host)
        self._netns = netns

    def __str__(self) -> str:
        return f"host {self.name}"

    @property
    def netns(self) -> str | None:
        return self._netns

    @property
    def outside(self) -> Host:
        """The host that contains the namespace."""
        return self._host

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        return replace(self._host.run(self._command(argv), stdin=stdin, timeout_s=timeout_s), argv=tuple(argv))

    def spawn(self, argv: Sequence[str]) -> Process:
        return self._host.spawn(self._command(argv))

    def _command(self, argv: Sequence[str]) -> list[str]:
        if self.shares_files:
            require_tool(argv[0])
            if not Path("/run/netns", self._netns).exists():
                raise MachineGoneError(f"{self}: its namespace {self._netns} is gone: somebody deleted it")
        return ["ip", "netns", "exec", self._netns, *argv]


class Confined(_Inner):
    """A host whose commands run on some of its CPUs (empty: any) and in a control group.

    `door` is the file by which processes enter that group; empty: none.
    """

    def __init__(self, host: Host, cpus: Sequence[int] = (), door: str = "") -> None:
        super().__init__(host)
        self._cpus = tuple(cpus)
        self._door = door

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        done = self._host.run(confined(argv, self._cpus, self._door), stdin=stdin, timeout_s=timeout_s)
        return replace(done, argv=tuple(argv))

    def spawn(self, argv: Sequence[str]) -> Process:
        return self._host.spawn(confined(argv, self._cpus, self._door))


class Explained(_Inner):
    """A connection whose errors give the cause of its machine's death, if that is why no answer comes.

    `death` returns the cause, after waiting a moment for the machine's end; empty while it runs. Then `error` is
    raised.
    """

    def __init__(self, host: Connection, death: Callable[[], str], error: type[TestbedError] = TestbedError) -> None:
        super().__init__(host)
        self._connection = host
        self._death = death
        self._error = error

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        with self._explained():
            return self._host.run(argv, stdin=stdin, timeout_s=timeout_s)

    def spawn(self, argv: Sequence[str]) -> Process:
        with self._explained():
            return self._host.spawn(argv)

    def read(self, path: str) -> str:
        with self._explained():
            return self._host.read(path)

    def write(self, path: str, text: str) -> None:
        with self._explained():
            self._host.write(path, text)

    def fetch(self, path: str, target: Path) -> None:
        with self._explained():
            self._host.fetch(path, target)

    def send(self, source: Path, path: str) -> None:
        with self._explained():
            self._host.send(source, path)

    def await_answer(self, limit_s: float, hopeless: Callable[[], str]) -> None:
        with self._explained():
            self._connection.await_answer(limit_s, hopeless)

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except GoneError as error:
            raise self._error(self._death() or str(error)) from error


def has_netbench(host: Host) -> bool:
    """Return whether netbench's modules run on a host: on this machine, and where they were copied."""
    return host.shares_files or isinstance(_innermost(host), RunsNetbench)


def module_command_on(host: Host, module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of netbench or of an extension on a host; MissingError if none runs."""
    if host.shares_files:
        return module_command(module, *arguments)
    machine = _innermost(host)
    if not isinstance(machine, RunsNetbench):
        raise MissingError(f"{host} has no netbench of its own, and {module} is a part of that")
    return machine.module_command(module, *arguments)


def bring(host: Host, package: str) -> None:
    """Copy a package of this machine's Python to netbench's modules on a host; MissingError if it has none."""
    if host.shares_files:
        return
    machine = _innermost(host)
    if not isinstance(machine, RunsNetbench):
        raise MissingError(f"{host} has no netbench of its own, to which {package} could be brought")
    machine.bring(package)


def scratch_of(host: Host) -> str:
    """Return a host's directory for temporary files: the run's own on this machine and where netbench was copied."""
    machine = _innermost(host)
    if isinstance(machine, LocalHost):
        return machine.scratch or gettempdir()
    return machine.scratch if isinstance(machine, RunsNetbench) else "/tmp"


def _innermost(host: Host) -> Host:
    while isinstance(host, _Inner) and not isinstance(host, RunsNetbench):
        host = host.made_of
    return host


def outside(host: Host) -> Host:
    """Return a host's machine outside all network namespaces: to use its daemons, or to create links there."""
    return host.outside if isinstance(host, Namespaced) else host


def confined(argv: Sequence[str], cpus: Sequence[int], door: str) -> list[str]:
    """Return the command that runs `argv` and its children on these CPUs (empty: any), in a group (empty: none)."""
    bound = ["taskset", "-c", ",".join(map(str, cpus)), *argv] if cpus else list(argv)
    # 0 means the process that writes it.
    return ["sh", "-c", 'echo 0 >"$0" && exec "$@"', door, *bound] if door else bound

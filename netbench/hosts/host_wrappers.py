"""Hosts made of another host: its network namespace, part of its CPUs, or with the cause of its machine's death."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from netbench.errors import MachineGoneError, TestbedError
from netbench.hosts.base import Completed, Connection, FilesByCommand, GoneError, Host, Process
from netbench.hosts.local import require_tool


class HostWrapper:
    """A host that passes everything on to its inner host; a subclass changes the commands, or the errors."""

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

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        with self._errors():
            done = self._host.run(self._command(argv), stdin=stdin, timeout_s=timeout_s)
        return replace(done, argv=tuple(argv))

    def spawn(self, argv: Sequence[str]) -> Process:
        with self._errors():
            return self._host.spawn(self._command(argv))

    def read(self, path: str) -> str:
        with self._errors():
            return self._host.read(path)

    def write(self, path: str, text: str) -> None:
        with self._errors():
            self._host.write(path, text)

    def fetch(self, path: str, target: Path) -> None:
        with self._errors():
            self._host.fetch(path, target)

    def send(self, source: Path, path: str) -> None:
        with self._errors():
            self._host.send(source, path)

    def share(self, source: Path, directory: str) -> str:
        with self._errors():
            return self._host.share(source, directory)

    def _command(self, argv: Sequence[str]) -> Sequence[str]:
        """Return the command that the inner host runs for a command."""
        return argv

    def _errors(self) -> AbstractContextManager[None]:
        """Return a context that converts the errors of the inner host."""
        return nullcontext()


class NamedHost(HostWrapper):
    """A host with the name that the topology uses."""

    def __init__(self, host: Host, name: str) -> None:
        super().__init__(host)
        self._name = name

    @property
    def name(self) -> str:
        return self._name


class NamespaceHost(FilesByCommand, HostWrapper):
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

    def _command(self, argv: Sequence[str]) -> list[str]:
        if self.shares_files:
            require_tool(argv[0])
            if not Path("/run/netns", self._netns).exists():
                raise MachineGoneError(f"{self}: its namespace {self._netns} is gone: other software deleted it")
        return ["ip", "netns", "exec", self._netns, *argv]


class ConfinedHost(HostWrapper):
    """A host whose commands run on some of its CPUs (empty: any) and in a control group.

    `cgroup_procs` is the file by which processes enter that group; empty: none.
    """

    def __init__(self, host: Host, cpus: Sequence[int] = (), cgroup_procs: str = "") -> None:
        super().__init__(host)
        self._cpus = tuple(cpus)
        self._cgroup_procs = cgroup_procs

    def _command(self, argv: Sequence[str]) -> list[str]:
        return confined(argv, self._cpus, self._cgroup_procs)


class MonitoredHost(HostWrapper):
    """A connection whose errors contain the cause of its machine's death, if that is why no answer comes.

    `death` returns the cause, after waiting a moment for the machine's end; empty while it runs. Then `error` is
    raised.
    """

    def __init__(self, host: Connection, death: Callable[[], str], error: type[TestbedError] = TestbedError) -> None:
        super().__init__(host)
        self._connection = host
        self._death = death
        self._error = error

    def await_answer(self, limit_s: float, hopeless: Callable[[], str]) -> None:
        with self._errors():
            self._connection.await_answer(limit_s, hopeless)

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except GoneError as error:
            raise self._error(self._death() or str(error)) from error


def outside(host: Host) -> Host:
    """Return a host's machine outside all network namespaces: to use its daemons, or to create links there."""
    return host.made_of if isinstance(host, NamespaceHost) else host


def confined(argv: Sequence[str], cpus: Sequence[int], cgroup_procs: str) -> list[str]:
    """Return the command that runs `argv` and its children on these CPUs (empty: any), in a group (empty: none)."""
    bound = ["taskset", "-c", ",".join(map(str, cpus)), *argv] if cpus else list(argv)
    # 0 means the process that writes it.
    return ["sh", "-c", 'echo 0 >"$0" && exec "$@"', cgroup_procs, *bound] if cgroup_procs else bound

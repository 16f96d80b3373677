"""A container as a host: commands join the namespaces of its first process."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from netbench.hosts.base import Completed, GoneError, Host, Process, RemoteByCommand
from netbench.linux.proc import is_there
from netbench.vmm.container_memory import MEMINFO, with_limit


class ContainerHost(RemoteByCommand):
    """A container of a machine, found by its first process; commands start from `outside`, a host on that machine.

    It has its own files: those of the machine have other paths inside it. GoneError once the first process has ended.
    """

    def __init__(
        self, name: str, title: str, machine: Host, outside: Host, pid: int, memory_mib: int | None = None
    ) -> None:
        """`memory_mib` limits the memory of all its processes together; None: no separate limit."""
        super().__init__(name, title)
        self._machine = machine
        self._outside = outside
        self._pid = pid
        self._memory_mib = memory_mib

    def read(self, path: str) -> str:
        """Return the content of a file; available memory is capped at its limit, so that no load exceeds it."""
        text = super().read(path)
        return with_limit(text, self._memory_mib) if path == MEMINFO and self._memory_mib else text

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        done = self._outside.run(self._command(argv), stdin=stdin, timeout_s=timeout_s)
        if done.exit_code != 0:
            self._command(argv)  # raises if the whole container, and the command with it, was killed
        return replace(done, argv=tuple(argv))

    def spawn(self, argv: Sequence[str]) -> Process:
        return self._outside.spawn(self._command(argv))

    def await_answer(self, limit_s: float, hopeless: Callable[[], str]) -> None:
        """Return at once if its first process is running; GoneError otherwise."""
        self._command(())

    def close(self) -> None:
        """Do nothing: there is no connection to close."""

    def _command(self, argv: Sequence[str]) -> list[str]:
        if not is_there(self._machine, self._pid):
            raise GoneError(f"{self}: its first process has ended")
        return ["nsenter", "--target", str(self._pid), "--all", "--", *argv]

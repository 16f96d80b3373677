"""A container as a host: commands join the namespaces of its first process."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from netbench.hosts.base import Completed, GoneError, Host, Process, RemoteByCommand
from netbench.linux.proc import is_there
from netbench.vmm.container_memory import MEMINFO, with_limit


class ContainerHost(RemoteByCommand):
    """A container of a machine by its first process; commands start from `outside`, a host on that machine.

    Its files are its own: what is the machine's has other names in it. GoneError once the first process has ended.
    """

    def __init__(
        self, name: str, title: str, machine: Host, outside: Host, pid: int, memory_mib: int | None = None
    ) -> None:
        """`memory_mib` is what all in it may take; None: no limit of its own."""
        super().__init__(name, title)
        self._machine = machine
        self._outside = outside
        self._pid = pid
        self._memory_mib = memory_mib

    def read(self, path: str) -> str:
        """A file; what its kernel tells of memory is what it may take of it, so that a load does not take more."""
        text = super().read(path)
        return with_limit(text, self._memory_mib) if path == MEMINFO and self._memory_mib else text

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        done = self._outside.run(self._command(argv), stdin=stdin, timeout_s=timeout_s)
        if done.exit_code != 0:
            self._command(argv)  # or it may have been killed with everything else in there
        return replace(done, argv=tuple(argv))

    def spawn(self, argv: Sequence[str]) -> Process:
        return self._outside.spawn(self._command(argv))

    def await_answer(self, limit_s: float, hopeless: Callable[[], str]) -> None:
        """It answers as long as it is there."""
        self._command(())

    def close(self) -> None:
        """There is nothing to end."""

    def _command(self, argv: Sequence[str]) -> list[str]:
        if not is_there(self._machine, self._pid):
            raise GoneError(f"{self}: its first process has ended")
        return ["nsenter", "--target", str(self._pid), "--all", "--", *argv]

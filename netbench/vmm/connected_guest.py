"""Guests behind a connection: their consoles, their processes on their machines, and their ends."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from netbench.errors import TestbedError
from netbench.hosts.base import Completed, Connection, Host, Process, RemoteByCommand
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import MonitoredHost, outside
from netbench.hosts.pipes import Tail
from netbench.linux.proc import parse_process, parse_pss
from netbench.vmm.base import GuestSpec, RunningGuest

LAST_WORDS_S = 1.0
# Messages of a kernel that panics, and of /init if the agent does not start. If the agent uses the same console, its
# own message may be in the line before.
_TROUBLE = re.compile(r"(\[ *[0-9.]+\] )?(Kernel panic|netbench-guest: error: (the agent|this guest)).*")
_NOISE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[^\x20-\x7e\t]")


def plain(console: str) -> str:
    """Return a guest's console output without colours, cursor movements and empty lines."""
    return "".join(f"{line}\n" for line in (_NOISE.sub("", line).rstrip() for line in console.splitlines()) if line)


def troubles_in(console: str) -> list[str]:
    """Return the lines that explain why a guest will never answer."""
    return [match[0] for line in console.splitlines() if (match := _TROUBLE.search(line))]


class ConnectedGuest(RunningGuest):
    """A guest on a host, before and after its start; its driver calls connect_by() once it is started.

    By default it is one process of its machine, whose output is its console.
    """

    def __init__(self, spec: GuestSpec, host: Host) -> None:
        super().__init__(spec)
        self._host = host
        self._machine = outside(host)
        self._connection: Connection | None = None
        self._console: Tail | None = None
        self._facts: Mapping[str, str] = {}

    def connect_by(self, connection: Connection, facts: Mapping[str, str]) -> None:
        """Use this connection to its agent; `facts` are those of facts()."""
        self._connection, self._facts = connection, facts

    def await_answer(self, limit_s: float) -> None:
        self._monitored(TestbedError).await_answer(limit_s, self.hopeless)

    def host(self, gone: type[TestbedError] = TestbedError) -> Host:
        return self._monitored(gone)

    def end_of_vmm(self) -> str:
        """Return how its VMM ended, with the last output; empty while it runs."""
        return self.death()

    def end_just_now(self) -> str:
        """Return `end_of_vmm` after a sign of it was seen: waits a moment for that end."""
        wait_until(lambda: bool(self.end_of_vmm()), LAST_WORDS_S)
        return self.end_of_vmm()

    def hopeless(self) -> str:
        """Return why it will never answer: the end of its VMM, or its own failure; empty while it still may."""
        troubles = troubles_in(self.console())
        return self.end_of_vmm() or (f"{self.spec.title}: {troubles[0]}" if troubles else "")

    def cpu_s(self) -> float | None:
        """Return the CPU time of its process on its machine, in seconds, kernel and user (proc_pid_stat(5))."""
        try:
            return parse_process(self._of_process("stat")).cpu_s
        except (TestbedError, ValueError) as error:
            problem = f"{self.spec.title}: its CPU time cannot be read: {error}"
            raise TestbedError(self.end_just_now() or problem) from error

    def memory_bytes(self) -> int | None:
        try:
            return parse_pss(self._of_process("smaps_rollup"))
        except (TestbedError, ValueError):
            return None

    def console(self) -> str:
        return plain(self._console.text(LAST_WORDS_S if self._is_over else 0.0)) if self._console else ""

    def facts(self) -> dict[str, str]:
        return dict(self._facts)

    def stop(self) -> None:
        """Close its connection."""
        connection, self._connection = self._connection, None
        if connection:
            connection.close()

    @property
    def _is_over(self) -> bool:
        """Whether its console has no writer any more."""
        return self.process is not None and self.process.poll() is not None

    @property
    def _pid(self) -> int:
        """The id of its process on its machine; TestbedError or ValueError without one."""
        raise NotImplementedError

    def _of_process(self, file: str) -> str:
        return self._machine.read(f"/proc/{self._pid}/{file}")

    def _monitored(self, error: type[TestbedError]) -> MonitoredHost:
        if self._connection is None:
            raise error(f"{self.spec.title}: there is no connection to it yet")
        return MonitoredHost(self._connection, self.end_just_now, error)

    def _last_words(self) -> str:
        """Return the last failure on its console, else the last line."""
        console = self.console()
        lines = troubles_in(console) or console.splitlines()
        return lines[-1] if lines else ""


@contextmanager
def stopped_on_error(guest: RunningGuest) -> Iterator[None]:
    """Stop a guest if the block raises anything, Ctrl-C too: nothing of it may stay behind."""
    try:
        yield
    except BaseException:
        guest.stop()
        raise


def pid_in(machine: Host, file: Path) -> int:
    """Return the process id in a file of a machine; 0 while it is not written yet."""
    try:
        return int(machine.read(str(file)))
    except (TestbedError, ValueError):
        return 0


class GuestByCommand(RemoteByCommand):
    """A guest as a host: each of its commands is run by a command of a host on its machine."""

    def __init__(self, spec: GuestSpec, outside: Host) -> None:
        super().__init__(spec.name, spec.title)
        self._outside = outside

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        done = self._outside.run(self._command(argv), stdin=stdin, timeout_s=timeout_s)
        if done.exit_code != 0:
            self._require_alive()  # the command may have ended with the guest
        return replace(done, argv=tuple(argv))

    def spawn(self, argv: Sequence[str]) -> Process:
        return self._outside.spawn(self._command(argv))

    def await_answer(self, limit_s: float, hopeless: Callable[[], str]) -> None:
        """Return at once if the guest runs."""
        self._require_alive()

    def close(self) -> None:
        """Do nothing: there is no connection to close."""

    def _command(self, argv: Sequence[str]) -> list[str]:
        """Return the command outside that runs a command in the guest."""
        raise NotImplementedError

    def _require_alive(self) -> None:
        """Raise GoneError once the guest has ended."""
        raise NotImplementedError

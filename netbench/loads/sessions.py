"""The processes of one session of a Linux host, in one reading: who is there, and what CPU time each has used."""

from dataclasses import dataclass

from netbench.errors import TestbedError
from netbench.linux.proc import parse_process

# Several processes come and go while the files are opened: -s, and an exit code that means nothing.
_READ = 'grep -hsE "^[0-9]+ [(].*[)] . [0-9]+ [0-9]+ $1 " /proc/[0-9]*/stat'
_EXIT_CODES = (0, 1, 2)


@dataclass(frozen=True, slots=True)
class Process:
    """One process. `ticks` is CPU time in 1/USER_HZ s: its own, and that of all children it has waited for.

    Of a process that is not `alive` nothing is left but its parent's duty to wait for it. Its time is not in its
    parent's yet, so that the ticks of all processes of a session add up without counting any twice.
    """

    pid: int
    parent: int
    alive: bool
    ticks: int


def read_command(session: int) -> tuple[str, ...]:
    """One command that prints what `parse_processes` understands; it needs nothing but a shell and grep."""
    return "sh", "-c", f"exec {_READ}", "sh", str(session)


def kill_command(session: int) -> tuple[str, ...]:
    """The same after SIGKILL to the process group that has the session's number."""
    return "sh", "-c", f"kill -s KILL -- -$1 2>/dev/null; exec {_READ}", "sh", str(session)


def parse_processes(exit_code: int, text: str, host: str) -> list[Process]:
    """What these commands print, of all that are there; TestbedError when it makes no sense."""
    try:
        if exit_code not in _EXIT_CODES:
            raise ValueError(f"exit code {exit_code}")
        return [_process(line) for line in text.splitlines()]
    except (ValueError, LookupError) as error:
        raise TestbedError(f"{host}: its list of processes makes no sense: {error}") from error


def _process(line: str) -> Process:
    found = parse_process(line)
    return Process(found.pid, found.parent, found.state not in "ZX", found.ticks + found.children_ticks)

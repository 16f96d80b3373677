"""The processes of one session of a Linux host, in one reading: who is there, and what CPU time each has used."""

from dataclasses import dataclass

from netbench.errors import TestbedError

USER_HZ = 100  # of /proc/PID/stat, whatever the kernel's own tick: proc_pid_stat(5)

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
    """One line of /proc/PID/stat: proc_pid_stat(5). The name, in brackets, may hold anything."""
    start, _, rest = line.rpartition(")")
    words = rest.split()
    ticks = sum(map(int, words[11:15]))  # utime, stime, cutime, cstime
    return Process(int(start.partition(" ")[0]), int(words[1]), words[0] not in "ZX", ticks)

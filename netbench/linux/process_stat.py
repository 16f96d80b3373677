"""What the kernel says of processes in /proc/PID/stat: proc_pid_stat(5)."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

USER_HZ = 100  # of its CPU times, whatever the kernel's own tick


class ProcessStat(NamedTuple):
    """One process; CPU time, of the kernel for it and its own, in 1/USER_HZ s.

    `ticks` is that of all its threads, `children_ticks` that of all children it has waited for.
    """

    pid: int
    name: str
    state: str
    parent: int
    ticks: int
    children_ticks: int
    nice: int


def parse_process(line: str) -> ProcessStat:
    """The one line of the file; ValueError or IndexError for another text."""
    start, _, rest = line.rpartition(")")  # the name, in brackets, may hold anything
    pid, _, name = start.partition(" (")
    words = rest.split()
    ticks, children_ticks = (int(user) + int(system) for user, system in (words[11:13], words[13:15]))
    return ProcessStat(int(pid), name, words[0], int(words[1]), ticks, children_ticks, int(words[16]))


def read_process(pid: int | str) -> ProcessStat:
    """That of one process of this machine (`self`: this one); OSError when it is gone."""
    return parse_process(Path(f"/proc/{pid}/stat").read_text())


def all_processes() -> Iterator[ProcessStat]:
    """Those of all processes of this machine but for those that end meanwhile."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            yield read_process(directory.name)
        except OSError:
            continue  # ended meanwhile

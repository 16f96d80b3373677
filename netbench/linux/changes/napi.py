"""How frames come in over a veth pair: from a ring, by a kernel thread with a CPU of its own, much as at a NIC."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.changes.base import InNamespace
from netbench.linux.changes.links import listed_features

_GRO = "generic-receive-offload"
# What would merge frames of UDP, by the names of `ethtool -K`.
_MERGING = ("rx-gro-list", "rx-udp-gro-forwarding")


@dataclass(frozen=True, slots=True)
class ReceiveByNapi(InNamespace):
    """NAPI, which GRO brings, at one end of a veth pair of netbench's own, in a kernel thread; it goes with the pair.

    No frame of UDP is merged with another. TestbedError where the kernel cannot: then it is as it was.
    """

    interface: str

    @property
    def command(self) -> str:
        off = (word for name in _MERGING for word in (name, "off"))
        switch = shlex.join(self._argv("ethtool", "-K", self.interface, *off, "gro", "on"))
        return f"{switch} && {shlex.join(self._argv('sh', '-c', f'echo 1 >{self._threaded}'))}"

    @property
    def _threaded(self) -> str:
        return f"/sys/class/net/{self.interface}/threaded"

    def make(self, host: Host) -> None:
        within = self._within(host)
        on = [name for name, state in listed_features(within, self.interface) if state == "on"]
        words = [word for name in _MERGING if name in on for word in (name, "off")]
        try:
            run_checked(within, ["ethtool", "-K", self.interface, *words, "gro", "on"])
            states = dict(listed_features(within, self.interface))
            wrong = [name for name in _MERGING if states.get(name, "").startswith("on")]
            if wrong or states.get(_GRO) != "on":
                raise TestbedError(f"{self.interface}: {', '.join(wrong) or _GRO} stays as it was")
            within.write(self._threaded, "1")
        except TestbedError:
            within.run(["ethtool", "-K", self.interface, "gro", "off"])
            raise


@dataclass(frozen=True, slots=True)
class BindThread(InNamespace):
    """The kernel thread of an interface bound to CPUs and put before processes, as interrupts are.

    A ring of 256 frames is full long before the scheduler would take a process off a CPU. It ends with its interface;
    one that is only bound elsewhere for a time goes back to the CPUs it was bound to `before`.
    """

    thread: str
    cpus: tuple[int, ...]
    process: int | None = None  # None: not there yet
    before: tuple[int, ...] = ()

    @property
    def command(self) -> str:
        process = "PID" if self.process is None else str(self.process)
        told = " && ".join(shlex.join((*words, process)) for words in (_bind(self.cpus), ["chrt", "-r", "-p", "1"]))
        return f"{told}  # the thread {self.thread}{f' of {self.netns}' if self.netns else ''}"

    def make(self, host: Host) -> None:
        process = str(self.process)
        run_checked(host, [*_bind(self.cpus), process])
        # Guests have no chrt, but a Python.
        first = "import os; os.sched_setscheduler(int(__import__('sys').argv[1]), os.SCHED_RR, os.sched_param(1))"
        run_checked(host, ["sh", "-c", 'chrt -r -p 1 "$0" 2>/dev/null || python3 -c "$1" "$0"', process, first])

    def undo(self, host: Host) -> None:
        if self.before:
            host.run([*_bind(self.before), str(self.process)])  # or it has ended, where the link was down


def _bind(cpus: Sequence[int]) -> list[str]:
    # A mask: not every busybox knows lists of CPUs.
    return ["taskset", "-p", f"{sum(1 << cpu for cpu in cpus):x}"]


def threads_of(host: Host, interface: str) -> dict[int, str]:
    """The kernel threads that receive for interfaces of this name, in whatever namespace, by process id."""
    # Some may have ended meanwhile: the exit code says nothing.
    found = host.run(["sh", "-c", 'grep -s "^napi/$0-" /proc/[0-9]*/comm', interface]).stdout
    return {int(number): name for number, name in re.findall(r"^/proc/(\d+)/comm:(.*)$", found, re.MULTILINE)}

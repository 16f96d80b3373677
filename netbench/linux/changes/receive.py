"""How the kernel processes received frames: by NAPI from a ring, in a bound kernel thread, spread over CPUs."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.changes.base import InNamespace, MachineState, is_gone, was_killed
from netbench.linux.changes.links import listed_features
from netbench.model.traffic import NapiPolicy

# Prints all values as `PATH:VALUE`; with /dev/null as second file, grep prints the path even for a single file.
_LIST = 'exec grep -s "" /dev/null /sys/class/net/"$0"/queues/rx-*/rps_cpus'
_GRO = "generic-receive-offload"
# Features that merge UDP frames, as named by `ethtool -K`.
_MERGING = ("rx-gro-list", "rx-udp-gro-forwarding")


@dataclass(frozen=True, slots=True)
class ReceiveByNapi(InNamespace):
    """Enable NAPI, by GRO, at one end of a veth pair of netbench, in a kernel thread; removed with the pair.

    No UDP frames are merged. TestbedError where the kernel does not support it; the state is restored then.
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
    """Bind the NAPI thread of an interface to CPUs, with a scheduling policy (sched(7)); `other` is Linux's default.

    The thread ends with its interface. The undo of a temporary binding restores the CPUs `before` and the default
    policy.
    """

    thread: str
    cpus: tuple[int, ...]
    process: int | None = None  # None: it does not exist yet
    before: tuple[int, ...] = ()
    policy: NapiPolicy = "other"

    @property
    def command(self) -> str:
        process = "PID" if self.process is None else str(self.process)
        steps = [_bind(self.cpus)] if self.policy == "other" else [_bind(self.cpus), _schedule(self.policy)]
        commands = " && ".join(shlex.join((*words, process)) for words in steps)
        return f"{commands}  # the thread {self.thread}{f' of {self.netns}' if self.netns else ''}"

    def make(self, host: Host) -> None:
        run_checked(host, [*_bind(self.cpus), str(self.process)])
        if self.policy != "other":
            set_policy(host, str(self.process), self.policy)

    def undo(self, host: Host) -> None:
        if self.before:  # either command fails if the thread has ended, as after its link was down
            host.run([*_bind(self.before), str(self.process)])
            if self.policy != "other":
                host.run(_policy_command(str(self.process), "other"))


def set_policy(host: Host, thread: str, policy: NapiPolicy) -> None:
    """Set the scheduling policy of a thread, by its process id; TestbedError where the kernel rejects it."""
    run_checked(host, _policy_command(thread, policy))


def _policy_command(thread: str, policy: NapiPolicy) -> list[str]:
    # Guests have Python, but not chrt.
    arguments = f"int(sys.argv[1]), os.SCHED_{policy.upper()}, os.sched_param({_PRIORITIES[policy]})"
    program = f"import os, sys; os.sched_setscheduler({arguments})"
    command = f'{shlex.join(_schedule(policy))} "$0" 2>/dev/null || python3 -c "$1" "$0"'
    return ["sh", "-c", command, thread, program]


# The lowest real-time priority precedes all ordinary processes.
_PRIORITIES: dict[NapiPolicy, int] = {"other": 0, "rr": 1, "fifo": 1}


def _schedule(policy: NapiPolicy) -> list[str]:
    return ["chrt", f"--{policy}", "-p", str(_PRIORITIES[policy])]


def _bind(cpus: Sequence[int]) -> list[str]:
    # A mask, because not every busybox supports lists of CPUs.
    return ["taskset", "-p", f"{sum(1 << cpu for cpu in cpus):x}"]


def threads_of(host: Host, interface: str) -> dict[int, str]:
    """Return the kernel threads that receive for interfaces of this name, in any namespace: names by process id."""
    # The exit code is ignored, because some threads may have ended meanwhile.
    found = host.run(["sh", "-c", 'grep -s "^napi/$0-" /proc/[0-9]*/comm', interface]).stdout
    return {int(number): name for number, name in re.findall(r"^/proc/(\d+)/comm:(.*)$", found, re.MULTILINE)}


@dataclass(frozen=True, slots=True)
class GroOn(InNamespace):
    """Receive frames by NAPI at one end of a veth pair: then XDP can redirect frames to it (veth_xdp_xmit).

    GRO merges no frames of ours: it merges UDP only on request of a socket, or with `rx-udp-gro-forwarding`.
    """

    interface: str
    was_on: bool = False

    @property
    def command(self) -> str:
        return shlex.join(self._argv("ethtool", "-K", self.interface, "gro", "on"))

    def found(self, state: MachineState) -> Self:
        listed = run_checked(self._within(state.host), ["ethtool", "-k", self.interface])
        return replace(self, was_on="generic-receive-offload: on" in listed)

    def make(self, host: Host) -> None:
        run_checked(self._within(host), ["ethtool", "-K", self.interface, "gro", "on"])

    def undo(self, host: Host) -> None:
        if not self.was_on:
            done = self._within(host).run(["ethtool", "-K", self.interface, "gro", "off"])
            if done.exit_code != 0 and (was_killed(done) or not is_gone(done.stderr)):
                raise TestbedError(f"{self.interface}: GRO stays on: {done.stderr.strip()}")


@dataclass(frozen=True, slots=True)
class SteerReceived(InNamespace):
    """Spread all frames that an interface receives over CPUs by flow: Receive Packet Steering (scaling.rst).

    `old` are the former masks of its queues, each as `PATH:MASK`.
    """

    interface: str
    cpus: tuple[int, ...]
    old: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        files = f"/sys/class/net/{self.interface}/queues/rx-*/rps_cpus"
        return shlex.join(self._argv("sh", "-c", f"echo {self._mask} | tee {files}"))

    def found(self, state: MachineState) -> Self:
        old = self._listed(state.host)
        if not old:
            raise TestbedError(f"rps: {self.interface} has no queues to receive by, or this kernel has no CONFIG_RPS")
        return replace(self, old=old)

    def make(self, host: Host) -> None:
        wanted = int(self._mask.replace(",", ""), 16)
        self._write(host, [f"{line.partition(':')[0]}:{self._mask}" for line in self.old])
        if any(int(line.partition(":")[2].replace(",", ""), 16) != wanted for line in self._listed(host)):
            raise TestbedError(f"rps: not all of the CPUs {', '.join(map(str, self.cpus))} are there")

    def undo(self, host: Host) -> None:
        now = self._listed(host)  # none when the interface is gone
        self._write(host, [line for line in self.old if now and line not in now])

    @property
    def _mask(self) -> str:
        """The mask in the kernel's bitmap format: hexadecimal, 32 bits between commas."""
        digits = f"{sum(1 << cpu for cpu in set(self.cpus)):x}"
        digits = digits.zfill(-(-len(digits) // 8) * 8)
        return ",".join(digits[place : place + 8] for place in range(0, len(digits), 8))

    def _listed(self, host: Host) -> tuple[str, ...]:
        done = self._within(host).run(["sh", "-c", _LIST, self.interface])
        if was_killed(done):
            raise TestbedError(f"rps: the queues of {self.interface} were not read whole: the command was killed")
        return tuple(done.stdout.splitlines())

    def _write(self, host: Host, lines: list[str]) -> None:
        for line in lines:
            path, _, mask = line.partition(":")
            self._within(host).write(path, mask)

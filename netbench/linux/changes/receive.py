"""How the kernel processes frames: offloads, NAPI from a ring in a bound kernel thread, spread over CPUs."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from netbench.errors import Fault, TestbedError
from netbench.hosts.base import Host, fault_in, run_checked
from netbench.linux.changes.base import InNamespace, MachineState, was_killed
from netbench.model.traffic import NapiPolicy

# Offloads that merge or split frames on the wire before they are counted: the names of `ethtool -K` and `-k`.
_OFFLOADS = {
    "gro": "generic-receive-offload",
    "gso": "generic-segmentation-offload",
    "tso": "tcp-segmentation-offload",
    "lro": "large-receive-offload",
}
# Offloads that keep the VLAN tag of a frame beside it, also on a veth pair: there XDP programs do not see the tag.
_TAGGING = {name: name for name in ("tx-vlan-offload", "tx-vlan-stag-hw-insert")}
# Features that merge UDP frames.
_MERGING = ("rx-gro-list", "rx-udp-gro-forwarding")
# Prints all values as `PATH:VALUE`; with /dev/null as second file, grep prints the path even for a single file.
_LIST = 'exec grep -s "" /dev/null /sys/class/net/"$0"/queues/rx-*/rps_cpus'
# The lowest real-time priority precedes all ordinary processes.
_PRIORITIES: dict[NapiPolicy, int] = {"other": 0, "rr": 1, "fifo": 1}


@dataclass(frozen=True, slots=True)
class FeatureChange(InNamespace):
    """A change of an interface's features by ethtool."""

    interface: str

    def _switch_command(self, *settings: str) -> str:
        return self._shell_command("ethtool", "-K", self.interface, *" ".join(settings).split())

    def _switch(self, host: Host, settings: Sequence[str]) -> None:
        """Apply settings such as `gro on`."""
        if settings:
            words = " ".join(settings).split()
            run_checked(self._within(host), ["ethtool", "-K", self.interface, *words])

    def _features(self, host: Host) -> list[tuple[str, str]]:
        """Return name and state of each feature in `ethtool -k`; a tab marks those that belong to the one above."""
        lines = run_checked(self._within(host), ["ethtool", "-k", self.interface]).splitlines()
        return [(name, state.strip()) for name, _, state in (line.partition(": ") for line in lines) if state]


@dataclass(frozen=True, slots=True)
class OffloadsOff(FeatureChange):
    """Switch GRO, GSO, TSO and LRO off and verify it; `old` are the affected features as requested before: `gro on`.

    Switching TSO on switches on all of its kinds, some of which may have been off. With `tagging`, VLAN tags are
    put into frames as well, where every program sees them.
    """

    old: tuple[str, ...] = ()
    tagging: bool = False

    @property
    def command(self) -> str:
        return self._switch_command(*(f"{name} off" for name in self._names))

    def with_former_state(self, state: MachineState) -> Self:
        return replace(self, old=tuple(self._requested(state.host)))

    def make(self, host: Host) -> None:
        self._switch(host, [f"{name} off" for name, state in self._states(host).items() if state == "on"])
        still_on = [name for name, state in self._states(host).items() if state in ("on", "on [fixed]")]
        if still_on:
            raise TestbedError(
                f"{self.interface}: {', '.join(still_on)} cannot be switched off; frames would be merged or split "
                "on the way and not be counted one by one"
            )

    def undo(self, host: Host) -> None:
        try:
            now = self._requested(host)
        except TestbedError as error:
            if Fault.GONE in error.fault:
                return  # the interface was removed
            raise
        self._switch(host, [setting for setting in self.old if setting not in now])

    @property
    def _names(self) -> dict[str, str]:
        return {**_OFFLOADS, **(_TAGGING if self.tagging else {})}

    def _states(self, host: Host) -> dict[str, str]:
        """Return the state of each feature: `on`, `off`, `off [fixed]`, …"""
        states = {name.strip(): state for name, state in self._features(host)}
        return {short: states[long] for short, long in self._names.items() if long in states}

    def _requested(self, host: Host) -> list[str]:
        """Return the requested state of each switchable feature, with the kinds of TSO instead of TSO itself."""
        requested, group = [], ""
        short = {long: name for name, long in self._names.items()}
        for name, state in self._features(host):
            if not name.startswith("\t"):
                group = name
            is_kind = name.startswith("\t") and short.get(group) == "tso"
            if (is_kind or short.get(name, "tso") != "tso") and "[fixed]" not in state:
                on = "requested on" in state or (state.startswith("on") and "requested off" not in state)
                requested.append(f"{short.get(name, name.strip())} {'on' if on else 'off'}")
        return requested


@dataclass(frozen=True, slots=True)
class ChecksumOffloadOff(FeatureChange):
    """Compute the checksums of sent frames in the kernel; `old` are the kinds of checksums that the NIC computed.

    A virtual NIC never computes them: sinks would capture unfinished checksums.
    """

    old: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        return self._switch_command("tx off")

    def with_former_state(self, state: MachineState) -> Self:
        return replace(self, old=tuple(self._kinds_on(state.host)))

    def make(self, host: Host) -> None:
        self._switch(host, ["tx off"])
        if fixed := self._kinds_on(host):
            raise TestbedError(f"{self.interface}: {', '.join(fixed)} cannot be switched off; checksums are unfinished")

    def undo(self, host: Host) -> None:
        try:
            on = self._kinds_on(host)
        except TestbedError as error:
            if Fault.GONE in error.fault:
                return  # the interface was removed
            raise
        self._switch(host, [f"{kind} on" for kind in self.old if kind not in on])

    def _kinds_on(self, host: Host) -> list[str]:
        """Return the kinds of checksums that the NIC computes."""
        kinds = [(name.strip(), state) for name, state in self._features(host) if name.startswith("\ttx-checksum-")]
        return [name for name, state in kinds if state.split()[0] == "on"]


@dataclass(frozen=True, slots=True)
class GroOn(FeatureChange):
    """Receive frames by NAPI at one end of a veth pair: then XDP can redirect frames to it (veth_xdp_xmit).

    GRO merges no frames of ours: it merges UDP only on request of a socket, or with `rx-udp-gro-forwarding`.
    """

    was_on: bool = False

    @property
    def command(self) -> str:
        return self._switch_command("gro on")

    def with_former_state(self, state: MachineState) -> Self:
        return replace(self, was_on=dict(self._features(state.host)).get(_OFFLOADS["gro"], "").startswith("on"))

    def make(self, host: Host) -> None:
        self._switch(host, ["gro on"])

    def undo(self, host: Host) -> None:
        if not self.was_on:
            done = self._within(host).run(["ethtool", "-K", self.interface, "gro", "off"])
            if done.exit_code != 0 and (was_killed(done) or Fault.GONE not in fault_in(done.stderr)):
                raise TestbedError(f"{self.interface}: GRO stays on: {done.stderr.strip()}")


@dataclass(frozen=True, slots=True)
class ReceiveByNapi(FeatureChange):
    """Enable NAPI, by GRO, at one end of a veth pair of netbench, in a kernel thread or not; removed with the pair.

    No UDP frames are merged. TestbedError where the kernel does not support it; the state is restored then.
    """

    in_thread: bool = True  # False: in softirqs of the CPU that sends

    @property
    def command(self) -> str:
        switch = self._switch_command(*(f"{name} off" for name in _MERGING), "gro on")
        if not self.in_thread:
            return switch
        return f"{switch} && {self._shell_command('sh', '-c', f'echo 1 >{self._threaded}')}"

    @property
    def _threaded(self) -> str:
        return f"/sys/class/net/{self.interface}/threaded"

    def make(self, host: Host) -> None:
        before = dict(self._features(host))
        try:
            self._switch(host, [*(f"{name} off" for name in _MERGING if before.get(name) == "on"), "gro on"])
            now = dict(self._features(host))
            wrong = [name for name in _MERGING if now.get(name, "").startswith("on")]
            if wrong or now.get(_OFFLOADS["gro"]) != "on":
                raise TestbedError(f"{self.interface}: {', '.join(wrong) or _OFFLOADS['gro']} did not change")
            if self.in_thread:
                self._within(host).write(self._threaded, "1")
        except TestbedError:
            self._within(host).run(["ethtool", "-K", self.interface, "gro", "off"])
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


def _schedule(policy: NapiPolicy) -> list[str]:
    return ["chrt", f"--{policy}", "-p", str(_PRIORITIES[policy])]


def _bind(cpus: Sequence[int]) -> list[str]:
    # A mask, because not every busybox supports lists of CPUs.
    return ["taskset", "-p", f"{sum(1 << cpu for cpu in cpus):x}"]


def threads_of(host: Host, interface: str) -> dict[int, str]:
    """Return the kernel threads that receive for interfaces of this name, in any namespace: names by process id."""
    # The exit code is ignored, because some threads may have ended meanwhile.
    comms = host.run(["sh", "-c", 'grep -s "^napi/$0-" /proc/[0-9]*/comm', interface]).stdout
    return {int(number): name for number, name in re.findall(r"^/proc/(\d+)/comm:(.*)$", comms, re.MULTILINE)}


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
        return self._shell_command("sh", "-c", f"echo {self._mask} | tee {files}")

    def with_former_state(self, state: MachineState) -> Self:
        old = self._masks(state.host)
        if not old:
            raise TestbedError(f"rps: {self.interface} has no receive queues, or this kernel has no CONFIG_RPS")
        return replace(self, old=old)

    def make(self, host: Host) -> None:
        self._write(host, [f"{line.partition(':')[0]}:{self._mask}" for line in self.old])
        masks = {int(line.partition(":")[2].replace(",", ""), 16) for line in self._masks(host)}
        if masks - {int(self._mask.replace(",", ""), 16)}:
            raise TestbedError(f"rps: not all of the CPUs {', '.join(map(str, self.cpus))} exist")

    def undo(self, host: Host) -> None:
        now = self._masks(host)  # none when the interface is gone
        self._write(host, [line for line in self.old if now and line not in now])

    @property
    def _mask(self) -> str:
        """The mask in the kernel's bitmap format: hexadecimal, 32 bits between commas."""
        digits = f"{sum(1 << cpu for cpu in set(self.cpus)):x}"
        digits = digits.zfill(-(-len(digits) // 8) * 8)
        return ",".join(digits[place : place + 8] for place in range(0, len(digits), 8))

    def _masks(self, host: Host) -> tuple[str, ...]:
        done = self._within(host).run(["sh", "-c", _LIST, self.interface])
        if was_killed(done):
            raise TestbedError(f"rps: the queues of {self.interface} were not read whole: the command was killed")
        return tuple(done.stdout.splitlines())

    def _write(self, host: Host, lines: list[str]) -> None:
        for line in lines:
            path, _, mask = line.partition(":")
            self._within(host).write(path, mask)

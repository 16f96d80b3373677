"""How the kernel processes frames that an interface has received: from a ring, on which CPUs."""

import shlex
from dataclasses import dataclass, replace
from typing import Self

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.changes.base import InNamespace, MachineState, is_gone, was_killed

# Prints all values as `PATH:VALUE`; with /dev/null as second file, grep prints the path even for a single file.
_LIST = 'exec grep -s "" /dev/null /sys/class/net/"$0"/queues/rx-*/rps_cpus'


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

    def found(self, look: MachineState) -> Self:
        listed = run_checked(self._within(look.host), ["ethtool", "-k", self.interface])
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

    def found(self, look: MachineState) -> Self:
        old = self._listed(look.host)
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

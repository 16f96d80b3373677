"""How the kernel goes on with what an interface has received: from a ring, on which CPUs."""

import shlex
from dataclasses import dataclass, replace
from typing import Self

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.changes.base import InNamespace, Look, is_gone, was_killed

# Each with its value, as `PATH:VALUE`; /dev/null so that grep names the file where there is only one.
_LIST = 'exec grep -s "" /dev/null /sys/class/net/"$0"/queues/rx-*/rps_cpus'


@dataclass(frozen=True, slots=True)
class GroOn(InNamespace):
    """Frames come in by NAPI at one end of a veth pair: then they can be redirected to it by XDP (veth_xdp_xmit).

    GRO merges none of ours: of UDP only what a socket asked to have merged, or `rx-udp-gro-forwarding`.
    """

    interface: str
    was_on: bool = False

    @property
    def command(self) -> str:
        return shlex.join(self._argv("ethtool", "-K", self.interface, "gro", "on"))

    def found(self, look: Look) -> Self:
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
    """All that an interface receives is spread over CPUs by flow: Receive Packet Steering (scaling.rst).

    `old` are the masks of its queues as they were found, each as `PATH:MASK`.
    """

    interface: str
    cpus: tuple[int, ...]
    old: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        files = f"/sys/class/net/{self.interface}/queues/rx-*/rps_cpus"
        return shlex.join(self._argv("sh", "-c", f"echo {self._mask} | tee {files}"))

    def found(self, look: Look) -> Self:
        old = self._listed(look.host)
        if not old:
            raise TestbedError(f"rps: {self.interface} has no queues to receive by, or this kernel has no CONFIG_RPS")
        return replace(self, old=old)

    def make(self, host: Host) -> None:
        wanted = int(self._mask.replace(",", ""), 16)
        self._write(host, [f"{one.partition(':')[0]}:{self._mask}" for one in self.old])
        if any(int(one.partition(":")[2].replace(",", ""), 16) != wanted for one in self._listed(host)):
            raise TestbedError(f"rps: not all of the CPUs {', '.join(map(str, self.cpus))} are there")

    def undo(self, host: Host) -> None:
        now = self._listed(host)  # none when the interface is gone
        self._write(host, [one for one in self.old if now and one not in now])

    @property
    def _mask(self) -> str:
        """As the kernel shows bitmaps: in hexadecimal, 32 bits between commas."""
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

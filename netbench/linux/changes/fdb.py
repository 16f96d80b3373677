"""Many entries of a bridge's forwarding database, made by one command."""

import shlex
from dataclasses import dataclass

from netbench.hosts.base import Host
from netbench.linux.changes.base import InNamespace, run_batch, tool_in


@dataclass(frozen=True, slots=True)
class AddForwardingEntries(InNamespace):
    """`count` permanent entries of a port, from the address `first` on, `step` apart; they are removed with the bridge.

    `vlan` is that of the entries where the bridge filters VLANs.
    """

    interface: str
    first: int
    step: int
    count: int
    vlan: int | None = None

    @property
    def command(self) -> str:
        first = shlex.join((*tool_in("bridge", self.netns), *self._line(0)))
        return first if self.count == 1 else f"{first}  # and {self.count - 1:,} more addresses, {self.step} apart"

    def make(self, host: Host) -> None:
        failed = run_batch(host, tool_in("bridge", self.netns), [self._line(number) for number in range(self.count)])
        for error in failed.values():
            raise error

    def _line(self, number: int) -> tuple[str, ...]:
        mac = (self.first + number * self.step).to_bytes(6, "big").hex(":")
        vlan = () if self.vlan is None else ("vlan", str(self.vlan))
        return ("fdb", "replace", mac, "dev", self.interface, "master", "static", *vlan)

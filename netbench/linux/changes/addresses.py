"""Addresses, neighbours, forwarding entries, and delays or redirects of frames on an interface."""

from dataclasses import dataclass
from typing import Self

from netbench.hosts.base import run_checked
from netbench.linux.changes.base import MachineState, RequestInNamespace, not_ours, tool_in

# Maximum of frames in transit; netem's default, 1000, would cause additional loss (tc-netem(8)).
_MOST_FRAMES = 100_000


@dataclass(frozen=True, slots=True)
class AddAddress(RequestInNamespace):
    """An IPv4 address on an interface."""

    interface: str
    address: str
    prefix_length: int

    @property
    def line(self) -> tuple[str, ...]:
        return "address", "add", f"{self.address}/{self.prefix_length}", "dev", self.interface

    @property
    def undo_line(self) -> tuple[str, ...]:
        return "address", "del", f"{self.address}/{self.prefix_length}", "dev", self.interface

    def found(self, state: MachineState) -> Self:
        link = state.links(self.netns).get(self.interface, {})
        if any(address.get("local") == self.address for address in link.get("addr_info", ())):
            raise not_ours(f"the address {self.address} on {self.interface}")
        return self


@dataclass(frozen=True, slots=True)
class AddNeighbour(RequestInNamespace):
    """A permanent neighbour, so that forwarding never waits for ARP."""

    interface: str
    address: str
    mac: str

    @property
    def line(self) -> tuple[str, ...]:
        return "neigh", "replace", self.address, "lladdr", self.mac, "dev", self.interface, "nud", "permanent"

    @property
    def undo_line(self) -> tuple[str, ...]:
        return "neigh", "del", self.address, "dev", self.interface

    def found(self, state: MachineState) -> Self:
        if any(
            (neighbour.get("dst"), neighbour.get("dev")) == (self.address, self.interface)
            for neighbour in state.neighbours(self.netns)
        ):
            raise not_ours(f"the neighbour {self.address} on {self.interface}")
        return self


@dataclass(frozen=True, slots=True)
class AddForwardingEntry(RequestInNamespace):
    """A permanent entry in a bridge's forwarding database; it is removed with the bridge."""

    interface: str
    mac: str

    @property
    def tool(self) -> tuple[str, ...]:
        return tool_in("bridge", self.netns)

    @property
    def line(self) -> tuple[str, ...]:
        return "fdb", "replace", self.mac, "dev", self.interface, "master", "static"


@dataclass(frozen=True, slots=True)
class _TcRequest(RequestInNamespace):
    """A change to an interface by tc(8)."""

    interface: str

    @property
    def tool(self) -> tuple[str, ...]:
        return tool_in("tc", self.netns)


@dataclass(frozen=True, slots=True)
class AddDelay(_TcRequest):
    """Delay all frames that leave by an interface, by netem in place of its root queueing discipline."""

    delay_us: int

    @property
    def line(self) -> tuple[str, ...]:
        netem = ("netem", "delay", f"{self.delay_us}us", "limit", str(_MOST_FRAMES))
        return "qdisc", "add", "dev", self.interface, "root", *netem

    @property
    def undo_line(self) -> tuple[str, ...]:
        return "qdisc", "del", "dev", self.interface, "root"


@dataclass(frozen=True, slots=True)
class AddIngress(_TcRequest):
    """The hook for classifiers of all frames that an interface receives."""

    @property
    def line(self) -> tuple[str, ...]:
        return "qdisc", "add", "dev", self.interface, "ingress"

    @property
    def undo_line(self) -> tuple[str, ...]:
        return "qdisc", "del", "dev", self.interface, "ingress"

    def found(self, state: MachineState) -> Self:
        if run_checked(state.host, [*self.tool, "qdisc", "show", "dev", self.interface, "ingress"]).strip():
            raise not_ours(f"the ingress queueing discipline of {self.interface}")
        return self


@dataclass(frozen=True, slots=True)
class Redirect(_TcRequest):
    """Send all frames received by an interface through another one, unchanged; removed with AddIngress there.

    It uses u32, because not every kernel has the classifier matchall.
    """

    to: str

    @property
    def line(self) -> tuple[str, ...]:
        every = ("protocol", "all", "prio", "1", "u32", "match", "u32", "0", "0")
        mirred = ("action", "mirred", "egress", "redirect", "dev", self.to)
        return "filter", "add", "dev", self.interface, "ingress", *every, *mirred

"""Where a stream runs: its interfaces, MAC and IP addresses, from source to sink. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from netbench.model.interfaces import Place, host_of
from netbench.model.traffic import PREFIX_LENGTH, Receive
from netbench.model.units import USUAL_MTU

if TYPE_CHECKING:  # what undoes changes on another host has to do without what reads topologies
    from netbench.model.topology import StreamSpec, Topology

# What the NIC of each role is to a stream in the other direction.
TURNED_ROUND = {"source": "sink", "ingress": "egress", "egress": "ingress", "sink": "source"}

# The source of each trial has another address, so that late frames of an earlier one can be told; .1 is the router's,
# .255 would be a broadcast.
_FIRST_SOURCE = 2
_SOURCES = 253


@dataclass(frozen=True, slots=True)
class Nic:
    """One NIC on a path. `mac` is empty until it is known (a port's is read from the machine)."""

    host: str
    machine: str | None
    netns: str | None
    interface: str
    mac: str
    is_port: bool

    @property
    def place(self) -> Place:
        """What names it among all interfaces of a testbed."""
        return Place(self.machine, self.netns, self.interface)


class StreamId(NamedTuple):
    """A stream by its name, and by its number in the topology, from 1."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class StreamPath:
    """One stream's way. `ingress` and `egress` are None when the UUT is not netbench's to configure.

    `receive` is how frames come in over the link of the source: at the ingress NIC, or at the sink's where that link
    leads right to it; as the topology wants it, or as it is once the testbed is up. `mtu` is the smallest of its links.
    `reverse_of` is the stream whose way back it is: it has that one's NICs, the other way round. `has_reverse`: there
    is a stream in the other direction, whichever of the two is called the way back.
    """

    name: str
    number: int
    source: Nic
    ingress: Nic | None
    egress: Nic | None
    sink: Nic
    link_bps: float
    receive: Receive = "inline"
    mtu: int = USUAL_MTU
    reverse_of: StreamId | None = None
    has_reverse: bool = False

    @property
    def nics_of(self) -> StreamId:
        """The stream that its NICs are called after: the one that it reverses, else itself."""
        return self.reverse_of or StreamId(self.name, self.number)

    def role_forth(self, role: str) -> str:
        """What the NIC of a role is on the way of the stream that its NICs are called after."""
        return TURNED_ROUND[role] if self.reverse_of else role

    @property
    def src_ip(self) -> str:
        """The source's address in the first trial."""
        return self.src_ip_of(0)

    def src_ip_of(self, trial: int) -> str:
        """The source's address in a trial, counted from 0 on a testbed: none of the 252 before it had the same."""
        return f"198.18.{self.number}.{_FIRST_SOURCE + trial % _SOURCES}"

    @property
    def src_network(self) -> str:
        """Where the source has its address in every trial."""
        return f"198.18.{self.number}.0/{PREFIX_LENGTH}"

    @property
    def ingress_ip(self) -> str:
        """A routing UUT's address towards the source."""
        return f"198.18.{self.number}.1"

    @property
    def egress_ip(self) -> str:
        """A routing UUT's address towards the sink."""
        return f"198.19.{self.number}.1"

    @property
    def dst_ip(self) -> str:
        """The sink's address. No interface carries it: a sink only captures and never answers."""
        return f"198.19.{self.number}.2"

    @property
    def receiver(self) -> tuple[str, Nic]:
        """The NIC that takes in what the source sends, and its role; of outside ways, the first that is known."""
        return ("ingress", self.ingress) if self.ingress else ("sink", self.sink)

    @property
    def leads_outside(self) -> bool:
        """Whether it leads over what netbench did not make: a cable, a port, a UUT that is not its own to configure."""
        return self.ingress is None or any(nic.is_port for nic in self.nics.values())

    @property
    def nics(self) -> dict[str, Nic]:
        """Its NICs by role, in the order of the path."""
        roles = {"source": self.source, "ingress": self.ingress, "egress": self.egress, "sink": self.sink}
        return {role: nic for role, nic in roles.items() if nic is not None}


def direction(role: str) -> str:
    """Which way frames go through the NIC of a role, as its counters call it: `tx` out of it, `rx` into it."""
    return "tx" if role in ("source", "egress") else "rx"


def each_nic_once(paths: Iterable[StreamPath]) -> list[StreamPath]:
    """Those among some paths that have NICs which no path before them has: all but ways back."""
    found: dict[StreamId, StreamPath] = {}
    for path in paths:
        found.setdefault(path.nics_of, path)
    return list(found.values())


def stream_paths(topology: Topology) -> tuple[StreamPath, ...]:
    """The paths of all streams. MAC addresses of what netbench makes are fixed by their place in the file.

    Those of ports are empty.
    """
    return tuple(_path(topology, stream, number) for number, stream in enumerate(topology.streams, start=1))


def veth_mac(topology: Topology, end: str) -> str:
    """The MAC address of a veth end, or a VM's NIC: locally administered, `nb` in ASCII, then link number and end."""
    link, position = next(
        (number, link.ends.index(end)) for number, link in enumerate(topology.links, start=1) if end in link.ends
    )
    return f"02:6e:62:{link >> 8:02x}:{link & 0xFF:02x}:{position + 1:02x}"


def _path(topology: Topology, stream: StreamSpec, number: int) -> StreamPath:
    link = topology.stream_link(stream)
    return StreamPath(
        name=stream.name,
        number=number,
        source=nic_of(topology, stream.source),
        ingress=nic_of(topology, stream.ingress) if stream.ingress else None,
        egress=nic_of(topology, stream.egress) if stream.egress else None,
        sink=nic_of(topology, stream.sink),
        link_bps=link.rate,
        receive=link.receive if stream.ingress or stream.sink in link.ends else "inline",
        mtu=min(one.mtu_bytes for one in topology.links_of(stream)),
        reverse_of=_reverse_of(topology, stream),
        has_reverse=any(stream.reverse or one.reverse == stream.name for one in topology.streams),
    )


def _reverse_of(topology: Topology, stream: StreamSpec) -> StreamId | None:
    numbers = {one.name: number for number, one in enumerate(topology.streams, start=1)}
    return StreamId(stream.reverse, numbers[stream.reverse]) if stream.reverse else None


def nic_of(topology: Topology, end: str) -> Nic:
    """The NIC that an end of a link is."""
    host = host_of(end)
    is_port = topology.is_port(end)
    # The machine has to be asked for that of a port that netbench has not made.
    mac = "" if is_port and not topology.vm_nic(end) else veth_mac(topology, end)
    return Nic(host, topology.machine(host), topology.netns(host), topology.interface(end), mac, is_port)

"""Names of interfaces, and the path of a stream: its interfaces, MAC and IP addresses, from source to sink.

It imports next to nothing, because other hosts load it too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from netbench.errors import UsageError
from netbench.model.frame_size import USUAL_MTU
from netbench.model.packet import Packet
from netbench.model.traffic import PREFIX_LENGTH, Receive

# The prefix of everything that netbench makes on a machine: an interface name has at most 15 characters (IFNAMSIZ).
PREFIX = "nb-"


class InterfaceRef(NamedTuple):
    """The location of an interface: a network namespace (None: none) of a machine (None: this one)."""

    machine: str | None
    netns: str | None
    interface: str

    def __str__(self) -> str:
        return "/".join(part for part in self if part)


def split_endpoint(text: str) -> tuple[str, str]:
    """Return the host and the NIC of `host/nic`; ValueError for anything else."""
    host, slash, nic = text.partition("/")
    if not (host and slash and nic) or "/" in nic:
        raise ValueError("not a NIC of a host; write it as host/nic, for example uut/in1")
    return host, nic


def host_of(end: str) -> str:
    """Return the host part of `host/nic`."""
    return split_endpoint(end)[0]


# The role of the NIC of each role for a stream in the other direction.
TURNED_ROUND = {"source": "sink", "ingress": "egress", "egress": "ingress", "sink": "source"}

# The source has another address in each trial, so that late frames of earlier trials are recognised; .1 is the
# router's, .255 would be a broadcast.
_FIRST_SOURCE = 2
_SOURCES = 253
# Of the servers of flows: that of iperf3.
_FIRST_PORT = 5201


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
    def place(self) -> InterfaceRef:
        """Its unique location among all interfaces of a testbed."""
        return InterfaceRef(self.machine, self.netns, self.interface)


class StreamId(NamedTuple):
    """A stream by its name, and by its number in the topology, from 1."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class StreamPath:
    """The path of one stream. `ingress` and `egress` are None when netbench does not configure the UUT.

    `receive` is how frames of the source's link are received: at the ingress NIC, or at the sink's NIC if that link
    leads directly to it. It is as requested in the topology, or the actual way once the testbed is up. `mtu` is the
    smallest of its links. `reverse_of` is the stream that this one is the way back of: both share NICs, in opposite
    roles. `has_reverse`: there is a stream in the other direction, no matter which of the two is called the way back.
    `packet` is the stream's own packet, which it sends in every trial as described; None: that of the trial, which a
    reverse stream mirrors.
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
    packet: Packet | None = None

    @property
    def nics_of(self) -> StreamId:
        """The stream that its NICs are named after: the one that it reverses, else itself."""
        return self.reverse_of or StreamId(self.name, self.number)

    def packet_of(self, packet: Packet | None) -> Packet | None:
        """Return the packet that this stream sends in trials with `packet`; None is the plain one."""
        if self.packet is not None or packet is None:
            return self.packet
        return packet.mirrored if self.reverse_of else packet

    @property
    def forth(self) -> "StreamPath":
        """The path of the stream that the NICs are named after, without that stream's own packet."""
        if not self.reverse_of:
            return replace(self, packet=None)
        name, number = self.reverse_of
        return replace(
            self,
            name=name,
            number=number,
            source=self.sink,
            ingress=self.egress,
            egress=self.ingress,
            sink=self.source,
            reverse_of=None,
            packet=None,
        )

    def role_forth(self, role: str) -> str:
        """Return the role that the NIC of a role has for the stream that the NICs are named after."""
        return TURNED_ROUND[role] if self.reverse_of else role

    @property
    def src_ip(self) -> str:
        """The source's address in the first trial."""
        return self.src_ip_of(0)

    def src_ip_of(self, trial: int) -> str:
        """Return the source's address in a trial, counted from 0 on a testbed: unique among 253 trials in a row."""
        return f"198.18.{self.number}.{_FIRST_SOURCE + trial % _SOURCES}"

    @property
    def src_network(self) -> str:
        """The network of the source's addresses in all trials."""
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
        """The sink's address. No interface has it: a sink only captures and never answers."""
        return f"198.19.{self.number}.2"

    @property
    def server_ip(self) -> str:
        """The address of a server on the sink's host, for flows through the UUT.

        It is not that of the frames: the kernel there would answer them by ICMP.
        """
        return f"198.19.{self.number}.3"

    @property
    def dst_network(self) -> str:
        """The network of the sink's addresses."""
        return f"198.19.{self.number}.0/{PREFIX_LENGTH}"

    def src_ip6_of(self, trial: int) -> str:
        """Return the source's IPv6 address in a trial, as `src_ip_of`.

        Networks are from 2001:2::/48 (RFC 5180, section 8). Their numbers resemble those of IPv4: the digits 18 or 19,
        then the stream's number in hexadecimal.
        """
        return f"2001:2:0:18{self.number:02x}::{_FIRST_SOURCE + trial % _SOURCES:x}"

    @property
    def ingress_ip6(self) -> str:
        """A routing UUT's IPv6 address towards the source."""
        return f"2001:2:0:18{self.number:02x}::1"

    @property
    def egress_ip6(self) -> str:
        """A routing UUT's IPv6 address towards the sink."""
        return f"2001:2:0:19{self.number:02x}::1"

    @property
    def dst_ip6(self) -> str:
        """The sink's IPv6 address. No interface has it."""
        return f"2001:2:0:19{self.number:02x}::2"

    @property
    def receiver(self) -> tuple[str, Nic]:
        """The NIC that receives the source's frames, and its role; outside netbench's control, the first known NIC."""
        return ("ingress", self.ingress) if self.ingress else ("sink", self.sink)

    @property
    def leads_outside(self) -> bool:
        """Whether it crosses anything that netbench did not make: a cable, a port, a UUT that it does not configure."""
        return self.ingress is None or any(nic.is_port for nic in self.nics.values())

    @property
    def nics(self) -> dict[str, Nic]:
        """Its NICs by role, in the order of the path."""
        roles = {"source": self.source, "ingress": self.ingress, "egress": self.egress, "sink": self.sink}
        return {role: nic for role, nic in roles.items() if nic is not None}


def server_port(stream: int) -> int:
    """Return the port of the server of a stream, by the number of the stream, from 1."""
    return _FIRST_PORT + stream - 1


def direction(role: str) -> str:
    """Return the direction of frames through the NIC of a role, as in its counters: `tx` out of it, `rx` into it."""
    return "tx" if role in ("source", "egress") else "rx"


def inside_nics(path: StreamPath) -> tuple[Nic, Nic]:
    """Return the ingress and egress NIC of a path through a UUT netbench configures; UsageError without them."""
    if path.ingress is None or path.egress is None:
        raise UsageError(
            f"stream {path.name}: this kind of UUT needs an ingress and an egress NIC; name them in the topology, "
            "or use the kind `external` for a UUT that netbench does not configure"
        )
    return path.ingress, path.egress


def each_nic_once(paths: Iterable[StreamPath]) -> list[StreamPath]:
    """Return one path for each pair of NICs: that of the stream that they are named after, if it is among them."""
    first_paths: dict[StreamId, StreamPath] = {}
    for path in paths:
        if path.nics_of not in first_paths or not path.reverse_of:
            first_paths[path.nics_of] = path
    return list(first_paths.values())

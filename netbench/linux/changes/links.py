"""Requests to the kernel by iproute2: namespaces, links, addresses, neighbours, queueing disciplines, redirects."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from netbench.hosts.base import run_checked
from netbench.linux.changes.base import KernelRequest, MachineState, RequestInNamespace, not_ours, tool_in
from netbench.model.frame_size import USUAL_MTU


@dataclass(frozen=True, slots=True)
class AddNamespace(KernelRequest):
    """A named network namespace."""

    REQUEST: ClassVar[str] = "netns add {0.name}"
    UNDO: ClassVar[str] = "netns del {0.name}"
    name: str

    def with_former_state(self, state: MachineState) -> Self:
        if self.name in state.namespaces():
            raise not_ours(f"the network namespace {self.name}")
        return self


@dataclass(frozen=True, slots=True)
class AddVeth(KernelRequest):
    """A veth pair, each end with a fixed MAC address, in its own namespace."""

    UNDO: ClassVar[str] = "link del {0.interface}"
    netns: str | None
    interface: str
    mac: str
    peer_netns: str | None
    peer: str
    peer_mac: str
    mtu: int = USUAL_MTU

    @property
    def inside(self) -> str | None:
        # The kernel removes links of a removed namespace late: an end outside namespaces is removed separately.
        return self.netns if self.peer_netns else None

    @property
    def line(self) -> tuple[str, ...]:
        netns = "netns {0.netns}" if self.netns else ""
        peer_netns = "netns {0.peer_netns}" if self.peer_netns else ""
        mtu = "mtu {0.mtu}" if self.mtu != USUAL_MTU else ""
        peer = f"type veth peer {{0.peer}} {peer_netns} address {{0.peer_mac}} {mtu}"
        return self._words(f"link add {{0.interface}} {netns} address {{0.mac}} {mtu} {peer}")

    @property
    def undo_tool(self) -> tuple[str, ...]:
        return tool_in("ip", self.netns)

    def with_former_state(self, state: MachineState) -> Self:
        state.refuse_existing(self.netns, self.interface)
        state.refuse_existing(self.peer_netns, self.peer)
        return self


@dataclass(frozen=True, slots=True)
class AddLink(RequestInNamespace):
    """An interface of netbench; undo removes it."""

    UNDO: ClassVar[str] = "link del {0.interface}"
    interface: str

    def with_former_state(self, state: MachineState) -> Self:
        state.refuse_existing(self.netns, self.interface)
        return self


@dataclass(frozen=True, slots=True)
class AddBridge(AddLink):
    """A bridge that only forwards: no multicast snooping, no netfilter, and no spanning tree.

    With the forward delay `stp_s` it has spanning tree: then a port blocks for twice that time after its link came up.
    If it `filters` VLANs, its ports carry only those that they are given, and no frames without a tag.
    """

    stp_s: float | None = None
    filters: bool = False

    @property
    def line(self) -> tuple[str, ...]:
        stp, delay_cs = (0, 0) if self.stp_s is None else (1, round(100 * self.stp_s))
        quiet = f"stp_state {stp} mcast_snooping 0 forward_delay {delay_cs}"
        filters = "vlan_filtering 1 vlan_default_pvid 0" if self.filters else ""
        return self._words(f"link add {{0.interface}} type bridge {quiet} {filters}")


@dataclass(frozen=True, slots=True)
class AddTap(AddLink):
    """A tap for a NIC of a guest; each frame on it has room for a virtio header (tuntap.rst, IFF_VNET_HDR)."""

    queues: int = 1

    @property
    def line(self) -> tuple[str, ...]:
        several = " multi_queue" if self.queues > 1 else ""
        return self._words(f"tuntap add dev {{0.interface}} mode tap vnet_hdr{several}")


@dataclass(frozen=True, slots=True)
class AddMacvtap(AddLink):
    """A tap on a NIC that receives all frames of that NIC, with any address (mode passthru, macvlan.c)."""

    REQUEST: ClassVar[str] = "link add link {0.nic} name {0.interface} type macvtap mode passthru"
    nic: str


@dataclass(frozen=True, slots=True)
class AddMacvlan(AddLink):
    """A virtual NIC on a NIC, in the namespace of a guest, which receives the frames to its own MAC address.

    In mode bridge it also exchanges frames with others on that NIC (macvlan.c).
    """

    REQUEST: ClassVar[str] = (
        "link add link {0.nic} name {0.interface} netns {0.guest_netns} address {0.mac} type macvlan mode bridge"
    )
    nic: str
    guest_netns: str
    mac: str

    @property
    def undo_tool(self) -> tuple[str, ...]:
        # It does not go with the guest's namespace, which the kernel removes late: its address is reserved until then.
        return tool_in("ip", self.guest_netns)

    def with_former_state(self, state: MachineState) -> Self:
        state.refuse_existing(self.guest_netns, self.interface)
        return self


@dataclass(frozen=True, slots=True)
class SetUp(RequestInNamespace):
    """Bring an interface up; `was_up` is its former state, None where the same command creates it."""

    REQUEST: ClassVar[str] = "link set dev {0.interface} up"
    interface: str
    was_up: bool | None = None

    @property
    def undo_line(self) -> tuple[str, ...]:
        return ("link", "set", "dev", self.interface, "down") if self.was_up is False else ()

    def with_former_state(self, state: MachineState) -> Self:
        link = state.link(self.netns, self.interface)
        return replace(self, was_up="UP" in link.get("flags", ()) if link else None)


@dataclass(frozen=True, slots=True)
class SetPromiscuous(RequestInNamespace):
    """Make an interface receive frames with any address; `was` is its former state."""

    REQUEST: ClassVar[str] = "link set dev {0.interface} promisc on"
    interface: str
    was: bool = False

    @property
    def undo_line(self) -> tuple[str, ...]:
        return () if self.was else ("link", "set", "dev", self.interface, "promisc", "off")

    def with_former_state(self, state: MachineState) -> Self:
        return replace(self, was="PROMISC" in state.link(self.netns, self.interface).get("flags", ()))


@dataclass(frozen=True, slots=True)
class Enslave(RequestInNamespace):
    """Make an interface a port of a bridge."""

    REQUEST: ClassVar[str] = "link set dev {0.interface} master {0.bridge}"
    UNDO: ClassVar[str] = "link set dev {0.interface} nomaster"
    interface: str
    bridge: str


@dataclass(frozen=True, slots=True)
class AddAddress(RequestInNamespace):
    """An IPv4 address on an interface, or an IPv6 address without duplicate address detection.

    With a `peer`, the prefix is that of the route to this other address (ip-address(8)).
    """

    interface: str
    address: str
    prefix_length: int = 32
    peer: str | None = None

    @property
    def line(self) -> tuple[str, ...]:
        return ("address", "add", *self._place, *(["nodad"] if ":" in self.address else []))

    @property
    def undo_line(self) -> tuple[str, ...]:
        return ("address", "del", *self._place)

    @property
    def _place(self) -> tuple[str, ...]:
        peer = "" if self.peer is None else " peer {0.peer}"
        return self._words(f"{{0.address}}{peer}/{{0.prefix_length}} dev {{0.interface}}")

    def with_former_state(self, state: MachineState) -> Self:
        existing = state.link(self.netns, self.interface).get("addr_info", ())
        if any((address.get("local"), address.get("address")) == (self.address, self.peer) for address in existing):
            raise not_ours(f"the address {self.address} on {self.interface}")
        return self


@dataclass(frozen=True, slots=True)
class AddNeighbour(RequestInNamespace):
    """A permanent neighbour, so that forwarding never waits for ARP."""

    REQUEST: ClassVar[str] = "neigh replace {0.address} lladdr {0.mac} dev {0.interface} nud permanent"
    UNDO: ClassVar[str] = "neigh del {0.address} dev {0.interface}"
    interface: str
    address: str
    mac: str

    def with_former_state(self, state: MachineState) -> Self:
        existing = [(neighbour.get("dst"), neighbour.get("dev")) for neighbour in state.neighbours(self.netns)]
        if (self.address, self.interface) in existing:
            raise not_ours(f"the neighbour {self.address} on {self.interface}")
        return self


@dataclass(frozen=True, slots=True)
class AddForwardingEntry(RequestInNamespace):
    """A permanent entry in a bridge's forwarding database; it is removed with the bridge."""

    PROGRAM: ClassVar[str] = "bridge"
    REQUEST: ClassVar[str] = "fdb replace {0.mac} dev {0.interface} master static"
    interface: str
    mac: str
    vlan: int | None = None  # where the bridge filters VLANs

    @property
    def line(self) -> tuple[str, ...]:
        return self._words(f"{self.REQUEST} {'' if self.vlan is None else 'vlan {0.vlan}'}")


@dataclass(frozen=True, slots=True)
class AddDelay(RequestInNamespace):
    """Delay all frames that leave by an interface, by netem in place of its root queueing discipline.

    The limit is the maximum of frames in transit; netem's default, 1000, would cause additional loss (tc-netem(8)).
    """

    PROGRAM: ClassVar[str] = "tc"
    REQUEST: ClassVar[str] = "qdisc add dev {0.interface} root netem delay {0.delay_us}us limit 100000"
    UNDO: ClassVar[str] = "qdisc del dev {0.interface} root"
    interface: str
    delay_us: int


@dataclass(frozen=True, slots=True)
class AddIngress(RequestInNamespace):
    """The hook for classifiers of all frames that an interface receives."""

    PROGRAM: ClassVar[str] = "tc"
    REQUEST: ClassVar[str] = "qdisc add dev {0.interface} ingress"
    UNDO: ClassVar[str] = "qdisc del dev {0.interface} ingress"
    interface: str

    def with_former_state(self, state: MachineState) -> Self:
        if run_checked(state.host, [*self.tool, "qdisc", "show", "dev", self.interface, "ingress"]).strip():
            raise not_ours(f"the ingress queueing discipline of {self.interface}")
        return self


@dataclass(frozen=True, slots=True)
class Redirect(RequestInNamespace):
    """Redirect all frames received on `interface` to `to`, which sends them. Undoing AddIngress removes the redirect.

    It uses u32, because not every kernel has the classifier matchall.
    """

    PROGRAM: ClassVar[str] = "tc"
    REQUEST: ClassVar[str] = (
        "filter add dev {0.interface} ingress protocol all prio 1 u32 match u32 0 0 "
        "action mirred egress redirect dev {0.to}"
    )
    interface: str
    to: str

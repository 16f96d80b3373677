"""Bridges, ports and flows of Open vSwitch for each stream, as arguments of its commands and changes of the machine.

A bridge joins ingress and egress. Tags are pushed and popped by flows. A tunnel is a port of that bridge; the NIC is
then a port of a second bridge, whose internal interface has the tunnel's address (ovs-vswitchd.conf.db(5), and "Native
Tunneling in Open vSwitch (Userspace)" of its manual).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Self

from pydantic import model_validator

from netbench.errors import KeyedError
from netbench.linux.changes import AddAddress, AddTap, Change, SetSysctl, SetUp, of_nic
from netbench.model.packet import Packet
from netbench.model.packet_options import Encapsulation, HeaderOptions, PacketOptions, VlanId
from netbench.model.paths import PREFIX, Nic, StreamPath, inside_nics
from netbench.model.traffic import PREFIX_LENGTH
from netbench.uut.directions import check_ends, egress_ends, ingress_ends
from netbench.uut.packet_headers import TunnelEnds

INGRESS, EGRESS = 1, 2  # OpenFlow ports of every bridge that joins them
_PRESENT = 0x1000  # OFPVID_PRESENT: a packet with this bit in vlan_vid has a tag (ovs-fields(7))
_ONE_ADDRESS = 32


class OvsPacketOptions(HeaderOptions):
    """What Open vSwitch does to the headers of packets: like `raw` with `forward: bridge`, and it replaces VLANs.

    Other frames than those of the given VLANs, or of the terminated VLAN, are dropped.
    """

    retag: Mapping[VlanId, VlanId] = {}
    """VLANs that are replaced by others: {100: 200}. Others are dropped."""

    @model_validator(mode="after")
    def _changes_tags_once(self) -> Self:
        for option in ("vlans", "terminate", "originate"):
            if self.retag and getattr(self, option):
                raise KeyedError("retag", f"leave it out with {option}: the tag is changed once")
        if self.terminate and self.originate and "vlan" not in (self.terminate, self.originate):
            raise KeyedError("originate", "Open vSwitch has one tunnel for a stream: choose vlan, or leave it out")
        return self


@dataclass(frozen=True, slots=True)
class OvsTunnel:
    """A tunnel on one NIC: names of its port and of the bridge with that NIC, its kind and id, and its addresses.

    `remote_mac` is the MAC address of the other end. Without `remote` it accepts packets from any address.
    """

    port: str
    bridge: str
    nic: Nic
    kind: str
    id: int | None
    local: str
    remote: str = ""
    remote_mac: str = ""

    @property
    def interface_words(self) -> list[str]:
        """The settings of its port."""
        words = [f"type={self.kind}", f"options:remote_ip={self.remote or 'flow'}"]
        words += [f"options:local_ip={self.local}"] if self.remote else []
        return words + ([] if self.id is None else [f"options:key={self.id}"])


def tunnels_of(path: StreamPath, options: OvsPacketOptions, packets: Sequence[Packet]) -> dict[int, OvsTunnel]:
    """Return the tunnels of a stream by the number of their ports.

    UsageError for packets of which the reverse stream cannot answer all.
    """
    header = {name: getattr(options, name) for name in HeaderOptions.model_fields}
    check_ends((path,), PacketOptions(**header), packets)
    (ingress, egress), name, tunnels = inside_nics(path), path.nics_of.name, dict[int, OvsTunnel]()

    def tunnel(role: str, nic: Nic, kind: Encapsulation, ends: TunnelEnds, remote_mac: str) -> OvsTunnel:
        port, bridge = f"{PREFIX}{role}-{name}", f"{PREFIX}b{role}-{name}"
        return OvsTunnel(port, bridge, nic, kind, options.id_of(kind), ends.local, ends.remote, remote_mac)

    if options.terminate and options.terminate != "vlan":
        ends = ingress_ends(path, options.terminate, packets)
        tunnels[INGRESS] = tunnel("t", ingress, options.terminate, ends, path.source.mac)
    if options.originate and options.originate != "vlan":
        tunnels[EGRESS] = tunnel("o", egress, options.originate, egress_ends(path), path.sink.mac)
    return tunnels


def tunnel_changes(tunnels: Mapping[int, OvsTunnel]) -> Iterator[Change]:
    """Yield the changes that make the internal interfaces of tunnels' bridges, with the tunnels' addresses.

    The kernel receives the frames of the NIC, too. Their sources are behind another interface, the internal one: the
    strict filter drops them (ip-sysctl.rst, rp_filter). Otherwise it would answer them with ICMP, and ARP before that.
    """
    for tunnel in tunnels.values():
        yield AddTap(tunnel.nic.netns, tunnel.bridge)
        length = _prefix_length(tunnel.local, tunnel.remote) if tunnel.remote else _ONE_ADDRESS
        yield AddAddress(tunnel.nic.netns, tunnel.bridge, tunnel.local, length)
        yield SetUp(tunnel.nic.netns, tunnel.bridge)
        yield SetSysctl(tunnel.nic.netns, of_nic(4, tunnel.nic.interface, "rp_filter"), "1")


def _prefix_length(local: str, remote: str) -> int:
    """Return the length of the prefix of a network with both addresses. Open vSwitch routes only inside networks."""
    different = int(IPv4Address(local)) ^ int(IPv4Address(remote))
    return min(PREFIX_LENGTH, _ONE_ADDRESS - different.bit_length())


def bridge_words(path: StreamPath, datapath: str, tunnels: Mapping[int, OvsTunnel]) -> Iterator[list[str]]:
    """Yield the arguments of ovs-vsctl for each bridge of a stream, with its ports."""
    for tunnel in tunnels.values():
        words = [*_add_bridge(tunnel.bridge, datapath), f'other-config:hwaddr="{tunnel.nic.mac}"']
        yield [*words, *_add_port(tunnel.bridge, tunnel.nic.interface, INGRESS)]
    words = _add_bridge(bridge_name(path), datapath)
    for number, nic in zip((INGRESS, EGRESS), inside_nics(path), strict=True):
        if number in tunnels:
            tunnel = tunnels[number]
            words += [*_add_port(bridge_name(path), tunnel.port, number), *tunnel.interface_words]
        else:
            words += _add_port(bridge_name(path), nic.interface, number)
    yield words


def flows_of(
    path: StreamPath, options: OvsPacketOptions, tunnels: Mapping[int, OvsTunnel]
) -> Iterator[tuple[str, str]]:
    """Yield bridge and flow (ovs-ofctl(8)) for all frames of a stream, and of its reverse stream."""
    for tunnel in tunnels.values():
        yield tunnel.bridge, f"in_port={INGRESS},actions=LOCAL"
        yield tunnel.bridge, f"in_port=LOCAL,actions=output:{INGRESS}"
    bridge, tag = bridge_name(path), options.vlan
    forth, back = f"in_port={INGRESS}", f"in_port={EGRESS}"
    push, pop = f"push_vlan:0x8100,set_field:{_PRESENT + (tag or 0)}->vlan_vid,", "pop_vlan,"
    matches = [("", "", "", "")]  # match and action forth, match and action back
    if options.vlans:
        matches = [(f",dl_vlan={vlan}", "", f",dl_vlan={vlan}", "") for vlan in options.vlans]
    elif options.retag:
        matches = [
            (f",dl_vlan={old}", f"mod_vlan_vid:{new},", f",dl_vlan={new}", f"mod_vlan_vid:{old},")
            for old, new in options.retag.items()
        ]
    elif options.terminate == "vlan":
        matches = [(f",dl_vlan={tag}", pop, "", push)]
    elif options.originate == "vlan":
        matches = [("", push, f",dl_vlan={tag}", pop)]
    for match_forth, action_forth, match_back, action_back in matches:
        yield bridge, f"{forth}{match_forth},actions={action_forth}output:{EGRESS}"
        yield bridge, f"{back}{match_back},actions={action_back}output:{INGRESS}"


def bridge_name(path: StreamPath) -> str:
    """Return the name of the bridge that joins a stream's ingress and egress."""
    return f"{PREFIX}br-{path.nics_of.name}"


def _add_bridge(bridge: str, datapath: str) -> list[str]:
    return ["add-br", bridge, "--", "set", "bridge", bridge, f"datapath_type={datapath}", "fail_mode=secure"]


def _add_port(bridge: str, port: str, number: int) -> list[str]:
    return ["--", "add-port", bridge, port, "--", "set", "interface", port, f"ofport_request={number}"]

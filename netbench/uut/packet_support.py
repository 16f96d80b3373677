"""Which described packets a Linux kernel can forward in each way, what it does to them, and what it needs for that."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from netbench.errors import ChangeError, Fault, MissingError, UsageError
from netbench.hosts.base import exists, fault_in
from netbench.linux.changes import AddBridge, AddRule, AddTable, AddTunnel, AddVlanInterface
from netbench.linux.machine import Machine
from netbench.linux.requirements import IN_NETNS, ON_VETH, Feature, Probes
from netbench.model.header_sizes import header_bytes
from netbench.model.packet import PLAIN_PACKET, FieldRef, Layers, LayersChange, Packet
from netbench.model.paths import StreamPath, each_nic_once, inside_nics
from netbench.uut.directions import (
    ends_reason,
    ingress_ends,
    is_tunnel,
    options_of,
    originating_ends,
    sent_packet,
    translation_of,
)
from netbench.uut.packet_headers import (
    TRANSLATIONS,
    encapsulated,
    is_chosen,
    routed,
    terminates,
    translated,
    without_terminated,
)
from netbench.uut.packet_interfaces import PacketHandling
from netbench.uut.packet_refusals import (
    own_address_reason,
    unbridgeable_reason,
    unfiltered_reason,
    unroutable_reason,
    unterminated_reason,
    untranslatable_reason,
)
from netbench.uut.routing import routes_ipv6

ROUTING = ("route", "flowtable")
_IN_A_VM = "or measure inside a VM, whose kernel has it: topology lab-encapsulations"
_IPV6 = "/proc/sys/net/ipv6/conf/all/forwarding"


def _feature(
    probe: Callable[[Probes], str], needed_for: str, option: str, module: str, requires: tuple[str, ...] = ON_VETH
) -> Feature:
    """Return the feature that is named after its probe."""
    name = probe.__name__.replace("_", "-")
    return Feature(name, needed_for, requires, option, module, probe, optional=True, otherwise=_IN_A_VM)


# Of kernels that forward described packets, by name.
PACKET_FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        _feature(Probes.ipv6_forwarding, "UUTs that route IPv6", "CONFIG_IPV6", "ipv6", IN_NETNS),
        _feature(Probes.policy_routing, "UUTs that route packets to any address", "CONFIG_IP_MULTIPLE_TABLES", ""),
        _feature(Probes.vlan_interface, "UUTs that terminate or originate VLANs", "CONFIG_VLAN_8021Q", "8021q"),
        _feature(
            Probes.vlan_filtering,
            "bridges with `vlans`",
            "CONFIG_BRIDGE_VLAN_FILTERING",
            "bridge",
            (*ON_VETH, "bridge"),
        ),
        _feature(Probes.vxlan, "UUTs that terminate or originate VXLAN", "CONFIG_VXLAN", "vxlan"),
        _feature(Probes.geneve, "UUTs that terminate or originate GENEVE", "CONFIG_GENEVE", "geneve"),
        _feature(
            Probes.gre, "UUTs that terminate or originate GRE", "CONFIG_NET_IPGRE_DEMUX, CONFIG_NET_IPGRE", "ip_gre"
        ),
        _feature(Probes.nat, "UUTs that translate addresses", "CONFIG_NFT_NAT", "nft_chain_nat", (*IN_NETNS, "nft")),
    )
}
UNRECOGNISABLE = (
    "IP: the UUT changes headers by which sinks recognise plain frames; describe the packet, for example "
    "`packet: Ether()/IP()/UDP()`"
)
_NO_FRAME = "GRE: a bridge forwards only frames, and the packet has no Ether inside; send GRE()/Ether()/…"
_OF_ENCAPSULATION = {"vlan": "vlan-interface", "vxlan": "vxlan", "geneve": "geneve", "gre": "gre"}


def packet_needs(handling: PacketHandling, how: str, paths: Sequence[StreamPath] = ()) -> frozenset[str]:
    """Return the features of a kernel, by name, for what it does to packets."""
    options = handling.options
    kinds = [kind for kind in (options.terminate, options.originate) if kind]
    needs = {_OF_ENCAPSULATION[kind] for kind in kinds}
    chooses_route = options.originate or (options.terminate and any(path.has_reverse for path in paths))
    if is_tunnel(options.terminate) or (chooses_route and how in ROUTING):
        needs.add("policy-routing")
    if options.vlans:
        needs.add("vlan-filtering")
    if options.nat:
        needs |= {"nat", "nft"}
    if how in ROUTING and routes_ipv6(handling):
        needs.add("ipv6-forwarding")
    return frozenset(needs)


def feature_of(change: object) -> Feature | None:
    """Return the feature without which a kernel rejects a change; None for changes that every kernel can make."""
    match change:
        case AddVlanInterface():
            name = "vlan-interface"
        case AddTunnel(kind=kind):
            name = "gre" if kind in ("gre", "gretap") else kind
        case AddBridge(filters=True):
            name = "vlan-filtering"
        case AddRule():
            name = "policy-routing"
        case AddTable(table=table) if table.endswith("-nat"):
            name = "nat"
        case _:
            return None
    return PACKET_FEATURES[name]


def missing_feature(error: ChangeError, where: str) -> MissingError | None:
    """Return the error for a change that failed because a kernel lacks a feature; None for other causes."""
    feature = feature_of(error.change)
    if feature is None or Fault.EXISTS in fault_in(error.reason):
        return None
    module = f" (module {feature.module})" if feature.module else ""
    return MissingError(
        f"{feature.needed_for} need a kernel with {feature.option}{module}, but {where} failed: {failure_of(error)}; "
        f"leave this UUT out (--uut), {feature.otherwise}"
    )


def failure_of(error: ChangeError) -> str:
    """Return the kernel's reason for a failed change: the first line of what its tool printed."""
    return (error.reason.partition("Error: ")[2] or error.reason).partition("\n")[0].rstrip(".")


def require_ipv6(machine: Machine, handling: PacketHandling, how: str) -> None:
    """Raise MissingError where packets need IPv6 and the kernel has none."""
    if how in ROUTING and routes_ipv6(handling) and not exists(host := machine.host(), _IPV6):
        raise MissingError(
            f"{host}: IPv6 is disabled in the kernel (boot option ipv6.disable=1, or no CONFIG_IPV6), and the UUT must "
            "route it: remove the boot option, or leave out packets with an IPv6 header"
        )


def check_handling(paths: Sequence[StreamPath], handling: PacketHandling, *, all_ours: bool) -> None:
    """Raise UsageError for options that are impossible on these paths; `all_ours`: the kernel is a guest's."""
    options = handling.options
    changing = {"terminate": options.terminate, "originate": options.originate}
    given = {option: kind for option, kind in changing.items() if kind}
    for path in paths:
        if (given or options.nat) and not all_ours and inside_nics(path)[0].netns is None:
            option = next(iter(given), "nat")
            raise UsageError(f"{option}: it changes the machine's own network; give the UUT's host the kind netns")
    for option, kind in given.items():
        if kind in ("vxlan", "geneve") and len(each_nic_once(paths)) > 1:
            raise UsageError(f"{option}: a kernel has one {kind} interface for a VNI; give the UUT a single stream")


def unsupported_reason(
    packet: Packet, paths: Sequence[StreamPath], how: str, handling: PacketHandling, *, all_ours: bool
) -> str:
    """Return why a kernel cannot forward a packet, with layer and field; empty if it can, in both directions."""
    forth = [path for path in paths if not path.reverse_of]
    if (forth or not paths) and (reason := _unsupported_reason(packet, forth, paths, how, handling, all_ours=all_ours)):
        return reason
    for path in paths:
        sent = sent_packet(packet, path, handling.options)
        is_answer = path.reverse_of and path.packet is None
        if (path.reverse_of or sent != packet) and (
            reason := _unsupported_reason(sent, (path,), paths, how, handling, all_ours=all_ours)
        ):
            return (
                f"reverse stream {path.name}, which exchanges source and destination: {reason}" if is_answer else reason
            )
    return ""


def _unsupported_reason(
    packet: Packet,
    paths: Sequence[StreamPath],
    every: Sequence[StreamPath],
    how: str,
    handling: PacketHandling,
    *,
    all_ours: bool,
) -> str:
    """Return the same for the packet as it is sent on these paths, all in one direction, of `every` path of the UUT."""
    options = options_of(paths[0], handling.options) if paths else handling.options
    both = [path for path in paths if path.has_reverse]
    if packet.name == PLAIN_PACKET.name and (options.nat or options.originate):
        return UNRECOGNISABLE
    if options.vlans:
        return unfiltered_reason(packet, options.vlans)
    is_terminated = terminates(packet.layers, options)
    must_terminate = is_terminated or how not in ROUTING or any(not path.reverse_of for path in both)
    if options.terminate and must_terminate and (reason := unterminated_reason(packet, options, any_vni=not both)):
        return reason
    if reason := next(filter(None, (ends_reason(packet, path, handling.options) for path in both)), ""):
        return reason
    takes_own = how in ROUTING or (is_terminated and is_tunnel(options.terminate))
    if takes_own and is_chosen(packet, FieldRef("Ether", "dst")):
        return "Ether.dst: the UUT accepts only frames to its own address; leave the field out"
    if how == "bridge" and not is_terminated and (reason := unbridgeable_reason(packet)):
        return reason
    if how not in ROUTING:
        has_frame = any(layer.name == "Ether" for layer in packet.layers[1:])
        return _NO_FRAME if is_terminated and options.terminate == "gre" and not has_frame else ""
    layers = without_terminated(packet.layers, options)
    if reason := unroutable_reason(packet, layers) or own_address_reason(
        packet, layers, every, _chosen_ends(every, handling)
    ):
        return reason
    if layers[1].name == "IPv6" and not all_ours and any(inside_nics(path)[0].netns is None for path in paths):
        return "IPv6: routing it would change all interfaces of the machine; give the UUT's host the kind netns"
    translation = translation_of(paths[0], options) if paths else TRANSLATIONS.get(options.nat or "")
    return untranslatable_reason(packet, layers, translation) if translation else ""


def _chosen_ends(paths: Sequence[StreamPath], handling: PacketHandling) -> Iterator[str]:
    """Yield the addresses that a router has as the ends of tunnels, in addition to those of its NICs."""
    kind = handling.options.terminate
    if kind and is_tunnel(kind):
        yield from (ingress_ends(path, kind, handling.packets).local for path in paths if path.has_reverse)


def added_bytes(packet: Packet, path: StreamPath, handling: PacketHandling) -> int:
    """Return by how many bytes a kernel makes frames of a packet longer, as a stream sends it; negative: shorter."""
    options = options_of(path, handling.options)
    layers = without_terminated(packet.layers, options)
    if options.originate:
        layers = encapsulated(layers, options, path, originating_ends(path, handling.options, handling.packets))
    return header_bytes(layers) - header_bytes(packet.layers)


def _headers_at_sink(layers: Layers, path: StreamPath, how: str, handling: PacketHandling) -> Layers:
    """Return the headers that a kernel sends to the sink for the headers that it receives."""
    options = options_of(path, handling.options)
    layers = without_terminated(layers, options)
    if how in ROUTING:
        layers = routed(layers, path)
        if translation := translation_of(path, handling.options):
            layers = translated(layers, translation)
    if not options.originate:
        return layers
    return encapsulated(layers, options, path, originating_ends(path, handling.options, handling.packets))


def at_sink(paths: Sequence[StreamPath], how: str, handling: PacketHandling) -> dict[str, LayersChange]:
    """Return the change of headers on the way to the sink by stream; empty where the kernel changes none."""
    options = handling.options
    if how not in ROUTING and not options.terminate and not options.originate:
        return {}
    return {path.name: partial(_headers_at_sink, path=path, how=how, handling=handling) for path in paths}

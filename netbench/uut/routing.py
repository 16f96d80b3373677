"""The changes that make a Linux kernel route, for IPv4 and IPv6, and translate addresses, as data.

Each stream has a network on each side, with a permanent neighbour for its sink. Where packets have other destinations,
a rule for what the ingress NIC receives leads to a table whose only route goes through that neighbour.

IPv6 is off in netbench's namespaces and guests. It is switched on only on the NICs of streams that need it, where it
sends nothing by itself: no link-local address, no duplicate address detection, no answer to router advertisements. Its
reports of group membership (MLD) are sent within milliseconds of the start, and never again. UUTs wait for that: a sink
would count them as foreign frames.
"""

import time
from collections.abc import Iterator, Sequence

from netbench.linux.changes import (
    AddAddress,
    AddNeighbour,
    AddRoute,
    AddRule,
    AddTable,
    Change,
    SetSysctl,
    of_nic,
)
from netbench.model.paths import PREFIX, StreamPath, each_nic_once, inside_nics
from netbench.model.traffic import PREFIX_LENGTH
from netbench.uut.directions import options_of, originating_ends, sent_packet, translation_of
from netbench.uut.packet_headers import ROUTED, without_terminated
from netbench.uut.packet_interfaces import FORWARD_TABLE, PacketHandling, entries_of, exit_of

PREFIX_LENGTH_6 = 64
_HOP_6 = "fe80::2"  # on an interface that originates
# By the translated field: chain, hook and priority, and statement of nftables.
_NAT_CHAINS = {
    "src": ("source", "postrouting priority 100", "snat"),
    "dst": ("destination", "prerouting priority -100", "dnat"),
}
_REPORTS_S = 0.1  # two reports of group membership, each within three ticks of at most 10 ms, and a margin
# Of each NIC with IPv6, in this order: the first four are set before the last one switches IPv6 on (ip-sysctl.rst).
_QUIET_6 = {
    "addr_gen_mode": "1",  # no link-local address
    "accept_dad": "0",
    "accept_ra": "0",
    "mldv2_unsolicited_report_interval": "1",  # ms between the reports at the start
    "disable_ipv6": "0",
}


def routes_ipv6(handling: PacketHandling) -> bool:
    """Return whether any packet is routed by an IPv6 header."""
    return any(name == "IPv6" for name in _routed_names(handling))


def await_silence(handling: PacketHandling) -> None:
    """Return when a kernel that has just begun to route IPv6 has sent its reports of group membership."""
    if routes_ipv6(handling):
        time.sleep(_REPORTS_S)


def _routed_names(handling: PacketHandling) -> Iterator[str]:
    for packet in handling.packets:
        for options in (handling.options, handling.options.reversed):
            layers = without_terminated(packet.layers, options)
            if len(layers) > 1:
                yield layers[1].name


def _choose_destination(paths: Sequence[StreamPath], handling: PacketHandling) -> bool:
    """Return whether any packet may have another destination than its stream's sink."""
    options = handling.options
    if options.nat == "destination" or any(options_of(path, options).originate for path in paths):
        return True
    sent = dict.fromkeys(
        (sent_packet(packet, path, options), bool(path.reverse_of)) for path in paths for packet in handling.packets
    )
    for packet, is_reverse in sent:
        layers = without_terminated(packet.layers, options.reversed if is_reverse else options)
        given = len(layers) > 1 and layers[1].value("dst") is not None
        if given or any(field.ref.layer in ROUTED and field.ref.field == "dst" for field in packet.vary):
            return True
    return False


def forwarding_switches(paths: Sequence[StreamPath], handling: PacketHandling, *, all_ours: bool) -> Iterator[Change]:
    """Yield the settings for IP forwarding; `all_ours`: outside namespaces, nothing else uses the kernel."""
    for netns in dict.fromkeys(inside_nics(path)[0].netns for path in paths):
        if netns or all_ours:
            yield SetSysctl(netns, "net.ipv4.ip_forward", "1")
        yield SetSysctl(netns, "net.ipv4.conf.all.rp_filter", "0")
        yield SetSysctl(netns, "net.ipv4.conf.all.send_redirects", "0")
        # There is no IPv6 forwarding for some interfaces only (before Linux 6.17), and it changes all interfaces.
        if routes_ipv6(handling) and (netns or all_ours):
            yield SetSysctl(netns, "net.ipv6.conf.all.forwarding", "1")
    # The machine-wide setting overwrites those of all its interfaces, which could not be restored.
    outside = [nic for path in paths for nic in inside_nics(path) if nic.netns is None and not all_ours]
    for interface in dict.fromkeys(nic.interface for nic in outside):
        yield SetSysctl(None, of_nic(4, interface, "forwarding"), "1")


def ipv6_switches(paths: Sequence[StreamPath], handling: PacketHandling) -> Iterator[Change]:
    """Yield the settings that switch IPv6 on, silently, on the interfaces that route it; each once."""
    interfaces: dict[tuple[str | None, str], None] = {}
    for path in each_nic_once(paths) if routes_ipv6(handling) else ():
        ingress, egress = inside_nics(path)
        for interface in (*entries_of(path, handling, routes=True), egress.interface, exit_of(path, handling)):
            interfaces[ingress.netns, interface] = None
    for netns, interface in interfaces:
        yield from (SetSysctl(netns, of_nic(6, interface, name), value) for name, value in _QUIET_6.items())


def reverse_path_filters_off(paths: Sequence[StreamPath], handling: PacketHandling) -> Iterator[Change]:
    """Yield the settings that let a router accept any source address on the interfaces that packets enter by.

    Many distributions filter by default; the strictest setting of an interface and all of them counts (ip-sysctl.rst).
    """
    for path in paths if handling.packets or handling.options.terminate else ():
        for interface in entries_of(path, handling, routes=True):
            yield SetSysctl(inside_nics(path)[0].netns, of_nic(4, interface, "rp_filter"), "0")


def addresses(paths: Sequence[StreamPath], handling: PacketHandling) -> Iterator[Change]:
    """Yield the changes that add addresses on both NICs of each stream, and a permanent neighbour for its sink."""
    for path in paths:
        ingress, egress = inside_nics(path)
        yield AddAddress(ingress.netns, ingress.interface, path.ingress_ip, PREFIX_LENGTH)
        yield AddAddress(egress.netns, egress.interface, path.egress_ip, PREFIX_LENGTH)
        yield AddNeighbour(egress.netns, egress.interface, path.dst_ip, path.sink.mac)
    for path in paths if routes_ipv6(handling) else ():
        ingress, egress = inside_nics(path)
        yield AddAddress(ingress.netns, ingress.interface, path.ingress_ip6, PREFIX_LENGTH_6)
        yield AddAddress(egress.netns, egress.interface, path.egress_ip6, PREFIX_LENGTH_6)
        yield AddNeighbour(egress.netns, egress.interface, path.dst_ip6, path.sink.mac)


def routes(paths: Sequence[StreamPath], handling: PacketHandling) -> Iterator[Change]:
    """Yield the changes that lead all packets of a stream to its sink, whatever their destination is."""
    if not _choose_destination(paths, handling):
        return
    versions = (4, 6) if routes_ipv6(handling) else (4,)
    for path in paths:
        if _has_own_neighbour(path, handling):
            netns, interface = inside_nics(path)[1].netns, exit_of(path, handling)
            for version in versions:
                yield AddNeighbour(netns, interface, _next_hop(path, version, handling), path.sink.mac)
    for version in versions:
        for path in paths:
            ingress, table = inside_nics(path)[0], FORWARD_TABLE + path.number
            next_hop = _next_hop(path, version, handling)
            yield AddRoute(ingress.netns, version, exit_of(path, handling), table, next_hop)
            for interface in entries_of(path, handling, routes=True):
                yield AddRule(ingress.netns, version, interface, table)


def _has_own_neighbour(path: StreamPath, handling: PacketHandling) -> bool:
    """Return whether packets leave by an interface that originates, with neighbours: GRE without Ethernet has none."""
    options = handling.options
    adds = options_of(path, options).originate
    return bool(adds) and not originating_ends(path, options, handling.packets).is_bare


def _next_hop(path: StreamPath, version: int, handling: PacketHandling) -> str:
    """Return the neighbour by which packets leave. The kernel rejects an IPv6 one that another interface leads to."""
    if version == 4:
        return path.dst_ip
    return _HOP_6 if options_of(path, handling.options).originate else path.dst_ip6


def flow_tables(paths: Sequence[StreamPath], handling: PacketHandling, name: str) -> Iterator[AddTable]:
    """Yield the tables for `flowtable`: a flow is added at its second frame, when conntrack has confirmed it."""
    family, match = ("inet", "meta l4proto") if routes_ipv6(handling) else ("ip", "ip protocol")
    for netns in dict.fromkeys(inside_nics(path)[0].netns for path in paths):
        nics = [nic.interface for path in each_nic_once(paths) for nic in inside_nics(path) if nic.netns == netns]
        devices, table = ", ".join(f'"{nic}"' for nic in nics), f"{family} {PREFIX}{name}"
        rules = [
            f"add table {table}",
            f"add flowtable {table} fast {{ hook ingress priority 0; devices = {{ {devices} }}; }}",
            f"add chain {table} forward {{ type filter hook forward priority 0; policy accept; }}",
            f"add rule {table} forward {match} udp flow add @fast",
        ]
        yield AddTable(netns, family, PREFIX + name, "".join(f"{rule}\n" for rule in rules))


def nat_tables(paths: Sequence[StreamPath], handling: PacketHandling, name: str) -> Iterator[AddTable]:
    """Yield the tables that translate addresses: each network to another one, host by host (nft(8), NAT statements).

    Answers have a rule of their own, so that they are translated before the first frame of the other direction, too.
    """
    if handling.options.nat is None:
        return
    for netns in dict.fromkeys(inside_nics(path)[0].netns for path in paths):
        table = f"ip {PREFIX}{name}-nat"
        rules = [f"add table {table}"]
        for path in paths:
            translation = translation_of(path, handling.options)
            if translation is None or inside_nics(path)[0].netns != netns:
                continue
            field, before, after = translation
            entries = ", ".join(f'"{entry}"' for entry in entries_of(path, handling, routes=True))
            match = f'oifname "{exit_of(path, handling)}"' if field == "src" else f"iifname {{ {entries} }}"
            chain, hook, statement = _NAT_CHAINS[field]
            target = f"ip prefix to ip {field[0]}addr map {{ {before} : {after} }}"
            rules.append(f"add chain {table} {chain} {{ type nat hook {hook}; policy accept; }}")
            rules.append(f"add rule {table} {chain} {match} {statement} {target}")
        rules = list(dict.fromkeys(rules))
        yield AddTable(netns, "ip", f"{PREFIX}{name}-nat", "".join(f"{rule}\n" for rule in rules))

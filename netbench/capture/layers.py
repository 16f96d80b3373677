"""Decodes frames from the first header to pktgen's, through VLAN tags and tunnels, many frames at a time.

pktgen's header is 16 bytes after UDP: magic 0xbe9be955, sequence, seconds, microseconds, each 32 bits in network byte
order (`struct pktgen_hdr` in the kernel's net/core/pktgen.c). Frames without it are counted by protocol.
"""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.rows import U8, U16, U32, U64, Rows

PKTGEN_MAGIC = 0xBE9BE955
INVALID_STAMP = -1  # the time stamp of a frame whose microseconds are a second or more
LEAST_IP_BYTES, UDP_BYTES, PKTGEN_BYTES = 20, 8, 16

Path = tuple[str, ...]  # the names of the headers around the innermost IP header, the outermost first

IPV4 = 0x0800
_IPV6, _MPLS, _MPLS_MULTICAST, _PPPOE = 0x86DD, 0x8847, 0x8848, 0x8864
_VLAN_TAGS = (0x8100, 0x88A8, 0x9100, 0x9200)  # 802.1Q, 802.1ad, and its predecessors
_PROVIDER_BRIDGE = 0x88E7
_ETHERNET_IN_GRE, _ERSPAN, _ERSPAN_3 = 0x6558, 0x88BE, 0x22EB
_LEAST_TYPE = 0x0600  # below it, an EtherType is the length of an 802.3 frame
_SNAP = 0xAAAA0300
# Organisations whose SNAP protocol numbers are EtherTypes, and one whose numbers are not (CDP, VTP, PVST+).
_ETHER_TYPE_OUIS, _CISCO_OUI = (0x000000, 0x0000F8), 0x00000C
# The most VLAN tags of netbench's own frames.
_MOST_TAGS = 2
_MOST_LAYERS = 12
# The range of the search for pktgen's magic number in frames that are not decoded further.
_SEARCHED_BYTES = 240
# Protocols that carry no user frames, by EtherType.
_LINK_PROTOCOLS = {
    0x0806: "ARP",
    0x8035: "RARP",
    0x8808: "Ethernet flow control",
    0x8809: "LACP",
    0x8863: "PPPoE discovery",
    0x888E: "EAPOL",
    0x88CC: "LLDP",
    0x88F7: "PTP",
    0x8902: "Ethernet OAM",
    0x9000: "Ethernet loopback",
}
_OPAQUE_LINK_PROTOCOLS = {
    0x22F0: "AVTP",
    0x8906: "FCoE",
    0x88E5: "MACsec",
    0x894F: "NSH",
    0x8926: "VN-Tag",
    0x893F: "802.1BR",
    0xF1C1: "802.1CB",
}
_ICMP, _IPV4_IN_IP, _TCP, _UDP, _IPV6_IN_IP, _GRE, _ESP, _AH = 1, 4, 6, 17, 41, 47, 50, 51
_ICMPV6, _ETHERNET_IN_IP, _MPLS_IN_IP, _L2TP = 58, 97, 137, 115
_HOP_BY_HOP, _ROUTING, _FRAGMENT, _DESTINATION = 0, 43, 44, 60
_EXTENSIONS = (_HOP_BY_HOP, _ROUTING, _DESTINATION, 135, 139, 140)
_IP_PROTOCOLS = {
    _ICMP: "ICMP",
    2: "IGMP",
    _TCP: "TCP",
    33: "DCCP",
    _ICMPV6: "ICMPv6",
    59: "IPv6 without a payload",
    88: "EIGRP",
    89: "OSPF",
    103: "PIM",
    112: "VRRP",
    132: "SCTP",
}
_OPAQUE_IP_PROTOCOLS = {_ESP: "ESP", _L2TP: "L2TPv3", 136: "UDP-Lite"}
# UDP ports of tunnels (IANA); 8472 is Linux's default for VXLAN.
_VXLAN_PORTS, _VXLAN_GPE, _GENEVE, _GTP, _MPLS_IN_UDP, _GRE_IN_UDP = (4789, 8472), 4790, 6081, 2152, 6635, 4754
_TUNNEL_PORTS = (*_VXLAN_PORTS, _VXLAN_GPE, _GENEVE, _GTP, _MPLS_IN_UDP, _GRE_IN_UDP)
_OPAQUE_PORTS = {1701: "L2TP", 4500: "ESP in UDP", 51820: "WireGuard"}


class DecodedFrames(NamedTuple):
    """Pktgen frames and their fields, in arrays with one element per frame.

    `addresses` are source and destination in the byte order of the file: uint64 of shape (n, 1) for IPv4, (n, 4)
    for IPv6. `sent_us` is in microseconds since 1970, or INVALID_STAMP.
    """

    rows: Rows
    addresses: NDArray[np.uint64]
    sequence: NDArray[np.int64]
    sent_us: NDArray[np.int64]

    @property
    def ip_version(self) -> int:
        """The IP version: 4 or 6."""
        return 4 if self.addresses.shape[1] == 1 else 6

    def where(self, condition: NDArray[np.bool_]) -> "DecodedFrames":
        """Return the frames for which `condition`, bool of shape (n,), is true."""
        if condition.all():
            return self
        columns: Any = (column[condition] for column in self[1:])
        return DecodedFrames(self.rows.where(condition), *columns)


class Walk:
    """Follows the headers of a batch's frames, and accumulates the results.

    `others` counts frames without pktgen's header by protocol. `undecoded` counts frames that may have it after headers
    that are not decoded here. `encapsulated` counts pktgen frames by the headers around their IP header. `too_short`
    counts frames whose captured bytes end before the protocol is known. A walk that is not `deep` decodes Ethernet with
    up to two VLAN tags and IPv4, and counts no other frames.
    """

    def __init__(self, *, deep: bool) -> None:
        self._deep = deep
        self.found: list[DecodedFrames] = []
        self.others: Counter[str] = Counter()
        self.undecoded: Counter[str] = Counter()
        self.encapsulated: Counter[Path] = Counter()
        self.too_short = 0

    def ethernet(self, rows: Rows, at: int, path: Path) -> None:
        """Follow frames with an Ethernet header at byte `at`."""
        self.ether_type(rows, at + 12, at + 14, path)

    def ether_type(self, rows: Rows, type_at: int, next_at: int, path: Path) -> None:
        """Follow frames with an EtherType at byte `type_at`, and the next header at `next_at`."""
        for value, same in self._reaching(rows, max(type_at + 2, next_at)).by_value(U16, type_at):
            self._of_type(same, value, next_at, path)

    def ip(self, rows: Rows, at: int, path: Path) -> None:
        """Follow frames with an IP header of either version at byte `at`."""
        for first, same in self._reaching(rows, at + 1).by_value(U8, at):
            if first >> 4 == 4:
                self.ipv4(same, at, path)
            elif first >> 4 == 6:
                self.ipv6(same, at, path)
            else:
                self.cannot_decode("neither IPv4 nor IPv6", same)

    def ipv4(self, rows: Rows, at: int, path: Path = ()) -> None:
        """Follow frames with an IPv4 header at byte `at`."""
        for first, same in self._reaching(rows, at + 1).by_value(U8, at):
            ip_bytes = (first & 0x0F) * 4
            if first >> 4 != 4 or ip_bytes < LEAST_IP_BYTES:
                self.others["invalid IPv4"] += same.size
                continue
            payload_at = at + ip_bytes
            whole = same.at_least(payload_at + UDP_BYTES + PKTGEN_BYTES)
            if self._deep and whole.size < same.size:
                self._ipv4_others(same.without(whole), at, payload_at, path)
            elif not self._deep:
                self.too_short += same.size - whole.size
            rest = self.take_pktgen(whole, at, payload_at, path)
            if self._deep and rest.size:
                self._ipv4_others(rest, at, payload_at, path)

    def take_pktgen(self, rows: Rows, at: int, udp_at: int, path: Path = ()) -> Rows:
        """Take the pktgen frames from IPv4 frames of one layout, long enough for its header; return the others."""
        if not rows.size:
            return rows
        header = rows.words(udp_at + UDP_BYTES, 4)
        is_pktgen = rows.match(at + 6, _UDP, U32, 0x1FFF00FF)  # no later fragment
        is_pktgen &= header[:, 0] == PKTGEN_MAGIC
        found, others = rows.split(is_pktgen)
        if found.size:
            addresses = found.as_it_lies(U64, at + 12).reshape(-1, 1)
            self._add(found, addresses, header if found is rows else header[is_pktgen], path)
        return others

    def ipv6(self, rows: Rows, at: int, path: Path) -> None:
        """Follow frames with an IPv6 header at byte `at`."""
        rows = self._reaching(rows, at + 40)
        is_ipv6 = rows.field(U8, at) >> 4 == 6 if rows.size else np.empty(0, np.bool_)
        rows, invalid = rows.split(is_ipv6)
        self.others["invalid IPv6"] += invalid.size
        self._ipv6_next(rows, at, at + 6, at + 40, path)

    def _of_type(self, rows: Rows, ether_type: int, at: int, path: Path) -> None:
        if ether_type == IPV4:
            self.ipv4(rows, at, path)
        elif ether_type in _VLAN_TAGS and (self._deep or len(path) < _MOST_TAGS):
            self._enter(rows, at, path, "VLAN")
        elif not self._deep:
            pass
        elif ether_type == _IPV6:
            self.ipv6(rows, at, path)
        elif ether_type in (_MPLS, _MPLS_MULTICAST):
            self._mpls(rows, at, (*path, "MPLS"))
        elif ether_type == _PPPOE:
            self.ppp(rows, at + 6, (*path, "PPPoE"))
        elif ether_type == _PROVIDER_BRIDGE:
            self._enter(rows, at + 4, path, "PBB")
        elif ether_type in (_ETHERNET_IN_GRE, _ERSPAN, _ERSPAN_3):
            self.cannot_decode(f"EtherType {ether_type:#06x} outside GRE", rows)
        elif 0 <= ether_type < _LEAST_TYPE:
            self._llc(rows, at, path)
        elif ether_type in _LINK_PROTOCOLS:
            self.others[_LINK_PROTOCOLS[ether_type]] += rows.size
        else:
            name = _OPAQUE_LINK_PROTOCOLS.get(ether_type, f"EtherType {ether_type:#06x}")
            self.cannot_decode(name if ether_type >= 0 else "various EtherTypes", rows)

    def _enter(self, rows: Rows, at: int, path: Path, name: str) -> None:
        """Continue after a tag, or in an encapsulated frame, at byte `at`."""
        if len(path) >= _MOST_LAYERS:
            self.cannot_decode(f"more than {_MOST_LAYERS} headers around IP", rows)
        elif name == "VLAN":
            self.ether_type(rows, at + 2, at + 4, (*path, name))
        else:
            self.ethernet(rows, at, (*path, name))

    def _llc(self, rows: Rows, at: int, path: Path) -> None:
        """Follow 802.3 frames: those with a SNAP header have an EtherType."""
        reaching = rows.at_least(at + 8)
        is_snap = reaching.match(at, _SNAP, U32, 0xFFFFFF00) if reaching.size else np.empty(0, np.bool_)
        snap = reaching.where(is_snap) if is_snap.any() else rows.none()
        self.others["802.2 LLC"] += rows.size - snap.size
        for organisation, same in snap.by_value(U32, at + 2):
            oui = organisation & 0xFFFFFF
            if oui in _ETHER_TYPE_OUIS:
                self.ether_type(same, at + 6, at + 8, (*path, "SNAP"))
            elif oui == _CISCO_OUI:
                self.others["Cisco SNAP"] += same.size
            else:
                self.cannot_decode(f"SNAP of OUI {oui:06x}", same)

    def _mpls(self, rows: Rows, at: int, path: Path) -> None:
        rows = self._reaching(rows, at + 5)
        if not rows.size:
            return
        bottom, others = rows.split(rows.field(U8, at + 2) & 1 == 1)
        if others.size and len(path) >= _MOST_LAYERS:
            self.cannot_decode(f"more than {_MOST_LAYERS} headers around IP", others)
        elif others.size:
            self._mpls(others, at + 4, (*path, "MPLS"))
        for first, same in bottom.by_value(U8, at + 4):
            ethernet = self._ethernet_among(same, at + 4) if first >> 4 in (4, 6) else same
            if ethernet.size < same.size:
                self.ip(same if not ethernet.size else same.without(ethernet), at + 4, path)
            if ethernet.size:
                self._pseudowire(ethernet, at + 4, (*path, "Ethernet"))

    def _ethernet_among(self, rows: Rows, at: int) -> Rows:
        """Return the frames in MPLS that look like IP, but have an EtherType that matches an IP header after it."""
        reaching = rows.at_least(at + 15)
        if not reaching.size:
            return reaching
        ether_type, version = reaching.field(U16, at + 12), reaching.field(U8, at + 14) >> 4
        is_ethernet = ((ether_type == IPV4) & (version == 4)) | ((ether_type == _IPV6) & (version == 6))
        return reaching.where(is_ethernet) if is_ethernet.any() else rows.none()

    def _pseudowire(self, rows: Rows, at: int, path: Path) -> None:
        """Follow Ethernet in MPLS (RFC 4448), with or without a control word of four bytes."""
        rows = self._reaching(rows, at + 18)
        if not rows.size:
            return
        plain, others = rows.split(np.isin(rows.field(U16, at + 12), (IPV4, _IPV6, _MPLS, *_VLAN_TAGS)))
        for part, frame_at in ((plain, at), (others, at + 4)):
            if part.size:
                self.ethernet(part, frame_at, path)

    def ppp(self, rows: Rows, at: int, path: Path) -> None:
        """Follow frames with a PPP protocol number at byte `at`."""
        for protocol, same in self._reaching(rows, at + 2).by_value(U16, at):
            if protocol in (0x0021, 0x0057):
                self.ip(same, at + 2, path)
            elif protocol in (0x0281, 0x0283):
                self._mpls(same, at + 2, (*path, "MPLS"))
            elif protocol >= 0x8000:
                self.others["PPP control"] += same.size
            else:
                self.cannot_decode(f"PPP protocol {protocol:#06x}", same)

    def _ipv4_others(self, rows: Rows, at: int, payload_at: int, path: Path) -> None:
        """Follow IPv4 frames that are not pktgen's."""
        rows = self._reaching(rows, at + LEAST_IP_BYTES)
        if not rows.size:
            return
        first, later = rows.split(rows.field(U16, at + 6) & 0x1FFF == 0)
        self.cannot_decode("IPv4 fragments after the first", later)
        for protocol, same in first.by_value(U8, at + 9):
            if protocol == _AH:
                self._authentication(same, at, payload_at, path)
            else:
                self._ip_payload(same, protocol, payload_at, path)

    def _ipv6_next(self, rows: Rows, ip_at: int, type_at: int, at: int, path: Path, headers: int = 0) -> None:
        """Follow IPv6 frames from a header at byte `at`, whose type is at `type_at`."""
        for protocol, same in rows.by_value(U8, type_at):
            if protocol == _UDP:
                whole = same.at_least(at + UDP_BYTES + PKTGEN_BYTES)
                if whole.size < same.size:
                    self._ip_payload(same.without(whole), protocol, at, path)
                if whole.size:
                    self._ipv6_udp(whole, ip_at, at, path)
            elif protocol in (*_EXTENSIONS, _AH, _FRAGMENT) and headers < _MOST_LAYERS:
                self._ipv6_extension(same, protocol, ip_at, at, path, headers)
            else:
                self._ip_payload(same, protocol, at, path)

    def _ipv6_extension(self, rows: Rows, protocol: int, ip_at: int, at: int, path: Path, headers: int) -> None:
        rows = self._reaching(rows, at + 8)
        if protocol == _FRAGMENT and rows.size:
            rows, later = rows.split(rows.field(U16, at + 2) >> 3 == 0)
            self.cannot_decode("IPv6 fragments after the first", later)
            self._ipv6_next(rows, ip_at, at, at + 8, path, headers + 1)
            return
        for length, same in rows.by_value(U8, at + 1):
            next_at = at + ((length + 2) * 4 if protocol == _AH else (length + 1) * 8)
            self._ipv6_next(same, ip_at, at, next_at, path, headers + 1)

    def _ipv6_udp(self, rows: Rows, ip_at: int, at: int, path: Path) -> None:
        header = rows.words(at + UDP_BYTES, 4)
        is_pktgen = header[:, 0] == PKTGEN_MAGIC
        found, others = rows.split(is_pktgen)
        if found.size:
            addresses = np.ascontiguousarray(found.words(ip_at + 8, 8)).view(np.uint64)
            self._add(found, addresses, header[is_pktgen], path)
        if others.size:
            self._ip_payload(others, _UDP, at, path)

    def _ip_payload(self, rows: Rows, protocol: int, at: int, path: Path) -> None:
        """Follow frames with a header of an IP protocol at byte `at` that is not directly followed by pktgen's."""
        if len(path) >= _MOST_LAYERS:
            self.cannot_decode(f"more than {_MOST_LAYERS} headers around IP", rows)
        elif protocol == _UDP:
            self._udp(rows, at, path)
        elif protocol in (_IPV4_IN_IP, _IPV6_IN_IP):
            self.ip(rows, at, (*path, "IP"))
        elif protocol == _GRE:
            self._gre(rows, at, (*path, "GRE"))
        elif protocol == _ETHERNET_IN_IP:
            self._enter(rows, at + 2, path, "EtherIP")
        elif protocol == _MPLS_IN_IP:
            self._mpls(rows, at, (*path, "IP", "MPLS"))
        elif protocol in _IP_PROTOCOLS:
            self._count_other(_IP_PROTOCOLS[protocol], rows)
        else:
            name = _OPAQUE_IP_PROTOCOLS.get(protocol, f"IP protocol {protocol}")
            self.cannot_decode(name if protocol >= 0 else "various IP protocols", rows)

    def _authentication(self, rows: Rows, ip_at: int, at: int, path: Path) -> None:
        """Follow IPv4 frames with an authentication header (RFC 4302)."""
        for protocol, same in self._reaching(rows, at + 12).by_value(U8, at):
            for length, alike in same.by_value(U8, at + 1):
                payload_at = at + (length + 2) * 4
                whole = alike.at_least(payload_at + UDP_BYTES + PKTGEN_BYTES)
                found, others = whole.none(), alike
                if protocol == _UDP and whole.size:
                    is_pktgen = whole.match(payload_at + UDP_BYTES, PKTGEN_MAGIC, U32)
                    found = whole.where(is_pktgen) if is_pktgen.any() else found
                if found.size:
                    header = found.words(payload_at + UDP_BYTES, 4)
                    self._add(found, found.as_it_lies(U64, ip_at + 12).reshape(-1, 1), header, path)
                    others = alike.without(found)
                if others.size:
                    self._ip_payload(others, protocol, payload_at, (*path, "AH"))

    def _gre(self, rows: Rows, at: int, path: Path) -> None:
        """Follow GRE frames: RFC 2784 and 2890; with Ethernet inside: NVGRE, ERSPAN."""
        for flags, same in self._reaching(rows, at + 4).by_value(U16, at):
            if flags < 0 or flags & 0x4007:
                self.cannot_decode("GRE with routing or of version 1 (PPTP)", same)
                continue
            next_at = at + 4 + sum(4 for bit in (0x8000, 0x2000, 0x1000) if flags & bit)
            for ether_type, alike in same.by_value(U16, at + 2):
                if ether_type == _ETHERNET_IN_GRE:
                    self._enter(alike, next_at, path, "Ethernet")
                elif ether_type == _ERSPAN:
                    self._enter(alike, next_at + (8 if flags & 0x1000 else 0), path, "ERSPAN")
                elif ether_type == _ERSPAN_3:
                    for last, equal in self._reaching(alike, next_at + 12).by_value(U8, next_at + 11):
                        self._enter(equal, next_at + (20 if last & 1 else 12), path, "ERSPAN")
                else:
                    self._of_type(alike, ether_type, next_at, path)

    def _udp(self, rows: Rows, at: int, path: Path) -> None:
        """Follow UDP frames without pktgen's header directly after UDP."""
        reaching = self._reaching(rows, at + UDP_BYTES)
        if not reaching.size:
            return
        ports = reaching.field(U16, at + 2)
        other, tunnel = reaching.split(~np.isin(ports, (*_TUNNEL_PORTS, *_OPAQUE_PORTS)))
        long_enough = other.at_least(at + UDP_BYTES + PKTGEN_BYTES)
        self._count_other("UDP", long_enough)
        self._count_unreached("UDP cut short", other, long_enough, at + UDP_BYTES + PKTGEN_BYTES)
        payload = at + UDP_BYTES
        for port, same in tunnel.by_value(U16, at + 2):
            if port in _VXLAN_PORTS:
                self._enter(same, payload + 8, path, "VXLAN")
            elif port == _VXLAN_GPE:
                self._vxlan_gpe(same, payload, (*path, "VXLAN-GPE"))
            elif port == _GENEVE:
                self._geneve(same, payload, (*path, "GENEVE"))
            elif port == _GTP:
                self._gtp(same, payload, (*path, "GTP"))
            elif port == _MPLS_IN_UDP:
                self._mpls(same, payload, (*path, "UDP", "MPLS"))
            elif port == _GRE_IN_UDP:
                self._gre(same, payload, (*path, "UDP", "GRE"))
            else:
                self.cannot_decode(_OPAQUE_PORTS[port], same)

    def _vxlan_gpe(self, rows: Rows, at: int, path: Path) -> None:
        for protocol, same in self._reaching(rows, at + 8).by_value(U8, at + 3):
            if protocol in (1, 2):
                self.ip(same, at + 8, path)
            elif protocol == 3:
                self.ethernet(same, at + 8, path)
            else:
                self.cannot_decode(f"VXLAN-GPE protocol {protocol}", same)

    def _geneve(self, rows: Rows, at: int, path: Path) -> None:
        for first, same in self._reaching(rows, at + 8).by_value(U8, at):
            next_at = at + 8 + (first & 0x3F) * 4
            for ether_type, alike in same.by_value(U16, at + 2):
                if ether_type == _ETHERNET_IN_GRE:
                    self.ethernet(alike, next_at, path)
                else:
                    self._of_type(alike, ether_type, next_at, path)

    def _gtp(self, rows: Rows, at: int, path: Path) -> None:
        """Follow GTP-U (3GPP TS 29.281), only user data without extension headers."""
        for first, same in self._reaching(rows, at + 8).by_value(U8, at):
            data, others = same.split(same.field(U8, at + 1) == 0xFF)
            self.others["GTP control"] += others.size
            if data.size and not first & 0x04:
                self.ip(data, at + (12 if first & 0x03 else 8), path)
            elif data.size:
                self.cannot_decode("GTP with extension headers", data)

    def _add(self, rows: Rows, addresses: NDArray[np.uint64], header: NDArray[np.uint32], path: Path) -> None:
        """Record pktgen frames, whose pktgen header is `header`, uint32 of shape (n, 4)."""
        fraction = header[:, 3].astype(np.int64)
        sent_us = header[:, 2].astype(np.int64)
        sent_us *= 1_000_000
        sent_us += fraction
        if fraction.max() >= 1_000_000:
            sent_us[fraction >= 1_000_000] = INVALID_STAMP
        self.found.append(DecodedFrames(rows, addresses, header[:, 1].astype(np.int64), sent_us))
        if path:
            self.encapsulated[path] += rows.size

    def _reaching(self, rows: Rows, length: int) -> Rows:
        """Return the frames with at least `length` bytes in memory; count the others as too short."""
        reaching = rows.at_least(length)
        self._count_unreached("cut short", rows, reaching, length)
        return reaching

    def _count_unreached(self, name: str, rows: Rows, reaching: Rows, length: int) -> None:
        """Count frames shorter than `length` bytes, and those with that many bytes in the file, but not in memory."""
        if reaching.size == rows.size:
            return
        captured, width = rows.batch.captured, rows.batch.frames.shape[1]
        frames = rows.size - reaching.size
        if length > width:
            in_file = frames if isinstance(captured, int) else int(np.count_nonzero(rows.of(captured) >= length))
            in_file = 0 if isinstance(captured, int) and captured < length else in_file
            self.undecoded.update({f"headers of more than {width} bytes": in_file} if in_file else {})
            frames -= in_file
        if frames:
            self.too_short += frames
            self.others[name] += frames

    def _count_other(self, name: str, rows: Rows) -> None:
        """Count frames of a protocol; those that contain pktgen's magic number may still be a stream's."""
        hidden = _with_magic(rows) if rows.size else 0
        if rows.size > hidden:
            self.others[name] += rows.size - hidden
        if hidden:
            self.undecoded[f"pktgen's magic number deeper in {name}"] += hidden

    def cannot_decode(self, why: str, rows: Rows) -> None:
        """Count frames that may have pktgen's header after undecoded headers."""
        if rows.size:
            self.undecoded[why] += rows.size


def _with_magic(rows: Rows) -> int:
    """Return how many frames contain pktgen's magic number, in either byte order, in their first bytes."""
    first_bytes = np.ascontiguousarray(rows.of(rows.batch.frames[:, :_SEARCHED_BYTES]))
    memory = first_bytes.tobytes()
    magics = PKTGEN_MAGIC.to_bytes(4, "big"), PKTGEN_MAGIC.to_bytes(4, "little")
    if not any(magic in memory for magic in magics):
        return 0
    captured = rows.batch.captured
    ends = np.full(rows.size, captured) if isinstance(captured, int) else rows.of(captured)
    has_magic = np.zeros(rows.size, np.bool_)
    for at in range(first_bytes.shape[1] - 3):
        words = first_bytes[:, at : at + 4].view(U32)[:, 0]
        has_magic |= ((words == PKTGEN_MAGIC) | (words == int.from_bytes(magics[1]))) & (ends >= at + 4)
    return int(np.count_nonzero(has_magic))

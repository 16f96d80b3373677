"""Decodes frames of unusual headers: tunnels, IPv6 extension headers, link types other than Ethernet and Linux cooked.

dpkt decodes one frame of each layout of headers. The fields that selected the next header, and the lengths that
sufficed, then identify all frames of the same layout, which numpy counts together. A frame with a unique layout is
decoded alone, so that the result never depends on the number of layouts.
"""

from collections.abc import Callable
from enum import Enum
from struct import calcsize
from typing import Any, NamedTuple

import dpkt
import numpy as np
from numpy.typing import NDArray

from netbench.capture.frames import (
    IPV4,
    LEAST_IP_BYTES,
    PKTGEN_BYTES,
    U8,
    U16,
    U32,
    UDP_BYTES,
    VLAN_TAGS,
    BatchTally,
    HeaderPath,
    LinkHeader,
    Rows,
)
from netbench.model.traffic import PKTGEN_MAGIC

_IPV6, _MPLS, _MPLS_MULTICAST, _PPPOE = 0x86DD, 0x8847, 0x8848, 0x8864
_PROVIDER_BRIDGE = 0x88E7
_ETHERNET_IN_GRE, _ERSPAN, _ERSPAN_3 = 0x6558, 0x88BE, 0x22EB
_LEAST_TYPE = 0x0600  # below it, an EtherType is the length of an 802.3 frame
# Organisations whose SNAP protocol numbers are EtherTypes, and one whose numbers are not (CDP, VTP, PVST+).
_ETHER_TYPE_OUIS, _CISCO_OUI = (0x000000, 0x0000F8), 0x00000C
_MOST_LAYERS = 12
_TCP_OFFSET_AT = 12  # of the length of a TCP header, in words of 4 bytes (RFC 9293, section 3.1)
_MOST_LAYOUTS = 64  # per batch; frames of further layouts are decoded one by one
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
# Address families of IPv6 in BSD loopback headers: those of NetBSD, FreeBSD, macOS and Linux.
_AF_INET, _AF_INET6 = 2, (10, 24, 28, 30)
_TYPES = {"B": U8, "H": U16, "I": U32}
_ALL = 0xFFFFFFFF


class _Word(dpkt.Packet):  # type: ignore[misc]  # dpkt has no types
    __hdr__ = (("value", "I", 0),)


class _Type(dpkt.Packet):  # type: ignore[misc]  # dpkt has no types
    __hdr__ = (("type", "H", 0),)


class _FirstByte(dpkt.Packet):  # type: ignore[misc]  # dpkt has no types
    __hdr__ = (("value", "B", 0),)


class _Snap(dpkt.Packet):  # type: ignore[misc]  # dpkt has no types
    __hdr__ = (("llc", "H", 0), ("control_oui", "I", 0), ("type", "H", 0))


class _VxlanGpe(dpkt.Packet):  # type: ignore[misc]  # dpkt has no types
    __hdr__ = (("flags", "B", 0), ("reserved", "H", 0), ("next", "B", 0), ("vni", "I", 0))


class _Geneve(dpkt.Packet):  # type: ignore[misc]  # dpkt has no types
    __hdr__ = (("version_length", "B", 0), ("flags", "B", 0), ("type", "H", 0), ("vni", "I", 0))


class _Gtp(dpkt.Packet):  # type: ignore[misc]  # dpkt has no types
    __hdr__ = (("flags", "B", 0), ("type", "B", 0), ("len", "H", 0), ("teid", "I", 0))


class _Ends(Enum):
    """How the headers of a frame end."""

    PKTGEN = "a pktgen header"
    OTHER = "a protocol that is not pktgen's"
    SEARCHED = "a protocol in which pktgen's magic number may follow"
    UNDECODED = "headers that are not decoded"
    CUT = "captured bytes end before the protocol is known"


class _Outcome(NamedTuple):
    """The end of a frame's headers.

    `name` is the protocol or the reason. `path`, the IP `version` and the bytes at which the IP header and pktgen's
    header begin are those of a pktgen frame.
    """

    ends: _Ends
    name: str
    path: HeaderPath = ()
    ip_at: int = 0
    pktgen_at: int = 0
    version: int = 0


class _Selector(NamedTuple):
    """A field that selected the next header: its place, type and masked value."""

    at: int
    dtype: np.dtype[Any]
    mask: int
    value: int


class _EndError(Exception):
    """The headers of a frame end, with this outcome."""

    def __init__(self, outcome: _Outcome) -> None:
        self.outcome = outcome


class _FrameDecoder:
    """Decodes one frame and records the fields and lengths that determine the result."""

    def __init__(self, frame: bytes, captured: int, width: int) -> None:
        """`frame` has the bytes in memory, at most `width`, of `captured` ones."""
        self._frame, self._captured, self._width = frame, captured, width
        self._selectors: list[_Selector] = []
        self._other_ports_at: list[int] = []  # where UDP ports are not those of tunnels
        self._no_pktgen_at: list[int] = []  # where pktgen's magic number might be, and is not
        self._least, self._below = 0, _ALL

    def decode(self, link: LinkHeader) -> _Outcome:
        """Return how the headers of the frame end."""
        try:
            return _DECODERS[link](self)
        except _EndError as end:
            return end.outcome

    def of_same_layout(self, rows: Rows) -> NDArray[np.bool_]:
        """Return which frames have the same headers, of shape (n,): their result is the same."""
        captured = rows.batch.captured
        lengths = np.full(rows.size, captured) if isinstance(captured, int) else rows.of(captured)
        are_same: NDArray[np.bool_] = (lengths >= self._least) & (lengths < self._below)
        for at, dtype, mask, value in self._selectors:
            are_same &= rows.match(at, value, dtype, mask)
        for at in self._no_pktgen_at:
            are_same &= ~rows.match(at, PKTGEN_MAGIC, U32)
        for at in self._other_ports_at:
            are_same &= ~np.isin(rows.field(U16, at), (*_TUNNEL_PORTS, *_OPAQUE_PORTS))
        return are_same

    def ethernet(self, at: int = 0, path: HeaderPath = ()) -> _Outcome:
        return self._of_type(self._read(dpkt.ethernet.Ethernet, at, type=_ALL).type, at + 14, path)

    def cooked(self) -> _Outcome:
        return self._of_type(self._read(dpkt.sll.SLL, 0, ethtype=_ALL).ethtype, 16, ())

    def cooked_2(self) -> _Outcome:
        return self._of_type(self._read(dpkt.sll2.SLL2, 0, ethtype=_ALL).ethtype, 20, ())

    def hdlc(self) -> _Outcome:
        self._require(4)
        return self._of_type(self._read(_Type, 2, type=_ALL).type, 4, ())

    def loopback(self) -> _Outcome:
        """Decode a frame after an address family in the byte order of the capturing machine."""
        family = self._read(_Word, 0, value=_ALL).value
        number = family if family < 1 << 16 else int.from_bytes(family.to_bytes(4, "little"))
        if number == _AF_INET or number in _AF_INET6:
            return self.ip(4, ())
        return _undecoded(f"address family {family}")

    def framed_ppp(self) -> _Outcome:
        """Decode a PPP frame with or without the address and control bytes of HDLC."""
        self._require(4)
        return self.ppp(2 if self._read(_Type, 0, type=_ALL).type == 0xFF03 else 0, ())

    def ppp(self, at: int, path: HeaderPath) -> _Outcome:
        protocol = self._read(_Type, at, type=_ALL).type
        if protocol in (0x0021, 0x0057):
            return self.ip(at + 2, path)
        if protocol in (0x0281, 0x0283):
            return self._mpls(at + 2, (*path, "MPLS"))
        return _other("PPP control") if protocol >= 0x8000 else _undecoded(f"PPP protocol {protocol:#06x}")

    def ip(self, at: int = 0, path: HeaderPath = ()) -> _Outcome:
        version = self._read(_FirstByte, at, value=0xF0).value >> 4
        if version == 4:
            return self._ipv4(at, path)
        return self._ipv6(at, path) if version == 6 else _undecoded("neither IPv4 nor IPv6")

    def _read(self, header_class: type[dpkt.Packet], at: int, **masks: int) -> dpkt.Packet:
        """Return the header at byte `at`; `masks` are the bits of its fields by which the next header is selected."""
        size = header_class.__hdr_len__
        self._require(at + size)
        header = header_class()
        # The base class's method: those of subclasses decode payloads as well, and fail where these are cut.
        dpkt.Packet.unpack(header, self._frame[at : at + size])
        place = at
        for name, kind, _ in header_class.__hdr__:
            if name in masks:
                dtype, value = _TYPES[kind], getattr(header, name) & masks[name]
                self._selectors.append(_Selector(place, dtype, masks[name] & _ALL >> 32 - 8 * dtype.itemsize, value))
            place += calcsize(">" + kind)
        return header

    def _reaches(self, length: int) -> bool:
        """Return whether the first `length` bytes are captured and in memory."""
        return length <= self._width and self._captures(length)

    def _captures(self, length: int) -> bool:
        if self._captured >= length:
            self._least = max(self._least, length)
            return True
        self._below = min(self._below, length)
        return False

    def _require(self, length: int) -> None:
        if not self._reaches(length):
            raise _EndError(self._cut(length))

    def _cut(self, length: int, name: str = "cut short") -> _Outcome:
        """Return the outcome of a frame whose first `length` bytes are not all captured and in memory."""
        if length > self._width and self._captures(length):
            return _Outcome(_Ends.UNDECODED, f"headers of more than {self._width} bytes")
        return _Outcome(_Ends.CUT, name)

    def _of_type(self, ether_type: int, at: int, path: HeaderPath) -> _Outcome:
        """Decode the payload of an EtherType at byte `at`."""
        if ether_type == IPV4:
            return self._ipv4(at, path)
        if ether_type in VLAN_TAGS:
            _check_layers(path)
            tag = self._read(dpkt.ethernet.VLANtag8021Q, at, type=_ALL)
            return self._of_type(tag.type, at + 4, (*path, "VLAN"))
        if ether_type == _IPV6:
            return self._ipv6(at, path)
        if ether_type in (_MPLS, _MPLS_MULTICAST):
            return self._mpls(at, (*path, "MPLS"))
        if ether_type == _PPPOE:
            return self.ppp(at + dpkt.pppoe.PPPoE.__hdr_len__, (*path, "PPPoE"))
        if ether_type == _PROVIDER_BRIDGE:
            return self._inner_ethernet(at + 4, path, "PBB")
        if ether_type in (_ETHERNET_IN_GRE, _ERSPAN, _ERSPAN_3):
            return _undecoded(f"EtherType {ether_type:#06x} outside GRE")
        if ether_type < _LEAST_TYPE:
            return self._llc(at, path)
        if ether_type in _LINK_PROTOCOLS:
            return _other(_LINK_PROTOCOLS[ether_type])
        return _undecoded(_OPAQUE_LINK_PROTOCOLS.get(ether_type, f"EtherType {ether_type:#06x}"))

    def _inner_ethernet(self, at: int, path: HeaderPath, name: str) -> _Outcome:
        _check_layers(path)
        return self.ethernet(at, (*path, name))

    def _llc(self, at: int, path: HeaderPath) -> _Outcome:
        """Decode an 802.3 frame: one with a SNAP header has an EtherType."""
        if not self._reaches(at + 8):
            return _other("802.2 LLC")
        llc = self._read(_Snap, at, llc=_ALL, control_oui=0xFF000000)
        if (llc.llc, llc.control_oui >> 24) != (0xAAAA, 3):
            return _other("802.2 LLC")
        snap = self._read(_Snap, at, control_oui=_ALL)
        organisation = snap.control_oui & 0xFFFFFF
        if organisation in _ETHER_TYPE_OUIS:
            return self._of_type(self._read(_Snap, at, type=_ALL).type, at + 8, (*path, "SNAP"))
        return _other("Cisco SNAP") if organisation == _CISCO_OUI else _undecoded(f"SNAP of OUI {organisation:06x}")

    def _mpls(self, at: int, path: HeaderPath) -> _Outcome:
        self._require(at + 5)
        label = self._read(dpkt.ethernet.MPLSlabel, at, _val_exp_s_ttl=0x100)
        if not label.s:
            _check_layers(path)
            return self._mpls(at + 4, (*path, "MPLS"))
        version = self._read(_FirstByte, at + 4, value=0xF0).value >> 4
        if version in (4, 6) and not self._is_ethernet(at + 4):
            return self.ip(at + 4, path)
        return self._pseudowire(at + 4, (*path, "Ethernet"))

    def _is_ethernet(self, at: int) -> bool:
        """Return whether MPLS payload that looks like IP has an EtherType that matches an IP header after it."""
        if not self._reaches(at + 15):
            return False
        ether_type = self._read(dpkt.ethernet.Ethernet, at, type=_ALL).type
        version = self._read(_FirstByte, at + 14, value=0xF0).value >> 4
        return (ether_type, version) in ((IPV4, 4), (_IPV6, 6))

    def _pseudowire(self, at: int, path: HeaderPath) -> _Outcome:
        """Decode Ethernet in MPLS (RFC 4448), with or without a control word of four bytes."""
        self._require(at + 18)
        is_plain = self._read(dpkt.ethernet.Ethernet, at, type=_ALL).type in (IPV4, _IPV6, _MPLS, *VLAN_TAGS)
        return self.ethernet(at if is_plain else at + 4, path)

    def _ipv4(self, at: int, path: HeaderPath) -> _Outcome:
        length = self._read(_FirstByte, at, value=_ALL).value
        payload_at = at + (length & 0x0F) * 4
        if length >> 4 != 4 or payload_at < at + LEAST_IP_BYTES:
            return _other("invalid IPv4")
        header = self._read(dpkt.ip.IP, at, _flags_offset=0x1FFF, p=_ALL)
        if header.offset:
            return _undecoded("IPv4 fragments after the first")
        if header.p == _AH:
            authentication = self._read(dpkt.ah.AH, payload_at, nxt=_ALL, len=_ALL)
            payload_at += (authentication.len + 2) * 4
            if (pktgen_at := self._find_pktgen(authentication.nxt, payload_at)) is None:
                return self._ip_payload(authentication.nxt, payload_at, (*path, "AH"))
        elif (pktgen_at := self._find_pktgen(header.p, payload_at)) is None:
            return self._ip_payload(header.p, payload_at, path)
        return _Outcome(_Ends.PKTGEN, "", path, at, pktgen_at, 4)

    def _find_pktgen(self, protocol: int, at: int) -> int | None:
        """Return where pktgen's header begins if it follows the header of this protocol at byte `at`; else None."""
        if protocol == _TCP and self._reaches(at + _TCP_OFFSET_AT + 1):
            pktgen_at = at + max(5, self._read(_FirstByte, at + _TCP_OFFSET_AT, value=0xF0).value >> 4) * 4
        elif protocol in (_UDP, _ICMP, _ICMPV6):
            pktgen_at = at + UDP_BYTES  # an echo request's header is as long
        else:
            return None
        if not self._reaches(pktgen_at + PKTGEN_BYTES):
            return None
        if int.from_bytes(self._frame[pktgen_at : pktgen_at + 4]) != PKTGEN_MAGIC:
            self._no_pktgen_at.append(pktgen_at)
            return None
        self._read(_Word, pktgen_at, value=_ALL)
        return pktgen_at

    def _ipv6(self, at: int, path: HeaderPath) -> _Outcome:
        header = self._read(dpkt.ip6.IP6, at, _v_fc_flow=0xF0000000, nxt=_ALL)
        if header.v != 6:
            return _other("invalid IPv6")
        protocol, payload_at = header.nxt, at + header.__hdr_len__
        for _ in range(_MOST_LAYERS):
            if protocol == _FRAGMENT:
                fragment = self._read(dpkt.ip6.IP6FragmentHeader, payload_at, nxt=_ALL, _frag_off_resv_m=0xFFF8)
                if fragment.frag_off:
                    return _undecoded("IPv6 fragments after the first")
                protocol, payload_at = fragment.nxt, payload_at + fragment.__hdr_len__
            elif protocol in (*_EXTENSIONS, _AH):
                self._require(payload_at + 8)
                extension = self._read(dpkt.ip6.IP6OptsHeader, payload_at, nxt=_ALL, len=_ALL)
                payload_at += (extension.len + 2) * 4 if protocol == _AH else (extension.len + 1) * 8
                protocol = extension.nxt
            else:
                break
        if (pktgen_at := self._find_pktgen(protocol, payload_at)) is not None:
            return _Outcome(_Ends.PKTGEN, "", path, at, pktgen_at, 6)
        return self._ip_payload(protocol, payload_at, path)

    def _ip_payload(self, protocol: int, at: int, path: HeaderPath) -> _Outcome:
        """Decode the payload of an IP protocol at byte `at`, which is not directly followed by pktgen's header."""
        _check_layers(path)
        if protocol == _UDP:
            return self._udp(at, path)
        if protocol in (_IPV4_IN_IP, _IPV6_IN_IP):
            return self.ip(at, (*path, "IP"))
        if protocol == _GRE:
            return self._gre(at, (*path, "GRE"))
        if protocol == _ETHERNET_IN_IP:
            return self._inner_ethernet(at + 2, path, "EtherIP")
        if protocol == _MPLS_IN_IP:
            return self._mpls(at, (*path, "IP", "MPLS"))
        if protocol in _IP_PROTOCOLS:
            return _Outcome(_Ends.SEARCHED, _IP_PROTOCOLS[protocol])
        return _undecoded(_OPAQUE_IP_PROTOCOLS.get(protocol, f"IP protocol {protocol}"))

    def _gre(self, at: int, path: HeaderPath) -> _Outcome:
        """Decode GRE: RFC 2784 and 2890; with Ethernet inside: NVGRE, ERSPAN."""
        header = self._read(dpkt.gre.GRE, at, flags=_ALL, p=_ALL)
        if header.flags & 0x4007:
            return _undecoded("GRE with routing or of version 1 (PPTP)")
        next_at = at + 4 + sum(4 for bit in (0x8000, 0x2000, 0x1000) if header.flags & bit)
        if header.p == _ETHERNET_IN_GRE:
            return self._inner_ethernet(next_at, path, "Ethernet")
        if header.p == _ERSPAN:
            return self._inner_ethernet(next_at + (8 if header.flags & 0x1000 else 0), path, "ERSPAN")
        if header.p == _ERSPAN_3:
            has_subheader = self._read(_FirstByte, next_at + 11, value=1).value & 1
            return self._inner_ethernet(next_at + (20 if has_subheader else 12), path, "ERSPAN")
        return self._of_type(header.p, next_at, path)

    def _udp(self, at: int, path: HeaderPath) -> _Outcome:
        """Decode UDP without pktgen's header directly after it."""
        port, payload_at = self._read(dpkt.udp.UDP, at).dport, at + UDP_BYTES
        if port not in _TUNNEL_PORTS and port not in _OPAQUE_PORTS:
            self._other_ports_at.append(at + 2)
            if self._reaches(payload_at + PKTGEN_BYTES):
                return _Outcome(_Ends.SEARCHED, "UDP")
            return self._cut(payload_at + PKTGEN_BYTES, "UDP cut short")
        self._read(dpkt.udp.UDP, at, dport=_ALL)
        if port in _VXLAN_PORTS:
            return self._inner_ethernet(payload_at + 8, path, "VXLAN")
        if port == _VXLAN_GPE:
            return self._vxlan_gpe(payload_at, (*path, "VXLAN-GPE"))
        if port == _GENEVE:
            return self._geneve(payload_at, (*path, "GENEVE"))
        if port == _GTP:
            return self._gtp(payload_at, (*path, "GTP"))
        if port == _MPLS_IN_UDP:
            return self._mpls(payload_at, (*path, "UDP", "MPLS"))
        if port == _GRE_IN_UDP:
            return self._gre(payload_at, (*path, "UDP", "GRE"))
        return _undecoded(_OPAQUE_PORTS[port])

    def _vxlan_gpe(self, at: int, path: HeaderPath) -> _Outcome:
        protocol = self._read(_VxlanGpe, at, next=_ALL).next
        if protocol in (1, 2):
            return self.ip(at + 8, path)
        return self.ethernet(at + 8, path) if protocol == 3 else _undecoded(f"VXLAN-GPE protocol {protocol}")

    def _geneve(self, at: int, path: HeaderPath) -> _Outcome:
        header = self._read(_Geneve, at, version_length=0x3F, type=_ALL)
        next_at = at + 8 + (header.version_length & 0x3F) * 4
        if header.type == _ETHERNET_IN_GRE:
            return self.ethernet(next_at, path)
        return self._of_type(header.type, next_at, path)

    def _gtp(self, at: int, path: HeaderPath) -> _Outcome:
        """Decode user data of GTP-U (3GPP TS 29.281, section 5.2.1: extension headers)."""
        header = self._read(_Gtp, at, flags=0x07, type=_ALL)
        if header.type != 0xFF:
            return _other("GTP control")
        if not header.flags & 0x07:
            return self.ip(at + 8, path)
        at += 12
        if header.flags & 0x04:
            for _ in range(_MOST_LAYERS):
                if not self._read(_FirstByte, at - 1, value=_ALL).value:
                    break
                length = self._read(_FirstByte, at, value=_ALL).value * 4
                if not length:
                    return _undecoded("GTP extension header without a length")
                at += length
            else:
                return _undecoded(f"more than {_MOST_LAYERS} GTP extension headers")
        return self.ip(at, path)


_DECODERS: dict[LinkHeader, Callable[[_FrameDecoder], _Outcome]] = {
    LinkHeader.ETHERNET: _FrameDecoder.ethernet,
    LinkHeader.COOKED: _FrameDecoder.cooked,
    LinkHeader.COOKED_2: _FrameDecoder.cooked_2,
    LinkHeader.LOOPBACK: _FrameDecoder.loopback,
    LinkHeader.PPP: _FrameDecoder.framed_ppp,
    LinkHeader.HDLC: _FrameDecoder.hdlc,
    LinkHeader.RAW_IP: _FrameDecoder.ip,
}


def decode_by_layout(tally: BatchTally, rows: Rows, link: LinkHeader) -> None:
    """Add the frames of `rows`, which begin with a header of this kind, to the tally."""
    for _ in range(_MOST_LAYOUTS):
        if not rows.size:
            return
        decoder, outcome = _decode(rows, 0, link)
        same, rows = rows.split(decoder.of_same_layout(rows))
        _add(tally, same, outcome)
    for place in range(rows.size):
        _add(tally, rows.only(place), _decode(rows, place, link)[1])


def _decode(rows: Rows, place: int, link: LinkHeader) -> tuple[_FrameDecoder, _Outcome]:
    frame, captured = rows.first_bytes(place)
    decoder = _FrameDecoder(frame, captured, rows.batch.frames.shape[1])
    return decoder, decoder.decode(link)


def _add(tally: BatchTally, rows: Rows, outcome: _Outcome) -> None:
    match outcome.ends:
        case _Ends.PKTGEN:
            tally.add_pktgen(rows, outcome.path, outcome.version, outcome.ip_at, outcome.pktgen_at)
        case _Ends.SEARCHED:
            tally.add_other(rows, outcome.name)
        case _Ends.UNDECODED:
            tally.add_undecoded(rows.size, outcome.name)
        case _Ends.OTHER | _Ends.CUT:
            tally.others[outcome.name] += rows.size
            tally.too_short += rows.size if outcome.ends is _Ends.CUT else 0


def _other(name: str) -> _Outcome:
    return _Outcome(_Ends.OTHER, name)


def _undecoded(reason: str) -> _Outcome:
    return _Outcome(_Ends.UNDECODED, reason)


def _check_layers(path: HeaderPath) -> None:
    if len(path) >= _MOST_LAYERS:
        raise _EndError(_undecoded(f"more than {_MOST_LAYERS} headers around IP"))

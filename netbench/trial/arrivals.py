"""Frames that arrive at a sink but are not counted: their differences from the frames that the source sent."""

import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from netbench.hosts.base import Host, Process
from netbench.hosts.pipes import Lines, end
from netbench.hosts.remote_code import program_command
from netbench.model.frame_size import FCS_BYTES
from netbench.model.paths import StreamPath
from netbench.model.traffic import PKTGEN_MAGIC, Sent, Traffic
from netbench.sinks import witness

_START_S = 10.0
_END_S = 1.0
_MAGIC = PKTGEN_MAGIC.to_bytes(4)
_TAGS = {0x8100: "", 0x88A8: " (802.1ad)", 0x9100: " (TPID 0x9100)"}
_IPV4, _UDP = 0x0800, 17
_SENT_TTLS = (64, 32)  # 32: the kernel's pktgen
_HEADER_BYTES, _TAG_BYTES, _IP_BYTES = 14, 4, 20
_PKTGEN = struct.Struct(">4xIII")  # sequence number, seconds, microseconds
_STAMP_TOLERANCE_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """One frame that arrived; `length` includes the FCS, but not `taken`, the tag that the kernel removed."""

    length: int
    taken: tuple[int, int] | None  # TPID and TCI of the removed tag
    data: bytes

    @classmethod
    def of(cls, line: str) -> "Arrival":
        """Return the frame that a line of the witness's output describes; ValueError for any other line."""
        length, tag, data = line.split()
        taken = None if tag == "-" else (int(tag[:4], 16), int(tag[4:], 16))
        return cls(int(length) + FCS_BYTES, taken, bytes.fromhex(data))

    @property
    def tags(self) -> list[tuple[int, int]]:
        """TPID and TCI of each VLAN tag, the outermost tag first."""
        tags, at = [self.taken] if self.taken else [], _HEADER_BYTES - 2
        while (tag := self._tag(at)) and tag[0] in _TAGS:
            tags.append(tag)
            at += _TAG_BYTES
        return tags

    @property
    def ethertype(self) -> int | None:
        """The EtherType after the tags; None if the frame ends before it."""
        tag = self._tag(self._type_at)
        return tag[0] if tag else None

    @property
    def ip(self) -> bytes:
        """The bytes after the Ethernet header and the tags."""
        return self.data[self._type_at + 2 :]

    @property
    def bytes_on_link(self) -> int:
        """The length in bytes, including the FCS and all tags."""
        return self.length + (_TAG_BYTES if self.taken else 0)

    @property
    def _type_at(self) -> int:
        return _HEADER_BYTES - 2 + _TAG_BYTES * (len(self.tags) - bool(self.taken))

    def _tag(self, at: int) -> tuple[int, int] | None:
        if len(self.data) < at + _TAG_BYTES:
            return None
        tpid, tci = struct.unpack_from(">HH", self.data, at)
        return tpid, tci

    def is_probe_of(self, path: StreamPath, traffic: Traffic) -> bool:
        """Return True if an IP address or the pktgen header shows that the frame belongs to this stream."""
        network, ip = socket.inet_aton(path.src_network.partition("/")[0])[:3], self.ip
        ours = len(ip) >= _IP_BYTES and (ip[12:15] == network or ip[16:20] == socket.inet_aton(traffic.dst_ip))
        return ours or _MAGIC in self.data

    def changes(self, path: StreamPath, traffic: Traffic, sent: Sent) -> list[str]:
        """Return the differences between this frame and the frame that the source sent, as phrases.

        For a described packet, return its tags, length and EtherType.
        """
        phrases = [_tag_text(*tag) for tag in self.tags]
        if traffic.packet is not None:
            ethertype = "no EtherType" if self.ethertype is None else f"EtherType 0x{self.ethertype:04x}"
            return [*phrases, f"{self.bytes_on_link} bytes", ethertype]
        if self.bytes_on_link != traffic.frame_size.only_size:
            phrases.append(f"{self.bytes_on_link} bytes")
        if self.ethertype != _IPV4:
            phrases.append("no EtherType" if self.ethertype is None else f"EtherType 0x{self.ethertype:04x}")
        else:
            phrases += self._changes_of_ip(path, traffic)
        if _MAGIC not in self.data:
            phrases.append("no pktgen header")
        elif self.ip[12:16] == socket.inet_aton(traffic.src_ip):  # not a frame of an earlier probe
            phrases += self._changes_of_pktgen(sent)
        if self.data[6:12].hex(":") != traffic.src_mac:
            phrases.append(f"source MAC address {self.data[6:12].hex(':')}")
        if self.data[:6].hex(":") != traffic.dst_mac:
            phrases.append(f"destination MAC address {self.data[:6].hex(':')}")
        return phrases

    def _changes_of_ip(self, path: StreamPath, traffic: Traffic) -> Iterator[str]:
        ip = self.ip
        if len(ip) < _IP_BYTES:
            yield "a truncated IP header"
            return
        if ip[9] != _UDP:
            yield f"IP protocol {ip[9]}"
        source, destination = socket.inet_ntoa(ip[12:16]), socket.inet_ntoa(ip[16:20])
        if ip[12:15] != socket.inet_aton(path.src_network.partition("/")[0])[:3]:
            yield f"source address {source}"
        if destination != traffic.dst_ip:
            yield f"destination address {destination}"
        if ip[8] not in _SENT_TTLS:
            yield f"TTL {ip[8]}"
        if ip[1]:
            yield f"DSCP {ip[1] >> 2}, ECN {ip[1] & 3}"

    def _changes_of_pktgen(self, sent: Sent) -> Iterator[str]:
        header = self.data[self.data.index(_MAGIC) :]
        if len(header) < _PKTGEN.size or sent.first_ns is None or sent.last_ns is None:
            return
        number, seconds, microseconds = _PKTGEN.unpack_from(header)
        if sent.numbered and (number - sent.first_sequence) % 2**32 >= sent.frames + sent.errors:
            yield "other sequence numbers"
        stamp_ns = seconds * 10**9 + microseconds * 1000
        earliest, latest = sent.first_ns - _STAMP_TOLERANCE_NS, sent.last_ns + _STAMP_TOLERANCE_NS
        if sent.stamped and not earliest <= stamp_ns <= latest:
            yield "other time stamps"


def _tag_text(tpid: int, tci: int) -> str:
    vlan, priority = tci & 0xFFF, tci >> 13
    if vlan == 0:
        return f"a priority tag (VLAN 0, priority {priority}){_TAGS[tpid]}"
    return f"VLAN {vlan}{_TAGS[tpid]}"


def summary(arrived: Sequence[Arrival], path: StreamPath, traffic: Traffic, sent: Sent) -> str:
    """Return how probes were changed, as a phrase to follow "arrived"; empty if none arrived or none was changed."""
    probes = (arrival for arrival in arrived if arrival.is_probe_of(path, traffic))
    texts = [", ".join(arrival.changes(path, traffic, sent)) for arrival in probes]
    texts = [text for text in dict.fromkeys(texts) if text]
    return "with " + "; others with ".join(texts) if texts else ""


class Witness:
    """A process at a sink's interface that captures the frames that the sink does not count."""

    def __init__(self, host: Host, path: StreamPath, traffic: Traffic) -> None:
        """Start the process and return once it listens; if it fails, `changes` reports nothing."""
        self._path, self._traffic = path, traffic
        patterns = _MAGIC, socket.inet_aton(traffic.src_ip)[:3], socket.inet_aton(traffic.dst_ip)
        arguments = (path.sink.interface, *(pattern.hex() for pattern in patterns))
        self._process: Process = host.spawn(program_command(host, witness, *arguments))
        assert self._process.stdout is not None
        self._lines = Lines(self._process.stdout)
        with suppress(TimeoutError, EOFError, ValueError):
            self._lines.take(_START_S)

    def changes(self, sent: Sent) -> str:
        """End the process and return the `summary` of the probes that arrived."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        arrived = []
        with suppress(TimeoutError, EOFError, ValueError):
            while True:
                arrived.append(Arrival.of(self._lines.take(_END_S).decode()))
        return summary(arrived, self._path, self._traffic, sent)

    def close(self) -> None:
        """End the process; harmless if it has ended already."""
        end(self._process)

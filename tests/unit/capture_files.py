"""Capture files for tests to read, written byte by byte according to the format specifications."""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

MAGIC = 0xBE9BE955
START_NS = 1_700_000_000_000_000_000
FLUSH_MAC = bytes.fromhex("0180c200000f")
DST_MAC = bytes.fromhex("020000000001")
SRC_MAC = bytes.fromhex("020000000002")


class Frame(NamedTuple):
    """One captured frame: its captured bytes, capture time, and length on the link without FCS."""

    data: bytes
    time_ns: int = START_NS
    original: int = 0  # 0: as long as `data`
    interface: int = 0

    @property
    def length(self) -> int:
        return self.original or len(self.data)


def address(text: str) -> bytes:
    return bytes(map(int, text.split(".")))


def udp(
    payload: bytes,
    *,
    size: int,
    src: str = "198.18.0.1",
    dst: str = "198.18.0.2",
    options: bytes = b"",
    fragment: int = 0,
    protocol: int = 17,
    ports: tuple[int, int] = (9, 9),
) -> bytes:
    """An IPv4 packet padded so that behind a 14-byte header it makes a frame of `size` bytes with FCS."""
    length = size - 18
    fields = (0x45 + len(options) // 4, 0, length, 0, fragment, 64, protocol, 0)
    header = struct.pack(">BBHHHBBH4s4s", *fields, address(src), address(dst))
    packet = header + options + struct.pack(">HHHH", *ports, length - 20 - len(options), 0) + payload
    return packet + bytes(length - len(packet))


def pktgen(seq: int, sent_ns: int = START_NS, magic: int = MAGIC) -> bytes:
    return struct.pack(">IIII", magic, seq, sent_ns // 10**9, sent_ns // 1000 % 10**6)


def ethernet(packet: bytes, *, dst: bytes = DST_MAC, tags: Sequence[int] = (), ether_type: int = 0x0800) -> bytes:
    types = b"".join(struct.pack(">HH", tag, 7) for tag in tags)
    return dst + SRC_MAC + types + struct.pack(">H", ether_type) + packet


def stream_frame(
    seq: int,
    *,
    size: int = 64,
    sent_ns: int = START_NS,
    delay_ns: int = 5000,
    src: str = "198.18.0.1",
    dst: str = "198.18.0.2",
    interface: int = 0,
    ports: tuple[int, int] = (9, 9),
) -> Frame:
    packet = udp(pktgen(seq, sent_ns), size=size, src=src, dst=dst, ports=ports)
    return Frame(ethernet(packet), sent_ns + delay_ns, interface=interface)


def cut(frame: Frame, snap_length: int) -> Frame:
    return frame._replace(data=frame.data[:snap_length], original=frame.length)


def pcap_record(frame: Frame, order: str = "<", fraction_ns: int = 1000, more: bytes = b"") -> bytes:
    seconds, fraction = divmod(frame.time_ns, 10**9)
    head = struct.pack(order + "IIII", seconds, fraction // fraction_ns, len(frame.data), frame.length)
    return head + more + frame.data


def pcap_header(
    order: str = "<",
    magic: int = 0xA1B2C3D4,
    snap: int = 262_144,
    link: int = 1,
    version: tuple[int, int] = (2, 4),
) -> bytes:
    return struct.pack(order + "IHHiIII", magic, *version, 0, 0, snap, link)


def pcap(
    frames: Iterable[Frame],
    *,
    order: str = "<",
    nanoseconds: bool = False,
    modified: bool = False,
    snap: int = 262_144,
    link: int = 1,
) -> bytes:
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2CD34 if modified else 0xA1B2C3D4
    more = struct.pack(order + "IHBB", 3, 0x0800, 0, 0) if modified else b""
    records = (pcap_record(frame, order, 1 if nanoseconds else 1000, more) for frame in frames)
    return pcap_header(order, magic, snap, link) + b"".join(records)


class Blocks:
    """Writes the blocks of a pcapng file."""

    def __init__(self, order: str = "<") -> None:
        self.order = order

    def block(self, kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        length = struct.pack(self.order + "I", len(body) + 12)
        return struct.pack(self.order + "I", kind) + length + body + length

    def option(self, code: int, value: bytes) -> bytes:
        return struct.pack(self.order + "HH", code, len(value)) + value + bytes(-len(value) % 4)

    def section(self) -> bytes:
        return self.block(0x0A0D0D0A, struct.pack(self.order + "IHHq", 0x1A2B3C4D, 1, 0, -1))

    def interface(
        self,
        link: int = 1,
        snap: int = 0,
        resolution: int | None = None,
        offset_s: int | None = None,
    ) -> bytes:
        options = b""
        if resolution is not None:
            options += self.option(9, bytes([resolution]))
        if offset_s is not None:
            options += self.option(14, struct.pack(self.order + "q", offset_s))
        return self.block(1, struct.pack(self.order + "HHI", link, 0, snap) + options + self.option(0, b""))

    def enhanced(self, frame: Frame, ticks: int | None = None, options: bytes = b"") -> bytes:
        high, low = divmod(frame.time_ns // 1000 if ticks is None else ticks, 2**32)
        head = struct.pack(self.order + "IIIII", frame.interface, high, low, len(frame.data), frame.length)
        return self.block(6, head + frame.data + bytes(-len(frame.data) % 4) + options)

    def obsolete(self, frame: Frame) -> bytes:
        high, low = divmod(frame.time_ns // 1000, 2**32)
        head = struct.pack(self.order + "HHIIII", frame.interface, 0, high, low, len(frame.data), frame.length)
        return self.block(2, head + frame.data)

    def statistics(self, interface: int, ifdrop: int, osdrop: int) -> bytes:
        options = self.option(5, struct.pack(self.order + "Q", ifdrop))
        options += self.option(7, struct.pack(self.order + "Q", osdrop))
        return self.block(5, struct.pack(self.order + "III", interface, 0, 0) + options + self.option(0, b""))


def pcapng(frames: Iterable[Frame], *, order: str = "<", snap: int = 0) -> bytes:
    blocks = Blocks(order)
    return blocks.section() + blocks.interface(snap=snap) + b"".join(map(blocks.enhanced, frames))

"""Test frames: Ethernet, IPv4, UDP and pktgen's header, stamped in place before they are sent.

Layout in bytes from the start of the frame: Ethernet II 0–13, IPv4 without options 14–33, UDP 34–41,
pktgen's header 42–57 (magic, sequence, seconds, microseconds, each 32 bits and big endian: `struct
pktgen_hdr` in the kernel's net/core/pktgen.c), zeros to the end. The smallest frame has exactly enough room.
"""

import random
import socket
import struct
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from netbench.model.frame_mix import genome_of, only_size
from netbench.model.traffic import Traffic
from netbench.model.units import FCS_BYTES

PKTGEN_MAGIC = 0xBE9BE955
IPV4_OFFSET = 14
UDP_OFFSET = 34
PKTGEN_OFFSET = 42

_SEQUENCE_OFFSET = PKTGEN_OFFSET + 4
_TIME_OFFSET = PKTGEN_OFFSET + 8

_ETHERTYPE_IPV4 = 0x0800
_TTL = 64
_DISCARD_PORT = 9  # RFC 863, and pktgen's default for both ports
_FLOW_PORTS = range(1024, 65536)

Ports = npt.NDArray[np.uint16]
Buffer = npt.NDArray[np.uint8]


def build_frame(traffic: Traffic, frame_size: int | None = None) -> bytes:
    """Return a frame of `traffic` without FCS, `frame_size` − 4 bytes: first flow, sequence and time 0.

    `frame_size` defaults to the size of the traffic; for a mix of sizes it is required.

    The IPv4 header checksum is valid; the UDP checksum is 0, which means none (RFC 768), as in pktgen.
    """
    size = (only_size(traffic.frame_size) if frame_size is None else frame_size) - FCS_BYTES
    source, destination = flow_ports(traffic.flows, traffic.seed)[0].tolist()
    headers = (
        _mac(traffic.dst_mac)
        + _mac(traffic.src_mac)
        + struct.pack("!H", _ETHERTYPE_IPV4)
        + _ipv4_header(traffic.src_ip, traffic.dst_ip, size - IPV4_OFFSET)
        + struct.pack("!HHHH", source, destination, size - UDP_OFFSET, 0)
        + struct.pack("!IIII", PKTGEN_MAGIC, 0, 0, 0)
    )
    return headers.ljust(size, b"\0")


@lru_cache(maxsize=4)
def flow_ports(flows: int, seed: int) -> Ports:
    """Return the UDP source and destination port of each flow: shape (flows, 2), read-only, fixed by the seed.

    Both ports are drawn pseudo-randomly from 1024–65535 (RFC 4814, section 4), independently of each
    other; no two flows share a pair. A single flow uses port 9 for both, as pktgen does.
    """
    if flows == 1:
        ports = np.array([[_DISCARD_PORT, _DISCARD_PORT]], dtype=np.uint16)
    else:
        draw = random.Random(seed)
        pairs: dict[tuple[int, int], None] = {}  # a set that keeps the order of the draws
        while len(pairs) < flows:
            pairs[draw.choice(_FLOW_PORTS), draw.choice(_FLOW_PORTS)] = None
        ports = np.array(list(pairs), dtype=np.uint16)
    ports.flags.writeable = False
    return ports


class FrameBlock:
    """A block of `capacity` frames in one buffer; each stamp renumbers some consecutive rows.

    `buffer` has one frame per row, in shape (rows, bytes of the largest frame without FCS). Frame r is the first
    `lengths[r]` bytes of row r. All frames have one size, or row r has size number r of a mix. A mix needs more rows
    than `capacity`, so that `capacity` consecutive rows exist from any position of its genome.
    """

    def __init__(self, traffic: Traffic, capacity: int) -> None:
        genome = genome_of(traffic.frame_size)
        rows = capacity + len(genome) - 1
        largest = max(genome) - FCS_BYTES
        templates = np.array([list(build_frame(traffic, size).ljust(largest, b"\0")) for size in genome], np.uint8)
        self._repeats = len(genome)
        self.buffer: Buffer = templates[np.arange(rows) % len(genome)]
        self.lengths = [genome[row % len(genome)] - FCS_BYTES for row in range(rows)]
        self._offsets = np.arange(capacity, dtype=np.uint32)
        # Both ports of a flow, and seconds and microseconds of the time, are written as one word each.
        self._ports = self._words(UDP_OFFSET, ">u4")
        self._sequence = self._words(_SEQUENCE_OFFSET, ">u4")
        self._time = self._words(_TIME_OFFSET, ">u8")
        self._flow_words = flow_ports(traffic.flows, traffic.seed).astype(">u2").view(">u4")[:, 0]

    def stamp(self, first: int, count: int, time_ns: int) -> int:
        """Number and stamp `count` rows from frame `first`, sent at `time_ns` (CLOCK_REALTIME); return the first row.

        Frame i belongs to flow i mod flows. The sequence wraps at 2³², as pktgen's does.
        """
        row = first % self._repeats
        these = slice(row, row + count)
        self._sequence[these] = self._offsets[:count] + np.uint32(first & 0xFFFFFFFF)
        seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
        self._time[these] = seconds << 32 | nanoseconds // 1_000
        flows = len(self._flow_words)
        if flows > 1:
            self._ports[these] = self._flow_words[(first % flows + self._offsets[:count]) % flows]
        return row

    def _words(self, offset: int, dtype: str) -> npt.NDArray[np.unsignedinteger]:
        """Return the word at `offset` of every frame, as a view of the buffer."""
        return self.buffer[:, offset : offset + np.dtype(dtype).itemsize].view(dtype)[:, 0]


def _mac(address: str) -> bytes:
    return bytes.fromhex(address.replace(":", ""))


def _ipv4_header(source: str, destination: str, total_bytes: int) -> bytes:
    """Return a header without options (RFC 791, section 3.1): identification 0, not fragmented."""

    def pack(checksum: int) -> bytes:
        return struct.pack(
            "!BBHHHBBH4s4s",
            *(0x45, 0, total_bytes, 0, 0, _TTL, socket.IPPROTO_UDP, checksum),
            *(socket.inet_aton(source), socket.inet_aton(destination)),
        )

    return pack(_internet_checksum(pack(0)))


def _internet_checksum(data: bytes) -> int:
    """Return the one's complement of the one's complement sum of 16-bit words (RFC 1071, section 1)."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF

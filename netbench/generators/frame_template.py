"""Templates of test frames: scapy builds them once per trial in the controller, and workers vary copies of them.

A block of frames is copied from a template, and each frame is stamped in place before it is sent.

The template is Ethernet II, IPv4, UDP, and pktgen's header as payload (magic, sequence, seconds, microseconds, each
32 bits and big endian: `struct pktgen_hdr` in the kernel's net/core/pktgen.c), then zeros. The smallest frame has
exactly enough room.
"""

import logging
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from netbench.model.frame_mix import genome_of, only_size, sizes_in
from netbench.model.traffic import Traffic
from netbench.model.units import FCS_BYTES

PKTGEN_MAGIC = 0xBE9BE955

_DISCARD_PORT = 9  # RFC 863, and pktgen's default for both ports
_FLOW_PORTS = range(1024, 65536)


@dataclass(frozen=True, slots=True)
class FrameTemplate:
    """The frames of a trial without FCS, by frame size, and the offsets in bytes of the fields that vary.

    Their ports are those of the first flow; sequence number and time are 0.
    """

    frames: Mapping[int, bytes]
    ports_at: int  # UDP source and destination port, 16 bits each
    sequence_at: int  # 32 bits
    time_at: int  # seconds and microseconds, 32 bits each

    @classmethod
    def of(cls, traffic: Traffic) -> Self:
        """Build the template of a trial with scapy, which only the controller can import."""
        packets = {size: _packet(traffic, size) for size in sizes_in(traffic.frame_size)}
        packet = next(iter(packets.values()))
        header_at = len(packet) - len(packet["UDP"].payload)
        ports_at = len(packet) - len(packet["UDP"])
        frames = {size: bytes(packet) for size, packet in packets.items()}
        return cls(frames, ports_at, sequence_at=header_at + 4, time_at=header_at + 8)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the template that `to_json` has converted."""
        frames = {int(size): bytes.fromhex(frame) for size, frame in document["frames"].items()}
        return cls(**{**document, "frames": frames})

    def to_json(self) -> dict[str, object]:
        """Return the template as data for JSON."""
        return {
            "frames": {str(size): frame.hex() for size, frame in self.frames.items()},
            "ports_at": self.ports_at,
            "sequence_at": self.sequence_at,
            "time_at": self.time_at,
        }


def build_frame(traffic: Traffic, frame_size: int | None = None) -> bytes:
    """Return a frame of `traffic` without FCS, `frame_size` − 4 bytes, as in FrameTemplate.

    `frame_size` defaults to the size of the traffic; for a mix of sizes it is required.
    """
    return bytes(_packet(traffic, only_size(traffic.frame_size) if frame_size is None else frame_size))


def import_scapy() -> tuple[Any, ...]:
    """Return scapy's Ether, IP, UDP and Raw. The first call takes a moment: make it before a trial starts."""
    logging.getLogger("scapy").setLevel(logging.ERROR)
    from scapy.layers.inet import IP, UDP  # not installed on the hosts of workers
    from scapy.layers.l2 import Ether
    from scapy.packet import Raw

    return Ether, IP, UDP, Raw


def _packet(traffic: Traffic, frame_size: int) -> Any:  # noqa: ANN401 - scapy has no types
    """Return scapy's packet. The UDP checksum is 0, which means none (RFC 768), as in pktgen."""
    Ether, IP, UDP, Raw = import_scapy()  # noqa: N806 - classes
    source, destination = next(flow_pairs(traffic.flows, traffic.seed))
    headers = (
        Ether(src=traffic.src_mac, dst=traffic.dst_mac)
        / IP(src=traffic.src_ip, dst=traffic.dst_ip, id=0)
        / UDP(sport=source, dport=destination, chksum=0)
    )
    payload_bytes = frame_size - FCS_BYTES - len(headers)
    return headers / Raw(PKTGEN_MAGIC.to_bytes(4, "big").ljust(payload_bytes, b"\0"))


def flow_pairs(flows: int, seed: int) -> Iterator[tuple[int, int]]:
    """Yield the UDP source and destination port of each flow, fixed by the seed.

    Both ports are drawn pseudo-randomly from 1024–65535 (RFC 4814, section 4), independently of each
    other; no two flows share a pair. A single flow uses port 9 for both, as pktgen does.
    """
    if flows == 1:
        yield _DISCARD_PORT, _DISCARD_PORT
        return
    draw = random.Random(seed)
    drawn: set[tuple[int, int]] = set()
    while len(drawn) < flows:
        pair = draw.choice(_FLOW_PORTS), draw.choice(_FLOW_PORTS)
        if pair not in drawn:
            drawn.add(pair)
            yield pair


Ports = npt.NDArray[np.uint16]
Buffer = npt.NDArray[np.uint8]


@lru_cache(maxsize=4)
def flow_ports(flows: int, seed: int) -> Ports:
    """Return the ports of flow_pairs() as an array: shape (flows, 2), read-only."""
    ports = np.array(list(flow_pairs(flows, seed)), dtype=np.uint16)
    ports.flags.writeable = False
    return ports


class FrameBlock:
    """A block of `capacity` frames in one buffer; each stamp renumbers some consecutive rows.

    `buffer` has one frame per row, in shape (rows, bytes of the largest frame without FCS). Frame r is the first
    `lengths[r]` bytes of row r. All frames have one size, or row r has size number r of a mix. A mix needs more rows
    than `capacity`, so that `capacity` consecutive rows exist from any position of its genome.
    """

    def __init__(self, traffic: Traffic, capacity: int, template: FrameTemplate | None = None) -> None:
        """`template` is the one that the worker received; None builds it here, which needs scapy on this host."""
        template = template or FrameTemplate.of(traffic)
        genome = genome_of(traffic.frame_size)
        rows = capacity + len(genome) - 1
        largest = max(genome) - FCS_BYTES
        padded = {size: np.frombuffer(frame.ljust(largest, b"\0"), np.uint8) for size, frame in template.frames.items()}
        self._repeats = len(genome)
        self.buffer: Buffer = np.array([padded[genome[row % len(genome)]] for row in range(rows)])
        self.lengths = [genome[row % len(genome)] - FCS_BYTES for row in range(rows)]
        self._offsets = np.arange(capacity, dtype=np.uint32)
        # Both ports of a flow, and seconds and microseconds of the time, are written as one word each.
        self._ports = self._words(template.ports_at, ">u4")
        self._sequence = self._words(template.sequence_at, ">u4")
        self._time = self._words(template.time_at, ">u8")
        self._flow_words = flow_ports(traffic.flows, traffic.seed).astype(">u2").view(">u4")[:, 0]

    def stamp(self, first: int, count: int, time_ns: int) -> int:
        """Number and stamp `count` rows from frame `first`, sent at `time_ns` (CLOCK_REALTIME); return the first row.

        Frame i belongs to flow i mod flows. The sequence wraps at 2³², as pktgen's does.
        """
        row = first % self._repeats
        rows = slice(row, row + count)
        self._sequence[rows] = self._offsets[:count] + np.uint32(first & 0xFFFFFFFF)
        seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
        self._time[rows] = seconds << 32 | nanoseconds // 1_000
        flows = len(self._flow_words)
        if flows > 1:
            self._ports[rows] = self._flow_words[(first % flows + self._offsets[:count]) % flows]
        return row

    def _words(self, offset: int, dtype: str) -> npt.NDArray[np.unsignedinteger]:
        """Return the word at `offset` of every frame, as a view of the buffer."""
        return self.buffer[:, offset : offset + np.dtype(dtype).itemsize].view(dtype)[:, 0]

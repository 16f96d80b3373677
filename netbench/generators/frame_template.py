"""Templates of test frames: scapy builds them once per trial in the controller, and workers vary copies of them.

The template is Ethernet II, IPv4, UDP, and pktgen's header as payload (magic, sequence, seconds, microseconds, each
32 bits and big endian: `struct pktgen_hdr` in the kernel's net/core/pktgen.c), then zeros. The smallest frame has
exactly enough room.
"""

import logging
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from netbench.model.frame_size import FCS_BYTES
from netbench.model.traffic import PKTGEN_MAGIC, Traffic

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
        packets = {size: _packet(traffic, size) for size in traffic.frame_size.sizes}
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

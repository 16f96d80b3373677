"""Captures of TCP and UDP conversations with a known truth, whose frames scapy builds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from netbench.capture.frames import FrameBatch
from netbench.capture.pcap import PcapReader
from tests.unit.capture_files import START_NS, Frame, cut, pcap

CLIENT, SERVER = "198.18.0.1", "198.18.0.2"
CLIENT_6, SERVER_6 = "2001:2::1", "2001:2::2"
PORT, CLIENT_PORT = 8080, 40_000
MSS = 1000
MS = 1_000_000
Wrap = Callable[[Any], Any]


@dataclass
class Conversation:
    """One TCP connection, written segment by segment; sequence numbers are offsets in each byte stream.

    Times are in ns since the start of the capture, and advance by `step_ns` with each segment.
    """

    port: int = CLIENT_PORT
    isn: tuple[int, int] = (1000, 5000)
    version: int = 4
    timestamps: bool = False
    mss: tuple[int, int] = (MSS, MSS)
    now_ns: int = 0
    step_ns: int = MS
    wrap: Wrap = field(default=lambda packet: packet)
    frames: list[Frame] = field(default_factory=list)

    def segment(
        self,
        side: str,
        at: int = 0,
        size: int = 0,
        *,
        ack: int | None = None,
        flags: str = "A",
        options: Sequence[Any] = (),
        lengths: int | None = None,
        window: int = 1000,
    ) -> "Conversation":
        """Add `size` bytes at offset `at` of the stream of side "c" or "s"; `lengths` replaces the IP length."""
        from scapy.layers.inet import IP, TCP
        from scapy.layers.inet6 import IPv6
        from scapy.layers.l2 import Ether

        mine = "cs".index(side)
        ports = (self.port, PORT) if side == "c" else (PORT, self.port)
        addresses = ((CLIENT, SERVER), (CLIENT_6, SERVER_6))[self.version == 6]
        source, destination = addresses if side == "c" else addresses[::-1]
        first = 0 if "S" in flags else 1
        more = [("Timestamp", (1, 1))] if self.timestamps else []
        header = TCP(
            sport=ports[0],
            dport=ports[1],
            seq=(self.isn[mine] + first + at) % 2**32,
            ack=(self.isn[1 - mine] + 1 + (ack or 0)) % 2**32 if "A" in flags else 0,
            flags=flags,
            window=window,
            options=[*options, *more],
        )
        network: Any = IP if self.version == 4 else IPv6
        packet = network(src=source, dst=destination) / header / bytes(min(size, 300))
        built = network(bytes(packet))
        total = len(built) - min(size, 300) + size
        if self.version == 4:
            built.len = total if lengths is None else lengths
        else:
            built.plen = total - 40 if lengths is None else lengths
        frame = bytes(self.wrap(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / built))
        original = len(frame) - min(size, 300) + size
        self.frames.append(Frame(frame, START_NS + self.now_ns, original))
        self.now_ns += self.step_ns
        return self

    def opened(self) -> "Conversation":
        """Add the handshake."""
        self.syn().syn_ack()
        return self.segment("c")

    def syn(self) -> "Conversation":
        return self.segment("c", flags="S", options=[("MSS", self.mss[0])])

    def syn_ack(self) -> "Conversation":
        return self.segment("s", flags="SA", options=[("MSS", self.mss[1])])

    def closed(self, sent: int = 0, received: int = 0) -> "Conversation":
        """Add a FIN of each side, after this many bytes of the client and the server."""
        self.segment("c", sent, flags="FA", ack=received)
        self.segment("s", received, flags="FA", ack=sent + 1)
        return self.segment("c", sent + 1, ack=received + 1)

    def wait(self, ns: int) -> "Conversation":
        self.now_ns += ns
        return self


def datagram(
    side: str,
    at_ms: float,
    payload: bytes,
    *,
    size: int = 0,
    version: int = 4,
    port: int = CLIENT_PORT,
    fragment: int | None = None,
    number: int = 0,
) -> list[Frame]:
    """The frames of a datagram with `size` bytes of payload, which begins with `payload`.

    With `fragment`, it is cut into fragments of this many bytes with the identification `number`.
    """
    from scapy.layers.inet import IP, UDP
    from scapy.layers.inet import fragment as cut_4
    from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, fragment6
    from scapy.layers.l2 import Ether

    ports = (port, PORT) if side == "c" else (PORT, port)
    addresses = ((CLIENT, SERVER), (CLIENT_6, SERVER_6))[version == 6]
    source, destination = addresses if side == "c" else addresses[::-1]
    segment = UDP(sport=ports[0], dport=ports[1]) / payload.ljust(size, b"\0")
    if version == 4:
        packet: Any = IP(src=source, dst=destination, id=number) / segment
        packets: list[Any] = cut_4(packet, fragsize=fragment) if fragment else [packet]
    elif fragment:
        extension = IPv6ExtHdrFragment(id=number)
        packets = fragment6(IPv6(src=source, dst=destination) / extension / segment, fragment + 48)
    else:
        packets = [IPv6(src=source, dst=destination) / segment]
    ether = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    time_ns = START_NS + int(at_ms * MS)
    return [Frame(bytes(ether / packet), time_ns + index) for index, packet in enumerate(packets)]


def written(path: Any, frames: Sequence[Frame], snap: int = 128, link: int = 1) -> Any:
    """Write the frames in the order of their times, cut as tcpdump cuts them."""
    ordered = sorted(frames, key=lambda frame: frame.time_ns)
    kept = [cut(frame, min(snap, len(frame.data))) for frame in ordered]
    path.write_bytes(pcap(kept, nanoseconds=True, snap=snap, link=link))
    return path


def in_batches_of(patch: Any, count: int) -> None:
    """Let readers of pcap files yield batches of at most `count` frames; `patch` is pytest's monkeypatch."""
    whole = PcapReader.batches

    def batches(reader: PcapReader) -> Iterator[FrameBatch]:
        for batch in whole(reader):
            numbers = np.arange(len(batch.times_ns)) // count
            for number in range(int(numbers[-1]) + 1):
                yield batch.only(numbers == number)

    patch.setattr(PcapReader, "batches", batches)


def without(frames: Sequence[Frame], *dropped: int) -> list[Frame]:
    """The frames except those at these indices."""
    return [frame for index, frame in enumerate(frames) if index not in {i % len(frames) for i in dropped}]

"""What the capture of a link proves about UDP datagrams: how many, their bytes, and the numbers in their payloads."""

from array import array
from dataclasses import dataclass, field

from netbench.model.flow_witness import CaptureQuality, FlowDirection


@dataclass(frozen=True)
class PayloadKey:
    """The number that a tool writes into each datagram: `size` bytes from byte `offset` of the payload, big-endian.

    Each datagram's number is one more than that before it. `first` is that of the first one, None if it varies.
    """

    offset: int
    size: int
    first: int | None = None

    def __post_init__(self) -> None:
        if self.offset < 0 or self.size not in (1, 2, 4, 8):
            raise ValueError(f"a number of {self.size} bytes at {self.offset}: use 1, 2, 4 or 8 bytes at 0 or more")


# sockperf's MsgHeader (src/message.h) begins with a 64-bit number. iperf3 writes seconds, microseconds and the packet
# count of 32 bits (src/iperf_udp.c), and counts from 1.
SOCKPERF_KEY = PayloadKey(0, 8)
IPERF3_KEY = PayloadKey(8, 4, 1)


@dataclass(frozen=True)
class DatagramTotals:
    """The UDP datagrams of all sessions in one direction.

    `frames` counts captured frames, with `fragments`: IP fragments after the first. A frame of GSO or GRO counts as
    several datagrams. `payload_bytes` are those of the datagrams, without UDP headers, and `incomplete_datagrams` lack
    fragments. `first_ns` and `last_ns` are the times of the first and last datagram, since 1970.

    From the numbers in payloads, each None without a key: `lost_datagrams` below the highest number, from the first one
    of the tool or, if that is unknown, from the lowest captured one; these include datagrams that the capturing host
    dropped. `duplicated_datagrams` repeat a number. `reordered_datagrams` are those with a lower number than one before
    (RFC 4737, section 3.3), without duplicates. `unnumbered_datagrams` are too short for a number, or cut before it.
    """

    frames: int = 0
    fragments: int = 0
    datagrams: int = 0
    payload_bytes: int = 0
    incomplete_datagrams: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    lost_datagrams: int | None = None
    duplicated_datagrams: int | None = None
    reordered_datagrams: int | None = None
    unnumbered_datagrams: int | None = None


@dataclass(frozen=True)
class UdpSessions:
    """The pairs of ports in the order of their first datagrams, in columns with one element each."""

    client_port: "array[int]" = field(default_factory=lambda: array("H"))
    server_port: "array[int]" = field(default_factory=lambda: array("H"))
    to_server_datagrams: "array[int]" = field(default_factory=lambda: array("q"))
    to_client_datagrams: "array[int]" = field(default_factory=lambda: array("q"))
    to_server_bytes: "array[int]" = field(default_factory=lambda: array("q"))
    to_client_bytes: "array[int]" = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.client_port)


@dataclass(frozen=True)
class WireDatagrams:
    """The UDP traffic between a client and a server on one link."""

    to_server: DatagramTotals
    to_client: DatagramTotals
    sessions: UdpSessions
    quality: CaptureQuality

    def totals(self, direction: FlowDirection) -> DatagramTotals:
        """Return the totals of a direction."""
        return self.to_server if direction is FlowDirection.TO_SERVER else self.to_client

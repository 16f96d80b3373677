"""What captures of two links prove about the flows of a tool: bytes, segments, handshakes; and where they differ.

Times are nanoseconds by the clock of the capturing host. Counts are integers; an unknown value is None.
"""

from array import array
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from ipaddress import ip_address

UNKNOWN_NS = -1  # in columns of times
BYTES_TOLERANCE = 0.001  # part of the wire's bytes by which a tool may differ
# Most that the rank of a percentile may be shifted by, if over one: parts of the requests, and of those beyond it.
RANK_TOLERANCE, RANK_TOLERANCE_BEYOND = 0.001, 0.1
_FEW_TIMES = 20  # of fewer, the next one may be any other time
PERCENTILE_TOLERANCE, PERCENTILE_FLOOR_NS = 0.01, 50_000  # part of the wire's percentile, plus nanoseconds


@dataclass(frozen=True)
class FlowEndpoints:
    """The client and the server of a tool's flows as one link sees them, and the server's ports; none means all.

    ValueError for an invalid address or port, or addresses of two IP versions.
    """

    client: str
    server: str
    ports: frozenset[int]

    def __post_init__(self) -> None:
        versions = {ip_address(address).version for address in (self.client, self.server)}
        if len(versions) > 1:
            raise ValueError(f"client {self.client} and server {self.server}: use addresses of the same IP version")
        if self.client == self.server and not self.ports:
            raise ValueError(
                f"client and server are both {self.client}: name the server's ports to separate directions"
            )
        for port in self.ports:
            if not 0 < port < 1 << 16:
                raise ValueError(f"port {port}: use one between 1 and 65535")

    @classmethod
    def of(cls, client: str, server: str, ports: Collection[int]) -> "FlowEndpoints":
        """Return the endpoints with these addresses and the server's ports."""
        return cls(client, server, frozenset(ports))


class FlowDirection(IntEnum):
    """The direction of a segment or datagram."""

    TO_SERVER = 0
    TO_CLIENT = 1


@dataclass(frozen=True)
class TcpTotals:
    """The TCP segments of all connections in one direction.

    `frames` counts captured frames, of any payload. `segments` counts the segments as on the wire: a frame with a
    payload of n bytes counts as ceil(n / MSS) of them, because GSO and GRO pass many segments as one frame. MSS is the
    smaller option of both SYNs minus the TCP options of the frame (RFC 9293, section 3.7.1, and RFC 6691).

    `payload_bytes` includes retransmissions. `stream_bytes` counts each byte of the byte streams once. The frames of a
    link carry a byte once more for each retransmission: `retransmitted_bytes` and `retransmitted_segments`, without
    SYNs and FINs, whose repetitions are `retransmitted_syns` and `retransmitted_fins`. `late_bytes` and `late_segments`
    arrived below the highest byte seen but are new: they were reordered, or lost ahead of this link and retransmitted.
    `uncaptured_bytes` were acknowledged but are not in the capture: the capturing host dropped their frames.
    `first_ns` and `last_ns` are the times of the first and last frame with payload, since 1970.
    """

    frames: int = 0
    segments: int = 0
    payload_bytes: int = 0
    stream_bytes: int = 0
    retransmitted_bytes: int = 0
    retransmitted_segments: int = 0
    retransmitted_syns: int = 0
    retransmitted_fins: int = 0
    late_bytes: int = 0
    late_segments: int = 0
    uncaptured_bytes: int = 0
    first_ns: int | None = None
    last_ns: int | None = None

    @property
    def delivered_bytes(self) -> int:
        """The bytes of the byte streams, including those that the capturing host dropped."""
        return self.stream_bytes + self.uncaptured_bytes

    @property
    def retransmissions(self) -> int:
        """The retransmitted segments, SYNs and FINs, as the kernel counts them (TcpRetransSegs of nstat(8))."""
        return self.retransmitted_segments + self.retransmitted_syns + self.retransmitted_fins


class ConnectionEnd(IntEnum):
    """The state of a connection at the end of the capture."""

    OPEN = 0
    CLOSED = 1  # a FIN in each direction
    RESET_BY_SERVER = 2  # an RST of the server after its SYN/ACK
    RESET_BY_CLIENT = 3
    REFUSED = 4  # an RST in response to the SYN
    UNANSWERED = 5  # no response to the SYN


@dataclass(frozen=True)
class Connections:
    """The connections in the order of their first segments, in columns with one element each.

    `began_ns` is the time of the first segment since the first frame of the capture. `to_syn_ack_ns` is the time from
    SYN to SYN/ACK, `to_ack_ns` from there to the client's ACK, both UNKNOWN_NS if not captured. They are ambiguous if
    the SYN or the SYN/ACK was retransmitted (Karn's rule, RFC 6298, section 3). `ends` has values of ConnectionEnd.
    """

    client_port: "array[int]" = field(default_factory=lambda: array("H"))
    server_port: "array[int]" = field(default_factory=lambda: array("H"))
    began_ns: "array[int]" = field(default_factory=lambda: array("q"))
    to_syn_ack_ns: "array[int]" = field(default_factory=lambda: array("q"))
    to_ack_ns: "array[int]" = field(default_factory=lambda: array("q"))
    is_ambiguous: "array[int]" = field(default_factory=lambda: array("b"))
    ends: "array[int]" = field(default_factory=lambda: array("b"))
    to_server_bytes: "array[int]" = field(default_factory=lambda: array("q"))
    to_client_bytes: "array[int]" = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.began_ns)


@dataclass(frozen=True)
class CaptureQuality:
    """The state of a capture: what limits the conclusions from it.

    `first_ns` is the time of its first frame since 1970, None for an empty capture; `frames` counts all its frames.
    `other_frames` belong to other flows. `unread` counts frames that may belong to the flows but are not decoded, by
    reason. `leftover_bytes` follow the last complete record: the writer was ended within one. `damage` describes the
    first damage of the file, empty if there is none.
    """

    first_ns: int | None = None
    frames: int = 0
    other_frames: int = 0
    unread: Mapping[str, int] = field(default_factory=dict)
    leftover_bytes: int = 0
    damage: str = ""


@dataclass(frozen=True)
class WireTraffic:
    """The TCP traffic between a client and a server on one link.

    `opened` counts complete handshakes, `without_handshake` connections whose SYN was not captured; their MSS is
    assumed to be that of Ethernet.
    """

    to_server: TcpTotals
    to_client: TcpTotals
    connections: Connections
    opened: int
    without_handshake: int
    quality: CaptureQuality

    def totals(self, direction: FlowDirection) -> TcpTotals:
        """Return the totals of a direction."""
        return self.to_server if direction is FlowDirection.TO_SERVER else self.to_client


@dataclass(frozen=True)
class FlowFigures:
    """Figures of the same flows from a tool or from the wire: bytes in each direction, and percentiles of times.

    `percentiles_ns` maps percent to nanoseconds. None, or a missing percentile, is unknown.
    """

    to_server_bytes: int | None = None
    to_client_bytes: int | None = None
    percentiles_ns: Mapping[float, float] = field(default_factory=dict)


class DisagreementKind(Enum):
    """The figure in which a tool and the wire disagree."""

    BYTES_TO_SERVER = "bytes to the server"
    BYTES_TO_CLIENT = "bytes to the client"
    PERCENTILE = "percentile"


@dataclass(frozen=True)
class Disagreement:
    """A figure in which a tool and the wire differ by more than `allowed`: bytes, or ns of the percentile `percent`."""

    kind: DisagreementKind
    tool: float
    wire: float
    allowed: float
    percent: float | None = None

    def __str__(self) -> str:
        name = self.kind.value if self.percent is None else f"p{self.percent:g}"
        unit, scale = ("bytes", 1) if self.percent is None else ("µs", 1000)
        tool, wire, allowed = (f"{value / scale:,.0f}" for value in (self.tool, self.wire, self.allowed))
        return f"{name}: {tool} {unit} by the tool, {wire} {unit} on the wire (allowed difference: {allowed} {unit})"


def rank_shift(of_tool: int, on_wire: int, rank: int) -> int:
    """Return by how much the rank of a percentile may be shifted, given the numbers of requests.

    By as many as the tool has more or fewer of them, at least 1 and at most 0.1 % of the requests, and 10 % of those
    beyond the percentile. Of fewer than 20 requests, at most by 1, if the tool has more or fewer.
    """
    difference = abs(of_tool - on_wire)
    if on_wire < _FEW_TIMES:
        return min(difference, 1)
    most = min(RANK_TOLERANCE * on_wire, RANK_TOLERANCE_BEYOND * (on_wire - rank))
    return max(1, min(difference, int(most)))


def disagreement(*, tool: FlowFigures, wire: FlowFigures) -> tuple[Disagreement, ...]:
    """Return the figures in which they differ: by more than 0.1 % of bytes, or 1 % + 50 µs of a percentile.

    The tolerances are parts of the wire's figure. Figures that either does not have are not compared.
    """
    found = []
    for kind, by_tool, by_wire in (
        (DisagreementKind.BYTES_TO_SERVER, tool.to_server_bytes, wire.to_server_bytes),
        (DisagreementKind.BYTES_TO_CLIENT, tool.to_client_bytes, wire.to_client_bytes),
    ):
        if by_tool is not None and by_wire is not None:
            allowed = BYTES_TOLERANCE * by_wire
            if abs(by_tool - by_wire) > allowed:
                found.append(Disagreement(kind, by_tool, by_wire, allowed))
    for percent in sorted(tool.percentiles_ns.keys() & wire.percentiles_ns.keys()):
        by_tool_ns, by_wire_ns = tool.percentiles_ns[percent], wire.percentiles_ns[percent]
        allowed = PERCENTILE_TOLERANCE * by_wire_ns + PERCENTILE_FLOOR_NS
        if abs(by_tool_ns - by_wire_ns) > allowed:
            found.append(Disagreement(DisagreementKind.PERCENTILE, by_tool_ns, by_wire_ns, allowed, percent))
    return tuple(found)

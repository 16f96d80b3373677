"""The result of the flows between one client and its server in a trial, as the tool reported it."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import accumulate

# The places of taps: beside the client; and on the server's side beside the guest, at its host (where a process ends
# the connections of clients), or beside a server outside the guest.
CLIENT, GUEST, HOST, OUTSIDE = "client", "guest", "host", "server"
SERVERS = (GUEST, HOST, OUTSIDE)


@dataclass(frozen=True, slots=True)
class Latencies:
    """Times of one kind in ns, by steps of a logarithmic scale that are accurate to 0.05 % (capture/distribution.py).

    `kind` is `response` (from the intended start; a timeout counts at its deadline), `service` (from the actual start),
    `rtt` (request to reply) or `connect` (time to connect). `steps` has the middle of each step and the number of times
    in it, ascending. `total_ns` is their sum; all else follows from these.
    """

    kind: str
    steps: tuple[tuple[int, int], ...]
    total_ns: int
    smallest_ns: int
    largest_ns: int

    @property
    def count(self) -> int:
        """The number of times."""
        return sum(number for _, number in self.steps)

    @property
    def mean_ns(self) -> float:
        """Their mean."""
        return self.total_ns / self.count

    def percentile_ns(self, per_hundred_thousand: int) -> int:
        """Return the least time that so many of 100,000 times do not exceed (nearest rank), accurate to 0.05 %."""
        return self.times_at_ns([self.rank_of(per_hundred_thousand)])[0]

    def rank_of(self, per_hundred_thousand: int) -> int:
        """Return the rank of the least time that so many of 100,000 times do not exceed."""
        return -(-per_hundred_thousand * self.count // 100_000)

    def times_at_ns(self, ranks: Iterable[int]) -> list[int]:
        """Return the times at these ranks in ascending order, from 1 (the smallest time) to `count` (the largest)."""
        up_to = list(accumulate(number for _, number in self.steps))
        middles = (self.steps[bisect_left(up_to, rank)][0] for rank in ranks)
        return [min(max(middle, self.smallest_ns), self.largest_ns) for middle in middles]

    @classmethod
    def merged(cls, parts: "Iterable[Latencies]") -> "Latencies | None":
        """Return the distribution of all times of several distributions of one kind; None for no times."""
        known = [part for part in parts if part.steps]
        if not known:
            return None
        counts: Counter[int] = Counter()
        for part in known:
            counts.update(dict(part.steps))
        return cls(
            known[0].kind,
            tuple(sorted(counts.items())),
            sum(part.total_ns for part in known),
            min(part.smallest_ns for part in known),
            max(part.largest_ns for part in known),
        )


def times_of_kind(latencies: "Iterable[Latencies]", kind: str) -> Latencies | None:
    """Return the times of a kind; None without any."""
    return next((times for times in latencies if times.kind == kind), None)


@dataclass(frozen=True, slots=True)
class WireFigures:
    """The figures of one stream's flows that a tap at `place` captured; None where they are unknown.

    Bytes are payload that was delivered, each byte of a TCP stream once. Segments are as on the wire: datagrams of UDP.
    `dropped_frames` were lost by the capture, `uncaptured_bytes` were acknowledged and are not in it. The `latencies`
    are of the kinds `exchange` (first byte of a request to last byte of its response) and `handshake`. If the tap
    followed one of `one_of` connections only, there are no totals. `began_ns` is the time of the first packet since
    1970, by the clock of the tap's machine. `error` is the reason why the capture is useless or damaged; empty
    otherwise.
    """

    place: str
    frames: int = 0
    dropped_frames: int | None = None
    to_server_bytes: int | None = None
    to_client_bytes: int | None = None
    to_server_segments: int | None = None
    to_client_segments: int | None = None
    retransmissions: int | None = None
    uncaptured_bytes: int | None = None
    connections: int | None = None
    latencies: tuple[Latencies, ...] = ()
    began_ns: int | None = None
    one_of: int = 1
    error: str = ""

    @property
    def without_totals(self) -> "WireFigures":
        """The same without the bytes and segments of all connections together."""
        return replace(
            self,
            to_server_bytes=None,
            to_client_bytes=None,
            to_server_segments=None,
            to_client_segments=None,
            retransmissions=None,
            uncaptured_bytes=None,
        )


@dataclass(frozen=True, slots=True)
class FlowResult:
    """The figures of a tool about one stream's flows, over `duration_s` seconds; None where the tool has no figure.

    Bytes are payload that arrived: `to_server_bytes` from the client, `to_client_bytes` from the server. Operations are
    requests, messages, connections or datagrams: `intended` are those that the load requires, `started` those sent,
    `completed` those that succeeded; `errors` are the others by kind. `completed_in_time` are those that succeeded
    within the `duration_s`, whenever they were due: fewer than intended if the server falls behind.
    `run_to_server_bytes` and `run_to_client_bytes` are the payload of the whole run, with the warm-up, which the wire
    shows too. `retransmissions` are TCP segments
    that the sender's kernel sent again. `lost_datagrams` are UDP datagrams of `started` that did not arrive.
    `socket_drops` are those that the receiver's kernel dropped because a socket of its host was full.
    `client_late` is how late the client itself started operations, although a connection was free (actual - intended
    start): an error of `response`. `client_cpu_share` is the client's use of one CPU; near 1, the client is the limit.
    `error` is the reason why there is no result; empty for a result.
    """

    stream: str
    workload: str  # its name
    tool: str = ""  # program and version
    duration_s: float = 0.0
    to_server_bytes: int | None = None
    to_client_bytes: int | None = None
    run_to_server_bytes: int | None = None
    run_to_client_bytes: int | None = None
    intended: int | None = None
    started: int | None = None
    completed: int | None = None
    completed_in_time: int | None = None
    errors: dict[str, int] = field(default_factory=dict)
    retransmissions: int | None = None
    lost_datagrams: int | None = None
    socket_drops: int | None = None
    latencies: tuple[Latencies, ...] = ()
    client_late: Latencies | None = None  # of kind `late`
    client_cpu_share: float | None = None
    error: str = ""
    wire: tuple[WireFigures, ...] = ()

    @property
    def to_server_bps(self) -> float | None:
        """Payload from client to server, in bit/s."""
        return self._bps(self.to_server_bytes)

    @property
    def to_client_bps(self) -> float | None:
        """Payload from server to client, in bit/s."""
        return self._bps(self.to_client_bytes)

    @property
    def completed_per_s(self) -> float | None:
        """Operations that succeeded within the measured time, per second; under overload, others succeed later."""
        number = self.completed if self.completed_in_time is None else self.completed_in_time
        return None if number is None or not self.duration_s else number / self.duration_s

    def _bps(self, number: int | None) -> float | None:
        """Return payload in bit/s; of operations, the part of those that succeeded within the measured time."""
        if number is None or not self.duration_s:
            return None
        is_known = self.completed_in_time is not None and self.completed
        part = (self.completed_in_time or 0) / (self.completed or 1) if is_known else 1.0
        return 8 * number * part / self.duration_s

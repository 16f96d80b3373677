"""The sources and sinks of one trial: their start and end, and the frames that they sent and received."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from netbench.errors import TestbedError
from netbench.hosts.clock import Clock
from netbench.model.distributions import SAME_CLOCK, ClockDifference
from netbench.model.frame_template import ExpectedHeaders
from netbench.model.packet import LayersChange
from netbench.model.paths import StreamPath
from netbench.model.profile import Profile
from netbench.model.received import Received
from netbench.model.selftest_record import Ceilings
from netbench.model.traffic import NOTHING_SENT, Sent, Stamps, Traffic
from netbench.packets.build import expected_headers
from netbench.packets.other_streams import apart_from, stream_macs
from netbench.sinks.base import Incoming, shortage
from netbench.trial.setup import ClockReader, Endpoints, TrialGuest, of_this_machine

# A start message can take longer than the measured round trip, so more time is reserved.
_FAR_NS, _ROUND_TRIPS = 30_000_000, 4


def prepare(endpoints: Sequence[Endpoints], traffic: Mapping[str, Traffic]) -> dict[str, Sent]:
    """Prepare all sources; return for each source that cannot be prepared a Sent without frames and with the error."""
    unready = {}
    for ends in endpoints:
        try:
            ends.source.prepare(traffic[ends.path.name])
        except TestbedError as error:
            unready[ends.path.name] = replace(NOTHING_SENT, error=str(error))
    return unready


def send(
    clock: Clock,
    guests: Sequence[TrialGuest],
    settle_s: float = 0.0,
    meanwhile: Callable[[], None] | None = None,
) -> dict[str, Sent]:
    """Send, and return the frames sent by each source, by stream.

    The neighbours' sources and clients start first and send during the settling time. `meanwhile` is called once all
    have started.
    """
    victim, *neighbours = guests
    start_sources([ends for guest in neighbours for ends in guest.endpoints], clock)
    for guest in neighbours:
        if guest.flows:
            guest.flows.start_clients()
    clock.sleep(settle_s)
    start_sources(victim.endpoints, clock)
    if victim.flows:
        victim.flows.start_clients()
    if meanwhile is not None:
        meanwhile()
    # A source ends by itself; this limit only catches a source that hangs.
    longest_s = max((traffic.duration_s for guest in guests for traffic in guest.traffic.values()), default=0.0)
    limit_s = 5 * longest_s + 10
    return {ends.path.name: ends.source.wait(limit_s) for guest in guests for ends in guest.endpoints}


def start_sources(endpoints: Sequence[Endpoints], clock: Clock) -> None:
    """Start all these sources at the same time, as soon as all can be ready."""
    clocks = [ends.source_clock() for ends in endpoints]
    ahead_ns = [
        ends.source.start_ahead_ns + _far_ns(source_clock) for ends, source_clock in zip(endpoints, clocks, strict=True)
    ]
    at_ns = clock.monotonic_ns() + max(ahead_ns, default=0)
    for ends, source_clock in zip(endpoints, clocks, strict=True):
        ends.source.start(at_ns + source_clock.middle_ns)


def _far_ns(clock: ClockDifference) -> int:
    """Return how much earlier a source must be started than one on this machine, by its round-trip time, in ns."""
    return 0 if clock == SAME_CLOCK else _FAR_NS + _ROUND_TRIPS * (clock.most_ns - clock.least_ns)


_ARM_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Recording:
    """Where sinks write captures, with `snap_length` bytes of each frame, and whether the captures are kept.

    `reference_holds` are the rates that the default sink sustained when the testbed was tested.
    """

    directory: Path
    keep: bool = False
    snap_length: int = 64
    reference_holds: Ceilings = field(default_factory=Ceilings)

    @classmethod
    def as_wanted(cls, profile: Profile, directory: Path) -> "Recording":
        """Return the recording that a profile specifies."""
        return cls(directory, profile.keep_captures != "none", profile.snap_length)

    def incoming(
        self,
        path: StreamPath,
        traffic: Traffic,
        stamps: Stamps,
        trial: str,
        from_ns: int = 0,
        sinks: int = 1,
        headers: ExpectedHeaders | None = None,
    ) -> Incoming:
        """Return the frames that the sink of a stream is to receive in a trial; parameters are as in Incoming."""
        record = self.directory / f"trial-{trial}-{path.name}"
        held = self.reference_holds.fps(sinks, traffic.frame_size)
        return Incoming(path, traffic, stamps, from_ns, record, self.keep, self.snap_length, sinks, held, headers)


class Receiving:
    """The sinks of some endpoints, in one trial that began at `started_ns` (CLOCK_REALTIME of this machine).

    Order of calls: arm(); armed(); stop(); then received() for each stream.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoints],
        traffic: Mapping[str, Traffic],
        recording: Recording,
        trial: int,
        started_ns: int,
        realtime: ClockReader = of_this_machine,
        at_sink: Mapping[str, LayersChange] | None = None,
    ) -> None:
        """`traffic` is by stream; `trial` is the trial's index. TestbedError if the machine of a source is gone.

        `at_sink` is what the UUTs make of the headers of described packets, by stream, as in Ready.
        """
        headers = _expected(endpoints, traffic, at_sink or {})
        self._sinks = {ends.path.name: ends.sink for ends in endpoints}
        machines = dict.fromkeys(ends.path.source.machine for ends in endpoints)
        began_ns = {machine: _by_clock(realtime(machine), started_ns) for machine in machines}
        self._incoming = {
            name: recording.incoming(
                ends.path,
                traffic[name],
                ends.source.stamps(traffic[name]),
                f"{trial:06}",
                began_ns[ends.path.source.machine],
                len(endpoints),
                headers[name],
            )
            for name, ends in ((stream.path.name, stream) for stream in endpoints)
        }
        self._shortage = ""

    @property
    def headers(self) -> dict[str, ExpectedHeaders | None]:
        """The headers that should arrive of described packets, by stream; None for the plain one."""
        return {name: incoming.headers for name, incoming in self._incoming.items()}

    def arm(self) -> None:
        """Start all sinks without waiting for them, or none of them if the disk has too little space."""
        sizes = {incoming.record: self._sinks[name].writes(incoming) for name, incoming in self._incoming.items()}
        self._shortage = shortage({record: size for record, size in sizes.items() if size})
        if not self._shortage:
            for name, incoming in self._incoming.items():
                self._sinks[name].arm(incoming)

    def armed(self) -> bool:
        """Return True once all sinks receive; False if one does not, and then nothing may be sent."""
        if self._shortage:
            return False
        # Each of them is queried, also after one has failed: none of their answers must be left for the next request.
        receive = [sink.armed(_ARM_LIMIT_S) for sink in self._sinks.values()]
        return all(receive)

    def stop(self, limit_s: float) -> None:
        """Stop all sinks; each may take `limit_s` to save the frames that have arrived."""
        if not self._shortage:
            for sink in self._sinks.values():
                sink.stop(limit_s)

    def received(self, stream: str, sent: Sent) -> Received:
        """Return what the sink of a stream received of the frames that its source sent."""
        if self._shortage:
            return Received(error=self._shortage, no_room=self._shortage)
        return self._sinks[stream].received(sent)


def _expected(
    endpoints: Sequence[Endpoints], traffic: Mapping[str, Traffic], at_sink: Mapping[str, LayersChange]
) -> dict[str, ExpectedHeaders | None]:
    """Return the headers that should arrive at each sink, by stream; None for plain packets, known by their addresses.

    Parameters are as in Receiving.
    """
    found: dict[str, ExpectedHeaders | None] = dict.fromkeys(traffic)
    for ends in endpoints:
        name = ends.path.name
        if traffic[name].packet is not None:
            found[name] = expected_headers(traffic[name], at_sink.get(name), ends.source.own_fields())
    nics = {ends.path.name: (ends.path.source.mac, ends.path.sink.mac) for ends in endpoints}
    macs = {name: stream_macs(traffic[name], found[name], *of_nics) for name, of_nics in nics.items()}
    return {
        name: headers and apart_from(headers, macs[name], [macs[other] for other in macs if other != name])
        for name, headers in found.items()
    }


def _by_clock(difference: ClockDifference | None, at_ns: int) -> int:
    """Return the earliest time of another clock at `at_ns` of our clock; 0 if the difference is unknown."""
    return 0 if difference is None else at_ns + difference.least_ns

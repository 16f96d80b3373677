"""The sinks of one trial, all at once: what they are told to receive, and what they say of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from netbench.model.distributions import ClockDifference
from netbench.model.paths import StreamPath
from netbench.model.profile import Profile
from netbench.model.received import Received
from netbench.model.selftest_record import Ceilings
from netbench.model.traffic import Sent, Stamps, Traffic
from netbench.sinks.base import Incoming, shortage
from netbench.trial.setup import ClockReader, Endpoints, of_this_machine

_ARM_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Recording:
    """Where sinks that write frames down do so, `snap_length` bytes of each, and whether that is kept.

    `reference_holds` is what the default sink held when the testbed was tested.
    """

    directory: Path
    keep: bool = False
    snap_length: int = 64
    reference_holds: Ceilings = field(default_factory=Ceilings)

    @classmethod
    def as_wanted(cls, profile: Profile, directory: Path) -> "Recording":
        """As a profile says."""
        return cls(directory, profile.keep_captures != "none", profile.snap_length)

    def incoming(
        self,
        path: StreamPath,
        traffic: Traffic,
        stamps: Stamps,
        trial: str,
        from_ns: int = 0,
        sinks: int = 1,
    ) -> Incoming:
        """What the sink of a stream is to receive in a trial; the rest as of Incoming."""
        record = self.directory / f"trial-{trial}-{path.name}"
        held = self.reference_holds.fps(sinks, traffic.frame_size)
        return Incoming(path, traffic, stamps, from_ns, record, self.keep, self.snap_length, sinks, held)


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
    ) -> None:
        """`traffic` is by stream; `trial` is the trial's index. TestbedError where a source's machine is gone."""
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
            )
            for name, ends in ((one.path.name, one) for one in endpoints)
        }
        self._shortage = ""

    def arm(self) -> None:
        """Have all sinks begin to receive, or none of them when the disk has too little room; returns at once."""
        sizes = {one.record: self._sinks[name].writes(one) for name, one in self._incoming.items()}
        self._shortage = shortage({record: size for record, size in sizes.items() if size})
        if not self._shortage:
            for name, one in self._incoming.items():
                self._sinks[name].arm(one)

    def armed(self) -> bool:
        """Return True once all of them receive, False when one does not: nothing must be sent then."""
        return not self._shortage and all(sink.armed(_ARM_LIMIT_S) for sink in self._sinks.values())

    def stop(self, limit_s: float) -> None:
        """Stop all, each of which may take `limit_s` to have what has arrived safe."""
        if not self._shortage:
            for sink in self._sinks.values():
                sink.stop(limit_s)

    def received(self, stream: str, sent: Sent) -> Received:
        """What there is of the frames that a source sent."""
        if self._shortage:
            return Received(error=self._shortage, no_room=self._shortage)
        return self._sinks[stream].received(sent)


def _by_clock(difference: ClockDifference | None, at_ns: int) -> int:
    """What another clock showed at the earliest when ours showed `at_ns`; 0 where nobody knows."""
    return 0 if difference is None else at_ns + difference.least_ns

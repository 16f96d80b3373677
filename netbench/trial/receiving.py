"""The sinks of one trial, all at once: what they are told to receive, and what they say of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from netbench.model.paths import StreamPath
from netbench.model.profile import Profile
from netbench.model.traffic import Sent, Stamps, Traffic
from netbench.sinks.base import Incoming, Received
from netbench.sinks.room import shortage
from netbench.trial.setup import Endpoints

_ARM_LIMIT_S = 10.0


def incoming(path: StreamPath, traffic: Traffic, profile: Profile, record: Path) -> Incoming:
    """What the sink of a stream is to receive, as far as a profile tells."""
    keep = profile.keep_captures != "none"
    return Incoming(path, traffic, Stamps(), 0, record, keep, profile.snap_length)


class Receiving:
    """The sinks of some endpoints, in one trial that began at `started_ns` (CLOCK_REALTIME).

    Order of calls: arm(); armed(); stop(); then received() for each stream.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoints],
        traffic: Mapping[str, Traffic],
        profile: Profile,
        records: Mapping[str, Path],
        started_ns: int,
    ) -> None:
        """`traffic`, and the `records` of Incoming, are by stream."""
        self._sinks = {ends.path.name: ends.sink for ends in endpoints}
        self._incoming = {
            ends.path.name: replace(
                incoming(ends.path, traffic[ends.path.name], profile, records[ends.path.name]),
                stamps=ends.source.stamps(traffic[ends.path.name]),
                from_ns=started_ns,
                sinks=len(endpoints),
            )
            for ends in endpoints
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

"""What one trial knows about one stream: what was sent and caught, and how every counter on its path grew."""

from collections.abc import Mapping
from dataclasses import dataclass

from netbench.linux.nics import NicCounters
from netbench.model.paths import StreamPath
from netbench.model.points import INSIDE
from netbench.model.traffic import Sent, Traffic
from netbench.sinks.base import Received
from netbench.trial.growth import growth

UNCOUNTED = "which does not count"
REMOVED = "which was removed meanwhile"
RESET = "whose counter was reset meanwhile"


@dataclass(frozen=True, slots=True)
class Growth:
    """How one counter of a hop grew over a trial, in frames; None when that is not known. `role` as of HopReading.

    `shared` when it counts the frames of other streams of the trial as well; `silent` says why nobody knows how many
    frames the hop has dropped, when it may have dropped some: UNCOUNTED, REMOVED or RESET. One that is `indiscriminate`
    counts whatever comes its way, frames of others than the trial too.
    """

    hop: str
    counter: str
    role: str
    frames: int | None
    shared: bool = False
    silent: str = ""
    indiscriminate: bool = False


@dataclass(frozen=True, slots=True)
class NicDelta:
    """How the counters of one NIC grew over a trial, in frames, and whether its link held.

    `trustworthy` when these are the counters of one NIC that was not reset.
    """

    rx: int
    tx: int
    rx_dropped: int
    tx_dropped: int
    rx_errors: int
    tx_errors: int
    up: bool
    carrier_changes: int
    trustworthy: bool = True

    @classmethod
    def between(cls, before: NicCounters, after: NicCounters) -> "NicDelta":
        """The growth from `before` to `after`."""
        names = ("rx", "tx", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors")
        grown = {name: growth(getattr(before, name), getattr(after, name)) for name in names}
        same_nic = (before.index, before.mac, before.master) == (after.index, after.mac, after.master)
        return cls(
            **{name: frames or 0 for name, frames in grown.items()},
            up=before.up and after.up,
            carrier_changes=after.carrier_changes - before.carrier_changes,
            trustworthy=same_nic and None not in grown.values(),
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything one trial knows about one stream.

    `nics` holds the growth by role (source, ingress, egress, sink); None for a NIC that could not be read.
    `growths` are those of all other counters, along the
    path; `stack` is the hop of the machine that forwards between its NICs, if any.
    `clock_set_ns` is by how much the clock of the captures was set during the trial.
    """

    path: StreamPath
    traffic: Traffic
    sent: Sent
    received: Received
    nics: Mapping[str, NicDelta | None]
    growths: tuple[Growth, ...] = ()
    stack: str = INSIDE
    clock_set_ns: int = 0

    def trusted(self, role: str) -> NicDelta | None:
        """The growth at a NIC of the path, if it can be believed."""
        nic = self.nics.get(role)
        return nic if nic is not None and nic.trustworthy else None

    @property
    def arrived(self) -> int | None:
        """Frames of the stream that the sink counted, further copies included."""
        received = self.received
        return None if received.frames is None else received.frames + (received.duplicates or 0)

    @property
    def dropped_by_sink(self) -> int | None:
        """Frames of ours that the sink itself dropped: at most as many as are missing, and came to its NIC."""
        received, nic = self.received, self.trusted("sink")
        if received.frames is None or self.arrived is None or received.dropped is None:
            return None
        missing = max(0, self.sent.frames - received.frames)
        came = missing if nic is None else max(0, nic.rx - self.arrived)
        return min(received.dropped, missing, came)

    @property
    def extra_at_sink(self) -> int:
        """Frames the sink NIC counted beyond ours: those that the sink did not count, nor say it dropped.

        None that can be told when something between the two may drop frames without counting them.
        """
        nic = self.trusted("sink")
        if (
            nic is None
            or self.arrived is None
            or any(one.silent and one.hop == "sink NIC" and one.role == "dropped" for one in self.growths)
        ):
            return 0
        return max(0, nic.rx - self.arrived - (self.dropped_by_sink or 0))

    @property
    def counters_known(self) -> bool:
        """Whether all NICs of the path could be read and believed."""
        return all(nic is not None and nic.trustworthy for nic in self.nics.values())

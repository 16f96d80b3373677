"""The frame accounts of one stream: what was sent, what arrived, and where the rest died.

Conservation: sent = received + lost at named hops + dropped by the capture. Each hop's loss is bounded by
the counters on both sides of it; whatever they do not explain stays visible as unexplained frames.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from netbench.analysis.capture import CaptureCounts, StreamCapture
from netbench.generators.base import Sent, Traffic
from netbench.links.counters import NicCounters
from netbench.model.counts import HopCount, HopLoss, StreamCounts
from netbench.model.paths import StreamPath
from netbench.sinks.base import Arrived
from netbench.uut.base import HopReading


@dataclass(frozen=True, slots=True)
class NicDelta:
    """How the counters of one NIC grew over a trial, in frames, and whether its link held."""

    rx: int
    tx: int
    rx_dropped: int
    tx_dropped: int
    rx_errors: int
    tx_errors: int
    up: bool
    carrier_changes: int
    same_nic: bool

    @classmethod
    def between(cls, before: NicCounters, after: NicCounters) -> "NicDelta":
        """The growth from `before` to `after`."""
        return cls(
            rx=after.rx - before.rx,
            tx=after.tx - before.tx,
            rx_dropped=after.rx_dropped - before.rx_dropped,
            tx_dropped=after.tx_dropped - before.tx_dropped,
            rx_errors=after.rx_errors - before.rx_errors,
            tx_errors=after.tx_errors - before.tx_errors,
            up=before.up and after.up,
            carrier_changes=after.carrier_changes - before.carrier_changes,
            same_nic=(before.index, before.mac, before.master) == (after.index, after.mac, after.master),
        )

    @property
    def trustworthy(self) -> bool:
        """Whether these are the counters of one NIC that was not reset: none went backwards."""
        counts = (self.rx, self.tx, self.rx_dropped, self.tx_dropped, self.rx_errors, self.tx_errors)
        return self.same_nic and min(counts) >= 0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything one trial knows about one stream.

    `nics` holds the growth by role (source, ingress, egress, sink); None for a NIC that could not be read.
    `capture` is None when there is no complete capture to read.
    """

    path: StreamPath
    traffic: Traffic
    sent: Sent
    arrived: Arrived
    capture: CaptureCounts | None
    nics: Mapping[str, NicDelta | None]
    uut_hops: tuple[HopReading, ...]  # growth over the trial, of this stream or of all when it is alone

    @property
    def caught(self) -> StreamCapture | None:
        """This stream's frames in the capture: all of them count as received when they cannot be told apart."""
        if self.capture is None:
            return None
        stream = next(stream for stream in self.capture.streams if stream.stream == self.path.name)
        return stream if self.sent.numbered else replace(stream, received=stream.span.frames, duplicates=0)

    def trusted(self, role: str) -> NicDelta | None:
        """The growth at a NIC of the path, if it can be believed."""
        nic = self.nics.get(role)
        return nic if nic is not None and nic.trustworthy else None


def account(evidence: Evidence) -> StreamCounts:
    """The accounts of one stream; what could not be counted is None."""
    sent, caught = evidence.sent, evidence.caught
    told_apart = caught if sent.numbered else None
    delay = told_apart.delay if told_apart and _one_clock(evidence.path) else None
    dropped = _dropped_by_capture(evidence)
    foreign = _foreign(evidence)
    lost_at = tuple(loss for loss in _losses(evidence) if loss.frames)
    unexplained = None
    if caught is not None and _counters_known(evidence):
        lost = sent.frames - caught.received - (dropped or 0)
        unexplained = lost - sum(loss.frames for loss in lost_at)
    return StreamCounts(
        stream=evidence.path.name,
        intended_fps=evidence.traffic.fps,
        intended_frames=evidence.traffic.frames,
        sent_frames=sent.frames,
        generator_errors=sent.errors,
        duration_s=sent.duration_s,
        first_sent_ns=sent.first_ns,
        last_sent_ns=sent.last_ns,
        max_burst_frames=sent.max_burst_frames,
        max_lateness_s=sent.max_lateness_s,
        received_frames=caught.received if caught else None,
        duplicate_frames=told_apart.duplicates if told_apart else None,
        reordered_frames=told_apart.reordered if told_apart else None,
        foreign_frames=foreign,
        capture_dropped_frames=dropped,
        unexplained_frames=unexplained,
        longest_loss_run_frames=told_apart.longest_loss_run if told_apart else None,
        loss_runs=told_apart.loss_runs if told_apart else None,
        first_received_ns=caught.first_ns if caught else None,
        last_received_ns=caught.last_ns if caught else None,
        delay_min_ns=_known_delay(sent, delay.smallest_ns) if delay else None,
        delay_median_ns=_known_delay(sent, delay.median_ns) if delay else None,
        delay_max_ns=_known_delay(sent, delay.largest_ns) if delay else None,
        lost_at=lost_at,
        hops=tuple(_hops(evidence)),
    )


def _known_delay(sent: Sent, delay_ns: int) -> int | None:
    """By early stamps, 0 stands for less than can be told."""
    return None if sent.stamped_early and delay_ns == 0 else delay_ns


def _one_clock(path: StreamPath) -> bool:
    return path.source.machine == path.sink.machine


def _dropped_by_capture(evidence: Evidence) -> int | None:
    """Frames of ours that tcpdump dropped: at most as many as are missing. The rest of its drops were flush frames."""
    if evidence.caught is None or evidence.arrived.dropped_frames is None:
        return None
    return min(evidence.arrived.dropped_frames, max(0, evidence.sent.frames - evidence.caught.received))


def _counters_known(evidence: Evidence) -> bool:
    return all(nic is not None and nic.trustworthy for nic in evidence.nics.values())


def _foreign(evidence: Evidence) -> int | None:
    """Frames at the sink that are not ours: seen by the capture, or only by the sink NIC's own counter."""
    if evidence.capture is None:
        return None
    sink = evidence.trusted("sink")
    outward = sink.tx if sink else 0  # a sink sends nothing while it listens
    return max(evidence.capture.foreign_frames, _extra_at_sink(evidence)) + outward


def _extra_at_sink(evidence: Evidence) -> int:
    """Frames the sink NIC counted beyond ours. What its filter let through, the capture holds or says it dropped."""
    sink, caught = evidence.trusted("sink"), evidence.caught
    if sink is None or caught is None:
        return 0
    return max(0, sink.rx - caught.received - caught.duplicates - (_dropped_by_capture(evidence) or 0))


def _losses(evidence: Evidence) -> Iterator[HopLoss]:
    """Loss by hop, from the source on. Frames that are not ours are taken out of the counters they passed."""
    source, sink = evidence.trusted("source"), evidence.trusted("sink")
    if source is None or sink is None or evidence.caught is None:
        return
    foreign_in, foreign_out = max(0, source.tx - evidence.sent.frames), _extra_at_sink(evidence)
    extra_out = foreign_out + evidence.caught.duplicates
    yield HopLoss("source NIC", min(source.tx_dropped, max(0, evidence.sent.frames - source.tx)))
    ingress, egress = evidence.trusted("ingress"), evidence.trusted("egress")
    if ingress is None or egress is None:
        between = max(0, source.tx - foreign_in - (sink.rx - extra_out))
        at_sink = min(sink.rx_dropped + sink.rx_errors, between)
        yield HopLoss("uut (source NIC to sink NIC)", between - at_sink)
        yield HopLoss("sink NIC", at_sink)
        return
    extra_out = max(0, extra_out - max(0, sink.rx - egress.tx))  # what came in behind the UUT never left it
    yield HopLoss("ingress NIC", min(ingress.rx_dropped + ingress.rx_errors, max(0, source.tx - ingress.rx)))
    inside = max(0, ingress.rx - foreign_in - (egress.tx - extra_out))
    for drops in (reading for reading in evidence.uut_hops if reading.role in ("dropped", "errors")):
        # Not cut down to what is missing: a counter that claims more than that leaves a remainder to be seen.
        inside = max(0, inside - drops.frames)
        yield HopLoss(f"{drops.hop} ({drops.counter})", drops.frames)
    egress_dropped = min(egress.tx_dropped, inside)
    yield HopLoss("uut (between ingress and egress NIC)", inside - egress_dropped)
    yield HopLoss("egress NIC", egress_dropped)
    yield HopLoss("sink NIC", min(sink.rx_dropped + sink.rx_errors, max(0, egress.tx - sink.rx)))


def _hops(evidence: Evidence) -> Iterator[HopCount]:
    yield HopCount("generator", "sent", "passed", evidence.sent.frames)
    yield HopCount("generator", "errors", "errors", evidence.sent.errors)
    for role, nic in evidence.nics.items():
        direction = "tx" if role in ("source", "egress") else "rx"
        known = nic if nic is not None and nic.trustworthy else None
        for counter, kind in (
            (direction, "passed"),
            (f"{direction}_dropped", "dropped"),
            (f"{direction}_errors", "errors"),
        ):
            yield HopCount(f"{role} NIC", counter, kind, getattr(known, counter) if known else None)
        if role == "ingress":
            for reading in evidence.uut_hops:
                yield HopCount(reading.hop, reading.counter, reading.role, reading.frames)
    yield HopCount("capture", "matched filter", "passed", evidence.arrived.filter_frames)
    yield HopCount("capture", "dropped", "dropped", evidence.arrived.dropped_frames)

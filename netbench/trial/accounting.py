"""The frame accounts of one stream: frames sent, frames received, their delay, and where the rest was lost.

Conservation: sent = received + lost at named points + dropped by the sink. The counters on both sides of a point
bound its loss. Frames that they do not explain are reported as unexplained.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from netbench.model.counts import PointCount, SizeCounts, StreamCounts
from netbench.model.distributions import ClockOffset
from netbench.model.packet_counts import SentPacket
from netbench.model.paths import Nic
from netbench.model.points import CountingPoint
from netbench.model.received import Received
from netbench.model.stored_counts import counts_of, stored
from netbench.model.traffic import Sent, Traffic
from netbench.trial.loss_attribution import LossAttribution, losses
from netbench.trial.observation import NicDelta, StreamObservation


def accounts(trial: Sequence[StreamObservation]) -> dict[str, StreamCounts]:
    """Return the accounts of all streams of a trial, by name; values that could not be counted are None."""
    placed = losses(trial)
    return {evidence.path.name: _account(evidence, placed[evidence.path.name]) for evidence in trial}


def _account(evidence: StreamObservation, placed: LossAttribution) -> StreamCounts:
    sent, received = evidence.sent, evidence.received
    no_order = _no_order(sent, received)
    dropped = evidence.dropped_by_sink
    unexplained = None
    missing = None if received.frames is None else sent.frames - received.frames
    if missing is not None and (dropped is not None or missing <= 0) and evidence.counters_known:
        lost = missing - (dropped or 0)
        unexplained = lost - sum(loss.frames for loss in placed.losses)
    arrived = one_way(evidence)
    if no_order:
        arrived = replace(arrived, reordered=None, reordering_extent=None)
    if arrived.last_missing is not None:
        arrived = replace(arrived, last_missing=arrived.last_missing - sent.first_sequence)
    counts = StreamCounts(
        stream=evidence.path.name,
        intended_fps=evidence.traffic.fps,
        intended_frames=evidence.traffic.frames,
        sent=sent,
        received=arrived,
        foreign_frames=_foreign(evidence, placed, unexplained),
        capture_dropped_frames=dropped,
        unexplained_frames=unexplained,
        order_refused=no_order,
        source_address=evidence.traffic.src_ip,
        reverse_of=evidence.path.reverse_of.name if evidence.path.reverse_of else "",
        source_clock=evidence.source_clock,
        by_size=_by_size(evidence.traffic, sent, received, dropped),
        lost_at=placed.losses,
        counters=tuple(_counters(evidence)),
        overcounted_frames=placed.overcounted,
        packet=SentPacket.of(packet) if (packet := evidence.traffic.packet) else None,
    )
    return counts_of(stored(counts))  # as it is read from a store


def _by_size(traffic: Traffic, sent: Sent, received: Received, dropped: int | None) -> tuple[SizeCounts, ...]:
    """Return the counts for each frame size of a mix; the number of a frame determines its size."""
    if not traffic.frame_size.is_mix:
        return ()
    counts = []
    for size, frames in traffic.frame_size.frames_by_size(
        range(sent.first_sequence, sent.first_sequence + sent.frames)
    ).items():
        arrived = received.by_size.get(size) if received.frames is not None else None
        missing = None if arrived is None else frames - arrived.frames
        counts.append(
            SizeCounts(
                size=size,
                sent_frames=frames,
                received_frames=None if arrived is None else arrived.frames,
                lost_frames=missing if dropped == 0 or missing == 0 else None,
                window_frames=None if arrived is None else arrived.window_frames,
            )
        )
    return tuple(counts)


def _no_order(sent: Sent, received: Received) -> str:
    """Return why the order of arrival does not describe the UUT; empty if it does."""
    if not sent.numbered:
        return "the source does not number its frames, so duplicates and reordering are unknown"
    if not sent.in_order:
        return "the source sends by several threads, whose frames overtake each other before they leave it"
    return "the sink does not report order" if received.frames is not None and received.reordered is None else ""


def _foreign(evidence: StreamObservation, placed: LossAttribution, unexplained: int | None) -> int | None:
    """Return the number of frames on the path that do not belong to the stream.

    These are the ones that the sink or its NIC counted, and the ones from the source that did not reach the sink.
    """
    nic, received = evidence.trusted("sink"), evidence.received
    if received.frames is None or (received.foreign is None and nic is None):
        return None
    unsure = min(placed.unsure, max(0, unexplained or 0))
    beside = evidence.extra_at_sink + evidence.outward - (received.late or 0) - (received.control or 0) - unsure
    return max(received.foreign or 0, beside) + placed.others_lost


def _counters(evidence: StreamObservation) -> Iterator[PointCount]:
    """Yield all counters of the path, starting at the source."""
    generator, capture = evidence.points[0], evidence.points[-1]
    yield _count(generator, "sent", "passed", evidence.sent.frames)
    yield _count(generator, "errors", "errors", evidence.sent.errors)
    nics = [(evidence.point(f"{role} NIC"), nic) for role, nic in evidence.nics.items()]
    of_nics = [count for point, nic in nics for count in _nic_counts(point, nic)]
    yield from sorted([*of_nics, *(growth.count for growth in evidence.growths)], key=lambda count: count.order)
    yield _count(capture, "matched filter", "passed", evidence.received.matched)
    yield _count(capture, "dropped", "dropped", evidence.received.dropped)


def _nic_counts(point: CountingPoint, nic: NicDelta | None) -> Iterator[PointCount]:
    way = point.direction
    known = nic if nic is not None and nic.trustworthy else None
    for counter, kind in (
        (way, "passed"),
        (f"{way}_dropped", "dropped"),
        (f"{way}_errors", "errors"),
    ):
        yield _count(point, counter, kind, getattr(known, counter) if known else None)


def _count(point: CountingPoint, counter: str, role: str, grew: int | None) -> PointCount:
    return PointCount(point.name, point.where, point.order, counter, role, grew)


def one_way(evidence: StreamObservation) -> Received:
    """Return the received counts with the one-way delay, or with the reason for its absence.

    Between two machines whose clocks were compared, the difference of the clocks is subtracted from the delay. Its
    uncertainty widens the clock offset. The delay is refused if that uncertainty exceeds the delay itself.
    """
    received, path = evidence.received, evidence.path
    refused = _refused(evidence)
    delay, offset = received.delay, received.clock_offset
    if not refused and path.source.machine != path.sink.machine:
        assert evidence.source_clock is not None
        assert evidence.sink_clock is not None
        assert delay is not None
        apart = evidence.sink_clock.less(evidence.source_clock)
        delay = delay.earlier(apart.middle_ns)
        least, most = (offset.least_ns, offset.most_ns) if offset else (0, 0)
        offset = ClockOffset(least - apart.uncertainty_ns, most + apart.uncertainty_ns)
        if delay.median_ns is None or offset.bound_ns > delay.median_ns:
            about = "unknown" if delay.median_ns is None else f"about {delay.median_ns / 1e3:,.0f} µs"
            refused = (
                f"the clocks of {_machine(path.source)} and {_machine(path.sink)} are known to within "
                f"{offset.bound_ns / 1e3:,.0f} µs of each other, and the delay is {about}"
            )
    received = replace(received, delay=delay, clock_offset=offset, no_delay=refused)
    return replace(received, delay=None, ipdv=None) if refused else received


def _refused(evidence: StreamObservation) -> str:
    path, sent, received = evidence.path, evidence.sent, evidence.received
    source, sink = path.source.machine, path.sink.machine
    if source != sink and None in (evidence.source_clock, evidence.sink_clock):
        return f"the source on {_machine(path.source)} and the sink on {_machine(path.sink)} share no clock"
    if not sent.numbered:
        return "the source does not number its frames, so stamps cannot be assigned to frames"
    if not sent.stamped:
        return "the source does not stamp its frames"
    if evidence.clock_set_ns:
        return f"the clock was set by {evidence.clock_set_ns / 1e9:+,.6f} s during the trial"
    if received.delay is None:
        return received.no_delay
    clock = received.clock_offset
    if clock is not None and clock.differs:
        apart_us = float(f"{(clock.least_ns + clock.most_ns) / 2e3:.2g}")
        return f"captures are stamped by another clock than frames, about {apart_us:+,g} µs later"
    if source == sink and received.delay.smallest_ns is not None and received.delay.smallest_ns < 0:
        early_s = -received.delay.smallest_ns / 1e9
        return f"frames were captured up to {early_s:,.6f} s before they were stamped: not by one clock"
    return ""


def _machine(nic: Nic) -> str:
    return nic.machine or "this machine"

"""The counts of a capture as received frames, and the measuring window in which the path is at steady state."""

from dataclasses import dataclass, replace

from netbench.capture.capture_counts import ArrivalTimes, CaptureCounts, Expected
from netbench.model.packet_counts import PacketCounts
from netbench.model.received import MeasuringWindow, OfSize, Received
from netbench.model.traffic import NS_PER_S, Sent, Traffic


@dataclass(frozen=True, slots=True)
class MeasuredTime:
    """The start and end of the window of a stream, by the sink's clock, and its length for rates.

    If `from_ns` is None, all frames before its end count.
    """

    from_ns: int | None
    until_ns: int
    seconds: float

    def frames(self, arrived: ArrivalTimes) -> int:
        """Return how many of these frames arrived in the window."""
        return arrived.before(self.until_ns) - (0 if self.from_ns is None else arrived.before(self.from_ns))

    def window(self, arrived: ArrivalTimes) -> MeasuringWindow:
        """Return the window with the counts of all frames of the stream."""
        return MeasuringWindow(self.frames(arrived), self.seconds, arrived.frames - arrived.before(self.until_ns))


def measured_time(traffic: Traffic, sent: Sent, arrived: ArrivalTimes, lag_ns: int) -> MeasuredTime | None:
    """Return the time from the end of a stream's warm-up until its last frame would have arrived without queueing.

    `lag_ns` is the smallest difference of an arrival (the sink's clock) and the frame's sending (the source's clock). A
    constant delay, and the difference of the clocks, move the window without changing it. None if nothing was sent, or
    not for longer than the warm-up.

    Each paced frame has a slot of the offered rate. The window contains whole slots, and its edges are halfway between
    two frames: the throughput of a path with a constant delay is exactly the offered load. For a mix the window
    contains whole passes of its genome, if any.

    A source without a rate sends at varying speed, and its offered load after the warm-up is unknown: its window is its
    whole sending time. The same is true of a path that delays frames in the warm-up and delivers them afterwards.
    """
    if sent.first_ns is None or sent.last_ns is None or sent.duration_s <= 0:
        return None
    duration_ns = sent.duration_s * NS_PER_S
    slot_ns, measured_part = 0.0, 1.0
    if traffic.fps is not None:
        slot_ns = duration_ns / sent.frames
        in_window = sent.frames - round(traffic.warm_up_s * NS_PER_S / slot_ns)
        # A partial pass would have another mean size than the mix.
        in_part = in_window % len(traffic.frame_size.genome)
        measured_part = (in_window - in_part if in_window > in_part else in_window) / sent.frames
    if measured_part <= 0:
        return None
    # A late first frame does not show when the others were due; the last one shows it too.
    due_ns = min(sent.first_ns, round(sent.last_ns + slot_ns - duration_ns))
    # If the source sends its last frames late, they arrive late without queueing.
    end_ns = round(max(due_ns + duration_ns - slot_ns / 2, sent.last_ns + slot_ns / 2) + lag_ns)
    begin_ns = end_ns - round(duration_ns * measured_part) if measured_part < 1 else None
    span = MeasuredTime(begin_ns, end_ns, sent.duration_s * measured_part)
    if span.frames(arrived) > round(sent.frames * measured_part):
        # More than was offered in this time: some frames were delayed before, and count over the whole time.
        return MeasuredTime(None, end_ns, sent.duration_s)
    return span


def settled(expected: Expected, sent: Sent) -> Expected:
    """Return the expectation completed by the sent frames and their times; some frames must have been sent."""
    assert sent.first_ns is not None
    assert sent.last_ns is not None
    return replace(
        expected,
        sent_frames=sent.frames,
        first_sequence=sent.first_sequence,
        sent_from_ns=sent.first_ns,
        sent_until_ns=sent.last_ns,
        stamped=sent.stamped,
        stamped_early=sent.stamped_early,
    )


def received_of(counts: CaptureCounts, sent: Sent, traffic: Traffic) -> Received:
    """Return the received frames from the counts of a capture with one stream.

    Without sequence numbers, all frames count as received, and values that need distinguishable frames are unknown.
    """
    (stream,) = counts.streams
    lag_ns = (stream.first_ns or 0) - (sent.first_ns or 0)
    if stream.delay is not None and stream.delay.smallest_ns is not None and sent.stamped:
        lag_ns = stream.delay.smallest_ns
    plain = Received(
        frames=stream.span.frames,
        foreign=counts.foreign_frames,
        late=counts.late_frames,
        late_from=counts.late_from,
        control=counts.control_frames,
        first_ns=stream.first_ns,
        last_ns=stream.last_ns,
    )
    if not sent.numbered:
        return replace(plain, packet=stream.packet and PacketCounts(stream.packet.flows))
    delay, no_delay = stream.delay, ""
    if delay is None:
        no_delay = "no two consecutive frames arrived" if sent.stamped_early else "no frame arrived"
    elif sent.stamped_early:
        delay = delay.without_zero
    time = measured_time(traffic, sent, stream.arrived, lag_ns)
    return replace(
        plain,
        frames=stream.received,
        duplicates=stream.duplicates,
        reordered=stream.reordered,
        loss_runs=stream.loss_runs,
        longest_loss_run=stream.longest_loss_run,
        loss_run_lengths=stream.loss_run_lengths,
        last_missing=stream.last_missing,
        reordering_extent=stream.reordering_extent,
        window=time.window(stream.arrived) if time else None,
        by_size={
            size: OfSize(arrived.frames, time.frames(arrived) if time else None)
            for size, arrived in stream.arrived_by_size.items()
        },
        delay=delay,
        ipdv=stream.ipdv,
        clock_offset=counts.clock_offset,
        no_delay=no_delay,
        packet=stream.packet,
    )

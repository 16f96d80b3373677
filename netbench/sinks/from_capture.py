"""Conversion of the counts of a capture into the received frames of a stream, on the host that counts."""

from dataclasses import replace

from netbench.capture.capture_counts import CaptureCounts, Expected
from netbench.model.received import OfSize, Received
from netbench.model.traffic import Sent, Traffic
from netbench.sinks.window import measured_time


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
        return plain
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
    )

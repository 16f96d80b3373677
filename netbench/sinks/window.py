"""The measuring window of a stream: what arrived in it, by the sink's clock, once the path was in its steady state."""

from netbench.capture.arrival_times import ArrivalTimes
from netbench.model.counts import Window
from netbench.model.traffic import Sent, Traffic

_NS = 1_000_000_000


def measured(traffic: Traffic, sent: Sent, arrived: ArrivalTimes, lag_ns: int) -> Window | None:
    """What arrived of a stream from the end of its warm-up until the last frame would have, had nothing queued.

    `lag_ns` is the least time by which an arrival (the sink's clock) was later than its frame's sending (the source's
    clock): a constant delay, and whatever the clocks differ by, moves the window and does not change it. None where
    nothing was sent, or no longer than the warm-up.

    Paced frames have a slot each, of the rate that was offered, and the window holds whole slots, its edges halfway
    between two frames: a path that delays all frames alike has exactly the offered load as its throughput. A source
    without a rate to keep sends faster at one time than at another: its window is as long as its sending, for what it
    offered after a warm-up nobody knows. So is that of a path that held frames back in the warm-up and let them go
    after it.
    """
    if sent.first_ns is None or sent.last_ns is None or sent.duration_s <= 0:
        return None
    duration_ns = sent.duration_s * _NS
    slot_ns, measured_part = 0.0, 1.0
    if traffic.fps is not None:
        slot_ns = duration_ns / sent.frames
        measured_part = 1 - round(traffic.warm_up_s * _NS / slot_ns) / sent.frames
    if measured_part <= 0:
        return None
    # A first frame that was late says nothing of when the others were due; the last one tells that, too.
    due_ns = min(sent.first_ns, round(sent.last_ns + slot_ns - duration_ns))
    end_ns = round(due_ns + lag_ns + duration_ns - slot_ns / 2)
    by_end = arrived.before(end_ns)
    by_begin = arrived.before(end_ns - round(duration_ns * measured_part)) if measured_part < 1 else 0
    if by_end - by_begin > round(sent.frames * measured_part):
        # More than was offered meanwhile: some of it was held back before, and is throughput of all the time.
        by_begin, measured_part = 0, 1.0
    return Window(by_end - by_begin, sent.duration_s * measured_part, arrived.frames - by_end)

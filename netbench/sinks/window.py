"""The measuring window of a stream: what arrived in it, by the sink's clock, once the path was in its steady state."""

from dataclasses import dataclass

from netbench.capture.arrival_times import ArrivalTimes
from netbench.model.counts import Window
from netbench.model.frame_mix import genome_of
from netbench.model.traffic import Sent, Traffic

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class MeasuredTime:
    """From and until when frames arrive in the window of a stream, by the sink's clock, and how long that counts.

    Where `from_ns` is None, whatever arrived before its end counts.
    """

    from_ns: int | None
    until_ns: int
    seconds: float

    def frames(self, arrived: ArrivalTimes) -> int:
        """How many of these arrived in it."""
        return arrived.before(self.until_ns) - (0 if self.from_ns is None else arrived.before(self.from_ns))

    def window(self, arrived: ArrivalTimes) -> Window:
        """The same of all frames of the stream."""
        return Window(self.frames(arrived), self.seconds, arrived.frames - arrived.before(self.until_ns))


def measured_time(traffic: Traffic, sent: Sent, arrived: ArrivalTimes, lag_ns: int) -> MeasuredTime | None:
    """The time from the end of a stream's warm-up until its last frame would have arrived, had nothing queued.

    `lag_ns` is the least time by which an arrival (the sink's clock) was later than its frame's sending (the source's
    clock): a constant delay, and whatever the clocks differ by, moves the window and does not change it. None where
    nothing was sent, or no longer than the warm-up.

    Paced frames have a slot each, of the rate that was offered, and the window holds whole slots, its edges halfway
    between two frames: a path that delays all frames alike has exactly the offered load as its throughput. Of a mix the
    window holds whole passes of its genome, if any. A source without a rate to keep sends faster at one time than at
    another: its window is as long as its sending, for what it offered after a warm-up nobody knows. So is that of a
    path that held frames back in the warm-up and let them go after it.
    """
    if sent.first_ns is None or sent.last_ns is None or sent.duration_s <= 0:
        return None
    duration_ns = sent.duration_s * _NS
    slot_ns, measured_part = 0.0, 1.0
    if traffic.fps is not None:
        slot_ns = duration_ns / sent.frames
        in_window = sent.frames - round(traffic.warm_up_s * _NS / slot_ns)
        # Part of a pass of a mix would have another mean size than the mix.
        in_part = in_window % len(genome_of(traffic.frame_size))
        measured_part = (in_window - in_part if in_window > in_part else in_window) / sent.frames
    if measured_part <= 0:
        return None
    # A first frame that was late says nothing of when the others were due; the last one tells that, too.
    due_ns = min(sent.first_ns, round(sent.last_ns + slot_ns - duration_ns))
    end_ns = round(due_ns + lag_ns + duration_ns - slot_ns / 2)
    begin_ns = end_ns - round(duration_ns * measured_part) if measured_part < 1 else None
    span = MeasuredTime(begin_ns, end_ns, sent.duration_s * measured_part)
    if span.frames(arrived) > round(sent.frames * measured_part):
        # More than was offered meanwhile: some of it was held back before, and is throughput of all the time.
        return MeasuredTime(None, end_ns, sent.duration_s)
    return span

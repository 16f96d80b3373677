"""Counts the frames of one stream: arrival, loss, order, delays, and faults of its clocks and numbers."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.capture_counts import ArrivalTimes, ClockCheck, Expected, NumberCheck, Span, StreamCapture
from netbench.capture.clock_check import (
    SMALLEST_STEP_NS,
    CaptureClock,
    DelayJumps,
    FileOrder,
    InOrder,
    StampSteps,
    are_frozen,
    is_much,
    run_apart,
)
from netbench.capture.delay_variation import EarlyStamps, VariationTally
from netbench.capture.distribution import DelayDistribution
from netbench.capture.frames import NO_TIME, address_text, is_one_number
from netbench.capture.headers import StreamFrames, StreamsBy
from netbench.capture.packet_tally import PacketTally
from netbench.capture.sequences import (
    Arrivals,
    Losses,
    ReorderingTracker,
    SequenceTracker,
    arrivals,
    unwrapped,
    without,
)

_Bounds = tuple[int, int] | tuple[None, None]  # the smallest and the largest of some numbers
_DAY_NS = 86_400 * 10**9
# Numbers of an unknown stream start at its first number + 2³², which leaves room below for late frames.
_UNKNOWN_NUMBERS = range(1 << 31, 1 << 62)
# No source sends this many frames faster than one per ns, which exceeds the frame rate of 400 Gbit/s.
_LEAST_JUMP = 1 << 24
# No file is out of order by more: then one of the two times is unknown.
_LONGEST_NS = 10**18


class SpanPart(NamedTuple):
    """The contribution of at least one frame to a Span.

    `zeros` of them have the capture time 0, which means unknown unless it is close to the others.
    """

    frames: int
    total_bytes: int
    sizes: tuple[int, int]  # smallest and largest
    times_ns: tuple[int, int] | tuple[None, None]  # earliest and latest but 0
    untimed: int = 0
    zeros: int = 0

    @classmethod
    def of(cls, sizes: NDArray[np.int64], times_ns: NDArray[np.int64]) -> "SpanPart":
        """Return the part of frames with these sizes and capture times."""
        times: tuple[int, int] | tuple[None, None] = int(times_ns.min()), int(times_ns.max())
        untimed = zeros = 0
        if times[0] in (NO_TIME, 0):
            zeros, untimed = int(np.count_nonzero(times_ns == 0)), int(np.count_nonzero(times_ns == NO_TIME))
            known = times_ns[is_known(times_ns)]
            times = (int(known.min()), int(known.max())) if len(known) else (None, None)
        if is_one_number(sizes):
            size = int(sizes[0])
            return cls(len(sizes), size * len(sizes), (size, size), times, untimed, zeros)
        return cls(len(sizes), int(sizes.sum()), (int(sizes.min()), int(sizes.max())), times, untimed, zeros)

    def timed_without(self, copies: NDArray[np.intp], times_ns: NDArray[np.int64]) -> "SpanPart":
        """Return the part with the earliest and latest time without copies; `times_ns` are those of all frames."""
        if not len(copies):
            return self
        first, last = self.times_ns
        of_copies = times_ns[copies]
        if self.is_timed and first is not None and first < of_copies.min() and of_copies.max() < (last or first):
            return self
        times_ns = without(times_ns, copies)
        known = times_ns[is_known(times_ns)]
        return self._replace(times_ns=(int(known.min()), int(known.max())) if len(known) else (None, None))

    @property
    def is_timed(self) -> bool:
        """Whether all frames have a capture time."""
        return not self.untimed and not self.zeros


def is_known(times_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which capture times are known, of shape (n,)."""
    are_known: NDArray[np.bool_] = (times_ns != NO_TIME) & (times_ns != 0)
    return are_known


class SpanTally:
    """Adds up the parts of a Span."""

    def __init__(self) -> None:
        self._frames = self._bytes = 0
        self._sizes: _Bounds = (None, None)
        self._times: _Bounds = (None, None)
        self._untimed = self._zeros = 0

    def add(self, part: SpanPart) -> None:
        """Add the next frames."""
        self._frames += part.frames
        self._bytes += part.total_bytes
        self._untimed += part.untimed
        self._zeros += part.zeros
        self._sizes = _widened(self._sizes, part.sizes)
        self._times = _widened(self._times, part.times_ns)

    def span(self) -> Span:
        """Return the span of all parts."""
        first, last = self._times
        untimed = self._untimed + self._zeros
        if self._zeros and first is not None and 0 < first < _DAY_NS:  # a clock that started at 1970
            first, untimed = 0, self._untimed
        smallest, largest = self._sizes
        return Span(self._frames, self._bytes, smallest, largest, first, last, untimed)


def _widened(known: _Bounds, more: _Bounds) -> _Bounds:
    low, high = known
    least, most = more
    if low is None or high is None:
        return more
    return known if least is None or most is None else (min(low, least), max(high, most))


class StreamTally:
    """Counts the frames of one stream, identified by its addresses or its headers, in constant memory."""

    def __init__(
        self, ip_version: int, src_ip: int, dst_ip: int, expected: Expected | None, by: StreamsBy = StreamsBy.PAIR
    ) -> None:
        self._by = by
        self._ip_version, self._src_ip, self._dst_ip, self._expected = ip_version, src_ip, dst_ip, expected
        self._stamps_us: _Bounds = (None, None)
        self._possible = expected.sequence if expected else _UNKNOWN_NUMBERS
        self._sequence = SequenceTracker()
        self._reordering = ReorderingTracker()
        self._span = SpanTally()
        self._arrived = ArrivalTimes()
        self._delays = DelayDistribution()
        self._variation = VariationTally()
        self._clock, self._jumps, self._stamps = CaptureClock(), DelayJumps(), StampSteps()
        self._numbers, self._file_order = NumberTally(), FileOrder()
        self._unstamped = self._invalid_stamps = 0
        self._early = EarlyStamps() if expected and expected.stamped_early else None
        headers = expected.headers if expected else None
        self._packet = PacketTally(headers, expected.frame_size) if expected and headers else None
        mix = expected.frame_size if expected and expected.frame_size.is_mix else None
        self._genome = None if mix is None else np.array(mix.genome)
        self._by_size = {size: ArrivalTimes() for size in mix.sizes} if mix else {}

    def add(self, frames: StreamFrames, batch: SpanPart) -> int:
        """Count the frames of a batch that are this stream's, and return their number."""
        if self._expected:
            frames = frames.where(_is_expected(frames, self._expected, self._packet))
        frames = frames._replace(sequence=unwrapped(frames.sequence, self._sequence.highest, self._possible))
        if self._expected:
            numbers = self._possible
            frames = frames.where((frames.sequence >= numbers.start) & (frames.sequence < numbers.stop))
        if self._genome is not None:
            sizes = self._genome[frames.sequence % len(self._genome)]
            frames = frames.where(self._packet.has_size(frames, sizes) if self._packet else frames.sizes == sizes)
        count = len(frames.sequence)
        if count:
            part = batch if count == batch.frames else SpanPart.of(frames.sizes, frames.times_ns)
            if self._expected:
                stamps_us = int(frames.sent_us.min()), int(frames.sent_us.max())
                self._stamps_us = _widened(self._stamps_us, stamps_us)
            arrived = arrivals(frames.sequence, self._sequence.expected)
            known = None if self._sequence.lowest is None else range(self._sequence.lowest, self._sequence.expected)
            copies = self._sequence.add(arrived)
            self._span.add(part.timed_without(copies, frames.times_ns))
            distinct = arrived.without(copies) if len(copies) else arrived
            self._reordering.add(distinct)
            self._arrived.add(without(frames.times_ns, copies) if len(copies) else frames.times_ns)
            if self._genome is not None:
                sizes = self._genome[frames.sequence % len(self._genome)]
                self._add_by_size(without(sizes, copies), without(frames.times_ns, copies))
            if self._packet:
                self._packet.add(frames, distinct, copies)
            if self._expected is None:
                self._add_unknown(frames, part, arrived, copies, known)
            elif self._expected.stamped:
                self._add_delays(frames.sequence, frames.sent_us * 1000, frames.times_ns, copies)
        return count

    def _add_by_size(self, sizes: NDArray[np.int64], times_ns: NDArray[np.int64]) -> None:
        for size, arrived in self._by_size.items():
            arrived.add(times_ns[sizes == size])

    def _add_unknown(
        self, frames: StreamFrames, part: SpanPart, arrived: Arrivals, copies: NDArray[np.intp], known: range | None
    ) -> None:
        """Add the times of frames with unknown clocks; `known` are the numbers before."""
        in_order = InOrder(frames.sequence, frames.sent_us, frames.times_ns, arrived.late_places)
        self._numbers.add(frames, in_order, arrived, known)
        if not part.is_timed:
            in_order = in_order.where(is_known(in_order.times_ns))
        self._clock.add(in_order)
        self._add_file_order(without(frames.times_ns, copies), without(frames.sent_us, copies), part)
        least, most = int(frames.sent_us.min()), int(frames.sent_us.max())
        if least <= 0 or not part.is_timed:
            is_first = np.ones(len(frames.sequence), np.bool_)
            is_first[copies] = False
            self._unstamped += int(np.count_nonzero(is_first & (frames.sent_us == 0)))
            self._invalid_stamps += int(np.count_nonzero(is_first & (frames.sent_us < 0)))
            frames = frames.where(is_first & is_known(frames.times_ns) & (frames.sent_us > 0))
            in_order, copies = in_order.where(in_order.sent_us() > 0), np.empty(0, np.intp)
            if not len(frames.sequence):
                return
            least, most = int(frames.sent_us.min()), int(frames.sent_us.max())
        self._stamps_us = _widened(self._stamps_us, (least, most))
        bounds = self._add_delays(frames.sequence, frames.sent_us * 1000, frames.times_ns, copies)
        if bounds and in_order.size:
            self._jumps.add(in_order, bounds)
            self._stamps.add(in_order)

    def _add_file_order(self, times_ns: NDArray[np.int64], sent_us: NDArray[np.int64], part: SpanPart) -> None:
        if not part.is_timed:
            are_known = is_known(times_ns)
            times_ns, sent_us = times_ns[are_known], sent_us[are_known]
        self._file_order.add(times_ns, sent_us)

    def _add_delays(
        self,
        sequence: NDArray[np.int64],
        sent_ns: NDArray[np.int64],
        times_ns: NDArray[np.int64],
        copies: NDArray[np.intp],
    ) -> tuple[int, int] | None:
        """Add the times of all frames except copies, and return the bounds of their delays."""
        if self._early is None:
            delays = times_ns - sent_ns
            if len(copies):
                sequence, delays = without(sequence, copies), without(delays, copies)
            bounds = self._delays.add(delays)
        else:
            sequence, delays = self._early.add(
                without(sequence, copies), without(sent_ns, copies), without(times_ns, copies)
            )
            bounds = self._delays.add(delays)
            is_positive = delays > 0
            sequence, delays = sequence[is_positive], delays[is_positive]
        self._variation.add(sequence, delays)
        return bounds

    @property
    def numbers(self) -> SequenceTracker:
        """The tracker of the sequence numbers that arrived."""
        return self._sequence

    def count_late(self, frames: StreamFrames) -> int:
        """Return how many of these frames, with another address of its source, were sent before this trial.

        A frame with a time stamp of this trial belongs to it, and its address was corrupted on the path. Of frames with
        described headers, addresses are not considered: late ones have an earlier time stamp, none is not enough.
        """
        if self._packet and self._expected:
            is_earlier = (frames.sent_us > 0) & (frames.sent_us < self._expected.stamps_us.start)
            return int(np.count_nonzero(is_earlier))
        if self._expected is None or not self._expected.stamped:
            return len(frames.sequence)
        return int(np.count_nonzero(frames.sent_us < self._expected.stamps_us.start))

    def prepare(self) -> None:
        """Compute beforehand what would take long at the first frames."""
        if self._packet:
            self._packet.prepare()

    def settle(self, expected: Expected) -> bool:
        """Replace the expectation by `expected`; return False when a counted frame does not match it."""
        awaited, sequence = self._expected, self._sequence
        assert awaited
        self._expected = expected
        if (awaited.stamped, awaited.stamped_early) != (expected.stamped, expected.stamped_early):
            return False
        if sequence.lowest is None:
            return True
        numbers = all(number in expected.sequence for number in (sequence.lowest, sequence.highest))
        return numbers and all(stamp in expected.stamps_us for stamp in self._stamps_us)

    def _clocks(self, span: Span) -> ClockCheck:
        duration_ns = (span.last_ns or 0) - (span.first_ns or 0)
        earliest, latest = self._stamps_us
        stamped_ns = None if earliest is None or latest is None else (latest - earliest) * 1000
        frozen = stamped_ns is not None and are_frozen(stamped_ns, duration_ns)
        resolution_ns = self._stamps.resolution_ns()
        trusts_stamps = not frozen and not resolution_ns
        unmatched_ns = self._clock.unmatched_gap_ns() if trusts_stamps else 0
        spans_ns = self._jumps.spans_ns()
        return ClockCheck(
            unstamped=self._unstamped,
            invalid_stamps=self._invalid_stamps,
            frozen_stamps=frozen,
            stamp_resolution_ns=0 if frozen else resolution_ns,
            steps=self._jumps.steps() if trusts_stamps else (),
            back_ns=self._clock.back_ns(),
            late_back_ns=self._late_back_ns(duration_ns),
            gap_ns=self._clock.gap_ns(trusts_stamps=trusts_stamps),
            pause_ns=self._clock.pause_ns(),
            held_ns=unmatched_ns if unmatched_ns and self._jumps.has_drop_of(unmatched_ns // 2) else 0,
            apart_ns=spans_ns if trusts_stamps and run_apart(*spans_ns) else None,
        )

    def _late_back_ns(self, duration_ns: int) -> int:
        """Return how far capture times go back at late frames, unless these are only out of order in the file.

        Without time stamps, they are taken as out of order where they do not make the total time longer.
        """
        back, unstamped = self._file_order.back_ns, self._file_order.unstamped_back_ns
        if 2 * self._clock.stretched_ns(duration_ns, self._sequence.lowest or 0) >= unstamped:
            back = max(back, unstamped)
        return back if back >= SMALLEST_STEP_NS and is_much(back, duration_ns) else 0

    def capture(self, interface: int) -> StreamCapture:
        """Return the counts of the stream; `interface` is the index of its interface in the capture."""
        sequence, expected = self._sequence, self._expected
        losses = Losses(0, 0, 0, (), None)
        lowest, highest = sequence.lowest, sequence.highest
        if expected:
            losses = sequence.losses(expected.sequence.start, expected.sequence.stop)
        elif lowest is not None and highest is not None:
            losses = sequence.losses(lowest, highest + 1)
            in_frame = lowest % (1 << 32)
            lowest, highest = in_frame, highest - lowest + in_frame
        span = self._span.span()
        addresses = (address_text(address, self._ip_version) for address in (self._src_ip, self._dst_ip))
        source, destination = self._by.texts(*addresses)
        return StreamCapture(
            stream=expected.stream if expected else None,
            src_ip=source,
            dst_ip=destination,
            received=sequence.distinct,
            duplicates=sequence.duplicates,
            reordered=self._reordering.reordered,
            reordering_extent=self._reordering.extent(),
            missing=losses.missing,
            loss_runs=losses.runs,
            longest_loss_run=losses.longest_run,
            loss_run_lengths=losses.lengths,
            last_missing=losses.last,
            min_seq=lowest,
            max_seq=highest,
            span=span,
            delay=self._delays.spread(),
            ipdv=self._variation.spread(),
            arrived=self._arrived,
            arrived_by_size=self._by_size,
            interface=interface,
            clocks=ClockCheck() if expected else self._clocks(span),
            numbers=NumberCheck() if expected else self._numbers.check(self._clock.largest_back_ns),
            packet=self._packet.counts(sequence, expected.sequence) if expected and self._packet else None,
        )


def _is_expected(frames: StreamFrames, expected: Expected, packet: PacketTally | None) -> NDArray[np.bool_]:
    """Return whether size and time stamp are those of the stream; sizes of a mix are checked later by number."""
    stamps = expected.stamps_us
    ours: NDArray[np.bool_] = (frames.sent_us >= stamps.start) & (frames.sent_us < stamps.stop)
    if not expected.frame_size.is_mix:
        size = expected.frame_size.only_size
        ours &= packet.has_size(frames, size) if packet else frames.sizes == size
    return ours


class NumberTally:
    """Finds numbers and copies in a stream's frames that no single source can have sent."""

    def __init__(self) -> None:
        self._last_time_ns: int | None = None
        self._newest_us = 0  # the time stamp of the frame with the highest number so far
        self._disorder_ns = self._jump = self._resent = 0

    def add(
        self,
        frames: StreamFrames,
        in_order: InOrder,
        arrived: Arrivals,
        known: range | None,
    ) -> None:
        """Add the next frames, with those that are not late; `known` has the lowest and highest number before them.

        Unknown capture times are far before all others, and are ignored.
        """
        times_ns, sent_us = frames.times_ns, frames.sent_us
        before_ns = int(times_ns[0]) if self._last_time_ns is None else self._last_time_ns
        if len(arrived.late_places):
            back_ns = -_advance(times_ns, arrived.late_places, before_ns)
            self._disorder_ns = max(self._disorder_ns, int(back_ns[back_ns < _LONGEST_NS].max(initial=0)))
            newest_us = in_order.sent_us_before(arrived.late_places, self._newest_us)
            is_resent = (newest_us > 0) & (sent_us[arrived.late_places] > newest_us)
            self._resent += int(np.count_nonzero(is_resent))
        self._find_jump(times_ns, arrived, known, before_ns)
        self._last_time_ns = int(times_ns[-1])
        if in_order.size:
            self._newest_us = in_order.at(-1).sent_ns // 1000

    def _find_jump(self, times_ns: NDArray[np.int64], arrived: Arrivals, known: range | None, before_ns: int) -> None:
        begins, ends = arrived.ahead_from, arrived.ahead_to
        previous = np.concatenate(([known.stop] if known else begins[:1], ends[:-1]))
        jumps = begins - previous
        if len(jumps) and int(jumps.max()) >= _LEAST_JUMP:
            advance_ns = _advance(times_ns, arrived.ahead_places, before_ns)
            too_fast = jumps[(jumps >= _LEAST_JUMP) & (jumps > advance_ns)]
            self._jump = max(self._jump, int(too_fast.max(initial=0)))
        if len(arrived.late):
            lowest = min([*([known.start] if known else []), *begins[:1].tolist()])
            below = lowest - int(arrived.late.min())
            self._jump = max(self._jump, below if below >= _LEAST_JUMP else 0)

    def check(self, largest_back_ns: int) -> NumberCheck:
        """Return the result; `largest_back_ns` is how far capture times of frames in order go back at most."""
        disorder_ns = self._disorder_ns if self._disorder_ns > largest_back_ns else 0
        return NumberCheck(disorder_ns, self._jump, self._resent)


def _advance(times_ns: NDArray[np.int64], places: NDArray[np.intp], before_ns: int) -> NDArray[np.int64]:
    """Return the time in ns from the capture of each frame's predecessor to its own, for frames at these places."""
    previous = np.where(places > 0, times_ns[places - 1], before_ns)
    advance: NDArray[np.int64] = times_ns[places] - previous
    return advance

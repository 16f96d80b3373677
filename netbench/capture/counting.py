"""Counts a capture: the frames of each stream, and all other frames in the file or pipe."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.arrival_times import ArrivalTimes
from netbench.capture.captured import (
    AcrossInterfaces,
    CaptureCounts,
    ClockCheck,
    Expected,
    InterfaceCapture,
    NumberCheck,
    Span,
    StreamCapture,
)
from netbench.capture.clock_check import (
    SMALLEST_STEP_NS,
    CaptureClock,
    DelayJumps,
    FileOrder,
    InOrder,
    StampSteps,
    are_frozen,
    back_ns,
    is_much,
    run_apart,
)
from netbench.capture.delays import EarlyStamps, OffsetTally, VariationTally
from netbench.capture.distribution import DelayDistribution
from netbench.capture.frames import NO_TIME, FrameBatch, is_one_number, link_name
from netbench.capture.headers import DecodedBatch, StreamFrames, by_cooked_interface, decode, is_decoded, not_decoded
from netbench.capture.number_check import NumberTally
from netbench.capture.pcap import PLAIN_HEADERS_BYTES, TUNNEL_HEADERS_BYTES, CaptureReader, Interface
from netbench.capture.reading import open_file, read_stream
from netbench.capture.sequences import (
    Arrivals,
    Losses,
    ReorderingTracker,
    SequenceTracker,
    arrivals,
    losses_of_all,
    unwrapped,
    without,
)
from netbench.errors import UsageError
from netbench.model.frame_mix import FrameMix
from netbench.model.traffic import PREFIX_LENGTH

_Bounds = tuple[int, int] | tuple[None, None]  # the smallest and the largest of some numbers
_DAY_NS = 86_400 * 10**9
_HOST_BITS = 32 - PREFIX_LENGTH
# The limit without known streams; a capture with more is not of test streams, and memory must be bounded.
MAX_STREAMS = 1024
# Numbers of an unknown stream start at its first number + 2³², which leaves room below for late frames.
_UNKNOWN_NUMBERS = range(1 << 31, 1 << 62)


def analyze_capture(path: Path, expected: Sequence[Expected] = ()) -> CaptureCounts:
    """Count the frames of a pcap or pcapng file in one pass and constant memory.

    With `expected`, whose pairs of addresses must differ, a frame is a stream's when its addresses, size (in a mix:
    that of its number) and magic match, its sequence number was sent, and its time stamp lies within the sending time,
    ± STAMP_TOLERANCE_NS. A frame from another address of the source's network, with an earlier time stamp or none, is
    late from an earlier trial. Every other frame except control and flush frames is foreign. Without `expected`, each
    pair of addresses with pktgen's magic is a stream on each interface, also in tunnels. A truncated file is counted up
    to its end and a damaged one up to the damage. UsageError for an unreadable capture file, or a link type that
    streams cannot have.
    """
    with open_file(path) as file:
        reader = read_stream(file, str(path), PLAIN_HEADERS_BYTES if expected else TUNNEL_HEADERS_BYTES)
        tally = CaptureTally(str(path), expected)
        for batch in reader.batches():
            tally.add(batch)
        return tally.counts(reader)


class _Part(NamedTuple):
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
    def of(cls, sizes: NDArray[np.int64], times_ns: NDArray[np.int64]) -> "_Part":
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

    def timed_without(self, copies: NDArray[np.intp], times_ns: NDArray[np.int64]) -> "_Part":
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


class _SpanTally:
    def __init__(self) -> None:
        self._frames = self._bytes = 0
        self._sizes: _Bounds = (None, None)
        self._times: _Bounds = (None, None)
        self._untimed = self._zeros = 0

    def add(self, part: _Part) -> None:
        self._frames += part.frames
        self._bytes += part.total_bytes
        self._untimed += part.untimed
        self._zeros += part.zeros
        self._sizes = _widened(self._sizes, part.sizes)
        self._times = _widened(self._times, part.times_ns)

    def span(self) -> Span:
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


class _StreamTally:
    def __init__(self, ip_version: int, src_ip: int, dst_ip: int, expected: Expected | None) -> None:
        self._ip_version, self._src_ip, self._dst_ip, self._expected = ip_version, src_ip, dst_ip, expected
        self._stamps_us: _Bounds = (None, None)
        self._possible = expected.sequence if expected else _UNKNOWN_NUMBERS
        self._sequence = SequenceTracker()
        self._reordering = ReorderingTracker()
        self._span = _SpanTally()
        self._arrived = ArrivalTimes()
        self._delays = DelayDistribution()
        self._variation = VariationTally()
        self._clock, self._jumps, self._stamps = CaptureClock(), DelayJumps(), StampSteps()
        self._numbers, self._file_order = NumberTally(), FileOrder()
        self._unstamped = self._invalid_stamps = 0
        self._early = EarlyStamps() if expected and expected.stamped_early else None
        mix = expected.frame_size if expected and isinstance(expected.frame_size, FrameMix) else None
        self._genome = None if mix is None else np.array(mix.genome)
        self._by_size = {size: ArrivalTimes() for size in mix.sizes} if mix else {}

    def add(self, frames: StreamFrames, batch: _Part) -> int:
        """Count the frames of a batch that are this stream's, and return their number."""
        if self._expected:
            frames = frames.where(_is_expected(frames, self._expected))
        frames = frames._replace(sequence=unwrapped(frames.sequence, self._sequence.highest, self._possible))
        if self._expected:
            numbers = self._possible
            frames = frames.where((frames.sequence >= numbers.start) & (frames.sequence < numbers.stop))
        if self._genome is not None:
            frames = frames.where(frames.sizes == self._genome[frames.sequence % len(self._genome)])
        count = len(frames.sequence)
        if count:
            part = batch if count == batch.frames else _Part.of(frames.sizes, frames.times_ns)
            if self._expected:
                stamps_us = int(frames.sent_us.min()), int(frames.sent_us.max())
                self._stamps_us = _widened(self._stamps_us, stamps_us)
            arrived = arrivals(frames.sequence, self._sequence.expected)
            known = None if self._sequence.lowest is None else range(self._sequence.lowest, self._sequence.expected)
            copies = self._sequence.add(arrived)
            self._span.add(part.timed_without(copies, frames.times_ns))
            self._reordering.add(arrived.without(copies) if len(copies) else arrived)
            self._arrived.add(without(frames.times_ns, copies) if len(copies) else frames.times_ns)
            if self._by_size:
                self._add_by_size(without(frames.sizes, copies), without(frames.times_ns, copies))
            if self._expected is None:
                self._add_unknown(frames, part, arrived, copies, known)
            elif self._expected.stamped:
                self._add_delays(frames.sequence, frames.sent_us * 1000, frames.times_ns, copies)
        return count

    def _add_by_size(self, sizes: NDArray[np.int64], times_ns: NDArray[np.int64]) -> None:
        for size, arrived in self._by_size.items():
            arrived.add(times_ns[sizes == size])

    def _add_unknown(
        self, frames: StreamFrames, part: _Part, arrived: Arrivals, copies: NDArray[np.intp], known: range | None
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

    def _add_file_order(self, times_ns: NDArray[np.int64], sent_us: NDArray[np.int64], part: _Part) -> None:
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

        A frame with a time stamp of this trial belongs to it, and its address was corrupted on the path.
        """
        if self._expected is None or not self._expected.stamped:
            return len(frames.sequence)
        return int(np.count_nonzero(frames.sent_us < self._expected.stamps_us.start))

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
        return StreamCapture(
            stream=expected.stream if expected else None,
            src_ip=_text(self._src_ip, self._ip_version),
            dst_ip=_text(self._dst_ip, self._ip_version),
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
        )


def _is_expected(frames: StreamFrames, expected: Expected) -> NDArray[np.bool_]:
    """Return whether size and time stamp are those of the stream; sizes of a mix are checked later by number."""
    stamps = expected.stamps_us
    ours: NDArray[np.bool_] = (frames.sent_us >= stamps.start) & (frames.sent_us < stamps.stop)
    if not isinstance(expected.frame_size, FrameMix):
        ours &= frames.sizes == expected.frame_size
    return ours


class _InterfaceTally:
    """The frames of one interface, and of one direction where frames contain it."""

    def __init__(self) -> None:
        self.span = _SpanTally()
        self._back_ns = self._frames = 0
        self._last_ns: int | None = None
        self._has_streams = False
        self._clock = CaptureClock()

    def check_order(self, times_ns: NDArray[np.int64], *, of_streams: bool) -> None:
        """Add the capture times of the next frames, in the order of the file; `of_streams`: some are a stream's."""
        if not len(times_ns):
            return
        step_back_ns = 0 if self._last_ns is None else self._last_ns - int(times_ns[0])
        self._back_ns = max(self._back_ns, step_back_ns, back_ns(times_ns))
        self._last_ns = int(times_ns[-1])
        self._has_streams |= of_streams
        if not self._has_streams:
            numbers = np.arange(self._frames, self._frames + len(times_ns))
            self._frames += len(times_ns)
            self._clock.add(InOrder(numbers, times_ns, times_ns))

    def capture(self, name: str, interface: Interface) -> InterfaceCapture:
        """Return the counts of the interface."""
        span = self.span.span()
        duration_ns = (span.last_ns or 0) - (span.first_ns or 0)
        return InterfaceCapture(
            name=name,
            link_type=link_name(interface.link_type),
            snap_length=interface.snap_length,
            resolution_ns=interface.resolution_ns,
            span=span,
            back_ns=self._back_ns if is_much(self._back_ns, duration_ns) else 0,
            gap_ns=0 if self._has_streams else self._clock.pause_ns(),
        )


class _StreamKey(NamedTuple):
    """The key of a stream: the interface and direction of its capture, and its addresses."""

    interface: int
    direction: str
    ip_version: int
    src_ip: int
    dst_ip: int


class CaptureTally:
    """Counts a whole capture batch by batch, in constant memory; `name` is for messages.

    Without expected streams, frames are counted separately by interface, and in any tunnel.
    """

    def __init__(self, name: str, expected: Sequence[Expected]) -> None:
        """ValueError when two of the streams have the same addresses."""
        self._name = name
        self._only_expected = bool(expected)
        self._streams: dict[_StreamKey, _StreamTally] = {}
        for stream in expected:
            key = _key(stream)
            if key in self._streams:
                raise ValueError(f"two streams from {stream.src_ip} to {stream.dst_ip} cannot be told apart")
            self._streams[key] = _StreamTally(*key[2:], stream)
        self._by_source_network = {(key.src_ip >> _HOST_BITS, key.dst_ip): self._streams[key] for key in self._streams}
        self._span = _SpanTally()
        self._late: Counter[str] = Counter()
        self._ours = self._control = self._flush = self._too_short = self._odd = 0
        self._clock = OffsetTally()
        self._interfaces: dict[tuple[int, str], _InterfaceTally] = {}
        self._others: Counter[str] = Counter()
        self._undecoded: Counter[str] = Counter()
        self._encapsulated: Counter[tuple[str, ...]] = Counter()

    @property
    def flush_frames(self) -> int:
        """The number of flush frames so far, sent by the sink to push out the frames before them."""
        return self._flush

    @property
    def late_from(self) -> Counter[str]:
        """The number of frames of earlier trials so far, by source address."""
        return self._late

    def add(self, batch: FrameBatch) -> None:
        """Count the frames of a batch; UsageError for too many streams, or an unexpected link type."""
        if not self._only_expected:
            for direction, these in by_cooked_interface(batch):
                self._add_of_interface(these, direction)
            return
        if not is_decoded(batch.link_type, deep=False):
            raise UsageError(
                f"{self._name}: link type {batch.link_type} ({link_name(batch.link_type)}); "
                "streams are captured as Ethernet or Linux cooked frames"
            )
        decoded = decode(batch)
        part = self._add_decoded(batch, decoded)
        for frames in decoded.streams:
            stream = self._streams.get(_StreamKey(0, "", *frames[:3]))
            if stream:
                self._ours += stream.add(frames, part)
            elif now := self._by_source_network.get((frames.src_ip >> _HOST_BITS, frames.dst_ip)):
                self._late[_text(frames.src_ip)] += now.count_late(frames)

    def _add_of_interface(self, batch: FrameBatch, direction: str) -> None:
        decoded = decode(batch, deep=True) if is_decoded(batch.link_type, deep=True) else not_decoded(batch)
        part = self._add_decoded(batch, decoded)
        self._others.update(decoded.others)
        self._undecoded.update(decoded.undecoded)
        self._encapsulated.update(decoded.encapsulated)
        place = batch.interface, direction
        if place not in self._interfaces and len(self._interfaces) == MAX_STREAMS:
            raise UsageError(f"{self._name}: more than {MAX_STREAMS} interfaces; make one file of each first")
        interface = self._interfaces.setdefault(place, _InterfaceTally())
        interface.span.add(part)
        for frames in decoded.streams:
            self._ours += self._stream(_StreamKey(*place, *frames[:3])).add(frames, part)
        times_ns = batch.times_ns if part.is_timed else batch.times_ns[is_known(batch.times_ns)]
        interface.check_order(times_ns, of_streams=bool(decoded.streams))

    def _add_decoded(self, batch: FrameBatch, decoded: DecodedBatch) -> _Part:
        part = _Part.of(decoded.sizes, batch.times_ns)
        self._span.add(part)
        self._flush += decoded.flush_frames
        self._control += decoded.control_frames
        self._clock.add(decoded.stamped_flush)
        self._too_short += decoded.too_short_frames
        self._odd += _odd_lengths(batch)
        return part

    def _stream(self, key: _StreamKey) -> _StreamTally:
        if key not in self._streams:
            if len(self._streams) == MAX_STREAMS:
                raise UsageError(
                    f"{self._name}: pktgen frames of more than {MAX_STREAMS} pairs of addresses; "
                    "filter some out first, for example by `host ADDRESS`, pcap-filter(7)"
                )
            self._streams[key] = _StreamTally(*key[2:], None)
        return self._streams[key]

    def _across_interfaces(self) -> Iterator[AcrossInterfaces]:
        """Yield streams that were captured on several interfaces."""
        by_addresses: dict[tuple[int, int, int], list[_StreamTally]] = {}
        for key, stream in self._streams.items():
            by_addresses.setdefault(key[2:], []).append(stream)
        for (ip_version, src_ip, dst_ip), streams in by_addresses.items():
            if len(streams) > 1:
                numbers = [stream.numbers for stream in streams]
                losses = losses_of_all(numbers)
                stop = max(track.expected for track in numbers)
                received = stop - min(track.lowest for track in numbers if track.lowest is not None) - losses.missing
                addresses = _text(src_ip, ip_version), _text(dst_ip, ip_version)
                yield AcrossInterfaces(*addresses, len(streams), received, losses.missing)

    def settle(self, expected: Sequence[Expected]) -> bool:
        """Replace the expected streams by their final description; return False when a counted frame does not match.

        Then `counts` are unusable: with the final description from the start, that frame would have been foreign.
        """
        fits = [self._streams[_key(stream)].settle(stream) for stream in expected]
        return all(fits)

    def counts(self, reader: CaptureReader) -> CaptureCounts:
        """Return all counts, once `reader` has yielded all its batches."""
        span = self._span.span()
        ending = reader.ending
        places = sorted(self._interfaces)
        used = [reader.interfaces[number] for number, _ in places] or reader.interfaces
        return CaptureCounts(
            flavour=reader.flavour,
            link_type=", ".join(dict.fromkeys(link_name(interface.link_type) for interface in used)),
            snap_length=min(
                (interface.snap_length for interface in used if interface.snap_length is not None), default=None
            ),
            span=span,
            foreign_frames=span.frames - self._ours - self._late.total() - self._control - self._flush,
            late_from=dict(+self._late),
            control_frames=self._control,
            flush_frames=self._flush,
            clock_offset=self._clock.offset(),
            too_short_frames=self._too_short,
            odd_length_frames=self._odd,
            leftover_bytes=ending.leftover_bytes,
            damaged_at=ending.damaged_at,
            damage=ending.damage,
            streams=tuple(
                stream.capture(places.index(key[:2]) if places else 0) for key, stream in self._streams.items()
            ),
            interfaces=tuple(
                self._interfaces[place].capture(
                    _interface_name(place[0], reader.interfaces, place[1]),
                    reader.interfaces[place[0]],
                )
                for place in places
            ),
            across_interfaces=tuple(self._across_interfaces()),
            other_protocols=dict(+self._others),
            undecoded=dict(+self._undecoded),
            encapsulated=dict(self._encapsulated),
            oddities=reader.oddities,
        )


def _interface_name(number: int, interfaces: Sequence[Interface], direction: str) -> str:
    """Return the name of an interface in the file, with its number if ambiguous, and the direction of frames."""
    name = interfaces[number].name
    if len(interfaces) > 1 and (not name or [interface.name for interface in interfaces].count(name) > 1):
        name = f"{number} {name}".strip()
    return ", ".join(filter(None, (name, direction)))


def _odd_lengths(batch: FrameBatch) -> int:
    """Return how many frames were captured neither completely nor up to the snap length."""
    if isinstance(batch.captured, int) and is_one_number(batch.original):
        is_odd = batch.captured < int(batch.original[0]) and batch.captured != batch.snap_length
        return len(batch.original) if is_odd else 0
    return int(np.count_nonzero((batch.captured < batch.original) & (batch.captured != batch.snap_length)))


def _key(stream: Expected) -> _StreamKey:
    return _StreamKey(0, "", 4, _number(stream.src_ip), _number(stream.dst_ip))


def _number(address: str) -> int:
    """Return an IPv4 address as a number; loading the ipaddress module would cost more than its use here."""
    return int.from_bytes(bytes(map(int, address.split("."))))


def _text(address: int, ip_version: int = 4) -> str:
    if ip_version == 4:
        return ".".join(map(str, address.to_bytes(4)))
    import ipaddress  # noqa: PLC0415 - takes longer to load than a short capture to count, and is rarely needed

    return str(ipaddress.IPv6Address(address))

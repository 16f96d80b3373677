"""A capture to counts: what arrived of each stream, and everything else that is in the file or came down the pipe."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.arrival_times import ArrivalTimes
from netbench.capture.captured import CaptureCounts, Expected, Span, StreamCapture
from netbench.capture.clock_offset import OffsetTally
from netbench.capture.delays import EarlyStamps, VariationTally
from netbench.capture.distribution import Distribution
from netbench.capture.headers import LINKS, PairFrames, decode
from netbench.capture.pcap import FrameBatch, PcapReader, is_one_number
from netbench.capture.reading import open_file, read_stream
from netbench.capture.sequences import Losses, ReorderingTracker, SequenceTracker, arrivals, unwrapped, without
from netbench.errors import UsageError
from netbench.model.frame_mix import FrameMix
from netbench.model.traffic import PREFIX_LENGTH

_HOST_BITS = 32 - PREFIX_LENGTH
# Without a known set of streams; a capture with more is not one of streams, and memory stays bounded.
MAX_STREAMS = 1024
# Of a stream of which nothing is known: its first number + 2³², so that there is room below for those that come late.
_UNKNOWN_NUMBERS = range(1 << 31, 1 << 62)

_LINK_NAMES = {
    0: "BSD loopback",
    12: "raw IP",
    101: "raw IP",
    105: "IEEE 802.11",
    127: "IEEE 802.11 radiotap",
    192: "PPI",
    228: "raw IPv4",
    249: "USBPcap",
}


def analyze_capture(path: Path, expected: Sequence[Expected] = ()) -> CaptureCounts:
    """Count the frames of a pcap file in one pass and constant memory.

    With `expected`, whose pairs of addresses must differ, a frame is a stream's when its addresses, size (in a mix: the
    one of its number) and magic match, its sequence number was sent and its time stamp lies within the time of sending,
    give or take STAMP_TOLERANCE_NS. One from another address of the source's network, and stamped earlier if at all, is
    late from an earlier trial; every other one but control and flush frames is foreign. Without, each pair of
    addresses with pktgen's magic is a stream. A truncated file is counted up to its end and a damaged one
    up to the damage. UsageError: no readable capture file, or one of another link type.
    """
    with open_file(path) as file:
        return count_frames(read_stream(file, str(path)), str(path), expected)


def count_frames(reader: PcapReader, name: str, expected: Sequence[Expected] = ()) -> CaptureCounts:
    """The same of all that a reader yields; `name` is for messages."""
    tally = CaptureTally(name, expected)
    for batch in reader.batches():
        tally.add(batch)
    return tally.counts(reader)


class _Part(NamedTuple):
    """Of some frames, of which there is one at least: what a Span tells of them."""

    frames: int
    total_bytes: int
    sizes: tuple[int, int]  # smallest and largest
    times_ns: tuple[int, int]  # earliest and latest

    @classmethod
    def of(cls, sizes: NDArray[np.int64], times_ns: NDArray[np.int64]) -> "_Part":
        times = int(times_ns.min()), int(times_ns.max())
        if is_one_number(sizes):
            size = int(sizes[0])
            return cls(len(sizes), size * len(sizes), (size, size), times)
        return cls(len(sizes), int(sizes.sum()), (int(sizes.min()), int(sizes.max())), times)


class _SpanTally:
    def __init__(self) -> None:
        self._frames = self._bytes = 0
        self._sizes: tuple[int, int] | tuple[None, None] = (None, None)
        self._times: tuple[int, int] | tuple[None, None] = (None, None)

    def add(self, part: _Part) -> None:
        self._frames += part.frames
        self._bytes += part.total_bytes
        self._sizes = _widened(self._sizes, part.sizes)
        self._times = _widened(self._times, part.times_ns)

    def span(self) -> Span:
        return Span(self._frames, self._bytes, *self._sizes, *self._times)


def _widened(known: tuple[int, int] | tuple[None, None], more: tuple[int, int]) -> tuple[int, int]:
    low, high = known
    return more if low is None or high is None else (min(low, more[0]), max(high, more[1]))


class _StreamTally:
    def __init__(self, src_ip: int, dst_ip: int, expected: Expected | None) -> None:
        self._src_ip, self._dst_ip, self._expected = src_ip, dst_ip, expected
        self._stamps_us: tuple[int, int] | tuple[None, None] = (None, None)  # earliest and latest
        self._possible = expected.sequence if expected else _UNKNOWN_NUMBERS
        self._sequence = SequenceTracker()
        self._reordering = ReorderingTracker()
        self._span = _SpanTally()
        self._arrived = ArrivalTimes()
        self._delays = Distribution()
        self._variation = VariationTally()
        self._early = EarlyStamps() if expected and expected.stamped_early else None
        mix = expected.frame_size if expected and isinstance(expected.frame_size, FrameMix) else None
        self._genome = None if mix is None else np.array(mix.genome)
        self._by_size = {size: ArrivalTimes() for size in mix.sizes} if mix else {}

    def add(self, frames: PairFrames, batch: _Part) -> int:
        """Count the frames that are this stream's, of those of a batch; how many they are."""
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
            self._span.add(batch if count == batch.frames else _Part.of(frames.sizes, frames.times_ns))
            if self._expected:
                stamps_us = int(frames.sent_us.min()), int(frames.sent_us.max())
                self._stamps_us = _widened(self._stamps_us, stamps_us)
            arrived = arrivals(frames.sequence, self._sequence.expected)
            copies = self._sequence.add(arrived)
            self._reordering.add(arrived.without(copies) if len(copies) else arrived)
            self._arrived.add(without(frames.times_ns, copies) if len(copies) else frames.times_ns)
            if self._by_size:
                self._add_by_size(without(frames.sizes, copies), without(frames.times_ns, copies))
            if self._expected is None or self._expected.stamped:
                self._add_delays(frames.sequence, frames.sent_us * 1000, frames.times_ns, copies)
        return count

    def _add_by_size(self, sizes: NDArray[np.int64], times_ns: NDArray[np.int64]) -> None:
        for size, arrived in self._by_size.items():
            arrived.add(times_ns[sizes == size])

    def _add_delays(
        self,
        sequence: NDArray[np.int64],
        sent_ns: NDArray[np.int64],
        times_ns: NDArray[np.int64],
        copies: NDArray[np.intp],
    ) -> None:
        """The times of all frames but those that are further copies of what has arrived."""
        if self._early is None:
            delays = times_ns - sent_ns
            if len(copies):
                sequence, delays = without(sequence, copies), without(delays, copies)
            self._delays.add(delays)
        else:
            sequence, delays = self._early.add(
                without(sequence, copies), without(sent_ns, copies), without(times_ns, copies)
            )
            self._delays.add(delays)
            is_known = delays > 0
            sequence, delays = sequence[is_known], delays[is_known]
        self._variation.add(sequence, delays)

    def count_late(self, frames: PairFrames) -> int:
        """How many of these, which bear another address of its source, were sent before it.

        One with a time stamp of this trial is this trial's, and its address was mangled on the way.
        """
        if self._expected is None or not self._expected.stamped:
            return len(frames.sequence)
        return int(np.count_nonzero(frames.sent_us < self._expected.stamps_us.start))

    def settle(self, expected: Expected) -> bool:
        """Take `expected` for what was; False when a frame was counted that is not expected."""
        awaited, sequence = self._expected, self._sequence
        assert awaited
        self._expected = expected
        if (awaited.stamped, awaited.stamped_early) != (expected.stamped, expected.stamped_early):
            return False
        if sequence.lowest is None:
            return True
        numbers = all(number in expected.sequence for number in (sequence.lowest, sequence.highest))
        return numbers and all(stamp in expected.stamps_us for stamp in self._stamps_us)

    def capture(self) -> StreamCapture:
        sequence, expected = self._sequence, self._expected
        losses = Losses(0, 0, 0, (), None)
        lowest, highest = sequence.lowest, sequence.highest
        if expected:
            losses = sequence.losses(expected.sequence.start, expected.sequence.stop)
        elif lowest is not None and highest is not None:
            losses = sequence.losses(lowest, highest + 1)
            in_frame = lowest % (1 << 32)
            lowest, highest = in_frame, highest - lowest + in_frame
        return StreamCapture(
            stream=expected.stream if expected else None,
            src_ip=_text(self._src_ip),
            dst_ip=_text(self._dst_ip),
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
            span=self._span.span(),
            delay=self._delays.spread(),
            ipdv=self._variation.spread(),
            arrived=self._arrived,
            arrived_by_size=self._by_size,
        )


def _is_expected(frames: PairFrames, expected: Expected) -> NDArray[np.bool_]:
    """Whether size and time stamp are those of the stream; of a mix, its size by its number is looked at later."""
    stamps = expected.stamps_us
    ours: NDArray[np.bool_] = (frames.sent_us >= stamps.start) & (frames.sent_us < stamps.stop)
    if not isinstance(expected.frame_size, FrameMix):
        ours &= frames.sizes == expected.frame_size
    return ours


class CaptureTally:
    """Counts over a whole capture, which `add` takes batch by batch in constant memory; `name` is for messages."""

    def __init__(self, name: str, expected: Sequence[Expected]) -> None:
        """ValueError when two of the streams have the same addresses."""
        self._name = name
        self._only_expected = bool(expected)
        self._streams: dict[tuple[int, int], _StreamTally] = {}
        for stream in expected:
            pair = _pair(stream)
            if pair in self._streams:
                raise ValueError(f"two streams from {stream.src_ip} to {stream.dst_ip} cannot be told apart")
            self._streams[pair] = _StreamTally(*pair, stream)
        self._by_source_network = {
            (src_ip >> _HOST_BITS, dst_ip): self._streams[src_ip, dst_ip] for src_ip, dst_ip in self._streams
        }
        self._span = _SpanTally()
        self._late: Counter[str] = Counter()
        self._ours = self._control = self._flush = self._too_short = self._odd = 0
        self._clock = OffsetTally()

    @property
    def flush_frames(self) -> int:
        """How many frames so far were the sink's own, sent to push out those before them."""
        return self._flush

    @property
    def late_from(self) -> Counter[str]:
        """How many frames so far were of earlier trials, by their source's address."""
        return self._late

    def add(self, batch: FrameBatch) -> None:
        """Count the frames of a batch; UsageError for one of another link type, or of too many streams."""
        if batch.link_type not in LINKS:
            name = _LINK_NAMES.get(batch.link_type, "see draft-ietf-opsawg-pcaplinktype")
            raise UsageError(
                f"{self._name}: link type {batch.link_type} ({name}); "
                "only Ethernet and Linux cooked captures can be read"
            )
        decoded = decode(batch)
        part = _Part.of(decoded.sizes, batch.times_ns)
        self._span.add(part)
        self._flush += decoded.flush_frames
        self._control += decoded.control_frames
        self._clock.add(decoded.stamped_flush)
        self._too_short += decoded.too_short_frames
        self._odd += _odd_lengths(batch)
        for frames in decoded.pairs:
            stream = self._stream(frames.src_ip, frames.dst_ip)
            if stream:
                self._ours += stream.add(frames, part)
            elif now := self._by_source_network.get((frames.src_ip >> _HOST_BITS, frames.dst_ip)):
                self._late[_text(frames.src_ip)] += now.count_late(frames)

    def _stream(self, src_ip: int, dst_ip: int) -> _StreamTally | None:
        pair = src_ip, dst_ip
        if pair not in self._streams and not self._only_expected:
            if len(self._streams) == MAX_STREAMS:
                raise UsageError(
                    f"{self._name}: pktgen frames of more than {MAX_STREAMS} pairs of addresses; "
                    "filter some out first, for example by `host ADDRESS`, pcap-filter(7)"
                )
            self._streams[pair] = _StreamTally(src_ip, dst_ip, None)
        return self._streams.get(pair)

    def settle(self, expected: Sequence[Expected]) -> bool:
        """Take these for the expected streams, now that all is known of them; False when another frame was counted.

        Then `counts` are of no use: with all of it known beforehand that frame would have been a foreign one.
        """
        fits = [self._streams[_pair(stream)].settle(stream) for stream in expected]
        return all(fits)

    def counts(self, reader: PcapReader) -> CaptureCounts:
        """All counts, once `reader` has yielded all its batches."""
        span = self._span.span()
        ending = reader.ending
        return CaptureCounts(
            flavour=reader.flavour,
            link_type=_link_name(reader.link_type),
            snap_length=reader.snap_length,
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
            streams=tuple(stream.capture() for stream in self._streams.values()),
        )


def _odd_lengths(batch: FrameBatch) -> int:
    """How many frames were captured neither whole nor up to the snap length."""
    if isinstance(batch.captured, int) and is_one_number(batch.original):
        is_odd = batch.captured != min(int(batch.original[0]), batch.snap_length)
        return len(batch.original) if is_odd else 0
    return int(np.count_nonzero(batch.captured != np.minimum(batch.original, batch.snap_length)))


def _pair(stream: Expected) -> tuple[int, int]:
    return _number(stream.src_ip), _number(stream.dst_ip)


def _number(address: str) -> int:
    """An IPv4 address as a number; the ipaddress module would cost more to load than its use here."""
    return int.from_bytes(bytes(map(int, address.split("."))))


def _text(address: int) -> str:
    return ".".join(map(str, address.to_bytes(4)))


def _link_name(number: int) -> str:
    return LINKS[number].name if number in LINKS else _LINK_NAMES.get(number, f"link type {number}")

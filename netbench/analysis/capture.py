"""A capture file to counts: what arrived of each stream, and everything else that is in the file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from netbench.analysis.delays import Delay, DelayTally
from netbench.analysis.early_stamps import EarlyStamps
from netbench.analysis.frames import LINKS, PairFrames, decode
from netbench.analysis.pcapfile import open_capture
from netbench.analysis.reading import FrameBatch, Reader
from netbench.analysis.sequence import Losses, SequenceTracker
from netbench.errors import UsageError
from netbench.model.units import WIRE_OVERHEAD_BYTES

# How far a frame's time stamp may lie outside the time its source says it sent in.
STAMP_TOLERANCE_NS = 2_000_000
# Without a known set of streams; a capture with more is not one of streams, and memory stays bounded.
MAX_STREAMS = 1024

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


@dataclass(frozen=True, slots=True)
class Expected:
    """What a trial knows about one stream: which frames can be its own.

    `frame_size` is in bytes with FCS. Sequence numbers are `sent_frames` consecutive ones from `first_sequence`
    on. The times are CLOCK_REALTIME of the source in ns, which stamped every frame between them, or with 0;
    early stamps are those of EarlyStamps.
    """

    stream: str
    src_ip: str
    dst_ip: str
    frame_size: int
    sent_frames: int
    sent_from_ns: int
    sent_until_ns: int
    first_sequence: int = 0
    stamped: bool = True
    stamped_early: bool = False

    @property
    def sequence(self) -> range:
        """The sequence numbers that were sent."""
        return range(self.first_sequence, self.first_sequence + self.sent_frames)


@dataclass(frozen=True, slots=True)
class Rate:
    """Frames per second, and Mbit/s with (L1) and without (L2) the 20 bytes of preamble and gap."""

    fps: float
    l1_mbps: float
    l2_mbps: float


@dataclass(frozen=True, slots=True)
class Span:
    """Some frames of a file: how many, how large with FCS, and when captured; None for what is not known."""

    frames: int
    total_bytes: int
    smallest: int | None
    largest: int | None
    first_ns: int | None  # earliest and latest capture time, since 1970
    last_ns: int | None

    def rate(self, frames: int) -> Rate | None:
        """Rate of `frames` frames of this mean size, captured in this time; None where the time is unknown.

        (n - 1) ÷ (last - first), as n frames have n - 1 intervals between them.
        """
        if self.first_ns is None or self.last_ns is None or self.last_ns <= self.first_ns:
            return None
        fps = (frames - 1) / (self.last_ns - self.first_ns) * 1e9
        mean_bytes = self.total_bytes / self.frames
        return Rate(fps, fps * 8 * (mean_bytes + WIRE_OVERHEAD_BYTES) / 1e6, fps * 8 * mean_bytes / 1e6)


@dataclass(frozen=True, slots=True)
class StreamCapture:
    """What arrived of one stream.

    `received` counts distinct sequence numbers and `duplicates` further copies, so that `span.frames` is
    their sum. `reordered` follows RFC 4737, section 3.3. `missing` and the loss runs lie within
    the numbers sent for an expected stream, else between the lowest and the highest number seen.
    """

    stream: str | None
    src_ip: str
    dst_ip: str
    received: int
    duplicates: int
    reordered: int
    missing: int
    loss_runs: int
    longest_loss_run: int
    min_seq: int | None
    max_seq: int | None
    span: Span
    delay: Delay | None

    @property
    def first_ns(self) -> int | None:
        """Earliest capture time, since 1970."""
        return self.span.first_ns

    @property
    def last_ns(self) -> int | None:
        """Latest capture time, since 1970."""
        return self.span.last_ns

    @property
    def rate(self) -> Rate | None:
        """Rate of the distinct frames between the first and the last one."""
        return self.span.rate(self.received)


@dataclass(frozen=True, slots=True)
class CaptureCounts:
    """What a capture file holds. Every frame of the file is a stream's, foreign, or a flush frame.

    `too_short_frames` are those foreign ones whose captured bytes end before a pktgen header could.
    `odd_length_frames` were captured neither whole nor up to the snap length, which a capture tool does
    not do: another tool cut them, or the file is damaged. `leftover_bytes` follow the last whole frame
    of a truncated file. From `damaged_at` on, a byte offset, the file makes no sense (`damage` says
    why) and was not read; counts are those of the frames before.
    """

    flavour: str
    link_types: tuple[str, ...]
    snap_length: int | None
    span: Span
    foreign_frames: int
    flush_frames: int
    too_short_frames: int
    odd_length_frames: int
    leftover_bytes: int
    damaged_at: int | None
    damage: str
    unknown_blocks: Mapping[int, int]
    capture_dropped_frames: int | None
    streams: tuple[StreamCapture, ...]

    @property
    def frames(self) -> int:
        """All whole frames of the file."""
        return self.span.frames

    @property
    def pktgen_frames(self) -> int:
        """Frames of all streams, every copy counted."""
        return sum(stream.span.frames for stream in self.streams)

    @property
    def truncated(self) -> bool:
        """Whether the file ends within a frame."""
        return self.leftover_bytes > 0


def analyze_capture(path: Path, expected: Sequence[Expected] = ()) -> CaptureCounts:
    """Count the frames of a capture file in one pass and constant memory.

    With `expected`, whose pairs of addresses must differ, a frame is a stream's when its addresses, size
    and magic match, its sequence number was sent and its time stamp lies within the time of sending,
    give or take STAMP_TOLERANCE_NS; every other one but the flush frames is foreign. Without, each pair of
    addresses with pktgen's magic is a stream. A truncated file is counted up to its end and a damaged one
    up to the damage. UsageError: no readable capture file, or one of another link type.
    """
    with open_capture(path) as reader:
        tally = _Tally(path, expected)
        for batch in reader.batches():
            tally.add(batch)
        return tally.counts(reader)


class _SpanTally:
    def __init__(self) -> None:
        self._frames = self._bytes = 0
        self._smallest: int | None = None
        self._largest: int | None = None
        self._first: int | None = None
        self._last: int | None = None

    def add(self, sizes: NDArray[np.int64], times_ns: NDArray[np.int64] | None) -> None:
        self._frames += len(sizes)
        self._bytes += int(sizes.sum())
        self._smallest, self._largest = _widen(self._smallest, self._largest, sizes)
        if times_ns is not None:
            self._first, self._last = _widen(self._first, self._last, times_ns)

    def span(self) -> Span:
        return Span(self._frames, self._bytes, self._smallest, self._largest, self._first, self._last)


def _widen(low: int | None, high: int | None, values: NDArray[np.int64]) -> tuple[int, int]:
    least, most = int(values.min()), int(values.max())
    return least if low is None else min(low, least), most if high is None else max(high, most)


class _StreamTally:
    def __init__(self, src_ip: int, dst_ip: int, expected: Expected | None) -> None:
        self._src_ip, self._dst_ip, self._expected = src_ip, dst_ip, expected
        self._sequence = SequenceTracker()
        self._span = _SpanTally()
        self._delays_seen = DelayTally()
        self._early = EarlyStamps() if expected and expected.stamped_early else None

    def add(self, frames: PairFrames) -> int:
        """Count the frames that are this stream's; how many they are."""
        if self._expected:
            frames = frames.where(_is_expected(frames, self._expected))
        count = len(frames.sequence)
        if count:
            self._sequence.add(frames.sequence)
            self._span.add(frames.sizes, frames.times_ns)
            if frames.times_ns is not None and (self._expected is None or self._expected.stamped):
                self._delays_seen.add(self._delays(frames, frames.times_ns))
        return count

    def _delays(self, frames: PairFrames, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._early is not None:
            return self._early.add(frames.sequence, frames.sent_us, times_ns)
        return times_ns - frames.sent_us * 1000

    def capture(self) -> StreamCapture:
        sequence, expected = self._sequence, self._expected
        losses = Losses(0, 0, 0)
        if expected:
            losses = sequence.losses(expected.sequence.start, expected.sequence.stop)
        elif sequence.lowest is not None and sequence.highest is not None:
            losses = sequence.losses(sequence.lowest, sequence.highest + 1)
        return StreamCapture(
            stream=expected.stream if expected else None,
            src_ip=_text(self._src_ip),
            dst_ip=_text(self._dst_ip),
            received=sequence.distinct,
            duplicates=sequence.duplicates,
            reordered=sequence.reordered,
            missing=losses.missing,
            loss_runs=losses.runs,
            longest_loss_run=losses.longest_run,
            min_seq=sequence.lowest,
            max_seq=sequence.highest,
            span=self._span.span(),
            delay=self._delays_seen.delay(),
        )


def _is_expected(frames: PairFrames, expected: Expected) -> NDArray[np.bool_]:
    ours: NDArray[np.bool_] = frames.sizes == expected.frame_size
    ours &= (frames.sequence >= expected.sequence.start) & (frames.sequence < expected.sequence.stop)
    if not expected.stamped:
        ours &= frames.sent_us == 0
        return ours
    earliest = (expected.sent_from_ns - STAMP_TOLERANCE_NS) // 1000
    latest = (expected.sent_until_ns + STAMP_TOLERANCE_NS) // 1000
    ours &= (frames.sent_us >= earliest) & (frames.sent_us <= latest)
    return ours


class _Tally:
    """Counts over the whole file."""

    def __init__(self, path: Path, expected: Sequence[Expected]) -> None:
        self._path = path
        self._only_expected = bool(expected)
        self._streams: dict[tuple[int, int], _StreamTally] = {}
        for stream in expected:
            pair = _number(stream.src_ip), _number(stream.dst_ip)
            if pair in self._streams:
                raise ValueError(f"two streams from {stream.src_ip} to {stream.dst_ip} cannot be told apart")
            self._streams[pair] = _StreamTally(*pair, stream)
        self._span = _SpanTally()
        self._ours = self._flush = self._too_short = self._odd = 0

    def add(self, batch: FrameBatch) -> None:
        if batch.link_type not in LINKS:
            name = _LINK_NAMES.get(batch.link_type, "see tcpdump.org/linktypes.html")
            raise UsageError(
                f"{self._path}: link type {batch.link_type} ({name}); "
                "only Ethernet and Linux cooked captures can be read"
            )
        decoded = decode(batch)
        self._span.add(decoded.sizes, batch.times_ns)
        self._flush += decoded.flush_frames
        self._too_short += decoded.too_short_frames
        self._odd += int(np.count_nonzero(batch.captured != np.minimum(batch.original, batch.snap_length)))
        for frames in decoded.pairs:
            stream = self._stream(frames.src_ip, frames.dst_ip)
            if stream:
                self._ours += stream.add(frames)

    def _stream(self, src_ip: int, dst_ip: int) -> _StreamTally | None:
        pair = src_ip, dst_ip
        if pair not in self._streams and not self._only_expected:
            if len(self._streams) == MAX_STREAMS:
                raise UsageError(
                    f"{self._path}: pktgen frames of more than {MAX_STREAMS} pairs of addresses; "
                    "filter some out first, for example with tcpdump -r FILE -w FEWER host ADDRESS"
                )
            self._streams[pair] = _StreamTally(src_ip, dst_ip, None)
        return self._streams.get(pair)

    def counts(self, reader: Reader) -> CaptureCounts:
        span = self._span.span()
        ending = reader.ending
        return CaptureCounts(
            flavour=reader.flavour,
            link_types=tuple(_link_name(number) for number in reader.link_types),
            snap_length=reader.snap_length,
            span=span,
            foreign_frames=span.frames - self._ours - self._flush,
            flush_frames=self._flush,
            too_short_frames=self._too_short,
            odd_length_frames=self._odd,
            leftover_bytes=ending.leftover_bytes,
            damaged_at=ending.damaged_at,
            damage=ending.damage,
            unknown_blocks=reader.unknown_blocks,
            capture_dropped_frames=reader.dropped,
            streams=tuple(stream.capture() for stream in self._streams.values()),
        )


def _number(address: str) -> int:
    """An IPv4 address as a number; the ipaddress module would cost more to load than its use here."""
    return int.from_bytes(bytes(map(int, address.split("."))))


def _text(address: int) -> str:
    return ".".join(map(str, address.to_bytes(4)))


def _link_name(number: int) -> str:
    return LINKS[number].name if number in LINKS else _LINK_NAMES.get(number, f"link type {number}")

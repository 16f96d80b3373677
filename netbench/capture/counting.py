"""Counts a capture: the frames of each stream, and all other frames in the file or pipe."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.capture_counts import (
    AcrossInterfaces,
    CaptureCounts,
    Expected,
    InterfaceCapture,
    StreamCapture,
)
from netbench.capture.clock_check import (
    CaptureClock,
    InOrder,
    back_ns,
    is_much,
)
from netbench.capture.delay_variation import OffsetTally
from netbench.capture.frames import LINKS, FrameBatch, LinkHeader, address_text, is_one_number, link_name
from netbench.capture.headers import DecodedBatch, StreamsBy, by_cooked_interface, decode, is_decoded, not_decoded
from netbench.capture.packet_decoder import decode_described, least_snap_length
from netbench.capture.pcap import PLAIN_HEADERS_BYTES, TUNNEL_HEADERS_BYTES, CaptureReader, Interface
from netbench.capture.reading import open_file, read_stream
from netbench.capture.sequences import (
    losses_of_all,
)
from netbench.capture.stream_tally import SpanPart, SpanTally, StreamTally, is_known
from netbench.errors import UsageError
from netbench.model.frame_template import ExpectedHeaders
from netbench.model.traffic import PREFIX_LENGTH

_HOST_BITS = 32 - PREFIX_LENGTH
# The limit without known streams; a capture with more is not of test streams, and memory must be bounded.
MAX_STREAMS = 1024


def analyze_capture(path: Path, expected: Sequence[Expected] = ()) -> CaptureCounts:
    """Count the frames of a pcap or pcapng file in constant memory.

    With `expected`, whose pairs of addresses must differ, a frame is a stream's when its addresses, size (in a mix:
    that of its number) and magic match, its sequence number was sent, and its time stamp lies within the sending time,
    ± STAMP_TOLERANCE_NS. A frame from another address of the source's network, with an earlier time stamp or none, is
    late from an earlier trial. A stream with described headers must be the only one: its frames have the magic where
    these headers imply it, and addresses are not considered. Every other frame except control and flush frames is
    foreign. Without `expected`, each pair of addresses with pktgen's magic is a stream on each interface, also in
    tunnels. If there are more than MAX_STREAMS pairs, or pairs share the numbers of one sequence, addresses vary from
    frame to frame: the file is read again, and streams are the frames with the same destination, if these are too many
    or share numbers as well, with the same source, or all frames. A truncated file is counted up
    to its end and a damaged one up to the damage. UsageError for an unreadable capture file, or a link type that
    streams cannot have.
    """
    best: CaptureCounts | None = None
    for by in StreamsBy:
        try:
            counts = _analyzed(path, expected, by)
        except TooManyStreamsError:
            if best is None and by is StreamsBy.NOTHING:
                raise
            continue
        if best is None or _is_one_sequence(counts, best):
            best = counts
        if expected or not _may_share_sequence(best):
            break
    assert best
    return best


def _may_share_sequence(counts: CaptureCounts) -> bool:
    """Return whether streams of an interface could have parts of one sequence: all lack numbers, and have few."""
    by_interface: dict[int, list[StreamCapture]] = {}
    for stream in counts.streams:
        by_interface.setdefault(stream.interface, []).append(stream)
    return any(_few_numbers(streams) for streams in by_interface.values())


def _few_numbers(streams: Sequence[StreamCapture]) -> bool:
    """Return whether several streams have together no more distinct numbers than lie between their extremes."""
    first = min(stream.min_seq or 0 for stream in streams)
    last = max(stream.max_seq or 0 for stream in streams)
    received = sum(stream.received for stream in streams)
    return len(streams) > 1 and all(stream.missing for stream in streams) and received <= last - first + 1


def _is_one_sequence(joined: CaptureCounts, separate: CaptureCounts) -> bool:
    """Return whether streams that were joined do not have the same numbers, as independent streams would have."""
    duplicates, missing = (
        [sum(getattr(stream, name) for stream in counts.streams) for counts in (joined, separate)]
        for name in ("duplicates", "missing")
    )
    return len(joined.streams) < len(separate.streams) and duplicates[0] == duplicates[1] and missing[0] < missing[1]


def _analyzed(path: Path, expected: Sequence[Expected], by: StreamsBy) -> CaptureCounts:
    with open_file(path) as file:
        reader = read_stream(file, str(path), kept_bytes(expected) if expected else TUNNEL_HEADERS_BYTES)
        tally = CaptureTally(str(path), expected, by)
        for batch in reader.batches():
            tally.add(batch)
        return tally.counts(reader)


class TooManyStreamsError(UsageError):
    """More streams than memory is bounded for: their addresses vary."""


def kept_bytes(expected: Sequence[Expected]) -> int:
    """Return how many bytes of each frame a reader must keep for these streams."""
    needed = (least_snap_length(stream.headers) for stream in expected if stream.headers)
    return min(TUNNEL_HEADERS_BYTES, max(PLAIN_HEADERS_BYTES, *needed, 0))


class _InterfaceTally:
    """The frames of one interface, and of one direction where frames contain it."""

    def __init__(self) -> None:
        self.span = SpanTally()
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

    def __init__(self, name: str, expected: Sequence[Expected], by: StreamsBy = StreamsBy.PAIR) -> None:
        """ValueError when two of the streams have the same addresses, or one of several has described headers."""
        self._name, self._by = name, by
        self._headers = expected[0].headers if expected else None
        if len(expected) > 1 and any(stream.headers for stream in expected):
            raise ValueError(f"{name}: a stream with described headers must be the only one of a capture")
        self._only_expected = bool(expected)
        self._streams: dict[_StreamKey, StreamTally] = {}
        for stream in expected:
            key = _key(stream)
            if key in self._streams:
                raise ValueError(f"two streams from {stream.src_ip} to {stream.dst_ip} have the same addresses")
            self._streams[key] = StreamTally(*key[2:], stream)
        self._by_source_network = {(key.src_ip >> _HOST_BITS, key.dst_ip): self._streams[key] for key in self._streams}
        self._span = SpanTally()
        self._late: Counter[str] = Counter()
        self._late_without_address = 0
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

    @property
    def late_without_address(self) -> int:
        """The number of frames of earlier trials so far whose headers are described."""
        return self._late_without_address

    def prepare(self) -> None:
        """Compute beforehand what would take long at the first frames: up to a second for a million flows."""
        for stream in self._streams.values():
            stream.prepare()

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
        if self._headers:
            self._add_described(batch, self._headers)
            return
        decoded = decode(batch)
        part = self._add_decoded(batch, decoded)
        for frames in decoded.streams:
            stream = self._streams.get(_StreamKey(0, "", *frames[:3]))
            if stream:
                self._ours += stream.add(frames, part)
            elif now := self._by_source_network.get((frames.src_ip >> _HOST_BITS, frames.dst_ip)):
                self._late[address_text(frames.src_ip)] += now.count_late(frames)

    def _add_described(self, batch: FrameBatch, headers: ExpectedHeaders) -> None:
        link = LINKS[batch.link_type]
        if link.header is not LinkHeader.ETHERNET:
            raise UsageError(
                f"{self._name}: a capture of {link.name} frames; frames with described headers are found in captures "
                "of an Ethernet interface only"
            )
        decoded = decode_described(batch, headers)
        part = self._add_decoded(batch, decoded)
        (stream,) = self._streams.values()
        for frames in decoded.streams:
            self._ours += stream.add(frames, part)
            self._late_without_address += stream.count_late(frames)

    def _add_of_interface(self, batch: FrameBatch, direction: str) -> None:
        decoded = (
            decode(batch, deep=True, by=self._by) if is_decoded(batch.link_type, deep=True) else not_decoded(batch)
        )
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

    def _add_decoded(self, batch: FrameBatch, decoded: DecodedBatch) -> SpanPart:
        part = SpanPart.of(decoded.sizes, batch.times_ns)
        self._span.add(part)
        self._flush += decoded.flush_frames
        self._control += decoded.control_frames
        self._clock.add(decoded.stamped_flush)
        self._too_short += decoded.too_short_frames
        self._odd += _odd_lengths(batch)
        return part

    def _stream(self, key: _StreamKey) -> StreamTally:
        if key not in self._streams:
            if len(self._streams) == MAX_STREAMS:
                raise TooManyStreamsError(
                    f"{self._name}: more than {MAX_STREAMS} streams; make one file of each interface first"
                )
            self._streams[key] = StreamTally(*key[2:], None, self._by)
        return self._streams[key]

    def _across_interfaces(self) -> Iterator[AcrossInterfaces]:
        """Yield streams that were captured on several interfaces."""
        by_addresses: dict[tuple[int, int, int], list[StreamTally]] = {}
        for key, stream in self._streams.items():
            by_addresses.setdefault(key[2:], []).append(stream)
        for (ip_version, src_ip, dst_ip), streams in by_addresses.items():
            if len(streams) > 1:
                numbers = [stream.numbers for stream in streams]
                losses = losses_of_all(numbers)
                stop = max(track.expected for track in numbers)
                received = stop - min(track.lowest for track in numbers if track.lowest is not None) - losses.missing
                addresses = (address_text(address, ip_version) for address in (src_ip, dst_ip))
                source, destination = self._by.texts(*addresses)
                yield AcrossInterfaces(source, destination, len(streams), received, losses.missing)

    def settle(self, expected: Sequence[Expected]) -> bool:
        """Replace the expected streams by their final description; return False when a counted frame does not match.

        Then `counts` are unusable: with the final description from the start, that frame would have been foreign.
        """
        fits = [self._streams[_key(stream)].settle(stream) for stream in expected]
        return all(fits)

    def counts(self, reader: CaptureReader) -> CaptureCounts:
        """Return all counts, once `reader` has yielded all its batches."""
        span = self._span.span()
        late = self._late.total() + self._late_without_address
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
            foreign_frames=span.frames - self._ours - late - self._control - self._flush,
            late_from=dict(+self._late),
            late_without_address=self._late_without_address,
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

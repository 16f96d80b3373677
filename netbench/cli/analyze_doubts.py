"""The numbers that `netbench analyze` leaves out because their clocks cannot be trusted, and the warnings instead."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netbench.capture.capture_counts import CaptureCounts, ClockStep, InterfaceCapture, Span, StreamCapture

# Delays from here on are a difference between clocks: no queue delays frames for so long.
_LONGEST_DELAY_NS = 1_000_000_000
# Time stamps in frames have this resolution.
_STAMP_NS = 1000
# The largest error of a time, as a ratio of the time between the first and the last frame.
_RATE_ERROR = 0.01
_MANY_COPIES = 0.05
# A clock with more steps than this, or with a step at every second frame, was not set but runs wrong.
_MOST_STEPS = 16
_FEWEST_COPIES = 10


class Doubt(NamedTuple):
    """A warning with effect, cause and remedy, and the numbers that it replaces.

    `time` means capture times, with duration and rate; `variation` for PDV and IPDV; `order` for reordered frames;
    `loss` for missing frames.
    """

    text: str
    time: bool = False
    delay: bool = False
    variation: bool = False
    order: bool = False
    loss: bool = False


class Doubts:
    """The doubts about a capture, about each of its streams and interfaces."""

    def __init__(self, counts: "CaptureCounts") -> None:
        self._counts = counts
        every = list(_of_file(counts))
        self._of_streams = [every or list(_of_stream(counts, stream)) for stream in counts.streams]
        self._of_interfaces = [
            every or list(self._of_streams_on(number)) or list(_of_interface(interface))
            for number, interface in enumerate(counts.interfaces)
        ]

    def trusts_stream_time(self, number: int) -> bool:
        """Whether capture times of a stream are right, and with them its rate."""
        return not any(doubt.time for doubt in self._of_streams[number])

    def trusts_delay(self, number: int) -> bool:
        """Whether delays of a stream are right."""
        return not any(doubt.delay for doubt in self._of_streams[number])

    def trusts_variation(self, number: int) -> bool:
        """Whether the differences of a stream's delays are right."""
        return not any(doubt.variation for doubt in self._of_streams[number])

    def trusts_order(self, number: int) -> bool:
        """Whether reordered frames of a stream, and their extent, are right."""
        return not any(doubt.order for doubt in self._of_streams[number])

    def trusts_loss(self, number: int) -> bool:
        """Whether missing frames of a stream, and their runs, are right."""
        return not any(doubt.loss for doubt in self._of_streams[number])

    def trusts_loss_across(self, src_ip: str, dst_ip: str) -> bool:
        """Whether missing frames of a stream are right on all interfaces."""
        streams = enumerate(self._counts.streams)
        return all(self.trusts_loss(n) for n, stream in streams if (stream.src_ip, stream.dst_ip) == (src_ip, dst_ip))

    def trusts_interface_time(self, number: int) -> bool:
        """Whether capture times of an interface are right, and with them its rate."""
        return not any(doubt.time for doubt in self._of_interfaces[number])

    def trusts_time(self) -> bool:
        """Whether capture times of all interfaces are right."""
        return all(map(self.trusts_interface_time, range(len(self._of_interfaces))))

    def warnings(self) -> Iterator[str]:
        """Yield the warnings to print, each once."""
        every = [doubt.text for doubts in (*self._of_streams, *self._of_interfaces) for doubt in doubts]
        yield from dict.fromkeys(every)

    def _of_streams_on(self, interface: int) -> Iterator[Doubt]:
        for stream, doubts in zip(self._counts.streams, self._of_streams, strict=True):
            if stream.interface == interface:
                yield from (doubt for doubt in doubts if doubt.time)


def _of_file(counts: "CaptureCounts") -> Iterator[Doubt]:
    invalid = counts.oddities.invalid_fractions
    if invalid:
        yield Doubt(
            f"Times, rates and delays are not stated: {invalid:,} records have a fraction of a second or more. The "
            "file's magic number probably states another unit (microseconds, nanoseconds) than its records have. "
            "Capture again, or correct the magic number.",
            time=True,
            delay=True,
            variation=True,
        )
    if counts.oddities.small_fractions:
        yield Doubt(
            "Times, rates and delays are not stated: no record has a fraction of a second above 999,999, as if each "
            "frame had arrived in the first thousandth of its second. The file's magic number states nanoseconds, its "
            "records probably have microseconds. Capture again, or correct the magic number.",
            time=True,
            delay=True,
            variation=True,
        )


def _of_interface(interface: "InterfaceCapture") -> Iterator[Doubt]:
    span, where = interface.span, f" of interface {interface.name}" if interface.name else ""
    if span.untimed_frames:
        yield Doubt(
            f"The rate{where} is not stated: {_part(span.untimed_frames, span.frames)} have no capture time, or one "
            "beyond the years 1900 to 2262. Capture with a tool that writes times (pcap, or enhanced packet blocks).",
            time=True,
        )
    if interface.back_ns:
        yield Doubt(
            f"Time and rate{where} are not stated: capture times go back by {duration(interface.back_ns)}. The "
            "capture's clock was set, or the frames are not in the order of capture. Sort them (reordercap), or "
            "capture again without a change of the clock.",
            time=True,
        )
    if interface.gap_ns:
        yield Doubt(
            f"Time and rate{where} are not stated: no frame was captured for {duration(interface.gap_ns)}, far longer "
            "than otherwise. The link was idle, or the capture's clock was set forward. Capture without a pause.",
            time=True,
        )
    if _is_coarse(interface, span):
        yield Doubt(
            f"The rate{where} is not stated: capture times have a resolution of {duration(interface.resolution_ns)} "
            "only. Capture with microseconds or nanoseconds.",
            time=True,
        )


def _is_coarse(interface: "InterfaceCapture", span: "Span") -> bool:
    """Return whether the resolution of capture times makes the rate of some frames wrong."""
    if span.first_ns is None or span.last_ns is None or interface.resolution_ns <= _STAMP_NS:
        return False
    return interface.resolution_ns > _RATE_ERROR * (span.last_ns - span.first_ns)


def _of_stream(counts: "CaptureCounts", stream: "StreamCapture") -> Iterator[Doubt]:
    name, clocks, span = stream_name(counts, stream), stream.clocks, stream.span
    if span.untimed_frames:
        yield Doubt(
            f"{name}: the rate is not stated, and delays lack these frames: {_part(span.untimed_frames, span.frames)} "
            "have no capture time, or one beyond the years 1900 to 2262. Capture with a tool that writes times (pcap, "
            "or enhanced packet blocks).",
            time=True,
        )
    if clocks.unstamped:
        yield Doubt(
            f"{name}: {_are_unknown('delays', clocks.unstamped, stream)} {_part(clocks.unstamped, stream.received)} "
            "bear no time stamp. Have the source stamp all frames."
        )
    if clocks.invalid_stamps:
        yield Doubt(
            f"{name}: {_are_unknown('delays', clocks.invalid_stamps, stream)} "
            f"{_part(clocks.invalid_stamps, stream.received)} bear a time stamp with a fraction of a second or more. "
            "Correct the source: the last field of pktgen's header is in microseconds."
        )
    yield from _of_clocks(name, stream)
    interface = counts.interfaces[stream.interface]
    if stream.delay and interface.resolution_ns > _STAMP_NS:
        yield Doubt(
            f"{name}: delays are not stated, because capture times have a resolution of "
            f"{duration(interface.resolution_ns)}. Capture with microseconds or nanoseconds.",
            delay=True,
            variation=True,
        )
    if _is_coarse(interface, span):
        yield Doubt(
            f"{name}: the rate is not stated, because capture times have a resolution of "
            f"{duration(interface.resolution_ns)}. Capture with microseconds or nanoseconds.",
            time=True,
        )
    if span.first_ns is not None and span.first_ns == span.last_ns and span.frames > 1:
        yield Doubt(
            f"{name}: the rate is not stated, because all {span.frames:,} frames have the same capture time. "
            "Capture with a tool that writes times in microseconds or nanoseconds."
        )
    yield from _of_numbers(name, stream)


def _of_numbers(name: str, stream: "StreamCapture") -> Iterator[Doubt]:
    """Yield the doubts about a stream's sequence numbers."""
    numbers, copies = stream.numbers, f"{stream.duplicates:,} of {stream.span.frames:,} frames are further copies"
    if numbers.disorder_ns and stream.reordered:
        yield Doubt(
            f"{name}: reordered frames are not stated, because the file is not in the order of capture: frames behind "
            f"others were captured up to {duration(numbers.disorder_ns)} before these. Sort the file (reordercap).",
            order=True,
        )
    if numbers.jump:
        yield Doubt(
            f"{name}: missing and reordered frames are not stated, because sequence numbers jump by {numbers.jump:,} "
            "in less time than it takes to send so many. A number was damaged on the way, or the source began anew. "
            "Filter the frames with other numbers out.",
            order=True,
            loss=True,
        )
    if numbers.resent >= max(_FEWEST_COPIES, (stream.duplicates + stream.reordered) / 2):
        yield Doubt(
            f"{name}: missing and reordered frames are not stated, and duplicates and the rate may be wrong, because "
            f"{numbers.resent:,} frames were sent after frames with higher numbers: the source began anew, or several "
            "sources use these addresses. Capture each of them alone.",
            order=True,
            loss=True,
        )
    elif stream.duplicates >= max(_FEWEST_COPIES, _MANY_COPIES * stream.received):
        yield Doubt(
            f"{name}: {copies}. If the file was merged from captures of several interfaces, or has a frame before and "
            "after a VLAN tag was added, these are the same frames again; if several sources use these addresses, they "
            "are others, and missing and reordered frames and the rate are wrong. Analyze the file of each interface, "
            "and each source, alone."
        )


def _of_clocks(name: str, stream: "StreamCapture") -> Iterator[Doubt]:
    """Yield the doubts about a stream's clocks: first the capture's clock, then the time stamps."""
    of_capture = list(_of_capture_clock(name, stream))
    yield from of_capture
    if any(doubt.delay for doubt in of_capture):
        return
    clocks = stream.clocks
    if clocks.frozen_stamps or clocks.stamp_resolution_ns:
        how = (
            f"advance only every {duration(clocks.stamp_resolution_ns)}"
            if clocks.stamp_resolution_ns
            else "do not advance"
        )
        yield Doubt(
            f"{name}: delays are not stated, because time stamps {how} while frames arrive. Have the source stamp each "
            "frame when it is sent, in microseconds.",
            delay=True,
            variation=True,
        )
    elif steps := clocks.steps_of("source"):
        yield Doubt(
            f"{name}: delays are not stated, because the source's clock {_was_set(steps)}. Capture again without a "
            "change of the clock.",
            delay=True,
            variation=True,
        )
    elif stream.delay and (stream.delay.smallest_ns or 0) < 0:
        yield Doubt(
            f"{name}: the delay is not stated, because frames were captured before they were sent: source and sink do "
            "not share a clock. Capture on the source's machine, or synchronise both clocks (PTP).",
            delay=True,
        )
    elif stream.delay and (stream.delay.smallest_ns or 0) >= _LONGEST_DELAY_NS:
        yield Doubt(
            f"{name}: the delay is not stated, because capture times and time stamps differ by "
            f"{duration(stream.delay.smallest_ns or 0)} or more: source and sink do not share a clock. Capture on the "
            "source's machine, or synchronise both clocks (PTP).",
            delay=True,
        )
    elif stream.delay and (stream.delay.largest_ns or 0) >= _LONGEST_DELAY_NS + _duration_ns(stream.span):
        yield Doubt(
            f"{name}: delays are not stated, because some are {duration(stream.delay.largest_ns or 0)}, longer than "
            "the capture: some time stamps are wrong. Have the source stamp each frame when it is sent.",
            delay=True,
            variation=True,
        )


def _duration_ns(span: "Span") -> int:
    return (span.last_ns or 0) - (span.first_ns or 0)


def _of_capture_clock(name: str, stream: "StreamCapture") -> Iterator[Doubt]:
    clocks = stream.clocks
    remedy = "Capture again without a change of the clock."
    runs_wrong = clocks.apart_ns and len(clocks.steps) > min(_MOST_STEPS, stream.received // 2)
    if (steps := clocks.steps_of("capture", "")) and not runs_wrong:
        whose = "the capture's clock" if steps[0].clock else "one of the clocks"
        held = ", or the path held frames back until the end" if steps[0].by_ns > 0 else ""
        yield _of_all_times(name, f"{whose} {_was_set(steps)}{held}", remedy)
    elif clocks.back_ns:
        why = f"the capture's clock was set back: capture times go back by {duration(clocks.back_ns)} while sequence"
        yield _of_all_times(name, f"{why} numbers go on", remedy)
    elif clocks.late_back_ns:
        why = f"the capture's clock was set: capture times go back by {duration(clocks.late_back_ns)} at reordered"
        yield _of_all_times(name, f"{why} frames, and the order of the file does not explain it", remedy)
    elif clocks.gap_ns:
        yield _of_all_times(
            name,
            f"no frame arrived for {duration(clocks.gap_ns)} and none is missing. The source paused, or the capture's "
            "clock was set forward",
            "Capture without a pause, or have the source stamp its frames, which distinguishes the two.",
        )
    elif clocks.held_ns:
        yield _of_all_times(
            name,
            f"no frame arrived for {duration(clocks.held_ns)}, and the source sent none for as long after it. Both "
            "clocks were set forward, or the path held frames back while the source paused",
            remedy,
        )
    elif clocks.apart_ns and (runs_wrong or not clocks.steps) and not _may_be_a_queue(stream):
        captured, sent = map(duration, clocks.apart_ns)
        yield _of_all_times(
            name,
            f"{captured} passed by capture times and {sent} by time stamps. One of the two is in another unit, one of "
            "the clocks does not run right, or a queue on the path filled or emptied",
            "Compare both clocks with a third one, or capture at a load that the path forwards.",
        )
    elif clocks.pause_ns:
        yield Doubt(
            f"{name}: time and rate are not stated, because no frame was sent for {duration(clocks.pause_ns)}: the "
            "source paused, or both clocks were set forward. Capture without a pause.",
            time=True,
        )


def _may_be_a_queue(stream: "StreamCapture") -> bool:
    """Return whether an overloaded path can explain growing delays: frames are missing, and no frame is too late."""
    captured_ns, sent_ns = stream.clocks.apart_ns or (0, 0)
    longest_ns = (stream.delay.largest_ns if stream.delay else None) or 0
    return captured_ns > sent_ns and stream.missing > 0 and longest_ns < _LONGEST_DELAY_NS


def _of_all_times(name: str, why: str, remedy: str) -> Doubt:
    return Doubt(
        f"{name}: time, rate and delays are not stated, because {why}. {remedy}", time=True, delay=True, variation=True
    )


def _was_set(steps: "Sequence[ClockStep]") -> str:
    """Return how a clock was set; the first of these steps is the largest."""
    direction = "forward" if steps[0].by_ns > 0 else "back"
    times = f" (the largest of {len(steps):,} steps)" if len(steps) > 1 else ""
    return f"was set {direction} by {duration(abs(steps[0].by_ns))}{times}"


def stream_name(counts: "CaptureCounts", stream: "StreamCapture") -> str:
    """Return the addresses of a stream, and its interface if there are several."""
    name = f"{stream.src_ip} > {stream.dst_ip}"
    where = counts.interfaces[stream.interface].name if len(counts.interfaces) > 1 else ""
    return f"{name} ({where})" if where else name


def duration(ns: float) -> str:
    """Return a time in the unit that fits."""
    for unit, length in (("s", 1e9), ("ms", 1e6)):
        if abs(ns) >= length:
            return f"{ns / length:,.3f} {unit}"
    return f"{ns / 1e3:.1f} µs"


def _part(frames: int, total: int) -> str:
    return f"all {total:,} frames" if frames == total else f"{frames:,} of {total:,} frames"


def _are_unknown(what: str, frames: int, stream: "StreamCapture") -> str:
    return f"{what} are unknown:" if frames == stream.received else f"{what} are those of the other frames only:"

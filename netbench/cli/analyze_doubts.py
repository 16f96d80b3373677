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

# What a warning replaces: capture times with duration and rate; delays; PDV and IPDV; reordered; missing frames.
_TIME = frozenset({"time"})
_DELAY = frozenset({"delay"})
_DELAYS = frozenset({"delay", "variation"})
_ALL_TIMES = _TIME | _DELAYS
_ORDER = frozenset({"order"})
_ORDER_AND_LOSS = frozenset({"order", "loss"})
_EVERYTHING = _ALL_TIMES | _ORDER_AND_LOSS


class Doubt(NamedTuple):
    """A warning with effect, cause and remedy, and the numbers that it replaces."""

    text: str
    replaces: frozenset[str] = frozenset()


class Doubts:
    """The doubts about a capture, about each of its streams and interfaces."""

    def __init__(self, counts: "CaptureCounts") -> None:
        self._counts = counts
        of_file = list(_of_file(counts))
        self._of_streams = [of_file or list(_of_stream(counts, stream)) for stream in counts.streams]
        self._of_interfaces = [
            of_file or list(self._of_streams_on(number)) or list(_of_interface(interface))
            for number, interface in enumerate(counts.interfaces)
        ]

    def trusted(self, stream: int) -> frozenset[str]:
        """Return which numbers of a stream are right: `time`, `delay`, `variation`, `order`, `loss`."""
        return _EVERYTHING.difference(*(doubt.replaces for doubt in self._of_streams[stream]))

    def trusts_loss_across(self, src_ip: str, dst_ip: str) -> bool:
        """Whether missing frames of a stream are right on all interfaces."""
        streams = enumerate(self._counts.streams)
        numbers = (number for number, stream in streams if (stream.src_ip, stream.dst_ip) == (src_ip, dst_ip))
        return all("loss" in self.trusted(number) for number in numbers)

    def trusts_interface_time(self, number: int) -> bool:
        """Whether capture times of an interface are right, and with them its rate."""
        return not any("time" in doubt.replaces for doubt in self._of_interfaces[number])

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
                yield from (doubt for doubt in doubts if "time" in doubt.replaces)


def _of_file(counts: "CaptureCounts") -> Iterator[Doubt]:
    invalid = counts.oddities.invalid_fractions
    if invalid:
        yield Doubt(
            f"Times, rates and delays are not stated: {invalid:,} records have a fraction of a second or more. The "
            "file's magic number probably states another unit (microseconds, nanoseconds) than its records have. "
            "Capture again, or correct the magic number.",
            _ALL_TIMES,
        )
    if counts.oddities.small_fractions:
        yield Doubt(
            "Times, rates and delays are not stated: no record has a fraction of a second above 999,999, as if each "
            "frame had arrived in the first thousandth of its second. The file's magic number states nanoseconds, its "
            "records probably have microseconds. Capture again, or correct the magic number.",
            _ALL_TIMES,
        )


def _of_interface(interface: "InterfaceCapture") -> Iterator[Doubt]:
    span, where = interface.span, f" of interface {interface.name}" if interface.name else ""
    if span.untimed_frames:
        yield Doubt(
            f"The rate{where} is not stated: {_part(span.untimed_frames, span.frames)} have no capture time, or one "
            "beyond the years 1900 to 2262. Capture with a tool that writes times (pcap, or enhanced packet blocks).",
            _TIME,
        )
    if interface.back_ns:
        yield Doubt(
            f"Time and rate{where} are not stated: capture times go back by {duration(interface.back_ns)}. The "
            "capture's clock was set, or the frames are not in the order of capture. Sort them (reordercap), or "
            "capture again without a change of the clock.",
            _TIME,
        )
    if interface.gap_ns:
        yield Doubt(
            f"Time and rate{where} are not stated: no frame was captured for {duration(interface.gap_ns)}, far longer "
            "than otherwise. The link was idle, or the capture's clock was set forward. Capture without a pause.",
            _TIME,
        )
    if _is_coarse(interface, span):
        yield Doubt(
            f"The rate{where} is not stated: capture times have a resolution of {duration(interface.resolution_ns)} "
            "only. Capture with microseconds or nanoseconds.",
            _TIME,
        )


def _is_coarse(interface: "InterfaceCapture", span: "Span") -> bool:
    """Return whether the resolution of capture times makes the rate of some frames wrong."""
    if span.first_ns is None or span.last_ns is None or interface.resolution_ns <= _STAMP_NS:
        return False
    return interface.resolution_ns > _RATE_ERROR * (span.last_ns - span.first_ns)


def _of_stream(counts: "CaptureCounts", stream: "StreamCapture") -> Iterator[Doubt]:
    """Yield the doubts about one stream; each text starts with the name of the stream."""
    name = stream_name(counts, stream)
    for text, replaces in (
        *_of_stamps(stream),
        *_of_clocks(stream),
        *_of_resolution(counts.interfaces[stream.interface], stream),
        *_of_numbers(stream),
    ):
        yield Doubt(f"{name}: {text}", replaces)


def _of_stamps(stream: "StreamCapture") -> Iterator[Doubt]:
    clocks, span = stream.clocks, stream.span
    if span.untimed_frames:
        yield Doubt(
            f"the rate is not stated, and delays lack these frames: {_part(span.untimed_frames, span.frames)} have no "
            "capture time, or one beyond the years 1900 to 2262. Capture with a tool that writes times (pcap, or "
            "enhanced packet blocks).",
            _TIME,
        )
    if clocks.unstamped:
        yield Doubt(
            f"{_are_unknown(clocks.unstamped, stream)} {_part(clocks.unstamped, stream.received)} bear no time stamp. "
            "Have the source stamp all frames."
        )
    if clocks.invalid_stamps:
        yield Doubt(
            f"{_are_unknown(clocks.invalid_stamps, stream)} {_part(clocks.invalid_stamps, stream.received)} bear a "
            "time stamp with a fraction of a second or more. Correct the source: the last field of pktgen's header is "
            "in microseconds."
        )


def _of_resolution(interface: "InterfaceCapture", stream: "StreamCapture") -> Iterator[Doubt]:
    """Yield the doubts about a stream whose capture times are coarse, or all the same."""
    span, remedy = stream.span, "Capture with microseconds or nanoseconds."
    coarse = f"because capture times have a resolution of {duration(interface.resolution_ns)}"
    if stream.delay and interface.resolution_ns > _STAMP_NS:
        yield Doubt(f"delays are not stated, {coarse}. {remedy}", _DELAYS)
    if _is_coarse(interface, span):
        yield Doubt(f"the rate is not stated, {coarse}. {remedy}", _TIME)
    if span.first_ns is not None and span.first_ns == span.last_ns and span.frames > 1:
        yield Doubt(
            f"the rate is not stated, because all {span.frames:,} frames have the same capture time. Capture with a "
            "tool that writes times in microseconds or nanoseconds."
        )


def _of_numbers(stream: "StreamCapture") -> Iterator[Doubt]:
    """Yield the doubts about a stream's sequence numbers."""
    numbers = stream.numbers
    if numbers.disorder_ns and stream.reordered:
        yield Doubt(
            "reordered frames are not stated, because the file is not in the order of capture: capture times "
            f"go back by up to {duration(numbers.disorder_ns)}. Sort the file (reordercap).",
            _ORDER,
        )
    if numbers.jump:
        yield Doubt(
            f"missing and reordered frames are not stated, because sequence numbers jump by {numbers.jump:,} in less "
            "time than it takes to send so many. A number was damaged on the way, or the source restarted. Filter the "
            "frames with other numbers out.",
            _ORDER_AND_LOSS,
        )
    if numbers.resent >= max(_FEWEST_COPIES, (stream.duplicates + stream.reordered) / 2):
        yield Doubt(
            "missing and reordered frames are not stated, and duplicates and the rate may be wrong, because "
            f"{numbers.resent:,} frames were sent after frames with higher numbers: the source restarted, or several "
            "sources use these addresses. Capture each of them alone.",
            _ORDER_AND_LOSS,
        )
    elif stream.duplicates >= max(_FEWEST_COPIES, _MANY_COPIES * stream.received):
        yield Doubt(
            f"{stream.duplicates:,} of {stream.span.frames:,} frames are further copies. If the file was merged from "
            "captures of several interfaces, or has a frame before and after a VLAN tag was added, these are the same "
            "frames again; if several sources use these addresses, they are others, and missing and reordered frames "
            "and the rate are wrong. Analyze the file of each interface, and each source, alone."
        )


def _of_clocks(stream: "StreamCapture") -> Iterator[Doubt]:
    """Yield the doubts about a stream's clocks: first the capture's clock, then the time stamps."""
    of_capture = list(_of_capture_clock(stream))
    yield from of_capture
    if any("delay" in doubt.replaces for doubt in of_capture):
        return
    clocks = stream.clocks
    least_ns, most_ns = ((stream.delay.smallest_ns or 0), (stream.delay.largest_ns or 0)) if stream.delay else (0, 0)
    one_clock = "Capture on the source's machine, or synchronise both clocks (PTP)."
    if clocks.frozen_stamps or clocks.stamp_resolution_ns:
        resolution_ns = clocks.stamp_resolution_ns
        how = f"advance only every {duration(resolution_ns)}" if resolution_ns else "do not advance"
        yield Doubt(
            f"delays are not stated, because time stamps {how} while frames arrive. Have the source stamp each frame "
            "when it is sent, in microseconds.",
            _DELAYS,
        )
    elif steps := clocks.steps_of("source"):
        yield Doubt(
            f"delays are not stated, because the source's clock {_was_set(steps)}. Capture again without a change of "
            "the clock.",
            _DELAYS,
        )
    elif least_ns < 0:
        yield Doubt(
            "the delay is not stated, because frames were captured before they were sent: source and sink do not share "
            f"a clock. {one_clock}",
            _DELAY,
        )
    elif least_ns >= _LONGEST_DELAY_NS:
        yield Doubt(
            f"the delay is not stated, because capture times and time stamps differ by {duration(least_ns)} or more: "
            f"source and sink do not share a clock. {one_clock}",
            _DELAY,
        )
    elif most_ns >= _LONGEST_DELAY_NS + (stream.span.last_ns or 0) - (stream.span.first_ns or 0):
        yield Doubt(
            f"delays are not stated, because some are {duration(most_ns)}, longer than the capture: some time stamps "
            "are wrong. Have the source stamp each frame when it is sent.",
            _DELAYS,
        )


def _of_capture_clock(stream: "StreamCapture") -> Iterator[Doubt]:
    clocks = stream.clocks
    remedy = "Capture again without a change of the clock."
    runs_wrong = clocks.apart_ns and len(clocks.steps) > min(_MOST_STEPS, stream.received // 2)
    if (steps := clocks.steps_of("capture", "")) and not runs_wrong:
        whose = "the capture's clock" if steps[0].clock else "one of the clocks"
        why = f"{whose} {_was_set(steps)}" + (
            ", or the path held frames back until the end" if steps[0].by_ns > 0 else ""
        )
    elif clocks.back_ns:
        why = f"the capture's clock was set back: capture times go back by {duration(clocks.back_ns)} while sequence "
        why += "numbers go on"
    elif clocks.late_back_ns:
        why = f"the capture's clock was set: capture times go back by {duration(clocks.late_back_ns)} at reordered "
        why += "frames, and the order of the file does not explain it"
    elif clocks.gap_ns:
        why = f"no frame arrived for {duration(clocks.gap_ns)} and none is missing. The source paused, or the "
        why += "capture's clock was set forward"
        remedy = "Capture without a pause, or have the source stamp its frames, which distinguishes the two."
    elif clocks.held_ns:
        why = f"no frame arrived for {duration(clocks.held_ns)}, and the source sent none for as long after it. Both "
        why += "clocks were set forward, or the path held frames back while the source paused"
    elif clocks.apart_ns and (runs_wrong or not clocks.steps) and not _may_be_a_queue(stream):
        captured, sent = map(duration, clocks.apart_ns)
        why = f"{captured} passed by capture times and {sent} by time stamps. One of the two is in another unit, one "
        why += "of the clocks does not run right, or a queue on the path filled or emptied"
        remedy = "Compare both clocks with a third one, or capture at a load that the path forwards."
    else:
        if clocks.pause_ns:
            yield Doubt(
                f"time and rate are not stated, because no frame was sent for {duration(clocks.pause_ns)}: the source "
                "paused, or both clocks were set forward. Capture without a pause.",
                _TIME,
            )
        return
    yield Doubt(f"time, rate and delays are not stated, because {why}. {remedy}", _ALL_TIMES)


def _may_be_a_queue(stream: "StreamCapture") -> bool:
    """Return whether an overloaded path can explain growing delays: frames are missing, and no frame is too late."""
    captured_ns, sent_ns = stream.clocks.apart_ns or (0, 0)
    longest_ns = (stream.delay.largest_ns if stream.delay else None) or 0
    return captured_ns > sent_ns and stream.missing > 0 and longest_ns < _LONGEST_DELAY_NS


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


def _are_unknown(frames: int, stream: "StreamCapture") -> str:
    return "delays are unknown:" if frames == stream.received else "delays are those of the other frames only:"

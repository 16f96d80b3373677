"""Checks whether the clocks of a stream's times ran evenly, or were set during the capture.

The check of the capture's clock uses the capture times of all frames in the order of their numbers, stamped or not. It
was set back where they go back. A gap much longer than all others means that it was set forward, or that the source
paused: time stamps show which, unless both clocks were set. The delay, the difference of a frame's capture time and its
time stamp, jumps where one of the clocks was set, and stays changed. Where the path delayed frames, it returns.
"""

from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.capture_counts import Clock, ClockStep
from netbench.capture.sequences import without

_NONE = np.empty(0, np.intp)

# A smaller change of the delay from one frame to the next is attributed to the path, ns.
SMALLEST_STEP_NS = 500_000
# After a step, delays differ from earlier ones by at least this fraction of it.
_LASTING = 0.5
# A jump is attributed to a clock by which the time between two frames is this many times that by the other clock.
_ONE_CLOCKS = 2
# The most jumps that are recorded; where there are more, only larger ones are kept.
_MOST_JUMPS = 4096
# A gap that may be a step of a clock is this many times as long as all but a few others, and at least this fraction of
# the total time. Among fewer gaps, none is unusual.
_GAP_RATIO, _GAP_PART, _LEAST_GAPS = 10, 0.001, 3
_KEPT_GAPS, _MOST_UNUSUAL = 64, 16
# The limits for a gap by both clocks, mostly a pause of the source: the fraction of the total time, and ns. Shorter
# gaps may come from a source that lost its CPU.
_PAUSE_PART, _LEAST_PAUSE_NS = 0.01, 100_000_000
# The number of frames sampled per batch for the resolution of time stamps, the total number where it is fine, and the
# limit from which it is coarse.
_SAMPLED, _ENOUGH_SAMPLED, _COARSE_NS = 256, 1024, 100_000
# The fraction by which the time between two frames may differ between the clocks. No undisturbed clock is that wrong.
_APART = 0.01
# The fraction of the total time by which times may go back: files are written nearly in the order of capture.
_BACK_PART = 0.001


class _Jump(NamedTuple):
    """A change of the delay between two frames in order: `before_ns` and `after_ns` are their delays.

    `impossible`: a clock went back in between.
    `clock` is the clock that was set, empty where that is unclear.
    """

    before_ns: int
    after_ns: int
    impossible: bool
    clock: Clock


class _Frame(NamedTuple):
    sequence: int
    sent_ns: int
    time_ns: int


class InOrder:
    """The frames of a stream with a capture time and higher numbers than all before, without the late ones.

    Normally only their capture times are evaluated.
    """

    def __init__(
        self,
        sequence: NDArray[np.int64],
        sent_us: NDArray[np.int64],
        times_ns: NDArray[np.int64],
        late_places: NDArray[np.intp] = _NONE,
    ) -> None:
        """Use these frames, of shape (n,), except those at the late places; `sent_us` is 0 or less for no stamp."""
        self._sequence, self._sent_us, self._late_places = sequence, sent_us, late_places
        self._all_times_ns, self._late_before = times_ns, late_places - np.arange(len(late_places))
        self.times_ns = without(times_ns, late_places)

    @property
    def size(self) -> int:
        """The number of frames."""
        return len(self.times_ns)

    def sent_us(self) -> NDArray[np.int64]:
        """Return their time stamps in microseconds."""
        return without(self._sent_us, self._late_places)

    def head(self, count: int) -> "InOrder":
        """Return the frames among the first `count` of all."""
        late_places = self._late_places[: np.searchsorted(self._late_places, count)]
        return InOrder(self._sequence[:count], self._sent_us[:count], self._all_times_ns[:count], late_places)

    def tail(self, count: int) -> "InOrder":
        """Return the frames among the last `count` of all."""
        start = max(len(self._sequence) - count, 0)
        late_places = self._late_places[np.searchsorted(self._late_places, start) :] - start
        return InOrder(self._sequence[start:], self._sent_us[start:], self._all_times_ns[start:], late_places)

    def fastest(self) -> _Frame | None:
        """Return the frame with the least delay; None for no frames."""
        return self.at(int(np.argmin(self.times_ns - self.sent_us() * 1000))) if self.size else None

    def at(self, place: int) -> _Frame:
        """Return the frame at index `place`."""
        place %= self.size
        among_all = place + int(np.searchsorted(self._late_before, place, side="right"))
        sequence, sent_us = int(self._sequence[among_all]), int(self._sent_us[among_all])
        return _Frame(sequence, sent_us * 1000, int(self.times_ns[place]))

    def sent_us_before(self, places: NDArray[np.intp], earlier_us: int) -> NDArray[np.int64]:
        """Return the time stamp of the last one before each index among all frames; `earlier_us` where none is."""
        before = places - np.searchsorted(self._late_places, places) - 1
        among_all = before + np.searchsorted(self._late_before, before, side="right")
        found: NDArray[np.int64] = np.where(before >= 0, self._sent_us[among_all], earlier_us)
        return found

    def where(self, condition: NDArray[np.bool_]) -> "InOrder":
        """Return the frames for which `condition`, bool of shape (n,), is true."""
        if condition.all():
            return self
        sequence = without(self._sequence, self._late_places)
        return InOrder(sequence[condition], self.sent_us()[condition], self.times_ns[condition])


class DelayJumps:
    """Finds steps of a clock in the frames of a stream with both times, in the order of their numbers."""

    def __init__(self) -> None:
        self._last: _Frame | None = None
        self._ends: tuple[_Frame | None, _Frame | None] = None, None  # the fastest of the first and of the last frames
        self._smallest_ns = SMALLEST_STEP_NS  # of recorded jumps
        self._jumps: list[_Jump] = []
        self._least = [1 << 63]  # the least delay before the first jump, between the first and the second, …

    def add(self, frames: InOrder, bounds: tuple[int, int]) -> None:
        """Add the next frames, n > 0; `bounds` are the least and largest delay of all frames except copies."""
        least, most = bounds
        last = self._last or frames.at(0)
        least, most = min(least, last.time_ns - last.sent_ns), max(most, last.time_ns - last.sent_ns)
        if most - least < self._smallest_ns:
            self._least[-1] = min(self._least[-1], bounds[0])
        else:
            sent_ns = np.concatenate(([last.sent_ns], frames.sent_us() * 1000))
            self._find(sent_ns, np.concatenate(([last.time_ns], frames.times_ns)))
        few = max(1, min(_SAMPLED, frames.size // 4))
        self._ends = self._ends[0] or frames.head(few).fastest(), frames.tail(few).fastest() or self._ends[1]
        self._last = frames.at(-1)

    def _find(self, sent_ns: NDArray[np.int64], times_ns: NDArray[np.int64]) -> None:
        """Record the jumps between frames that are in order."""
        delays = times_ns - sent_ns
        sizes = np.abs(np.diff(delays))
        jumps = np.flatnonzero(sizes >= self._smallest_ns)
        while len(jumps) > _MOST_JUMPS // 2:
            self._smallest_ns *= 2
            jumps = jumps[sizes[jumps] >= self._smallest_ns]
        starts = np.concatenate(([0], jumps + 1))
        least = np.minimum.reduceat(delays, starts).tolist()
        self._least[-1] = min(self._least[-1], least[0])
        self._least += least[1:]
        captured, sent = np.diff(times_ns), np.diff(sent_ns)
        for jump in jumps.tolist():
            intervals = int(captured[jump]), int(sent[jump])
            impossible = min(intervals) <= -SMALLEST_STEP_NS
            self._jumps.append(_Jump(int(delays[jump]), int(delays[jump + 1]), impossible, _clock_of(*intervals)))
        while len(self._jumps) > _MOST_JUMPS:
            self._smallest_ns *= 2
            self._forget_small()

    def _forget_small(self) -> None:
        """Keep the jumps of the present minimum size and above: so many smaller ones are caused by the path."""
        jumps, least = [], self._least[:1]
        for jump, least_after in zip(self._jumps, self._least[1:], strict=True):
            if abs(jump.after_ns - jump.before_ns) >= self._smallest_ns:
                jumps.append(jump)
                least.append(least_after)
            else:
                least[-1] = min(least[-1], least_after)
        self._jumps, self._least = jumps, least

    def spans_ns(self) -> tuple[int, int]:
        """Return the time between a frame near the first and one near the last, by the capture and by stamps.

        Each is the fastest of the frames around it, because the path may delay single frames.
        """
        first, last = self._ends
        return (last.time_ns - first.time_ns, last.sent_ns - first.sent_ns) if first and last else (0, 0)

    def has_drop_of(self, by_ns: int) -> bool:
        """Return whether the delay drops by at least `by_ns` between two frames because stamps advance."""
        return any(jump.clock == "source" and jump.before_ns - jump.after_ns >= by_ns for jump in self._jumps)

    def steps(self) -> tuple[ClockStep, ...]:
        """Return the jumps after which delays did not return, and those at which a clock went back."""
        # The least delay from each jump on, and up to each jump, within the nearest certain steps.
        later = list(accumulate(reversed(self._with_borders(after=True)), _least_within))[::-1]
        earlier = list(accumulate(self._with_borders(after=False), _least_within))
        found = []
        for place, jump in enumerate(self._jumps):
            by_ns = jump.after_ns - jump.before_ns
            lasting_ns = later[place + 1][1] - jump.before_ns if by_ns > 0 else earlier[place][1] - jump.after_ns
            if jump.impossible or lasting_ns >= _LASTING * abs(by_ns):
                found.append(ClockStep(jump.clock, by_ns if jump.clock != "source" else -by_ns))
        return tuple(found)

    def _with_borders(self, *, after: bool) -> list[tuple[bool, int]]:
        """Return the least delay of each part between jumps, and whether the jump after or before it is a border."""
        borders = [jump.impossible for jump in self._jumps]
        borders = [*borders, True] if after else [True, *borders]
        return list(zip(borders, self._least, strict=True))


def _clock_of(captured_ns: int, sent_ns: int) -> Clock:
    """Return which clock was set between two frames, from the times between their capture and their sending."""
    if abs(captured_ns) >= _ONE_CLOCKS * abs(sent_ns):
        return "capture"
    return "source" if abs(sent_ns) >= _ONE_CLOCKS * abs(captured_ns) else ""


def _least_within(known: tuple[bool, int], part: tuple[bool, int]) -> tuple[bool, int]:
    is_border, least = part
    return part if is_border else (False, min(known[1], least))


class _Gap(NamedTuple):
    """The time between two frames in order: by the capture, in numbers, and by stamps (None where one is absent)."""

    captured_ns: int
    numbers: int
    sent_ns: int | None


class CaptureClock:
    """Finds steps of the capture's clock in all frames of a stream with a capture time, stamped or not.

    Frames are in the order of their numbers. The longest gaps between them are always kept.
    """

    def __init__(self) -> None:
        self._first: _Frame | None = None
        self._last: _Frame | None = None
        self._back_ns = 0
        self._count = 0
        self._longest: list[_Gap] = []  # the shortest of them first
        self._shortest_kept = 0

    def add(self, frames: InOrder) -> None:
        """Add the next frames."""
        if not frames.size:
            return
        first = frames.at(0)
        if self._last:
            self._keep([(self._last, first)])
        gaps = np.diff(frames.times_ns)
        if len(gaps):
            self._back_ns = max(self._back_ns, -int(gaps.min()))
            if int(gaps.max()) > self._shortest_kept:
                self._keep([(frames.at(place), frames.at(place + 1)) for place in self._longest_of(gaps)])
        self._count += len(gaps) + bool(self._last)
        self._first = self._first or first
        self._last = frames.at(-1)

    def _longest_of(self, gaps: NDArray[np.int64]) -> list[int]:
        """Return the indices of the longest gaps, which are kept."""
        places = np.flatnonzero(gaps > self._shortest_kept)
        if len(places) > _KEPT_GAPS:
            places = places[np.argpartition(gaps[places], -_KEPT_GAPS)[-_KEPT_GAPS:]]
        indices: list[int] = places.tolist()
        return indices

    def _keep(self, pairs: list[tuple[_Frame, _Frame]]) -> None:
        for before, after in pairs:
            sent_ns = after.sent_ns - before.sent_ns if min(after.sent_ns, before.sent_ns) > 0 else None
            self._longest.append(_Gap(after.time_ns - before.time_ns, after.sequence - before.sequence, sent_ns))
            self._back_ns = max(self._back_ns, before.time_ns - after.time_ns)
        self._longest = sorted(self._longest, key=lambda gap: gap.captured_ns)[-_KEPT_GAPS:]
        if len(self._longest) == _KEPT_GAPS:
            self._shortest_kept = self._longest[0].captured_ns

    @property
    def span_ns(self) -> int:
        """The time from the first frame to the last one in ns."""
        return self._last.time_ns - self._first.time_ns if self._first and self._last else 0

    @property
    def largest_back_ns(self) -> int:
        """How far times go back at most from one frame to the next, in ns."""
        return self._back_ns

    def back_ns(self) -> int:
        """Return how far times go back at most, where that is a significant part of the total time; else 0."""
        return self._back_ns if is_much(self._back_ns, self.span_ns) else 0

    def stretched_ns(self, span_ns: int, lowest: int) -> int:
        """Return by how much `span_ns` exceeds the time of these frames, corrected for the numbers below the first."""
        if self._first is None or self._last is None:
            return 0
        numbers = max(self._last.sequence - self._first.sequence, 1)
        below = self._first.sequence - lowest
        return span_ns - self.span_ns - 2 * below * self.span_ns // numbers

    def gap_ns(self, *, trusts_stamps: bool) -> int:
        """Return the longest gap that neither stamps, other gaps nor missing numbers explain; 0 for none."""
        gaps = (gap for gap, excess_ns in self._unusual() if excess_ns > _GAP_PART * self.span_ns)
        return max((gap.captured_ns for gap in gaps if not trusts_stamps or gap.sent_ns is None), default=0)

    def pause_ns(self) -> int:
        """Return the longest gap by both clocks, which would make the rate wrong if both were set; 0 for none."""
        least_ns = max(_PAUSE_PART * self.span_ns, _LEAST_PAUSE_NS)
        gaps = (gap for gap, excess_ns in self._unusual() if excess_ns > least_ns)
        return max((gap.captured_ns for gap in gaps if 2 * (gap.sent_ns or 0) >= gap.captured_ns), default=0)

    def unmatched_gap_ns(self) -> int:
        """Return the longest gap that time stamps do not have at the same frame; 0 for none."""
        gaps = (gap for gap, excess_ns in self._unusual() if excess_ns > _GAP_PART * self.span_ns)
        unmatched = (gap for gap in gaps if gap.sent_ns is not None and 2 * gap.sent_ns < gap.captured_ns)
        return max((gap.captured_ns for gap in unmatched), default=0)

    def _unusual(self) -> list[tuple[_Gap, float]]:
        """Return the few gaps far longer than all others, each with the part not due to missing numbers, ns."""
        if self._count < _LEAST_GAPS or self._first is None or self._last is None:
            return []
        usual_ns = self._usual_ns(self._last.sequence - self._first.sequence)
        by_excess = sorted(
            ((gap, gap.captured_ns - gap.numbers * usual_ns) for gap in self._longest), key=lambda item: -item[1]
        )
        excesses = [excess_ns for _, excess_ns in by_excess]
        few = min(_MOST_UNUSUAL, self._count // 2)
        for count in range(min(few, len(excesses)), 0, -1):
            following = excesses[count] if count < len(excesses) else 0
            if excesses[count - 1] > _GAP_RATIO * max(following, usual_ns, 1):
                return by_excess[:count]
        return []

    def _usual_ns(self, numbers: int) -> float:
        """Return the time from one number to the next in ns, excluding the longest gaps where there are others."""
        if self._count <= len(self._longest):
            return float(np.median([gap.captured_ns / max(gap.numbers, 1) for gap in self._longest]))
        others = numbers - sum(gap.numbers for gap in self._longest)
        return max(self.span_ns - sum(gap.captured_ns for gap in self._longest), 0) / max(others, 1)


class FileOrder:
    """Finds where capture times go back, in all timed frames of a stream except copies, in the order of the file.

    Where time stamps go back as well, frames are only out of order in the file.
    """

    def __init__(self) -> None:
        self.back_ns = self.unstamped_back_ns = 0
        """By how much they go back at most where stamps do not, and where one of two frames has no stamp."""
        self._last: tuple[NDArray[np.int64], NDArray[np.int64]] = np.empty(0, np.int64), np.empty(0, np.int64)

    def add(self, times_ns: NDArray[np.int64], sent_us: NDArray[np.int64]) -> None:
        """Add the next frames; `sent_us` is 0 or less for no stamp."""
        before_ns, before_us = self._last
        self._last = times_ns[-1:], sent_us[-1:]
        if not len(times_ns) or not back_ns(np.concatenate((before_ns, times_ns))):
            return
        times_ns, sent_us = np.concatenate((before_ns, times_ns)), np.concatenate((before_us, sent_us))
        back, sent_ns = -np.diff(times_ns), np.diff(sent_us) * 1000
        are_stamped = np.minimum(sent_us[1:], sent_us[:-1]) > 0
        self.back_ns = max(self.back_ns, int(back[are_stamped & (2 * sent_ns > -back)].max(initial=0)))
        self.unstamped_back_ns = max(self.unstamped_back_ns, int(back[~are_stamped].max(initial=0)))


class StampSteps:
    """Finds the resolution of time stamps where it is far coarser than the header's."""

    def __init__(self) -> None:
        self._pairs = self._advances = 0
        self._time_ns = 0.0

    def add(self, frames: InOrder) -> None:
        """Add the next frames, all with a time stamp; the first few suffice."""
        if self._pairs >= _ENOUGH_SAMPLED and 2 * self._advances > self._pairs:
            return
        sample = frames.head(_SAMPLED)
        sent_us, times_ns = np.diff(sample.sent_us()), np.diff(sample.times_ns)
        if len(sent_us):
            self._pairs += len(sent_us)
            self._advances += int(np.count_nonzero(sent_us))
            self._time_ns += len(times_ns) * float(np.median(times_ns))  # the median excludes a step of a clock

    def resolution_ns(self) -> float:
        """Return the mean time for which stamps stand still; 0 where most frames have unique stamps, or in bursts."""
        mean_ns = self._time_ns / max(self._advances, 1)
        return mean_ns if 2 * self._advances <= self._pairs and mean_ns >= _COARSE_NS else 0


def back_ns(times_ns: NDArray[np.int64]) -> int:
    """Return how far times go back at most from one frame to the next, in ns; 0 where they never do."""
    return max(0, -int(np.diff(times_ns).min())) if len(times_ns) > 1 else 0


def is_much(back: int, span_ns: int) -> bool:
    """Return whether times that go back by `back` ns make a rate wrong."""
    return back > _BACK_PART * span_ns


def are_frozen(stamps_ns: int, times_ns: int) -> bool:
    """Return whether time stamps stand still while the capture's times advance by `times_ns`."""
    return times_ns >= SMALLEST_STEP_NS and not stamps_ns


def run_apart(captured_ns: int, sent_ns: int) -> bool:
    """Return whether the times between two frames, by capture and by stamps, differ too much for running clocks."""
    return abs(captured_ns - sent_ns) > max(_APART * max(captured_ns, sent_ns), SMALLEST_STEP_NS)

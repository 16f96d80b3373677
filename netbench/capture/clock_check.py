"""Whether the clocks that a stream's times come from ran on, or were set while the stream was captured.

A frame has two times: its capture time, and its source's time stamp. Their difference, the delay, jumps where one of
the clocks was set, and stays changed. Where the path held frames back, it returns. Frames without time stamps have only
their numbers: a gap that is much longer than all others is a clock that was set, or a pause of the source.
"""

from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.captured import Clock, ClockStep

# A change of the delay from one frame to the next that is less than this is the path's, ns.
SMALLEST_STEP_NS = 500_000
# After a step, delays differ from those before by at least this part of it.
_LASTING = 0.5
# A jump is one clock's where the time between two frames is so many times as long by it as by the other one.
_ONE_CLOCKS = 2
_MOST_JUMPS = 4096
# Of frames without time stamps: what a gap is at least, in lengths of the second one, and as a part of all the time.
_GAP_RATIO, _GAP_PART, _LEAST_GAPS = 10, 0.001, 4
# By what part of all the time times may go back: files are written in nearly the order of capture.
_BACK_PART = 0.001


class _Jump(NamedTuple):
    """A change of the delay between two frames in order: `before_ns` and `after_ns` are their delays.

    `impossible` says that a clock went back in between.
    `clock` says which clock was set, empty where that is not clear.
    """

    before_ns: int
    after_ns: int
    impossible: bool
    clock: Clock


class _Frame(NamedTuple):
    sequence: int
    sent_ns: int
    time_ns: int


class DelayJumps:
    """Takes the frames of a stream that have both times, in the order of arrival, and finds steps of a clock."""

    def __init__(self) -> None:
        self._last: _Frame | None = None
        self._jumps: list[_Jump] = []
        self._least = [1 << 63]  # the least delay before the first jump, between the first and the second, …

    def add(
        self,
        sequence: NDArray[np.int64],
        sent_ns: NDArray[np.int64],
        times_ns: NDArray[np.int64],
        bounds: tuple[int, int],
    ) -> None:
        """The next frames, of shape (n,), n > 0; `bounds` are the least and largest delay of all but copies."""
        least, most = bounds
        last = self._last
        if last:
            least, most = min(least, last.time_ns - last.sent_ns), max(most, last.time_ns - last.sent_ns)
        if most - least < SMALLEST_STEP_NS or len(self._jumps) >= _MOST_JUMPS:
            self._least[-1] = min(self._least[-1], bounds[0])
            self._last = _Frame(int(sequence[-1]), int(sent_ns[-1]), int(times_ns[-1]))
            return
        if last:
            sequence, sent_ns, times_ns = (
                np.concatenate(([first], values))
                for first, values in ((last.sequence, sequence), (last.sent_ns, sent_ns), (last.time_ns, times_ns))
            )
        in_order = _are_in_order(sequence)
        sequence, sent_ns, times_ns = sequence[in_order], sent_ns[in_order], times_ns[in_order]
        self._find(sent_ns, times_ns)
        self._last = _Frame(int(sequence[-1]), int(sent_ns[-1]), int(times_ns[-1]))

    def _find(self, sent_ns: NDArray[np.int64], times_ns: NDArray[np.int64]) -> None:
        """Note the jumps between frames that are in order."""
        delays = times_ns - sent_ns
        changes = np.diff(delays)
        jumps = np.flatnonzero(np.abs(changes) >= SMALLEST_STEP_NS)[: _MOST_JUMPS - len(self._jumps)]
        starts = np.concatenate(([0], jumps + 1))
        least = np.minimum.reduceat(delays, starts).tolist()
        self._least[-1] = min(self._least[-1], least[0])
        self._least += least[1:]
        captured, sent = np.diff(times_ns), np.diff(sent_ns)
        for jump in jumps.tolist():
            intervals = int(captured[jump]), int(sent[jump])
            impossible = min(intervals) <= -SMALLEST_STEP_NS
            self._jumps.append(_Jump(int(delays[jump]), int(delays[jump + 1]), impossible, _clock_of(*intervals)))

    def steps(self) -> tuple[ClockStep, ...]:
        """Jumps after which delays did not return, and those at which a clock went back."""
        # The least delay from each jump on, and up to each one, as far as the next step that is certain.
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
        """The least delay of each part between jumps, and whether the jump after or before it is a border."""
        borders = [jump.impossible for jump in self._jumps]
        borders = [*borders, True] if after else [True, *borders]
        return list(zip(borders, self._least, strict=True))


def _clock_of(captured_ns: int, sent_ns: int) -> Clock:
    """Which clock was set between two frames that were captured and sent so long after one another."""
    if abs(captured_ns) >= _ONE_CLOCKS * abs(sent_ns):
        return "capture"
    return "source" if abs(sent_ns) >= _ONE_CLOCKS * abs(captured_ns) else ""


def _least_within(known: tuple[bool, int], part: tuple[bool, int]) -> tuple[bool, int]:
    is_border, least = part
    return part if is_border else (False, min(known[1], least))


class ArrivalGaps:
    """Takes the numbers and capture times of a stream's frames, and finds whether times go back or have a gap."""

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None
        self._first: tuple[int, int] | None = None
        self._back = 0
        self._gaps: list[tuple[int, int]] = []  # the longest two: ns, and how far the numbers went on
        self._count = 0

    def add(self, sequence: NDArray[np.int64], times_ns: NDArray[np.int64]) -> None:
        """The next frames, of shape (n,)."""
        if self._last:
            sequence = np.concatenate(([self._last[0]], sequence))
            times_ns = np.concatenate(([self._last[1]], times_ns))
        in_order = _are_in_order(sequence)
        sequence, times_ns = sequence[in_order], times_ns[in_order]
        if not len(sequence):
            return
        self._first = self._first or (int(sequence[0]), int(times_ns[0]))
        self._last = int(sequence[-1]), int(times_ns[-1])
        gaps, numbers = np.diff(times_ns), np.diff(sequence)
        if len(gaps):
            self._count += len(gaps)
            self._back = max(self._back, -int(gaps.min()))
            longest = np.argsort(gaps)[-2:]
            self._gaps += zip(gaps[longest].tolist(), numbers[longest].tolist(), strict=True)
            self._gaps = sorted(self._gaps)[-2:]

    def back_ns(self, span_ns: int) -> int:
        """By how much times go back at most, where that is much of the time between the first and the last one."""
        return self._back if self._back > _BACK_PART * span_ns else 0

    def gap_ns(self) -> int:
        """The longest time without a frame, where neither other gaps nor missing numbers explain it; 0 for none."""
        if self._count < _LEAST_GAPS or self._first is None or self._last is None:
            return 0
        (second, _), (longest, numbers) = self._gaps
        span_ns, all_numbers = self._last[1] - self._first[1], self._last[0] - self._first[0]
        others = max(all_numbers - numbers, 1)
        excess_ns = longest - numbers * (span_ns - longest) / others
        is_one = longest > _GAP_RATIO * max(second, 1) and excess_ns > _GAP_PART * span_ns
        return longest if is_one else 0


def _are_in_order(sequence: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which numbers are higher than all before them, of shape (n,)."""
    are_in_order = np.ones(len(sequence), np.bool_)
    np.greater(sequence[1:], np.maximum.accumulate(sequence)[:-1], out=are_in_order[1:])
    return are_in_order


def back_ns(times_ns: NDArray[np.int64]) -> int:
    """By how much times go back at most from one frame to the next; 0 where they never do."""
    is_back = times_ns[1:] < times_ns[:-1]
    return -int((times_ns[1:] - times_ns[:-1])[is_back].min()) if is_back.any() else 0


def is_much(back: int, span_ns: int) -> bool:
    """Whether times that go back by so many ns make a rate wrong."""
    return back > _BACK_PART * span_ns


def are_frozen(stamps_ns: int, times_ns: int) -> bool:
    """Whether time stamps that advance by so much while the capture's times do so are not set for each frame."""
    return times_ns >= SMALLEST_STEP_NS and not stamps_ns

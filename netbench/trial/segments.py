"""Attributes the missing frames of path segments to drop counters, and the rest to the segments themselves.

Frames may pass one counter on several segments, of one stream or of many. Its drops on all segments together are at
most its count. Its drops on one segment are at least the part of its count that does not fit into the other segments.
It explains only that minimum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

from netbench.model.counts import DropKind, Loss
from netbench.model.points import CountingPoint
from netbench.trial.observation import UNCOUNTED, CounterDelta

_MOST_NAMED = 3  # counters that may have dropped a frame
_MOST_COMBINED = 12  # segments whose combinations are all tried
RING_FULL = "receive ring full"
_OF_ALL = "counted for all streams"
_IN_ALL = "counted in several places"
_MAYBE_RESET = "whose counter may have been reset meanwhile"


@dataclass(slots=True, eq=False)
class Segment:
    """Part of a path, with the counters and the NIC at one end (or its ring, `of_nic`) that may have dropped frames.

    `rest` are the frames missing at its end, of any stream, that are unexplained so far. If they stay unexplained, they
    were lost at the point and for the cause in `name`, if it is set. `uut` is the point of losses without a point of
    their own. `perhaps` are counters with drops that may have been on this segment or on another.
    """

    uut: CountingPoint
    rest: int
    drops: Sequence[CounterDelta] = ()
    nic: CountingPoint | None = None
    nic_dropped: int = 0
    of_nic: DropKind = DropKind.NIC
    name: tuple[CountingPoint, str] | None = None
    perhaps: list[CounterDelta] = field(default_factory=list)
    found: list[Loss] = field(default_factory=list)

    @property
    def silent(self) -> list[CounterDelta]:
        """The counters that may have dropped uncounted frames."""
        return [growth for growth in self.drops if growth.silent]

    def explain(
        self,
        point: CountingPoint,
        cause: str,
        frames: int,
        counters: Sequence[str] = (),
        dropper: DropKind = DropKind.UNKNOWN,
    ) -> None:
        """Record that so many of the missing frames were lost at a point, for this cause; all as in Loss."""
        self.rest -= frames
        if frames:
            self.found.append(Loss(point.name, cause, point.where, point.order, frames, tuple(counters), dropper))

    def explain_nic(self) -> None:
        """Explain the drops of the NIC itself; they include foreign frames, so at most as many as are missing."""
        if self.nic:
            cause = RING_FULL if self.of_nic is DropKind.RING else ""
            self.explain(self.nic, cause, min(self.nic_dropped, self.rest), dropper=self.of_nic)

    def blame(self, suspects: Sequence[CounterDelta], why: str, frames: int) -> None:
        """Record that one of these counters dropped the frames, at their point if they share one, else at the UUT."""
        points = {growth.point for growth in suspects}
        names = [drop.counter if len(points) == 1 else f"{drop.point.name}: {drop.counter}" for drop in suspects]
        if len(names) > _MOST_NAMED:
            names[_MOST_NAMED - 1 :] = [f"{len(names) - _MOST_NAMED + 1} more"]
        cause = " or ".join(names) + (f", {why}" if why else "")
        counters = [growth.counter for growth in suspects]
        dropper = DropKind.UNKNOWN if why or len(suspects) > 1 else DropKind.COUNTER
        self.explain(points.pop() if len(points) == 1 else self.uut, cause, frames, counters, dropper)


@dataclass(slots=True)
class DropCounter:
    """A drop counter that grew by `frames`; `met` are the segments on which frames pass it, with its growths there.

    `most` is the upper bound of its drops on a segment, if known.
    """

    frames: int
    met: dict[Segment, list[CounterDelta]] = field(default_factory=dict)
    most: dict[Segment, int] = field(default_factory=dict)

    def missing(self) -> dict[Segment, int]:
        """Return the number of frames that it may have dropped, for each segment with missing frames."""
        most = {segment: min(self.most.get(segment, segment.rest), segment.rest) for segment in self.met}
        return {segment: frames for segment, frames in most.items() if frames > 0}


def share_out(counters: Sequence[DropCounter]) -> None:
    """Explain the frames that these counters must have dropped."""
    waiting = list(counters)
    while fitting := next(((counter, fit) for counter in waiting if (fit := _fit(counter, waiting))), None):
        counter, fit = fitting
        waiting.remove(counter)
        for segment, frames in fit.items():
            _explain([counter], segment, frames)
    groups: dict[frozenset[Segment], list[DropCounter]] = {}
    for counter in waiting:
        groups.setdefault(frozenset(counter.missing()), []).append(counter)
    for group in groups.values():
        missing = group[0].missing()
        counted, total = sum(counter.frames for counter in group), sum(missing.values())
        if len(group) > 1 and (counted > total or (counted == total and len(missing) > 1)):
            for segment, frames in missing.items():
                _explain(group, segment, frames)  # one of them did; which one is unknown
            continue
        for counter in group:
            _explain_certain(counter)


def _explain_certain(counter: DropCounter) -> None:
    """Explain on each segment the drops of a counter that cannot have been on its other segments.

    On a segment where nothing drops uncounted frames, the counter dropped all frames that it may have dropped.
    """
    missing, left = counter.missing(), counter.frames
    plain = {segment: frames for segment, frames in missing.items() if not segment.silent}
    certain = plain if len(plain) < len(missing) and sum(plain.values()) <= left else {}
    for segment, frames in certain.items():
        left -= frames
        _explain([counter], segment, frames)
    doubtful = {segment: frames for segment, frames in missing.items() if segment not in certain}
    for segment, frames in doubtful.items():
        must = min(frames, max(0, left - (sum(doubtful.values()) - frames)))
        _explain([counter], segment, must)
        if must < min(frames, left):
            segment.perhaps += counter.met[segment]


def _fit(counter: DropCounter, rivals: Sequence[DropCounter]) -> dict[Segment, int]:
    """Return the only segments whose missing frames add up to exactly the counter's count.

    The result is empty if several combinations fit, or if a rival with the same count meets a segment of this counter.
    """
    missing = counter.missing()
    if len(missing) > _MOST_COMBINED:
        return {}
    fitting = [
        some
        for many in range(1, len(missing) + 1)
        for some in combinations(missing, many)
        if sum(missing[segment] for segment in some) == counter.frames
    ]
    alike = [rival for rival in rivals if rival.frames == counter.frames and rival.missing().keys() & missing.keys()]
    return {segment: missing[segment] for segment in fitting[0]} if len(fitting) == 1 and len(alike) == 1 else {}


def _explain(counters: Sequence[DropCounter], segment: Segment, frames: int) -> None:
    """Record that one of these counters counted so many of the frames missing on a segment."""
    named = [grown for counter in counters for grown in counter.met[segment]]
    segment.blame(named, _OF_ALL if any(grown.shared for grown in named) else "", frames)


def name_rest(segment: Segment) -> None:
    """Attribute the unexplained frames to something that does not count, or else to the segment itself.

    A counter that may have been reset may have counted them. It is then named as a suspect beside what does not count.
    Without anything else that does not count, the frames then stay unexplained.
    """
    if segment.silent:
        certain = [*segment.silent, *segment.perhaps]
        maybe_reset = [drops for drops in segment.drops if drops.resettable and drops not in certain]
        suspects = [*certain, *maybe_reset]
        whys = dict.fromkeys(drops.silent or (_OF_ALL if drops.shared else _IN_ALL) for drops in certain)
        if maybe_reset:
            whys[_MAYBE_RESET] = None
        why = "which do not count" if len(suspects) > 1 and set(whys) == {UNCOUNTED} else " or ".join(whys)
        segment.blame(suspects, why, segment.rest)
    elif segment.name and not any(growth.resettable for growth in segment.drops):
        segment.explain(*segment.name, segment.rest)

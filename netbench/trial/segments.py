"""What dropped the frames that are missing along paths: counters share out what they counted, the rest is named.

A counter that frames meet on several segments of the way, of one stream or of many, has dropped no more on all of them
together than it counted, and on each at least what cannot have been elsewhere. Only that is explained by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

from netbench.model.counts import Loss
from netbench.model.points import CountingPoint
from netbench.trial.evidence import UNCOUNTED, Growth

_MOST_NAMED = 3  # of those that may have dropped a frame
_MOST_COMBINED = 12  # segments of which every combination is tried
_OF_ALL = "counted for all streams"
_IN_ALL = "counted in several places"
_MAYBE_RESET = "whose counter may have been reset meanwhile"


@dataclass(slots=True, eq=False)
class Segment:
    """Part of a path, and what may have dropped frames on it: counters, and the NIC at one end (for `nic_cause`).

    `rest` are the frames missing at its end, whosever, that nothing explains so far. What nothing ever does was lost at
    the point and for the cause of `name`, where there is one. `uut` is the point of what has none of its own. `perhaps`
    are counters that have dropped more than they must have here, there or elsewhere.
    """

    uut: CountingPoint
    rest: int
    drops: Sequence[Growth] = ()
    nic: CountingPoint | None = None
    nic_dropped: int = 0
    nic_cause: str = ""
    name: tuple[CountingPoint, str] | None = None
    perhaps: list[Growth] = field(default_factory=list)
    found: list[Loss] = field(default_factory=list)

    @property
    def silent(self) -> list[Growth]:
        """What may have dropped frames that nobody counted."""
        return [one for one in self.drops if one.silent]

    def explain(self, point: CountingPoint, cause: str, frames: int) -> None:
        """So many of the missing frames were lost there."""
        self.rest -= frames
        if frames:
            self.found.append(Loss(point.name, cause, point.where, point.order, frames))

    def explain_nic(self) -> None:
        """What the NIC itself dropped; of whomever, so no more than is missing."""
        if self.nic:
            self.explain(self.nic, self.nic_cause, min(self.nic_dropped, self.rest))

    def blame(self, suspects: Sequence[Growth], why: str, frames: int) -> None:
        """One of these dropped them: at their point, where they share one."""
        points = {one.point for one in suspects}
        names = [one.counter if len(points) == 1 else f"{one.point.name}: {one.counter}" for one in suspects]
        if len(names) > _MOST_NAMED:
            names[_MOST_NAMED - 1 :] = [f"{len(names) - _MOST_NAMED + 1} more"]
        cause = " or ".join(names) + (f", {why}" if why else "")
        self.explain(points.pop() if len(points) == 1 else self.uut, cause, frames)


@dataclass(slots=True)
class Counter:
    """A counter of drops that has grown by so many `frames`; the segments on which frames meet it, and as what.

    It cannot have dropped more than `most` on a segment, where that is known.
    """

    frames: int
    met: dict[Segment, list[Growth]] = field(default_factory=dict)
    most: dict[Segment, int] = field(default_factory=dict)

    def missing(self) -> dict[Segment, int]:
        """The frames that it may have dropped, where any are missing."""
        most = {segment: min(self.most.get(segment, segment.rest), segment.rest) for segment in self.met}
        return {segment: frames for segment, frames in most.items() if frames > 0}


def share_out(counters: Sequence[Counter]) -> None:
    """Explain what these counters, and nothing else, must have dropped."""
    waiting = list(counters)
    while fitting := next(((one, fit) for one in waiting if (fit := _fit(one, waiting))), None):
        one, fit = fitting
        waiting.remove(one)
        for segment, frames in fit.items():
            _explain([one], segment, frames)
    groups: dict[frozenset[Segment], list[Counter]] = {}
    for one in waiting:
        groups.setdefault(frozenset(one.missing()), []).append(one)
    for group in groups.values():
        missing = group[0].missing()
        counted, total = sum(one.frames for one in group), sum(missing.values())
        if len(group) > 1 and (counted > total or (counted == total and len(missing) > 1)):
            for segment, frames in missing.items():
                _explain(group, segment, frames)  # one of them did, but which of them where nobody knows
            continue
        for one in group:
            _explain_certain(one)


def _explain_certain(counter: Counter) -> None:
    """What a counter must have dropped: on each segment what it has counted beyond all that it can have elsewhere.

    Where nothing drops without counting, frames that it may have dropped were not lost in another way.
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


def _fit(counter: Counter, rivals: Sequence[Counter]) -> dict[Segment, int]:
    """The segments on which together exactly as many frames are missing as it counted, if no others fit as well."""
    missing = counter.missing()
    if len(missing) > _MOST_COMBINED:
        return {}
    fitting = [
        some
        for many in range(1, len(missing) + 1)
        for some in combinations(missing, many)
        if sum(missing[segment] for segment in some) == counter.frames
    ]
    alike = [one for one in rivals if one.frames == counter.frames and one.missing().keys() & missing.keys()]
    return {segment: missing[segment] for segment in fitting[0]} if len(fitting) == 1 and len(alike) == 1 else {}


def _explain(counters: Sequence[Counter], segment: Segment, frames: int) -> None:
    """One of these counters counted so many of the frames missing on a segment."""
    named = [grown for one in counters for grown in one.met[segment]]
    segment.blame(named, _OF_ALL if any(grown.shared for grown in named) else "", frames)


def name_rest(segment: Segment) -> None:
    """What no counter explains: something that does not count, or the segment itself.

    A counter that may have been reset may have counted it: then nothing explains it, or that counter or what does not.
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
    elif segment.name and not any(one.resettable for one in segment.drops):
        segment.explain(*segment.name, segment.rest)

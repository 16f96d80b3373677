"""Outcome of the sent frames: where they were lost, and on which side of the guest.

Schlosser et al. 2011 found, at the end of section 4, that most are lost before they enter the guest. This module checks
that finding.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from sys import maxsize

from netbench.model.counts import PointCount, StreamCounts
from netbench.model.points import PathSection
from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.statistics.groups import Group


@dataclass(frozen=True, slots=True, order=True)
class LossPlace:
    """A place of loss; places sort from source to sink. `where` is None if unknown."""

    order: int
    name: str
    where: PathSection | None = field(default=None, compare=False)


CAPTURE = LossPlace(maxsize - 2, "capture (dropped)")
UNEXPLAINED = LossPlace(maxsize - 1, "explained by no counter")
UNKNOWN_PLACE = LossPlace(maxsize, "somewhere: counters could not be read")
_UNEXPLAINED, _UNKNOWN = (UNEXPLAINED.order, "", ""), (UNKNOWN_PLACE.order, "", "")


class Side(Enum):
    """The position of a place of loss relative to the guest; reports show the value.

    A frame that the virtual NIC dropped because the guest provided no buffer was lost before the guest: its kernel
    never received the frame, although its driver counts it.
    """

    BEFORE = "before the guest"
    INSIDE = "inside the guest"
    AFTER = "after the guest"
    HOST = "no guest on the path"
    TESTER = "in the tester"
    UNKNOWN = "unknown where"


_SIDES = {
    None: Side.UNKNOWN,
    PathSection.SOURCE: Side.BEFORE,
    PathSection.INGRESS: Side.BEFORE,
    PathSection.BEFORE: Side.BEFORE,
    PathSection.INSIDE: Side.INSIDE,
    PathSection.UUT: Side.UNKNOWN,
    PathSection.BEHIND: Side.AFTER,
    PathSection.EGRESS: Side.AFTER,
    PathSection.SINK: Side.AFTER,
}


def side(place: LossPlace, *, guest: bool) -> Side:
    """Return the side of a place of loss on a path through a guest, or through none."""
    if place == CAPTURE:
        return Side.TESTER
    return _SIDES[place.where] if guest or place.where is None else Side.HOST


def lost_frames_by_place(trials: Iterable[TrialResult]) -> Counter[LossPlace]:
    """Return the frames lost at each place; frames that no counter explains or locates have separate places."""
    # Summed by the key of a place: many losses share few places.
    known = {_UNEXPLAINED: UNEXPLAINED, _UNKNOWN: UNKNOWN_PLACE}
    sums: Counter[tuple[int, str, str]] = Counter()
    for trial in trials:
        for counts in trial.streams:
            for loss in counts.lost_at:
                at = loss.order, loss.point, loss.cause
                if at not in known:
                    known[at] = LossPlace(loss.order, loss.place, loss.where)
                sums[at] += loss.frames
            if counts.unexplained_frames:
                sums[_UNEXPLAINED] += counts.unexplained_frames
            elif unplaced := _unplaced(counts):
                sums[_UNKNOWN] += unplaced
    places: Counter[LossPlace] = Counter()
    for at, frames in sums.items():
        places[known[at]] += frames
    return Counter({place: frames for place, frames in places.items() if frames})


def _unplaced(counts: StreamCounts) -> int:
    if counts.unexplained_frames is not None or counts.lost_frames is None:
        return 0
    return counts.lost_frames - sum(loss.frames for loss in counts.lost_at)


@dataclass(frozen=True, slots=True)
class PlaceLoss:
    """Frames lost at one place; the unexplained number is negative if counters report more than is missing."""

    place: LossPlace
    side: Side
    frames: int


@dataclass(frozen=True, slots=True)
class FrameBalance:
    """The frames of some trials, all their streams added up: sent = received + lost.

    `drops` are in the order of the path, those without a place last. `trials` is the number of trials.
    """

    trials: int
    sent: int
    received: int
    drops: tuple[PlaceLoss, ...]

    @property
    def lost(self) -> int:
        """Frames lost, without those dropped by the capture, which did arrive."""
        return sum(drop.frames for drop in self.drops if drop.side is not Side.TESTER)

    def on(self, side: Side) -> int:
        """Return the frames lost on one side."""
        return sum(drop.frames for drop in self.drops if drop.side is side)

    def share_on(self, side: Side) -> float | None:
        """Return the frames lost on one side ÷ all lost frames; None without loss."""
        return self.on(side) / self.lost if self.lost > 0 else None

    def ratio(self, drop: PlaceLoss) -> float:
        """Return the frames lost at a place ÷ sent; 0 if nothing was sent."""
        return drop.frames / self.sent if self.sent else 0.0


def outcome(trials: Iterable[TrialResult], *, guest: bool) -> FrameBalance:
    """Return the outcome of the frames of those streams whose received frames were counted.

    `guest`: whether their path runs through a guest.
    """
    trials = list(trials)
    counted = [counts for trial in trials for counts in trial.streams if counts.received.frames is not None]
    places = lost_frames_by_place(trials)
    places[CAPTURE] = sum(counts.capture_dropped_frames or 0 for counts in counted)
    return FrameBalance(
        trials=len(trials),
        sent=sum(counts.sent.frames for counts in counted),
        received=sum(counts.received.frames or 0 for counts in counted),
        drops=tuple(
            PlaceLoss(place, side(place, guest=guest), places[place]) for place in sorted(places) if places[place]
        ),
    )


@dataclass(frozen=True, slots=True)
class GroupOutcome(FrameBalance):
    """The outcome of the valid repetitions of a group; `doubtful`: of the suspicious ones, as none is valid."""

    group: Group
    doubtful: bool


def group_outcome(group: Group, *, guest: bool) -> GroupOutcome | None:
    """Return the outcome of a group's frames; None without any valid or suspicious repetition."""
    chosen = group.valid or group.suspicious
    if not chosen:
        return None
    whole = outcome((totals.trial for totals in chosen), guest=guest)
    return GroupOutcome(whole.trials, whole.sent, whole.received, whole.drops, group, doubtful=not group.valid)


def uuts_with_guest(trials: Iterable[TrialResult]) -> frozenset[str]:
    """Return the UUTs on whose path a guest counted or lost frames."""
    return frozenset(trial.spec.uut for trial in trials if PathSection.INSIDE in _parts_of_path(trial))


def _parts_of_path(trial: TrialResult) -> Iterator[PathSection]:
    yield from (count.where for count in trial.victim.counters)
    for counts in trial.streams:
        yield from (count.where for count in counts.counters)
        yield from (loss.where for loss in counts.lost_at)


class Answer(Enum):
    """Whether the counts confirm the paper's finding; the value completes "this … it"."""

    CONFIRMED = "confirms"
    REFUTED = "refutes"
    OPEN = "neither confirms nor refutes"


def answer(counted: FrameBalance) -> Answer | None:
    """Return whether the finding is true for any location of the frames lost at unknown places; None without loss."""
    lost, before = counted.lost, counted.on(Side.BEFORE)
    if lost <= 0:
        return None
    if 2 * before > lost:
        return Answer.CONFIRMED
    return Answer.REFUTED if 2 * (before + counted.on(Side.UNKNOWN)) <= lost else Answer.OPEN


@dataclass(frozen=True, slots=True)
class PaperFinding:
    """The counts to compare with the finding: of all UUTs with a guest together, and of each of them.

    They cover the valid trials at any load and frame size. The finding does not apply to the UUTs `without_guest`.
    """

    together: FrameBalance
    by_uut: Mapping[str, FrameBalance]
    without_guest: tuple[str, ...]


def paper_finding(trials: Sequence[TrialResult], uuts: Iterable[str], guests: Collection[str]) -> PaperFinding:
    """Return the counts of the valid trials of these UUTs; `guests` are the UUTs with a guest on their path."""
    measured = [uut for uut in uuts if any(trial.spec.uut == uut for trial in trials)]
    valid = [trial for trial in trials if trial.spec.uut in guests and trial.verdict is Verdict.VALID]
    return PaperFinding(
        together=outcome(valid, guest=True),
        by_uut={
            uut: outcome((trial for trial in valid if trial.spec.uut == uut), guest=True)
            for uut in measured
            if uut in guests
        },
        without_guest=tuple(uut for uut in measured if uut not in guests),
    )


@dataclass(frozen=True, slots=True)
class UutCounter:
    """The total growth of one counter of a UUT, in frames, and the number of trials in which it could be read."""

    point: str
    counter: str
    role: str  # as in PointCount
    frames: int
    trials: int


_UUT = (PathSection.BEFORE, PathSection.INSIDE, PathSection.UUT, PathSection.BEHIND)


@dataclass(slots=True)
class CounterSums:
    """The counts of a UUT and of its machine, summed over the streams of trials that are added one by one."""

    trials: int = 0
    _frames: Counter[tuple[int, str, str, str]] = field(default_factory=Counter)
    _trials: Counter[tuple[int, str, str, str]] = field(default_factory=Counter)  # in which the counter was read

    def add(self, trial: TrialResult, times: int = 1) -> None:
        """Add the counters of a trial, which may be the sum over `times` trials."""
        self.trials += times
        of_trial: Counter[tuple[int, str, str, str]] = Counter()
        for count in _counted_by_uut(trial):
            if count.grew is not None:
                of_trial[count.order, count.point, count.counter, count.role] += count.grew
        self._frames.update(of_trial)
        self._trials.update(dict.fromkeys(of_trial, times))

    def counters(self) -> list[UutCounter]:
        """Return the sums, from source to sink."""
        in_order = sorted(self._frames, key=lambda key: key[0])
        return [UutCounter(*key[1:], frames=self._frames[key], trials=self._trials[key]) for key in in_order]


def _counted_by_uut(trial: TrialResult) -> Iterator[PointCount]:
    yield from trial.victim.counters
    # The only stream of a trial repeats the counters of all streams among its own counters.
    shared = {(count.point, count.counter) for count in trial.victim.counters}
    for counts in trial.streams:
        yield from (
            count for count in counts.counters if count.where in _UUT and (count.point, count.counter) not in shared
        )


@dataclass(slots=True)
class CounterTotals:
    """The counters of a campaign's trials, stored separately because they are most of a trial's data.

    `sums` are over the valid trials, by UUT and the name of the neighbour, empty for the UUT itself. `guests` are the
    UUTs on whose path a guest counted or lost frames.
    """

    sums: dict[tuple[str, str], CounterSums] = field(default_factory=dict)
    guests: set[str] = field(default_factory=set)

    def add(self, trial: TrialResult, times: int = 1) -> None:
        """Add the counters of a trial, which may be the sum over `times` trials."""
        uut = trial.spec.uut
        if uut not in self.guests:
            self.guests |= uuts_with_guest([trial])
        if trial.verdict is Verdict.VALID:
            self.sums.setdefault((uut, ""), CounterSums()).add(trial, times)
            for neighbour in trial.neighbours:
                alone = replace(trial, guests=(neighbour,))
                self.sums.setdefault((uut, neighbour.name), CounterSums()).add(alone, times)

"""What became of the frames that were sent: where each of them ended, and on which side of the guest that is.

Schlosser et al. 2011 found, at the end of section 4, that most are lost before they enter the guest: is that so here?
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from sys import maxsize

from netbench.model.counts import StreamCounts
from netbench.model.points import Where
from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.statistics.groups import Group


@dataclass(frozen=True, slots=True, order=True)
class LossPlace:
    """A place at which frames were lost; these sort from source to sink. `where` is None if that is not known."""

    order: int
    name: str
    where: Where | None = field(default=None, compare=False)


CAPTURE = LossPlace(maxsize - 2, "capture (dropped)")
UNEXPLAINED = LossPlace(maxsize - 1, "explained by no counter")
UNKNOWN_PLACE = LossPlace(maxsize, "somewhere: counters could not be read")
_UNEXPLAINED, _UNKNOWN = (UNEXPLAINED.order, "", ""), (UNKNOWN_PLACE.order, "", "")


class Side(Enum):
    """Where a place of loss is, seen from the guest; the value is what a reader sees.

    A frame that the virtual NIC dropped, for want of a buffer of the guest's, was lost before the guest, whose kernel
    never had it, though the guest's driver tells of it.
    """

    BEFORE = "before the guest"
    INSIDE = "inside the guest"
    AFTER = "after the guest"
    HOST = "no guest on the path"
    TESTER = "in the tester"
    UNKNOWN = "unknown where"


_SIDES = {
    None: Side.UNKNOWN,
    Where.SOURCE: Side.BEFORE,
    Where.INGRESS: Side.BEFORE,
    Where.BEFORE: Side.BEFORE,
    Where.INSIDE: Side.INSIDE,
    Where.UUT: Side.UNKNOWN,
    Where.BEHIND: Side.AFTER,
    Where.EGRESS: Side.AFTER,
    Where.SINK: Side.AFTER,
}


def side(place: LossPlace, *, guest: bool) -> Side:
    """The side that a place of loss is on, along a path that runs through a guest or does not."""
    if place == CAPTURE:
        return Side.TESTER
    return _SIDES[place.where] if guest or place.where is None else Side.HOST


def lost_frames_by_place(trials: Iterable[TrialResult]) -> Counter[LossPlace]:
    """Frames lost at each place; those no counter explains or could place have one of their own."""
    # Summed by what a place is told from others by: there are a few of them in very many losses.
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
class Drop:
    """Frames lost at one place. Fewer than none are unexplained where counters claim more than is missing."""

    place: LossPlace
    side: Side
    frames: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The frames of some trials, all their streams added up: sent = received + those lost.

    `drops` are in the order of the path, those without a place last. `trials` says how many trials these are.
    """

    trials: int
    sent: int
    received: int
    drops: tuple[Drop, ...]

    @property
    def lost(self) -> int:
        """Frames lost, without those that the capture itself dropped: they did arrive."""
        return sum(drop.frames for drop in self.drops if drop.side is not Side.TESTER)

    def on(self, side: Side) -> int:
        """Frames lost on one side."""
        return sum(drop.frames for drop in self.drops if drop.side is side)

    def share_on(self, side: Side) -> float | None:
        """Frames lost on one side ÷ all that were lost; None where none was."""
        return self.on(side) / self.lost if self.lost > 0 else None

    def ratio(self, drop: Drop) -> float:
        """Frames lost at a place ÷ sent; 0 where nothing was sent."""
        return drop.frames / self.sent if self.sent else 0.0


def outcome(trials: Iterable[TrialResult], *, guest: bool) -> Outcome:
    """What became of the frames of some trials, as far as it was counted what arrived.

    `guest` says whether their path runs through a guest.
    """
    trials = list(trials)
    counted = [counts for trial in trials for counts in trial.streams if counts.received_frames is not None]
    places = lost_frames_by_place(trials)
    places[CAPTURE] = sum(counts.capture_dropped_frames or 0 for counts in counted)
    return Outcome(
        trials=len(trials),
        sent=sum(counts.sent_frames for counts in counted),
        received=sum(counts.received_frames or 0 for counts in counted),
        drops=tuple(Drop(place, side(place, guest=guest), places[place]) for place in sorted(places) if places[place]),
    )


@dataclass(frozen=True, slots=True)
class GroupOutcome(Outcome):
    """That of one group of repetitions: of the valid ones, or `doubtful`: of suspicious ones, no other being there."""

    group: Group
    doubtful: bool


def group_outcome(group: Group, *, guest: bool) -> GroupOutcome | None:
    """What became of a group's frames; None without any valid or suspicious repetition."""
    chosen = group.valid or group.suspicious
    if not chosen:
        return None
    whole = outcome((one.trial for one in chosen), guest=guest)
    return GroupOutcome(whole.trials, whole.sent, whole.received, whole.drops, group, doubtful=not group.valid)


def uuts_with_guest(trials: Iterable[TrialResult]) -> frozenset[str]:
    """Those UUTs on whose path a guest counted frames, or lost them."""
    return frozenset(trial.spec.uut for trial in trials if Where.INSIDE in _parts_of_path(trial))


def _parts_of_path(trial: TrialResult) -> Iterator[Where]:
    yield from (count.where for count in trial.victim.counters)
    for counts in trial.streams:
        yield from (count.where for count in counts.counters)
        yield from (loss.where for loss in counts.lost_at)


class Answer(Enum):
    """What the counts say of the paper's finding; the value completes "this … it"."""

    CONFIRMED = "confirms"
    REFUTED = "refutes"
    OPEN = "neither confirms nor refutes"


def answer(counted: Outcome) -> Answer | None:
    """Whether it holds wherever those frames were lost of which that is unknown; None where none was lost."""
    lost, before = counted.lost, counted.on(Side.BEFORE)
    if lost <= 0:
        return None
    if 2 * before > lost:
        return Answer.CONFIRMED
    return Answer.REFUTED if 2 * (before + counted.on(Side.UNKNOWN)) <= lost else Answer.OPEN


@dataclass(frozen=True, slots=True)
class PaperFinding:
    """The finding beside what was counted of all UUTs with a guest together, and of each; not about `without_guest`.

    Counted are the valid trials, at any load and frame size.
    """

    together: Outcome
    by_uut: Mapping[str, Outcome]
    without_guest: tuple[str, ...]


def paper_finding(trials: Sequence[TrialResult], uuts: Iterable[str], guests: Collection[str]) -> PaperFinding:
    """Hold the finding against the valid trials of these UUTs; `guests` are those on whose path a guest is."""
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

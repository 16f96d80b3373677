"""What became of the frames that were sent: where each of them ended."""

from collections.abc import Iterable
from dataclasses import dataclass

from netbench.model.trial import TrialResult
from netbench.statistics.groups import Group
from netbench.statistics.guest_sides import Side, side
from netbench.statistics.placed_losses import along_the_path, lost_frames_by_place

_CAPTURE = "capture (dropped)"


@dataclass(frozen=True, slots=True)
class Death:
    """Frames that died at one place. Fewer than none are unexplained where counters claim more than is missing."""

    place: str
    side: Side
    frames: int


@dataclass(frozen=True, slots=True)
class Fate:
    """The frames of some trials, all their streams added up: sent = received + those that died.

    `deaths` are in the order of the path, those without a place last. `trials` says how many trials these are.
    """

    trials: int
    sent: int
    received: int
    deaths: tuple[Death, ...]

    @property
    def lost(self) -> int:
        """Frames that died, but not those that the capture itself dropped: they did arrive."""
        return sum(death.frames for death in self.deaths if death.side is not Side.TESTER)

    def on(self, side: Side) -> int:
        """Frames that died on one side."""
        return sum(death.frames for death in self.deaths if death.side is side)

    def ratio(self, death: Death) -> float:
        """Frames that died at a place ÷ sent; 0 where nothing was sent."""
        return death.frames / self.sent if self.sent else 0.0


def fate(trials: Iterable[TrialResult], *, guest: bool) -> Fate:
    """The fate of the frames of some trials, as far as it was counted what arrived.

    `guest` says whether their path runs through a guest.
    """
    trials = list(trials)
    counted = [counts for trial in trials for counts in trial.streams if counts.received_frames is not None]
    places = lost_frames_by_place(trials)
    places[_CAPTURE] = sum(counts.capture_dropped_frames or 0 for counts in counted)
    return Fate(
        trials=len(trials),
        sent=sum(counts.sent_frames for counts in counted),
        received=sum(counts.received_frames or 0 for counts in counted),
        deaths=tuple(
            Death(place, side(place, guest=guest), places[place]) for place in along_the_path(places) if places[place]
        ),
    )


@dataclass(frozen=True, slots=True)
class GroupFate(Fate):
    """That of one group of repetitions: of the valid ones, or `doubtful`: of suspicious ones, no other being there."""

    group: Group
    doubtful: bool


def group_fate(group: Group, *, guest: bool) -> GroupFate | None:
    """What became of a group's frames; None without any valid or suspicious repetition."""
    chosen = group.valid or group.suspicious
    if not chosen:
        return None
    whole = fate((one.trial for one in chosen), guest=guest)
    return GroupFate(whole.trials, whole.sent, whole.received, whole.deaths, group, doubtful=not group.valid)

"""Numbers of trials that come from counting frames: their means, and how far counting alone leaves these open."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from netbench.statistics.intervals import Interval, boots_interval, counting_error
from netbench.statistics.totals import Totals, TrialTotals, total

OfTrial = TypeVar("OfTrial")


@dataclass(frozen=True, slots=True)
class Counted(Generic[OfTrial]):
    """A number of a trial that is what it is because of some frames: `events`, out of all of `among`.

    `scale` is by how much it would differ if all of those were such frames: of a throughput, whose events are the
    frames lost, the offered load.
    """

    read: Callable[[OfTrial], float | None]
    events: Callable[[OfTrial], int | None]
    among: Callable[[OfTrial], int | None]
    scale: Callable[[OfTrial], float | None]

    def over(self, trials: Iterable[OfTrial]) -> Interval | None:
        """Its mean over those trials that know it, with the 95 % interval over their boots; None without any.

        Where all trials counted the same number of events, they do not tell how it scatters: the interval is then at
        least as wide as that of a Poisson number of them, or of the other frames where those are fewer.
        """
        known = [(one, value) for one in trials if (value := self.read(one)) is not None]
        if not known:
            return None
        return boots_interval(
            [(_boot(one), value) for one, value in known], self.counting_half_width([one for one, _ in known])
        )

    def counting_half_width(self, trials: Sequence[OfTrial]) -> float:
        """The half width that counting alone leaves to the mean of trials with equal counts; 0 for other trials."""
        counted = self.events(trials[0]) if trials else None
        # Mostly the second one differs, and need not be followed by all others.
        if counted is None or any(self.events(one) != counted for one in trials[1:]):
            return 0.0
        counted *= len(trials)
        among, scale = total(map(self.among, trials)), total(map(self.scale, trials))
        if not among or scale is None:
            return 0.0
        rarer = max(0, min(counted, among - counted))
        return counting_error(rarer) / among * scale / len(trials)


def _boot(one: object) -> int:
    return one.boot if isinstance(one, Totals) else 0


def _unsent(one: Totals) -> int | None:
    """Of a `max` load, which intends no number, what was sent."""
    return one.sent_frames if one.unsent_frames is None else one.unsent_frames


def _intended(one: Totals) -> int | None:
    return one.sent_frames if one.unsent_frames is None else one.intended_frames


def _whole(_: Totals) -> float:
    return 1.0


OFFERED_FPS: Counted[Totals] = Counted(lambda one: one.offered_fps, _unsent, _intended, lambda one: one.offered_fps)
THROUGHPUT_FPS: Counted[Totals] = Counted(
    lambda one: one.throughput_fps,
    lambda one: one.lost_frames,
    lambda one: one.sent_frames,
    lambda one: one.offered_fps,
)
LOSS_RATIO: Counted[Totals] = Counted(
    lambda one: one.loss_ratio, lambda one: one.lost_frames, lambda one: one.sent_frames, _whole
)
UNSENT_RATIO: Counted[Totals] = Counted(lambda one: one.unsent_ratio, _unsent, _intended, _whole)
# The same of all neighbours that forward together, in Mbit/s (L1).
NEIGHBOURS_OFFERED_MBPS: Counted[TrialTotals] = Counted(
    lambda one: one.neighbours_offered_mbps,
    lambda one: total(map(_unsent, one.forwarding)),
    lambda one: total(map(_intended, one.forwarding)),
    lambda one: one.neighbours_offered_mbps,
)
NEIGHBOURS_THROUGHPUT_MBPS: Counted[TrialTotals] = Counted(
    lambda one: one.neighbours_throughput_mbps,
    lambda one: one.neighbours_lost_frames,
    lambda one: one.neighbours_sent_frames,
    lambda one: one.neighbours_offered_mbps,
)
NEIGHBOURS_LOSS_RATIO: Counted[TrialTotals] = Counted(
    lambda one: one.neighbours_loss_ratio,
    lambda one: one.neighbours_lost_frames,
    lambda one: one.neighbours_sent_frames,
    _whole,
)

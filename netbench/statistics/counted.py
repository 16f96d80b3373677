"""Means of numbers derived from frame counts, and the uncertainty due to counting alone."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from netbench.statistics.intervals import Interval, boots_interval, counting_error
from netbench.statistics.totals import Totals, TrialTotals, total

OfTrial = TypeVar("OfTrial")


@dataclass(frozen=True, slots=True)
class CountedNumber(Generic[OfTrial]):
    """A number of a trial that depends on the count of some frames: `events` out of `among`.

    `scale` is the change of the number if all frames were events. The events of a throughput are the lost frames; its
    scale is the offered load.
    """

    read: Callable[[OfTrial], float | None]
    events: Callable[[OfTrial], int | None]
    among: Callable[[OfTrial], int | None]
    scale: Callable[[OfTrial], float | None]

    def over(self, trials: Iterable[OfTrial]) -> Interval | None:
        """Return the mean over the trials with a known value and its 95 % interval over boots; None without any.

        If all trials counted the same number of events, they show no scatter. The interval is then at least as wide as
        that of a Poisson number of events, or of the other frames if those are fewer.
        """
        known = [(trial, value) for trial in trials if (value := self.read(trial)) is not None]
        if not known:
            return None
        return boots_interval(
            [(_boot(trial), value) for trial, value in known], self.counting_half_width([trial for trial, _ in known])
        )

    def counting_half_width(self, trials: Sequence[OfTrial]) -> float:
        """Return the half width due to counting alone for the mean of trials with equal counts; 0 for other trials."""
        counted = self.events(trials[0]) if trials else None
        # The second count usually differs, so the others are rarely read.
        if counted is None or any(self.events(trial) != counted for trial in trials[1:]):
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
    """Return the unsent frames; for a `max` load, which intends no number, the sent ones."""
    return one.sent_frames if one.unsent_frames is None else one.unsent_frames


def _intended(one: Totals) -> int | None:
    return one.sent_frames if one.unsent_frames is None else one.intended_frames


def _whole(_: Totals) -> float:
    return 1.0


OFFERED_FPS: CountedNumber[Totals] = CountedNumber(
    lambda totals: totals.offered_fps, _unsent, _intended, lambda totals: totals.offered_fps
)
THROUGHPUT_FPS: CountedNumber[Totals] = CountedNumber(
    lambda totals: totals.throughput_fps,
    lambda totals: totals.lost_frames,
    lambda totals: totals.sent_frames,
    lambda totals: totals.offered_fps,
)
LOSS_RATIO: CountedNumber[Totals] = CountedNumber(
    lambda totals: totals.loss_ratio, lambda totals: totals.lost_frames, lambda totals: totals.sent_frames, _whole
)
UNSENT_RATIO: CountedNumber[Totals] = CountedNumber(lambda totals: totals.unsent_ratio, _unsent, _intended, _whole)
# The same numbers for all forwarding neighbours together, in Mbit/s (L1).
NEIGHBOURS_OFFERED_MBPS: CountedNumber[TrialTotals] = CountedNumber(
    lambda totals: totals.neighbours_offered_mbps,
    lambda totals: total(map(_unsent, totals.forwarding)),
    lambda totals: total(map(_intended, totals.forwarding)),
    lambda totals: totals.neighbours_offered_mbps,
)
NEIGHBOURS_THROUGHPUT_MBPS: CountedNumber[TrialTotals] = CountedNumber(
    lambda totals: totals.neighbours_throughput_mbps,
    lambda totals: totals.neighbours_lost_frames,
    lambda totals: totals.neighbours_sent_frames,
    lambda totals: totals.neighbours_offered_mbps,
)
NEIGHBOURS_LOSS_RATIO: CountedNumber[TrialTotals] = CountedNumber(
    lambda totals: totals.neighbours_loss_ratio,
    lambda totals: totals.neighbours_lost_frames,
    lambda totals: totals.neighbours_sent_frames,
    _whole,
)

"""Delay and its variation over repetitions: the percentiles of trials brought together."""

from collections import Counter
from collections.abc import Callable, Iterable
from statistics import fmean

from netbench.model.counts import StreamCounts
from netbench.model.distributions import Spread
from netbench.model.trial import TrialResult
from netbench.statistics.groups import Group
from netbench.statistics.intervals import Interval, known_interval

ReadSpread = Callable[[StreamCounts], Spread | None]
ReadTime = Callable[[Spread], float | None]


def delay_of(counts: StreamCounts) -> Spread | None:
    """The one-way delay of a stream."""
    return counts.delay


def pdv_of(counts: StreamCounts) -> Spread | None:
    """Its variation around the smallest one."""
    return counts.pdv


def ipdv_of(counts: StreamCounts) -> Spread | None:
    """Its variation from frame to frame."""
    return counts.ipdv


def time_of(counts: StreamCounts | None, spread: ReadSpread, time: ReadTime) -> float | None:
    """One such time of one stream, ns; None where it is not known."""
    times = None if counts is None else spread(counts)
    return None if times is None else time(times)


def mean_time(group: Group, spread: ReadSpread, time: ReadTime) -> Interval | None:
    """A percentile of the streams of a group, ns: the mean of those that the valid trials had.

    That of a trial is the mean over its streams. Percentiles of all frames together cannot be had from those of the
    trials. None where no trial knows it of all its streams.
    """
    return group.once(
        (spread, time), lambda: known_interval(_of_trial(one.streams, spread, time) for one in group.valid)
    )


def least_time(group: Group, spread: ReadSpread, time: ReadTime) -> float | None:
    """The least of such times, ns, in any stream of the valid trials; None where none is known."""
    return min(_times(group, spread, time), default=None)


def greatest_time(group: Group, spread: ReadSpread, time: ReadTime) -> float | None:
    """The greatest of such times, ns, in any stream of the valid trials; None where none is known."""
    return max(_times(group, spread, time), default=None)


def clock_bound(group: Group) -> int | None:
    """By how many ns clocks may falsify any delay of the valid trials; None where that is not known of all of them."""
    known = [counts for one in group.valid for counts in one.streams if counts is not None and counts.delay is not None]
    bounds = [counts.clock_offset.bound_ns for counts in known if counts.clock_offset is not None]
    return max(bounds) if bounds and len(bounds) == len(known) else None


def refusals(trials: Iterable[TrialResult]) -> dict[str, int]:
    """Why there are no delays, and of how many streams of these trials."""
    return Counter(counts.delay_refused for trial in trials for counts in trial.streams if counts.delay_refused)


def _of_trial(streams: Iterable[StreamCounts | None], spread: ReadSpread, time: ReadTime) -> float | None:
    times = [time_of(counts, spread, time) for counts in streams]
    if len(times) == 1:
        return times[0]
    known = [one for one in times if one is not None]
    return fmean(known) if known and len(known) == len(times) else None


def _times(group: Group, spread: ReadSpread, time: ReadTime) -> list[float]:
    times = (time_of(counts, spread, time) for one in group.valid for counts in one.streams)
    return [one for one in times if one is not None]

"""Delay and delay variation over repetitions: the percentiles of several trials combined."""

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
    """Return the one-way delay of a stream."""
    return counts.delay


def pdv_of(counts: StreamCounts) -> Spread | None:
    """Return the delay variation of a stream relative to its smallest delay (PDV)."""
    return counts.pdv


def ipdv_of(counts: StreamCounts) -> Spread | None:
    """Return the delay variation of a stream from frame to frame (IPDV)."""
    return counts.ipdv


def time_of(counts: StreamCounts | None, spread: ReadSpread, time: ReadTime) -> float | None:
    """Return one such time of one stream, in ns; None if unknown."""
    times = None if counts is None else spread(counts)
    return None if times is None else time(times)


def mean_time(group: Group, spread: ReadSpread, time: ReadTime) -> Interval | None:
    """Return a percentile of the streams of a group, in ns: the mean over the valid trials.

    The value of a trial is the mean over its streams. The percentiles of all frames together cannot be derived from
    those of the trials. None if no trial has it for all its streams.
    """
    return group.once(
        (spread, time), lambda: known_interval(_of_trial(trial.streams, spread, time) for trial in group.valid)
    )


def least_time(group: Group, spread: ReadSpread, time: ReadTime) -> float | None:
    """Return the least of such times, in ns, in any stream of the valid trials; None if none is known."""
    return min(_times(group, spread, time), default=None)


def greatest_time(group: Group, spread: ReadSpread, time: ReadTime) -> float | None:
    """Return the greatest of such times, in ns, in any stream of the valid trials; None if none is known."""
    return max(_times(group, spread, time), default=None)


def clock_bound(group: Group) -> int | None:
    """Return the largest clock error of any delay of the valid trials, in ns; None if it is unknown for any of them."""
    known = [
        counts for trial in group.valid for counts in trial.streams if counts is not None and counts.delay is not None
    ]
    bounds = [counts.clock_offset.bound_ns for counts in known if counts.clock_offset is not None]
    return max(bounds) if bounds and len(bounds) == len(known) else None


def refusals(trials: Iterable[TrialResult]) -> dict[str, int]:
    """Return the number of streams of these trials without delays, by reason."""
    return Counter(counts.delay_refused for trial in trials for counts in trial.streams if counts.delay_refused)


def _of_trial(streams: Iterable[StreamCounts | None], spread: ReadSpread, time: ReadTime) -> float | None:
    times = [time_of(counts, spread, time) for counts in streams]
    if len(times) == 1:
        return times[0]
    known = [value for value in times if value is not None]
    return fmean(known) if known and len(known) == len(times) else None


def _times(group: Group, spread: ReadSpread, time: ReadTime) -> list[float]:
    times = (time_of(counts, spread, time) for trial in group.valid for counts in trial.streams)
    return [value for value in times if value is not None]

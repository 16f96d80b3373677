"""Delay, its variation, and frame order over the trials of a UUT, and bidirectional streams by direction."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean

from netbench.model.counts import StreamCounts
from netbench.model.distributions import Spread
from netbench.model.trial import TrialResult
from netbench.statistics.groups import Group
from netbench.statistics.intervals import Interval, known_interval
from netbench.statistics.repetitions import Repetitions
from netbench.statistics.totals import Totals, ratio

ReadSpread = Callable[[StreamCounts], Spread | None]
ReadTime = Callable[[Spread], float | None]


def delay_of(counts: StreamCounts) -> Spread | None:
    """Return the one-way delay of a stream."""
    return counts.received.delay


def pdv_of(counts: StreamCounts) -> Spread | None:
    """Return the delay variation of a stream relative to its smallest delay (PDV)."""
    return counts.pdv


def ipdv_of(counts: StreamCounts) -> Spread | None:
    """Return the delay variation of a stream from frame to frame (IPDV)."""
    return counts.received.ipdv


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
    known = [counts for trial in group.valid for counts in trial.streams if counts and counts.received.delay]
    bounds = [counts.received.clock_offset.bound_ns for counts in known if counts.received.clock_offset is not None]
    return max(bounds) if bounds and len(bounds) == len(known) else None


def refusals(trials: Iterable[TrialResult]) -> dict[str, int]:
    """Return the number of streams of these trials without delays, by reason."""
    return Counter(counts.received.no_delay for trial in trials for counts in trial.streams if counts.received.no_delay)


def _of_trial(streams: Iterable[StreamCounts | None], spread: ReadSpread, time: ReadTime) -> float | None:
    times = [time_of(counts, spread, time) for counts in streams]
    if len(times) == 1:
        return times[0]
    known = [value for value in times if value is not None]
    return fmean(known) if known and len(known) == len(times) else None


def _times(group: Group, spread: ReadSpread, time: ReadTime) -> list[float]:
    times = (time_of(counts, spread, time) for trial in group.valid for counts in trial.streams)
    return [value for value in times if value is not None]


@dataclass(frozen=True, slots=True)
class FrameOrder:
    """The order of frames in some trials, all their streams added up.

    `reordered` counts the streams whose order is known; None if there are none. `reordered_ratio` is relative to the
    frames these received (RFC 4737, section 4.1). `run_lengths` are numbers of loss runs by the fewest frames of their
    class, as in LossRuns. `extent_frames` is the largest reordering extent; None if no frame was reordered.
    """

    received: int
    duplicates: int
    reordered: int | None
    reordered_ratio: float | None
    extent_frames: int | None
    loss_runs: int
    longest_run_frames: int
    run_lengths: tuple[tuple[int, int], ...]


def order_refusals(trials: Iterable[TrialResult]) -> dict[str, int]:
    """Return the number of streams of these trials whose order is unknown, by reason."""
    return Counter(counts.order_refused for trial in trials for counts in trial.streams if counts.order_refused)


def order_of(trials: Iterable[TrialResult]) -> FrameOrder | None:
    """Return the order of frames in some trials; None if no stream has distinguishable frames."""
    known = [counts for trial in trials for counts in trial.streams if counts.received.duplicates is not None]
    if not known:
        return None
    lengths: Counter[int] = Counter()
    for counts in known:
        for run_class in counts.received.loss_run_lengths:
            lengths[run_class.from_frames] += run_class.runs
    in_order = [counts for counts in known if counts.received.reordered is not None]
    reordered = sum(counts.received.reordered or 0 for counts in in_order) if in_order else None
    extents = [counts.received.reordering_extent.largest for counts in known if counts.received.reordering_extent]
    return FrameOrder(
        received=sum(counts.received.frames or 0 for counts in known),
        duplicates=sum(counts.received.duplicates or 0 for counts in known),
        reordered=reordered,
        reordered_ratio=ratio(reordered, sum(counts.received.frames or 0 for counts in in_order)),
        extent_frames=max(extents, default=None),
        loss_runs=sum(counts.received.loss_runs or 0 for counts in known),
        longest_run_frames=max(counts.received.longest_loss_run or 0 for counts in known),
        run_lengths=tuple(sorted(lengths.items())),
    )


@dataclass(frozen=True)  # no slots: the instance caches computed values
class Direction(Repetitions):
    """One stream of a bidirectional measurement; `reverse_of` names its forward stream if this is a reverse stream."""

    group: Group
    stream: str
    reverse_of: str


def directions(groups: Iterable[Group]) -> list[Direction]:
    """Return each stream of the groups in which frames went both ways, from their valid trials."""
    return [direction for group in groups for direction in _of_group(group)]


def _of_group(group: Group) -> Iterator[Direction]:
    reverse_of = {
        counts.stream: counts.reverse_of for totals in group.valid for counts in totals.streams if counts is not None
    }
    if any(reverse_of.values()):
        for stream, forward in reverse_of.items():
            valid = tuple(
                Totals((counts,), group.frame_size, {}, None, totals.trial.boot)
                for totals in group.valid
                for counts in totals.streams
                if counts is not None and counts.stream == stream
            )
            yield Direction(group.frame_size, valid, group, stream, forward)

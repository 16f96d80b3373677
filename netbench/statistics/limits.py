"""Limits of maxima: whether the UUT limited a maximum, and its height. A maximum is a plateau of throughput over load.

Only this module decides whether a UUT was the limit. The throughput of a UUT that is not overloaded rises with the
offered load. Loss alone shows no limit: a UUT may lose 3 % of every load and forward the rest.

The maxima that loads refer to: from a search, or the highest throughput at any load with idle neighbours.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import hypot
from statistics import fmean

from netbench.model.campaign import Maximum
from netbench.model.counts import l1_mbps
from netbench.model.frame_size import FrameSize
from netbench.model.limits import LIMITED_BY_UUT, LimitCause, LimitKind
from netbench.model.scenario import SHARED_IDLE, Network
from netbench.model.search import SearchResult, SearchState
from netbench.model.trial import LoadReference, TrialResult
from netbench.model.units import Load, LoadKind, rate_text
from netbench.statistics.groups import Group, Plateau, best_groups, gathered, grouped
from netbench.statistics.intervals import Interval
from netbench.statistics.totals import THROUGHPUT_FPS, TrialTotals

# Loads, or throughputs, that differ by less than this share show neither a rise nor a fall.
_APART = 0.05
# A curve is bent if the share forwarded of the frames beyond a lower load is at most a third of the share forwarded of
# that load, and at 95 % confidence at most half of it.
_BENT, _BENT_FOR_CERTAIN = 1 / 3, 1 / 2
# A single load counts as bent if at least a twentieth of it is lost.
_BENT_ALONE = 0.95
# A source that its link kept waiting for this part of the time offered all the path takes; as for saturated trials.
_HELD_UP_PART = 0.25
_ALL = 100.0  # percent


def with_limits(groups: Iterable[Group]) -> tuple[Group, ...]:
    """Return all groups of a campaign; the maxima among them (see best_groups()) have their limit and plateau set."""
    all_groups = tuple(groups)
    maxima = {}
    for same in grouped(all_groups, lambda group: group.sweep).values():
        for best in best_groups(same):
            limit = limit_of(best, same)
            maxima[id(best)] = replace(best, limited_by=limit, plateau=plateau_of(best, same) if limit.is_uut else None)
    return tuple(maxima.get(id(group), group) for group in all_groups)


def limit_of(best: Group, same: Sequence[Group]) -> LimitCause:
    """Return what limited a maximum.

    `same` are all groups that differ from it in load only. The UUT was the limit if the throughput no longer rises with
    the load, or there was backpressure by the link. Otherwise the load was: no higher one was requested, the source
    reached none, or no higher one has enough valid trials.
    """
    higher = sorted((group for group in same if _height(group) > _height(best)), key=_height)
    counted = [best, *(group for group in higher if group.counts_as_maximum)]
    if any(map(pushes_back, counted)) or _bends(best, same):
        return LIMITED_BY_UUT
    for group in higher:
        if not group.counts_as_maximum:
            kinds = ", ".join(dict.fromkeys(reason.kind.value for reason in group.reasons))
            detail = f"too few valid trials at {group.load}" + (f" ({kinds})" if kinds else "")
            return LimitCause(LimitKind.TESTER, detail=detail)
    is_of_source = counted[-1].load.kind is LoadKind.MAX or _is_capped(counted[-1])
    kind = LimitKind.SOURCE if is_of_source else LimitKind.REQUESTED_LOAD
    return LimitCause(kind, still_rises=best.is_overloaded)


def still_rises(same: Iterable[Group]) -> bool:
    """Return whether throughput still rises at the highest of these loads, so that a higher one is needed.

    `same` are the groups of one UUT that differ in load only. False if no load counts.
    """
    counted = [group for group in same if group.counts_as_maximum]
    best = next(iter(best_groups(counted)), None)
    return best is not None and not any(map(pushes_back, counted)) and not _bends(best, counted)


def peak_of(same: Iterable[Group]) -> Group | None:
    """Return the load with the highest throughput if that of the next higher load is significantly lower; else None.

    A fall of less than 5 % does not count. `same` are the groups of one UUT that differ in load only.
    """
    counted = sorted((group for group in same if group.counts_as_maximum and group.throughput_fps), key=_height)
    best = next(iter(best_groups(counted)), None)
    if best is None or best is counted[-1]:
        return None
    peak, beyond = best.throughput_without_noise, counted[counted.index(best) + 1].throughput_without_noise
    if peak is None or beyond is None or beyond.mean > peak.mean * (1 - _APART):
        return None
    return None if _agree(peak, beyond) else best


def plateau_of(best: Group, same: Iterable[Group]) -> Plateau | None:
    """Return the plateau of a maximum: all loads above it whose throughput agrees within the intervals.

    The mean over all of them is not biased upwards, unlike the highest of several means, and does not depend on the
    choice of loads.
    """
    most = best.throughput_fps
    if most is None:
        return None
    members = [
        group
        for group in same
        if group is best
        or (group.counts_as_maximum and _offered(group) >= most.mean and _agree(most, group.throughput_fps))
    ]
    members.sort(key=_height)
    trials = sorted(
        (totals for member in members for totals in member.valid), key=lambda totals: totals.trial.started_ns
    )
    fps = (THROUGHPUT_FPS.over(trials) or most).widened(best.noise_floor)
    if best.frame_size.is_mix:  # its mean size differs between trials
        mbps = replace(best, valid=tuple(trials)).throughput_mbps
    else:
        mbps = fps.scaled(l1_mbps(1.0, best.frame_size.mean_bytes) or 0.0)
    return Plateau(fps, mbps, tuple(member.load for member in members))


def would_not_take_more(group: Group) -> bool:
    """Return whether a load was more than the UUT with its links could forward."""
    return group.is_overloaded or _held_up(group)


def pushes_back(group: Group) -> bool:
    """Return whether the link kept the source from offering more."""
    return group.is_saturated or _held_up(group)


def _bends(best: Group, same: Iterable[Group]) -> bool:
    """Return whether throughput no longer rises with the load around the highest throughput."""
    most, at = best.throughput_without_noise, _offered(best)
    if most is None:
        return False
    counted = [group for group in same if group.counts_as_maximum]
    if any(_offered(group) >= at * (1 + _APART) and group.is_overloaded for group in counted):
        return True  # a higher load without more throughput
    if not best.is_overloaded:
        return False
    lower = [group for group in counted if _offered(group) <= at * (1 - _APART)]
    if not any(group.throughput_without_noise and group.throughput_without_noise.mean for group in lower):
        return most.mean <= _BENT_ALONE * at
    return any(_hardly_rises(most, at, group.throughput_without_noise, _offered(group)) for group in lower)


def _hardly_rises(most: Interval, at: float, below: Interval | None, at_below: float) -> bool:
    """Return whether only few of the frames beyond a lower load were forwarded."""
    if below is None or not below.mean:
        return False
    expected = below.mean / at_below * (at - at_below)
    rise, scatter = most.mean - below.mean, _scatter(most, below)
    return rise <= _BENT * expected and rise + scatter <= _BENT_FOR_CERTAIN * expected


def _agree(interval: Interval, other: Interval | None) -> bool:
    """Return whether two means differ by no more than the half width of their difference (as in ratio_of_intervals)."""
    return other is not None and abs(interval.mean - other.mean) <= _scatter(interval, other)


def _scatter(interval: Interval, other: Interval) -> float:
    """Return the half width of the 95 % interval of the difference of two means."""
    return hypot(interval.half_width or 0.0, other.half_width or 0.0)


def _is_capped(group: Group) -> bool:
    """Return whether the load was limited to, or equals, the most that could be offered."""
    of_maximum = group.load.kind is LoadKind.OF_MAXIMUM and group.load.value >= _ALL
    victims = (totals.trial.spec.victim for totals in group.valid)
    return of_maximum and any(victim.share_of_less or victim.is_less_than_share for victim in victims)


def _held_up(group: Group) -> bool:
    """Return whether the link kept sources waiting at a load of `max`, at which they send as fast as they can."""
    if group.load.kind is not LoadKind.MAX:
        return False
    parts = [
        counts.sent.backpressure_s / counts.sent.duration_s
        for totals in group.valid
        for counts in totals.streams
        if counts is not None and counts.sent.backpressure_s is not None and counts.sent.duration_s
    ]
    return bool(parts) and fmean(parts) >= _HELD_UP_PART


def _offered(group: Group) -> float:
    return group.offered_fps.mean if group.offered_fps else 0.0


def _height(group: Group) -> tuple[bool, float]:
    """Return the sort key of a load; one whose rate in frames/s is unknown is the lowest."""
    rate = group.load.as_rate
    value = rate.value if rate.kind is LoadKind.FRAME_RATE else 0.0
    return group.load.kind is LoadKind.MAX, group.intended_fps or value * group.sources


# Calibration is coarse: only a plateau below this part of its maximum contradicts it.
_FAR_BELOW_CALIBRATION = 0.7
# Larger frames cost at least as much as small ones. Only a rate of small frames below this part is a contradiction.
_SLOWER = 0.9

CalibrationKey = tuple[str, FrameSize, int]  # UUT, frame size, number of sources


@dataclass(frozen=True, slots=True)
class ContradictoryMaxima:
    """Groups whose maxima cannot all be right, and the reason as a text for reports."""

    groups: tuple[Group, ...]
    text: str


def _alike_but_size(group: Group) -> tuple[str, str, int, str]:
    """Return the key that groups share if they differ in the size of their frames and in load only."""
    return group.uut, group.scenario, group.sources, group.frame_size.packet


def contradictory_maxima(
    groups: Sequence[Group], calibrated: Mapping[CalibrationKey, tuple[str, float]]
) -> tuple[ContradictoryMaxima, ...]:
    """Return the contradictions among the maxima of groups from with_limits().

    `calibrated` contains the scenario and the maximum, in frames/s of all sources, that loads are shares of.
    """
    best = best_groups(groups)
    contradictions = []
    for same in grouped(best, _alike_but_size).values():
        of_one_size = (group for group in same if not group.frame_size.is_mix)
        for small, large in pairwise(sorted(of_one_size, key=lambda group: group.frame_size)):
            if _is_below(small.maximum_of_run_fps, large.maximum_of_run_fps, _SLOWER) and not small.is_lower_bound:
                text = (
                    f"{small.uut}, {small.scenario}: {small.frame_size.frames_text} are forwarded at "
                    f"{_kfps(small)}, slower than frames of {large.frame_size.in_bytes} ({_kfps(large)})"
                )
                contradictions.append(ContradictoryMaxima((small, large), text))
    for group in best:
        scenario, fps = calibrated.get((group.uut, group.frame_size, group.sources), ("", 0.0))
        if group.is_lower_bound or group.scenario != scenario:
            continue  # a lower bound contradicts nothing
        if _is_below(group.maximum_of_run_fps, Interval(fps, 0.0, 1), _FAR_BELOW_CALIBRATION):
            text = (
                f"{group.uut}, {group.scenario}: {_kfps(group)} is far below "
                f"the {fps / 1e3:,.1f} kfps of the calibration"
            )
            contradictions.append(ContradictoryMaxima((group,), text))
    return tuple(contradictions)


def _is_below(interval: Interval | None, other: Interval | None, part: float) -> bool:
    """Return whether the mean is below `part` × that of `other` by more than both half widths combined."""
    if interval is None or other is None:
        return False
    limit = other.scaled(part)
    return interval.mean + _scatter(interval, limit) < limit.mean


def _kfps(group: Group) -> str:
    return f"{group.maximum_of_run_fps.mean / 1e3:,.1f} kfps" if group.maximum_of_run_fps else "an unknown rate"


def maximum_of(found: SearchResult) -> Maximum | None:
    """Return the maximum from a search: the throughput at its lower bound, or under overload; None without a maximum.

    If no more could be offered, the maximum is marked as a lower bound. If no more was requested, there is no maximum:
    a higher limit of the search is enough to find it. Nor is there one for a workload, which forwards no frames.
    """
    if found.of_flows or found.throughput is None or found.lower is None or not found.throughput:
        return None
    if found.state not in (SearchState.FOUND, SearchState.AT_LEAST) or found.limited_by_request:
        return None
    fps, load = found.throughput, str(Load.of_fps(float(f"{found.lower:.6g}")))
    if found.overload_fps is not None and found.overload_fps > fps:
        fps, load = found.overload_fps, "overload"
    return Maximum(
        found.uut,
        found.frame_size,
        fps,
        load,
        found.trials,
        _limit_of(found),
        found.held_fps,
        goal=found.goal,
        sources=len(found.streams),
    )


def workload_maximum_of(found: SearchResult) -> LoadReference | None:
    """Return the maximum of a workload from a search: its lower bound; None without a maximum, as for frames."""
    if not found.lower or found.state not in (SearchState.FOUND, SearchState.AT_LEAST) or found.limited_by_request:
        return None
    return LoadReference(found.lower, _limit_of(found), unit=found.unit)


def _limit_of(found: SearchResult) -> LimitCause:
    """Return the limit of a maximum that a search found."""
    if found.limited_by.is_uut and not found.is_regular and found.why:
        return LimitCause(LimitKind.TRIAL_REASON, detail=found.why)
    return found.limited_by


def why_no_maximum(found: SearchResult | None) -> str:
    """Return why a search found no maximum, and the remedy."""
    if found is None:
        return "nothing was searched for; choose a schedule that searches (maxima)"
    if found.limited_by_request:
        return (
            f"it is at least {rate_text(found.lower or 0.0, found.unit)}, the highest load that the search may try; "
            "raise maxima.highest, or leave it out"
        )
    if found.state is SearchState.AT_MOST and found.of_flows:
        return (
            f"even at {rate_text(found.upper or 0.0, found.unit)} the service level was missed; allow longer times or "
            "more errors (maxima.below, maxima.errors), or a lower rate (maxima.lowest)"
        )
    if found.state is SearchState.AT_MOST:
        return (
            f"even at {found.upper or 0:,.0f} frames/s more was lost than the search allows; allow more "
            "(maxima.loss), or search for it among the loads (maxima=loads)"
        )
    return f"the search for it failed: {found.why or found.limited_by.stored or 'no trial describes the UUT'}"


def why_none_among_loads(found: Maximum | None) -> str:
    """Return why the loads of a profile show no maximum, or only one that they limit themselves, and the remedy."""
    if found is None:
        return (
            "none was found: no load had forwarded frames and two thirds of its repetitions valid at the first attempt"
        )
    return (
        f"it is at least {found.fps:,.0f} frames/s a stream, limited by {found.limited_by} ({found.load}, of which "
        "nothing was lost); add higher loads (loads=…,max), or search for it (maxima=search)"
    )


class MaximumSearch:
    """The search for the highest throughput of a stream, a plateau, with idle neighbours, at the loads that count.

    Only the trials with the fewest sources count. Schlosser et al. 2011, section 3.4: "the maximum rate", measured with
    the second guest being idle.
    """

    def __init__(self) -> None:
        self._idle: dict[tuple[str, FrameSize], list[TrialTotals]] = {}
        self._referred_to: dict[tuple[str, FrameSize], None] = {}

    def add(self, trial: TrialResult) -> None:
        """Add a trial."""
        spec = trial.spec
        for task in spec.neighbours:
            if isinstance(task.activity, Network) and task.activity.share is not None and task.traffic is not None:
                self._referred_to[spec.uut, task.activity.frame_size] = None
        if spec.scenario == SHARED_IDLE and not spec.serves:
            self._idle.setdefault((spec.uut, spec.frame_size), []).append(TrialTotals.of(trial.without_counters))

    def maximum(self, uut: str, frame_size: FrameSize) -> Maximum | None:
        """Return the maximum of a UUT for this frame size; None if no load that counts shows one yet."""
        groups = gathered(self._idle.get((uut, frame_size), ()))
        fewest = min((group.sources for group in groups), default=0)
        comparable = [group for group in groups if group.sources == fewest]
        for best in best_groups(with_limits(comparable)):
            if best.limited_by and (fps := best.maximum_of_run_fps) and fps.mean:
                limit = best.limited_by
                return Maximum(uut, frame_size, fps.mean / fewest, str(best.load), fps.n, limit, sources=fewest)
        return None

    def referred_to(self) -> tuple[Maximum, ...]:
        """Return the maxima of which loads of neighbours were a share."""
        return tuple(filter(None, (self.maximum(*reference) for reference in self._referred_to)))


def find_maximum(trials: Iterable[TrialResult], uut: str, frame_size: FrameSize) -> Maximum | None:
    """Return the maximum of a UUT for frames of this size, from these trials."""
    search = MaximumSearch()
    for trial in trials:
        search.add(trial)
    return search.maximum(uut, frame_size)

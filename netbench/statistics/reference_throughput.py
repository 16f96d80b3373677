"""The maxima that loads refer to: from a search, or the highest throughput at any load with idle neighbours."""

from collections.abc import Iterable

from netbench.model.campaign import Maximum
from netbench.model.frame_mix import FrameSize
from netbench.model.limits import LimitCause, LimitKind
from netbench.model.scenario import SHARED_IDLE, Network
from netbench.model.search import SearchResult, SearchState
from netbench.model.trial import TrialResult
from netbench.model.units import Load
from netbench.statistics.groups import best_groups, gathered
from netbench.statistics.limits import limit_of, plateau_of
from netbench.statistics.totals import TrialTotals


def maximum_of(found: SearchResult) -> Maximum | None:
    """Return the maximum from a search: the throughput at its lower bound, or under overload; None without a maximum.

    If no more could be offered, the maximum is marked as a lower bound. If no more was requested, there is no maximum:
    a higher limit of the search is enough to find it.
    """
    if found.throughput_fps is None or found.lower_fps is None or not found.throughput_fps:
        return None
    if found.state not in (SearchState.FOUND, SearchState.AT_LEAST) or found.limited_by_request:
        return None
    fps, load = found.throughput_fps, str(Load.of_fps(float(f"{found.lower_fps:.6g}")))
    if found.overload_fps is not None and found.overload_fps > fps:
        fps, load = found.overload_fps, "overload"
    limited_by = found.limited_by
    if limited_by.is_uut and not found.is_regular and found.why:
        limited_by = LimitCause(LimitKind.TRIAL_REASON, detail=found.why)
    return Maximum(
        found.uut,
        found.frame_size,
        fps,
        load,
        found.trials,
        limited_by,
        found.held_fps,
        goal=found.goal,
        sources=len(found.streams),
    )


def why_no_maximum(found: SearchResult | None) -> str:
    """Return why a search found no maximum, and the remedy."""
    if found is None:
        return "nothing was searched for; choose a schedule that searches (maxima)"
    if found.limited_by_request:
        return (
            f"it is at least {found.lower_fps or 0:,.0f} frames/s, the highest load that the search may try; raise "
            "maxima.highest, or leave it out"
        )
    if found.state is SearchState.AT_MOST:
        return (
            f"even at {found.upper_fps or 0:,.0f} frames/s more was lost than the search allows; allow more "
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
        if spec.scenario == SHARED_IDLE:
            self._idle.setdefault((spec.uut, spec.frame_size), []).append(TrialTotals.of(trial.without_counters))

    def maximum(self, uut: str, frame_size: FrameSize) -> Maximum | None:
        """Return the maximum of a UUT for this frame size; None if no load that counts shows one yet."""
        groups = gathered(self._idle.get((uut, frame_size), ()))
        fewest = min((group.sources for group in groups), default=0)
        comparable = [group for group in groups if group.sources == fewest]
        best = next(iter(best_groups(comparable)), None)
        if best is None:
            return None
        limit = limit_of(best, comparable)
        plateau = plateau_of(best, comparable) if limit.is_uut else None
        fps = plateau.throughput_fps if plateau else best.throughput_fps
        if fps is None or fps.mean == 0:
            return None
        return Maximum(uut, frame_size, fps.mean / fewest, str(best.load), fps.n, limit, sources=fewest)

    def referred_to(self) -> tuple[Maximum, ...]:
        """Return the maxima of which loads of neighbours were a share."""
        maxima = (self.maximum(*reference) for reference in self._referred_to)
        return tuple(maximum for maximum in maxima if maximum is not None)


def find_maximum(trials: Iterable[TrialResult], uut: str, frame_size: FrameSize) -> Maximum | None:
    """Return the maximum of a UUT for frames of this size, from these trials."""
    search = MaximumSearch()
    for trial in trials:
        search.add(trial)
    return search.maximum(uut, frame_size)

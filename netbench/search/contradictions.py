"""What speaks against one limit: trials that went otherwise than the bounds of their search, searches that differ."""

from collections.abc import Sequence
from math import inf

from netbench.model.search import SearchResult, SearchState
from netbench.search.method import Bounds, Goal, Measured

# What Linux gives a NIC or a tap (txqueuelen), in frames.
_USUAL_QUEUE = 1000
# What part of the frames above the limit must have arrived after the end of sending, for a queue to be seen.
_SEEN_PART = 0.5
# What part of the trials at a load must say otherwise than the bounds do, to say that the UUT is not steady.
_CONTRARY_PART = 1 / 3


def contradiction(trials: Sequence[Measured], goal: Goal, width: float, bounds: Bounds) -> str:
    """The loads at which trials went otherwise than the bounds say, with the bound; empty where there are none.

    Below the lower bound one lossy trial may be a passing disturbance, and what happens right at the limit does not
    count. Above the upper bound a single trial that met the goal is enough, at whatever load.
    """
    if goal.loss_ratio is None:
        return ""
    lower = bounds.lower
    for load in sorted({one.load_fps for one in trials}):
        there = [goal.is_met_by(one) for one in trials if one.load_fps == load and not one.limited_by]
        bad = there.count(False)
        if lower is not None and load < lower * (1 - 2 * width) and _counts(bad, there):
            return f"{bad} of {len(there)} trials at {load:,.0f} frames/s lost more, though that is below the bounds"
    above = above_upper(trials, goal, width, bounds)
    if not above:
        return ""
    loads = [one.load_fps for one in above]
    at = f"{min(loads):,.0f}" if min(loads) == max(loads) else f"{min(loads):,.0f} to {max(loads):,.0f}"
    return (
        f"{len(above)} {'trial' if len(above) == 1 else 'trials'} at {at} frames/s met the goal, though the upper "
        f"bound is {bounds.upper:,.0f} frames/s"
    )


def above_upper(trials: Sequence[Measured], goal: Goal, width: float, bounds: Bounds) -> list[Measured]:
    """The trials above the upper bound that met the goal, and that no queue explains.

    A queue or a credit lets a UUT forward more in a short trial. At a load above the limit that is a number of frames
    which does not depend on the duration: a trial as long as those at the upper bound has no such excuse. Nor has one
    for which the queue would have to be longer than a usual one, unless its frames arrived late enough to show that.
    """
    upper = bounds.upper
    if upper is None or goal.loss_ratio is None:
        return []
    missed = [one.duration_s for one in trials if one.is_at(upper) and not one.limited_by and not goal.is_met_by(one)]
    longest_s = max(missed, default=0.0)
    found = []
    for one in trials:
        if one.load_fps <= upper * (1 + 2 * width) or not goal.is_met_by(one):
            continue
        part = one.duration_s / longest_s if longest_s else inf
        queued = (one.load_fps - upper) * one.duration_s / (1 - part) if part < 1 else inf
        excess = (one.load_fps - upper) * one.duration_s
        if queued > _USUAL_QUEUE and one.buffered < _SEEN_PART * excess:
            found.append(one)
    return found


def disagreement(same: Sequence[SearchResult]) -> str:
    """What speaks against one limit in repeated searches; empty: nothing, or they are not all there."""
    known = [one for one in same if one.state not in (SearchState.SEARCHING, SearchState.FAILED)]
    if len(known) < 2:
        return ""
    width = known[0].width
    # Each is right within its own width; one that is "≥" has no end, and "<" no beginning.
    ends = [inf if one.state is SearchState.AT_LEAST else (one.upper_fps or 0.0) * (1 + width) for one in known]
    begins = [(one.lower_fps or 0.0) * (1 - width) for one in known]
    if max(begins) <= min(ends):
        return ""
    limits = [one.lower_fps or 0.0 for one in known]
    return f"{len(known)} searches ended between {min(limits):,.0f} and {max(limits):,.0f} frames/s"


def _counts(contrary: int, trials: Sequence[bool]) -> bool:
    """Whether so many trials that say otherwise are more than a passing disturbance."""
    return contrary >= 2 and _CONTRARY_PART * len(trials) <= contrary

"""What speaks against one limit: trials that went otherwise than the bounds of their search, searches that differ."""

from collections.abc import Sequence
from math import inf

from netbench.model.search import SearchResult, SearchState
from netbench.search.method import Bounds, Goal, Measured

# What part of the trials at a load must say otherwise than the bounds do, to say that the UUT is not steady.
_CONTRARY_PART = 1 / 3


def contradiction(trials: Sequence[Measured], goal: Goal, width: float, bounds: Bounds, sources: int) -> str:
    """The load at which trials went otherwise than the bounds say; empty where there is none.

    Bounds are of each stream, of which there are `sources`; the frames of a trial are those of all.
    One in a way that passes is none, nor is what happens right at the limit. But no queue or credit lets a UUT forward
    more frames in a short trial than it can in a long one: a single trial that did so is one too many.
    """
    if goal.loss_ratio is None:
        return ""
    lower, upper = bounds.lower, bounds.upper
    longest_s = max((one.duration_s for one in trials if upper is not None and one.is_at(upper)), default=inf)
    for one in trials:
        done = one.forwarded - one.buffered
        if upper is not None and goal.is_met_by(one) and done > upper * sources * (1 + 2 * width) * longest_s:
            return (
                f"{done:,} frames came out of a trial of {one.duration_s:g} s at {one.load_fps:,.0f} frames/s that "
                "lost no more, though that is above the bounds"
            )
    for load in sorted({one.load_fps for one in trials}):
        there = [goal.is_met_by(one) for one in trials if one.load_fps == load and not one.limited_by]
        good = sum(there)
        bad = len(there) - good
        if lower is not None and load < lower * (1 - 2 * width) and _counts(bad, there):
            return f"{bad} of {len(there)} trials at {load:,.0f} frames/s lost more, though that is below the bounds"
        if upper is not None and load > upper * (1 + 2 * width) and _counts(good, there):
            return (
                f"{good} of {len(there)} trials at {load:,.0f} frames/s lost no more, though that is above the bounds"
            )
    return ""


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

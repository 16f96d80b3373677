"""Evidence against a single limit: trials that contradict the bounds of their search, and searches that differ."""

from collections.abc import Sequence
from math import inf

from netbench.model.search import SearchResult, SearchState
from netbench.search.methods import Bounds, Goal, Measured

# The default queue of a NIC or a tap in Linux (txqueuelen), in frames.
_USUAL_QUEUE = 1000
# A queue is detected if at least this part of the frames above the limit arrived after the end of sending.
_SEEN_PART = 0.5
# The UUT is unstable if at least this part of the trials at a load contradicts the bounds.
_CONTRARY_PART = 1 / 3


def contradiction(trials: Sequence[Measured], goal: Goal, width: float, bounds: Bounds) -> str:
    """Return the loads whose trials contradict the bounds, with the bound, as text; empty if there are none.

    Below the lower bound, one lossy trial may be a passing disturbance, and trials right at the limit do not count.
    Above the upper bound, a single trial that met the goal is enough, at any load.
    """
    if goal.loss_ratio is None:
        return ""
    lower = bounds.lower
    for load in sorted({trial.load_fps for trial in trials}):
        met = [goal.is_met_by(trial) for trial in trials if trial.load_fps == load and not trial.limited_by]
        bad = met.count(False)
        if lower is not None and load < lower * (1 - 2 * width) and _counts(bad, met):
            return f"{bad} of {len(met)} trials at {load:,.0f} frames/s lost more, though that is below the bounds"
    above = above_upper(trials, goal, width, bounds)
    if not above:
        return ""
    loads = [trial.load_fps for trial in above]
    at = f"{min(loads):,.0f}" if min(loads) == max(loads) else f"{min(loads):,.0f} to {max(loads):,.0f}"
    return (
        f"{len(above)} {'trial' if len(above) == 1 else 'trials'} at {at} frames/s met the goal, though the upper "
        f"bound is {bounds.upper:,.0f} frames/s"
    )


def above_upper(trials: Sequence[Measured], goal: Goal, width: float, bounds: Bounds) -> list[Measured]:
    """Return the trials above the upper bound that met the goal, and whose success no queue explains.

    A queue or a credit lets a UUT forward a fixed number of extra frames, so it matters in short trials only. It does
    not explain a trial that is as long as those at the upper bound. Nor does it explain a trial that needed a queue
    longer than usual, unless its frames arrived late enough to show such a queue.
    """
    upper = bounds.upper
    if upper is None or goal.loss_ratio is None:
        return []
    missed = [
        trial.duration_s
        for trial in trials
        if trial.is_at(upper) and not trial.limited_by and not goal.is_met_by(trial)
    ]
    longest_s = max(missed, default=0.0)
    contrary = []
    for trial in trials:
        if trial.load_fps <= upper * (1 + 2 * width) or not goal.is_met_by(trial):
            continue
        part = trial.duration_s / longest_s if longest_s else inf
        queued = (trial.load_fps - upper) * trial.duration_s / (1 - part) if part < 1 else inf
        excess = (trial.load_fps - upper) * trial.duration_s
        if queued > _USUAL_QUEUE and trial.buffered < _SEEN_PART * excess:
            contrary.append(trial)
    return contrary


def disagreement(same: Sequence[SearchResult]) -> str:
    """Return the contradiction between repeated searches as text; empty if there is none or fewer than two are done."""
    known = [result for result in same if result.state not in (SearchState.SEARCHING, SearchState.FAILED)]
    if len(known) < 2:
        return ""
    width = known[0].width
    # Each result is accurate within its own width. A result "≥" has no upper end, and "<" no lower one.
    ends = [
        inf if result.state is SearchState.AT_LEAST else (result.upper_fps or 0.0) * (1 + width) for result in known
    ]
    begins = [(result.lower_fps or 0.0) * (1 - width) for result in known]
    if max(begins) <= min(ends):
        return ""
    limits = [result.lower_fps or 0.0 for result in known]
    return f"{len(known)} searches ended between {min(limits):,.0f} and {max(limits):,.0f} frames/s"


def _counts(contrary: int, trials: Sequence[bool]) -> bool:
    """Return True if so many contrary trials are more than a passing disturbance."""
    return contrary >= 2 and _CONTRARY_PART * len(trials) <= contrary

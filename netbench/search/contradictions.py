"""Evidence against a single limit: trials that contradict the bounds of their search, and searches that differ."""

from collections.abc import Sequence
from math import inf

from netbench.model.search import SearchResult, SearchState
from netbench.search.methods import Bounds, Goal, Measured

# The default queue of a NIC or a tap in Linux (txqueuelen), in frames.
_USUAL_QUEUE = 1000
# A queue is detected if at least this part of the frames above the limit arrived after the end of sending.
_SEEN_PART = 0.5
# The UUT is unstable if at least this part of the trials at a load, and two of them, contradict the bounds.
_CONTRARY_PART, _FEWEST_CONTRARY = 1 / 3, 2


def contradiction(trials: Sequence[Measured], goal: Goal, width: float, bounds: Bounds) -> str:
    """Return the loads whose trials contradict the bounds, with the bound, as text; empty if there are none.

    Below the lower bound, one lossy trial may be a passing disturbance, and trials right at the limit do not count.
    Above the upper bound, a single trial that met the goal is enough, at any load.
    """
    if goal.loss_ratio is None:
        return ""
    lowest = 0.0 if bounds.lower is None else bounds.lower * (1 - 2 * width)
    for load in sorted({trial.load_fps for trial in trials if trial.load_fps < lowest}):
        met = [goal.is_met_by(trial) for trial in trials if trial.load_fps == load and not trial.limited_by]
        bad = met.count(False)
        if bad >= _FEWEST_CONTRARY and bad >= _CONTRARY_PART * len(met):
            return f"{bad} of {len(met)} trials at {load:,.0f} frames/s lost more, though that is below the bounds"
    above = above_upper(trials, goal, width, bounds)
    if not above:
        return ""
    loads = sorted(trial.load_fps for trial in above)
    at = f"{loads[0]:,.0f}" if loads[0] == loads[-1] else f"{loads[0]:,.0f} to {loads[-1]:,.0f}"
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
    missed = (trial for trial in trials if trial.is_at(upper) and not trial.limited_by and not goal.is_met_by(trial))
    longest_s = max((trial.duration_s for trial in missed), default=0.0)
    contrary = []
    for trial in trials:
        if trial.load_fps > upper * (1 + 2 * width) and goal.is_met_by(trial):
            part = trial.duration_s / longest_s if longest_s else inf
            excess = (trial.load_fps - upper) * trial.duration_s
            queued = excess / (1 - part) if part < 1 else inf
            if queued > _USUAL_QUEUE and trial.buffered < _SEEN_PART * excess:
                contrary.append(trial)
    return contrary


def disagreement(same: Sequence[SearchResult]) -> str:
    """Return the contradiction between repeated searches as text; empty if there is none or fewer than two are done."""
    known = [result for result in same if result.state not in (SearchState.SEARCHING, SearchState.FAILED)]
    if len(known) < 2:
        return ""
    width, limits = known[0].width, [result.lower_fps or 0.0 for result in known]
    # Each result is accurate within its own width. A result "≥" has no upper end, and "<" no lower one.
    uppers = [inf if result.state is SearchState.AT_LEAST else result.upper_fps or 0.0 for result in known]
    if max(limits) * (1 - width) <= min(uppers) * (1 + width):
        return ""
    return f"{len(known)} searches ended between {min(limits):,.0f} and {max(limits):,.0f} frames/s"

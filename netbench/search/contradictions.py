"""Contradictions: trials against the bounds of their search, and repeated searches that differ."""

from collections.abc import Sequence
from math import inf

from netbench.model.counts import USUAL_QUEUE
from netbench.model.search import SearchResult, SearchState
from netbench.model.units import LoadKind, rate_text
from netbench.search.methods import Bounds, Goal, Measured

# A queue is detected if at least this part of the frames above the limit arrived after the end of sending.
_SEEN_PART = 0.5
# The UUT is unstable if at least this part of the trials at a load, and two of them, contradict the bounds.
_CONTRARY_PART, _FEWEST_CONTRARY = 1 / 3, 2


def contradiction(
    trials: Sequence[Measured],
    goal: Goal,
    width: float,
    bounds: Bounds,
    unit: LoadKind = LoadKind.FRAME_RATE,
) -> str:
    """Return the loads whose trials contradict the bounds, with the bound, as text; empty if there are none.

    Below the lower bound, one lossy trial may be a passing disturbance, and trials right at the limit do not count.
    Above the upper bound, a single trial that met the goal is enough, at any load.
    """
    if goal.loss_ratio is None:
        return ""
    lowest = (bounds.lower or 0.0) * (1 - 2 * width)
    for load in sorted({trial.load for trial in trials if trial.load < lowest}):
        met = [goal.is_met_by(trial) for trial in trials if trial.load == load and not trial.limited_by]
        bad = met.count(False)
        if bad >= _FEWEST_CONTRARY and bad >= _CONTRARY_PART * len(met):
            return (
                f"{bad} of {len(met)} trials at {rate_text(load, unit)} missed the goal, though this load is below the "
                "bounds"
            )
    above = above_upper(trials, goal, width, bounds)
    if not above:
        return ""
    loads = sorted(trial.load for trial in above)
    at = " to ".join(dict.fromkeys(rate_text(load, unit) for load in (loads[0], loads[-1])))
    return (
        f"{len(above)} {'trial' if len(above) == 1 else 'trials'} at {at} met the goal, though the upper "
        f"bound is {rate_text(bounds.upper or 0.0, unit)}"
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
        if trial.load > upper * (1 + 2 * width) and goal.is_met_by(trial):
            part = trial.duration_s / longest_s if longest_s else inf
            excess = (trial.load - upper) * trial.duration_s
            queued = excess / (1 - part) if part < 1 else inf
            if queued > USUAL_QUEUE and trial.buffered < _SEEN_PART * excess:
                contrary.append(trial)
    return contrary


def disagreement(same: Sequence[SearchResult]) -> str:
    """Return the contradiction between repeated searches as text; empty if there is none or fewer than two are done."""
    known = [result for result in same if result.state not in (SearchState.SEARCHING, SearchState.FAILED)]
    if len(known) < 2:
        return ""
    width, limits = known[0].width, [result.lower or 0.0 for result in known]
    # Each result is accurate within its own width. A result "≥" has no upper end, and "<" no lower one.
    uppers = [inf if result.state is SearchState.AT_LEAST else result.upper or 0.0 for result in known]
    if max(limits) * (1 - width) <= min(uppers) * (1 + width):
        return ""
    unit = known[0].unit
    return f"{len(known)} searches ended between {rate_text(min(limits), unit)} and {rate_text(max(limits), unit)}"

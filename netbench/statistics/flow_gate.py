"""The regression gate of flows: whether a leading figure is worse than its base by more than a threshold.

A latency is worse if it rises, a rate if it falls. Passed, failed and inconclusive are as in regression_gate.py.
"""

from collections.abc import Iterator
from dataclasses import replace

from netbench.statistics.change_interval import detectable_change, units_needed
from netbench.statistics.compared_cells import LEAST_CHANGE
from netbench.statistics.flow_comparison import FlowComparison, FlowDifference
from netbench.statistics.intervals import RatioOfMeans, Unknown
from netbench.statistics.regression_gate import (
    EXCLUDED,
    SHOWN,
    CellResult,
    Gate,
    GateResult,
    judge_searches,
    not_compared,
)
from netbench.statistics.search_comparison import SearchComparison
from netbench.statistics.significance import FEWEST


def judge_flows(comparison: FlowComparison, threshold: float, maxima: SearchComparison | None = None) -> Gate:
    """Return the gate at a threshold, a ratio of the base's figure; other figures than leading ones are not judged.

    `maxima` are the searches for the maxima that loads are shares of: a guest with a lower one is offered less.
    """
    of_maxima = judge_searches(maxima, threshold).cells if maxima else ()
    results = _results(comparison, max(threshold, LEAST_CHANGE))
    return Gate(comparison.new.name, threshold, (*of_maxima, *results))


def _results(comparison: FlowComparison, threshold: float) -> Iterator[CellResult]:
    for difference in comparison.differences:
        if difference.is_leading:
            yield _judged(difference, threshold)
    yield from map(not_compared, comparison.left_out)


def _judged(difference: FlowDifference, threshold: float) -> CellResult:
    ratio = difference.ratio
    least, most = _worsening(difference, ratio)
    if ratio.unknown is Unknown.BASE_IS_ZERO:
        outcome, why = GateResult.NOT_JUDGED, ratio.why_unknown
    elif difference.doubt:
        outcome, why = GateResult.INCONCLUSIVE, difference.doubt
    elif min(len(difference.base.valid), len(difference.new.valid)) < FEWEST:
        why = f"fewer than {FEWEST} valid repetitions in one of the campaigns"
        return CellResult(difference.place, GateResult.INCONCLUSIVE, why, difference, repetitions=FEWEST)
    elif difference.sides is None or min(side.units for side in difference.sides) < FEWEST:
        why = f"fewer than {FEWEST} boots, or valid pairs of repetitions, with this figure"
        return CellResult(difference.place, GateResult.INCONCLUSIVE, why, difference, repetitions=FEWEST)
    elif least is not None and least > threshold:
        outcome, why = GateResult.FAILED, SHOWN
    elif most is not None and most <= threshold:
        outcome, why = GateResult.PASSED, EXCLUDED
    else:
        return _inconclusive(difference, threshold)
    return CellResult(difference.place, outcome, why, difference)


def _worsening(difference: FlowDifference, ratio: RatioOfMeans) -> tuple[float | None, float | None]:
    """Return the limits of the relative change for the worse, the least first; None if unknown."""
    if difference.figure.is_better_high:
        low, high = ratio.change_high, ratio.change_low
        return None if low is None else -low, None if high is None else -high
    return ratio.change_low, ratio.change_high


def _inconclusive(difference: FlowDifference, threshold: float) -> CellResult:
    """Return an inconclusive result with the repetitions that decide it if the measured change is real."""
    why = "the interval includes the threshold"
    if difference.is_on_one_boot:
        why += "; one boot: variation between boots unknown"
    cell = CellResult(difference.place, GateResult.INCONCLUSIVE, why, difference)
    change = difference.ratio.change
    if difference.sides is None or change is None:
        return cell
    base, new = difference.sides
    limit = -threshold if difference.figure.is_better_high else threshold
    needed = units_needed(new, base, difference.tests, abs(change - limit))
    detectable = detectable_change(new, base, difference.tests)
    return replace(cell, detectable=detectable, repetitions=needed, is_beyond_repetitions=needed is None)

"""The regression gate: whether a campaign is slower than its base by more than a threshold.

Passed: a regression above the threshold is excluded. Failed: one is shown. Inconclusive: neither.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from netbench.statistics.change_interval import detectable_change, units_needed
from netbench.statistics.compared_cells import (
    LEAST_CHANGE,
    Absence,
    AnyCell,
    ComparedCell,
    Comparison,
    Difference,
    FlowCell,
    LeftOut,
    Searched,
    place_of,
)
from netbench.statistics.flow_comparison import FlowDifference
from netbench.statistics.intervals import Unknown
from netbench.statistics.search_comparison import SearchComparison, SearchDifference
from netbench.statistics.significance import FEWEST


class GateResult(Enum):
    """The result of the gate for a cell, or for all cells. Reports and exports contain the value."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class CellResult:
    """The result of a cell, of a searched limit or of a figure of flows, and the reason as text.

    `difference` is the judged difference; None for a cell that is not compared. For an inconclusive cell, `detectable`
    is the smallest detectable change, as a ratio, and `repetitions` the number that each campaign needs (boots, if
    there are several); None if unknown. `is_beyond_repetitions`: no number of repetitions is enough.
    """

    place: AnyCell
    outcome: GateResult
    why: str
    difference: Difference | SearchDifference | FlowDifference | None = None
    detectable: float | None = None
    repetitions: int | None = None
    is_beyond_repetitions: bool = False


@dataclass(frozen=True, slots=True)
class Gate:
    """The results of all cells of a comparison at a threshold, a ratio of the base's value."""

    name: str  # of the new campaign
    threshold: float
    cells: tuple[CellResult, ...]

    @property
    def outcome(self) -> GateResult:
        """Failed if any cell failed; else inconclusive if any is or no cell was judged; else passed."""
        return total(cell.outcome for cell in self.cells)

    def with_outcome(self, outcome: GateResult) -> tuple[CellResult, ...]:
        """Return the cells with this result."""
        return tuple(cell for cell in self.cells if cell.outcome is outcome)


def total(outcomes: Iterable[GateResult]) -> GateResult:
    """Return the worst result of those that were judged; inconclusive if none was."""
    judged = set(outcomes)
    worst_first = (GateResult.FAILED, GateResult.INCONCLUSIVE, GateResult.PASSED)
    return next((outcome for outcome in worst_first if outcome in judged), GateResult.INCONCLUSIVE)


def judge(comparison: Comparison, threshold: float, maxima: SearchComparison | None = None) -> Gate:
    """Return the gate of campaigns with loads; `maxima` are the searches for the maxima that loads are shares of.

    A searched maximum is judged only if the highest throughput of the same UUT, scenario, number of sources and frame
    size is not.
    """
    cells = [_judged(difference, threshold) for difference in comparison.differences]
    cells += [not_compared(cell) for cell in comparison.left_out]
    if maxima is not None:
        with_maximum = {
            _sweep(place) for place in _decided(cells) if isinstance(place, ComparedCell) and place.load is None
        }
        by_search = (
            cell
            for cell in _searched(maxima, threshold)
            if not isinstance(cell.place, FlowCell) and _sweep(cell.place) not in with_maximum
        )
        cells = [*by_search, *cells]
    every = (*cells, *_undecided(comparison, set(map(_sweep, _decided(cells)))))
    return Gate(comparison.new.name, threshold, tuple({cell.place: cell for cell in every}.values()))


def judge_searches(comparison: SearchComparison, threshold: float) -> Gate:
    """Return the gate of campaigns that searched."""
    return Gate(comparison.new, threshold, tuple(_searched(comparison, threshold)))


_Sweep = tuple[str, str, int, str]


def _sweep(place: ComparedCell | Searched) -> _Sweep:
    return place.uut, place.scenario, place.sources, str(place.traffic)


def _decided(cells: Iterable[CellResult]) -> list[ComparedCell | Searched]:
    """Return the places that were judged."""
    return [
        cell.place
        for cell in cells
        if cell.outcome is not GateResult.NOT_JUDGED and not isinstance(cell.place, FlowCell)
    ]


def _undecided(comparison: Comparison, decided: set[_Sweep]) -> Iterator[CellResult]:
    """Yield a result for each sweep that both campaigns measured, but of which no load could be judged."""
    sides = [
        {_sweep(place): place.of_maximum for place in map(place_of, side.groups)}
        for side in (comparison.base, comparison.new)
    ]
    reasons = {
        _sweep(cell.place): cell.why
        for cell in reversed(comparison.left_out)
        if cell.kind is not Absence.ONE_SIDE and not isinstance(cell.place, FlowCell)
    }
    reasons |= {
        _sweep(difference.place): difference.throughput.why_unknown
        for difference in comparison.differences
        if difference.throughput.unknown is Unknown.BASE_IS_ZERO
    }
    for sweep, place in sides[0].items():
        if sweep in sides[1] and sweep not in decided:
            why = reasons.get(sweep, "neither campaign overloaded the UUT at a common load")
            yield CellResult(place, GateResult.INCONCLUSIVE, f"no load could be compared: {why}")


def _judged(difference: Difference, threshold: float) -> CellResult:
    ratio, limit = difference.throughput, 1 - max(threshold, LEAST_CHANGE)
    if ratio.unknown in (Unknown.BOTH_AT_LEAST, Unknown.BASE_IS_ZERO):
        outcome, why = GateResult.NOT_JUDGED, ratio.why_unknown
    elif difference.doubt:
        outcome, why = GateResult.INCONCLUSIVE, difference.doubt
    elif ratio.unknown in (Unknown.NOT_MEASURED, Unknown.BASE_NOT_MEASURED):
        outcome, why = GateResult.INCONCLUSIVE, ratio.why_unknown
    elif why := _too_few(difference):
        return CellResult(difference.place, GateResult.INCONCLUSIVE, why, difference, repetitions=FEWEST)
    elif ratio.high is not None and ratio.high < limit:
        outcome, why = GateResult.FAILED, SHOWN
    elif ratio.low is not None and ratio.low >= limit:
        outcome, why = GateResult.PASSED, EXCLUDED
    elif ratio.bound:
        outcome, is_maximum = GateResult.INCONCLUSIVE, difference.place.load is None
        less = "base" if ratio.bound == "≤" else "new campaign"
        why = _LOWER_BOUND if is_maximum else f"the source offered less in the {less}"
    else:
        return _inconclusive(difference, 1 - limit)
    return CellResult(difference.place, outcome, why, difference)


def _too_few(difference: Difference) -> str:
    """Return why a cell has too few valid units of replication; empty if it has enough."""
    if min(len(difference.base.valid), len(difference.new.valid)) < FEWEST:
        return f"fewer than {FEWEST} valid repetitions in one of the campaigns"
    if difference.sides is not None and min(side.units for side in difference.sides) < FEWEST:
        return f"fewer than {FEWEST} boots, or valid pairs of repetitions"
    return ""


_LOWER_BOUND = "the maximum of one campaign is a lower bound"
SHOWN, EXCLUDED = "a regression above the threshold is shown", "a regression above the threshold is excluded"


def _inconclusive(difference: Difference, threshold: float) -> CellResult:
    """Return an inconclusive result with the repetitions that decide it if the measured change is real."""
    why = "the interval includes the threshold"
    if difference.is_on_one_boot:
        why += "; one boot: variation between boots unknown"
    cell = CellResult(difference.place, GateResult.INCONCLUSIVE, why, difference)
    if difference.sides is None or difference.throughput.change is None:
        return cell
    base, new = difference.sides
    needed = units_needed(new, base, difference.tests, abs(difference.throughput.change + threshold))
    detectable = detectable_change(new, base, difference.tests)
    return replace(cell, detectable=detectable, repetitions=needed, is_beyond_repetitions=needed is None)


def not_compared(left_out: LeftOut) -> CellResult:
    """Return the result of a cell that is left out: failed if its UUT failed, inconclusive if it may be measured."""
    if left_out.kind is Absence.DEAD:
        return CellResult(left_out.place, GateResult.FAILED, left_out.why)
    is_open = left_out.kind in (Absence.INVALID, Absence.UNFINISHED)
    if isinstance(left_out.place, Searched):
        is_open = left_out.kind is not Absence.ONE_SIDE
    return CellResult(left_out.place, GateResult.INCONCLUSIVE if is_open else GateResult.NOT_JUDGED, left_out.why)


def _searched(comparison: SearchComparison, threshold: float) -> Iterator[CellResult]:
    for difference in comparison.differences:
        yield _judged_search(difference, max(threshold, LEAST_CHANGE))
    yield from map(not_compared, comparison.left_out)


def _judged_search(difference: SearchDifference, threshold: float) -> CellResult:
    few = min(difference.base.searches, difference.new.searches) < FEWEST
    detectable = repetitions = None
    if difference.doubt:
        outcome, why = GateResult.INCONCLUSIVE, difference.doubt
    elif difference.unstable:
        outcome, why = GateResult.INCONCLUSIVE, "a search contradicts itself (unstable)"
    elif difference.greatest < 1 - threshold:
        outcome, why = GateResult.FAILED, SHOWN
    elif difference.least >= 1 - threshold:
        outcome, why = GateResult.PASSED, EXCLUDED
    else:
        outcome, detectable, repetitions = GateResult.INCONCLUSIVE, difference.largest_change, FEWEST if few else None
        why = f"fewer than {FEWEST} searches do not show their scatter" if few else "the ranges overlap"
    return CellResult(difference.place, outcome, why, difference, detectable, repetitions)

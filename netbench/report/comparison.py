"""The texts and rows of a comparison, computed once: terminal, page and exports render these."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from netbench.model.campaign import CampaignResults
from netbench.model.units import LoadKind
from netbench.report.formats import (
    SHOWN_UNITS,
    UNKNOWN,
    at_least,
    bounded,
    change,
    change_limits,
    count,
    mbps,
    mbps_spread,
    mean,
    p_value,
    percent,
    percent_limit,
    percent_spread,
    rate_number,
    sentence,
)
from netbench.results.comparability import ChangedSetting
from netbench.statistics.cell_tests import SINGLE_BOOT
from netbench.statistics.change_interval import MOST_UNITS
from netbench.statistics.compared_cells import (
    LEAST_CHANGE,
    LEAST_DIFFERENCE,
    ComparedCell,
    Comparison,
    Difference,
    Searched,
    Tested,
)
from netbench.statistics.comparison import number_of_tests
from netbench.statistics.flow_comparison import FlowComparison, FlowDifference, number_of_flow_tests
from netbench.statistics.groups import grouped
from netbench.statistics.intervals import RatioOfMeans, Unknown
from netbench.statistics.regression_gate import CellResult, Gate, GateResult
from netbench.statistics.search_comparison import SINGLE_SEARCH, Range, SearchComparison, SearchDifference
from netbench.statistics.significance import Test, repetitions_needed


@dataclass(frozen=True)
class Compared:
    """A campaign, of loads, searches or flows, compared with the base; its results, and the settings that differ.

    `maxima` compares the searches for the maxima that loads refer to.
    """

    comparison: Comparison | SearchComparison | FlowComparison
    results: CampaignResults
    differs: tuple[ChangedSetting, ...]
    maxima: SearchComparison | None = None
    gate: Gate | None = None

    @property
    def name(self) -> str:
        """The name of the new campaign."""
        new = self.comparison.new
        return new if isinstance(new, str) else new.name

    @property
    def base(self) -> str:
        """The name of the base."""
        base = self.comparison.base
        return base if isinstance(base, str) else base.name

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        if isinstance(self.comparison, FlowComparison):
            return flow_verdict_words(self.comparison)
        return verdict_words(self.comparison)

    @property
    def differences(self) -> list[Difference | SearchDifference | FlowDifference]:
        """All compared cells, those of searches for maxima first."""
        of_maxima = self.maxima.differences if self.maxima else ()
        return [*of_maxima, *self.comparison.differences]

    @property
    def left_out(self) -> list[str]:
        """The cells that are not compared, with the reasons; of campaigns with loads one cell for each reason."""
        if isinstance(self.comparison, SearchComparison):
            return [str(limit) for limit in self.comparison.left_out]
        by_reason = grouped(self.comparison.left_out, lambda cell: cell.why)
        return [
            f"{cells[0].place}{f', and {len(cells) - 1:,} more' if len(cells) > 1 else ''}: {why}"
            for why, cells in by_reason.items()
        ]


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """A compared cell in words: both sides with their spreads, the difference, its test.

    `change` is negative where the new campaign is worse, and None without a significant difference.
    """

    place: ComparedCell | Searched
    base: str
    new: str
    difference: str
    change: float | None
    base_spread: str = ""
    new_spread: str = ""
    load: str = ""
    p: str = ""
    test: str = ""
    n: str = ""
    note: str = ""


def throughput_row(difference: Difference) -> ComparedRow:
    """The throughputs of a cell."""
    groups, is_maximum = (difference.base, difference.new), difference.place.load is None
    measured = [group.maximum_of_run_mbps if is_maximum else group.throughput_mbps for group in groups]
    sides = [
        (at_least(mbps(mean(throughput)), group.is_lower_bound), mbps_spread(throughput))
        for group, throughput in zip(groups, measured, strict=True)
    ]
    tested = difference.throughput_test
    return _row(difference, sides, change_words(difference), difference.change, tested, tested.test.value)


def loss_row(difference: Difference) -> ComparedRow:
    """The losses of a cell."""
    sides = [
        (percent(mean(side.loss_ratio)), percent_spread(side.loss_ratio)) for side in (difference.base, difference.new)
    ]
    worse = None if difference.change_of_loss is None else -difference.change_of_loss
    return _row(difference, sides, loss_words(difference), worse, difference.loss_test)


def _row(
    difference: Difference,
    sides: Sequence[tuple[str, str]],
    words: str,
    change: float | None,
    tested: Tested | None,
    test: str = "",
) -> ComparedRow:
    """A row with its load and its number of valid repetitions, on both sides where these differ."""
    groups = (difference.base, difference.new)
    (base, base_spread), (new, new_spread) = sides
    return ComparedRow(
        difference.place,
        base,
        new,
        words,
        change,
        base_spread,
        new_spread,
        load=" → ".join(dict.fromkeys(str(group.load) for group in groups)),
        p=p_value(None if tested is None else tested.corrected),
        test=test,
        n=", ".join(dict.fromkeys(str(len(group.valid)) for group in groups)),
    )


def search_row(difference: SearchDifference) -> ComparedRow:
    """The limits that were searched, of each stream."""
    return ComparedRow(
        difference.place,
        range_words(difference.base, difference.place.unit),
        range_words(difference.new, difference.place.unit),
        search_words(difference),
        difference.change,
        load=difference.place.goal,
        note="unstable" if difference.unstable else "",
    )


def unit_of_searches(differences: Sequence[SearchDifference]) -> str:
    """The unit in which the limits of a comparison are shown: all its searches have the same."""
    units = [difference.place.unit for difference in differences]
    return SHOWN_UNITS[units[0] if units else LoadKind.FRAME_RATE].strip()


def change_words(difference: Difference | FlowDifference) -> str:
    """`−3.0 % (−3.1 … −2.9)`; `none above 0.4 %`, where none is significant; else the measured change.

    `inconclusive (−3.0 % measured)` where a campaign was disturbed.
    """
    ratio = ratio_of(difference)
    if ratio.change is None:
        return ratio.why_unknown or UNKNOWN
    measured = bounded(change(ratio.change), ratio)
    if difference.doubt:
        return f"inconclusive ({measured} measured)"
    tested = difference.test if isinstance(difference, FlowDifference) else difference.throughput_test
    if difference.change is None and tested.p is not None:
        if is_too_noisy(difference):
            return f"too noisy to tell ({measured} measured)"
        if difference.largest_change is not None:
            return f"none above {_limit(max(difference.largest_change, LEAST_CHANGE))} %"
    return f"{measured} ({change_limits(ratio) or UNKNOWN})"


def ratio_of(difference: Difference | FlowDifference) -> RatioOfMeans:
    """The ratio of the throughputs, or of the figures of flows."""
    return difference.ratio if isinstance(difference, FlowDifference) else difference.throughput


def is_too_noisy(difference: Difference | FlowDifference) -> bool:
    """Whether the measurement excludes not even half or twice the value."""
    is_wide = difference.largest_change is not None and difference.largest_change >= 1
    return is_wide or ratio_of(difference).unknown in (Unknown.BASE_MAY_BE_ZERO, Unknown.TOO_FEW)


def search_words(difference: SearchDifference) -> str:
    """`−3.0 %`; `none above 0.9 %`, where it may be the same; `at least −40.0 %`, where a limit was not reached."""
    if difference.doubt:
        return "inconclusive"
    if difference.change is None:
        return UNKNOWN if difference.largest_change is None else f"none above {_limit(difference.largest_change)} %"
    unknown = inf in (difference.base.high, difference.new.high) or 0 in (difference.base.low, difference.new.low)
    return f"at least {change(difference.change)}" if unknown else change(difference.change)


def range_words(limits: Range, unit: LoadKind) -> str:
    """`412.3 … 414.3`, in the unit in which such rates are shown."""
    low, high = rate_number(limits.low, unit), limits.high
    if high == inf:
        return f"≥ {low}"
    return f"{low} … {rate_number(high, unit)}" if limits.low else f"< {rate_number(high, unit)}"


def loss_words(difference: Difference) -> str:
    """The change of the loss ratio, in percentage points (pp)."""
    loss = difference.loss
    if loss is None:
        return UNKNOWN
    tested = difference.loss_test is not None and difference.loss_test.p is not None
    if difference.change_of_loss is None and tested and loss.excluded is not None:
        return f"none above {_limit(max(loss.excluded, LEAST_DIFFERENCE))} pp"
    spread = UNKNOWN if not loss.half_width else f"± {percent(loss.half_width).removesuffix(' %')}"
    sign = "+" if loss.difference > 0 else "−" if loss.difference < 0 else ""
    return f"{sign}{percent(abs(loss.difference)).removesuffix(' %')} pp ({spread})"


def verdict_words(comparison: Comparison | SearchComparison) -> str:
    """`no difference in 12 cells`, `slower in 3, by up to 3.0 %; 12 cells in all`; of searches: limits, lower in 3."""
    is_search = isinstance(comparison, SearchComparison)
    noun, worse, better = ("limit", "lower", "higher") if is_search else ("cell", "slower", "faster")
    cells = count(len(comparison.differences), noun)
    dead = sum(cell.dead for cell in comparison.left_out)
    changes = [difference.change for difference in comparison.differences if difference.change is not None]
    parts = [f"failed in {dead:,}"] if dead else []
    for word, sizes in (
        (worse, [-size for size in changes if size < 0]),
        (better, [size for size in changes if size > 0]),
    ):
        if sizes:
            parts.append(f"{word} in {len(sizes):,}, by up to {change(max(sizes)).lstrip('+')}")
    if parts:
        return f"{'; '.join(parts)}; {cells} in all"
    if comparison.doubt:
        return f"inconclusive in {cells}: {comparison.doubt}"
    if isinstance(comparison, SearchComparison) or any(
        difference.throughput_test.p is not None for difference in comparison.differences
    ):
        return f"no difference in {cells}"
    ratios = [difference.throughput for difference in comparison.differences]
    whys = dict.fromkeys(ratio.why_unknown for ratio in ratios)
    nothing_measured = whys and all(ratio.change is None for ratio in ratios)
    return f"{' or '.join(whys) if nothing_measured else 'too few repetitions'}, in {cells}"


def flow_verdict_words(comparison: FlowComparison) -> str:
    """`no difference in 12 figures`; `worse in 3, by up to 30 %: …; better in 1, by up to 3.0 %; 12 figures in all`."""
    figures = count(len(comparison.differences), "figure")
    dead = sum(cell.dead for cell in comparison.left_out)
    parts = [f"failed in {dead:,}"] if dead else []
    for word, is_worse in (("worse", True), ("better", False)):
        changes = [
            abs(difference.change)
            for difference in comparison.differences
            if difference.change is not None and ((difference.benefit or 0.0) < 0) is is_worse
        ]
        if changes:
            parts.append(f"{word} in {len(changes):,}, by up to {change(max(changes)).lstrip('+')}")
    if parts:
        return f"{'; '.join(parts)}; {figures} in all"
    if comparison.doubt:
        return f"inconclusive in {figures}: {comparison.doubt}"
    if any(difference.test.p is not None for difference in comparison.differences):
        return f"no difference in {figures}"
    return f"too few repetitions, in {figures}"


def how_searches_compare() -> str:
    """The rule by which two limits differ."""
    return sentence("comparison.searches", single=f"{100 * SINGLE_SEARCH:.0f}")


def how_tested(compared: Sequence[Comparison]) -> Iterator[str]:
    """The tests, their corrections, and the repetitions that a permutation test would need."""
    made = number_of_tests(compared)
    tests = {difference.throughput_test.test for comparison in compared for difference in comparison.differences}
    if made:
        covers = "" if Test.PAIRED in tests else sentence("comparison.covers")
        yield sentence("comparison.limits", cells=count(made, "cell"), covers=covers)
        yield sentence("comparison.p", tests=count(made, "test"))
    yield from _tests_words(made, tests)
    yield sentence("comparison.none_above", change=_limit(LEAST_CHANGE), loss=_limit(LEAST_DIFFERENCE))


def how_flows_tested(compared: Sequence[FlowComparison]) -> Iterator[str]:
    """The same for figures of flows."""
    tests = {difference.test.test for comparison in compared for difference in comparison.differences}
    leading, others = number_of_flow_tests(compared)
    if leading or others:
        covers = "" if Test.PAIRED in tests else sentence("comparison.covers")
        numbers = {"leading": count(leading, "test"), "others": count(others, "test")}
        yield sentence("comparison.flow_limits", covers=covers, **numbers)
    yield from _tests_words(max(leading, others), tests)
    yield sentence("comparison.flow_tests", change=_limit(LEAST_CHANGE))


def _tests_words(made: int, tests: Collection[Test]) -> Iterator[str]:
    """The kinds of tests that were made."""
    if Test.WELCH in tests:
        needed = repetitions_needed(made)
        least = sentence("comparison.welch_most" if needed is None else "comparison.welch_least", needed=needed)
        also = sentence("comparison.welch_also") if Test.PERMUTATION in tests else ""
        yield sentence("comparison.welch", also=also, least=least)
    for test, name in ((Test.PAIRED, "paired"), (Test.PERMUTATION, "permutation"), (Test.NONE, "untested")):
        if test in tests:
            yield sentence(f"comparison.{name}")


def gate_words(gate: Gate) -> str:
    """`passed: a regression above 2 % is excluded in all of 12 cells`; similarly for the other outcomes."""
    outcome = gate.outcome
    text = sentence(
        f"comparison.{outcome.value}",
        threshold=f"{100 * gate.threshold:g}",
        number=f"{len(gate.with_outcome(outcome)):,}",
        cells=count(len(gate.cells) - len(gate.with_outcome(GateResult.NOT_JUDGED)), "cell"),
    )
    return f"{outcome.value}: {text}"


def gate_advice(gate: Gate) -> Iterator[str]:
    """Advice on how to decide the inconclusive cells."""
    cells = gate.with_outcome(GateResult.INCONCLUSIVE)
    on_one_boot = [
        cell
        for cell in cells
        if isinstance(cell.difference, Difference | FlowDifference) and cell.difference.is_on_one_boot
    ]
    needed = [cell.repetitions for cell in cells if cell.repetitions is not None]
    if detectable := [cell.detectable for cell in cells if cell.detectable is not None]:
        yield sentence("comparison.detectable", limit=_limit(max(detectable)))
    if on_one_boot:
        yield sentence("comparison.one_boot", single=f"{100 * SINGLE_BOOT:.0f}")
    if any(cell.is_beyond_repetitions for cell in cells if cell not in on_one_boot):
        yield sentence("comparison.beyond", most=f"{MOST_UNITS:,}")
    elif needed:
        yield sentence("comparison.needed", needed=f"{max(needed):,}")


def percent_or_nothing(ratio: float | None) -> str:
    """A ratio above 0 in percent, rounded up; empty where it is unknown."""
    return "" if ratio is None else f"{_limit(ratio)} %"


def cell_result_words(cell: CellResult) -> str:
    """`raw, dedicated, 1 source, 64 bytes, max: −3.0 % (−3.1 … −2.8): a regression above the threshold is shown`."""
    numbers = []
    if cell.detectable is not None:
        numbers.append(f"smallest detectable change {_limit(cell.detectable)} %")
    if cell.repetitions is not None:
        numbers.append(f"{cell.repetitions:,} repetitions needed")
    parts = (str(cell.place), judged_words(cell), cell.why + (f" ({', '.join(numbers)})" if numbers else ""))
    return ": ".join(part for part in parts if part)


def judged_words(cell: CellResult) -> str:
    """The change that was judged, with its limits whether or not it is significant; empty for none."""
    difference = cell.difference
    if isinstance(difference, SearchDifference):
        return search_words(difference)
    if difference is None or (ratio := ratio_of(difference)).change is None:
        return ""
    measured = bounded(change(ratio.change), ratio)
    return f"{measured} measured" if is_too_noisy(difference) else f"{measured} ({change_limits(ratio) or UNKNOWN})"


def _limit(ratio: float) -> str:
    return percent_limit(min(ratio, 1.0))

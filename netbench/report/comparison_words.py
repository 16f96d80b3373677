"""The sentences about a comparison and its gate, the same on the console, on the page and in exports."""

from collections.abc import Iterator, Sequence
from math import inf

from netbench.report.formats import UNKNOWN, bounded, change, change_limits, count, kfps, percent, percent_limit
from netbench.statistics.cell_tests import SINGLE_BOOT
from netbench.statistics.change_interval import MOST_UNITS
from netbench.statistics.compared_cells import LEAST_CHANGE, LEAST_DIFFERENCE, Comparison, Difference, LeftOut, Tested
from netbench.statistics.comparison import number_of_tests
from netbench.statistics.groups import Group, grouped
from netbench.statistics.intervals import Unknown
from netbench.statistics.regression_gate import CellResult, Gate, GateResult
from netbench.statistics.search_comparison import SINGLE_SEARCH, Range, SearchComparison, SearchDifference
from netbench.statistics.significance import Test, repetitions_needed


def change_words(one: Difference) -> str:
    """`−3.0 % (−3.1 … −2.9)`; `none above 0.4 %`, where none is significant; else the measured change.

    `inconclusive (−3.0 % measured)` where a campaign was disturbed.
    """
    throughput = one.throughput
    if throughput.change is None:
        return throughput.why_unknown or UNKNOWN
    if one.doubt:
        return f"inconclusive ({bounded(change(throughput.change), throughput)} measured)"
    if one.change is None and one.throughput_test.p is not None and is_too_noisy(one):
        return f"too noisy to tell ({bounded(change(throughput.change), throughput)} measured)"
    if one.change is None and one.throughput_test.p is not None and one.excluded is not None:
        return f"none above {_limit(max(one.excluded, LEAST_CHANGE))} %"
    return f"{bounded(change(throughput.change), throughput)} ({change_limits(throughput) or UNKNOWN})"


def is_too_noisy(one: Difference) -> bool:
    """Whether the measurement excludes not even half or twice the throughput."""
    is_wide = one.excluded is not None and one.excluded >= 1
    return is_wide or one.throughput.unknown in (Unknown.BASE_MAY_BE_ZERO, Unknown.TOO_FEW)


def search_words(one: SearchDifference) -> str:
    """`−3.0 %`; `none above 0.9 %`, where it may be the same; `at least −40.0 %`, where a limit was not reached."""
    if one.doubt:
        return "inconclusive"
    if one.change is None:
        return UNKNOWN if one.excluded is None else f"none above {_limit(one.excluded)} %"
    unknown = inf in (one.base.high, one.new.high) or 0 in (one.base.low, one.new.low)
    return f"at least {change(one.change)}" if unknown else change(one.change)


def range_words(found: Range) -> str:
    """`412.3 … 414.3`, in thousands of frames/s."""
    if found.high == inf:
        return f"≥ {kfps(found.low)}"
    return f"{kfps(found.low)} … {kfps(found.high)}" if found.low else f"< {kfps(found.high)}"


def searches_verdict(comparison: SearchComparison) -> str:
    """`no difference in 4 limits`, `lower in 1, by up to 3.0 %; 4 limits in all`."""
    limits = count(len(comparison.differences), "limit")
    dead = sum(limit.dead for limit in comparison.left_out)
    parts = [f"failed in {dead:,}"] if dead else []
    for words, sign in (("lower", -1), ("higher", 1)):
        changes = [
            difference.change
            for difference in comparison.differences
            if difference.change is not None and difference.change * sign > 0
        ]
        if changes:
            parts.append(f"{words} in {len(changes):,}, by up to {change(max(map(abs, changes))).lstrip('+')}")
    if parts:
        return f"{'; '.join(parts)}; {limits} in all"
    return f"inconclusive in {limits}: {comparison.doubt}" if comparison.doubt else f"no difference in {limits}"


HOW_SEARCHES_COMPARE = (
    "a limit lies between the bounds of a search, or of all searches for it; it has changed where the ranges of both"
    f" campaigns do not overlap. Fewer than three searches count as repeatable within ±{100 * SINGLE_SEARCH:.0f} %."
    " none above x: a change above x is excluded"
)
TESTS_NOT_COMPARED = "the other tests of RFC 2544 are not compared; the report of each campaign has them"


def loss_words(one: Difference) -> str:
    """The change of the loss ratio, in percentage points (pp)."""
    if one.loss is None:
        return UNKNOWN
    excluded, half_width = one.loss.excluded, one.loss.half_width
    tested = one.loss_test is not None and one.loss_test.p is not None
    if one.change_of_loss is None and tested and excluded is not None:
        return f"none above {_limit(max(excluded, LEAST_DIFFERENCE))} pp"
    spread = UNKNOWN if not half_width else f"± {percent(half_width).removesuffix(' %')}"
    sign = "+" if one.loss.difference > 0 else "−" if one.loss.difference < 0 else ""
    return f"{sign}{percent(abs(one.loss.difference)).removesuffix(' %')} pp ({spread})"


def p_words(tested: Tested | None) -> str:
    """The corrected p, to three decimals."""
    if tested is None or tested.corrected is None:
        return UNKNOWN
    return "<0.001" if tested.corrected < 0.001 else f"{tested.corrected:.3f}"


def verdict_words(comparison: Comparison) -> str:
    """`no difference in any of 12 cells`, `slower in 3, faster in 1 of 12 cells`, with the largest change of each."""
    cells = count(len(comparison.differences), "cell")
    dead = sum(cell.dead for cell in comparison.left_out)
    parts = [f"failed in {dead:,}"] if dead else []
    for words, differences in (("slower", comparison.slower), ("faster", comparison.faster)):
        if differences:
            most = max((difference.change or 0.0 for difference in differences), key=abs)
            parts.append(f"{words} in {len(differences):,}, by up to {change(abs(most)).lstrip('+')}")
    if not parts:
        tested = [difference for difference in comparison.differences if difference.throughput_test.p is not None]
        if comparison.doubt:
            return f"inconclusive in {cells}: {comparison.doubt}"
        if tested:
            return f"no difference in {cells}"
        whys = dict.fromkeys(difference.throughput.why_unknown for difference in comparison.differences)
        is_nothing_measured = all(difference.throughput.change is None for difference in comparison.differences)
        return f"{' or '.join(whys) if is_nothing_measured and whys else 'too few repetitions to tell'}, in {cells}"
    return f"{'; '.join(parts)}; {cells} in all"


def how_tested(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """The tests, their corrections, and the repetitions that a permutation test would need."""
    made = number_of_tests(comparisons)
    tests = {difference.throughput_test.test for comparison in comparisons for difference in comparison.differences}
    if made:
        covers = "" if Test.PAIRED in tests else ", that covers the variation between runs"
        yield f"limits in brackets: a 95 % interval, corrected for {count(made, 'cell')}{covers}"
        yield f"p: two-sided, corrected by Holm's method for {count(made, 'test')}; significant up to 0.05"
    if Test.WELCH in tests:
        needed = repetitions_needed(made)
        least = "more repetitions than are any use" if needed is None else f"at least n = {needed} on either side"
        also = " where there are fewer" if Test.PERMUTATION in tests else ""
        yield (
            f"Welch's t test{also}: with so few repetitions a permutation test cannot be significant among so many"
            f" cells; it needs {least}"
        )
    if Test.PAIRED in tests:
        yield "paired t test: of the ratio in each repetition, as both versions were measured in turn"
    if Test.PERMUTATION in tests:
        yield "permutation test: how often chance alone sets the means as far apart"
    if Test.NONE in tests:
        yield "without p: fewer than three valid repetitions on one side are not tested"
    yield (
        "none above x: no significant difference, and the interval excludes one above x; what is below"
        f" {_limit(LEAST_CHANGE)} % of the throughput or {_limit(LEAST_DIFFERENCE)} percentage points (pp) of loss is"
        " called none"
    )


def gate_words(gate: Gate) -> str:
    """`passed: a regression above 2 % is excluded in all 12 cells`; similarly for the other outcomes."""
    judged = [cell for cell in gate.cells if cell.outcome is not GateResult.NOT_JUDGED]
    outcome = gate.outcome
    decisive = [cell for cell in judged if cell.outcome is outcome]
    cells = count(len(judged), "cell")
    regression = f"a regression above {100 * gate.threshold:g} %"
    what = {
        GateResult.PASSED: f"{regression} is excluded in all of {cells}",
        GateResult.FAILED: f"{regression} is shown in {len(decisive):,} of {cells}",
        GateResult.INCONCLUSIVE: f"{regression} is neither shown nor excluded in {len(decisive):,} of {cells}",
    }
    return f"{outcome.value}: {what[outcome]}"


def gate_advice(gate: Gate) -> Iterator[str]:
    """Advice on how to decide the inconclusive cells."""
    cells = gate.with_outcome(GateResult.INCONCLUSIVE)
    if detectable := [cell.detectable for cell in cells if cell.detectable is not None]:
        yield f"smallest detectable change: {_limit(max(detectable))} % in the noisiest of these cells"
    needed = [cell.repetitions for cell in cells if cell.repetitions is not None]
    on_one_boot = [cell for cell in cells if isinstance(cell.difference, Difference) and cell.difference.is_on_one_boot]
    is_beyond = any(cell.is_beyond_repetitions for cell in cells if cell not in on_one_boot)
    if on_one_boot:
        yield (
            f"one boot counts as repeatable within ±{100 * SINGLE_BOOT:.0f} %: measure each repetition on its own boot "
            "(--set reboot=scenario), or both settings in turns in one campaign (netbench run --against)"
        )
    if needed and not is_beyond:
        yield f"repetitions needed: {max(needed):,} valid ones in each campaign, if the measured change is the true one"
    if is_beyond:
        yield (
            f"not even {MOST_UNITS:,} repetitions decide all of these cells: the variation between runs is too large. "
            "Measure both settings in turns in one campaign (netbench run --against)"
        )


def percent_or_nothing(ratio: float | None) -> str:
    """A ratio above 0 in percent, rounded up; empty where it is unknown."""
    return "" if ratio is None else f"{_limit(ratio)} %"


def cell_result_words(one: CellResult) -> str:
    """`raw, dedicated, 1 source, 64 bytes, max: −3.0 % (−3.1 … −2.8): a regression above the threshold is shown`."""
    numbers = []
    if one.detectable is not None:
        numbers.append(f"smallest detectable change {_limit(one.detectable)} %")
    if one.repetitions is not None:
        numbers.append(f"{one.repetitions:,} repetitions needed")
    parts = (str(one.place), judged_words(one), one.why + (f" ({', '.join(numbers)})" if numbers else ""))
    return ": ".join(part for part in parts if part)


def judged_words(one: CellResult) -> str:
    """The change that was judged, with its limits whether or not it is significant; empty for none."""
    difference = one.difference
    if isinstance(difference, SearchDifference):
        return search_words(difference)
    if difference is None or difference.throughput.change is None:
        return ""
    ratio = difference.throughput
    if is_too_noisy(difference):
        return f"{bounded(change(ratio.change), ratio)} measured"
    return f"{bounded(change(ratio.change), ratio)} ({change_limits(ratio) or UNKNOWN})"


def left_out_words(left_out: Sequence[LeftOut]) -> Iterator[str]:
    """The reasons why cells are not compared, each with the number of cells and the first of them."""
    for why, cells in grouped(left_out, lambda cell: cell.why).items():
        more = f", and {len(cells) - 1:,} more" if len(cells) > 1 else ""
        yield f"{cells[0].place}{more}: {why}"


def repetitions_words(base: Group, new: Group) -> str:
    """The number of valid repetitions in both groups."""
    numbers = [len(base.valid), len(new.valid)]
    return str(numbers[0]) if numbers[0] == numbers[1] else f"{numbers[0]}, {numbers[1]}"


def _limit(ratio: float) -> str:
    return percent_limit(min(ratio, 1.0))

"""What is said of a comparison, on the console and on the page alike."""

from collections.abc import Iterator, Sequence
from math import inf

from netbench.report.formats import UNKNOWN, bounded, change, change_limits, count, kfps, percent, percent_limit
from netbench.statistics.comparison import (
    LEAST_CHANGE,
    LEAST_DIFFERENCE,
    Comparison,
    Difference,
    LeftOut,
    Tested,
    number_of_tests,
)
from netbench.statistics.groups import Group, grouped
from netbench.statistics.search_comparison import Range, SearchComparison, SearchDifference
from netbench.statistics.significance import Test, repetitions_needed


def change_words(one: Difference) -> str:
    """`−3.0 % (−3.1 … −2.9)`; `none above 0.4 %`, where none is significant; what was measured, where nothing tells."""
    throughput = one.throughput
    if throughput.change is None:
        return throughput.why_unknown or UNKNOWN
    if one.change is None and one.throughput_test.p is not None and one.excluded is not None:
        return f"none above {_limit(max(one.excluded, LEAST_CHANGE))} %"
    return f"{bounded(change(throughput.change), throughput)} ({change_limits(throughput) or UNKNOWN})"


def search_words(one: SearchDifference) -> str:
    """`−3.0 %`; `none above 0.9 %`, where it may be the same; `at least −40.0 %`, where a limit was not reached."""
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
    dead = sum(one.dead for one in comparison.left_out)
    parts = [f"failed in {dead:,}"] if dead else []
    for words, sign in (("lower", -1), ("higher", 1)):
        own = [one.change for one in comparison.differences if one.change is not None and one.change * sign > 0]
        if own:
            parts.append(f"{words} in {len(own):,}, by up to {change(max(map(abs, own))).lstrip('+')}")
    return f"{'; '.join(parts)}; {limits} in all" if parts else f"no difference in {limits}"


HOW_SEARCHES_COMPARE = (
    "a limit is between the bounds of a search, or of all that were made of it: one has changed where these ranges have"
    " nothing in common; none above x: they have, and leave out a change above x"
)
TESTS_NOT_COMPARED = "the other tests of RFC 2544 are not compared; the report of each campaign has them"


def loss_words(one: Difference) -> str:
    """The same of the loss ratio, in percentage points."""
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
    """`no difference in any of 12 cells`, `slower in 3, faster in 1 of 12 cells`, with the most of either."""
    cells = count(len(comparison.differences), "cell")
    dead = sum(one.dead for one in comparison.left_out)
    parts = [f"failed in {dead:,}"] if dead else []
    for words, own in (("slower", comparison.slower), ("faster", comparison.faster)):
        if own:
            most = max((one.change or 0.0 for one in own), key=abs)
            parts.append(f"{words} in {len(own):,}, by up to {change(abs(most)).lstrip('+')}")
    if not parts:
        tested = [one for one in comparison.differences if one.throughput_test.p is not None]
        return f"no difference in {cells}" if tested else f"too few repetitions to tell, in {cells}"
    return f"{'; '.join(parts)}; {cells} in all"


def how_tested(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """By what test, corrected how, and how many repetitions a permutation test would need."""
    made = number_of_tests(comparisons)
    tests = {one.throughput_test.test for each in comparisons for one in each.differences}
    if made:
        yield f"p: two-sided, corrected by Holm's method for {count(made, 'test')}; significant up to 0.05"
    if Test.WELCH in tests:
        needed = repetitions_needed(made)
        least = "more repetitions than are any use" if needed is None else f"at least n = {needed} on either side"
        also = " where there are fewer" if Test.PERMUTATION in tests else ""
        yield (
            f"Welch's t test{also}: with so few repetitions a permutation test cannot be significant among so many"
            f" cells; it needs {least}"
        )
    if Test.PERMUTATION in tests:
        yield "permutation test: how often chance alone sets the means as far apart"
    if Test.NONE in tests:
        yield "without p: fewer than three valid repetitions on one side are not tested"
    yield (
        "none above x: no significant difference, and the 95 % interval excludes one above x; what is below"
        f" {_limit(LEAST_CHANGE)} % of the throughput or {_limit(LEAST_DIFFERENCE)} percentage points (pp) of loss is"
        " called none"
    )


def left_out_words(left_out: Sequence[LeftOut]) -> Iterator[str]:
    """Why cells are not compared, with how many and the first of them."""
    for why, own in grouped(left_out, lambda one: one.why).items():
        more = f", and {len(own) - 1:,} more" if len(own) > 1 else ""
        yield f"{own[0].place}{more}: {why}"


def repetitions_words(base: Group, new: Group) -> str:
    """How many valid repetitions either has."""
    numbers = [len(base.valid), len(new.valid)]
    return str(numbers[0]) if numbers[0] == numbers[1] else f"{numbers[0]}, {numbers[1]}"


def _limit(ratio: float) -> str:
    return percent_limit(ratio) if ratio < 1 else f"{100 * ratio:,.0f}"

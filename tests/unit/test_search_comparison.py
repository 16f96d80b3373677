"""Compared searches: the change that their bounds show, and the output and exit codes of `netbench compare`."""

from dataclasses import replace
from math import inf

import pytest

from netbench.errors import ExitCode
from netbench.model.frame_size import FrameSize
from netbench.model.limits import LimitCause, LimitKind
from netbench.model.search import Rfc2544Tests, SearchState
from netbench.results.manifest import SEARCHES
from netbench.statistics.regression_gate import GateResult, judge_searches
from netbench.statistics.search_comparison import compare_searches
from tests.unit.comparison_factory import made_up, stored
from tests.unit.inputs import profile
from tests.unit.report_page import Page
from tests.unit.results_factory import MANIFEST, campaign, guests, search_result, stream_counts, trial


def found(lower=99_600.0, upper=100_000.0, **more):
    return search_result(lower=lower, upper=upper, **more)


def compared(base, new):
    results = campaign([trial(stream_counts())])
    sides = [replace(results, searches=tuple(side)) for side in (base, new)]
    return compare_searches("base", sides[0], "new", sides[1])


def three(factor=1.0, *scatter):
    """Three searches whose limits scatter by these factors."""
    each = scatter or (1.0, 1.0005, 0.9995)
    numbered = enumerate((factor * deviation for deviation in each), start=1)
    return [found(99_600.0 * scale, 100_000.0 * scale, repetition=repetition) for repetition, scale in numbered]


def all_with(searches, **changes):
    return [replace(search, **changes) for search in searches]


MOVED = (0.91, 0.93, 0.97, 1.0, 1.07)
WIDE = [found(1.0, 100_000.0, repetition=number) for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("base", "new", "expected"),
    [
        (three(), three(1.0), GateResult.PASSED),
        (three(), three(0.96), GateResult.FAILED),
        (three(), three(0.97), GateResult.INCONCLUSIVE),
        (three(), three(1.1), GateResult.PASSED),
        # A single search may move by some percent; half as much is a regression nevertheless.
        *(([found()], three(factor)[:1], GateResult.INCONCLUSIVE) for factor in MOVED),
        ([found()], [found(50_000.0, 50_200.0)], GateResult.FAILED),
        ([found()], [found(200_000.0, 200_800.0)], GateResult.PASSED),
        # Searches that scatter exclude less.
        (three(1.0, 1.0, 1.08, 0.93), three(0.97, 1.0, 1.06, 0.95), GateResult.INCONCLUSIVE),
        # The highest new limit is 9 % below the base, the lowest 90 %: the mean of further ones may be anywhere.
        (three(), three(1.0, 0.1, 0.5, 0.91), GateResult.INCONCLUSIVE),
        (WIDE, WIDE, GateResult.INCONCLUSIVE),
        (three(), all_with(three(0.5), unstable="losses at 301 kfps, none at 395 kfps"), GateResult.INCONCLUSIVE),
        (three(), all_with(three(0.23), limited_by=LimitCause(LimitKind.SOURCE)), GateResult.INCONCLUSIVE),
    ],
)
def test_only_a_change_that_searches_show_is_a_regression(base, new, expected):
    assert judge_searches(compared(base, new), 0.02).outcome is expected


@pytest.mark.parametrize(
    ("number", "factor"), [*((3, by) for by in (1.0, 0.96, 0.97, 1.1)), *((1, by) for by in MOVED)]
)
def test_the_change_of_three_searches_is_known_and_that_of_single_ones_is_not(number, factor):
    (one,) = compared(three()[:number], three(factor)[:number]).differences
    assert one.change == (None if number == 1 or factor == 1 else pytest.approx(factor - 1, abs=1e-4))


def test_a_search_that_is_missing_in_an_unfinished_campaign_decides_nothing():
    both, one = [*three(), *all_with(three(), kind_of_traffic=FrameSize.of(512))], three()
    results = campaign([trial(stream_counts())])
    for finished, expected in ((MANIFEST["finished"], GateResult.PASSED), (None, GateResult.INCONCLUSIVE)):
        lacking = replace(results, searches=tuple(one), manifest={**MANIFEST, "finished": finished})
        complete = replace(results, searches=tuple(both))
        for base, new in ((complete, lacking), (lacking, complete)):
            assert judge_searches(compare_searches("base", base, "new", new), 0.02).outcome is expected


def test_repeated_searches_are_as_wide_as_all_of_them():
    scattered = [found(), found(96_000.0, 96_400.0, repetition=2)]
    (one,) = compared(scattered, [found(97_000.0, 97_400.0)]).differences
    assert (one.base.low, one.base.high) == (96_000, 100_000)
    assert one.change is None


@pytest.mark.parametrize(
    ("base", "new", "change"),
    [
        (found(200_000.0, None, state=SearchState.AT_LEAST), found(), -0.383),
        (found(), found(200_000.0, None, state=SearchState.AT_LEAST), 0.62),
        (found(90_000.0, None, state=SearchState.AT_LEAST), found(), None),
        (found(), found(None, 500.0, state=SearchState.AT_MOST), -0.994),
        (found(90_000.0, 95_000.0, state=SearchState.AT_LEAST), found(200_000.0, 201_000.0), None),
    ],
)
def test_a_limit_that_was_not_reached_reports_a_least_change(base, new, change):
    """An upper bound of the tester is none of the UUT."""
    (one,) = compared([base], [new]).differences
    assert one.change == (None if change is None else pytest.approx(change, abs=0.003))
    assert one.largest_change is None or one.largest_change < inf


def test_what_only_one_of_them_reports_is_left_out():
    failed = found(None, None, state=SearchState.FAILED)
    comparison = compared([found(), found(frame_size=512), failed], [failed, found(frame_size=1518)])
    assert comparison.differences == ()
    assert [(missing.place.frame_size.only_size, missing.why) for missing in comparison.left_out] == [
        (64, "not finished, or failed, in new"),
        (512, "only in base"),
        (1518, "only in new"),
    ]


def test_emulated_limits_are_compared_to_none_that_are_not():
    emulated = replace(guests(), searches=(found(uut="virtio"),))
    real = replace(emulated, facts={uut: {} for uut in emulated.facts})
    (left_out,) = compare_searches("base", emulated, "new", real).left_out
    assert left_out.place.uut == "virtio"
    assert "emulated" in left_out.why


@pytest.fixture
def directories(tmp_path):
    def make(name, *searches):
        return stored(tmp_path / name, made_up(), **SEARCHES.put({}, tuple(searches)))

    return make


def test_the_command(compare, directories, tmp_path):
    pdr = all_with(three(), goal="PDR 0.5 %")
    base = directories("base", *three(), *pdr)
    new = directories("new", *three(0.97), *all_with(pdr, unstable="lost here and there"))
    page = tmp_path / "page.html"
    code, out, err = compare(base, new, "--fail-on-regression", "1", "--html", page)
    assert (code, err) == (ExitCode.INVALID_RESULTS, "")
    assert "new against base: lower in 1, by up to 3.0 %; 2 limits in all" in out
    assert "regression: new: raw, dedicated, 1 source, 64 bytes, NDR: −3.0 %" in " ".join(out.split())
    assert "(unstable)" in out
    assert all(len(line) <= 80 for line in out.splitlines() if "page:" not in line and "regression" not in line)
    text = Page(page.read_text()).text
    assert "96.6 … 97.0" in text
    assert "−3.0 %" in text
    assert "a regression above 1 % was found in 1 of 2 cells" in text
    assert compare(base, new, "--fail-on-regression", "5")[0] == ExitCode.INCONCLUSIVE, "one of them is unstable"
    code, out, _ = compare(base, directories("same", *three(), *pdr))
    assert (code, "no difference in 2 limits" in out) == (0, True)


@pytest.mark.parametrize(("why", "expected"), [("uut-failed: it died", 1), ("generator-failed: it died", 5)])
def test_a_uut_that_fails_now_is_a_regression(compare, directories, why, expected):
    """A UUT that the tester could not measure decides nothing."""
    dead = found(None, None, state=SearchState.FAILED, frame_size=512, why=why)
    base, new = directories("base", found(), found(frame_size=512)), directories("new", found(), dead)
    code, out, err = compare(base, new, "--fail-on-regression", "2")
    assert (code, err) == (expected, "")
    failed = "regression: new: raw, dedicated, 1 source, 512 bytes, NDR: its UUT failed in new"
    assert (failed in " ".join(out.split())) == (expected == 1)


def test_a_uut_of_which_all_searches_fail_now_is_a_regression_too(compare, directories, tmp_path):
    """Nothing is left to compare, but all that was requested is still reported."""
    dead = found(None, None, state=SearchState.FAILED, why="uut-failed: it died")
    base, new, page = directories("base", found()), directories("new", dead), tmp_path / "page.html"
    code, out, err = compare(base, new, "--fail-on-regression", "2", "--html", page)
    assert (code, err) == (ExitCode.INVALID_RESULTS, "")
    failed = "raw, dedicated, 1 source, 64 bytes, NDR: its UUT failed in new"
    assert f"regression: new: {failed}" in " ".join(out.split())
    assert "new against base: failed in 1; 0 limits in all" in out
    assert failed in " ".join(Page(page.read_text()).text.split())
    assert compare(base, new)[0] == ExitCode.DONE
    shown = found(None, None, state=SearchState.FAILED, why="generator-failed: it died")
    assert compare(base, directories("tester", shown))[0] == ExitCode.USAGE


def test_that_other_tests_of_rfc_2544_are_not_compared_is_reported(compare, directories, tmp_path):
    base, page = directories("base", found()), tmp_path / "page.html"
    words = "The other tests of RFC 2544 are not compared"
    for tests in (None, Rfc2544Tests(1_488_095.0)):
        new = directories(f"new{tests is None}", found(tests=tests))
        _, out, _ = compare(base, new, "--html", page)
        for shown in (out, Page(page.read_text()).text):
            assert (words in " ".join(shown.split())) == (tests is not None)


@pytest.mark.parametrize("order", [("base", "early"), ("early", "base"), ("early", "other")])
def test_a_campaign_that_was_stopped_within_its_first_search_is_reported_to_go_on(
    compare, directories, tmp_path, order
):
    asked = profile(loads=[], schedule="search")
    directories("base", found())
    for name in ("early", "other"):
        stored(tmp_path / name, made_up(), asked=asked, planned_trials=None)
    code, _, err = compare(*(tmp_path / name for name in order))
    assert code == ExitCode.USAGE
    assert "early was stopped before its first search ended" in " ".join(err.split())
    assert f"netbench resume {tmp_path / 'early'}" in " ".join(err.split())


def test_nothing_in_common(compare, directories):
    code, _, err = compare(directories("base", found()), directories("new", found(uut="other")))
    assert code == ExitCode.USAGE
    assert "base and new cannot be compared: only in base" in err

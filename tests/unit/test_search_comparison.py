"""Compared searches: the change that their bounds show, and the output and exit codes of `netbench compare`."""

from dataclasses import replace
from math import inf

import pytest

from netbench.errors import ExitCode
from netbench.model.limits import Limit, LimitKind
from netbench.model.search import Rfc2544Tests, SearchResult, SearchState
from netbench.results.manifest import SEARCHES
from netbench.statistics.regression_gate import GateResult, judge_searches
from netbench.statistics.search_comparison import compare_searches
from tests.unit.comparison_factory import made_up, stored
from tests.unit.inputs import profile
from tests.unit.report_page import Page
from tests.unit.results_factory import MANIFEST, campaign, guests, stream_counts, trial

FOUND = SearchResult("raw", "dedicated", ("s1",), 64, 1, "mlrsearch", "NDR", 0.0, SearchState.FOUND, 0.005)


def found(lower=99_600.0, upper=100_000.0, **more):
    return replace(FOUND, lower_fps=lower, upper_fps=upper, **more)


def compared(base, new):
    results = campaign([trial(stream_counts())])
    sides = [replace(results, searches=tuple(side)) for side in (base, new)]
    return compare_searches("base", sides[0], "new", sides[1])


def three(factor=1.0, *scatter):
    """Three searches whose limits scatter by these factors."""
    each = scatter or (1.0, 1.0005, 0.9995)
    numbered = enumerate((factor * deviation for deviation in each), start=1)
    return [found(99_600.0 * scale, 100_000.0 * scale, repetition=repetition) for repetition, scale in numbered]


def outcome(base, new, threshold=0.02):
    return judge_searches(compared(base, new), threshold).outcome


@pytest.mark.parametrize(
    ("factor", "expected"),
    [(1.0, GateResult.PASSED), (0.96, GateResult.FAILED), (0.97, GateResult.INCONCLUSIVE), (1.1, GateResult.PASSED)],
)
def test_three_searches_show_how_far_searches_are_apart(factor, expected):
    (one,) = compared(three(), three(factor)).differences
    assert one.change == (None if factor == 1 else pytest.approx(factor - 1, abs=1e-4))
    assert outcome(three(), three(factor)) is expected


@pytest.mark.parametrize("factor", [0.91, 0.93, 0.97, 1.0, 1.07])
def test_a_single_search_whose_limit_moved_by_some_percent_is_no_regression(factor):
    assert outcome([found()], [found(99_600.0 * factor, 100_000.0 * factor)]) is GateResult.INCONCLUSIVE
    (one,) = compared([found()], [found(99_600.0 * factor, 100_000.0 * factor)]).differences
    assert one.change is None


def test_half_as_much_is_a_regression_with_single_searches_too():
    assert outcome([found()], [found(50_000.0, 50_200.0)]) is GateResult.FAILED
    assert outcome([found()], [found(200_000.0, 200_800.0)]) is GateResult.PASSED


def test_searches_that_scatter_exclude_less():
    scattered = three(1.0, 1.0, 1.08, 0.93)
    assert outcome(scattered, three(0.97, 1.0, 1.06, 0.95)) is GateResult.INCONCLUSIVE


def test_searches_too_far_apart_for_an_interval_decide_nothing():
    """The highest new limit is 9 % below the base, the lowest 90 %: the mean of further ones may be anywhere."""
    assert outcome(three(), three(1.0, 0.1, 0.5, 0.91)) is GateResult.INCONCLUSIVE
    wide = [found(1.0, 100_000.0, repetition=number) for number in (1, 2, 3)]
    assert outcome(wide, wide) is GateResult.INCONCLUSIVE


def test_a_search_that_is_missing_in_an_unfinished_campaign_decides_nothing():
    both, one = [*three(), *three()], three()
    both[3:] = [replace(search, frame_size=512) for search in both[3:]]
    results = campaign([trial(stream_counts())])
    for finished, expected in ((MANIFEST["finished"], GateResult.PASSED), (None, GateResult.INCONCLUSIVE)):
        lacking = replace(results, searches=tuple(one), manifest={**MANIFEST, "finished": finished})
        complete = replace(results, searches=tuple(both))
        for base, new in ((complete, lacking), (lacking, complete)):
            assert judge_searches(compare_searches("base", base, "new", new), 0.02).outcome is expected


def test_an_unstable_search_decides_nothing():
    unstable = [replace(search, unstable="losses at 301 kfps, none at 395 kfps") for search in three(0.5)]
    assert outcome(three(), unstable) is GateResult.INCONCLUSIVE


def test_a_limit_that_the_source_set_is_never_a_regression():
    limited = [replace(search, limited_by=Limit(LimitKind.SOURCE)) for search in three(0.23)]
    assert outcome(three(), limited) is GateResult.INCONCLUSIVE


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
    assert one.excluded is None or one.excluded < inf


def test_what_only_one_of_them_reports_is_left_out():
    failed = found(None, None, state=SearchState.FAILED)
    comparison = compared([found(), found(frame_size=512), failed], [failed, found(frame_size=1518)])
    assert comparison.differences == ()
    assert [(missing.what.frame_size, missing.why) for missing in comparison.left_out] == [
        (64, "not finished, or failed, in new"),
        (512, "only in base"),
        (1518, "only in new"),
    ]


def test_emulated_limits_are_compared_to_none_that_are_not():
    emulated = replace(guests(), searches=(found(uut="virtio"),))
    real = replace(emulated, facts={uut: {} for uut in emulated.facts})
    (left_out,) = compare_searches("base", emulated, "new", real).left_out
    assert left_out.what.uut == "virtio"
    assert "emulated" in left_out.why


@pytest.fixture
def directories(tmp_path):
    def make(name, *searches):
        return stored(tmp_path / name, made_up(), **SEARCHES.put({}, tuple(searches)))

    return make


def test_the_command(compare, directories, tmp_path):
    pdr = [replace(search, goal="PDR 0.5 %") for search in three()]
    base = directories("base", *three(), *pdr)
    new = directories("new", *three(0.97), *(replace(search, unstable="lost here and there") for search in pdr))
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

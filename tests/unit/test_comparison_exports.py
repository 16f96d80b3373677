"""A comparison as JSON, JUnit XML and Markdown, and the page with the result of the gate."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from netbench.errors import ExitCode
from netbench.model.verdict import CampaignWarning, WarningKind
from netbench.results.manifest import SEARCHES
from tests.unit.comparison_factory import made_up, stored
from tests.unit.report_page import Page
from tests.unit.results_factory import search_result

BUSY = CampaignWarning(WarningKind.HOST_WAS_BUSY, "The host was <busy> | loaded.")


@pytest.fixture
def sides(tmp_path):
    """A base, the same again, and one that is 3 % slower."""
    return [
        stored(tmp_path / name, made_up(most, seed=seed))
        for name, most, seed in (("base", 80_000, 1), ("again", 80_000, 2), ("slower", 77_600, 3))
    ]


def document(compare, form, *arguments):
    code, out, err = compare(*arguments, "--format", form, "--fail-on-regression", "2")
    assert err == ""
    return code, out


def test_json_has_the_gate_the_cells_and_numbers_with_units(compare, sides):
    code, out = document(compare, "json", *sides)
    assert code == ExitCode.INVALID_RESULTS
    output = json.loads(out)
    assert (output["schema"], output["schema_version"]) == ("netbench-comparison", 1)
    assert (output["gate"]["threshold_percent"], output["gate"]["result"]) == (2.0, "failed")
    assert output["gate"]["cells"] == {"passed": 5, "failed": 3, "inconclusive": 0, "not judged": 0}
    again, slower = output["comparisons"]
    assert (again["new"]["name"], again["gate"], slower["gate"]) == ("again", "passed", "failed")
    most = slower["cells"][0]
    assert (most["uut"], most["frame_size"], most["load"], most["result"]) == ("raw", "64", "maximum", "failed")
    assert most["change_low_percent"] < most["change_percent"] < most["change_high_percent"] < -2
    assert most["base"]["throughput_fps"] == pytest.approx(80_000, rel=0.002)
    for unit in ("throughput_fps", "throughput_mbps"):
        ratio = most["new"][unit] / most["base"][unit]
        assert most["change_percent"] == pytest.approx(100 * (ratio - 1)), "all are of the same loads"
    assert most["base"]["limited_by"] == "the UUT"


def test_json_without_a_gate_has_none(compare, sides):
    _, out, _ = compare(*sides, "--format", "json")
    output = json.loads(out)
    assert output["gate"] is None
    assert {cell["result"] for cell in output["comparisons"][0]["cells"]} == {None}


def test_junit_has_a_case_for_each_cell(compare, sides, tmp_path):
    _, out = document(compare, "junit", *sides)
    again, slower = ElementTree.fromstring(out.encode())
    assert (again.get("name"), again.get("tests"), again.get("failures")) == ("again against base", "4", "0")
    assert (slower.get("failures"), slower.get("errors"), slower.get("skipped")) == ("3", "0", "0")
    failure = slower[0][0]
    assert (slower[0].get("classname"), failure.tag, failure.get("type")) == ("raw.dedicated", "failure", "regression")
    assert "−3." in failure.get("message", "")


def test_an_inconclusive_cell_is_an_error_in_junit_never_a_pass(compare, tmp_path):
    base = stored(tmp_path / "base", made_up(seed=1))
    new = stored(tmp_path / "new", replace(made_up(seed=2), warnings=(BUSY,)))
    code, out = document(compare, "junit", base, new)
    assert code == ExitCode.INCONCLUSIVE
    (suite,) = ElementTree.fromstring(out.encode())
    assert (suite.get("errors"), suite.get("tests")) == ("4", "4")
    assert {case[0].get("type") for case in suite} == {"inconclusive"}


def test_markdown_has_the_gate_warnings_and_a_table(compare, tmp_path):
    base = stored(tmp_path / "base", made_up(seed=1))
    new = stored(tmp_path / "new", replace(made_up(seed=2), warnings=(BUSY,)))
    _, out = document(compare, "markdown", base, new)
    assert "**Gate: inconclusive: a regression above 2 % is neither found nor excluded in 4 of 4 cells**" in out
    assert "- Warning: new (host-was-busy): The host was \\<busy\\> \\| loaded." in out
    rows = [line for line in out.splitlines() if line.startswith("| raw")]
    assert len(rows) == 4
    assert all(line.count(" | ") == 4 and line.endswith("| inconclusive |") for line in rows)


def test_a_file_gets_the_document_and_the_console_the_text(compare, sides, tmp_path):
    target = tmp_path / "gate.json"
    code, out, _ = compare(*sides, "--format", "json", "-o", target, "--fail-on-regression", "2")
    assert code == ExitCode.INVALID_RESULTS
    assert json.loads(target.read_text())["gate"]["result"] == "failed"
    assert "gate, slower: failed" in out
    assert f"written: {target}" in out


@pytest.mark.parametrize("form", ["json", "junit", "markdown"])
def test_searches_have_the_same_forms(compare, tmp_path, form):
    base, new = (
        stored(
            tmp_path / name,
            made_up(),
            **SEARCHES.put({}, (search_result(lower=fps, upper=1.01 * fps),)),
        )
        for name, fps in (("base", 100_000.0), ("new", 50_000.0))
    )
    code, out = document(compare, form, base, new)
    assert code == ExitCode.INVALID_RESULTS
    assert "NDR" in out


def test_filters_leave_the_other_cells_out(compare, tmp_path):
    both = [
        stored(tmp_path / name, made_up(most, seed=seed, sizes=(64, 512), uuts=("one", "two")))
        for name, most, seed in (("base", 80_000, 1), ("new", 80_000, 2))
    ]
    for option, sizes in (("--size", "512"), ("--sizes", "512,51*")):
        _, out, _ = compare(*both, "--format", "json", "--uut", "o*", option, sizes, "--scenario", "dedicated")
        cells = json.loads(out)["comparisons"][0]["cells"]
        assert {(cell["uut"], cell["frame_size"]) for cell in cells} == {("one", "512")}


def test_the_page_shows_the_gate_and_the_warnings(compare, tmp_path):
    base = stored(tmp_path / "base", made_up(seed=1))
    new = stored(tmp_path / "new", replace(made_up(seed=2), warnings=(BUSY,)))
    page = tmp_path / "page.html"
    assert compare(base, new, "--fail-on-regression", "2", "--html", page)[0] == ExitCode.INCONCLUSIVE
    text = Page(page.read_text()).text
    assert "Gate, new: inconclusive: a regression above 2 % is neither found nor excluded in 4 of 4 cells" in text
    assert "Disturbed campaigns" in text
    assert "The host was <busy> | loaded." in text

"""`netbench compare`: what it prints, its exit codes, and one message for each mistake."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from netbench.errors import ExitCode
from netbench.model.frame_size import FrameSize
from netbench.model.verdict import Reason, ReasonKind
from netbench.results.manifest import SEARCHES
from tests.unit.comparison_factory import exact_campaign, made_up, stored, trials_of
from tests.unit.inputs import topology
from tests.unit.report_page import Page
from tests.unit.results_factory import MANIFEST, campaign, search_result
from tests.unit.steadiness_factory import Made


@pytest.fixture
def base(tmp_path):
    return stored(tmp_path / "base", made_up(seed=1))


def test_two_campaigns_of_the_same_thing_do_not_differ(compare, base, tmp_path):
    new = stored(tmp_path / "new", made_up(seed=2))
    code, out, err = compare(base, new, "--fail-on-regression", "2")
    assert (code, err) == (0, "")
    assert "new against base: no difference in 4 cells" in out
    assert "warning" not in out
    assert "gate, new: passed: a regression above 2 % is excluded in all of 4 cells" in " ".join(out.split())


def test_a_campaign_that_drifts_is_warned_of_wherever_it_is_compared(compare, tmp_path):
    steady, drifting = (
        stored(tmp_path / name, Made(uuts=("one",), drift=drift).campaign(seed))
        for name, drift, seed in (("steady", 0.0, 2), ("drifting", -0.04, 1))
    )
    for pair in ((steady, drifting), (drifting, steady)):
        page = tmp_path / "page.html"
        code, out, err = compare(*pair, "--html", page)
        assert (code, err) == (0, "")
        printed = " ".join(out.split())
        assert "warning: not steady, drifting (drift): UUT one: the throughput drifted by −" in printed
        assert "not steady, steady" not in printed
        assert "Stability within campaigns" in page.read_text()
    assert "not steady" not in compare(steady, stored(tmp_path / "other", Made(uuts=("one",)).campaign(3)))[1]


def test_a_slower_one_is_a_regression_only_beyond_what_is_allowed(compare, base, tmp_path):
    new = stored(tmp_path / "new", made_up(77_600, seed=2))
    code, out, _ = compare(base, new, "--fail-on-regression", "2")
    assert code == ExitCode.INVALID_RESULTS
    assert "slower in 3, by up to 3.0 %; 4 cells in all" in out
    assert "regression: new: raw, dedicated, 1 source, 64 bytes, highest throughput: −3.0" in " ".join(out.split())
    assert compare(base, new, "--fail-on-regression", "4")[0] == 0
    assert compare(base, new)[0] == 0
    assert compare(new, base, "--fail-on-regression", "0")[0] == 0, "it is faster"
    assert compare(base, new, "--fail-on-regression", "3")[0] == ExitCode.INCONCLUSIVE


def test_it_fits_80_columns_and_has_no_colours_in_a_pipe(compare, tmp_path):
    uuts = ("raw", "a-rather-long-name-of-a-unit-under-test")
    base = stored(tmp_path / "base", made_up(8_000_000, uuts=uuts, sizes=(64, 1518)), digests=MANIFEST["digests"])
    new = stored(tmp_path / "new", made_up(7_600_000, seed=2, uuts=uuts, sizes=(64, 1518)), digests=MANIFEST["digests"])
    code, out, _ = compare(base, new)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out


def test_what_else_differs_leads(compare, base, tmp_path):
    before = {**dict(MANIFEST["before"]), "kernel": "6.12.1"}  # type: ignore[call-overload]  # JSON
    lab = topology(name="lab2", uuts=[{"name": "bridge", "kind": "raw", "forward": "route"}])
    code, out, _ = compare(base, stored(tmp_path / "new", made_up(seed=2), lab, before=before))
    assert code == 0
    assert "  topology: name: lab → lab2\n  topology: uuts.0.forward: not there → route\n" in out
    assert "warning: settings differ, base → new:\n  kernel: 6.1.0-31-amd64 → 6.12.1\n" in out
    assert out.index("6.12.1") < out.index("Highest throughput")


def test_an_unfinished_campaign_is_compared_as_far_as_it_is(compare, base, tmp_path):
    half = campaign(trials_of(loads=(50_000, 100_000)), planned=9)
    code, out, _ = compare(base, stored(tmp_path / "new", half))
    assert code == 0
    assert "campaign: complete → unfinished, 3 of 9 trials missing" in out
    assert "not compared: raw, dedicated, 1 source, 64 bytes, 120000fps: only in base" in out


def test_anyone_who_stops_reading_changes_no_exit_code(base, tmp_path):
    new = stored(tmp_path / "new", made_up(77_600, seed=2))
    command = [sys.executable, "-m", "netbench", "compare", str(base), str(new)]
    for options, expected in (([], 0), (["--fail-on-regression", "2"], 1), (["--fail-on-regression", "4"], 0)):
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "w") as gone:
            done = subprocess.run([*command, *options], stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr) == (expected, "")


def test_cells_with_too_few_repetitions_are_inconclusive_and_the_number_needed_is_named(compare, base, tmp_path):
    few = [trial for trial in trials_of() if trial.spec.load.value == 50_000 or trial.spec.repetition < 3]
    code, out, _ = compare(base, stored(tmp_path / "new", campaign(few)), "--fail-on-regression", "2")
    assert code == ExitCode.INCONCLUSIVE
    shown = " ".join(out.split())
    assert "120000fps: none" not in shown
    assert "fewer than 3 valid repetitions in one of the campaigns (3 repetitions needed)" in shown
    assert "gate, new: inconclusive: a regression above 2 % is neither found nor excluded in 3 of 4 cells" in shown


@pytest.mark.parametrize(("kind", "expected"), [(ReasonKind.UUT_FAILED, 1), (ReasonKind.GENERATOR_FAILED, 5)])
def test_a_uut_that_fails_now_is_a_regression(compare, base, tmp_path, kind, expected):
    """Trials that the tester spoilt decide nothing."""
    reasons = (Reason(kind, "", "it died"),)
    trials = [replace(trial, reasons=reasons) if trial.spec.load.value == 120_000 else trial for trial in trials_of()]
    code, out, _ = compare(base, stored(tmp_path / "new", campaign(trials)), "--fail-on-regression", "2")
    assert code == expected
    assert ("its UUT failed in the new campaign" in " ".join(out.split())) == (expected == 1)


def test_a_campaign_in_which_all_uuts_fail_is_a_regression_too(compare, base, tmp_path):
    """Nothing remains to compare; the differences between the requests are reported all the same."""
    reasons = (Reason(ReasonKind.UUT_FAILED, "", "it died"),)
    dead = stored(tmp_path / "dead", campaign([replace(trial, reasons=reasons) for trial in trials_of()]))
    page = tmp_path / "page.html"
    code, out, err = compare(base, dead, "--fail-on-regression", "2", "--html", page)
    assert (code, err) == (1, "")
    failed = "its UUT failed in the new campaign"
    assert failed in " ".join(out.split())
    assert "dead against base: failed in 3; 0 cells in all" in out
    assert failed in " ".join(Page(page.read_text()).text.split())


def test_searched_maxima_are_compared(compare, base, tmp_path):
    found = search_result(goal="PDR 5 %", loss_ratio=0.05, width=0.02)
    sides = [
        stored(
            tmp_path / name,
            made_up(),
            **SEARCHES.put({}, (replace(found, lower=fps, upper=fps + 1000, for_maxima=True),)),
        )
        for name, fps in (("old", 80_000.0), ("slow", 60_000.0))
    ]
    page = tmp_path / "page.html"
    code, out, err = compare(*sides, "--html", page)
    assert (code, err) == (0, "")
    for shown in (out, Page(page.read_text()).text):
        assert "Maxima that loads refer to" in shown
        assert "60.0 … 61.0" in shown


@pytest.fixture
def odd(tmp_path):
    """Result directories that do not compare with the base, and one that is none, by name."""
    imitated = replace(made_up(seed=2), facts={"raw": {"emulated": "no KVM"}})
    stored(tmp_path / "empty", campaign([], planned=3))
    stored(tmp_path / "other", campaign(trials_of(uut="kvm")))
    stored(tmp_path / "sizes", campaign(trials_of(sizes=(512,))))
    for name in ("vlan", "gre"):
        stored(tmp_path / name, campaign(trials_of(sizes=(FrameSize.of(64, name),))))
    stored(tmp_path / "gre512", campaign(trials_of(sizes=tuple(FrameSize.of(*pair) for pair in PAIRS))))
    stored(tmp_path / "single", exact_campaign(60_000, repetitions=1))
    stored(tmp_path / "real", replace(made_up(seed=2), facts={"raw": {"kernel": "6.1"}}))
    stored(tmp_path / "imitated", imitated)
    search = search_result(goal="ndr", lower=None, upper=None)
    stored(tmp_path / "search", made_up(seed=2), **SEARCHES.put({}, (search,)))
    (tmp_path / "nothing").mkdir()
    return tmp_path


PAIRS = ((64, ""), (512, "gre"))
WRONG = [
    ((), "Missing argument"),
    (("base",), "one version of each UUT, nothing to compare"),
    (("base", "nowhere"), "nowhere: is no result directory of `netbench run`"),
    (("base", "nothing"), "nothing: is no result directory of `netbench run`"),
    (("base", "base"), "base: the same directory as "),
    (("base", "nothing/../base"), "the same directory as "),
    (("base", "empty"), "base and empty cannot be compared: empty has no valid trial"),
    (("base", "other"), "they have no UUT in common: raw in base, kvm in other"),
    (("base", "sizes"), "they have no frame size in common: 64 in base, 512 in sizes"),
    (("base", "vlan"), "they have no packet in common: plain in base, vlan in vlan"),
    (("gre", "gre512"), "they have no packet in common at one frame size: 64 gre in gre, 64, 512 gre in gre512"),
    (("base", "sizes", "--size", "512"), "base has no valid trial of the selected cells"),
    (("real", "imitated"), "CPU not emulated in real; on this machine, CPU emulated in imitated"),
    (("base", "search"), "search searched for the highest loads, base did not; compare searches with searches"),
    (("base", "real", "--output", "x.json"), "--output: needs --format json, junit or markdown"),
    (("base", "real", "--uut", "raw2"), "--uut raw2: no campaign has it; there are raw"),
    (("base", "real", "--size", "5*"), "--size 5*: no campaign has it; there are 64"),
    (("base", "real", "--scenario", "x"), "--scenario x: no campaign has it; there are dedicated"),
    (("base", "real", "--format", "json", "--output", "no/where"), "make it first or name another file"),
    (("base", "real", "--fail-on-regression", "-1"), "--fail-on-regression"),
    (("base", "real", "--fail-on-regression", "150"), "--fail-on-regression"),
    (("base", "real", "--fail-on-regression", "nan"), "must be at most 100"),
    (("base", "real", "--html", "no/where.html"), "make it first or name another file"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_what_cannot_be_compared_is_refused_in_one_message(compare, base, odd, monkeypatch, arguments, message):
    monkeypatch.chdir(odd)
    code, _, err = compare(*arguments)
    assert code == ExitCode.USAGE
    assert message in err
    assert "Traceback" not in err


def test_many_campaigns_make_one_page_with_a_trend(compare, tmp_path):
    nights = [
        stored(
            tmp_path / f"night{night}",
            made_up(80_000 - 1_000 * night, seed=night),
            started=f"2025-03-0{night}T01:00:00+00:00",
        )
        for night in range(1, 6)
    ]
    page = tmp_path / "page.html"
    code, out, _ = compare(*nights, "--html", page)
    assert code == 0
    assert "night5 against night1: slower in 3" in out
    text = Page(page.read_text()).text
    assert "Trend" in text
    assert "night4: slower in 3" in text

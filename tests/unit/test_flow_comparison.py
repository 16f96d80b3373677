"""Comparison of campaigns with flows: differences, tests, the gate, and the command with its documents."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from netbench.errors import ExitCode
from netbench.model.campaign import CampaignResults
from netbench.model.scenario import Serve
from netbench.model.trial import GuestTask
from netbench.model.units import Load
from netbench.model.verdict import CampaignWarning, Reason, ReasonKind, WarningKind
from netbench.model.workload import workload_of
from netbench.report.flow_comparison import flow_row
from netbench.statistics.compared_cells import Absence, CellSelection, FlowCell
from netbench.statistics.flow_comparison import FlowCampaign, compare_flows
from netbench.statistics.flow_gate import judge_flows
from netbench.statistics.regression_gate import CellResult, GateResult
from netbench.statistics.significance import Test
from tests.unit.comparison_factory import made_up, stored
from tests.unit.flows_factory import HTTP, drawn_ms, flow, flow_campaign, flow_trial, timed
from tests.unit.report_page import Page

FAILED = Reason(ReasonKind.UUT_FAILED, "", "gone")
BUSY = CampaignWarning(WarningKind.HOST_WAS_BUSY, "a compiler ran")


def served(
    median_ms: float = 1.0,
    *,
    boots: int = 6,
    repetitions: int = 1,
    scatter: float = 0.02,
    seed: int = 1,
    completed: int = 2000,
    uuts: Sequence[str] = ("raw",),
    **more: Any,
):
    """A campaign of a web server whose times scatter by this ratio between boots; p99 is about 3.2 medians."""
    draw = np.random.default_rng(seed)
    trials = [
        flow_trial(
            timed(
                drawn_ms(median_ms * draw.normal(1, scatter), 2000, seed=int(draw.integers(1 << 30))).tolist(),
                duration_s=20.0,
                started=2000,
                intended=2000,
                completed=completed,
            ),
            uut=uut,
            boot=0 if not boots else 100 * place + boot,
            repetition=repetitions * boot + repetition,
            **more,
        )
        for place, uut in enumerate(uuts)
        for boot in range(1, boots + 1)
        for repetition in range(repetitions)
    ]
    return flow_campaign(trials)


def compared(base, new, **options: Any):
    (comparison,) = compare_flows(FlowCampaign.of("base", base), [FlowCampaign.of("new", new)], **options)
    return comparison


def figure_of(cell: CellResult) -> str:
    assert isinstance(cell.place, FlowCell)
    return cell.place.figure


def by_figure(comparison):
    return {difference.figure.name: difference for difference in comparison.differences}


def test_figures_of_common_cells_are_compared_with_intervals_and_corrected_tests():
    comparison = compared(served(1.0), served(1.2, seed=2))
    differences = by_figure(comparison)
    names = [f"response_{name}_ms" for name in ("p50", "p95", "p99", "p999")]
    assert list(differences) == ["completed_per_s", *names], "no failed operation on either side"
    assert [name for name in differences if differences[name].is_leading] == ["completed_per_s", "response_p99_ms"]
    p50, rate = differences["response_p50_ms"], differences["completed_per_s"]
    assert p50.ratio.change == pytest.approx(0.2, abs=0.04)
    assert p50.ratio.low < 1.2 < p50.ratio.high
    assert p50.change is not None
    assert p50.change > 0 > p50.benefit
    assert (rate.change, rate.test.test) == (None, Test.ALIKE)
    assert {p50.test.test, differences["response_p99_ms"].test.test} == {Test.PERMUTATION}


@pytest.mark.parametrize(
    ("median_ms", "limit", "expected"),
    [
        (1.0, 0.2, GateResult.PASSED),
        (1.5, 0.1, GateResult.FAILED),
        (0.7, 0.1, GateResult.PASSED),
        (1.08, 0.1, GateResult.INCONCLUSIVE),
    ],
)
def test_a_p99_that_rises_beyond_the_limit_is_a_regression(median_ms, limit, expected):
    gate = judge_flows(compared(served(1.0), served(median_ms, seed=2)), limit)
    results = {figure_of(cell): cell.outcome for cell in gate.cells}
    assert results == {"completed_per_s": GateResult.PASSED, "response_p99_ms": expected}
    assert gate.outcome is expected


def rates(mbps: Sequence[float], load: str = "max", **more: Any):
    """A campaign of bulk transfers, a boot for each bandwidth."""
    measured = [flow("s1", "iperf3", to_client_bytes=round(125_000 * rate), completed=None) for rate in mbps]
    work = workload_of("iperf3")
    return flow_campaign(
        [
            flow_trial(of_trial, workload=work, load=load, boot=number, repetition=number, **more)
            for number, of_trial in enumerate(measured, 1)
        ]
    )


STEADY = (100, 101, 99, 100, 100.5, 99.5)


@pytest.mark.parametrize(
    ("base", "new", "limit", "expected"),
    [
        (STEADY, [0.8 * rate for rate in STEADY], 0.1, GateResult.FAILED),
        (STEADY, [1.2 * rate for rate in STEADY], 0.1, GateResult.PASSED),
        (STEADY, STEADY, 0.05, GateResult.PASSED),
        (STEADY, [0.9 * rate for rate in STEADY], 0.1, GateResult.INCONCLUSIVE),
        ((100, 60, 140, 90), (100, 130, 60, 120), 0.1, GateResult.INCONCLUSIVE),
        (STEADY[:2], STEADY, 0.1, GateResult.INCONCLUSIVE),
        ((100.0,) * 4, (50.0,) * 4, 0.1, GateResult.FAILED),
        ((0.0,) * 4, (50.0,) * 4, 0.1, GateResult.INCONCLUSIVE),
    ],
)
def test_a_bandwidth_that_falls_beyond_the_limit_is_a_regression(base, new, limit, expected):
    assert judge_flows(compared(rates(base), rates(new)), limit).outcome is expected


def test_shares_of_different_maxima_are_the_same_load():
    def at(found: str) -> CampaignResults:
        share = replace(Load.parse("50% of maximum"), found=Load.parse(found))
        trials = [
            replace(measured, spec=replace(measured.spec, guests=(at_load(measured.spec.victim, share),)))
            for measured in served(1.0).trials
        ]
        return flow_campaign(trials)

    comparison = compared(at("100/s"), at("80/s"))
    assert {difference.figure.name for difference in comparison.differences} >= {"completed_per_s", "response_p99_ms"}
    assert comparison.left_out == ()


def at_load(task: GuestTask, load: Load) -> GuestTask:
    assert isinstance(task.activity, Serve)
    return replace(task, activity=replace(task.activity, load=load))


def test_an_inconclusive_figure_names_the_repetitions_that_decide_it():
    gate = judge_flows(compared(rates((100, 98, 102, 99)), rates((95, 93, 97, 94))), 0.1)
    (cell,) = gate.cells
    assert cell.outcome is GateResult.INCONCLUSIVE
    assert (cell.repetitions or 0) > 4
    assert cell.detectable is not None


def test_a_single_boot_hides_the_variation_between_boots_unless_the_load_is_reached():
    def on_one_boot(median_ms: float, seed: int):
        results = served(median_ms, boots=1, repetitions=6, seed=seed)
        return replace(results, trials=tuple(replace(trial, boot=7) for trial in results.trials))

    gate = judge_flows(compared(on_one_boot(1.0, 1), on_one_boot(1.0, 2)), 0.1)
    results = {figure_of(cell): cell for cell in gate.cells}
    assert results["response_p99_ms"].outcome is GateResult.INCONCLUSIVE
    assert "one boot: variation between boots unknown" in results["response_p99_ms"].why
    assert results["completed_per_s"].outcome is GateResult.PASSED, "the client's clock decides it"


def test_versions_measured_in_turn_are_compared_in_pairs():
    base = served(1.0, boots=1, repetitions=6, scatter=0.2, seed=3)
    new = served(1.1, boots=1, repetitions=6, scatter=0.2, seed=3)
    difference = by_figure(compared(base, new, in_turn=True))["response_p50_ms"]
    assert difference.test.test is Test.PAIRED
    assert difference.change == pytest.approx(0.1, abs=0.01), "both sides vary alike"
    assert by_figure(compared(base, new))["response_p50_ms"].change is None


@pytest.mark.parametrize(
    ("base", "new", "kind", "why"),
    [
        (served(), served(scenario="shared-idle"), Absence.ONE_SIDE, "only in base"),
        (served(), served(load="200/s"), Absence.ONE_SIDE, "only in base"),
        (served(), replace(served(uuts=("other",)), planned_trials=99), Absence.UNFINISHED, "new is unfinished"),
        (served(), served(reasons=(FAILED,)), Absence.DEAD, "its UUT failed in the new campaign"),
        (
            served(),
            served(reasons=(Reason(ReasonKind.TOOL_FAILED, "s1", "no"),)),
            Absence.INVALID,
            "no valid trial in the new campaign",
        ),
        (
            served(),
            served(workload=replace(HTTP, options=(("size", 9),))),
            Absence.OTHER_LOAD,
            "http has other options in each campaign",
        ),
    ],
)
def test_cells_that_are_not_compared_have_a_reason(base, new, kind, why):
    comparison = compared(base, new)
    assert not comparison.differences
    assert comparison.left_out[0].kind is kind
    assert why in comparison.left_out[0].why


def test_a_figure_that_is_unknown_on_one_side_is_left_out_and_inconclusive():
    without = flow_campaign([flow_trial(flow(), boot=number, repetition=number) for number in range(1, 7)])
    comparison = compared(served(), without)
    assert [str(cell) for cell in comparison.left_out] == [
        "raw, dedicated, http at 100/s, p99 response time: unknown in the new campaign"
    ]
    assert judge_flows(comparison, 0.1).outcome is GateResult.INCONCLUSIVE


def test_disturbed_campaigns_are_in_doubt_unless_accepted():
    disturbed = replace(served(2.0, seed=2), warnings=(BUSY,))
    comparison = compared(served(), disturbed)
    assert comparison.doubt == "new was disturbed (host-was-busy)"
    assert all(difference.change is None for difference in comparison.differences)
    assert judge_flows(comparison, 0.1).outcome is GateResult.INCONCLUSIVE
    assert flow_row(by_figure(comparison)["response_p50_ms"]).difference.startswith("inconclusive (+")
    assert judge_flows(compared(served(), disturbed, accept_disturbed=True), 0.1).outcome is GateResult.FAILED


def test_a_cell_whose_tester_was_often_disturbed_is_in_doubt():
    disturbed = Reason(ReasonKind.TESTER_DISTURBED, "", "stalled for 40 ms")
    results = served(2.0, boots=9, seed=2)
    trials = [replace(trial, reasons=(disturbed,)) if n % 2 else trial for n, trial in enumerate(results.trials)]
    doubts = {difference.doubt for difference in compared(served(), replace(results, trials=tuple(trials))).differences}
    assert doubts == {"the tester was disturbed in 4 of 9 trials of new"}


def test_many_equal_campaigns_hardly_ever_differ():
    """Of 60 comparisons of equal campaigns, few of five percent may show a difference."""
    found = [
        any(difference.change is not None for difference in compared(served(seed=n), served(seed=500 + n)).differences)
        for n in range(60)
    ]
    assert sum(found) <= 6


def test_cells_are_selected():
    results = served(uuts=("raw", "container"))
    chosen = FlowCampaign.of("base", results, CellSelection(uuts=("cont*",), sizes=("http",)))
    assert [group.uut for group in chosen.groups] == ["container"]


@pytest.fixture
def directories(tmp_path):
    def directory(name, results):
        return stored(tmp_path / name, results)

    return directory


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("median_ms", "code", "summary", "gate"),
    [
        (
            1.0,
            0,
            "no difference in 5 figures",
            "gate, new: passed: a regression above 20 % is excluded in all of 2 cells",
        ),
        (
            1.5,
            ExitCode.INVALID_RESULTS,
            "worse in 3, by up to",
            "regression: new: raw, dedicated, http at 100/s, p99 response time: +",
        ),
        (0.5, 0, "better in 4, by up to", "gate, new: passed"),
    ],
)
def test_the_command_compares_and_judges(compare, directories, median_ms, code, summary, gate):
    base, new = directories("base", served()), directories("new", served(median_ms, seed=2))
    done, out, err = compare(base, new, "--fail-on-regression", "20")
    assert (done, err) == (code, "")
    assert max(map(len, out.splitlines())) <= 80
    assert summary in words(out)
    assert gate in words(out)
    assert "UUT, scenario, workload, load Figure Base New Difference p" in words(out)
    assert "The gate judges the highest percentile up to p99, and the rates." in words(out)


def test_the_page_and_the_documents_have_each_figure(compare, directories, tmp_path):
    base, new = directories("base", served()), directories("new", served(1.5, seed=2))
    run = partial(compare, base, new, "--fail-on-regression", "10")
    assert run("--html", tmp_path / "page.html")[0] == ExitCode.INVALID_RESULTS
    page = Page((tmp_path / "page.html").read_text())
    assert {"gate", "compared-flows", "tests"} <= set(page.ids)
    assert "p99 response time [ms]" in page.text
    assert "frames/s" not in page.text
    document = json.loads(run("--format", "json")[1])
    cells = {cell["figure"]: cell for cell in document["comparisons"][0]["cells"]}
    p99 = cells["response_p99_ms"]
    assert (p99["uut"], p99["workload"], p99["load"], p99["is_worse"]) == ("raw", "http", "100/s", True)
    assert (p99["result"], cells["response_p50_ms"]["result"]) == ("failed", None)
    assert p99["new"]["value"] / p99["base"]["value"] == pytest.approx(1 + p99["change_percent"] / 100)
    assert p99["base"]["unit"] == "ms"
    suites = ElementTree.fromstring(run("--format", "junit")[1])
    assert suites[0].attrib["failures"] == "1"
    assert "raw, dedicated, http at 100/s, p99 response time" in run("--format", "markdown")[1]


@pytest.mark.parametrize(
    ("base", "new", "message"),
    [
        (served(), made_up(seed=1), "base runs flows with a tool, and new sends frames"),
        (made_up(seed=1), served(), "new runs flows with a tool, and base sends frames"),
        (
            served(),
            served(load="7/s"),
            "base and new cannot be compared: they have no workload in common at the same load, UUT and scenario",
        ),
    ],
)
def test_campaigns_without_a_common_figure_are_refused_in_one_message(compare, directories, base, new, message):
    code, _, err = compare(directories("base", base), directories("new", new))
    assert code == ExitCode.USAGE
    assert message in words(err)


def test_a_uut_that_fails_now_is_a_regression(compare, directories):
    base, new = directories("base", served()), directories("new", served(reasons=(FAILED,)))
    code, out, _ = compare(base, new, "--fail-on-regression", "10")
    assert code == ExitCode.INVALID_RESULTS
    assert "failed in 1; 0 figures in all" in words(out)

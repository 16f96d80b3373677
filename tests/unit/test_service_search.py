"""Searches for the highest rate of a workload, on simulated servers of known behaviour."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from netbench.campaign.request import make_request
from netbench.cli.dry_run import describe
from netbench.errors import UsageError
from netbench.model.flow_result import FlowResult
from netbench.model.limits import LimitKind
from netbench.model.profile import Profile
from netbench.model.replayed_loads import ReplayedLoads, replayed_loads_of
from netbench.model.search import SearchResult, SearchState
from netbench.model.trial import GuestResult, TrialResult, TrialSpec
from netbench.model.units import LoadKind
from netbench.model.verdict import Reason, ReasonKind
from netbench.model.workload import workload_of
from netbench.plan.schedule_factory import make_schedule
from netbench.plan.selection import choose
from netbench.report.comparison import search_row
from netbench.report.figures.registry import charts_of
from netbench.report.findings import findings
from netbench.report.model import ReportModel
from netbench.report.summary_json import campaign_summary
from netbench.report.tables import tables_of
from netbench.report.tables.searches import bounds_text, remark
from netbench.results.manifest import SEARCHES
from netbench.search.service_level import ServiceOptions
from netbench.statistics.compared_cells import Absence
from netbench.statistics.regression_gate import GateResult, judge_searches
from netbench.statistics.search_comparison import compare_searches
from tests.unit.flows_factory import flow_campaign, latencies
from tests.unit.inputs import shared_topology, topology

BUSY = Reason(ReasonKind.TESTER_LIMITED, "s1", "the client used 99 % of a CPU")
DISTURBED = Reason(ReasonKind.TESTER_DISTURBED, "", "other programs")
HUNG = Reason(ReasonKind.TOOL_FAILED, "s1", "http: the client hung")
DEAD = Reason(ReasonKind.UUT_FAILED, "", "its process ended")
ROUTE = {"name": "route", "kind": "raw", "forward": "route"}


@dataclass(frozen=True)
class Server:
    """Answers one request after the other; each takes `serve_s`. Requests come evenly (D/D/1).

    The first `slow` of all requests take `slow_s`, the last `failed` of them fail, as parts.
    """

    serve_s: float = 0.005
    slow: float = 0.0
    slow_s: float = 1.0
    failed: float = 0.0

    def flow(self, spec: TrialSpec, stream: str) -> FlowResult:
        seconds, load = spec.duration_s, spec.load.as_rate
        rate = load.value if load.kind is LoadKind.OPERATION_RATE else 1 / self.serve_s
        number = round(rate * seconds)
        wait_s = max(0.0, self.serve_s - 1 / rate)  # by which each request waits longer than the one before
        times = [self.slow_s if k < self.slow * number else self.serve_s + k * wait_s for k in range(number)]
        ended = sum(k / rate + time <= seconds + self.serve_s for k, time in enumerate(times))
        failed = round(self.failed * number)
        errors = {"status-500": failed} if failed else {}
        return FlowResult(
            stream,
            "http",
            duration_s=seconds,
            intended=number,
            started=number,
            completed=number - failed,
            completed_in_time=min(ended, number - failed),
            errors=errors,
            latencies=(latencies("response", [1e3 * time for time in times]),),
        )


Judge = Callable[[TrialSpec, int], tuple[Reason, ...]]


def no_reason(spec: TrialSpec, number: int) -> tuple[Reason, ...]:
    return ()


def measured(spec: TrialSpec, server: Server, reasons: tuple[Reason, ...] = ()) -> TrialResult:
    flows = tuple(server.flow(spec, stream) for stream in spec.streams)
    guests = (GuestResult("victim", flows=flows), *(GuestResult(task.name) for task in spec.neighbours))
    return TrialResult(spec, 1, 1, guests, reasons, {}, boot=1)


def flow_profile(schedule=None, **more) -> Profile:
    data = {"name": "web", "tool": "http", "repetitions": 1, "duration": "2s", "warm_up": "1us"}
    return Profile.model_validate({**data, **({"schedule": {"kind": "slo", **schedule}} if schedule else {}), **more})


def schedule_of(searching: Profile, lab=None):
    return make_schedule(choose(lab or topology(uuts=[ROUTE]), searching))


def follow(search, server: Server, judge: Judge = no_reason) -> dict[str, TrialResult]:
    results: dict[str, TrialResult] = {}
    while (following := search.next(results)) is not None:
        if isinstance(following, TrialResult):
            results[following.spec.key] = following
            continue
        assert following.key not in results
        assert following.index == len(results)
        results[following.key] = measured(following, server, judge(following, len(results)))
        assert len(results) < 200
    return results


def searched(schedule, server: Server, judge: Judge = no_reason, **more) -> tuple[SearchResult, dict[str, TrialResult]]:
    search = schedule_of(flow_profile(schedule, **more))
    results = follow(search, server, judge)
    (found,) = search.searches
    return found, results


BOUNDS = {"highest": "1000/s", "lowest": "10/s", "width": "5%"}


@pytest.mark.parametrize("capacity", [50, 200, 500])
@pytest.mark.parametrize("level", [{}, {"below": "30ms"}, {"below": "30ms", "percentile": 95}])
def test_the_capacity_is_between_the_bounds(capacity, level):
    found, _ = searched({**BOUNDS, **level}, Server(1 / capacity))
    assert (found.state, found.unit) == (SearchState.FOUND, LoadKind.OPERATION_RATE)
    assert found.is_regular
    assert found.lower is not None
    assert found.upper is not None
    assert found.lower <= 1.011 * capacity  # without a limit of times, 99 % of the operations are enough
    assert found.upper >= capacity
    assert found.lower.is_integer()
    assert found.throughput == pytest.approx(min(found.lower, capacity), rel=0.02)


NEVER, ALWAYS = {"below": "4ms"}, {"below": "10s", **BOUNDS, "highest": "190/s"}
ENDS = {
    "never met": ({**BOUNDS, **NEVER}, Server(), SearchState.AT_MOST, "< 10/s", "even at the lowest load"),
    "always met": (ALWAYS, Server(), SearchState.AT_LEAST, "≥ 190/s", "limited by the highest load requested"),
    "errors only": (BOUNDS, Server(failed=1.0), SearchState.AT_MOST, "< 10/s", "even at the lowest load"),
    "more errors than allowed": ({**BOUNDS, "errors": "9%"}, Server(failed=0.1), SearchState.AT_MOST, "< 10/s", ""),
    "errors allowed": ({**BOUNDS, "errors": "11%"}, Server(failed=0.1), SearchState.FOUND, "… ", ""),
    "1 of 50 late, p99": ({**BOUNDS, "below": "0.1s"}, Server(slow=0.02), SearchState.AT_MOST, "< 10/s", ""),
    "1 of 50 late, p95": (
        {**BOUNDS, "below": "0.1s", "percentile": 95},
        Server(slow=0.02),
        SearchState.FOUND,
        "… ",
        "",
    ),
    "from the closed loop": (
        {"below": "10ms"},
        Server(),
        SearchState.AT_LEAST,
        "≥ 200/s",
        "the rate of the closed loop",
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_end_of_a_search(name):
    options, server, state, bounds, words = ENDS[name]
    found, results = searched(options, server)
    assert found.state is state
    assert bounds in bounds_text(found)
    assert words in remark(found)
    assert found.trials == sum(trial.spec.load.kind is not LoadKind.MAX for trial in results.values())


def test_two_trials_must_miss_before_a_rate_is_too_high():
    """The first trial at each rate has errors, the second has none."""
    seen: set[str] = set()

    def server_of(spec: TrialSpec) -> Server:
        again = str(spec.load) in seen
        seen.add(str(spec.load))
        return Server() if again else Server(failed=0.5)

    found = {}
    for verified in (1, 2):
        seen.clear()
        search = schedule_of(flow_profile({**BOUNDS, "highest": "190/s", "verified": verified}))
        results: dict[str, TrialResult] = {}
        while (spec := search.next(results)) is not None:
            assert isinstance(spec, TrialSpec)
            results[spec.key] = measured(spec, server_of(spec))
        (found[verified],) = search.searches
    assert found[1].state is SearchState.AT_MOST
    assert (found[2].state, found[2].lower) == (SearchState.AT_LEAST, 190)


@pytest.mark.parametrize(
    ("reason", "least", "words"),
    [
        (BUSY, 100, "tester-limited: the client used 99 % of a CPU"),
        (DISTURBED, 100, "tester-disturbed: other programs"),
        (HUNG, 100, "tool-failed: http: the client hung"),
    ],
)
def test_a_tester_that_is_the_limit_decides_nothing_and_is_named(reason, least, words):
    """Above 100/s. The server would serve 200/s; trials at these rates miss the goal for a reason of the tester."""
    late = Server(0.1)

    def judge(spec: TrialSpec, number: int) -> tuple[Reason, ...]:
        return (reason,) if spec.load.value > least else ()

    search = schedule_of(flow_profile({**BOUNDS, "below": "20ms"}))
    results: dict[str, TrialResult] = {}
    while (spec := search.next(results)) is not None:
        assert isinstance(spec, TrialSpec)
        why = judge(spec, len(results))
        results[spec.key] = measured(spec, late if why else Server(), why)
    (found,) = search.searches
    assert found.state is SearchState.AT_LEAST
    assert found.lower == pytest.approx(least, rel=0.05)
    assert found.limited_by.kind is LimitKind.TRIAL_REASON
    assert f"limited by {words}" in remark(found)
    repeated = [trial for trial in results.values() if trial.spec.load.value == 1000]
    assert len(repeated) == 6, "each of two trials in a row is repeated twice"


def test_a_busy_client_matters_only_where_the_goal_is_missed():
    found, _ = searched({**BOUNDS, "below": "20ms", "highest": "190/s"}, Server(), lambda spec, number: (BUSY,))
    assert (found.state, found.lower) == (SearchState.AT_LEAST, 190)


def test_a_passing_disturbance_is_repeated():
    found, _ = searched({**BOUNDS, "below": "20ms"}, Server(), lambda spec, number: (DISTURBED,) * (number % 2))
    assert found.is_regular
    assert found.lower is not None
    assert 0.94 * 200 <= found.lower <= 202


def test_a_uut_that_dies_above_a_rate_has_that_limit():
    found, _ = searched(BOUNDS, Server(), lambda spec, number: (DEAD,) * (spec.load.value > 100))
    assert found.state is SearchState.FOUND
    assert found.lower == pytest.approx(100, rel=0.06)
    assert "its process ended" in remark(found)


def test_resumed_after_any_trial_it_is_the_same_search():
    searching = flow_profile({**BOUNDS, "below": "20ms"})
    whole = schedule_of(searching)
    results = follow(whole, Server())
    keys = list(results)
    for stopped in range(len(keys)):
        resumed = schedule_of(searching)
        following = resumed.next({key: results[key] for key in keys[:stopped]})
        assert isinstance(following, TrialSpec)
        assert following.key == keys[stopped]
    assert resumed.next(results) is None
    assert resumed.searches == whole.searches
    assert resumed.expected_number(keys) == len(keys)


def test_bit_rates():
    """Half of the payload arrives above 40 Mbit/s."""
    search = schedule_of(flow_profile({"highest": "100Mbit/s", "lowest": "1Mbit/s"}, tool="iperf3"))
    results: dict[str, TrialResult] = {}
    while (spec := search.next(results)) is not None:
        assert isinstance(spec, TrialSpec)
        arrived = round(min(spec.load.value, 40e6) * spec.duration_s / 8)
        flow = FlowResult("s1", "iperf3", duration_s=spec.duration_s, to_server_bytes=arrived)
        result = measured(spec, Server())
        results[spec.key] = replace(result, guests=(replace(result.victim, flows=(flow,)), *result.neighbours))
    (found,) = search.searches
    assert bounds_text(found).endswith(" Mbit/s")
    assert found.lower is not None
    assert found.upper is not None
    assert found.lower <= 41e6 <= 1.06 * found.upper


REFUSED: dict[str, tuple[dict[str, Any], dict[str, str] | None, str]] = {
    "frames": ({"tool": (), "frame_sizes": [64]}, {"below": "1s"}, "slo is not for frames"),
    "another schedule": ({}, {"kind": "search"}, "search is not for flows"),
    "a unit that the tool has not": (
        {},
        {"highest": "1Gbit/s"},
        "schedule.highest: http needs bounds in operations/s, such as 5000/s",
    ),
    "a tool with another unit": (
        {"tool": "iperf3"},
        {"percentile": "99"},
        "schedule.highest: iperf3 needs bounds in bit/s, such as 1Gbit/s",
    ),
    "a limit of times that the tool does not measure": (
        {"tool": "iperf3"},
        {"below": "10ms", "highest": "1Gbit/s"},
        "schedule.below: iperf3 measures no response times, so no rate can meet it; remove it (`--set "
        "schedule.below=`)",
    ),
    "a limit of the maxima of that tool": (
        {"tool": "iperf3", "loads": ["50%"], "maxima": {"kind": "slo", "below": "10ms", "highest": "1Gbit/s"}},
        None,
        "maxima.below: iperf3 measures no response times",
    ),
    "a limit above the timeout": (
        {},
        {"below": "20s"},
        "schedule.below: 20 s is above the timeout of http, 10 s, after which an operation has failed",
    ),
    "a share of a maximum without its unit": (
        {"tool": "iperf3", "loads": ["50%"]},
        None,
        "loads: 50%: the maximum of iperf3 is a bit rate: add `maxima: {kind: slo, highest: 1Gbit/s}`",
    ),
    "no warm-up": ({"warm_up": 0}, {"below": "1s"}, "warm_up: 0 s, and a search for a service level needs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_searched_is_refused(name):
    more, schedule, words = REFUSED[name]
    with pytest.raises(UsageError) as refused:
        make_request(topology(uuts=[ROUTE]), flow_profile(schedule, **more))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"highest": "1000fps"}, "a rate of a tool such as 5000/s"),
        ({"lowest": "max"}, "a rate of a tool such as 10/s"),
        ({"highest": "100/s", "lowest": "1Mbit/s"}, "another unit"),
        ({"highest": "100/s", "lowest": "60/s"}, "60/s is more than half of highest"),
        ({"percentile": 100}, "less than 100"),
        ({"verified": 0}, "greater than or equal to 1"),
        ({"below": 0}, "greater than 0"),
    ],
)
def test_options_that_contradict_each_other(options, words):
    with pytest.raises(ValidationError) as refused:
        ServiceOptions.model_validate(options)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("options", "highest", "lowest"),
    [
        ({"lowest": "10/s"}, 5000, 10),
        ({"lowest": "10/s"}, 12, 6),
        ({}, 5000, 5),
        ({"below": "10ms"}, 5000, 50),  # 100 responses in 2 s
        ({"below": "10ms", "percentile": 99.9}, 5000, 500),
        ({"below": "10ms"}, 500_000, 500),
        ({"below": "10ms"}, 30, 15),
    ],
)
def test_the_lowest_rate_has_a_response_beyond_the_percentile(options, highest, lowest):
    assert ServiceOptions.model_validate(options).lowest_of(highest, 2.0) == pytest.approx(lowest)


def test_the_goal_is_named():
    goal = ServiceOptions.model_validate({"below": "10ms", "errors": "0.5%", "percentile": 99.9}).goal
    assert goal.name == "p99.9 below 10 ms, errors at most 0.5 %"
    assert ServiceOptions().goal.name == "throughput follows the rate"


def test_results_of_older_versions_are_read():
    old = {"uut": "raw", "scenario": "dedicated", "streams": ["s1"], "frame_size": 64, "repetition": 1}
    old |= {"method": "mlrsearch", "goal": "NDR", "loss_ratio": 0, "state": "found", "width": 0.005}
    old |= {"lower_fps": 10.0, "upper_fps": 11.0, "throughput_fps": 10.0}
    (found,) = SEARCHES.of({"searches": [old]})
    assert (found.lower, found.upper, found.throughput, found.unit) == (10.0, 11.0, 10.0, LoadKind.FRAME_RATE)
    assert found.frame_size.only_size == 64
    adapter = TypeAdapter(tuple[SearchResult, ...])
    assert adapter.validate_json(adapter.dump_json((found,))) == (found,)


def found_by(options=None, server: Server = Server(), **more):
    """A campaign of a search."""
    search = schedule_of(flow_profile({**BOUNDS, "below": "20ms", **(options or {})}, **more))
    results = follow(search, server)
    return replace(flow_campaign(list(results.values()), uuts=("route",)), searches=search.searches)


def test_the_report_and_the_summary_have_the_bounds():
    results = found_by()
    (search,) = results.searches
    lead = findings(results)[0]
    assert lead.text.startswith(f"Highest load that meets p99 below 20 ms: route {bounds_text(search)}.")
    (table,) = tables_of("searches", ReportModel.of(results))
    assert "Workload" in str(table)
    summary = campaign_summary(results)["searches"][0]
    assert (summary["workload"], summary["goal"], summary["lower_per_s"]) == ("http", search.goal, search.lower)
    assert json.dumps(summary)


@pytest.mark.parametrize(
    ("serve_s", "outcome"), [(0.005, GateResult.INCONCLUSIVE), (0.0049, GateResult.PASSED), (0.01, GateResult.FAILED)]
)
def test_searched_maxima_are_compared(serve_s, outcome):
    comparison = compare_searches(
        "base", found_by(repetitions=3), "new", found_by(server=Server(serve_s), repetitions=3)
    )
    (difference,) = comparison.differences
    gate = judge_searches(comparison, 0.05 if outcome is GateResult.INCONCLUSIVE else 0.2)
    assert gate.outcome is outcome
    assert search_row(difference).base == "196 … 204"


def test_workloads_of_one_name_with_other_options_are_not_compared():
    big = found_by(tool={"kind": "http", "body_size": 100_000})
    comparison = compare_searches("base", found_by(), "new", big)
    assert comparison.differences == ()
    assert {left_out.kind for left_out in comparison.left_out} == {Absence.OTHER_LOAD}
    assert "has other options in each campaign" in comparison.left_out[0].why
    assert judge_searches(comparison, 0.1).outcome is GateResult.INCONCLUSIVE


# Loads as shares of the maximum.

SHARES = {"loads": ["50%", "90% of maximum"], "maxima": {"kind": "slo", **BOUNDS, "below": "20ms"}}


def test_loads_are_shares_of_the_searched_maximum():
    search = schedule_of(flow_profile(**SHARES))
    results = follow(search, Server())
    (found,) = search.searches
    assert (found.for_maxima, found.scenario) == (True, "dedicated")
    assert found.lower is not None
    loads = {
        str(trial.spec.load): trial.spec.load.as_rate for trial in results.values() if not trial.spec.finds_maximum
    }
    assert {text: load.value for text, load in loads.items()} == {
        "50% of maximum": round(0.5 * found.lower),
        "90% of maximum": round(0.9 * found.lower),
    }
    assert {load.kind for load in loads.values()} == {LoadKind.OPERATION_RATE}


def test_a_share_is_stored_with_its_rate():
    search = schedule_of(flow_profile(**SHARES))
    results = follow(search, Server())
    adapter = TypeAdapter(TrialResult)
    for trial in results.values():
        assert adapter.validate_json(adapter.dump_json(trial)) == trial


def test_the_rates_of_shares_are_replayed():
    results = follow(schedule_of(flow_profile(**SHARES)), Server())
    loads = replayed_loads_of(trial for trial in results.values() if not trial.spec.finds_maximum)
    assert all(str(load).partition(", s1, ")[2].startswith("http, ") for load in loads)
    again = make_schedule(choose(topology(uuts=[ROUTE]), flow_profile(**SHARES)), ReplayedLoads("base", "now", loads))
    trials = {trial.load: trial.load.as_rate for trial in again.planned}
    assert trials == {trial.spec.load: trial.spec.load.as_rate for trial in results.values() if trial.spec.load.found}


def test_the_report_of_a_search_has_percentiles_at_its_bounds():
    results = found_by({"width": "10%"})
    (search,) = results.searches
    charts = charts_of(ReportModel.of(results))
    loads = [chart.heading for chart in charts if chart.name.startswith("percentiles")]
    assert sorted(loads) == sorted(f"Response time, http at {bound:.0f}/s" for bound in (search.lower, search.upper))


def test_shares_of_a_workload_and_of_frames_of_neighbours_have_a_search_each():
    searching = flow_profile(**SHARES, scenarios=[{"network": "50%"}])
    search = schedule_of(searching, shared_topology(uuts=[ROUTE]))
    searched_for = [line.split("  ")[3].partition(":")[0] for line in search.announced]
    assert searched_for == ["64 B", "http"]
    assert search.scenarios == ("network-50", "shared-idle")


@pytest.mark.parametrize(
    ("server", "maxima", "words"),
    [
        (Server(), {"below": "1ms"}, "even at 10/s the service level was missed"),
        (
            Server(),
            {"below": "10s", "highest": "190/s"},
            "it is at least 190/s, the highest load that the search may try",
        ),
        (Server(failed=1.0), {}, "even at 10/s"),
    ],
)
def test_without_a_maximum_trials_have_the_reason(server, maxima, words):
    searching = flow_profile(**{**SHARES, "maxima": {"kind": "slo", **BOUNDS, **maxima}})
    results = follow(schedule_of(searching), server)
    unmeasured = [trial for trial in results.values() if not trial.spec.finds_maximum]
    assert len(unmeasured) == 2
    for trial in unmeasured:
        (reason,) = trial.reasons
        assert reason.kind is ReasonKind.MAXIMUM_UNKNOWN
        assert words in reason.detail


def test_a_maximum_that_the_tester_limits_is_a_lower_bound():
    def judge(spec: TrialSpec, number: int) -> tuple[Reason, ...]:
        return (DISTURBED,) if spec.finds_maximum and spec.load.value > 100 else ()

    results = follow(schedule_of(flow_profile(**SHARES)), Server(), judge)
    shares = [trial.spec.victim.share_of_less for trial in results.values() if not trial.spec.finds_maximum]
    assert shares == ["tester-disturbed: other programs"] * 2


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"maxima": {"kind": "loads"}, "loads": ["50%"]}, "show no maximum of a tool"),
        (
            {"tool": (), "frame_sizes": [64], "loads": ["50% of maximum"], "maxima": "slo"},
            "searches for rates of a tool",
        ),
    ],
)
def test_maxima_of_another_kind_of_traffic_are_refused(more, words):
    with pytest.raises((UsageError, ValidationError)) as refused:
        schedule_of(flow_profile(**more))
    assert words in str(refused.value)


def test_a_dry_run_announces_searches():
    lab = topology(uuts=[ROUTE])
    lines = list(describe(make_request(lab, flow_profile({**BOUNDS, "below": "10ms"}))))
    assert "# trials: each depends on earlier results (slo)" in lines
    assert "# clients, in each trial on route: tool http at max" in lines
    lines = list(describe(make_request(lab, flow_profile(**SHARES))))
    assert "  route  dedicated  s1  http: the maximum that loads refer to" in lines


def test_workloads_are_named_as_in_a_profile():
    results = found_by(tool={"kind": "http", "name": "big", "body_size": 5000})
    assert results.searches[0].kind_of_traffic == workload_of({"kind": "http", "name": "big", "body_size": 5000})
    assert results.searches[0].key == "route/dedicated/s1/big/1/p99 below 20 ms"

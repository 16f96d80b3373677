"""Figures of flows over trials and boots, against numpy; the cost of neighbours; findings."""

from dataclasses import replace
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from scipy import stats

from netbench.model.flow_result import Latencies, WireFigures
from netbench.model.flow_witness import FlowFigures, disagreement
from netbench.model.scenario import Idle, Network, Off, Serve, Stress
from netbench.model.units import Load
from netbench.model.verdict import Reason, ReasonKind
from netbench.model.workload import Workload, workload_of, workloads_of
from netbench.report.findings import findings
from netbench.statistics.flow_costs import (
    OF_MAXIMUM,
    NeighbourLoadPoint,
    flow_costs,
    leading_figures,
    load_curves,
    missing_baselines,
    missing_points,
    neighbour_load,
)
from netbench.statistics.flow_figures import FIGURES_BY_NAME, figures_text
from netbench.statistics.workload_groups import workload_groups, workload_groups_of
from tests.unit.flows_factory import HTTP, drawn_ms, flow, flow_campaign, flow_trial, latencies, response_times, timed

WHY = Reason(ReasonKind.TOOL_FAILED, "s1", "http: no answer")
PERCENTILES = {"p50": 50, "p95": 95, "p99": 99, "p999": 99.9}


def exact(times_ms, percent: float) -> float:
    """The percentile by nearest rank; numpy's own rounds the rank."""
    return float(np.sort(times_ms)[ceil(len(times_ms) * Fraction(str(percent)) / 100) - 1])


@pytest.mark.parametrize("number", [1, 7, 100, 1000, 2345])
def test_percentiles_are_those_of_numpy(number):
    times = drawn_ms(2.0, number, seed=number)
    known = latencies("response", times)
    for percent in (0.001, 50, 95, 99, 99.9, 100):
        assert known.percentile_ns(round(1000 * percent)) / 1e6 == pytest.approx(exact(times, percent)), percent
    ranks = sorted({1, (number + 1) // 2, number})
    assert np.array(known.times_at_ns(ranks)) / 1e6 == pytest.approx(np.sort(times)[np.array(ranks) - 1])


def test_a_percentile_of_a_cell_is_that_of_all_times_and_its_interval_is_over_boots():
    times = [[drawn_ms(1.0 + boot / 10, 2000 + 500 * boot, seed=10 * boot + n) for n in range(2)] for boot in range(3)]
    trials = [
        flow_trial(timed(of_trial), boot=boot + 1, repetition=2 * boot + n, index=2 * boot + n)
        for boot, of_boot in enumerate(times)
        for n, of_trial in enumerate(of_boot)
    ]
    (group,) = workload_groups(trials)
    for name, percent in PERCENTILES.items():
        interval = group.figures[f"response_{name}_ms"]
        assert interval.mean == pytest.approx(exact(np.concatenate([*map(np.concatenate, times)]), percent))
        boots = [exact(np.concatenate(of_boot), percent) for of_boot in times]
        width = stats.t.ppf(0.975, 2) * np.std(boots, ddof=1) / np.sqrt(3)
        assert interval.half_width == pytest.approx(width)
        assert (interval.n, interval.boots) == (6, 3)


def test_the_trials_of_a_single_boot_are_the_units():
    times = [drawn_ms(1.0, 400, seed) for seed in range(4)]
    (group,) = workload_groups(
        flow_trial(timed(of_trial), boot=1, repetition=n, index=n) for n, of_trial in enumerate(times)
    )
    p99 = [exact(of_trial, 99) for of_trial in times]
    width = stats.t.ppf(0.975, 3) * np.std(p99, ddof=1) / 2
    assert group.figures["response_p99_ms"].half_width == pytest.approx(width)
    assert "response_p999_ms" not in group.figures, "1,600 times have two beyond it"
    many = [flow_trial(timed(drawn_ms(1.0, 900, n)), boot=1, repetition=n, index=n) for n in range(12)]
    (group,) = workload_groups(many)
    assert group.figures["response_p999_ms"].half_width is None, "no trial alone has a time beyond it"


@pytest.mark.parametrize(
    ("name", "number"), [("p50", 1), ("p95", 200), ("p99", 1000), ("p999", 10_000)], ids=lambda value: str(value)
)
def test_a_percentile_needs_ten_times_beyond_it(name, number):
    for times, is_known in ((number, True), (number - 1, False)):
        figure = FIGURES_BY_NAME[f"rtt_{name}_ms"]
        flows = [timed([1.0] * times, "rtt")] if times else [flow()]
        assert (figure.read(flows) is not None) is is_known


@pytest.mark.parametrize(
    ("flows", "name", "expected"),
    [
        ([flow(to_server_bytes=125_000), flow("s2", to_server_bytes=250_000)], "to_server_mbps", 3.0),
        ([flow(to_server_bytes=125_000), flow("s2")], "to_server_mbps", None),
        ([flow(completed=90), flow("s2", completed=50, duration_s=0.5)], "completed_per_s", 190.0),
        (
            [flow(started=100, errors={"timeout": 50}), flow("s2", started=100, errors={"reset": 50})],
            "error_ratio",
            0.5,
        ),
        (
            [flow(intended=None, started=300, errors={"timeout": 3}), flow("s2", intended=None, started=100)],
            "error_ratio",
            0.0075,
        ),
        ([flow(intended=None, started=None)], "error_ratio", None),
        ([flow(intended=50_000, started=3000, errors={"timeout": 49_000})], "error_ratio", 0.98),
        ([flow(retransmissions=3), flow("s2", retransmissions=4)], "retransmissions", 7),
        ([timed([1, 1, 1]), timed([3, 3, 3, 3], stream="s2")], "response_p50_ms", 3.0),
    ],
)
def test_all_clients_of_a_trial_are_added_up(flows, name, expected):
    assert FIGURES_BY_NAME[name].read(flows) == (None if expected is None else pytest.approx(expected))


def test_only_valid_trials_count_and_the_others_are_kept_apart():
    trials = [
        flow_trial(flow(completed=100), repetition=1),
        flow_trial(flow(completed=50), repetition=2, reasons=(Reason(ReasonKind.TESTER_LIMITED, "s1", "CPU"),)),
        flow_trial(flow(error="no answer"), repetition=3, reasons=(WHY,)),
    ]
    (group,) = workload_groups(trials)
    assert (len(group.valid), len(group.suspicious), len(group.invalid)) == (1, 1, 1)
    assert (group.figures["completed_per_s"].mean, group.figures["completed_per_s"].half_width) == (100, None)
    assert group.reasons[-1] == WHY
    assert figures_text([flow(error="no answer")]) == "no result"


def test_cells_are_in_the_order_of_topology_and_profile_and_their_options_and_loads_rise():
    works = workloads_of({"kind": "iperf3", "message_size": [1024, 64]})
    cells = [
        (uut, work, load) for load in ("max", "20Mbit/s", "100Mbit/s") for work in works for uut in ("container", "raw")
    ]
    trials = [flow_trial(flow(), uut=uut, workload=work, load=load) for uut, work, load in cells]
    groups = workload_groups_of(flow_campaign(trials, uuts=("raw", "container")))
    assert [group.uut for group in groups] == ["raw"] * 6 + ["container"] * 6
    assert [group.workload.option("message_size") for group in groups[:6]] == [64] * 3 + [1024] * 3
    assert [str(group.load) for group in groups[:3]] == ["20Mbit/s", "100Mbit/s", "max"]


RATE = Load.parse("20000fps")


@pytest.mark.parametrize(
    ("activity", "expected"),
    [
        (None, NeighbourLoadPoint(0.0, "")),
        (Off(), NeighbourLoadPoint(0.0, "")),
        (Idle(), NeighbourLoadPoint(0.0, "")),
        (Network(None, 95.0), NeighbourLoadPoint(95.0, OF_MAXIMUM)),
        (Network(RATE), NeighbourLoadPoint(20_000.0, "frames/s")),
        (Network(Load.parse("100Mbit/s")), NeighbourLoadPoint(100.0, "Mbit/s")),
        (Serve(HTTP, Load.parse("50/s")), NeighbourLoadPoint(50.0, "operations/s")),
        (Serve(HTTP, Load.parse("max")), None),
        (Stress(cpu=8), None),
    ],
    ids=str,
)
def test_the_load_of_the_neighbours(activity, expected):
    (group,) = workload_groups([flow_trial(flow(), activity=activity)])
    assert neighbour_load(group) == expected


def test_a_curve_begins_beside_idle_neighbours():
    groups = workload_groups_of(response_times({"raw": 1.0, "container": 2.0}, boots=2, repetitions=1, number=200))
    curves = list(load_curves(groups))
    assert [(curve.uut, curve.unit) for curve in curves] == [("raw", OF_MAXIMUM), ("container", OF_MAXIMUM)]
    assert [x for x, _ in curves[0].points] == [0, 25, 50, 95]
    assert curves[0].first.scenario == "shared-idle"


def test_the_cost_of_a_neighbour_is_the_ratio_to_the_cell_without_it():
    groups = workload_groups_of(response_times({"raw": 1.0}, slope=4.0))
    costs = {cost.group.scenario: cost for cost in flow_costs(groups) if cost.figure.name == "response_p99_ms"}
    assert set(costs) == {"neighbour-25", "neighbour-50", "neighbour-95"}
    assert all(cost.is_cost for cost in costs.values())
    assert costs["neighbour-95"].ratio.ratio == pytest.approx(1 + 3 * 0.95, rel=0.1)
    rates = [cost for cost in flow_costs(groups) if cost.figure.name == "completed_per_s"]
    assert not any(cost.is_cost for cost in rates), "the neighbour takes no throughput"


@pytest.mark.parametrize(
    ("flows", "expected"),
    [
        (flow(completed=None, to_server_bytes=1, to_client_bytes=1), ["to_server_mbps", "to_client_mbps"]),
        (flow(), ["completed_per_s"]),
        (timed([1.0] * 1000), ["response_p99_ms", "completed_per_s"]),
        (timed([1.0] * 200, "rtt", to_client_bytes=1), ["rtt_p95_ms", "to_client_mbps"]),
        (timed([1.0], "connect", completed=None), ["connect_p50_ms"]),
        (timed([1.0], "connect", to_server_bytes=0, to_client_bytes=0), ["connect_p50_ms", "completed_per_s"]),
    ],
)
def test_cells_are_ranked_by_the_highest_percentile_up_to_p99_and_by_rates(flows, expected):
    (leading,) = leading_figures(workload_groups([flow_trial(flows)])).values()
    assert [figure.name for figure in leading] == expected


def test_each_workload_has_leading_figures_by_itself():
    bulk = flow(completed=None, to_server_bytes=1)
    trials = [flow_trial(timed([1.0] * 1000)), flow_trial(bulk, workload=Workload("iperf3", "bulk"))]
    names = {workload: [each.name for each in of] for workload, of in leading_figures(workload_groups(trials)).items()}
    assert names == {"http": ["response_p99_ms", "completed_per_s"], "bulk": ["to_server_mbps"]}


def test_no_times_are_no_distribution():
    assert Latencies.merged([]) is None


def texts(results) -> dict[str, str]:
    return {finding.topic: finding.text for finding in findings(results)}


def bandwidths(**by_uut):
    """A campaign of UUTs with these bandwidths in Mbit/s, one for each boot."""
    trials = [
        flow_trial(
            flow("s1", "iperf3", to_server_bytes=round(rate * 125_000), intended=None, started=None, completed=None),
            uut=uut,
            workload=workload_of("iperf3"),
            load="max",
            boot=10 * place + n,
            repetition=n,
        )
        for place, (uut, rates) in enumerate(by_uut.items(), 1)
        for n, rate in enumerate(rates, 1)
    ]
    return flow_campaign(trials)


@pytest.mark.parametrize(
    ("by_uut", "expected"),
    [
        (
            {"raw": (100, 101, 99), "container": (50, 51, 49)},
            "raw has the highest bandwidth to the server: 100 ± 2 Mbit/s, 2.00 × container (1.89 … 2.12). "
            "container 50.0 ± 2.5 Mbit/s, 0.50 × raw (0.47 … 0.53).",
        ),
        (
            {"raw": (100, 101, 99), "container": (200, 201, 199)},
            "container has the highest bandwidth to the server: 200 ± 2 Mbit/s, 2.00 × raw (1.95 … 2.06). raw 100 ± 2",
        ),
        (
            {"raw": (100, 120, 80), "container": (90, 110, 70)},
            "No significant difference in bandwidth to the server between raw and container: 100 ± 50 Mbit/s (n = 3) "
            "and 90.0 ± 49.7 Mbit/s (n = 3); iperf3 at max, no neighbour. n = 3 on 3 boots.",
        ),
        (
            {"raw": (100,), "container": (50, 51)},
            "No significant difference in bandwidth to the server between raw and container: 100 Mbit/s (n = 1) and "
            "50.5 ± 6.4 Mbit/s (n = 2); iperf3 at max, no neighbour. raw: n = 1, one boot; "
            "container: n = 2 on 2 boots.",
        ),
        (
            {"raw": (100, 120, 80), "container": (90, 110, 70), "second": (20, 21, 19)},
            "raw and container are the best two of 3 by bandwidth to the server; no significant difference between "
            "them: raw 100 ± 50 Mbit/s (n = 3) and container 90.0 ± 49.7 Mbit/s (n = 3); iperf3 at max, no neighbour. "
            "second 20.0 ± 2.5 Mbit/s, ",
        ),
        (
            {"raw": (100, 100.1, 99.9), "container": (100.1, 100, 100.2)},
            "The bandwidth to the server of raw and container differs by less than 1 %: 100 ± 0.25 Mbit/s.",
        ),
        ({"raw": (100, 101, 99)}, "The bandwidth to the server of raw is 100 ± 2 Mbit/s."),
    ],
)
def test_the_first_finding_names_the_best_uut_only_if_it_is_known(by_uut, expected):
    assert texts(bandwidths(**by_uut))["Rate"].startswith(expected)


def rated(load: str, size: int, uut: str, rate: float, number: int):
    work = workload_of({"kind": "iperf3", "name": f"iperf3 message_size={size}", "message_size": size})
    measured = flow("s1", work.name, to_client_bytes=round(125_000 * rate), completed=None)
    return flow_trial(measured, uut=uut, workload=work, load=load, boot=number, repetition=number)


def test_rates_are_compared_at_max_with_the_workload_that_has_the_highest():
    cells = {("max", 64): 5.0, ("max", 8192): 100.0, ("200Mbit/s", 8192): 120.0}
    trials = [
        rated(load, size, uut, factor * rate * (1 + number / 1000), number)
        for (load, size), rate in cells.items()
        for uut, factor in (("raw", 1.0), ("container", 0.5))
        for number in (1, 2, 3)
    ]
    text = texts(flow_campaign(trials))["Rate"]
    assert "Conditions: iperf3 message_size=8192 at max, no neighbour, n = 3 on 3 boots." in text


def test_the_costliest_neighbour_is_named_with_its_cost_for_each_uut():
    text = texts(response_times({"raw": 1.0, "container": 1.3}))["Neighbours"]
    assert text.startswith("neighbour-95 costs most: it raises the p99 response time of raw by 2")
    assert " and of container by 2" in text
    rates = "neighbour-95 was 95.0 kfps beside raw and 190.0 kfps beside container; shares are of maxima, which differ"
    assert f"compared with shared-idle. {rates} between campaigns. Conditions: http at 100/s, n = 6 on 3 boots." in text


def test_neighbours_without_effect_leave_a_limit():
    text = texts(response_times({"raw": 1.0}, slope=1.0, boots=5))["Neighbours"]
    assert text.startswith("No significant cost of a neighbour was found. p99 response time of raw: changes above")


@pytest.mark.parametrize(
    ("flows", "expected"),
    [
        (
            timed([1.0] * 100, errors={"timeout": 7}, completed=93),
            "Operations of raw failed, up to 7.0 % (http at 100/s",
        ),
        (flow(started=80, completed=80), "Clients of raw started fewer operations than intended, as few as 80.0 %"),
        (flow(client_cpu_share=0.97), "which used up to 97.0 % of its CPU"),
        (flow(), "The scatter is unknown (n = 1): measure three repetitions or more."),
    ],
)
def test_figures_that_are_not_to_be_trusted_are_caveats(flows, expected):
    trials = [flow_trial(flows, repetition=number) for number in range(1, 2 if "n = 1" in expected else 4)]
    assert expected in texts(flow_campaign(trials))["Caveats"]


def test_a_baseline_without_a_valid_trial_is_named():
    results = response_times({"raw": 1.0, "container": 1.0}, boots=2, repetitions=1)
    failed = [
        replace(trial, reasons=(WHY,)) if trial.spec.scenario == "shared-idle" else trial for trial in results.trials
    ]
    text = "shared-idle has no valid trial (4 of 4 excluded, most often because of tool-failed)"
    assert texts(replace(results, trials=failed))["Neighbours"] == f"Cost of neighbours: not measurable: {text}."
    assert list(map(str, missing_points(list(workload_groups(failed))))) == [text]
    one = [trial if trial.spec.uut == "raw" else other for trial, other in zip(results.trials, failed, strict=True)]
    assert str(missing_baselines(workload_groups(one))[0]).startswith(
        "shared-idle has no valid trial of container with http (2 of 2 excluded"
    )


DISAGREEMENT = disagreement(
    tool=FlowFigures(percentiles_ns={99: 1_000_000}), wire=FlowFigures(percentiles_ns={99: 800_000})
)


def test_the_disagreement_of_tool_and_wire_is_a_caveat_with_its_size():
    by_tool, by_wire = ([time + late for time in [0.1] * 900 + [0.8] * 200] for late in (0.2, 0.0))
    wire = (WireFigures("client", latencies=(latencies("exchange", by_wire),)),)
    reasons = tuple(Reason(ReasonKind.TOOL_DISAGREES, "s1", f"http: {text}") for text in DISAGREEMENT)
    trials = [
        flow_trial(timed(by_tool, "service", wire=wire), repetition=n, reasons=reasons if n < 3 else ())
        for n in range(1, 4)
    ]
    assert [trial.verdict.value for trial in trials] == ["valid"] * 3
    assert texts(flow_campaign(trials))["Caveats"].startswith(
        "Tool and wire disagree: http in 2 of 3 trials, by up to 200 µs (request to response, p99; raw at 100/s, "
        "dedicated). Compare the figures of the wire (Tool and wire)."
    )


def test_lost_datagrams_are_no_failed_operations():
    udp = workload_of({"kind": "iperf3", "protocol": "udp"})
    lossy = flow("s1", udp.name, errors={"lost": 7}, completed=93, lost_datagrams=7)
    results = flow_campaign([flow_trial(lossy, workload=udp, repetition=n) for n in range(3)])
    assert texts(results)["Caveats"].startswith("Datagrams of raw were lost, up to 7.0 % (iperf3 at 100/s")
    (group,) = workload_groups_of(results)
    assert group.figures["lost_datagrams"].mean == 7


def test_without_a_valid_trial_there_is_the_reason():
    failed = flow_campaign([flow_trial(flow(error="no answer"), reasons=(WHY,))])
    (finding,) = findings(failed)
    assert "none of 1 measured trial is valid, most often because of tool-failed" in finding.text

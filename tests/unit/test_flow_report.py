"""Pages, figures, exports and summaries of campaigns with flows: their numbers against an independent computation."""

import csv
import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from netbench.cli.export import Publication, publish
from netbench.cli.flow_summary import flows_table
from netbench.errors import UsageError
from netbench.model.flow_result import WireFigures
from netbench.model.scenario import Activity, Idle, Network, Serve
from netbench.model.trial import GuestResult, GuestTask
from netbench.model.units import Load
from netbench.model.verdict import CampaignWarning, Reason, ReasonKind, WarningKind
from netbench.model.workload import workloads_of
from netbench.report.figures.chart import Form
from netbench.report.figures.flow_latency import NEIGHBOUR_LOAD, PERCENTILES, percentile_points
from netbench.report.figures.flow_rates import BANDWIDTH, MESSAGE_SIZES
from netbench.report.flow_formats import figure_interval
from netbench.report.model import ReportModel
from netbench.report.section_parts import main_chart
from netbench.report.summary_json import campaign_summary
from netbench.report.tables import tables_of
from netbench.results.export_files import export
from netbench.results.export_rows import group_rows, stream_rows
from netbench.results.group_columns import GROUP_COLUMNS
from netbench.results.stream_columns import STREAM_COLUMNS
from netbench.statistics.compared_cells import CellSelection
from netbench.statistics.flow_figures import FIGURES_BY_NAME
from netbench.statistics.flow_witnesses import witnessed
from netbench.statistics.intervals import Interval
from netbench.statistics.workload_groups import workload_groups
from tests.unit.charts import figures_on
from tests.unit.flows_factory import HTTP, drawn_ms, flow, flow_campaign, flow_trial, latencies, response_times, timed
from tests.unit.report_page import page_of, report_page
from tests.unit.results_factory import campaign, neighbour, stream_counts, trial

WHY = Reason(ReasonKind.TOOL_FAILED, "s1", "http: nothing listens")
RISING = response_times({"raw": 1.0, "container": 2.0}, boots=3, repetitions=2, number=2000)


def times_of(results, uut: str, scenario: str) -> list[np.ndarray]:
    """The times of each trial of a cell in ms, sorted."""
    return [
        np.repeat(*np.array(times.steps).T) / 1e6
        for trial_ in results.trials
        if (trial_.spec.uut, trial_.spec.scenario) == (uut, scenario)
        for flow_ in trial_.victim.flows
        for times in flow_.latencies
    ]


def rank(times, part: float) -> float:
    """The percentile by nearest rank, for a number of times that makes the rank whole."""
    return float(np.sort(times)[round(part * len(times)) - 1])


def sizes(**by_uut: float):
    """A campaign of TCP and UDP with three message sizes, of which the rate is the root times a factor."""
    trials = []
    for place, (uut, factor) in enumerate(by_uut.items()):
        for work in workloads_of({"kind": "iperf3", "protocol": ["tcp", "udp"], "message_size": [64, 1024, 16384]}):
            size = work.option("message_size")
            assert isinstance(size, int)
            for number in range(1, 4):
                rate = factor * size**0.5 * (1 + number / 100)
                measured = flow("s1", work.name, to_client_bytes=round(rate * 125_000), intended=None, completed=None)
                trials.append(
                    flow_trial(measured, uut=uut, workload=work, load="max", repetition=number, boot=3 * place + number)
                )
    return flow_campaign(trials)


def printed(results, width: int = 80) -> str:
    from rich.console import Console

    console = Console(file=(file := io.StringIO()), width=width)
    console.print(flows_table(results))
    return file.getvalue()


def test_the_page_has_the_figures_with_their_intervals_and_the_frame_of_every_page():
    page = page_of(RISING)
    assert {"neighbour-load", "isolation", "throughput", "maximum"}.isdisjoint(page.ids), "the first has the main chart"
    assert {"latency", "rates", "neighbours", "verdicts", "tester", "environment"} <= set(page.ids)
    assert page.text.startswith("netns-3 × schlosser2011-dedicated") or "raw has the lowest p99" in page.text
    assert "48 of 48 trials valid, 0 suspicious, 0 invalid; 0 of 48 planned missing" in page.text
    assert "Baseline: raw." in page.text
    assert "frames/s" not in page.text
    assert "Not on this page" not in page.text
    whole = np.concatenate(times_of(RISING, "container", "neighbour-95"))
    assert f"container neighbour-95 100/s {rank(whole, 0.5):.2f}" in page.text


def test_the_response_time_by_load_has_a_panel_per_percentile_and_intervals_over_boots():
    model = ReportModel.of(RISING)
    (named,) = NEIGHBOUR_LOAD.build(model)
    chart = named.chart
    titles = ["p50 response time [ms]", "p95 response time [ms]", "p99 response time [ms]", "p99.9 response time [ms]"]
    assert [panel.y.title for panel in chart.panels] == [*titles, "Completed operations [/s]"]
    assert [series.name for series in chart.panels[0].series] == ["raw", "container"]
    for panel, part in zip(chart.panels[:4], (0.5, 0.95, 0.99, 0.999), strict=True):
        for series in panel.series:
            assert [mark.x for mark in series.marks] == [0, 25, 50, 95]
            for mark in series.marks:
                scenario = "shared-idle" if not mark.x else f"neighbour-{mark.x:.0f}"
                trials = times_of(RISING, series.name, scenario)
                assert mark.y == pytest.approx(rank(np.concatenate(trials), part))
                boots = [rank(np.concatenate(trials[n : n + 2]), part) for n in (0, 2, 4)]
                width = 4.30265 * np.std(boots, ddof=1) / 3**0.5  # Student's t for 2 degrees of freedom
                assert mark.high == pytest.approx(mark.y + width, rel=1e-4)
                assert mark.numbers["neighbour_load"] == mark.x
    first = main_chart(model)
    assert first is not None
    assert "figure-neighbour-load" in first.html


def test_loads_of_neighbours_in_other_units_have_charts_of_their_own():
    activities: list[Activity] = [
        Idle(),
        Network(None, 50.0),
        Network(Load.parse("20000fps")),
        Serve(HTTP, Load.parse("10/s")),
    ]
    trials = [flow_trial(flow(), scenario=f"s{n}", activity=activity, index=n) for n, activity in enumerate(activities)]
    charts = list(NEIGHBOUR_LOAD.build(ReportModel.of(flow_campaign(trials))))
    assert [named.chart.panels[0].x.title for named in charts] == [
        "Load of the neighbour [% of what it forwards]",
        "Load of the neighbour [frames/s]",
        "Load of the neighbour [operations/s]",
    ]


def test_the_percentile_curve_is_the_sorted_times_on_a_scale_of_nines():
    (named,) = PERCENTILES.build(ReportModel.of(RISING))
    assert [panel.title for panel in named.chart.panels] == [
        "(a) shared-idle",
        "(b) neighbour-25",
        "(c) neighbour-50",
        "(d) neighbour-95",
    ]
    panel = named.chart.panels[3]
    assert [text for _, text in panel.x.ticks] == ["0", "90", "99", "99.9", "99.99"]
    assert [place for place, _ in panel.x.ticks] == pytest.approx([0, 1, 2, 3, 4])
    for series in panel.series:
        times = np.sort(np.concatenate(times_of(RISING, series.name, "neighbour-95")))
        for mark in series.marks:
            percentile = mark.numbers["percentile"]
            assert isinstance(percentile, float)
            place = round(percentile / 100 * len(times))
            assert mark.y == pytest.approx(times[place - 1])
            assert 10**-mark.x == pytest.approx(1 - place / len(times))
        assert " % of responses ≤ " in series.marks[0].hover
        assert series.marks[-1].numbers["percentile"] == pytest.approx(100 * (1 - 1 / len(times)))


@pytest.mark.parametrize("number", [1, 2, 10, 12_345])
def test_a_curve_of_few_times_has_few_points(number):
    points = percentile_points(latencies("rtt", drawn_ms(1.0, number, 1)))
    assert [percentile for percentile, _ in points] == sorted({percentile for percentile, _ in points})
    assert len(points) <= min(number, 60)
    assert all(percentile < 100 for percentile, _ in points)


def test_throughput_by_message_size_has_a_line_per_uut_and_protocol():
    model = ReportModel.of(sizes(raw=1.0, container=0.5))
    (named,) = MESSAGE_SIZES.build(model)
    (panel,) = named.chart.panels
    assert panel.x.logarithmic
    assert {series.name for series in panel.series} == {
        f"{uut}, iperf3 protocol={protocol}" for uut in ("raw", "container") for protocol in ("tcp", "udp")
    }
    for series in panel.series:
        assert [mark.x for mark in series.marks] == [64, 1024, 16384]
        factor = 0.5 if series.name.startswith("container") else 1.0
        assert [mark.y for mark in series.marks] == pytest.approx(
            [factor * 1.02 * size**0.5 for size in (64, 1024, 16384)]
        )
    assert BANDWIDTH.requirement(model) == "no tool measured a bandwidth", "the sizes have another figure"


def test_bandwidths_are_bars_by_workload_and_direction():
    works = workloads_of({"kind": "iperf3", "protocol": ["tcp", "udp"]})
    rates = {"raw": (100.0, 90.0), "container": (50.0, 45.0)}
    trials = [
        flow_trial(
            flow("s1", work.name, to_server_bytes=round(125_000 * rate), to_client_bytes=round(62_500 * rate)),
            uut=uut,
            workload=work,
        )
        for uut, of_uut in rates.items()
        for work, rate in zip(works, of_uut, strict=True)
    ]
    (named,) = BANDWIDTH.build(ReportModel.of(flow_campaign(trials)))
    (panel,) = named.chart.panels
    tcp, udp = (f"iperf3 protocol={protocol}, to the " for protocol in ("tcp", "udp"))
    assert panel.x.categories == (f"{tcp}server", f"{udp}server", f"{tcp}client", f"{udp}client") or set(
        panel.x.categories
    ) == {f"{name}{end}" for name in (tcp, udp) for end in ("server", "client")}
    assert all(series.form is Form.BARS for series in panel.series)
    drawn = {
        (series.name, panel.x.categories[round(mark.x)]): mark.y for series in panel.series for mark in series.marks
    }
    assert drawn["container", f"{udp}client"] == pytest.approx(22.5)
    assert drawn["raw", f"{tcp}server"] == pytest.approx(100)


def test_the_numbers_of_figures_on_the_page_are_those_of_the_export():
    by_cell = {(row["uut"], row["scenario"]): row for row in group_rows(RISING)}
    found = {figure.name: figure for figure in figures_on(report_page(RISING))}
    assert set(found) == {"neighbour-load-0", "percentiles-0"}
    for row in found["neighbour-load-0"].rows:
        exported = by_cell[row["uut"], row["scenario"]]
        shared = {name for name in row if name in exported and row[name] is not None}
        assert len(shared) > 5
        assert {name: row[name] for name in shared} == {name: exported[name] for name in shared}


def test_a_row_per_trial_and_flow_with_the_columns_of_frames_empty():
    second = GuestTask("second", Serve(HTTP, Load.parse("10/s")), ("s3",))
    both = flow_trial(timed([1.0, 2.0, 3.0, 4.0], errors={"timeout": 2, "reset": 1}), flow("s2"), boot=4)
    spec = replace(both.spec, guests=(both.spec.victim, second))
    both = replace(both, spec=spec, guests=(both.victim, GuestResult("second", flows=(flow("s3"),))))
    rows = list(stream_rows([both]))
    assert [(row["stream"], row["guest"], row["activity"]) for row in rows] == [
        ("s1", "", "second: serves http at 10/s"),
        ("s2", "", "second: serves http at 10/s"),
        ("s3", "second", "serves http at 10/s"),
    ]
    assert all(list(row) == [column.name for column in STREAM_COLUMNS] for row in rows)
    row = rows[0]
    expected = {
        "uut": "raw",
        "load": "100/s",
        "verdict": "valid",
        "lifetime": 4,
        "workload": "http",
        "tool": "netbench client 1",
        "flow_duration_s": 1.0,
        "started_operations": 100,
        "failed_operations": 3,
        "errors": "timeout=2;reset=1",
        "error_ratio": 0.03,
        "completed_per_s": 100.0,
        "response_times": 4,
        "response_min_ms": 1.0,
        "response_mean_ms": 2.5,
        "response_p50_ms": 2.0,
        "response_max_ms": 4.0,
        "response_p99_ms": None,
        "rtt_times": None,
        "to_server_bytes": None,
        "frame_size": None,
        "sent_frames": None,
        "trial_frame_size": None,
        "outlier": None,
    }
    assert {name: row[name] for name in expected} == expected


def test_a_trial_without_a_result_has_a_row_with_its_reason():
    (row,) = stream_rows([flow_trial(flow(error="http: nothing listens", started=None), reasons=(WHY,))])
    assert (row["verdict"], row["reasons"], row["tool_error"]) == ("invalid", "tool-failed", "http: nothing listens")
    (row,) = stream_rows([flow_trial(streams=("s1",), reasons=(Reason(ReasonKind.UUT_FAILED, "", "gone"),))])
    assert (row["stream"], row["workload"], row["verdict"]) == ("s1", None, "invalid")


def test_a_row_per_cell_with_percentiles_over_all_trials():
    rows = list(group_rows(RISING))
    assert all(list(row) == [column.name for column in GROUP_COLUMNS] for row in rows)
    assert [(row["uut"], row["scenario"]) for row in rows[:2]] == [("raw", "shared-idle"), ("raw", "neighbour-25")]
    for row in rows:
        assert (row["valid_trials"], row["boots"]) == (6, 3)
        assert (row["workload"], row["load"], row["streams"], row["response_times"]) == ("http", "100/s", 1, 12_000)
        whole = np.concatenate(times_of(RISING, str(row["uut"]), str(row["scenario"])))
        for name, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
            assert row[f"response_{name}_ms"] == pytest.approx(rank(whole, part))
            half_width = row[f"response_{name}_ms_ci95"]
            assert isinstance(half_width, float)
            assert half_width > 0
        assert row["throughput_mbps"] is row["rtt_p50_ms"] is row["frame_size"] is None


@pytest.mark.parametrize("fmt", ["csv", "json", "parquet"])
@pytest.mark.parametrize("aggregate", [False, True])
def test_every_format_has_the_flows(fmt, aggregate, tmp_path):
    if fmt == "parquet":
        pytest.importorskip("pyarrow")
    out = tmp_path / f"rows.{fmt}"
    export(RISING, fmt, aggregate, out)
    number = 8 if aggregate else 48
    if fmt == "csv":
        rows = list(csv.DictReader(io.StringIO(out.read_text())))
    elif fmt == "json":
        rows = json.loads(out.read_text())["rows"]
    else:
        from pyarrow.parquet import read_table

        rows = read_table(out).to_pylist()
    assert len(rows) == number
    assert float(rows[0]["response_p50_ms"]) == pytest.approx(1.0, rel=0.1)
    assert rows[0]["sent_frames" if not aggregate else "offered_mbps"] in ("", None)


@pytest.mark.parametrize(
    ("selection", "number"),
    [
        (CellSelection(), 8),
        (CellSelection(uuts=("raw",)), 4),
        (CellSelection(scenarios=("*-95",)), 2),
        (CellSelection(sizes=("http",)), 8),
        (CellSelection(sizes=("64",)), 0),
    ],
)
def test_cells_are_selected_by_uut_scenario_and_workload(selection, number):
    assert len(list(group_rows(RISING, selection=selection))) == number
    assert len(list(stream_rows(RISING.trials, selection=selection))) == 6 * number


def test_figures_and_tables_are_written_as_files(tmp_path):
    names = publish(RISING, Publication("csv,svg", "markdown", series="raw"), tmp_path).split()
    assert {name.rsplit("/", 1)[1] for name in names} == {
        *("neighbour-load-0.csv", "neighbour-load-0.svg", "percentiles-0.csv", "percentiles-0.svg"),
        *("latency-response.md", "flow-rates.md", "flow-costs.md"),
    }
    rows = list(csv.DictReader(io.StringIO((tmp_path / "neighbour-load-0.csv").read_text())))
    assert {row["uut"] for row in rows} == {"raw"}
    for file, first in (("latency-response", "| http | raw |"), ("flow-costs", "| Completed operations | raw |")):
        lines = (tmp_path / f"{file}.md").read_text().splitlines()
        heading = next(number for number, line in enumerate(lines) if line.startswith("|"))
        assert lines[heading].startswith("| Workload | UUT |" if file.startswith("latency") else "| Figure | UUT |")
        assert lines[heading + 2].startswith(first)
    with pytest.raises(UsageError, match="--size: there is no '64'; choose from http"):
        publish(RISING, Publication("csv", sizes="64"), tmp_path)


def test_summary_json_has_the_cells_with_their_figures():
    document = json.loads(json.dumps(campaign_summary(RISING)))
    assert (document["maxima"], document["loads"], len(document["flows"])) == ([], [], 8)
    cell = document["flows"][0]
    assert (cell["uut"], cell["workload"], cell["load"], cell["valid"]) == ("raw", "http", "100/s", 6)
    whole = np.concatenate(times_of(RISING, "raw", "shared-idle"))
    assert cell["figures"]["response_p99_ms"] == pytest.approx(rank(whole, 0.99))
    assert cell["figures"]["response_p99_ms_ci95"] > 0
    assert campaign_summary(campaign([trial(stream_counts())]))["flows"] == []


def test_the_table_on_the_console_fits_80_columns():
    text = printed(RISING)
    assert max(map(len, text.splitlines())) <= 80
    words = [line.split() for line in text.splitlines()]
    p50 = rank(np.concatenate(times_of(RISING, "raw", "neighbour-25")), 0.5)
    assert ["neighbour-25", "100/s", "100", f"{p50:.2f}"] in [line[:4] for line in words]
    assert "percentiles of the response time: over all" in " ".join(text.split())
    wide = printed(sizes(raw=1.0))
    assert max(map(len, wide.splitlines())) <= 80
    assert "3 valid" in wide


def test_verdicts_have_reasons_with_the_workload():
    trials = [flow_trial(flow(), repetition=1), flow_trial(flow(error="gone"), repetition=2, reasons=(WHY,))]
    page = page_of(flow_campaign(trials, planned=5))
    assert "raw http 100/s 1 2 s1 http: nothing listens" in page.text
    assert "tool-failed – 1 time" in page.text
    assert "The campaign is not complete" in page.text
    assert "invalid for tool-failed: 1 trial" in printed(flow_campaign(trials))


@pytest.mark.parametrize(
    "trials",
    [
        (),
        (flow_trial(flow(error="gone"), reasons=(WHY,)),),
        (flow_trial(streams=("s1",), reasons=(Reason(ReasonKind.UUT_FAILED, "", "gone"),)),),
        (flow_trial(flow()),),
        (flow_trial(flow(completed=None, started=None, intended=None)),),
        (flow_trial(timed([0.0, 0.0])),),
    ],
    ids=["nothing", "no result", "no start", "one trial", "no figure", "times of 0"],
)
def test_partial_and_empty_campaigns_have_pages_summaries_and_rows(trials):
    results = flow_campaign(trials, planned=3, uuts=("raw",))
    assert page_of(results).text
    assert campaign_summary(results)["trials"]["planned"] == 3
    assert len(list(stream_rows(results.trials))) == len(trials)
    assert len(list(group_rows(results))) == len(trials)
    if trials:
        assert printed(results)


def test_calibration_with_frames_is_no_cell_of_flows():
    of_frames = trial(stream_counts(), scenario="shared-idle")
    of_frames = replace(of_frames, spec=replace(of_frames.spec, finds_maximum=True))
    results = flow_campaign([of_frames, flow_trial(flow(), index=1)])
    assert results.has_flows
    assert [row["workload"] for row in group_rows(results)] == ["http"]
    assert [row["frame_size"] for row in stream_rows(results.trials)] == [64, None]
    assert "Rates and errors" in page_of(results).text


def test_campaigns_of_frames_beside_a_neighbour_that_serves():
    task, measured = neighbour()
    task, measured = replace(task, activity=Serve(HTTP, Load.parse("10/s"))), replace(measured, flows=(flow("s2"),))
    results = campaign([trial(stream_counts(), neighbours=((task, measured),))])
    assert not results.has_flows
    assert [(row["stream"], row["guest"], row["workload"]) for row in stream_rows(results.trials)] == [
        ("s1", "", None),
        ("s2", "second", "http"),
    ]


def tap(place: str, **figures: Any) -> WireFigures:
    times = (latencies("exchange", [1.0] * 980 + [3.0] * 30), latencies("handshake", [0.25]))
    return WireFigures(place, frames=10, dropped_frames=1, latencies=times if place == "client" else (), **figures)


DISAGREES = Reason(ReasonKind.TOOL_DISAGREES, "s1", "http: bytes to the client: 990 bytes by the tool, 1,000 …")
LATER = Reason(ReasonKind.TOOL_DISAGREES, "s1", "http: p50: 1,500 µs by the tool, 1,000 µs on the wire")
WITNESSED = flow_campaign(
    [
        flow_trial(
            timed(
                [1.5] * 1010,
                "service",
                run_to_server_bytes=500,
                run_to_client_bytes=by_tool,
                wire=(
                    tap("client", to_server_bytes=600, to_client_bytes=1000, retransmissions=2),
                    tap("guest", to_server_bytes=500, to_client_bytes=1100),
                ),
            ),
            repetition=number,
            reasons=(DISAGREES, LATER) if by_tool == 990 else (LATER,),
        )
        for number, by_tool in enumerate((1000, 990), 1)
    ]
    + [flow_trial(flow(run_to_client_bytes=9, wire=(tap("client", to_client_bytes=7),)), repetition=3, reasons=(WHY,))]
)


def test_figures_of_the_tool_are_beside_those_of_the_wire():
    (table,) = tables_of("witness", ReportModel.of(WITNESSED))
    rows = {row.cells[2].text: [cell.text for cell in row.cells[3:]] for row in table.rows}
    assert rows == {
        "to the server [bytes]": ["1,000", "1,000", "+0.000 %", "2", "0"],
        "to the client [bytes]": ["1,990", "2,000", "−0.500 %", "2", "1"],
        "retransmissions": ["–", "4", "–", "2", "–"],
        "request to response, p50 [µs]": ["1,500", "1,000", "+500 µs (allowed 60 µs)", "2", "2"],
        "request to response, p95 [µs]": ["1,500", "1,000", "+500 µs (allowed 60 µs)", "2", "0"],
        "request to response, p99 [µs]": ["1,500", "3,000", "−1,500 µs (allowed 80 µs)", "2", "0"],
        "handshake, p50 [µs]": ["–", "250", "–", "2", "–"],
        "frames dropped by the capture": ["–", "4", "–", "2", "–"],
    }
    assert sum(row.css == "changed" for row in table.rows) == 2
    assert "Tool and wire" in page_of(WITNESSED).text


def test_the_tester_of_flows_is_clients_servers_and_taps():
    taps = tuple(WireFigures(place) for place in ("client", "guest"))
    trials = [
        flow_trial(flow(tool="netbench http client (Python 3.11.7), nginx/1.22.1", wire=taps)),
        flow_trial(flow("s2", "iperf3", tool="iperf 3.12"), index=1),
    ]
    hosts = {"s1": ("source", "uut")}
    warning = CampaignWarning(WarningKind.CEILING_UNKNOWN, "run netbench selftest")
    results = replace(flow_campaign(trials, warnings=(warning,)), stream_hosts=hosts)
    (table,) = tables_of("flow-ends", ReportModel.of(results))
    assert [[cell.text for cell in row.cells] for row in table.rows] == [
        [
            "s1",
            "http",
            "host source: netbench http client (Python 3.11.7)",
            "the UUT on host uut: nginx/1.22.1",
            "beside client and guest",
        ],
        ["s2", "iperf3", "iperf 3.12", "the UUT: iperf 3.12", "–"],
    ]
    page = page_of(results)
    assert "Clients, servers and taps" in page.text
    assert "selftest" not in page.text


def test_a_bandwidth_that_is_always_0_is_left_out():
    connect = workloads_of("connect")[0]
    zero = {"to_server_bytes": 0, "to_client_bytes": 0}
    trials = [
        flow_trial(timed([0.2] * 20, "connect", **zero), workload=connect, repetition=1),
        flow_trial(flow(to_server_bytes=125_000, to_client_bytes=250_000), repetition=1, index=1),
    ]
    model = ReportModel.of(flow_campaign(trials))
    (named,) = BANDWIDTH.build(model)
    assert [mark.numbers["workload"] for series in named.chart.panels[0].series for mark in series.marks] == [
        "http"
    ] * 2
    (table,) = tables_of("flow-rates", model)
    cells = {row.cells[0].text: row for row in table.rows}
    assert len(cells) == 1
    texts = [[cell.text for cell in row.cells] for row in table.rows]
    assert sorted(row[2] for row in texts) == ["", "1.00"]
    assert all("100 of 100" in row for row in texts)


def test_datagrams_have_columns_of_their_own():
    udp = workloads_of({"kind": "iperf3", "protocol": "udp"})[0]
    lossy = flow("s1", udp.name, errors={"lost": 7}, completed=93, lost_datagrams=7)
    results = flow_campaign([flow_trial(lossy, workload=udp), flow_trial(flow(), index=1)])
    (table,) = tables_of("flow-rates", ReportModel.of(results))
    assert {"Datagrams [/s]", "Lost datagrams [%]", "Completed operations [/s]", "Failed operations [%]"} <= {
        column.title for column in table.columns
    }
    rows = {row["workload"]: row for row in group_rows(results)}
    assert (rows["iperf3"]["lost_datagrams"], rows["http"]["lost_datagrams"]) == (7, None)
    assert "Lost" in printed(results) or "lost" in printed(results)


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(0.117, None, 1), "117 µs (n = 1)"),
        (Interval(0.155, 0.140, 2), "155 ± 140 µs (n = 2)"),
        (Interval(0.962, 7.78, 2), "962 µs (n = 2: interval too wide, ± 7,780)"),
        (Interval(2.31, 0.1, 3), "2.31 ± 0.10 ms (n = 3)"),
        (Interval(1.5, 7.78, 3), "1.50 ms (n = 3: interval too wide, ± 7.8)"),
    ],
)
def test_times_have_one_unit_and_wide_intervals_a_remark(interval, text):
    assert figure_interval(FIGURES_BY_NAME["response_p99_ms"], interval, with_n=True) == text


def test_lost_datagrams_are_those_between_the_taps():
    taps = (tap("client", to_server_segments=1000), tap("guest", to_server_segments=990))
    iperf3 = flow(to_server_bytes=1, lost_datagrams=25, wire=taps)
    found = {figure.title: figure for figure in witnessed(workload_groups([flow_trial(iperf3)]))}
    assert (found["lost datagrams"].tool, found["lost datagrams"].wire) == (25, 10)
    taps = (tap("client", to_client_segments=960), tap("guest", to_client_segments=1000))
    download = flow(to_client_bytes=1, lost_datagrams=40, wire=taps)
    found = {figure.title: figure for figure in witnessed(workload_groups([flow_trial(download)]))}
    assert found["lost datagrams"].difference == 0


@pytest.mark.parametrize("taps", [(), (WireFigures("client", error="no tcpdump"),)])
def test_without_a_useful_capture_there_is_no_witness(taps):
    trials = [flow_trial(flow(run_to_client_bytes=9, retransmissions=1, lost_datagrams=1, wire=taps))]
    assert list(witnessed(workload_groups(trials))) == []
    (row,) = stream_rows(trials)
    assert row["client_tap_frames"] is None


def test_rows_of_flows_have_the_figures_of_both_taps():
    row = next(iter(stream_rows(WITNESSED.trials)))
    expected = {
        "client_tap_to_client_bytes": 1000,
        "client_tap_dropped_frames": 1,
        "guest_tap_to_client_bytes": 1100,
        "guest_tap_retransmissions": None,
        "wire_exchange_p50_ms": 1.0,
        "wire_exchange_p99_ms": 3.0,
        "wire_handshake_p50_ms": 0.25,
        "wire_handshake_p99_ms": None,
    }
    assert {name: row[name] for name in expected} == expected

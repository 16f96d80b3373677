"""Published figures of applications: the data as printed, and beside measured cells in the report."""

from dataclasses import replace
from statistics import mean, stdev

import pytest

from netbench.config.loading import load_profile, load_topology
from netbench.config.plugins import UUTS, option_models, profile_kinds
from netbench.config.shipped import PROFILES, TOPOLOGIES, find, shipped
from netbench.model.scenario import DEDICATED, SHARED_IDLE, Idle, Stress
from netbench.model.trial import GuestResult
from netbench.model.verdict import Reason, ReasonKind
from netbench.model.workload import workload_of
from netbench.report.model import ReportModel
from netbench.report.published import paper_of_profile, published_paper, published_papers
from netbench.report.tables import tables_of
from netbench.statistics.cell_measures import measured
from netbench.statistics.flow_figures import FIGURES_BY_NAME
from netbench.statistics.workload_groups import WorkloadGroup
from tests.unit.flows_factory import flow, flow_campaign, flow_trial, latencies
from tests.unit.report_page import report_page

OF_FLOWS = [name for name in published_papers() if published_paper(name).figures]
PROFILE_OF = {
    "fisher2012": "fisher2012-network",
    "sampath2013": "sampath2013-network",
    "che2010": "che2010-network",
    "padala2007": "padala2007",
}

# Typed from the printed tables a second time: mean and σ of each platform.
FISHER = [
    ("TCP latency", "physical host", "13.30", "0.949"),
    ("TCP latency", "OpenVZ", "19.28", "1.460"),
    ("TCP latency", "Xen", "20.26", "0.055"),
    ("UDP latency", "physical host", "7.71", "0.705"),
    ("UDP latency", "OpenVZ", "13.10", "0.825"),
    ("UDP latency", "Xen", "15.36", "0.152"),
    ("Time to connect (TCP conn)", "physical host", "42.20", "1.483"),
    ("Time to connect (TCP conn)", "OpenVZ", "58.26", "15.921"),
    ("Time to connect (TCP conn)", "Xen", "63.20", "0.447"),
    ("TCP bandwidth", "physical host", "214.0", "3.674"),
    ("TCP bandwidth", "OpenVZ", "193.60", "4.775"),
    ("TCP bandwidth", "Xen", "199", "1.225"),
]


def figure_of(paper: str, title: str):
    (figure,) = [figure for figure in published_paper(paper).figures if figure.title == title]
    return figure


def test_there_are_four_papers_on_applications():
    assert sorted(OF_FLOWS) == sorted(PROFILE_OF)
    assert {name: len(published_paper(name).figures) for name in OF_FLOWS} == {
        "che2010": 9,
        "fisher2012": 4,
        "padala2007": 8,
        "sampath2013": 3,
    }


@pytest.mark.parametrize(("title", "platform", "printed", "deviation"), FISHER)
def test_numbers_of_fisher_are_those_of_the_tables_and_of_their_tests(title, platform, printed, deviation):
    value = figure_of("fisher2012", title).values[platform]
    assert (value.text, value.deviation, len(value.tests)) == (printed, deviation, 5)
    tests = [float(test) for test in value.tests]
    if (title, platform) == ("TCP bandwidth", "physical host"):  # the printed tests contradict the printed mean
        remark = figure_of("fisher2012", title).remark
        assert f"mean {mean(tests):.1f} and σ {stdev(tests):.3f}" in remark
        tests[1] = 217.0
        assert "217.0" in remark
    assert mean(tests) == pytest.approx(float(printed), abs=0.0051)
    assert stdev(tests) == pytest.approx(float(deviation), abs=0.0011)


def test_remarks_follow_from_the_numbers():
    tcp = figure_of("fisher2012", "TCP latency")
    host, openvz, xen = (float(tcp.values[name].text) for name in ("physical host", "OpenVZ", "Xen"))
    assert f"OpenVZ takes {100 * (openvz / host - 1):.0f} % and Xen {100 * (xen / host - 1):.0f} %" in tcp.remark
    tests = [float(test) for test in figure_of("fisher2012", "Time to connect (TCP conn)").values["OpenVZ"].tests]
    others = [test for test in tests if test != 30.3]
    assert min(others) / 2 > 30.3
    assert f"{mean(others):.2f}" in figure_of("fisher2012", "Time to connect (TCP conn)").remark
    few, many = (figure_of("padala2007", f"Average response time, {clients} clients") for clients in (500, 800))
    growth = float(many.values["Xen"].text) / float(few.values["Xen"].text) - 1
    assert f"{100 * growth:.0f} %" in many.remark


@pytest.mark.parametrize("paper", OF_FLOWS)
def test_each_figure_has_a_measure_and_a_workload_of_the_shipped_profile(paper):
    name = PROFILE_OF[paper]
    profile = load_profile(find(PROFILES, name), profile_kinds(), [])
    topology = load_topology(find(TOPOLOGIES, name), option_models(UUTS), [])
    cells = {work: WorkloadGroup.of([flow_trial(flow(), workload=work, load="max")]) for work in profile.tool}
    scenarios = {scenario.name for scenario in profile.scenarios}
    for figure in published_paper(paper).figures:
        works = [work for work in cells if figure.is_of(work)]
        assert len(works) == 1, figure.title
        measured(cells[works[0]], figure.measure)  # KeyError for an unknown measure
        assert figure.load in map(str, profile.loads)
        assert not figure.scenario or figure.scenario in scenarios
        assert figure.remark
    platforms = {platform for figure in published_paper(paper).figures for platform in figure.values}
    uuts = published_paper(paper).uuts
    assert {repeated.platform for repeated in uuts.values()} <= {"", *platforms}
    assert {uut.name for uut in topology.uuts} <= set(uuts)


def test_profiles_that_repeat_a_paper_begin_with_its_name():
    repeated = {name: bool(paper_of_profile(name)) for name in shipped(PROFILES)}
    assert {name for name, is_paper in repeated.items() if is_paper} == {
        *PROFILE_OF.values(),
        *(name for name in repeated if name.startswith("schlosser2011")),
    }


BANDWIDTH = workload_of({"kind": "iperf3", "name": "bandwidth", "direction": "download"})


def bandwidths(mbps, *, uut="raw", scenario=SHARED_IDLE, work=BANDWIDTH, activity=None, reasons=()):
    return [
        flow_trial(
            flow("s1", work.name, to_client_bytes=round(rate * 125_000), intended=None, completed=None),
            uut=uut,
            workload=work,
            scenario=scenario,
            activity=activity or Idle(),
            load="max",
            repetition=number,
            boot=number,
            index=number,
            reasons=reasons,
        )
        for number, rate in enumerate(mbps, 1)
    ]


def repeating(profile, trials):
    """A campaign of a profile of this name."""
    return replace(flow_campaign(trials), profile=profile)


def compared(results) -> dict[tuple[str, str, str], tuple[str, str]]:
    """Published and measured value by figure, platform and UUT."""
    (table,) = tables_of("published", ReportModel.of(results))
    rows = [(row.block.partition(" [")[0], *(cell.text for cell in row.cells[:4])) for row in table.rows]
    return {(block, platform, uut): (published, value) for block, platform, published, uut, value in rows}


def test_a_report_has_published_and_measured_values_and_pretends_no_platform():
    trials = [
        *bandwidths([8000.0, 8800.0, 7200.0]),
        *bandwidths([400.0], uut="container"),
        *bandwidths([80.0], uut="virtio"),
        *bandwidths([160.0], uut="container", scenario="cpu-heavy", activity=Stress(cpu=8, vm=4)),
        *bandwidths([1.0], uut="kvm", reasons=(Reason(ReasonKind.TOOL_FAILED, "s1", "gone"),)),
    ]
    results = repeating("sampath2013-network", trials)
    rows = compared(results)
    none, title = "no equal platform", "Network bandwidth"
    assert rows[title, "bare metal", "raw"] == ("no number in the text", "1,000 ± 248")  # t(0.975; 2) · 100 ÷ √3 MB/s
    assert rows[title, "Linux Containers", "container"][1] == "50.0 (n = 1)"
    assert rows[title, "Xen, NAT", ""] == ("no overhead that can be observed", none)
    assert rows[title, none, "virtio"] == ("–", "10.0 (n = 1)")
    assert rows[title, "KVM", "kvm"][1] == "no valid trial"
    beside = "Network bandwidth beside a stressed guest"
    assert rows[beside, "Linux Containers", "container"] == ("poor isolation", "20.0 (n = 1)")
    assert rows["Requests of the nginx web server", "bare metal", "raw"] == ("highest", "not measured")
    page = report_page(results)
    for text in ("Measured beside the paper", "Clemson University", "the caption w3", "no equal platform"):
        assert text in page, text


def test_other_profiles_and_campaigns_of_frames_have_no_such_table():
    assert tables_of("published", ReportModel.of(repeating("bandwidth", bandwidths([1.0])))) == []
    assert ReportModel.of(repeating("schlosser2011-mine", bandwidths([1.0]))).paper_of_flows is None
    assert ReportModel.of(repeating("che2010-network", bandwidths([1.0]))).paper is None


def test_several_cells_of_a_uut_are_named():
    trials = [*bandwidths([8.0]), *bandwidths([16.0], scenario=DEDICATED)]
    (table,) = tables_of("published", ReportModel.of(repeating("sampath2013-network", trials)))
    values = [row.cells[3].text for row in table.rows if row.cells[2].text == "raw"]
    assert values[:2] == ["1.00 (n = 1), bandwidth, shared-idle", "2.00 (n = 1), bandwidth, dedicated"]


def cell(*, cpu_s=None, times_ms=(1.0, 2.0, 6.0)):
    trial = flow_trial(flow(latencies=(latencies("response", times_ms),) if times_ms else ()), activity=Idle())
    guests = (
        GuestResult("victim", flows=trial.victim.flows, cpu_s={"host": 0.25} if cpu_s else {}),
        GuestResult("second", cpu_s=cpu_s or {}),
    )
    return WorkloadGroup.of([replace(trial, guests=guests, steps_s={"observe": 2.0})])


@pytest.mark.parametrize(
    ("measure", "made", "value"),
    [
        ("response_mean_ms", cell(), 3.0),
        ("response_mean_ms", cell(times_ms=()), None),
        ("response_p50_ms", cell(), 2.0),
        ("uut_cpu_percent", cell(cpu_s={"host": 0.1}), 12.5),
        ("second_cpu_percent", cell(cpu_s={"host": 0.1}), 5.0),
        ("second_cpu_percent", cell(), None),
        ("third_cpu_percent", cell(cpu_s={"host": 0.1}), None),
    ],
)
def test_measures_of_cells(measure, made, value):
    interval = measured(made, measure)
    assert (interval and interval.mean) == (value if value is None else pytest.approx(value))


def test_measures_are_figures_or_are_refused():
    assert all(measured(cell(), name) is None for name in FIGURES_BY_NAME if name.startswith("rtt"))
    with pytest.raises(KeyError):
        measured(cell(), "no_such_figure")

"""What the report says of guests that share a host: the paper's Figure 5 and Tables 1 to 3, and what is beyond them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs

from netbench.model.campaign import CampaignResults, Maximum
from netbench.model.scenario import Stress
from netbench.model.trial import TrialResult
from netbench.model.verdict import Reason, ReasonKind
from netbench.report import formats
from netbench.report.figures import curves_of_loss, curves_of_throughput, most_throughput, relative_maximum
from netbench.report.page import report_page
from netbench.report.published import schlosser2011
from netbench.report.sections import views
from netbench.report.styles import Style, styles
from netbench.statistics.groups import group_trials
from netbench.statistics.interference import curves, relative_maxima
from netbench.statistics.intervals import ratio_of_means
from tests.unit.interference_factory import CAPACITY, paper_campaign
from tests.unit.points import count, loss
from tests.unit.report_page import Page, page_of, printed
from tests.unit.results_factory import Neighbour, beside, campaign, comparison, neighbour, stream_counts, trial

OF_SHARED_HOSTS = {
    "second-guest-forwards",
    "second-guest-computes",
    "second-guest-itself",
    "curves",
    "isolation",
    "fairness",
}
NOTE = "CPU emulated – these numbers describe the emulator, not the VMM"
STREAM_RATE = 50_000  # frames/s offered to a neighbour of `small_campaign`, at 64 bytes 33.6 Mbit/s


def forwarding(received: int, share: int = 50, name: str = "second") -> Neighbour:
    counts = stream_counts("n1", sent=STREAM_RATE, received=received, intended_fps=float(STREAM_RATE))
    return neighbour(counts, name=name, activity={"network": f"{share}%"})


def computing(cpu: int, vm: int = 0) -> Neighbour:
    return neighbour(activity=Stress(cpu, vm), cpu_s={"guest": 1.0, "host": 1.5, "load": 0.5})


def twice(scenario: str, received: tuple[int, int], *neighbours: Neighbour, uut: str = "kvm") -> list[TrialResult]:
    """Two repetitions of 1,000 offered frames; each with its own neighbour where two are given."""
    return [
        trial(
            stream_counts(received=arrived),
            uut=uut,
            scenario=scenario,
            repetition=number,
            cpu_s={"guest": 0.5, "host": 0.6},
            machine_cpu_s=2.0,
            neighbours=(neighbours[(number - 1) % len(neighbours)],) if neighbours else (),
        )
        for number, arrived in enumerate(received, start=1)
    ]


def small_campaign() -> CampaignResults:
    trials = [
        *twice("dedicated", (900, 902)),
        *twice("cpu-light", (900, 902), computing(1)),
        *twice("cpu-heavy", (700, 702), computing(8, 4)),
        *twice("network-50", (450, 452), forwarding(40_000), forwarding(42_000)),
        *twice("dedicated", (1000, 1000), uut="raw"),
    ]
    maxima = (Maximum("kvm", 64, 100_000.0, "200Mbit/s", 2),)
    return replace(campaign(trials, uuts=("raw", "kvm")), maxima=maxima)


@pytest.fixture(scope="module")
def whole() -> CampaignResults:
    return paper_campaign(emulated=("kvm",), mishaps=False)


@pytest.fixture(scope="module")
def whole_source(whole: CampaignResults) -> str:
    return report_page(whole)


@pytest.fixture(scope="module")
def whole_page(whole_source: str) -> Page:
    return Page(whole_source)


def test_a_campaign_of_one_guest_says_nothing_of_others() -> None:
    page = page_of(comparison(sizes=(64,), repetitions=1))
    assert not OF_SHARED_HOSTS & set(page.ids)
    assert "isolation" not in page.text


def test_every_section_is_there_in_the_order_of_the_paper(whole_page: Page) -> None:
    page = whole_page
    of_paper = ["throughput", "maximum", "second-guest-forwards", "second-guest-computes", "second-guest-itself"]
    assert [name for name in page.ids if name in of_paper] == of_paper
    assert set(page.ids) >= OF_SHARED_HOSTS
    assert len(page.ids) == len(set(page.ids))
    assert {link for link in page.links if not link.startswith("#")} == {f"https://doi.org/{schlosser2011().doi}"}
    for number in (3, 4, 5):
        assert f"As Figure {number} of the paper" in page.text


def test_the_published_tables_appear_as_printed_below_the_measured_ones(whole_page: Page) -> None:
    text = whole_page.text
    assert text.count("Measured here, %") == text.count("Table 1 of the paper , %") == 1
    assert text.index("Measured here, %") < text.index("Table 1 of the paper ,")
    assert "packet size KVM OpenVZ VM-E1000 VM-VMXNET3 Xen VirtualBox light heavy light heavy" in text
    assert "64 +4.2 % −0.4 % +1.0 % −18.2 % −2.7 % −4.5 % −0.5 % −0.6 % +6.8 % +7.9 % +2.1 % +2.0 % 500 +5.5 %" in text
    assert "packet size raw KVM OpenVZ VM-E1000 VM-VMXNET3 Xen VirtualBox in out in out" in text
    assert "64 274.9 269.3 72.1 64.6 124.4 62.7 126.6 126.6 274.4 268.4 72.0 47.2 72.1 42.4" in text


def test_a_published_table_stands_beside_the_measurement_of_its_share_only(whole_page: Page) -> None:
    text = whole_page.text
    places = [
        text.index(f"network-{share}: forwards 64-byte frames at {share}% of the maximum") for share in (25, 50, 95)
    ]
    tables = [text.index(f"Table {number} of the paper , Mbit/s") for number in (2, 3)]
    assert places[0] < places[1] < tables[0] < places[2] < tables[1]


def test_relative_changes_have_the_layout_of_table_1_and_say_what_is_significant() -> None:
    source = report_page(small_campaign())
    text = page_of(small_campaign()).text
    # Standard errors of 1 in 901: t(0.975; 2) = 4.303 times √2 ÷ 901 around 0, and about as much around 701 ÷ 901 − 1.
    assert "packet size kvm light heavy 64 0.0 % −0.7 … +0.7 −22.2 % −22.8 … −21.6 Table 1" in text
    cells = re.findall(r'<td class="number ((?:no-)?change)" title="([^"]*)"', source)
    assert [css for css, _ in cells] == ["no-change", "change"]
    assert cells[0][1].startswith("no significant change: one above 0.7 % can be excluded")
    assert cells[1][1].startswith("−22.2 % (−22.8 … −21.6 %)")


def test_the_second_guest_has_the_layout_of_tables_2_and_3() -> None:
    # 50,000 and (40,000 + 42,000) ÷ 2 frames/s of 84 bytes on the wire; t(0.975; 1) = 12.7062 times 1,000 frames/s.
    assert "packet size kvm in out 64 33.6 ± 0.0 27.6 ± 8.5 Table 2" in page_of(small_campaign()).text


def test_what_the_shares_refer_to_is_told() -> None:
    text = page_of(small_campaign()).text
    assert "What the shares refer to" in text
    assert "kvm 64 B 100.0 67.2 200Mbit/s 2" in text
    assert "What the shares refer to" not in page_of(replace(small_campaign(), maxima=())).text


def test_the_matrix_has_a_colour_the_stronger_the_more_was_lost() -> None:
    source = report_page(small_campaign())
    matrix = source[source.index('<table class="matrix">') :]
    cells = re.findall(r'<td style="background:rgba\(([^)]*)\)" title="[^"]*">([^<]*)<small>([^<]*)</small>', matrix)
    assert [(index, words) for _, index, words in cells] == [
        ("1.000", "not significant"),
        ("0.778", "0.772 … 0.784"),
        ("0.501", "0.493 … 0.508"),
    ]
    opacities = [float(colour.rpartition(",")[2]) for colour, _, _ in cells]
    assert opacities == [0, pytest.approx(0.8 * 0.222, abs=0.001), pytest.approx(0.8 * 0.499, abs=0.001)]


def test_the_worst_isolation_of_each_uut_is_named() -> None:
    text = page_of(small_campaign()).text
    assert "kvm 0.501 0.493 … 0.508 network-50 64 B −49.9 % (−50.7 … −49.2 %)" in text


def test_fairness_is_told_with_the_shares_it_comes_from() -> None:
    text = page_of(small_campaign()).text
    # Shares 0.45 and 0.80, and 0.452 and 0.84: indices 1.25² ÷ (2 · 0.8425) and 1.292² ÷ (2 · 0.909904).
    assert "network-50 – 1 measurement" in text
    assert "kvm 64 B 1000fps 0.922 ± 0.064 45.100 % second: 82.000 %" in text


def test_cpu_time_of_every_guest_and_the_machine_is_told_by_scenario() -> None:
    text = page_of(small_campaign()).text
    assert "kvm dedicated itself 50.0 % ± 0.0 – 60.0 % ± 0.0 200.0 % ± 0.0" in text
    assert (
        "kvm cpu-heavy itself 50.0 % ± 0.0 – 60.0 % ± 0.0 200.0 % ± 0.0"
        " second stress-ng --cpu 8 --vm 4 100.0 % ± 0.0 50.0 % ± 0.0 150.0 % ± 0.0"
    ) in text


def test_losses_and_counters_are_told_of_the_guest_they_belong_to() -> None:
    lost = stream_counts("n1", sent=1000, received=930, lost_at=(loss("ingress tap (tx_dropped)", 70),))
    counters = (count("guest IP layer", "InDiscards", "dropped", 7),)
    second = neighbour(lost, activity={"network": "50%"}, counters=counters)
    text = page_of(campaign(twice("network-50", (1000, 1000), second), uuts=("kvm",))).text
    assert "kvm nowhere: no frame was lost 0" in text
    assert "kvm, second ingress tap (tx_dropped) 140 100.0 % 7.000 % –" in text
    assert "kvm, second – 1 counter" in text
    assert "guest IP layer InDiscards dropped 14 2 of 2" in text


def test_reasons_name_scenario_and_the_neighbour_whose_stream_they_are_about() -> None:
    died = Reason(ReasonKind.NEIGHBOUR_FAILED, "", "second: went away")
    foreign = Reason(ReasonKind.FOREIGN_FRAMES, "n1", "12 frames of others")
    trials = twice("dedicated", (900, 902)) + twice("network-50", (450, 452), forwarding(40_000))
    trials[2] = replace(trials[2], reasons=(died, foreign))
    text = page_of(campaign(trials, uuts=("kvm",))).text
    assert "kvm network-50 64 B 1000fps 1 1 all second: went away" in text
    assert "kvm network-50 64 B 1000fps 1 1 n1 (of second) 12 frames of others" in text


def test_a_maximum_that_could_not_be_found_leaves_a_page_of_the_rest() -> None:
    unknown = Reason(ReasonKind.MAXIMUM_UNKNOWN, "", "no valid trial in shared-idle")
    missing = [
        replace(one, guests=(), reasons=(unknown,), steps_s={}, machine_cpu_s=None)
        for one in twice("network-50", (0, 0))
    ]
    results = campaign(twice("dedicated", (900, 902)) + missing, uuts=("kvm",))
    page = page_of(results)
    assert "maximum-unknown – 2 times" in page.text
    assert not OF_SHARED_HOSTS & set(page.ids)
    assert "– 2 invalid" in " ".join(printed(results).split())


def test_a_single_repetition_is_said_to_tell_no_interval() -> None:
    results = paper_campaign(uuts=("kvm",), sizes=(64,), repetitions=1, mishaps=False)
    page = page_of(results)
    assert "one repetition" in page.text
    assert "unknown: one repetition" in report_page(results)


def test_figure_5_has_a_panel_per_scenario_and_a_bar_per_uut_and_size(whole: CampaignResults) -> None:
    maxima = [one for one in relative_maxima(group_trials(whole)) if one.scenario.startswith("network")]
    figure = relative_maximum(maxima, styles(whole.uuts, whole.emulated))
    titles = [annotation.text for annotation in figure.layout.annotations if annotation.text.startswith("(")]
    assert titles == ["(a) network-25", "(b) network-50", "(c) network-95"]
    bars = [trace for trace in figure.data if isinstance(trace, go.Bar)]
    assert len(bars) == 3 * len(CAPACITY)
    assert all(list(trace.x) == ["1,500", "1,000", "500", "64"] for trace in bars)
    assert sum(bool(trace.showlegend) for trace in bars) == len(CAPACITY)
    assert {shape.y0 for shape in figure.layout.shapes} == {100}
    (worst,) = [one for one in maxima if one.scenario == "network-95" and one.victim.uut == "kvm"][:1]
    drawn = next(trace for trace in bars if trace.legendgroup == "kvm" and trace.xaxis == "x3")
    place = ["1,500", "1,000", "500", "64"].index(f"{worst.victim.frame_size:,}")
    assert worst.ratio.ratio is not None
    assert worst.ratio.low is not None
    assert drawn.y[place] == pytest.approx(100 * worst.ratio.ratio)
    assert drawn.error_y.arrayminus[place] == pytest.approx(100 * (worst.ratio.ratio - worst.ratio.low))


def test_curves_start_where_the_neighbours_are_idle_and_rise_with_their_load(whole: CampaignResults) -> None:
    found = curves(group_trials(whole))
    for draw in (curves_of_throughput, curves_of_loss):
        figure = draw(found, styles(whole.uuts))
        lines = [trace for trace in figure.data if trace.hovertext]
        assert len(lines) == 4 * len(CAPACITY)
        for one in lines:
            assert one.x[0] == 0
            assert len(one.x) == 4
            assert list(one.x) == sorted(one.x)
    throughput = [trace for trace in curves_of_throughput(found, styles(whole.uuts)).data if trace.hovertext]
    of_openvz = next(one for one in throughput if one.legendgroup == "openvz" and one.xaxis == "x4")
    assert list(of_openvz.y) == sorted(of_openvz.y, reverse=True)


@pytest.mark.parametrize(
    "draw",
    [
        lambda results, looks: relative_maximum(
            [one for one in relative_maxima(group_trials(results)) if one.scenario.startswith("network")], looks
        ),
        lambda results, looks: curves_of_throughput(curves(group_trials(results)), looks),
        lambda results, looks: curves_of_loss(curves(group_trials(results)), looks),
        lambda results, looks: most_throughput(group_trials(results), looks, by_scenario=True),
    ],
)
def test_figures_say_which_uuts_are_emulated(
    whole: CampaignResults, draw: Callable[[CampaignResults, Mapping[str, Style]], go.Figure]
) -> None:
    figure = draw(whole, styles(whole.uuts, whole.emulated))
    texts = [annotation.text.replace("<br>", " ") for annotation in figure.layout.annotations]
    assert [text for text in texts if "emulat" in text] == [f"kvm: {NOTE}"]
    named = {trace.name for trace in figure.data if trace.showlegend is not False and trace.legendgroup == "kvm"}
    assert named == {"kvm (emulated)"}


def test_the_most_throughput_of_scenarios_with_one_number_of_sources_is_one_figure(
    whole: CampaignResults, whole_page: Page
) -> None:
    figure = most_throughput(group_trials(whole), styles(whole.uuts), by_scenario=True)
    assert figure.layout.xaxis.categoryarray == (
        "dedicated",
        "shared-<br>idle",
        "cpu-<br>light",
        "cpu-<br>heavy",
        "network-<br>25",
        "network-<br>50",
        "network-<br>95",
    )
    assert [name for name in whole_page.ids if name.startswith("figure-maximum")] == ["figure-maximum-scenarios"]


def test_views_are_named_by_what_tells_them_apart(whole: CampaignResults) -> None:
    both = replace(whole, trials=(*whole.trials, *comparison(sizes=(64,), sources=(2,), repetitions=1).trials))
    names = [view.title for view in views(group_trials(both))]
    assert names[:3] == ["dedicated, 1 source", "dedicated, 2 sources", "shared-idle"]
    assert len(names) == 8
    assert [view.title for view in views(group_trials(whole))][:2] == ["dedicated", "shared-idle"]


def test_several_numbers_of_sources_are_kept_apart() -> None:
    two = [
        trial(
            stream_counts("s1", received=got), stream_counts("s2", received=got), scenario=scenario, repetition=number
        )
        for scenario, received in (("dedicated", (1000, 1000)), ("cpu-heavy", (500, 502)))
        for number, got in enumerate(received, start=1)
    ]
    busy = [beside(one, computing(8)) if one.spec.scenario == "cpu-heavy" else one for one in two]
    one = twice("dedicated", (900, 902), uut="raw") + twice("cpu-heavy", (700, 702), computing(8), uut="raw")
    text = page_of(campaign([*one, *busy])).text
    assert re.search(r"1 source Measured here, % packet size raw heavy 64 −22\.2 %", text)
    assert re.search(r"2 sources Measured here, % packet size raw heavy 64 −49\.9 %", text)


def test_names_of_users_are_escaped() -> None:
    name = "</script><img src=x onerror=alert(1)>"
    trials = twice("dedicated", (900, 902), uut=name) + twice(
        "network-50", (450, 452), forwarding(40_000, name=name), uut=name
    )
    maxima = (Maximum(name, 64, 1.0, name, 1),)
    source = report_page(replace(campaign(trials, uuts=(name,)), maxima=maxima))
    assert "<img" not in source


def test_a_whole_campaign_makes_a_page_of_a_few_megabytes(whole: CampaignResults, whole_source: str) -> None:
    assert len(whole.trials) == 4 * 4 * 7 * 4 * 3
    assert len(whole_source) - len(get_plotlyjs()) < 3_000_000


def rows(text: str) -> Sequence[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_the_summary_has_columns_of_neighbours_where_one_forwards() -> None:
    text = printed(small_campaign())
    assert "and out" in text
    assert "kfps" not in text
    assert ["network-50", "64", "0.672", "0.303", "54.900", "33.6", "27.6", "2", "valid"] in rows(text)
    assert ["cpu-heavy", "64", "0.672", "0.471", "29.900", "–", "–", "2", "valid"] in rows(text)
    assert ["kvm"] in rows(text)
    without = [one for one in small_campaign().trials if one.spec.scenario != "network-50"]
    assert "and out" not in printed(campaign(without, uuts=("raw", "kvm")))


def test_the_summary_fits_a_narrow_console(whole: CampaignResults) -> None:
    text = printed(whole)
    assert "…" not in text
    table = text.partition("means of the valid trials")[0]
    assert len([row for row in rows(table) if row[:1] == ["network-95"]]) == 4 * 4 * 4


def test_limits_of_a_significant_change_never_hide_it() -> None:
    tiny = ratio_of_means([100.01, 100.01], [100.0, 100.0])
    assert formats.change(tiny.change) == "0.0 %"
    assert formats.change_limits(tiny) == "+0.01 … +0.01"
    assert formats.index_limits(tiny) == "1.0001 … 1.0001"
    same = ratio_of_means([100.0, 100.0], [100.0, 100.0])
    assert formats.change_limits(same) == "0.0 … 0.0"
    assert formats.index_limits(same) == "1.000 … 1.000"
    assert formats.change(-0.182) == "−18.2 %"
    assert formats.change(None) == "–"

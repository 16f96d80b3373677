"""The charts of the registered figures: which numbers are drawn, where, and in which style."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from netbench.config import plugins
from netbench.model.campaign import CampaignResults
from netbench.model.frame_size import FrameSize
from netbench.model.verdict import Reason, ReasonKind
from netbench.model.virtualisation import Setting
from netbench.report import figures
from netbench.report.figures.chart import Axis, Chart, ChartSeries, Form, Mark, Panel
from netbench.report.figures.delay import delay_chart
from netbench.report.figures.interference import curve_chart, curve_of_loss_chart, relative_chart
from netbench.report.figures.loss_by_place import loss_by_place_chart, place_styles
from netbench.report.figures.maximum import maximum_chart
from netbench.report.figures.panels import LossScale
from netbench.report.figures.plotly_json import plotly_json
from netbench.report.figures.stability import stability_chart
from netbench.report.figures.throughput import loss_chart, throughput_chart
from netbench.report.model import ReportModel
from netbench.report.styles import MarkerStyle, Style, styles
from netbench.statistics.drift import steadiness_of
from netbench.statistics.groups import Group, group_trials
from netbench.statistics.interference import curves, relative_maxima
from netbench.statistics.intervals import Interval
from netbench.statistics.lost_frames import UNEXPLAINED, LossPlace, PlaceLoss, Side, group_outcome
from tests.unit.charts import bars, lines, points
from tests.unit.interference_factory import CAPACITY, paper_campaign, small_campaign
from tests.unit.results_factory import campaign, comparison, guests, spread, stream_counts, trial
from tests.unit.steadiness_factory import Made, exact

MBPS = 84 * 8 / 1e6  # of one 64-byte frame/s, on the wire
RAW = styles(["raw"])
SUSPICIOUS = (Reason(ReasonKind.FOREIGN_FRAMES, "s1", "3 frames of others"),)
INVALID = (Reason(ReasonKind.LINK_DOWN, "", "egress NIC was down"),)
SATURATED = (Reason(ReasonKind.SATURATED, "s1", "backpressure by its link for 0.600 s of 1.000 s"),)
NOTE = "CPU emulated – these numbers describe the emulator, not the VMM"


@pytest.fixture(scope="module")
def whole() -> CampaignResults:
    return paper_campaign(emulated=("kvm",), mishaps=False)


def test_every_figure_is_registered_and_a_broken_one_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = figures.figures()
    assert all(name == figure.name for name, figure in registered.items())
    with pytest.raises(TypeError, match="it is no Figure"):
        plugins._checked(object(), plugins.FIGURES)
    model = ReportModel.of(campaign(planned=3))
    assert all(figure.requirement(model) for figure in registered.values()), "each has the reason of its absence"
    assert list(figures.charts_of(model)) == []


def test_a_line_is_made_of_valid_trials_and_the_others_are_marked() -> None:
    trials = [
        trial(stream_counts(sent=1000, received=1000), repetition=1),
        trial(stream_counts(sent=1000, received=980), repetition=2),
        trial(stream_counts(sent=1000, received=500), repetition=3, reasons=SUSPICIOUS),
    ]
    chart = throughput_chart(group_trials(campaign(trials)), RAW)
    ((mean,),) = [line.marks for line in lines(chart)]
    assert mean.y == pytest.approx(990 * MBPS)
    assert mean.high == pytest.approx((990 + 12.7062 * 10) * MBPS, rel=1e-4)
    assert mean.numbers["throughput_mbps"] == mean.y
    ((mark,),) = [series.marks for series in points(chart)]
    assert mark.y == pytest.approx(500 * MBPS)
    assert mark.symbol == "circle-open"
    assert "foreign-frames: 3 frames of others" in mark.hover
    assert mark.numbers["verdict"] == "suspicious"


def test_saturated_trials_are_drawn_at_the_offered_load_with_a_ring() -> None:
    trials = [
        trial(stream_counts()),
        trial(stream_counts(sent=1500, received=1500), load="2000fps", reasons=SATURATED),
        trial(stream_counts(sent=1480, received=1480), load="2000fps", reasons=SATURATED, repetition=2),
    ]
    chart = throughput_chart(group_trials(campaign(trials)), RAW)
    (line,) = lines(chart)
    assert [mark.ringed for mark in line.marks] == [False, True]
    assert line.marks[1].x == pytest.approx(1490 * MBPS)
    assert "saturated: less offered than intended" in [entry.name for entry in chart.legend]


def test_invalid_trials_are_marks_and_a_maximum_without_valid_trials_reports_why() -> None:
    bad = trial(stream_counts(sent=1000, received=900), reasons=INVALID)
    groups = group_trials(campaign([bad, trial(streams=("s1",), repetition=2, reasons=INVALID)]))
    ((mark,),) = [series.marks for series in points(throughput_chart(groups, RAW))]
    assert [mark.x, mark.y, mark.symbol] == [pytest.approx(1000 * MBPS), pytest.approx(900 * MBPS), "x"]
    (bar,) = bars(maximum_chart(groups, RAW))
    assert [mark.text for mark in bar.marks] == ["no valid trial"]
    luckily = replace(trial(stream_counts()), attempt=3, thrown_away=(INVALID, INVALID))
    (bar,) = bars(maximum_chart(group_trials(campaign([luckily, trial(stream_counts(), repetition=2)])), RAW))
    assert [mark.text for mark in bar.marks] == ["too few valid trials"]


def test_panels_have_the_smallest_frames_first_and_equal_axes() -> None:
    chart = throughput_chart(group_trials(comparison(uuts=("raw",), sources=(1,), repetitions=1)), RAW)
    titles = ["(a) 64-byte frames", "(b) 500-byte frames", "(c) 1,000-byte frames", "(d) 1,500-byte frames"]
    assert [panel.title for panel in chart.panels] == titles
    assert all((panel.x.low, panel.x.high) == (panel.y.low, panel.y.high) for panel in chart.panels)


@pytest.mark.parametrize(("slow", "logarithmic"), [(200, False), (40, True)])
def test_axes_are_logarithmic_where_a_linear_one_would_crush_a_uut(slow: int, logarithmic: bool) -> None:
    trials = [
        trial(stream_counts(sent=1000, received=got), uut=uut, repetition=number)
        for uut, got in (("raw", 1000), ("kvm", slow))
        for number in (1, 2)
    ]
    groups = group_trials(campaign(trials, uuts=("raw", "kvm")))
    for chart in (throughput_chart(groups, styles(["raw", "kvm"])), maximum_chart(groups, styles(["raw", "kvm"]))):
        (panel,) = chart.panels
        assert (panel.y.logarithmic, panel.y.switchable, panel.y.is_rate) == (logarithmic, True, True)
        assert panel.kfps_per_mbps == pytest.approx(1 / MBPS / 1000)


def test_frames_of_a_mix_are_converted_to_frames_each_by_itself() -> None:
    mix = FrameSize("imix", (64, 64, 1500))
    results = campaign([trial(stream_counts(), frame_size=mix, repetition=number) for number in (1, 2)])
    (group,) = group_trials(results)
    assert group.throughput_fps is not None
    (mark,) = throughput_chart([group], RAW).marks
    assert mark.y_kfps == group.throughput_fps.mean / 1000
    drawn = plotly_json(throughput_chart([group], RAW))["data"][-1]
    assert drawn["meta"] == {"kfps": [mark.y_kfps]}


def test_loss_of_zero_has_a_place_of_its_own_below_every_other_loss() -> None:
    scale = LossScale.over([0.0, 0.00002, 0.5])
    heights, labels = zip(*scale.ticks(), strict=True)
    assert list(labels) == ["0", "0.001", "0.01", "0.1", "1", "10", "100"]
    assert scale.height(0.0, 0.5) == pytest.approx(heights[0])
    assert scale.bottom < scale.height(0.0, 0.25) < scale.height(0.0, 0.75) < scale.border
    assert scale.border < scale.height(0.00002, 0.5) < scale.height(0.5, 0.5) < scale.height(1.0, 0.5) == 0


def test_error_bars_of_loss_stay_between_zero_and_everything() -> None:
    scale = LossScale.over([0.5])
    ends = scale.ends(Interval(0.5, 2.0, 2), row=0.5)
    assert list(ends) == pytest.approx([scale.height(0.0, 0.5), 0.0])
    assert scale.ends(Interval(0.5, None, 1), row=0.5) == (None, None)


def test_the_error_bar_of_no_loss_ends_at_the_limit_that_it_is_below() -> None:
    """None of 3,000,000 frames was lost: the limit is 10⁻⁶, a decade of the scale that no other loss adds."""
    trials = [trial(stream_counts(sent=10**6, received=10**6), repetition=number) for number in (1, 2, 3)]
    ((mark,),) = [line.marks for line in lines(loss_chart(group_trials(campaign(trials)), RAW))]
    assert mark.high == pytest.approx(-6, abs=0.001)
    assert "loss 0 % < 0.0001" in mark.hover


def test_a_uut_keeps_its_colour_in_every_figure_and_none_looks_like_another() -> None:
    groups = group_trials(comparison(sizes=(64,), sources=(1,), repetitions=1))
    of_uuts = styles(["raw", "kvm", "openvz", "xen"])
    colours = {name: style.colour for name, style in of_uuts.items()}
    for draw in (throughput_chart, loss_chart):
        assert {line.name: line.style.colour for line in lines(draw(groups, of_uuts))} == colours
    assert {bar.name: bar.style.colour for bar in bars(maximum_chart(groups, of_uuts))} == colours
    many = styles([f"uut{number}" for number in range(20)]).values()
    assert len({(style.colour, style.dash) for style in many}) == 20
    assert len({(style.colour, style.pattern) for style in many}) == 20


def test_figure_5_has_a_panel_per_scenario_and_a_bar_per_uut_and_size(whole: CampaignResults) -> None:
    maxima = [ratio for ratio in relative_maxima(group_trials(whole)) if ratio.scenario.startswith("network")]
    chart = relative_chart(maxima, styles(whole.uuts, whole.settings))
    sizes = ("64", "500", "1,000", "1,500")
    assert [panel.title for panel in chart.panels] == ["(a) network-25", "(b) network-50", "(c) network-95"]
    assert len(bars(chart)) == 3 * len(CAPACITY)
    assert {panel.x.categories for panel in chart.panels} == {sizes}
    assert [entry.name for entry in chart.legend] == ["raw", "kvm (emulated)", "openvz", "xen"]
    assert {y for panel in chart.panels for guide in panel.guides for _, y in filter(None, guide.points)} == {100}
    (worst,) = [ratio for ratio in maxima if ratio.scenario == "network-95" and ratio.victim.uut == "kvm"][:1]
    (drawn,) = [series for series in chart.panels[2].series if series.name == "kvm (emulated)"]
    mark = drawn.marks[sizes.index(f"{worst.victim.frame_size:,}")]
    assert worst.ratio.ratio is not None
    assert worst.ratio.low is not None
    assert mark.y == pytest.approx(100 * worst.ratio.ratio)
    assert mark.low == pytest.approx(100 * worst.ratio.low)
    assert mark.numbers["ratio"] == worst.ratio.ratio


def test_curves_start_where_the_neighbours_are_idle_and_rise_with_their_load(whole: CampaignResults) -> None:
    found = curves(group_trials(whole))
    for draw in (curve_chart, curve_of_loss_chart):
        drawn = lines(draw(found, styles(whole.uuts)))
        assert len(drawn) == 4 * len(CAPACITY)
        for line in drawn:
            offered = [mark.x for mark in line.marks]
            assert (offered[0], len(offered)) == (0, 4)
            assert offered == sorted(offered)
    smallest = curve_chart(found, styles(whole.uuts)).panels[0]
    (heights,) = [[mark.y for mark in series.marks] for series in smallest.series if series.name == "openvz"]
    assert heights == sorted(heights, reverse=True)


@pytest.mark.parametrize(
    "draw",
    [
        throughput_chart,
        loss_chart,
        maximum_chart,
        lambda groups, styles: maximum_chart(groups, styles, by_scenario=True),
        lambda groups, styles: relative_chart(relative_maxima(groups), styles),
        lambda groups, styles: curve_chart(curves(groups), styles),
        lambda groups, styles: curve_of_loss_chart(curves(groups), styles),
    ],
)
def test_figures_say_which_uuts_are_emulated(
    whole: CampaignResults, draw: Callable[[Sequence[Group], Mapping[str, Style]], Chart]
) -> None:
    groups, of_uuts = group_trials(whole), styles(whole.uuts, dict.fromkeys(("kvm", "xen"), Setting(emulators=1)))
    for shown, note in ((whole.uuts, f"kvm, xen: {NOTE}"), (("raw", "xen"), f"xen: {NOTE}"), (("raw",), "")):
        chart = draw([group for group in groups if group.uut in shown], of_uuts)
        assert chart.note == note
        assert not note or note in chart.notes
        named = [f"{uut} (emulated)" if uut in ("kvm", "xen") else uut for uut in shown]
        assert set(named) <= {entry.name for entry in chart.legend}


def test_uuts_of_another_setting_have_a_chart_of_their_own(whole: CampaignResults) -> None:
    named = {named.name: named.chart for named in figures.charts_of(ReportModel.of(whole), ["maximum"])}
    assert list(named) == ["maximum-scenarios-0", "maximum-scenarios-1"]
    scenarios = ("dedicated", "shared-idle", "cpu-light", "cpu-heavy", "network-25", "network-50", "network-95")
    assert {panel.x.categories for chart in named.values() for panel in chart.panels} == {scenarios}
    for name, chart in ((named.name, named.chart) for named in figures.charts_of(ReportModel.of(guests()))):
        uuts = {mark.numbers["uut"] for mark in chart.marks}
        assert ("raw" in uuts) != ("CPU emulated" in " ".join(chart.notes)), name


def test_both_percentiles_of_delay_are_lines_of_their_uut() -> None:
    delays = [(10_000, 20_000, 50_000), (12_000, 40_000, 90_000)], [(11_000, 50_000, 60_000)] * 2
    trials = [
        trial(*(stream_counts(f"s{n}", delay=spread(*of)) for n, of in enumerate(each, 1)), repetition=number)
        for number, each in enumerate(delays, start=1)
    ]
    median, slowest = lines(delay_chart(group_trials(campaign(trials)), RAW))
    assert [median.style.dash, slowest.style.dash] == ["solid", "dot"]
    assert [mark.y for line in (median, slowest) for mark in line.marks] == pytest.approx([0.04, 0.040003], rel=1e-9)
    assert median.marks[0].numbers["delay_p999_us"] == pytest.approx(40.003)


def test_each_trial_is_a_point_boots_are_lines_and_outliers_hollow() -> None:
    made = Made(scatter=exact, uuts=("one",), sizes=(64,), loads=(100_000,))
    trials = made.trials()
    slow = stream_counts(sent=100_000, received=60_000, intended_fps=1e5, intended_frames=100_000)
    trials[4] = replace(trials[4], guests=(replace(trials[4].victim, streams=(slow,)),))
    groups = group_trials(campaign(trials, uuts=made.uuts))
    (panel,) = stability_chart(steadiness_of(groups), styles(made.uuts)).panels
    (series,) = panel.series
    _, boots = panel.guides
    assert [point[0] for point in boots.points if point] == [mark.x for mark in series.marks for _ in (0, 1)]
    assert [mark.symbol for mark in series.marks] == [""] * 4 + ["circle-open"] + [""] * 4
    assert "outlier" in series.marks[4].hover
    chart = throughput_chart(groups, styles(made.uuts))
    (apart,) = points(chart)
    assert [mark.symbol for mark in apart.marks] == ["circle-open-dot"]
    assert apart.marks[0].y == pytest.approx(60_000 * MBPS)
    assert "outlier (averaged too)" in [entry.name for entry in chart.legend]


def test_very_many_trials_are_drawn_as_means() -> None:
    made = Made(one_boot=True, repetitions=700, uuts=("one",), sizes=(64,), loads=(100_000, 120_000))
    marks = stability_chart(steadiness_of(group_trials(made.campaign())), styles(made.uuts)).marks
    assert len(marks) == 700
    assert marks[0].hover.startswith("mean of 2 trials")
    assert marks[0].numbers["trials"] == 2


def test_the_parts_of_each_bar_add_up_to_the_loss() -> None:
    groups = [group for group in group_trials(guests()) if group.uut == "virtio"]
    outcomes = [own for group in groups if (own := group_outcome(group, guest=True))]
    chart = loss_by_place_chart(outcomes, styles(["virtio"]))
    for panel, size in zip(chart.panels, (64, 512, 1518), strict=True):
        of_size = [own for own in outcomes if own.group.frame_size.only_size == size]
        assert len(panel.x.categories) == len(of_size), "the loads that were measured, and nothing between them"
        heights = [sum(mark.y for mark in panel.marks if mark.x == place) for place in range(len(of_size))]
        assert heights == pytest.approx([100 * own.lost / own.sent for own in of_size])


def test_places_are_darker_nearer_to_the_source_and_hatched_where_unknown() -> None:
    drops = [PlaceLoss(LossPlace(number, name), Side.BEFORE, 1) for number, name in enumerate(("bridge", "tap"))]
    drops.append(PlaceLoss(UNEXPLAINED, Side.UNKNOWN, 1))
    places = [(style.colour, style.pattern) for style in place_styles(drops).values()]
    assert places == [("var(--p0)", ""), ("var(--p1)", ""), ("var(--p2)", "/")]


def drawn(panel: Panel, **changes: Any) -> dict[str, Any]:
    return plotly_json(Chart([panel], **changes))


def test_plotly_gets_values_intervals_tooltips_and_groups() -> None:
    marks = (Mark(1, 50, "first\nsecond", low=40, high=70), Mark(2, 60, "", symbol="x", ringed=True))
    series = ChartSeries("kvm, median", MarkerStyle("var(--u1)"), Form.LINE, marks, "kvm")
    (trace,) = drawn(Panel("", Axis("Load", 0, 2), Axis("Throughput", 0, 100), [series]))["data"]
    assert (trace["x"], trace["y"], trace["legendgroup"]) == ([1, 2], [50, 60], "kvm")
    assert (trace["error_y"]["array"], trace["error_y"]["arrayminus"]) == ([20, None], [10, None])
    assert trace["error_y"]["color"] == "var(--u1-pale)"
    assert trace["hovertext"] == ["first<br>second", ""]
    assert trace["marker"]["symbol"] == ["circle", "x-thin-open"]
    assert trace["marker"]["line"]["width"] == [0, 2]


def test_equal_names_of_categories_are_different_bars() -> None:
    series = ChartSeries("lost", MarkerStyle("var(--p0)"), Form.STACK, (Mark(0, 5, ""), Mark(1, 7, "")))
    figure = drawn(Panel("", Axis("", categories=("9.5", "9.5")), Axis("Loss", 0, 10), [series]))
    (trace,) = figure["data"]
    assert len(set(trace["x"])) == 2
    assert list(figure["layout"]["xaxis"]["ticktext"]) == ["9.5", "9.5"]
    assert figure["layout"]["barmode"] == "stack"


def test_a_page_has_each_chart_with_its_numbers_and_without_markup_of_names() -> None:
    name = "</script><b>&amp;"
    results = campaign([trial(stream_counts(), uut=name), trial(stream_counts(), uut=name, repetition=2)], uuts=(name,))
    (chart,) = figures.blocks("throughput", ReportModel.of(results))
    html = str(chart.html)
    assert name not in html
    assert "&lt;/script&gt;&lt;b&gt;&amp;amp;" in html
    assert "<noscript>This chart needs JavaScript." in html
    assert '<th scope="col">throughput_mbps</th>' in html
    model = ReportModel.of(small_campaign())
    assert {block.view for block in figures.blocks("loss", model)} == {view.name for view in model.views}
    assert figures.extra(model) == []

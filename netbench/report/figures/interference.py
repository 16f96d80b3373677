"""The highest throughput beside a neighbour relative to that without, as Figure 5 of Schlosser et al. 2011."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from netbench.model.frame_mix import rising, size_text
from netbench.report.figures.chart import Chart
from netbench.report.figures.marks import change_tooltip, numbers_of, of_ratio
from netbench.report.figures.panels import Bar, Panels, end_of_axis
from netbench.report.figures.registry import Figure, NamedChart, by_setting
from netbench.report.formats import bounded, count
from netbench.report.model import ReportModel
from netbench.report.styles import Style
from netbench.statistics.groups import grouped
from netbench.statistics.interference import RelativeMaximum
from netbench.statistics.intervals import Unknown

_HIGHEST = 150  # percent: the upper end of an interval that stretches an axis


def relative_chart(maxima: Sequence[RelativeMaximum], styles: Mapping[str, Style]) -> Chart:
    """A panel per scenario: the highest throughput by frame size, in percent of the baseline's, a bar per UUT."""
    sizes = sorted({maximum.victim.frame_size for maximum in maxima}, key=rising)
    by_scenario = grouped(maxima, lambda maximum: maximum.scenario)
    panels = Panels(
        {scenario: scenario for scenario in by_scenario},
        (maximum.victim.uut for maximum in maxima),
        styles,
        "Frame size [bytes]",
        f"Highest throughput [% of {baselines_named(maxima)}]",
    )
    panels.figure.intervals = "95 % interval of the ratio"
    panels.categories([size_text(size) for size in sizes])
    for scenario, members in by_scenario.items():
        ratios = [100 * maximum.ratio.ratio for maximum in members if maximum.ratio.ratio is not None]
        tips = [min(100 * maximum.ratio.high, _HIGHEST) for maximum in members if maximum.ratio.high is not None]
        panels.scale(scenario, None, [0, end_of_axis((), [100, *ratios, *tips])])
        for uut, of_uut in grouped(members, lambda maximum: maximum.victim.uut).items():
            of_size = {maximum.victim.frame_size: maximum for maximum in of_uut}
            panels.bars(scenario, uut, [_bar(of_size.get(size)) for size in sizes])
        panels.rule(scenario, 100)
    return panels.figure


def baselines_named(maxima: Iterable[RelativeMaximum]) -> str:
    """The scenarios that these maxima are compared to."""
    return " or ".join(dict.fromkeys(maximum.baseline for maximum in maxima))


def _bar(maximum: RelativeMaximum | None) -> Bar:
    if maximum is None or (ratio := maximum.ratio.ratio) is None:
        return Bar(None, "", "" if maximum is None else change_tooltip(maximum))
    low, high = maximum.ratio.low, maximum.ratio.high
    ends = None if low is None or high is None else (100 * low, 100 * high)
    numbers = {
        **numbers_of(maximum.best, "throughput_mbps"),
        "baseline": maximum.baseline,
        **of_ratio(maximum.ratio),
    }
    doubt = " ?" if maximum.ratio.unknown in (Unknown.TOO_FEW, Unknown.BASE_MAY_BE_ZERO) else ""
    text = bounded(f"{100 * ratio:.0f}{doubt}", maximum.ratio)
    return Bar(100 * ratio, text, change_tooltip(maximum), numbers, ends)


def _charts(model: ReportModel, maxima: Iterable[RelativeMaximum], name: str) -> Iterator[NamedChart]:
    by_sources = sorted(grouped(maxima, lambda maximum: maximum.victim.sources).items())
    for sources, members in by_sources:
        yield from by_setting(
            members,
            lambda maximum: maximum.victim.uut,
            model.styles,
            relative_chart,
            f"{name}-{sources}",
            heading=count(sources, "source") if len(by_sources) > 1 else "",
        )


def _forwarding(model: ReportModel) -> list[RelativeMaximum]:
    return [maximum for maximum in model.maxima if maximum.best.forwarding]


ISOLATION = Figure(
    "isolation",
    "Interference by neighbours",
    lambda model: "" if model.maxima else "no UUT had a neighbour",
    lambda model: _charts(model, model.maxima, "isolation"),
)
AS_FIGURE_5 = Figure(
    "relative-maximum",
    "A second guest forwarding small packets",
    lambda model: "" if model.paper and _forwarding(model) else "no campaign of the paper with a forwarding neighbour",
    lambda model: _charts(model, _forwarding(model), "relative-maximum"),
)

"""The highest throughput beside a neighbour relative to that without, as Figure 5 of Schlosser et al. 2011."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from netbench.model.frame_mix import rising, size_text
from netbench.report.figures.chart import Chart, Mark
from netbench.report.figures.marks import change_tooltip, numbers_of, of_ratio
from netbench.report.figures.panels import Panels, end_of_axis
from netbench.report.figures.registry import Figure, NamedChart, by_setting
from netbench.report.formats import bounded, count
from netbench.report.model import ReportModel, baselines
from netbench.report.styles import Style
from netbench.statistics.groups import grouped
from netbench.statistics.interference import RelativeMaximum
from netbench.statistics.intervals import Unknown

_HIGHEST = 150  # percent: the upper end of an interval that stretches an axis


def relative_chart(maxima: Sequence[RelativeMaximum], styles: Mapping[str, Style]) -> Chart:
    """A panel per scenario: the highest throughput by frame size, in percent of the baseline's, a bar per UUT."""
    sizes = sorted({maximum.victim.frame_size for maximum in maxima}, key=rising)
    panels = Panels(
        maxima,
        styles,
        "Frame size [bytes]",
        f"Highest throughput [% of {baselines(maxima)}]",
        key_of=lambda maximum: maximum.scenario,
        uut_of=lambda maximum: maximum.victim.uut,
    )
    panels.chart.intervals = "95 % interval of the ratio"
    panels.categories([size_text(size) for size in sizes])
    for scenario, uut, of_uut in panels.cells:
        by_size = {maximum.victim.frame_size: maximum for maximum in of_uut}
        panels.bars(scenario, uut, [_bar(x, by_size[size]) for x, size in enumerate(sizes) if size in by_size])
    for scenario, panel in panels.panels.items():
        tips = (min(mark.high, _HIGHEST) for mark in panel.marks if mark.high is not None)
        panels.scale(scenario, y=[0, end_of_axis([100, *(mark.y for mark in panel.marks), *tips])])
        panels.rule(scenario, 100)
    return panels.finished()


def _bar(x: int, maximum: RelativeMaximum) -> Mark | None:
    if (ratio := maximum.ratio.ratio) is None:
        return None
    low, high = maximum.ratio.low, maximum.ratio.high
    ends = (None, None) if low is None or high is None else (100 * low, 100 * high)
    numbers = {
        **numbers_of(maximum.best, "throughput_mbps"),
        "baseline": maximum.baseline,
        **of_ratio(maximum.ratio),
    }
    doubt = " ?" if maximum.ratio.unknown in (Unknown.TOO_FEW, Unknown.BASE_MAY_BE_ZERO) else ""
    text = bounded(f"{100 * ratio:.0f}{doubt}", maximum.ratio)
    return Mark(x, 100 * ratio, change_tooltip(maximum), numbers, *ends, text=text)


def _charts(model: ReportModel, maxima: Iterable[RelativeMaximum], name: str) -> Iterator[NamedChart]:
    by_sources = sorted(grouped(maxima, lambda maximum: maximum.victim.sources).items())
    for sources, members in by_sources:
        heading = count(sources, "source") if len(by_sources) > 1 else ""
        yield from by_setting(
            members,
            lambda maximum: maximum.victim.uut,
            model.styles,
            relative_chart,
            f"{name}-{sources}",
            heading=heading,
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

"""A figure: the share of the intended frames that the source did not send, by intended load."""

from collections.abc import Iterator, Mapping, Sequence

from netbench.report.figures import Figure, NamedChart, by_setting
from netbench.report.figures.chart import Chart
from netbench.report.figures.marks import group_tooltip, numbers_of
from netbench.report.figures.panels import Panels, Point, by_rising_size, size_titles
from netbench.report.model import ReportModel
from netbench.report.styles import Style
from netbench.statistics.groups import Group, grouped
from netbench.statistics.intervals import Interval


def unsent_chart(groups: Sequence[Group], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size, a line per UUT: the unsent share in percent."""
    by_size = by_rising_size(groups, lambda group: group.frame_size)
    uuts = (group.uut for group in groups)
    panels = Panels(size_titles(by_size), uuts, styles, "Intended load [Mbit/s, L1]", "Unsent [% of intended frames]")
    panels.legend()
    for size, members in by_size.items():
        panels.scale(size, [0, 1.05 * max(group.intended_mbps or 0 for group in members)], [0, 100])
        for uut, of_uut in grouped(members, lambda group: group.uut).items():
            points = [
                Point(
                    Interval(group.intended_mbps, None, 1),
                    group.unsent_ratio.scaled(100),
                    group_tooltip(group),
                    numbers_of(group, "unsent_ratio"),
                )
                for group in of_uut
                if group.intended_mbps is not None and group.unsent_ratio is not None
            ]
            panels.line(size, uut, sorted(points, key=lambda point: point.x.mean))
    return panels.figure


def _requirement(model: ReportModel) -> str:
    return "" if any(group.intended_mbps and group.unsent_ratio for group in model.groups) else "no load was intended"


def _build(model: ReportModel) -> Iterator[NamedChart]:
    groups = [group for group in model.groups if group.intended_mbps]
    return by_setting(groups, lambda group: group.uut, model.styles, unsent_chart, "unsent")


FIGURE = Figure("unsent", "Unsent frames", _requirement, _build)

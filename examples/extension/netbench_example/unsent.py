"""A figure: the share of the intended frames that the source did not send, by intended load."""

from collections.abc import Mapping, Sequence

from netbench.report.figures import Figure, by_setting
from netbench.report.figures.chart import Chart, Mark, group_tooltip, numbers_of
from netbench.report.figures.panels import Panels, ends_of
from netbench.report.model import ReportModel
from netbench.report.styles import Style
from netbench.statistics.groups import Group


def unsent_chart(groups: Sequence[Group], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size, a line per UUT: the unsent share in percent."""
    panels = Panels(
        groups,
        styles,
        "Intended load [Mbit/s, L1]",
        "Unsent [% of intended frames]",
        key_of=lambda group: group.frame_size,
        uut_of=lambda group: group.uut,
    )
    for size, uut, of_uut in panels.cells:
        marks = [
            Mark(load, unsent.mean, group_tooltip(group), numbers_of(group, "unsent_ratio"), *ends_of(unsent))
            for group in of_uut
            if (load := group.intended_mbps) and (unsent := group.unsent_ratio and group.unsent_ratio.scaled(100))
        ]
        panels.line(size, uut, sorted(marks, key=lambda mark: mark.x))
        panels.scale(size, y=[0, 100])
    return panels.finished()


def _requirement(model: ReportModel) -> str:
    return "" if any(group.intended_mbps and group.unsent_ratio for group in model.groups) else "no load was intended"


FIGURE = Figure(
    "unsent",
    "Unsent frames",
    _requirement,
    lambda model: by_setting(
        [group for group in model.groups if group.intended_mbps],
        lambda group: group.uut,
        model.styles,
        unsent_chart,
        "unsent",
    ),
)

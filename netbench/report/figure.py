"""A figure on the page: its panels and legend, the notes that belong to it, and the numbers that it is drawn from."""

from collections.abc import Mapping

from netbench.report.chart import Chart
from netbench.report.markup import Html, element, join, packed
from netbench.report.svg import legend_svg, notes, panel_svg


def figure(name: str, scales: Mapping[str, Chart]) -> Html:
    """A chart on one scale or on several of which the page shows one at a time; `name` makes its id.

    All scales show the same marks in the same order. What nobody sees before asking for it is compressed: the numbers,
    what pointing at each mark tells, and all scales but the first.
    """
    (first, chart), *others = scales.items()
    save = [
        element("button", kind.upper(), type="button", data_save=kind, title=f"Download this figure as {kind.upper()}")
        for kind in ("svg", "png", "csv")
    ]
    remarks = join(element("p", line, css="remark") for line in notes(chart))
    caption = element("figcaption", remarks, element("span", *save, css="save"))
    columns, rows = chart.table
    more = {
        "columns": columns,
        "rows": rows,
        "tips": [mark.hover for mark in chart.marks],
        "scales": {scale: drawn(other, scale) for scale, other in others},
    }
    return element("figure", drawn(chart, first), caption, packed(more), css="figure", id=f"figure-{name}")


def drawn(chart: Chart, scale: str = "") -> Html:
    """The legend and the panels, as wide as there is room."""
    entries = [element("li", Html(legend_svg(entry)), element("span", entry.name)) for entry in chart.legend]
    number, panels = 0, []
    for panel in chart.panels:
        panels.append(Html(panel_svg(panel, number)))
        number += sum(1 for _ in panel.marks)
    several = "panels" if len(panels) > 1 else "panels single"
    parts = (*([element("ul", *entries, css="legend")] if entries else []), element("div", *panels, css=several))
    return element("div", *parts, css="scale", data_scale=scale)

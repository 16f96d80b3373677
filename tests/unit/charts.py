"""The figures of a report page, and the series of charts."""

import gzip
import json
import re
from base64 import b64decode
from dataclasses import dataclass
from typing import Any

from netbench.report.figures.chart import Chart, ChartSeries, Form

_PACKED = '<script type="application/(gzip|json)">([^<]*)</script>'
_FIGURE = r'<figure class="figure" id="figure-([^"]*)">(.*?)</figure>'


@dataclass(frozen=True)
class OnPage:
    """A figure: the numbers of its marks, its plotly figure, and its markup."""

    name: str
    rows: list[dict[str, Any]]
    plotly: dict[str, Any]
    markup: str

    @property
    def uuts(self) -> set[object]:
        return {row["uut"] for row in self.rows}


def unpacked(kind: str, text: str) -> Any:
    return json.loads(text if kind == "json" else gzip.decompress(b64decode(text)))


def with_all_views(source: str) -> str:
    """Return the page with each view and each list entry chosen, and everything unfolded."""
    for _ in range(3):  # lists are in views, and long lists are folded
        source = re.sub(
            f'(<div class="(?:view|picked)"[^>]*>|</summary>)\\s*{_PACKED}',
            lambda view: view[1] + unpacked(*view.groups()[1:]),
            source,
        )
    return source


def figures_on(source: str) -> list[OnPage]:
    found = []
    for name, content in re.findall(_FIGURE, with_all_views(source), re.S):
        (packed,) = re.findall(_PACKED, content)
        more = unpacked(*packed)
        rows = [dict(zip(more["columns"], row, strict=True)) for row in more["rows"]]
        found.append(OnPage(name, rows, more["figure"], content))
    return found


def of_form(chart: Chart, *forms: Form) -> list[ChartSeries]:
    """Return the series of these forms, panel by panel."""
    return [series for panel in chart.panels for series in panel.series if series.form in forms]


def lines(chart: Chart) -> list[ChartSeries]:
    return of_form(chart, Form.LINE)


def points(chart: Chart) -> list[ChartSeries]:
    return of_form(chart, Form.POINTS)


def bars(chart: Chart) -> list[ChartSeries]:
    return of_form(chart, Form.BARS)

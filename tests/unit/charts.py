"""The figures of a report page, as shown and as downloaded."""

import gzip
import json
import re
from base64 import b64decode
from dataclasses import dataclass
from typing import Any

from netbench.model.campaign import CampaignResults
from netbench.report.chart import Chart, ChartSeries, Form
from netbench.report.page import report_page
from netbench.report.publication import charts_of
from netbench.report.shown import Shown

_PACKED = '<script type="application/(gzip|json)">([^<]*)</script>'
_FIGURE = r'<figure class="figure" id="figure-([^"]*)">(.*?)</figure>'


@dataclass(frozen=True)
class OnPage:
    """A figure: the numbers of its marks, the tooltip of each, and its markup on each scale."""

    name: str
    rows: list[dict[str, Any]]
    tips: list[str]
    markup: dict[str, str]
    note: str

    @property
    def uuts(self) -> set[object]:
        return {row["uut"] for row in self.rows}


def unpacked(kind: str, text: str) -> Any:
    return json.loads(text if kind == "json" else gzip.decompress(b64decode(text)))


def with_all_views(source: str) -> str:
    """Return the page with each view and each list entry chosen, and everything unfolded."""
    for _ in range(3):  # lists are in views, and long lists are folded
        source = re.sub(
            f'(<div class="(?:view|picked)"[^>]*>|</summary>){_PACKED}',
            lambda view: view[1] + unpacked(*view.groups()[1:]),
            source,
        )
    return source


def figures_on(source: str) -> list[OnPage]:
    found = []
    for name, content in re.findall(_FIGURE, with_all_views(source), re.S):
        packed = re.search(_PACKED, content)
        caption = re.search(r"<figcaption>(.*?)</figcaption>", content, re.S)
        scale = re.search(r'data-scale="([^"]*)"', content)
        assert packed is not None
        assert caption is not None
        assert scale is not None
        more = unpacked(*packed.groups())
        rows = [dict(zip(more["columns"], row, strict=True)) for row in more["rows"]]
        markup = {scale[1]: content[: caption.start()], **more["scales"]}
        found.append(OnPage(name, rows, more["tips"], markup, caption[1]))
    return found


def names_as_files_and_on_page(results: CampaignResults) -> tuple[list[str], list[str]]:
    """Return the sorted names of a campaign's figures as files, and those on its page."""
    files = [name for name, _ in charts_of(Shown.of(results))]
    return sorted(files), sorted(figure.name for figure in figures_on(report_page(results)))


def of_form(chart: Chart, *forms: Form) -> list[ChartSeries]:
    """Return the series of these forms, panel by panel."""
    return [series for panel in chart.panels for series in panel.series if series.form in forms]


def lines(chart: Chart) -> list[ChartSeries]:
    return of_form(chart, Form.LINE)


def points(chart: Chart) -> list[ChartSeries]:
    return of_form(chart, Form.POINTS)


def bars(chart: Chart) -> list[ChartSeries]:
    return of_form(chart, Form.BARS)

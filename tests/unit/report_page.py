"""The visible text of a report: the page and the table on the console."""

import io
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from netbench.cli.summary import summary_table
from netbench.model.campaign import CampaignResults
from netbench.report.figures import charts_of
from netbench.report.model import ReportModel
from netbench.report.page import write_report
from tests.unit.charts import figures_on, with_all_views

# Sections of a page about guests that share a host.
OF_SHARED_HOSTS = {
    "second-guest-forwards",
    "second-guest-computes",
    "second-guest-itself",
    "curves",
    "isolation",
    "fairness",
}
_VOID = {"meta", "link", "br", "img", "hr", "input"}


def report_page(results: CampaignResults) -> str:
    """Return the page of a campaign as text."""
    with TemporaryDirectory() as directory:
        write_report(results, page := Path(directory, "report.html"))
        return page.read_text()


class Page(HTMLParser):
    """The text of a page in all its views, without scripts and styles, checked for well-formed nesting."""

    def __init__(self, source: str) -> None:
        super().__init__()
        source = with_all_views(source)
        self.source = source
        self.open: list[str] = []
        self.pieces: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.pieces).split())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id" and value:
                self.ids.append(value)
            if name == "href" and value:
                (self.loaded if tag == "link" else self.links).append(value)
            if name == "src" and value:
                self.loaded.append(value)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.pieces.append(data)


def page_of(results: CampaignResults) -> Page:
    return Page(report_page(results))


def printed(results: CampaignResults, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(summary_table(results))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def names_as_files_and_on_page(results: CampaignResults) -> tuple[list[str], list[str]]:
    """Return the sorted names of a campaign's figures as files, and those on its page."""
    files = [chart.name for chart in charts_of(ReportModel.of(results))]
    return sorted(files), sorted(figure.name for figure in figures_on(report_page(results)))

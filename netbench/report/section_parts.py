"""Parts that many sections of a page share: charts, tables and notes, by view or folded."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from netbench.report import figures
from netbench.report.blocks import Block, Choice, FigureMarkup, Folded, Heading, Note, Option, Section, Table, section
from netbench.report.formats import count, sentence
from netbench.report.model import ReportModel, View
from netbench.report.published import PublishedPaper
from netbench.report.tables import tables_of

Sections = Iterator[Section]
_OF_FLOWS = ("neighbour-load", "message-size", "percentiles", "bandwidth")
_PLAIN_HEADERS = "Ether()/IP()/UDP()"  # the headers of plain frames


def main_chart(model: ReportModel) -> FigureMarkup | None:
    """The chart of the first screen.

    It shows the highest loads of searches, the comparison of packets, or the throughput. Of flows it shows latencies,
    against the load of neighbours if that varies, or bandwidths.
    """
    names = ("searches",) if model.results.searches else (*_packet_figures(model), "maximum", *_OF_FLOWS)
    return next((charts[0] for name in names if (charts := figures.blocks(name, model))), None)


def _packet_figures(model: ReportModel) -> tuple[str, ...]:
    """The figures that compare packets, the one that fits the profile first; none with a single packet."""
    packets = model.results.packets
    if len(packets) < 2:
        return ()
    described = [packet for packet in packets.values() if isinstance(packet, Mapping)]
    only_flows = all(packet.get("headers") == _PLAIN_HEADERS for packet in described)
    return ("flows", "packet-cost") if only_flows else ("packet-cost", "flows")


def figure_charts(name: str, model: ReportModel, view: str = "") -> list[Block]:
    """The charts of the figure of this name, without the one of the first screen."""
    main = main_chart(model)
    return [chart for chart in figures.blocks(name, model) if chart.view == view and chart is not main]


def by_view(model: ReportModel, content: Callable[[View], Sequence[Block]]) -> list[Block]:
    """The content of each view that has some behind buttons that choose one; a single view has no buttons."""
    parts = [(Option(view.name, view.title), blocks) for view in model.views if (blocks := content(view))]
    if len(model.views) == 1 or not parts:
        return [block for _, blocks in parts for block in blocks]
    options, contents = zip(*parts, strict=True)
    return [Choice("Scenario and number of sources", options, contents)]


def tables_by_view(name: str, model: ReportModel, noun: str, figure: str = "") -> list[Block]:
    """The table of each view, folded, below the figure of this name."""
    tables = {table.view: table.folded(noun) for table in tables_of(name, model)}

    def of_view(view: View) -> list[Block]:
        charts = figure_charts(figure, model, view.name) if figure else []
        return [*charts, tables[view.name]] if view.name in tables else []

    return by_view(model, of_view)


def notes_of(*names: str) -> list[Block]:
    """The notes of these names from the data file."""
    return [Note(sentence(f"notes.{name}")) for name in names]


def titled(title: str, tables: Sequence[Table], *notes: str) -> list[Block]:
    """Tables under a title and notes from the data file; nothing without tables."""
    return [Heading(title), *notes_of(*notes), *tables] if tables else []


def streams_without(note: str, refused: dict[str, int]) -> list[Block]:
    """A note for each reason why something of some streams is unknown."""
    return [
        Note(sentence(f"notes.{note}", streams=f"{count(number, 'stream')} of trials", why=why))
        for why, number in refused.items()
    ]


def plain_section(
    anchor: str, content: Callable[[ReportModel], Iterable[Block]], *, is_open: bool = False
) -> Callable[[ReportModel], Sections]:
    """A section of these blocks; none without any."""

    def part(model: ReportModel) -> Sections:
        if blocks := list(content(model)):
            yield section(anchor, blocks, is_open=is_open)

    return part


def sections_of_other_packages(model: ReportModel) -> Sections:
    """The sections of the figures of other packages, and of those that are broken."""
    for figure, charts in figures.extra(model):
        yield Section(figure.name, figure.title, figure.title, "", charts)
    for name, error in model.broken_figures.items():
        yield Section(name, name, name, "", [Note(sentence("notes.broken_figure", error=error))])


def paper_findings(model: ReportModel, figure: int) -> list[Block]:
    """The findings of the paper on its figure, folded; nothing without a paper."""
    return [Folded("What the paper found", [Note(model.paper.on_figure(figure))])] if model.paper else []


def paper_reference(paper: PublishedPaper, text: str) -> Note:
    """A note about the paper, with its citation, and its DOI if it has one."""
    doi = sentence("notes.paper_doi", doi=paper.doi) if paper.doi else ""
    return Note(sentence("notes.paper_reference", text=text, citation=paper.citation, doi=doi).rstrip())

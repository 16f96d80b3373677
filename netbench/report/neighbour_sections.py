"""The sections about neighbours: isolation, and the second guest, beside the tables of the paper."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from netbench.model.scenario import Network, Stress
from netbench.report.blocks import Block, Grid, Heading, Note, Table, section, under_titles
from netbench.report.formats import count, sentence
from netbench.report.model import ReportModel, baselines
from netbench.report.published import PublishedPaper, PublishedTable
from netbench.report.section_parts import Sections, figure_charts, paper_findings, paper_reference, titled
from netbench.report.tables import tables_of
from netbench.report.tables.interference import background_table, change_table, published_table
from netbench.statistics.groups import grouped
from netbench.statistics.interference import RelativeMaximum
from netbench.statistics.sharing import Background, background

Item = TypeVar("Item", RelativeMaximum, Background)


def isolation_section(model: ReportModel) -> Sections:
    """The section on the isolation of the victim; none without maxima."""
    if model.maxima:
        lowest = tables_of("worst-isolation", model)
        blocks = [
            *figure_charts("isolation", model),
            *titled("Lowest isolation index of each UUT", lowest, "isolation_index"),
            *titled("Victim × neighbour", tables_of("matrix", model)),
        ]
        yield section("isolation", blocks, is_open=True, baselines=baselines(model.maxima))


def second_guest_forwards_section(model: ReportModel) -> Sections:
    """The section on the maximum beside a guest that forwards; none without a paper."""
    forwarding = [maximum for maximum in model.maxima if maximum.best.forwarding]
    if model.paper and forwarding:
        blocks = [*figure_charts("relative-maximum", model), *paper_findings(model, 5)]
        yield section("second-guest-forwards", blocks, baselines=baselines(forwarding))


def second_guest_computes_section(model: ReportModel) -> Sections:
    """The section on the maximum beside a guest that computes; none without a paper."""
    computing = [
        maximum
        for maximum in model.maxima
        if not maximum.best.forwarding
        and any(isinstance(neighbour.activity, Stress) for neighbour in maximum.best.neighbours)
    ]
    if (paper := model.paper) and computing:
        columns = {maximum.scenario: maximum.scenario.removeprefix("cpu-") for maximum in computing}

        def of_sources(maxima: Sequence[RelativeMaximum], sources: int) -> list[Block]:
            return _beside(change_table(maxima, columns, model.styles), paper, paper.tables[1], sources)

        blocks = [*_by_sources(computing, of_sources), paper_reference(paper, sentence("notes.the_paper"))]
        yield section("second-guest-computes", blocks, baselines=baselines(computing))


def second_guest_itself(model: ReportModel) -> list[Block]:
    """The tables of the loads of the second guest itself."""

    def of_sources(members: Sequence[Background], sources: int) -> list[Block]:
        parts: list[Block] = []
        for scenario, rows in grouped(members, lambda row: row.scenario).items():
            activities = ", ".join(dict.fromkeys(activity for row in rows for activity in row.activities))
            parts.append(Heading(f"{scenario}: {activities}"))
            parts += _beside(background_table(rows, model.styles), model.paper, _published(rows, model.paper), sources)
        return parts

    backgrounds = background(model.groups)
    return [
        *_by_sources(backgrounds, of_sources),
        *([paper_reference(model.paper, sentence("notes.the_paper"))] if model.paper and backgrounds else []),
        *titled("Maxima that the shares refer to", tables_of("load-maxima", model) if backgrounds else []),
    ]


def _by_sources(items: Sequence[Item], content: Callable[[Sequence[Item], int], list[Block]]) -> list[Block]:
    """The content for each number of sources, which is the second argument of `content`."""
    by_number = sorted(grouped(items, lambda item: item.victim.sources).items())
    return under_titles([(count(sources, "source"), content(members, sources)) for sources, members in by_number])


def _beside(
    measured: Table, paper: PublishedPaper | None, published: PublishedTable | None, sources: int
) -> list[Block]:
    """The measured table, beside the paper's for the same number of sources, and the notes of the paper."""
    if paper is None or published is None or published.sources != sources:
        return [measured]
    columns = "; ".join(f"{name}: {meaning}" for name, meaning in published.columns.items())
    text = sentence("notes.columns_of_paper", columns=columns, notes=paper.on_table(published.number))
    return [Grid([[measured], [published_table(published)]], "beside"), Note(text)]


def _published(backgrounds: Iterable[Background], paper: PublishedPaper | None) -> PublishedTable | None:
    """The paper's table about neighbours with the same activities."""
    activities = {row.activities for row in backgrounds}
    shares = (table for table in (paper.tables.values() if paper else ()) if table.share is not None)
    return next((table for table in shares if activities == {(str(Network(None, table.share)),)}), None)

"""The table of a paper's figures of applications beside the measured ones."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from netbench.model.scenario import DEDICATED, SHARED_IDLE
from netbench.report.blocks import Cell, Column, Table, table
from netbench.report.formats import UNKNOWN, sentence, three_digits, two_digits
from netbench.report.model import ReportModel, uut_cell
from netbench.report.published import PublishedFigure, PublishedPaper
from netbench.report.tables.registry import number, report_table, words
from netbench.statistics.cell_measures import measured
from netbench.statistics.intervals import Interval
from netbench.statistics.workload_groups import WorkloadGroup

NO_PLATFORM = "no equal platform"
NOT_MEASURED = "not measured"
_NOT_VALID = "no valid trial"


@dataclass(frozen=True, slots=True)
class ComparedValue:
    """A figure on a platform of the paper, and a cell of a UUT that repeats it; either may lack the other.

    `published` and `measured` are texts, both in the printed unit.
    """

    figure: PublishedFigure
    platform: str
    published: str
    measured: str
    uut: str = ""
    remark: str = ""


@report_table("published", is_exported=True)
def published(model: ReportModel) -> Iterator[Table]:
    """A row for each platform of the paper and each UUT, a block per figure of the paper; none without such a paper."""
    paper = model.paper_of_flows
    if paper and model.workload_groups:
        rows = list(compared_values(paper, model))
        yield table(
            rows,
            Column("Platform of the paper", lambda row: row.platform),
            words("Published", lambda row: row.published),
            Column("UUT", lambda row: uut_cell(row.uut, model.styles) if row.uut else Cell("")),
            number("Measured", lambda row: row.measured),
            words("Remark", lambda row: row.remark),
            css="results",
            block=lambda row: f"{row.figure.title} [{row.figure.unit}], {row.figure.printed}",
            block_title="Figure of the paper",
            name="published",
            caption=sentence("captions.published"),
        )


def compared_values(paper: PublishedPaper, model: ReportModel) -> Iterator[ComparedValue]:
    """Yield the values of each figure: platforms of the paper with the UUTs that equal them, then other UUTs.

    Only cells without active neighbours are compared, unless the figure has a scenario.
    """
    uuts = list(model.styles)
    for figure in paper.figures:
        cells = [group for group in model.workload_groups if _is_compared(figure, group)]
        for platform, value in figure.values.items():
            equal = [uut for uut in uuts if paper.platform_of(uut).platform == platform]
            if not equal:
                yield ComparedValue(figure, platform, str(value), NO_PLATFORM)
            for uut in equal:
                for text in _measured(figure, cells, uut) or [NOT_MEASURED]:
                    yield ComparedValue(figure, platform, str(value), text, uut, paper.platform_of(uut).remark)
        for uut in uuts:
            if paper.platform_of(uut).platform not in figure.values:
                for text in _measured(figure, cells, uut):
                    yield ComparedValue(figure, NO_PLATFORM, UNKNOWN, text, uut, paper.platform_of(uut).remark)


def _is_compared(figure: PublishedFigure, cell: WorkloadGroup) -> bool:
    scenarios = (figure.scenario,) if figure.scenario else (DEDICATED, SHARED_IDLE)
    return figure.is_of(cell.workload) and str(cell.load) == figure.load and cell.scenario in scenarios


def _measured(figure: PublishedFigure, cells: Iterable[WorkloadGroup], uut: str) -> list[str]:
    """The measured values of a UUT, named by workload and scenario where there are several."""
    own = [cell for cell in cells if cell.uut == uut]
    texts = [_interval(figure, measured(cell, figure.measure)) for cell in own]
    if len(own) < 2:
        return texts
    return [f"{text}, {cell.workload}, {cell.scenario}" for text, cell in zip(texts, own, strict=True)]


def _interval(figure: PublishedFigure, interval: Interval | None) -> str:
    """A mean with its interval in the printed unit."""
    if interval is None:
        return _NOT_VALID
    scaled = interval.scaled(figure.factor)
    mean = three_digits(scaled.mean)
    return f"{mean} (n = {scaled.n})" if scaled.half_width is None else f"{mean} ± {two_digits(scaled.half_width)}"

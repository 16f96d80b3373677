"""The rows and tables of a comparison of flows: terminal, page and exports render these."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from netbench.report.blocks import Column, Kind, Table, table
from netbench.report.comparison import Compared, change_words
from netbench.report.flow_formats import figure_heading, figure_mean, figure_spread, unit_of
from netbench.report.formats import p_value
from netbench.report.model import uut_cell
from netbench.report.styles import Style
from netbench.report.tables.registry import number
from netbench.statistics.compared_cells import FlowCell
from netbench.statistics.flow_comparison import FlowComparison, FlowDifference


@dataclass(frozen=True, slots=True)
class FlowRow:
    """A compared figure in words: both sides with their spreads, the difference, its test.

    `benefit` is negative where the new campaign is worse, and None without a significant difference.
    """

    place: FlowCell
    figure: str  # with its unit
    base: str
    new: str
    base_spread: str
    new_spread: str
    difference: str
    benefit: float | None
    p: str
    test: str
    n: str


def flow_row(difference: FlowDifference) -> FlowRow:
    """The row of a figure."""
    figure, groups = difference.figure, (difference.base, difference.new)
    unit = unit_of(figure, (group.figures.get(figure.name) for group in groups))
    base, new = (figure_mean(figure, group, unit) for group in groups)
    base_spread, new_spread = (figure_spread(figure, group.figures.get(figure.name), unit) for group in groups)
    return FlowRow(
        difference.place,
        figure_heading(figure, unit, of_datagrams=difference.base.has_datagrams),
        base,
        new,
        base_spread,
        new_spread,
        change_words(difference),
        difference.benefit,
        p_value(difference.test.corrected),
        difference.test.test.value,
        ", ".join(dict.fromkeys(str(len(group.valid)) for group in groups)),
    )


def flow_comparisons(compared: Iterable[Compared]) -> Iterator[tuple[Compared, FlowComparison]]:
    """The comparisons of campaigns with flows."""
    for new in compared:
        if isinstance(new.comparison, FlowComparison):
            yield new, new.comparison


def flows_table(differences: Sequence[FlowDifference], styles: Mapping[str, Style]) -> Table:
    """The figures of both sides and their differences, a block per workload."""
    return table(
        map(flow_row, differences),
        Column("UUT", lambda row: uut_cell(row.place.uut, styles)),
        Column("Scenario", lambda row: row.place.scenario),
        Column("Load", lambda row: str(row.place.load)),
        Column("Figure", lambda row: row.figure),
        Column("Base", lambda row: row.base, Kind.NUMBER, lambda row: row.base_spread),
        Column("New", lambda row: row.new, Kind.NUMBER, lambda row: row.new_spread),
        number("Difference", lambda row: row.difference),
        number("p", lambda row: row.p),
        Column("Test", lambda row: row.test),
        number("n", lambda row: row.n),
        css="results",
        block=lambda row: row.place.workload,
        row_css=lambda row: "" if row.benefit is None else "changed",
    )

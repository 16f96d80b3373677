"""The tables of a comparison: throughput, loss, searches, the gate, and the settings that differ."""

from collections.abc import Iterable, Mapping, Sequence

from netbench.model.workload import Workload
from netbench.report.blocks import Column, Kind, Table, table
from netbench.report.comparison import (
    ComparedRow,
    judged_words,
    loss_row,
    percent_or_nothing,
    search_row,
    throughput_row,
    unit_of_searches,
)
from netbench.report.styles import Style
from netbench.report.tables.registry import largest_first, number, place_columns
from netbench.results.comparability import ChangedSetting
from netbench.statistics.compared_cells import Difference
from netbench.statistics.regression_gate import Gate, GateResult
from netbench.statistics.search_comparison import SearchDifference

_WORST_FIRST = (GateResult.FAILED, GateResult.INCONCLUSIVE, GateResult.NOT_JUDGED, GateResult.PASSED)


def throughput_table(cells: Sequence[Difference], styles: Mapping[str, Style]) -> Table:
    """The throughputs of both sides and their differences, a block per frame size."""
    test: Column[ComparedRow] = Column("Test", lambda row: row.test)
    return _by_load(map(throughput_row, cells), styles, " Mbit/s", test)


def loss_table(cells: Sequence[Difference], styles: Mapping[str, Style]) -> Table:
    """The losses of both sides and their differences, a block per frame size."""
    return _by_load(map(loss_row, cells), styles, "")


def _by_load(rows: Iterable[ComparedRow], styles: Mapping[str, Style], unit: str, *more: Column[ComparedRow]) -> Table:
    columns: tuple[Column[ComparedRow], ...] = (
        Column("Load per source", lambda row: row.load),
        Column(f"Base{unit}", lambda row: row.base, Kind.NUMBER, lambda row: row.base_spread),
        Column(f"New{unit}", lambda row: row.new, Kind.NUMBER, lambda row: row.new_spread),
        number("Difference", lambda row: row.difference),
        number("p", lambda row: row.p),
        *more,
        number("n", lambda row: row.n),
    )
    return _compared(styles, columns, largest_first(rows, lambda row: row.place.frame_size), by_size=True)


def searches_table(differences: Sequence[SearchDifference], styles: Mapping[str, Style]) -> Table:
    """The limits of both sides and their differences."""
    unit = unit_of_searches(differences)
    columns: tuple[Column[ComparedRow], ...] = (
        Column("Goal", lambda row: row.load),
        number(f"Base, {unit} each", lambda row: row.base),
        number(f"New, {unit} each", lambda row: row.new),
        number("Difference", lambda row: row.difference),
        Column("Notes", lambda row: row.note),
    )
    of_flows = any(isinstance(difference.place.traffic, Workload) for difference in differences)
    title = "Workload" if of_flows else "Frame size"
    return _compared(styles, columns, map(search_row, differences), by_size=False, traffic_title=title)


def _compared(
    styles: Mapping[str, Style],
    columns: Sequence[Column[ComparedRow]],
    rows: Iterable[ComparedRow],
    *,
    by_size: bool,
    traffic_title: str = "Frame size",
) -> Table:
    """A table with a block per frame size, or with a column of it, or of the workload."""
    *place, size = place_columns(styles, lambda row: row.place, traffic_title)
    return table(
        rows,
        *(place if by_size else (*place, size)),
        *columns,
        css="results",
        block=(lambda row: row.place.frame_size.frames_text) if by_size else None,
        row_css=lambda row: "" if row.change is None else "changed",
    )


def gate_table(gate: Gate) -> Table:
    """The result of the gate for each cell, the worst first."""
    return table(
        [cell for outcome in _WORST_FIRST for cell in gate.with_outcome(outcome)],
        Column("Cell", lambda cell: str(cell.place)),
        Column("Result", lambda cell: cell.outcome.value),
        Column("Change", judged_words),
        Column("Reason", lambda cell: cell.why),
        number("Smallest detectable change", lambda cell: percent_or_nothing(cell.detectable)),
        number("Repetitions needed", lambda cell: "" if cell.repetitions is None else f"{cell.repetitions:,}"),
        css="results",
        row_css=lambda cell: "changed" if cell.outcome is GateResult.FAILED else "",
    )


def settings_table(differs: Sequence[ChangedSetting]) -> Table:
    """The settings that differ; those that affect rates are marked."""
    return table(
        differs,
        Column("Setting", lambda setting: setting.setting),
        Column("Base", lambda setting: setting.base),
        Column("New", lambda setting: setting.new),
        css="environment",
        row_css=lambda setting: "changed" if setting.matters else "",
    )

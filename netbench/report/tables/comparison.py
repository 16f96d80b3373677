"""The tables of a comparison: throughput, loss, searches, the gate, and the settings that differ."""

from collections.abc import Callable, Mapping, Sequence

from netbench.model.frame_mix import FrameSize, frames_text, rising
from netbench.report.blocks import Column, Kind, Table, table
from netbench.report.comparison import (
    ComparedRow,
    judged_words,
    loss_row,
    percent_or_nothing,
    search_row,
    throughput_row,
)
from netbench.report.styles import Style
from netbench.report.tables.columns import number, size_column, uut_column
from netbench.results.comparability import ChangedSetting
from netbench.statistics.compared_cells import Difference
from netbench.statistics.regression_gate import Gate, GateResult
from netbench.statistics.search_comparison import SearchDifference

_WORST_FIRST = (GateResult.FAILED, GateResult.INCONCLUSIVE, GateResult.NOT_JUDGED, GateResult.PASSED)


def _place_columns(styles: Mapping[str, Style]) -> tuple[Column[ComparedRow], ...]:
    return (
        uut_column(styles, lambda row: row.place.uut),
        Column("Scenario", lambda row: row.place.scenario),
        number("Sources", lambda row: str(row.place.sources)),
    )


def throughput_table(cells: Sequence[Difference], styles: Mapping[str, Style]) -> Table:
    """The throughputs of both sides and their differences, a block per frame size."""
    test: Column[ComparedRow] = Column("Test", lambda row: row.test)
    return _by_load(cells, throughput_row, styles, " Mbit/s", (test,))


def loss_table(cells: Sequence[Difference], styles: Mapping[str, Style]) -> Table:
    """The losses of both sides and their differences, a block per frame size."""
    return _by_load(cells, loss_row, styles, "", ())


def _by_load(
    cells: Sequence[Difference],
    row_of: Callable[[Difference], ComparedRow],
    styles: Mapping[str, Style],
    unit: str,
    more: tuple[Column[ComparedRow], ...],
) -> Table:
    largest_first = sorted(cells, key=lambda cell: rising(cell.place.frame_size), reverse=True)
    return table(
        (
            *_place_columns(styles),
            Column("Load per source", lambda row: row.load),
            Column(f"Base{unit}", lambda row: row.base, Kind.NUMBER, lambda row: row.base_spread),
            Column(f"New{unit}", lambda row: row.new, Kind.NUMBER, lambda row: row.new_spread),
            number("Difference", lambda row: row.difference),
            number("p", lambda row: row.p),
            *more,
            number("n", lambda row: row.n),
        ),
        [row_of(cell) for cell in largest_first],
        "results",
        block=lambda row: frames_text(row.place.frame_size),
        row_css=_changed,
    )


def searches_table(differences: Sequence[SearchDifference], styles: Mapping[str, Style]) -> Table:
    """The limits of both sides and their differences."""
    return table(
        (
            *_place_columns(styles),
            size_column(_size),
            Column("Goal", lambda row: row.load),
            number("Base, kfps each", lambda row: row.base),
            number("New, kfps each", lambda row: row.new),
            number("Difference", lambda row: row.difference),
            Column("Notes", lambda row: row.note),
        ),
        [search_row(difference) for difference in differences],
        "results",
        row_css=_changed,
    )


def _size(row: ComparedRow) -> FrameSize:
    return row.place.frame_size


def _changed(row: ComparedRow) -> str:
    return "" if row.change is None else "changed"


def gate_table(gate: Gate) -> Table:
    """The result of the gate for each cell, the worst first."""
    return table(
        (
            Column("Cell", lambda cell: str(cell.place)),
            Column("Result", lambda cell: cell.outcome.value),
            Column("Change", judged_words),
            Column("Reason", lambda cell: cell.why),
            number("Smallest detectable change", lambda cell: percent_or_nothing(cell.detectable)),
            number("Repetitions needed", lambda cell: "" if cell.repetitions is None else f"{cell.repetitions:,}"),
        ),
        [cell for outcome in _WORST_FIRST for cell in gate.with_outcome(outcome)],
        "results",
        row_css=lambda cell: "changed" if cell.outcome is GateResult.FAILED else "",
    )


def settings_table(differs: Sequence[ChangedSetting]) -> Table:
    """The settings that differ; those that affect rates are marked."""
    return table(
        (
            Column("Setting", lambda setting: setting.setting),
            Column("Base", lambda setting: setting.base),
            Column("New", lambda setting: setting.new),
        ),
        differs,
        "environment",
        row_css=lambda setting: "changed" if setting.matters else "",
    )

"""Tables that fit a console of any width without breaking a word."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from netbench.cli.output import UNLIMITED


@dataclass(frozen=True, slots=True)
class TerminalColumn:
    """A column; numbers are right-aligned. Cells of a column that `wraps` may take several lines, broken at words."""

    heading: str
    is_number: bool = True
    wraps: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Cells in the order of the columns; a new `group` gets its own heading line."""

    cells: tuple[Text | str, ...]
    group: str = ""
    begins_section: bool = False


@dataclass(frozen=True, slots=True)
class FittedTable:
    """A table with columns as wide as needed. If that is too wide, columns that wrap take several lines.

    If it is still too wide, the cells of the first column become heading lines above their rows.
    """

    columns: Sequence[TerminalColumn]
    rows: Sequence[Row]
    title: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table at the width of the console."""
        if self.title:
            yield Text(self.title, style="italic")
        widths = _widths(console, options, self.columns, self.rows)
        if widths is not None or len(self.columns) < 2:
            yield _table(self.columns, self.rows, widths)
            return
        rows = list(_named(self.rows))
        for name, own in groupby(rows, key=lambda row: row.group):
            cells = [Row(row.cells) for row in own]
            yield Text(name, style="bold")
            yield _table(self.columns[1:], cells, _widths(console, options, self.columns[1:], rows))


def _named(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows without their first cell, grouped by it; an empty first cell repeats the one above."""
    name = ""
    for row in rows:
        name = str(row.cells[0]) or name
        yield Row(row.cells[1:], ", ".join(filter(None, (row.group, name))))


def _table(columns: Sequence[TerminalColumn], rows: Sequence[Row], widths: Sequence[int] | None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        width = widths[number] if widths else None
        table.add_column(column.heading, justify="right" if column.is_number else "left", width=width)
    group = ""
    for number, row in enumerate(rows):
        if number and (row.begins_section or row.group != group):
            table.add_section()
        if row.group and row.group != group:
            table.add_row(Text(row.group, style="bold"))
        group = row.group
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row.cells))
    return table


def _widths(
    console: Console, options: ConsoleOptions, columns: Sequence[TerminalColumn], rows: Sequence[Row]
) -> list[int] | None:
    """Return the width of each column, at least its longest word; None if the console is too narrow."""
    measured = []
    for number, column in enumerate(columns):
        cells = [Text(column.heading), *(Text(str(row.cells[number])) for row in rows)]
        cells += [Text(row.group) for row in rows if number == 0]
        sizes = [Measurement.get(console, options.update(max_width=UNLIMITED), cell) for cell in cells]
        most = max(size.maximum for size in sizes)
        measured.append((max(size.minimum for size in sizes) if column.wraps else most, most))
    # Between two columns are a rule and a space; at either end of the table is a rule.
    left = options.max_width - 2 * len(columns) - 1 - sum(least for least, _ in measured)
    if left < 0:
        return None
    widths = []
    for least, most in measured:
        more = min(left, most - least)
        widths.append(least + more)
        left -= more
    return widths

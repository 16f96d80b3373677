"""The tables of a comparison on the console: cells of loads, searched limits, or figures of flows."""

from collections.abc import Collection, Iterable, Sequence
from textwrap import fill

from rich.console import Console
from rich.text import Text

from netbench.cli.console import TerminalTable
from netbench.cli.output import visible
from netbench.model.workload import Workload, traffic_text
from netbench.report.comparison import (
    Compared,
    ComparedRow,
    loss_row,
    search_row,
    throughput_row,
    unit_of_searches,
)
from netbench.report.flow_comparison import flow_row
from netbench.report.formats import count, mean, section_texts
from netbench.report.styles import label
from netbench.statistics.flow_comparison import FlowComparison
from netbench.statistics.search_comparison import SearchComparison

_ROWS = 100  # at most, of a table
_WIDE = 24  # width of a difference in characters


def print_line(console: Console, text: str, style: str = "", *, soft_wrap: bool = False) -> None:
    """Print a text that may quote foreign text."""
    console.print(Text(visible(text), style=style), soft_wrap=soft_wrap)


def print_pair(console: Console, pair: Compared, emulated: Collection[str]) -> None:
    """Print the cells of a comparison in tables."""
    console.print()
    print_line(console, f"{pair.name} against {pair.base}: {pair.verdict}", "bold")
    comparison = pair.comparison
    if isinstance(comparison, FlowComparison):
        _print_flows(console, comparison, emulated)
        for text in pair.left_out:
            print_line(console, f"not compared: {text}")
        return
    tables: list[tuple[str, str, Iterable[ComparedRow]]]
    if isinstance(comparison, SearchComparison):
        title = f"Highest loads, {unit_of_searches(comparison.differences)} of each stream"
        tables = [(title, "Goal", map(search_row, comparison.differences))]
    else:
        lossy = [
            cell
            for cell in comparison.by_load
            if cell.loss is not None and (mean(cell.base.loss_ratio) or mean(cell.new.loss_ratio))
        ]
        tables = [
            ("Highest throughput at any load, Mbit/s (L1)", "Load", map(throughput_row, comparison.maxima)),
            ("Throughput by load, Mbit/s (L1)", "Load", map(throughput_row, comparison.by_load)),
            ("Loss by load, % of the frames offered", "Load", map(loss_row, lossy)),
        ]
    for title, load_heading, rows in tables:
        _print_rows(console, title, load_heading, list(rows), emulated)
    for text in pair.left_out:
        print_line(console, f"not compared: {text}")
    if pair.maxima is not None:
        unit = unit_of_searches(pair.maxima.differences)
        title = f"{section_texts('maxima-searched')[0]}, {unit} of each stream"
        _print_rows(console, title, "Goal", list(map(search_row, pair.maxima.differences)), emulated)


def _print_flows(console: Console, comparison: FlowComparison, emulated: Collection[str]) -> None:
    """Print the figures of flows; of too many, those that differ, or else the first ones."""
    rows = list(map(flow_row, comparison.differences))
    shown = rows
    if len(rows) > _ROWS:
        shown = ([row for row in rows if row.benefit is not None] or rows)[:_ROWS]
    table = TerminalTable()
    table.add_columns_of(texts=("UUT, scenario,\nworkload, load", "Figure"), numbers=("Base", "New"))
    table.add_columns_of(texts=("Difference",), numbers=("p",))
    previous = ""
    for row in shown:
        place = row.place
        clients = f", {place.sources} clients" if place.sources > 1 else ""
        names = (label(place.uut, emulated), place.scenario)
        heading = visible(f"{', '.join(names)},\n{place.workload}, {place.load}{clients}")
        if heading != previous:
            table.add_section()
        style = "" if row.benefit is None else "red" if row.benefit < 0 else "green"  # of a worse and a better one
        difference = Text(fill(row.difference, _WIDE), style=style)
        table.add_cells(heading if heading != previous else "", row.figure, row.base, row.new, difference, row.p)
        previous = heading
    console.print(table)
    _print_omitted(console, len(rows) - len(shown))


def _print_omitted(console: Console, omitted: int) -> None:
    if omitted:
        print_line(console, f"and {count(omitted, 'cell')} more, all of them with --html or --format json")


def _print_rows(
    console: Console, title: str, load_heading: str, rows: Sequence[ComparedRow], emulated: Collection[str]
) -> None:
    """Print the rows; of too many, those that differ, or else the first ones."""
    if not rows:
        return
    shown = rows
    if len(rows) > _ROWS:
        shown = ([row for row in rows if row.change is not None] or rows)[:_ROWS]
    scenarios, sources = {row.place.scenario for row in rows}, {row.place.sources for row in rows}
    has_p = any(row.p for row in rows)
    table = TerminalTable()
    of_flows = any(isinstance(row.place.traffic, Workload) for row in rows)
    table.add_columns_of(
        texts=("UUT", *(("Workload",) if of_flows else ())), numbers=() if of_flows else ("Frame\nsize",)
    )
    table.add_columns_of(texts=(load_heading,), numbers=("Base", "New"))
    table.add_columns_of(texts=("Difference",), numbers=("p",) if has_p else ())
    previous = ""
    for row in shown:
        parts = [label(row.place.uut, emulated)]
        parts += [row.place.scenario] if len(scenarios) > 1 else []
        parts += [count(row.place.sources, "source")] if len(sources) > 1 else []
        heading = visible(", ".join(parts))
        if heading != previous:
            table.add_section()
        difference = f"{row.difference} ({row.note})" if row.note else row.difference
        style = "" if row.change is None else "red" if row.change < 0 else "green"  # of a worse and a better one
        table.add_cells(
            heading if heading != previous else "",
            traffic_text(row.place.traffic),
            row.load.replace(" → ", "\n→ "),
            *(text.removesuffix(" %") for text in (row.base, row.new)),
            Text(fill(difference, _WIDE), style=style),
            *([row.p] if has_p else []),
        )
        previous = heading
    print_line(console, title, "italic")
    console.print(table)
    _print_omitted(console, len(rows) - len(shown))

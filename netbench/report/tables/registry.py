"""The registry of tables: the functions that make them, by name; columns that several tables share."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from netbench.model.frame_size import FrameSize
from netbench.model.workload import Workload, traffic_text
from netbench.report.blocks import Cell, Column, Kind, Table, table
from netbench.report.formats import mbps, mean
from netbench.report.model import ReportModel, uut_cell
from netbench.report.styles import Style
from netbench.statistics.compared_cells import ComparedCell, Searched
from netbench.statistics.groups import Group
from netbench.statistics.intervals import Interval

Item = TypeVar("Item")
Make = Callable[[ReportModel], Iterable[Table]]
Function = TypeVar("Function", bound=Make)


TABLES: dict[str, Make] = {}
"""The functions that yield the tables: one, or one for each view of the results; nothing where there is no data."""
EXPORTED: list[Make] = []
"""The tables that `netbench export --tables` writes."""


def report_table(name: str, *, is_exported: bool = False) -> Callable[[Function], Function]:
    """Register the decorated function under a name."""

    def register(make: Function) -> Function:
        TABLES[name] = make
        if is_exported:
            EXPORTED.append(make)
        return make

    return register


def tables_of(name: str, model: ReportModel) -> list[Table]:
    """The tables of this name."""
    return list(TABLES[name](model))


def number(title: str, cell: Callable[[Item], Cell | str]) -> Column[Item]:
    """A column of numbers."""
    return Column(title, cell, Kind.NUMBER)


def words(title: str, cell: Callable[[Item], Cell | str]) -> Column[Item]:
    """A column of longer texts."""
    return Column(title, cell, Kind.WORDS)


def means(
    title: str,
    read: Callable[[Item], Interval | None],
    show: Callable[[float | None], str],
    show_spread: Callable[[Interval | None], str],
) -> Column[Item]:
    """A column of means, with their spreads behind them."""
    return Column(title, lambda item: show(mean(read(item))), Kind.NUMBER, lambda item: show_spread(read(item)))


def uut_column(styles: Mapping[str, Style], uut_of: Callable[[Item], str]) -> Column[Item]:
    """The UUT with the colour of its figures."""
    return Column("UUT", lambda item: uut_cell(uut_of(item), styles))


def size_column(size_of: Callable[[Item], FrameSize]) -> Column[Item]:
    """The frame size with its unit."""
    return number("Frame size", lambda item: size_of(item).text(" B"))


def place_columns(
    styles: Mapping[str, Style],
    place_of: Callable[[Any], Group | ComparedCell | Searched] = lambda item: item,
    traffic_title: str = "Frame size",
) -> tuple[Column[Any], ...]:
    """UUT, scenario, sources, and frame size or workload of a measurement, by default the item itself."""

    def traffic_of(item: Any) -> FrameSize | Workload:  # noqa: ANN401 - any item that `place_of` accepts
        place = place_of(item)
        return place.frame_size if isinstance(place, Group) else place.traffic

    return (
        uut_column(styles, lambda item: place_of(item).uut),
        Column("Scenario", lambda item: place_of(item).scenario),
        number("Sources", lambda item: str(place_of(item).sources)),
        number(traffic_title, lambda item: traffic_text(traffic_of(item), " B")),
    )


def largest_first(items: Iterable[Item], size_of: Callable[[Item], FrameSize]) -> Sequence[Item]:
    """The items by frame size, the largest first; those of one size, with any packet, keep their order."""
    return sorted(items, key=lambda item: size_of(item).without_packet, reverse=True)


def block_of(group: Group) -> str:
    """The heading of the block of a group's frame size."""
    return group.frame_size.frames_text


def tables_of_views(
    model: ReportModel,
    rows_of: Callable[[Sequence[Group]], Iterable[Item]],
    group_of: Callable[[Item], Group],
    *columns: Column[Item],
    css: str = "results",
) -> Iterator[Table]:
    """A table for each view with rows, a block per frame size, the largest first: UUT, load, then these columns."""
    uut: Column[Item] = uut_column(model.styles, lambda item: group_of(item).uut)
    load: Column[Item] = Column("Load per source", lambda item: str(group_of(item).load))
    for view in model.views:
        if rows := largest_first(rows_of(view.groups), lambda item: group_of(item).frame_size):
            yield table(rows, uut, load, *columns, css=css, block=lambda item: block_of(group_of(item)), view=view.name)


def tables_of_groups(
    model: ReportModel, is_shown: Callable[[Group], object], *columns: Column[Group], css: str = "results"
) -> Iterator[Table]:
    """A table for each view with groups to show: UUT, load and offered load, then these columns."""
    offered: Column[Group] = number("Offered Mbit/s", lambda group: mbps(mean(group.offered_mbps)))
    valid: Column[Group] = number("Valid", lambda group: str(len(group.valid)))
    return tables_of_views(model, partial(filter, is_shown), lambda group: group, offered, *columns, valid, css=css)


def stream_label(stream: str, reverse_of: str) -> str:
    """The name of a stream, and the stream that it is the reverse of, if any."""
    return f"{stream}, reverse of {reverse_of}" if reverse_of else stream

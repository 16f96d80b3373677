"""Columns that several tables share, and tables with a row per group."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from netbench.model.frame_mix import FrameSize, frames_text, rising, size_text
from netbench.report.blocks import Cell, Column, Kind
from netbench.report.formats import mean
from netbench.report.model import uut_cell
from netbench.report.styles import Style
from netbench.statistics.groups import Group
from netbench.statistics.intervals import Interval

Item = TypeVar("Item")


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


def group_columns(styles: Mapping[str, Style], *, with_size: bool = True) -> tuple[Column[Group], ...]:
    """UUT, scenario, sources and frame size of a group."""
    return (
        uut_column(styles, lambda group: group.uut),
        Column("Scenario", lambda group: group.scenario),
        number("Sources", lambda group: str(group.sources)),
        *((size_column(lambda group: group.frame_size),) if with_size else ()),
    )


def size_column(size_of: Callable[[Item], FrameSize]) -> Column[Item]:
    """The frame size with its unit."""
    return number("Frame size", lambda item: size_text(size_of(item), " B"))


def largest_first(items: Iterable[Item], size_of: Callable[[Item], FrameSize]) -> Sequence[Item]:
    """The items by frame size, the largest first."""
    return sorted(items, key=lambda item: rising(size_of(item)), reverse=True)


def block_of(group: Group) -> str:
    """The heading of the block of a group's frame size."""
    return frames_text(group.frame_size)


def stream_label(stream: str, reverse_of: str) -> str:
    """The name of a stream, and the stream that it is the reverse of, if any."""
    return f"{stream}, reverse of {reverse_of}" if reverse_of else stream

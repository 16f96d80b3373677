"""The parts of a page as plain data; the templates in `templates/` turn them into HTML."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

from markupsafe import Markup

from netbench.report.sentences import glossary_of, heading_of, lead_of
from netbench.statistics.groups import grouped

Item = TypeVar("Item")
_OPEN_UP_TO = 12  # rows


class Kind(StrEnum):
    """The kind of a column; the value is the class of its cells on the page."""

    TEXT = ""
    NUMBER = "number"
    SPREAD = "spread"
    WORDS = "words"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table.

    `colour`: of a swatch before the text. `small`: a second line. `bar`: the start and the end of a bar, as parts of 1.
    `shade`: the percentage of ink behind the text. `badge`: the class of a mark.
    """

    text: str
    colour: str = ""
    small: str = ""
    tooltip: str = ""
    badge: str = ""
    css: str = ""
    bar: tuple[float, float] | None = None
    shade: float | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """A column of a table: its title, the cell of an item, and its kind.

    With a `spread`, another column for the spread of the mean follows it.
    """

    title: str
    cell: Callable[[Item], Cell | str]
    kind: Kind = Kind.TEXT
    spread: Callable[[Item], str] | None = None


@dataclass(frozen=True, slots=True)
class ColumnHeading:
    """The heading of a column as plain data: its key for programs, its title with the unit, its kind."""

    title: str
    kind: Kind

    @property
    def key(self) -> str:
        """The title in lower case, with underscores."""
        return re.sub("[^a-z0-9]+", "_", self.title.lower()).strip("_")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table; `block` is the heading of the rows that it belongs to."""

    cells: tuple[Cell, ...]
    css: str = ""
    block: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table as plain data; pages, files and comparisons render it.

    `name` and `caption` are those of its file, `view` the view of the results that it is about. `spans` are headings
    above several columns. The headings of blocks are on the page where `shows_blocks`.
    """

    template: ClassVar[str] = "table"

    columns: tuple[ColumnHeading, ...]
    rows: tuple[Row, ...]
    css: str = ""
    name: str = ""
    caption: str = ""
    view: str = ""
    spans: tuple[tuple[Cell, int], ...] = ()
    shows_blocks: bool = True

    @property
    def blocks(self) -> list[tuple[str, list[Row]]]:
        """The rows of each block, by its heading."""
        return list(grouped(self.rows, lambda row: row.block).items()) or [("", [])]

    def folded(self, noun: str, lead: str = "", many: str = "") -> "Folded":
        """The table under a summary with its number of rows; long ones start closed."""
        number = len(self.rows)
        text = f"{number:,} {noun if number == 1 else many or noun + 's'}"
        return Folded(f"{lead}{text}", [self], is_open=number <= _OPEN_UP_TO)


def table(
    columns: Iterable[Column[Item]],
    items: Iterable[Item],
    css: str = "",
    *,
    block: Callable[[Item], str] | None = None,
    row_css: Callable[[Item], str] = lambda _: "",
    shows_blocks: bool = True,
    name: str = "",
    caption: str = "",
    view: str = "",
) -> Table:
    """A table with a row per item; rows of the same `block` belong together."""
    every = list(columns)
    headings = []
    for column in every:
        headings.append(ColumnHeading(column.title, column.kind))
        if column.spread is not None:
            headings.append(ColumnHeading("±", Kind.SPREAD))
    rows = []
    for item in items:
        cells: list[Cell] = []
        for column in every:
            content = column.cell(item)
            cells.append(content if isinstance(content, Cell) else Cell(content))
            if column.spread is not None:
                cells.append(Cell(column.spread(item)))
        rows.append(Row(tuple(cells), row_css(item), block(item) if block else ""))
    return Table(tuple(headings), tuple(rows), css, name, caption, view, shows_blocks=shows_blocks)


@dataclass(frozen=True, slots=True)
class Note:
    """A paragraph. Text between backticks is code, `[text](#id)` a link."""

    template: ClassVar[str] = "note"
    text: str
    css: str = "note"


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a section."""

    template: ClassVar[str] = "heading"
    text: str
    level: int = 3
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list; the first part of each item is emphasised."""

    template: ClassVar[str] = "bullets"
    items: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Definitions:
    """Terms or names, each with its meaning or value."""

    template: ClassVar[str] = "definitions"
    items: Mapping[str, str]
    title: str = ""


@dataclass(frozen=True, slots=True)
class FigureMarkup:
    """The markup of a figure."""

    template: ClassVar[str] = "figure"
    html: Markup


@dataclass(frozen=True, slots=True)
class Option:
    """An entry of a choice; options of one `family` are listed together."""

    value: str
    title: str
    family: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """Parts of which one is shown at a time: by buttons for the whole page, or by a separate list with a `name`."""

    template: ClassVar[str] = "choice"
    label: str
    options: Sequence[Option]
    parts: Sequence[Sequence["Block"]]
    name: str = ""
    start: str = ""

    @property
    def entries(self) -> list[tuple[Option, Sequence["Block"]]]:
        """Each option with its part, the one shown at first with `start`."""
        return list(zip(self.options, self.parts, strict=True))

    @property
    def families(self) -> dict[str, list[Option]]:
        """The options by their family."""
        return grouped(self.options, lambda option: option.family)


@dataclass(frozen=True, slots=True)
class Folded:
    """Blocks under a summary that opens and closes them."""

    template: ClassVar[str] = "folded"
    summary: str
    parts: Sequence["Block"]
    is_open: bool = False
    badge: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """Blocks beside each other where there is room."""

    template: ClassVar[str] = "grid"
    parts: Sequence[Sequence["Block"]]
    css: str


Block = Note | Heading | Bullets | Definitions | FigureMarkup | Choice | Folded | Grid | Table


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a page: its title, its name in the contents, its lead, its blocks and the terms that it explains."""

    anchor: str
    title: str
    link: str
    lead: str
    blocks: Sequence[Block]
    is_open: bool = False
    terms: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_figures(self) -> bool:
        """Whether any block of the section is a figure."""
        return _has_figures(self.blocks)


def _has_figures(blocks: Iterable[Block]) -> bool:
    for block in blocks:
        if isinstance(block, FigureMarkup):
            return True
        parts: Iterable[Iterable[Block]] = ()
        if isinstance(block, Choice | Grid):
            parts = block.parts
        elif isinstance(block, Folded):
            parts = (block.parts,)
        if any(_has_figures(part) for part in parts):
            return True
    return False


def section(
    anchor: str, blocks: Iterable[Block], *, is_open: bool = False, lead: str | None = None, **values: object
) -> Section:
    """A section with title, lead and glossary from the data files; `values` are filled into both."""
    title, link = heading_of(anchor, **values)
    text = lead_of(anchor, **values) if lead is None else lead
    return Section(anchor, title, link, text, list(blocks), is_open, glossary_of(anchor))


def under_titles(parts: Sequence[tuple[str, Sequence[Block]]], level: int = 3) -> list[Block]:
    """Parts one below the other, each under its title; a single one has no title."""
    if len(parts) == 1:
        return list(parts[0][1])
    return [block for title, blocks in parts for block in (Heading(title, level), *blocks)]

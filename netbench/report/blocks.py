"""The parts of a page as plain data; the templates in `templates/` turn them into HTML."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from markupsafe import Markup

from netbench.report.formats import count, glossary_of, section_texts
from netbench.statistics.groups import grouped

Item = TypeVar("Item")
_OPEN_UP_TO = 12  # rows


class Block:
    """A part of a section; the template in `blocks.html` that bears its class's name turns it into HTML."""

    __slots__ = ()

    @property
    def template(self) -> str:
        """The name of its template."""
        return type(self).__name__.lower()


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
    """The heading of a column: its title with the unit, its kind."""

    title: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a table; `block` is the heading of the rows that it belongs to."""

    cells: tuple[Cell, ...]
    css: str = ""
    block: str = ""


@dataclass(frozen=True, slots=True)
class Table(Block):
    """A table as plain data; pages, files and comparisons render it.

    `name` and `caption` are those of its file, `view` the view of the results that it is about. `spans` are headings
    above several columns. The headings of blocks are on the page where `shows_blocks`. Files have them in a first
    column, under the title `block_title`, if there is one.
    """

    columns: tuple[ColumnHeading, ...]
    rows: tuple[TableRow, ...]
    css: str = ""
    name: str = ""
    caption: str = ""
    view: str = ""
    spans: tuple[tuple[Cell, int], ...] = ()
    shows_blocks: bool = True
    block_title: str = ""

    @property
    def blocks(self) -> list[tuple[str, list[TableRow]]]:
        """The rows of each block, by its heading."""
        return list(grouped(self.rows, lambda row: row.block).items()) or [("", [])]

    def folded(self, noun: str, lead: str = "", badge: str = "") -> "Folded":
        """The table under a summary with its number of rows; long ones start closed."""
        number = len(self.rows)
        return Folded(f"{lead}{count(number, noun)}", [self], is_open=number <= _OPEN_UP_TO, badge=badge)


def table(
    items: Iterable[Item],
    *columns: Column[Item],
    css: str = "",
    block: Callable[[Item], str] | None = None,
    row_css: Callable[[Item], str] = lambda _: "",
    shows_blocks: bool = True,
    block_title: str = "",
    name: str = "",
    caption: str = "",
    view: str = "",
) -> Table:
    """A table with a row per item; rows of the same `block` belong together."""
    headings: list[ColumnHeading] = []
    cells_of: list[Callable[[Item], Cell | str]] = []
    for column in columns:
        headings.append(ColumnHeading(column.title, column.kind))
        cells_of.append(column.cell)
        if column.spread is not None:
            headings.append(ColumnHeading("±", Kind.SPREAD))
            cells_of.append(column.spread)
    rows = []
    for item in items:
        contents = [cell_of(item) for cell_of in cells_of]
        cells = tuple(Cell(content) if isinstance(content, str) else content for content in contents)
        rows.append(TableRow(cells, row_css(item), block(item) if block else ""))
    titles = tuple(headings)
    return Table(titles, tuple(rows), css, name, caption, view, shows_blocks=shows_blocks, block_title=block_title)


@dataclass(frozen=True, slots=True)
class Note(Block):
    """A paragraph. Text between backticks is code, `[text](#id)` a link."""

    text: str
    css: str = "note"


@dataclass(frozen=True, slots=True)
class Heading(Block):
    """A heading within a section."""

    text: str
    level: int = 3
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Bullets(Block):
    """A list; the first part of each item is emphasised."""

    items: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Definitions(Block):
    """Terms or names, each with its meaning or value."""

    items: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FigureMarkup(Block):
    """The markup of a figure, in the `view` of that name (empty: in no view); `uut` is set where each UUT has one."""

    html: Markup
    view: str = ""
    uut: str = ""


@dataclass(frozen=True, slots=True)
class Option:
    """An entry of a choice; options of one `family` are listed together."""

    value: str
    title: str
    family: str = ""


@dataclass(frozen=True, slots=True)
class Choice(Block):
    """Parts of which one is shown at a time: by buttons for the whole page, or by a separate list with a `name`."""

    label: str
    options: Sequence[Option]
    parts: Sequence[Sequence[Block]]
    name: str = ""
    start: str = ""

    @property
    def entries(self) -> list[tuple[Option, Sequence[Block]]]:
        """Each option with its part, the one shown at first with `start`."""
        return list(zip(self.options, self.parts, strict=True))

    @property
    def families(self) -> dict[str, list[Option]]:
        """The options by their family."""
        return grouped(self.options, lambda option: option.family)


@dataclass(frozen=True, slots=True)
class Folded(Block):
    """Blocks under a summary that opens and closes them."""

    summary: str
    parts: Sequence[Block]
    is_open: bool = False
    badge: str = ""


@dataclass(frozen=True, slots=True)
class Grid(Block):
    """Blocks beside each other where there is room."""

    parts: Sequence[Sequence[Block]]
    css: str


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


def _has_figures(part: Block | Sequence[Block]) -> bool:
    inner = part if isinstance(part, Sequence) else getattr(part, "parts", ())
    return isinstance(part, FigureMarkup) or any(map(_has_figures, inner))


def section(
    anchor: str, blocks: Iterable[Block], *, is_open: bool = False, lead: str | None = None, **values: object
) -> Section:
    """A section with title, lead and glossary from the data files; `values` are filled into both."""
    title, link, usual_lead = section_texts(anchor, **values)
    text = usual_lead if lead is None else lead
    return Section(anchor, title, link, text, list(blocks), is_open, glossary_of(anchor))


def under_titles(parts: Sequence[tuple[str, Sequence[Block]]], level: int = 3) -> list[Block]:
    """Parts one below the other, each under its title; a single one has no title."""
    if len(parts) == 1:
        return list(parts[0][1])
    return [block for title, blocks in parts for block in (Heading(title, level), *blocks)]

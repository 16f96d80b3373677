"""HTML put together so that text from topologies, profiles and the environment is always escaped."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Generic, TypeVar

_OPEN_UP_TO = 12  # rows

Item = TypeVar("Item")


class Html(str):
    """Markup, to be put into a page as it is. Any other `str` is text and gets escaped."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """A column of a table: its heading, what it says of an item, and the class of its cells (`number` is flush right).

    With a `spread` there is one more behind it, for that of a mean.
    """

    title: str
    cell: Callable[[Item], str]
    css: str = ""
    spread: Callable[[Item], str] | None = None


def html(value: str) -> Html:
    """Text as markup; markup as it is."""
    return value if isinstance(value, Html) else Html(escape(value))


def join(parts: Iterable[str], between: str = "") -> Html:
    """Markup and text one after the other."""
    return Html(html(between).join(html(part) for part in parts))


def element(tag: str, *content: str, **attributes: str) -> Html:
    """An element; the attribute `class` is written `css`, an underscore in a name stands for a hyphen."""
    names = {name: "class" if name == "css" else name.replace("_", "-") for name in attributes}
    written = "".join(f' {names[name]}="{escape(value)}"' for name, value in attributes.items())
    return Html(f"<{tag}{written}>{join(content)}</{tag}>")


def table(
    columns: Iterable[Column[Item]],
    bodies: Iterable[Iterable[Item]] | Mapping[str, Iterable[Item]],
    css: str = "",
    row_css: Callable[[Item], str] = lambda _: "",
) -> Html:
    """A table with a row per item, whose first cell heads it, in a frame that scrolls where it is wide.

    The items of a body belong together; a mapping has them under headings.
    """
    every = list(_with_spreads(columns))
    titles = element("tr", *(element("th", column.title, scope="col", css=column.css) for column in every))
    parts = [element("thead", titles)]
    for heading, items in bodies.items() if isinstance(bodies, Mapping) else (("", items) for items in bodies):
        rows = [_row(every, item, row_css(item)) for item in items]
        if heading:
            block = element("th", heading, colspan=str(len(every)), scope="rowgroup")
            rows.insert(0, element("tr", block, css="block"))
        parts.append(element("tbody", *rows))
    return element("div", element("table", *parts, css=css), css="wide")


def folded(summary: str, rows: int, content: Html) -> Html:
    """Content under a summary that opens and closes it; it starts closed where it has many rows."""
    start = {"open": "open"} if rows <= _OPEN_UP_TO else {}
    return element("details", element("summary", summary), content, **start)


def _with_spreads(columns: Iterable[Column[Item]]) -> Iterator[Column[Item]]:
    for column in columns:
        yield column
        if column.spread is not None:
            yield Column("±", column.spread, "spread")


def _row(columns: list[Column[Item]], item: Item, css: str) -> Html:
    first, *others = columns
    cells = (element("td", column.cell(item), css=column.css) for column in others)
    return element("tr", element("th", first.cell(item), scope="row"), *cells, css=css)

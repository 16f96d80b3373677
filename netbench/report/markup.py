"""HTML put together so that text from topologies, profiles and the environment is always escaped."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape


class Html(str):
    """Markup, to be put into a page as it is. Any other `str` is text and gets escaped."""

    __slots__ = ()


_OPEN_UP_TO = 12  # rows


@dataclass(frozen=True, slots=True)
class Column:
    """The heading of a table column and the class of its cells (`number` is set flush right)."""

    title: str
    css: str = ""


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


def table(columns: Sequence[Column], bodies: Iterable[Iterable[Html]], css: str = "") -> Html:
    """A table with these headings, in a frame that scrolls where it is wide; each body is rows made by `row`."""
    head = element(
        "tr",
        *(element("th", column.title, scope="col", css=column.css) for column in columns),
    )
    whole = element("table", element("thead", head), *(element("tbody", *rows) for rows in bodies), css=css)
    return element("div", whole, css="wide")


def row(columns: Sequence[Column], cells: Sequence[str], css: str = "") -> Html:
    """A row of a table; the first cell heads it."""
    first, *others = cells
    return element(
        "tr",
        element("th", first, scope="row"),
        *(element("td", cell, css=column.css) for column, cell in zip(columns[1:], others, strict=True)),
        css=css,
    )


def folded(summary: str, rows: int, content: Html) -> Html:
    """Content under a summary that opens and closes it; it starts closed where it has many rows."""
    start = {"open": "open"} if rows <= _OPEN_UP_TO else {}
    return element("details", element("summary", summary), content, **start)

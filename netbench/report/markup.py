"""HTML put together so that text from topologies, profiles and the environment is always escaped.

`Html` is markup, to be put into a page as it is; any other `str` is text, of which `html` makes markup.
"""

import gzip
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from markupsafe import Markup, escape

Html = Markup
html = escape
_PACKED = re.compile(r'<script type="application/gzip">([^<]*)</script>')
_LESS = "\\u003c"
_OPEN_UP_TO = 12  # rows

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class TableColumn(Generic[Item]):
    """A column of a table: its heading, the cell of an item, and the class of its cells (`number` is flush right).

    With a `spread`, another column for the spread of the mean follows it.
    """

    title: str
    cell: Callable[[Item], str]
    css: str = ""
    spread: Callable[[Item], str] | None = None


def join(parts: Iterable[str], between: str = "") -> Html:
    """Markup and text one after the other, with markup or text between."""
    # Not Markup.join(), which takes several times as long: a page is made of very many small parts.
    return Html(str(html(between)).join([part if type(part) is Html else html(part) for part in parts]))


def element(tag: str, *content: str, **attributes: str) -> Html:
    """An element; the attribute `class` is written `css`, an underscore in a name stands for a hyphen."""
    names = {name: "class" if name == "css" else name.replace("_", "-") for name in attributes}
    written = "".join([f' {names[name]}="{html(value)}"' for name, value in attributes.items()])
    return Html(f"<{tag}{written}>{join(content)}</{tag}>")


def table(
    columns: Iterable[TableColumn[Item]],
    bodies: Iterable[Iterable[Item]] | Mapping[str, Iterable[Item]],
    css: str = "",
    row_css: Callable[[Item], str] = lambda _: "",
) -> Html:
    """A table with a row per item, whose first cell heads it, in a frame that scrolls where it is wide.

    The items of a body belong together; a mapping has them under headings.
    """
    every = list(with_spreads(columns))
    titles = element("tr", *(element("th", column.title, scope="col", css=column.css) for column in every))
    parts = [element("thead", titles)]
    for heading, items in bodies.items() if isinstance(bodies, Mapping) else (("", items) for items in bodies):
        rows = [_row(every, item, row_css(item)) for item in items]
        if heading:
            block = element("th", heading, colspan=str(len(every)), scope="rowgroup")
            rows.insert(0, element("tr", block, css="block"))
        parts.append(element("tbody", *rows))
    return element("div", element("table", *parts, css=css), css="wide")


def packed(content: object) -> Html:
    """JSON content, compressed, for parts of the page that are hidden at first. The page's script unpacks it.

    Parts of the markup that are already packed are compressed with it, not twice.
    """
    if isinstance(content, str):
        content = _PACKED.sub(lambda inner: _json_script(gzip.decompress(b64decode(inner[1])).decode()), content)
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return element("script", b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode(), type="application/gzip")


def _json_script(text: str) -> str:
    # So that a browser does not take text in it for the end of the element.
    return f'<script type="application/json">{text.replace("<", _LESS)}</script>'


def folded(summary: str, rows: int, content: Html) -> Html:
    """Content under a summary that opens and closes it; it starts closed, and is packed, where it has many rows."""
    if rows <= _OPEN_UP_TO:
        return element("details", element("summary", summary), content, open="open")
    return element("details", element("summary", summary), packed(content))


def with_spreads(columns: Iterable[TableColumn[Item]]) -> Iterator[TableColumn[Item]]:
    """The columns of a table, including those of spreads."""
    for column in columns:
        yield column
        if column.spread is not None:
            yield TableColumn("±", column.spread, "spread")


def _row(columns: list[TableColumn[Item]], item: Item, css: str) -> Html:
    first, *others = columns
    cells = (element("td", column.cell(item), css=column.css) for column in others)
    return element("tr", element("th", first.cell(item), scope="row"), *cells, css=css)

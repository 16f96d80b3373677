"""The renderer of all pages: plain data in, one HTML file out that needs no network."""

import gzip
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.resources import files

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template, select_autoescape
from markupsafe import Markup, escape

from netbench.report.blocks import Section
from netbench.report.finding import Finding
from netbench.report.formats import sentence
from netbench.report.styles import css, light

_PACKED = re.compile(r'<script type="application/gzip">([^<]*)</script>')
_PACKED_FROM = 12_000  # characters of a hidden part: smaller ones stay readable without JavaScript
_CODE = re.compile("`([^`]+)`")
_LINK = re.compile(r"\[([^\]]+)\]\((#[a-z0-9-]+|https://doi\.org/[^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class PageContent:
    """The content of a page.

    `headline`: the verdict, a line each. `state`: the class of the status line (`suspicious`, `invalid`, or empty).
    `chart`: the main chart of the first screen. `has_frame_rates`: readers can see rates in frames/s.
    """

    title: str
    byline: str
    headline: Sequence[str]
    sections: Sequence[Section]
    state: str = ""
    chart: Markup = field(default_factory=Markup)
    has_frame_rates: bool = True
    findings: Sequence[Finding] = ()
    status: str = ""
    remarks: Sequence[str] = ()
    absent: str = ""


def rendered(content: PageContent) -> Iterator[str]:
    """Yield the page in parts: in one string, a few special characters make every character take two bytes."""
    has_figures = content.chart or any(part.has_figures for part in content.sections)
    yield from template("page.html").generate(
        page=content,
        anchors={section.anchor for section in content.sections},
        version=version("netbench"),
        colours=Markup(css()),
        light=Markup(json.dumps(light())),
        plotly=_plotly() if has_figures else "",
        no_script=sentence("status.no_script"),
    )


@cache
def template(name: str) -> Template:
    """A template of pages, or of parts of them."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("netbench.report", folder) for folder in ("templates", "assets")]),
        autoescape=select_autoescape(["html", "xml"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"packed": packed, "inline": inline}
    return environment.get_template(name)


def inline(text: str) -> Markup:
    """Text as markup: code between backticks and links to parts of the page."""
    linked = _LINK.sub(r'<a href="\2">\1</a>', str(escape(text)))
    return Markup(_CODE.sub(r"<code>\1</code>", linked))


def packed(content: str) -> Markup:
    """A hidden part of the page, compressed if it is large; the page's script unpacks it.

    Parts that are already packed are compressed with it, not twice.
    """
    if len(content) < _PACKED_FROM:
        return Markup(content)
    text = json.dumps(_PACKED.sub(_unpacked, str(content)), ensure_ascii=False)
    return Markup(f'<script type="application/gzip">{gzipped(text)}</script>')


def gzipped(text: str) -> str:
    """Text compressed for a page, whose script unpacks it."""
    return b64encode(gzip.compress(text.encode(errors="surrogatepass"), 6, mtime=0)).decode()


def _unpacked(match: re.Match[str]) -> str:
    # Escaped, so that a browser does not take text in it for the end of the element.
    text = gzip.decompress(b64decode(match[1])).decode(errors="surrogatepass").replace("<", "\\u003c")
    return f'<script type="application/json">{text}</script>'


def _plotly() -> Markup:
    """The plotly library, compressed: `charts.js` unpacks it."""
    library = files("netbench.report").joinpath("assets/plotly/plotly-basic.min.js.gz").read_bytes()
    return Markup(f'<script type="application/gzip" id="plotly">{b64encode(library).decode()}</script>')

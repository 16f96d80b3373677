"""The template of all pages, and the content that is filled in."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from jinja2 import Environment, PackageLoader, StrictUndefined

from netbench.report import palette
from netbench.report.markup import Html


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a page; text that is no markup is escaped."""

    title: str
    version: str
    byline: str
    verdict: Html
    sections: Iterable[Html]
    contents: Iterable[Html] = ()
    about: str = ""
    findings: Iterable[Html] = field(default=())


def filled_in(content: Content) -> Iterator[str]:
    """Yield the page in parts: in one string, a few special characters make every character take two bytes."""
    loader = PackageLoader("netbench.report", "assets")
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    named = {name: getattr(content, name) for name in Content.__slots__}
    light = Html(json.dumps(dict(palette.light())))
    yield from pages.get_template("page.html").generate(named, colours=Html(palette.css()), light=light)

"""The file that pages are made from, and what is left open in it."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from string import Template

from netbench.report import palette
from netbench.report.markup import Html, element, html, join

_SECTIONS = "$sections"


@dataclass(frozen=True, slots=True)
class Content:
    """What a page says; text of it that is no markup is escaped."""

    title: str
    version: str
    byline: str
    verdict: Html
    sections: Iterable[Html]
    contents: Iterable[Html] = ()
    findings: Iterable[Html] = field(default=())


def filled_in(content: Content) -> Iterator[str]:
    """The page part by part: one in memory whole would take two bytes for each sign, because of a few of them."""
    findings = [element("li", finding) for finding in content.findings]
    said = {
        "title": html(content.title),
        "version": html(content.version),
        "byline": html(content.byline),
        "verdict": html(content.verdict),
        "contents": join(content.contents),
        "findings": element("ol", *findings, css="findings") if findings else "",
        "colours": palette.css(),
        "style": _asset("page.css"),
        "script": _asset("page.js"),
        "light": json.dumps(dict(palette.light())),
    }
    before, after = _asset("page.html").split(_SECTIONS)
    yield Template(before).substitute(said)
    for part in content.sections:
        yield f"{html(part)}\n"
    yield Template(after).substitute(said)


def _asset(name: str) -> str:
    return files("netbench.report").joinpath("assets", name).read_text(encoding="utf-8")

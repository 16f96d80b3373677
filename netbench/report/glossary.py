"""The terms and numbers of the report, explained by the section in which they occur first."""

from functools import cache
from importlib.resources import files

from netbench.config.document import yaml_value
from netbench.report.markup import Html, element, join


def definitions(section: str) -> Html:
    """The terms of a section with their meanings, folded; nothing for a section without any."""
    words = _glossary().get(section)
    if not words:
        return Html()
    meanings = element("dl", *(join((element("dt", word), element("dd", words[word]))) for word in words))
    return element("details", element("summary", f"Glossary: {', '.join(words)}"), meanings, css="words")


@cache
def _glossary() -> dict[str, dict[str, str]]:
    text = files("netbench.report").joinpath("glossary.yaml").read_text(encoding="utf-8")
    return dict(yaml_value(text))

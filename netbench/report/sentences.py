"""The sentences of reports, read from `sentences.yaml` and `glossary.yaml`: page, terminal and exports share them."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from netbench.config.document import yaml_value


def sentence(key: str, /, **values: object) -> str:
    """The sentence of this key (`findings.no_loss`) with its values filled in."""
    group, _, name = key.partition(".")
    return str(_data("sentences.yaml")[group][name]).format(**values)


def heading_of(anchor: str, **values: object) -> tuple[str, str]:
    """The title of a section, and its name in the table of contents."""
    texts = _data("sentences.yaml")["sections"][anchor]
    title = texts["title"].format(**values)
    return title, texts.get("link", title)


def lead_of(anchor: str, **values: object) -> str:
    """The first sentences of a section."""
    return str(_data("sentences.yaml")["sections"][anchor].get("lead", "")).format(**values)


def glossary_of(anchor: str) -> Mapping[str, str]:
    """The terms that a section explains, with their meanings."""
    return dict(_data("glossary.yaml").get(anchor) or {})


@cache
def _data(name: str) -> dict[str, dict[str, Any]]:
    text = files("netbench.report").joinpath(name).read_text(encoding="utf-8")
    return dict(yaml_value(text))

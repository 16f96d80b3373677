"""The parts that the page is made of: sections, figures in them, and content of which one is shown at a time."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from netbench.report.chart import Chart
from netbench.report.figure import figure
from netbench.report.formats import count
from netbench.report.glossary import definitions
from netbench.report.markup import Html, element, join, packed
from netbench.report.published import PublishedPaper
from netbench.report.styles import Style
from netbench.statistics.groups import Group, grouped

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page, which a reader unfolds if it starts folded; `link` is its name in the contents."""

    anchor: str
    link: str
    html: Html


@dataclass(frozen=True, slots=True)
class View:
    """The part of the results shown at a time: one scenario and number of sources."""

    name: str
    title: str
    groups: list[Group]


@dataclass(frozen=True, slots=True)
class Apart(Generic[Item]):
    """What is in one figure of several, as it comes from UUTs in one setting; `name` is that of the figure."""

    setting: str
    items: list[Item]
    name: str


@dataclass(frozen=True, slots=True)
class Option:
    """One of several parts of the page of which a reader picks one; options of one `family` stand together."""

    value: str
    title: str
    family: str = ""


def section(anchor: str, title: str, *content: Html, link: str = "", is_open: bool = False) -> Section:
    """A section that links can lead to, its words explained in it; it starts folded unless it `is_open`.

    `link` is its name in the contents where the title is too long for that.
    """
    heading = element("h2", title)
    if is_open:
        whole = element("section", heading, *content, definitions(anchor), id=anchor)
    else:
        whole = element("details", element("summary", heading), *content, definitions(anchor), id=anchor, css="section")
    return Section(anchor, link or title, whole)


def note(*text: str) -> Html:
    """What a reader should know before looking at what follows."""
    return element("p", *text, css="note")


def reference(said: str, paper: PublishedPaper) -> Html:
    """What is said of a paper, and where it is found."""
    return note(said, paper.citation, " DOI ", element("a", paper.doi, href=f"https://doi.org/{paper.doi}"))


def views(groups: Sequence[Group]) -> list[View]:
    """The views of some groups, scenarios in the order they come, numbers of sources rising."""
    scenarios = list(dict.fromkeys(group.scenario for group in groups))
    parts = grouped(groups, lambda group: (group.scenario, group.sources))
    in_order = sorted(parts, key=lambda part: (scenarios.index(part[0]), part[1]))
    titles = [_title(*part, parts) for part in in_order]
    return [View(name, title, parts[part]) for name, title, part in zip(_names(titles), titles, in_order, strict=True)]


def chosen(choice: Sequence[View], content: Callable[[View], Html]) -> Html:
    """The content of each view behind buttons that choose one; without buttons when there is only one.

    All but the first are packed.
    """
    if len(choice) == 1:
        return content(choice[0])
    buttons = [
        element("button", view.title, type="button", data_view=view.name, aria_pressed="false") for view in choice
    ]
    first, *others = choice
    parts = [
        element("div", content(first), css="view", data_view=first.name),
        *(element("div", packed(content(view)), css="view", data_view=view.name, hidden="hidden") for view in others),
    ]
    row = element("div", *buttons, css="choice", role="group", aria_label="Scenario and number of sources")
    return join((row, *parts))


def picked(name: str, label: str, options: Sequence[Option], parts: Sequence[Html], start: str) -> Html:
    """The part of the option that is picked from a list, first that of value `start`; just the part where only one is.

    All others are packed. `name` tells the list from others of the page.
    """
    if len(options) == 1:
        return parts[0]
    entries = []
    for family, own in grouped(options, lambda option: option.family).items():
        chosen_first = {option.value: {"selected": "selected"} for option in own if option.value == start}
        named = [element("option", one.title, value=one.value, **chosen_first.get(one.value, {})) for one in own]
        entries.append(element("optgroup", *named, label=family) if family else join(named))
    pick = element("label", label, " ", element("select", *entries, data_pick=name), css="pick")
    shown = [
        element("div", part, css="picked", data_pick=name, data_value=option.value)
        if option.value == start
        else element("div", packed(part), css="picked", data_pick=name, data_value=option.value, hidden="hidden")
        for option, part in zip(options, parts, strict=True)
    ]
    return join((pick, *shown))


def drawn(charts: Chart | Mapping[str, Chart], name: str) -> Html:
    """A figure as markup, of a chart or of several that are the same one on other scales."""
    return figure(name, {"": charts} if isinstance(charts, Chart) else charts)


def drawn_apart(
    items: Sequence[Item],
    uut_of: Callable[[Item], str],
    looks: Mapping[str, Style],
    draw: Callable[[Sequence[Item], Mapping[str, Style]], Chart | Mapping[str, Chart]],
    name: str,
) -> Html:
    """A figure of what UUTs in the same setting did, for each setting: a reader compares what is in one figure."""
    parts = apart(items, uut_of, looks, name)
    if len(parts) == 1:
        return drawn(draw(parts[0].items, looks), name)
    return join(join((element("h4", one.setting), drawn(draw(one.items, looks), one.name))) for one in parts)


def apart(
    items: Sequence[Item], uut_of: Callable[[Item], str], looks: Mapping[str, Style], name: str
) -> list[Apart[Item]]:
    """The items of UUTs in each setting, at least one part, and what their figure is called."""
    by_setting = sorted(grouped(items, lambda item: looks[uut_of(item)].setting).items())
    if len(by_setting) <= 1:
        return [Apart("", list(items), name)]
    return [Apart(str(setting), own, f"{name}-{place}") for place, (setting, own) in enumerate(by_setting)]


def by_title(parts: Sequence[tuple[str, Html]]) -> Html:
    """Parts one below the other, each under its title."""
    return join(join((element("h3", title), part)) for title, part in parts)


def _names(titles: Sequence[str]) -> list[str]:
    """A name for each title that ids and files can have, and no other one has."""
    names: list[str] = []
    for place, title in enumerate(titles):
        name = re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")
        names.append(name if name and name not in names else f"{name}-{place}".strip("-"))
    return names


def _title(scenario: str, sources: int, parts: Collection[tuple[str, int]]) -> str:
    """What tells a view from the others."""
    if len({other for other, _ in parts}) == 1:
        return count(sources, "source")
    several = len({number for other, number in parts if other == scenario}) > 1
    return f"{scenario}, {count(sources, 'source')}" if several else scenario

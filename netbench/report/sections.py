"""The building blocks of the page: sections, figures in them, and content that is shown one view at a time."""

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
    """A section of the page, which may start folded; `link` is its name in the contents."""

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
    """The items of one figure of several, all of UUTs in one setting; `name` is that of the figure."""

    setting: str
    items: list[Item]
    name: str


@dataclass(frozen=True, slots=True)
class Option:
    """An entry of a list that selects one part of the page; options of one `family` are listed together."""

    value: str
    title: str
    family: str = ""


def section(anchor: str, title: str, *content: Html, link: str = "", is_open: bool = False) -> Section:
    """A section with an anchor and definitions of its terms; it starts folded unless it `is_open`.

    `link` is its name in the contents where the title is too long for that.
    """
    heading = element("h2", title)
    if is_open:
        whole = element("section", heading, *content, definitions(anchor), id=anchor)
    else:
        whole = element("details", element("summary", heading), *content, definitions(anchor), id=anchor, css="section")
    return Section(anchor, link or title, whole)


def note(*text: str) -> Html:
    """A note, such as that above a figure or table."""
    return element("p", *text, css="note")


def reference(said: str, paper: PublishedPaper) -> Html:
    """A note about a paper, with its citation and DOI."""
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
    """A list of options and the part of the selected one, at first that of value `start`; a single part has no list.

    All other parts are packed. `name` identifies the list on the page.
    """
    if len(options) == 1:
        return parts[0]
    entries = []
    for family, members in grouped(options, lambda option: option.family).items():
        chosen_first = {option.value: {"selected": "selected"} for option in members if option.value == start}
        named = [
            element("option", option.title, value=option.value, **chosen_first.get(option.value, {}))
            for option in members
        ]
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
    """A figure as markup, of a chart or of the same chart on several scales."""
    return figure(name, {"": charts} if isinstance(charts, Chart) else charts)


def drawn_apart(
    items: Sequence[Item],
    uut_of: Callable[[Item], str],
    looks: Mapping[str, Style],
    draw: Callable[[Sequence[Item], Mapping[str, Style]], Chart | Mapping[str, Chart]],
    name: str,
) -> Html:
    """A figure for each setting, because readers compare the UUTs within one figure."""
    parts = apart(items, uut_of, looks, name)
    if len(parts) == 1:
        return drawn(draw(parts[0].items, looks), name)
    return join(join((element("h4", part.setting), drawn(draw(part.items, looks), part.name))) for part in parts)


def apart(
    items: Sequence[Item], uut_of: Callable[[Item], str], looks: Mapping[str, Style], name: str
) -> list[Apart[Item]]:
    """The items by the setting of their UUTs, each part with the name of its figure; at least one part."""
    by_setting = sorted(grouped(items, lambda item: looks[uut_of(item)].setting).items())
    if len(by_setting) <= 1:
        return [Apart("", list(items), name)]
    return [Apart(str(setting), members, f"{name}-{place}") for place, (setting, members) in enumerate(by_setting)]


def by_title(parts: Sequence[tuple[str, Html]]) -> Html:
    """Parts one below the other, each under its title."""
    return join(join((element("h3", title), part)) for title, part in parts)


def _names(titles: Sequence[str]) -> list[str]:
    """A unique name for each title, valid in ids and file names."""
    names: list[str] = []
    for place, title in enumerate(titles):
        name = re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")
        names.append(name if name and name not in names else f"{name}-{place}".strip("-"))
    return names


def _title(scenario: str, sources: int, parts: Collection[tuple[str, int]]) -> str:
    """A title that distinguishes a view from the others."""
    if len({name for name, _ in parts}) == 1:
        return count(sources, "source")
    several = len({number for name, number in parts if name == scenario}) > 1
    return f"{scenario}, {count(sources, 'source')}" if several else scenario

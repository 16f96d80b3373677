"""The registry of figures: each is a name, a title, the results that it requires, and its charts as plain data.

Figures are registered under the entry points `netbench.figures`, the built-in ones too.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, TypeVar

from netbench.config import plugins
from netbench.report.figures.chart import Chart
from netbench.report.styles import Style
from netbench.statistics.groups import Group, grouped

if TYPE_CHECKING:
    from netbench.report.model import ReportModel

Item = TypeVar("Item")
_CHART_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
Draw = Callable[[Sequence[Item], Mapping[str, Style]], Chart]


@dataclass(frozen=True, slots=True)
class NamedChart:
    """A chart of a figure. Its `name` is that of its file, and its id on the page.

    On the page it is under its `heading`, in the `view` of that name (empty: in no view); `uut` is set where each UUT
    has a chart.
    """

    name: str
    chart: Chart
    view: str = ""
    heading: str = ""
    uut: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A kind of figure. `requirement` returns why the results do not allow it; empty if they do."""

    name: str
    title: str
    requirement: Callable[["ReportModel"], str]
    build: Callable[["ReportModel"], Iterable[NamedChart]]


def figures() -> dict[str, Figure]:
    """All registered figures by name."""
    return plugins.installed(plugins.FIGURES).kinds


def charts_of(model: "ReportModel", names: Iterable[str] = ()) -> Iterator[NamedChart]:
    """The charts of all figures that the results allow, or of those with these names.

    A figure of another package that fails or cannot be imported has none; its error is put into `model.broken_figures`.
    """
    registered, names_in_use = figures(), set[str]()
    for name, why in plugins.installed(plugins.FIGURES).broken.items():
        model.broken_figures.setdefault(name, why)
    own_first = sorted(registered, key=lambda name: not plugins.is_built_in(plugins.FIGURES, name))
    for name in names or own_first:
        try:
            charts = [] if registered[name].requirement(model) else list(registered[name].build(model))
            if not plugins.is_built_in(plugins.FIGURES, name):
                _refuse_wrong_charts(charts, names_in_use)
        # Third-party code may raise anything, even SystemExit; the other figures must still appear.
        except (Exception, SystemExit) as error:
            if plugins.is_built_in(plugins.FIGURES, name):
                raise
            package = plugins.origin(plugins.FIGURES, name)
            model.broken_figures[name] = f"package {package} failed with {type(error).__name__}: {error}"
        else:
            names_in_use.update(chart.name for chart in charts)
            yield from charts


def _refuse_wrong_charts(charts: Iterable[object], names_in_use: Collection[str]) -> None:
    """Raise TypeError for other objects than charts; ValueError for NaN, and for taken or unsuitable file names."""
    taken = set(names_in_use)
    for named in charts:
        if not isinstance(named, NamedChart) or not isinstance(named.chart, Chart):
            raise TypeError(f"build() returned {named!r} instead of a NamedChart with a Chart")
        if not _CHART_NAME.fullmatch(named.name):
            raise ValueError(f"the name {named.name!r} of a chart is no file name of letters, digits, dots and dashes")
        if named.name in taken:
            raise ValueError(f"two charts have the name {named.name}")
        taken.add(named.name)
        marks = named.chart.marks
        values = (value for mark in marks for value in (mark.x, mark.y, mark.low, mark.high, *mark.numbers.values()))
        if any(isinstance(value, float) and not isfinite(value) for value in values):
            raise ValueError(f"the chart {named.name} contains a number that is not finite")


def by_setting(
    items: Sequence[Item],
    uut_of: Callable[[Item], str],
    styles: Mapping[str, Style],
    draw: Draw[Item],
    name: str,
    *,
    view: str = "",
    heading: str = "",
) -> Iterator[NamedChart]:
    """A chart for each setting of UUTs, because readers compare the UUTs within one; nothing without items."""
    settings = sorted(grouped(items, lambda item: styles[uut_of(item)].setting).items())
    several = len(settings) > 1
    for place, (setting, members) in enumerate(settings):
        headings = [text for text in (heading, str(setting) if several else "") if text]
        chart = draw(members, styles)
        yield NamedChart(f"{name}-{place}" if several else name, chart, view, ", ".join(headings))


def by_part(
    parts: Mapping[str, Sequence[Item]],
    uut_of: Callable[[Item], str],
    styles: Mapping[str, Style],
    draw: Draw[Item],
    name: str,
) -> Iterator[NamedChart]:
    """Charts for each part of the items, each under its heading where there are several."""
    for place, (heading, members) in enumerate(parts.items()):
        shown = heading if len(parts) > 1 else ""
        yield from by_setting(members, uut_of, styles, draw, f"{name}-{place}", heading=shown)


def requires_trials(model: "ReportModel") -> str:
    """Why a figure of measured loads is not available."""
    return "" if model.groups else "no trial was measured"


def figure_of_views(
    name: str, title: str, draw: Draw[Group], is_known: Callable[[Group], bool] = lambda _: True, missing: str = ""
) -> Figure:
    """A figure with a chart for each view of the groups for which `is_known` holds; `missing` where there are none."""

    def build(model: "ReportModel") -> Iterator[NamedChart]:
        for view in model.views:
            known = [group for group in view.groups if is_known(group)]
            name_of_view = f"{name}-{view.name}"
            yield from by_setting(known, lambda group: group.uut, model.styles, draw, name_of_view, view=view.name)

    def requirement(model: "ReportModel") -> str:
        return requires_trials(model) or ("" if any(map(is_known, model.groups)) else missing)

    return Figure(name, title, requirement, build)

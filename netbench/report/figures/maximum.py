"""The highest throughput by number of sources, as Figure 4 of Schlosser et al. 2011, or by scenario."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from netbench.report.figures.chart import Chart
from netbench.report.figures.marks import group_tooltip, numbers_of
from netbench.report.figures.panels import (
    THROUGHPUT,
    Bar,
    Panels,
    by_rising_size,
    end_of_axis,
    ends_of,
    kfps_of_mix,
    size_titles,
)
from netbench.report.figures.registry import Figure, NamedChart, by_setting, requires_trials, uut_of_group
from netbench.report.figures.throughput import LOADS, groups_by_uut
from netbench.report.formats import at_least, count
from netbench.report.model import ReportModel
from netbench.report.styles import Style
from netbench.statistics.groups import Group, best_groups, grouped


def maximum_chart(groups: Sequence[Group], styles: Mapping[str, Style], *, by_scenario: bool = False) -> Chart:
    """A panel per frame size: the highest throughput at any load, a bar per UUT, by scenario or number of sources."""
    in_order = groups if by_scenario else sorted(groups, key=lambda group: group.sources)
    categories = list(dict.fromkeys(_category(group, by_scenario) for group in in_order))
    best = {(group.uut, group.frame_size, _category(group, by_scenario)): group for group in best_groups(groups)}
    by_size = by_rising_size(groups, lambda group: group.frame_size)
    title = "" if by_scenario else "Number of sources"
    panels = Panels(size_titles(by_size), (group.uut for group in groups), styles, title, THROUGHPUT)
    panels.categories(categories)
    for size, members in by_size.items():
        panels.scale(size, None, [0, end_of_axis([group.throughput_mbps for group in members])])
        for uut, of_uut in groups_by_uut(members).items():
            tried = grouped(of_uut, lambda group: _category(group, by_scenario))
            highest = {category: best.get((uut, size, category)) for category in categories}
            panels.bars(size, uut, [_bar(group, tried.get(category, ())) for category, group in highest.items()])
    panels.rates()
    return panels.figure


def _category(group: Group, by_scenario: bool) -> str:
    return group.scenario if by_scenario else str(group.sources)


def _bar(group: Group | None, tried: Sequence[Group]) -> Bar:
    if group is not None and (throughput := group.maximum_mbps):
        hover = f"highest throughput at {group_tooltip(group)}"
        if group.limited_by:
            hover += f"\n≥: not saturated, limited by {group.limited_by}"
        text = at_least(f"{throughput.mean:,.0f}", group.limited_by)
        numbers = numbers_of(group, *LOADS, "limited_by")
        kfps = kfps_of_mix(group.frame_size, group.maximum_fps)
        return Bar(throughput.mean, text, hover, numbers, ends_of(throughput), kfps)
    # A bar without height carries the reason why there is no value.
    why = "too few valid trials" if any(candidate.valid for candidate in tried) else "no valid trial"
    return Bar(0 if tried else None, why if tried else "", why, numbers_of(tried[0]) if tried else {})


def _build(model: ReportModel) -> Iterator[NamedChart]:
    """By number of sources where a scenario has several, and by scenario where there are several."""
    groups = model.groups
    scenarios = grouped(groups, lambda group: group.scenario)
    for place, (scenario, members) in enumerate(scenarios.items()):
        alone = len(scenarios) == 1
        if alone or len({group.sources for group in members}) > 1:
            name, heading = ("maximum", "") if alone else (f"maximum-{place}", scenario)
            yield from by_setting(members, uut_of_group, model.styles, maximum_chart, name, heading=heading)
    if len(scenarios) > 1:
        fewest = min(group.sources for group in groups)
        beside = [group for group in groups if group.sources == fewest]
        yield from by_setting(
            beside,
            uut_of_group,
            model.styles,
            partial(maximum_chart, by_scenario=True),
            "maximum-scenarios",
            heading=f"By scenario, {count(fewest, 'source')}",
        )


FIGURE = Figure("maximum", "Highest throughput", requires_trials, _build)

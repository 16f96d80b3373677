"""The highest throughput by number of sources, as Figure 4 of Schlosser et al. 2011, or by scenario."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter

from netbench.model.frame_size import FrameSize
from netbench.report.figures.chart import LOADS, Chart, Mark, group_tooltip, numbers_of
from netbench.report.figures.panels import THROUGHPUT, Panels, ends_of, kfps_of_mix
from netbench.report.figures.registry import Figure, NamedChart, by_setting, requires_trials
from netbench.report.formats import at_least, count, mean
from netbench.report.model import ReportModel
from netbench.report.styles import Style
from netbench.statistics.groups import Group, best_groups, grouped


def maximum_chart(groups: Sequence[Group], styles: Mapping[str, Style], *, by_scenario: bool = False) -> Chart:
    """A panel per frame size: the highest throughput at any load, a bar per UUT, by scenario or number of sources."""

    def category(group: Group) -> str:
        return group.scenario if by_scenario else str(group.sources)

    in_order = groups if by_scenario else sorted(groups, key=lambda group: group.sources)
    categories = list(dict.fromkeys(map(category, in_order)))
    best = {(group.uut, group.frame_size, category(group)): group for group in best_groups(groups)}
    x_title = "" if by_scenario else "Number of sources"
    panels: Panels[FrameSize, Group] = Panels(groups, styles, x_title, THROUGHPUT)
    panels.categories(categories)
    for size, uut, of_uut in panels.cells:
        tried = grouped(of_uut, category)
        bars = (_bar(x, best.get((uut, size, name)), tried[name]) for x, name in enumerate(categories) if name in tried)
        panels.bars(size, uut, bars)
    return panels.finished(rates="y")


def _bar(x: int, group: Group | None, tried: Sequence[Group]) -> Mark:
    if group is not None and (throughput := group.maximum_mbps):
        hover = f"highest throughput at {group_tooltip(group)}"
        if group.is_lower_bound:
            hover += f"\n≥: not overloaded, limited by {group.limited_by}"
        text = at_least(f"{throughput.mean:,.0f}", group.is_lower_bound)
        kfps = kfps_of_mix(group.frame_size, mean(group.maximum_fps))
        numbers = numbers_of(group, *LOADS, "limited_by")
        return Mark(x, throughput.mean, hover, numbers, *ends_of(throughput), text=text, y_kfps=kfps)
    # A bar without height carries the reason why there is no value.
    why = "too few valid trials" if any(candidate.valid for candidate in tried) else "no valid trial"
    return Mark(x, 0, why, numbers_of(tried[0]), text=why)


def _build(model: ReportModel) -> Iterator[NamedChart]:
    """By number of sources where a scenario has several, and by scenario where there are several."""
    groups, uut_of = model.groups, attrgetter("uut")
    scenarios = grouped(groups, lambda group: group.scenario)
    alone = len(scenarios) == 1
    for place, (scenario, members) in enumerate(scenarios.items()):
        if alone or len({group.sources for group in members}) > 1:
            name, heading = ("maximum", "") if alone else (f"maximum-{place}", scenario)
            yield from by_setting(members, uut_of, model.styles, maximum_chart, name, heading=heading)
    if not alone:
        fewest = min(group.sources for group in groups)
        beside = [group for group in groups if group.sources == fewest]
        draw, heading = partial(maximum_chart, by_scenario=True), f"By scenario, {count(fewest, 'source')}"
        yield from by_setting(beside, uut_of, model.styles, draw, "maximum-scenarios", heading=heading)


FIGURE = Figure("maximum", "Highest throughput", requires_trials, _build)

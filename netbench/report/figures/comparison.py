"""The figures of a comparison: the highest throughput of each campaign, and cells over time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter

from netbench.model.frame_size import FrameSize
from netbench.report.figures.chart import Chart, Form, Mark, numbers_of
from netbench.report.figures.panels import THROUGHPUT, Panels, end_of_axis, ends_of, kfps_per_mbps
from netbench.report.figures.registry import NamedChart, by_setting
from netbench.report.formats import at_least, count, mbps, mbps_interval
from netbench.report.styles import Style
from netbench.report.styles import styles as styles_of
from netbench.statistics.compared_cells import Campaign, ComparedCell, place_of
from netbench.statistics.comparison import maxima_over
from netbench.statistics.groups import Group

# The groups of each campaign, by the name of the campaign.
Highest = Mapping[str, Mapping[ComparedCell, Group]]


@dataclass(frozen=True, slots=True)
class CellTrend:
    """A cell over time: its group in each campaign that has it, behind the start and the name of the campaign."""

    place: ComparedCell
    points: tuple[tuple[datetime, str, Group], ...]


def started(text: object) -> datetime | None:
    """The start time in a manifest, read as UTC if it has no time zone; None where it is not a time."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def trends(campaigns: Iterable[tuple[datetime, Campaign]]) -> tuple[CellTrend, ...]:
    """The cells that at least two of the campaigns have, those of the highest throughput over common loads first."""
    in_order = sorted(campaigns, key=lambda dated: dated[0])
    by_place = [{place_of(group): group for group in campaign.groups} for _, campaign in in_order]
    measured = [groups.keys() | campaign.skipped for groups, (_, campaign) in zip(by_place, in_order, strict=True)]
    shared = set.intersection(*map(set, measured)) if measured else set()
    maxima = [maxima_over(campaign.groups, shared) for _, campaign in in_order]
    cells = []
    for sides in (maxima, by_place):
        for place in dict.fromkeys(place for groups in sides for place in groups):
            points = tuple(
                (start, campaign.name, groups[place])
                for (start, campaign), groups in zip(in_order, sides, strict=True)
                if place in groups and groups[place].throughput_mbps
            )
            if len(points) > 1:
                cells.append(CellTrend(place, points))
    return tuple(cells)


def trend_charts(cells: Sequence[CellTrend], styles: Mapping[str, Style], name: str) -> Iterator[NamedChart]:
    """Throughput over time, a chart for each setting of UUTs."""
    return by_setting(cells, lambda trend: trend.place.uut, styles, _trend_chart, name)


def _trend_chart(cells: Sequence[CellTrend], styles: Mapping[str, Style]) -> Chart:
    """A panel per scenario, number of sources and frame size: throughput by start of the campaign, a line per UUT."""

    def title_of(trend: CellTrend) -> str:
        place = trend.place
        return f"{place.scenario}, {count(place.sources, 'source')}, {place.frame_size.frames_text}"

    smallest_first = sorted(cells, key=lambda trend: trend.place.frame_size)
    x_title, uut_of = "Start of the campaign (UTC)", attrgetter("place.uut")
    panels = Panels(smallest_first, styles, x_title, THROUGHPUT, key_of=title_of, uut_of=uut_of)
    for title, uut, trends_of_uut in panels.cells:
        for trend in trends_of_uut:
            panels.line(title, uut, list(_points(trend)))
    for title, panel in panels.panels.items():
        panel.kfps_per_mbps = kfps_per_mbps(panels.members[title][0].place.frame_size)
        panel.x.is_time = True
        marks = list(panel.marks)
        times = [mark.x for mark in marks]
        margin = 0.04 * (max(times) - min(times)) or 1.0
        end = end_of_axis((mark.y for mark in marks), (mark.high for mark in marks))
        lowest = min(mark.y if mark.low is None else mark.low for mark in marks)
        # The axis does not start at 0 where that would hide changes of some percent.
        least = 0 if lowest < end / 2 else lowest - (end - lowest) / 4
        panels.scale(title, [min(times) - margin, max(times) + margin], [least, end])
    return panels.finished(rates="y")


def _points(trend: CellTrend) -> Iterator[Mark]:
    for start, campaign, group in trend.points:
        if throughput := group.throughput_mbps:
            identity = {"campaign": campaign, "started": f"{start:%Y-%m-%dT%H:%M:%SZ}"}
            numbers = {**identity, **numbers_of(group, "throughput_mbps")}
            hover = f"{campaign}: {_tooltip(group)}"
            yield Mark(start.timestamp(), throughput.mean, hover, numbers, *ends_of(throughput))


def highest_charts(
    campaigns: Sequence[Campaign], highest: Highest, styles: Mapping[str, Style]
) -> Iterator[NamedChart]:
    """The highest throughput of each campaign, a chart for each setting of UUTs."""
    places = list(dict.fromkeys(place for cells in highest.values() for place in cells))
    return by_setting(places, lambda place: place.uut, styles, partial(_highest_chart, campaigns, highest), "most")


def _highest_chart(
    campaigns: Sequence[Campaign], highest: Highest, places: Sequence[ComparedCell], styles: Mapping[str, Style]
) -> Chart:
    """A panel per frame size: the highest throughput of each UUT, a bar per campaign."""
    panels: Panels[FrameSize, ComparedCell] = Panels(places, styles, "", THROUGHPUT)
    category_of = {place: _category(place, places, styles) for place in places}
    categories = list(dict.fromkeys(category_of.values()))
    panels.categories(categories)
    # Not the colours of the UUTs: no colour has two meanings on a page.
    names = [f"campaign {number}" for number in range(len(campaigns))]
    later = styles_of([*styles, *names])
    for pseudo_uut, campaign in zip(names, campaigns, strict=True):
        for size, members in panels.members.items():
            groups = {category_of[place]: highest[campaign.name].get(place) for place in members}
            marks = [_bar(categories.index(name), name, campaign.name, group) for name, group in groups.items()]
            style = replace(later[pseudo_uut], label=campaign.name)
            panels.series(size, campaign.name, style, Form.BARS, marks)
    return panels.finished(rates="y")


def _bar(x: int, category: str, campaign: str, group: Group | None) -> Mark | None:
    if group is None or (throughput := group.throughput_mbps) is None:
        return None
    numbers = {"campaign": campaign, **numbers_of(group, "offered_mbps", "throughput_mbps", "limited_by")}
    text = at_least(mbps(throughput.mean), group.is_lower_bound)
    return Mark(x, throughput.mean, f"{category}: {_tooltip(group)}", numbers, *ends_of(throughput), text=text)


def _tooltip(group: Group) -> str:
    return f"{mbps_interval(group.throughput_mbps)} Mbit/s at {group.load}, {count(len(group.valid), 'valid trial')}"


def _category(place: ComparedCell, places: Sequence[ComparedCell], styles: Mapping[str, Style]) -> str:
    """The UUT of a place, with its scenario and number of sources where there are several."""
    parts = [styles[place.uut].label]
    parts += [place.scenario] if len({shown.scenario for shown in places}) > 1 else []
    parts += [count(place.sources, "source")] if len({shown.sources for shown in places}) > 1 else []
    return ", ".join(parts)

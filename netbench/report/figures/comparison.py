"""The figures of a comparison: the highest throughput of each campaign, and cells over time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from markupsafe import Markup

from netbench.model.frame_mix import frames_text, rising
from netbench.model.units import l1_bits
from netbench.report import styles as uut_styles
from netbench.report.figures.block import drawn
from netbench.report.figures.chart import Chart
from netbench.report.figures.marks import numbers_of
from netbench.report.figures.panels import THROUGHPUT, Bar, Panels, Point, end_of_axis, ends_of, size_titles
from netbench.report.figures.registry import by_setting
from netbench.report.formats import at_least, count, mbps, mbps_interval, mean
from netbench.report.styles import Style
from netbench.statistics.compared_cells import Campaign, ComparedCell, place_of
from netbench.statistics.comparison import maxima_over
from netbench.statistics.groups import Group, grouped
from netbench.statistics.intervals import Interval


@dataclass(frozen=True, slots=True)
class InTime:
    """A campaign and its start; None where its manifest has no start."""

    campaign: Campaign
    started: datetime | None


@dataclass(frozen=True, slots=True)
class CellTrend:
    """A cell over time: its group in each campaign that has it, by start of the campaign."""

    place: ComparedCell
    points: tuple[tuple[InTime, Group], ...]


def started(text: object) -> datetime | None:
    """The start time in a manifest, read as UTC if it has no time zone; None where it is not a time."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def trends(campaigns: Sequence[InTime]) -> tuple[CellTrend, ...]:
    """The cells that at least two of the campaigns have, those of the highest throughput over common loads first."""
    in_order = sorted((dated for dated in campaigns if dated.started), key=lambda dated: dated.started or datetime.min)
    by_place = [{place_of(group): group for group in dated.campaign.groups} for dated in in_order]
    measured = [groups.keys() | dated.campaign.skipped for groups, dated in zip(by_place, in_order, strict=True)]
    shared = set.intersection(*map(set, measured)) if measured else set()
    maxima = [maxima_over(dated.campaign.groups, shared) for dated in in_order]
    cells = []
    for sides in (maxima, by_place):
        for place in dict.fromkeys(place for groups in sides for place in groups):
            points = tuple(
                (dated, groups[place])
                for dated, groups in zip(in_order, sides, strict=True)
                if place in groups and groups[place].throughput_mbps
            )
            if len(points) > 1:
                cells.append(CellTrend(place, points))
    return tuple(cells)


def throughput_in_time(cells: Sequence[CellTrend], styles: Mapping[str, Style]) -> Chart:
    """A panel per scenario, number of sources and frame size: throughput by start of the campaign, a line per UUT."""
    smallest_first = sorted(cells, key=lambda trend: rising(trend.place.frame_size))
    by_panel = grouped(smallest_first, lambda trend: _panel_title(trend.place))
    titles = {title: title for title in by_panel}
    uuts = list(dict.fromkeys(trend.place.uut for trend in cells))
    panels = Panels(titles, uuts, styles, "Start of the campaign (UTC)", THROUGHPUT)
    panels.legend()
    for title, members in by_panel.items():
        panels.panel(title).kfps_per_mbps = 1000 / l1_bits(members[0].place.frame_size)
        times = [when.started.timestamp() for trend in members for when, _ in trend.points if when.started]
        margin = 0.04 * (max(times) - min(times)) or 1.0
        throughputs = [group.throughput_mbps for trend in members for _, group in trend.points]
        panels.scale(title, [min(times) - margin, max(times) + margin], _reach(throughputs))
        panels.panel(title).x.is_time = True
        for trend in members:
            panels.line(title, trend.place.uut, list(_points(trend)))
    panels.rates()
    return panels.figure


def most_by_campaign(
    campaigns: Sequence[Campaign], most: Mapping[str, Mapping[ComparedCell, Group]], styles: Mapping[str, Style]
) -> Chart:
    """A panel per frame size: the highest throughput of each UUT, a bar per campaign; `most` is by campaign."""
    places = list(dict.fromkeys(place for cells in most.values() for place in cells))
    sizes = size_titles(sorted({place.frame_size for place in places}, key=rising))
    categories = list(dict.fromkeys(_category(place, places, styles) for place in places))
    # Not the colours of the UUTs: no colour has two meanings on a page.
    known = {f"campaign {number}": campaign for number, campaign in enumerate(campaigns)}
    later = uut_styles.styles([*styles, *known])
    bars_of = {campaign.name: replace(later[uut], label=campaign.name) for uut, campaign in known.items()}
    emulated = [place.uut for place in places if styles[place.uut].emulated]
    shown = {**styles, **{style.uut: style for style in bars_of.values()}}
    panels = Panels(sizes, (*(style.uut for style in bars_of.values()), *emulated), shown, "", THROUGHPUT)
    panels.categories(categories)
    for size in sizes:
        in_panel = [cells.get(place) for cells in most.values() for place in places if place.frame_size == size]
        panels.scale(
            size, None, [0, end_of_axis([None if group is None else group.throughput_mbps for group in in_panel])]
        )
        for campaign in campaigns:
            by_category = {
                _category(place, places, styles): group
                for place, group in most[campaign.name].items()
                if place.frame_size == size
            }
            groups = [by_category.get(category) for category in categories]
            bars = [_bar(campaign.name, category, group) for category, group in zip(categories, groups, strict=True)]
            panels.bars(size, bars_of[campaign.name].uut, bars)
    panels.rates()
    return panels.figure


def _reach(throughputs: Sequence[Interval | None]) -> list[float]:
    """The range of the axis; it does not start at 0 where that would hide changes of some percent."""
    end = end_of_axis(throughputs)
    lowest = min((interval.mean - (interval.half_width or 0.0) for interval in throughputs if interval), default=0.0)
    return [0 if lowest < end / 2 else lowest - (end - lowest) / 4, end]


def _bar(campaign: str, category: str, group: Group | None) -> Bar:
    if group is None or group.throughput_mbps is None:
        return Bar(None, "", "")
    hover = f"{category}: {_tooltip(group)}"
    numbers = {"campaign": campaign, **numbers_of(group, "offered_mbps", "throughput_mbps", "limited_by")}
    text = at_least(mbps(mean(group.throughput_mbps)), group.limited_by)
    return Bar(group.throughput_mbps.mean, text, hover, numbers, ends_of(group.throughput_mbps))


def _points(trend: CellTrend) -> Iterable[Point]:
    for when, group in trend.points:
        if group.throughput_mbps is None or when.started is None:
            continue
        hover = f"{when.campaign.name}: {_tooltip(group)}"
        numbers = {
            "campaign": when.campaign.name,
            "started": f"{when.started:%Y-%m-%dT%H:%M:%SZ}",
            **numbers_of(group, "throughput_mbps"),
        }
        yield Point(Interval(when.started.timestamp(), None, 1), group.throughput_mbps, hover, numbers)


def _tooltip(group: Group) -> str:
    return f"{mbps_interval(group.throughput_mbps)} Mbit/s at {group.load}, {count(len(group.valid), 'valid trial')}"


def _panel_title(place: ComparedCell) -> str:
    return f"{place.scenario}, {count(place.sources, 'source')}, {frames_text(place.frame_size)}"


def _category(place: ComparedCell, places: Sequence[ComparedCell], styles: Mapping[str, Style]) -> str:
    parts = [styles[place.uut].label]
    if len({shown.scenario for shown in places}) > 1:
        parts.append(place.scenario)
    if len({shown.sources for shown in places}) > 1:
        parts.append(count(place.sources, "source"))
    return ", ".join(parts)


def most_block(
    campaigns: Sequence[Campaign], most: Mapping[str, Mapping[ComparedCell, Group]], styles: Mapping[str, Style]
) -> Markup:
    """The highest throughput of each campaign as markup, a chart for each setting of UUTs."""

    def draw(places: Sequence[ComparedCell], styles: Mapping[str, Style]) -> Chart:
        shown = {
            name: {place: group for place, group in cells.items() if place in places} for name, cells in most.items()
        }
        return most_by_campaign(campaigns, shown, styles)

    places = list(dict.fromkeys(place for cells in most.values() for place in cells))
    return drawn(by_setting(places, lambda place: place.uut, styles, draw, "most"))


def trend_block(cells: Sequence[CellTrend], styles: Mapping[str, Style], name: str) -> Markup:
    """Throughput over time as markup, a chart for each setting of UUTs."""
    return drawn(by_setting(cells, lambda trend: trend.place.uut, styles, throughput_in_time, name))

"""The highest load of each UUT that meets the goal of a search."""

from collections.abc import Iterator, Mapping, Sequence

from netbench.model.campaign import CampaignResults
from netbench.model.frame_mix import size_text
from netbench.model.search import SearchResult, SearchState
from netbench.report.figures.chart import Chart, Numbers
from netbench.report.figures.panels import Bar, Panels, by_rising_size, end_of_axis, size_titles
from netbench.report.figures.registry import Figure, NamedChart, by_setting
from netbench.report.formats import count, kfps
from netbench.report.model import ReportModel
from netbench.report.styles import Style
from netbench.report.tables.searches import bounds_text, remark
from netbench.statistics.groups import grouped


def highest_loads_chart(rows: Sequence[SearchResult], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size: the highest load by goal, a bar per UUT to its lower bound, a whisker to its upper one.

    For repeated searches, the bar ends at the lowest bound and the whisker at the highest.
    """
    goals = list(dict.fromkeys(search.goal for search in rows))
    by_size = by_rising_size(rows, lambda search: search.frame_size)
    panels = Panels(
        size_titles(by_size), (search.uut for search in rows), styles, "", "Highest load [kfps of each stream]"
    )
    panels.figure.intervals = "search bounds, from the lower to the upper one"
    panels.categories(goals)
    for size, members in by_size.items():
        tops = [max(search.lower_fps or 0.0, search.upper_fps or 0.0) / 1000 for search in members]
        panels.scale(size, None, [0, end_of_axis((), tops)])
        for uut, of_uut in grouped(members, lambda search: search.uut).items():
            by_goal = [[search for search in of_uut if search.goal == goal] for goal in goals]
            panels.bars(size, uut, [_bar(same) for same in by_goal])
    panels.rates()
    return panels.figure


def _bar(same: Sequence[SearchResult]) -> Bar:
    if not same:
        return Bar(None, "", "")
    lowest = min(same, key=lambda search: search.lower_fps or 0.0)
    mark = "≥ " if lowest.state is SearchState.AT_LEAST else ""
    hover = "\n".join(f"{search.goal}: {bounds_text(search)} {remark(search)}".rstrip() for search in same)
    numbers: Numbers = {
        "uut": lowest.uut,
        "scenario": lowest.scenario,
        "streams": len(lowest.streams),
        "frame_size": size_text(lowest.frame_size),
        "goal": lowest.goal,
        "lower_fps": lowest.lower_fps,
        "upper_fps": max((search.upper_fps for search in same if search.upper_fps is not None), default=None),
        "state": lowest.state.value,
        "searches": len(same),
    }
    return Bar((lowest.lower_fps or 0.0) / 1000, f"{mark}{kfps(lowest.lower_fps)}", hover, numbers, _ends(same))


def _ends(same: Sequence[SearchResult]) -> tuple[float, float] | None:
    """From the bar to the upper bound, in thousands of frames/s; None where one has no upper bound."""
    if any(search.upper_fps is None or search.state is SearchState.AT_LEAST for search in same):
        return None
    return min(search.lower_fps or 0.0 for search in same) / 1000, max(
        search.upper_fps or 0.0 for search in same
    ) / 1000


def _drawable(results: CampaignResults) -> list[SearchResult]:
    """The searches with a lower bound."""
    rows = (*results.searches, *results.maxima_searches)
    return [search for search in rows if search.lower_fps is not None and search.state is not SearchState.FAILED]


def _build(model: ReportModel) -> Iterator[NamedChart]:
    parts = grouped(_drawable(model.results), lambda search: (search.scenario, len(search.streams)))
    for place, ((scenario, sources), members) in enumerate(parts.items()):
        yield from by_setting(
            members,
            lambda search: search.uut,
            model.styles,
            highest_loads_chart,
            f"searches-{place}",
            heading=f"{scenario}, {count(sources, 'source')}" if len(parts) > 1 else "",
        )


FIGURE = Figure(
    "searches",
    "Highest loads",
    lambda model: "" if _drawable(model.results) else "no search found a bound",
    _build,
)

"""The highest load of each UUT that meets the goal of a search."""

from collections.abc import Mapping, Sequence

from netbench.model.campaign import CampaignResults
from netbench.model.frame_size import FrameSize
from netbench.model.search import SearchResult, SearchState
from netbench.model.units import LoadKind
from netbench.model.workload import Workload
from netbench.report.figures.chart import Chart, Mark, Numbers
from netbench.report.figures.panels import Panels, end_of_axis
from netbench.report.figures.registry import Figure, by_part
from netbench.report.formats import SHOWN_UNITS, rate_number, shown_rate
from netbench.report.styles import Style
from netbench.report.tables.searches import bounds_text, remark, sources_text
from netbench.statistics.groups import grouped


def highest_loads_chart(searches: Sequence[SearchResult], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size or workload: the highest load by goal, a bar per UUT from zero to its lower bound.

    A whisker reaches to the upper bound. For repeated searches, the bar ends at the lowest bound and the whisker at the
    highest.
    """
    goals = list(dict.fromkeys(search.goal for search in searches))
    unit = searches[0].unit
    y_title = f"Highest load [{SHOWN_UNITS[unit].strip()} of each stream]"
    panels: Panels[FrameSize | str, SearchResult] = Panels(searches, styles, "", y_title, key_of=_panel_of)
    panels.chart.intervals = "search bounds, from the lower to the upper one"
    panels.categories(goals)
    for size, members in panels.members.items():
        tops = (shown_rate(max(search.lower or 0.0, search.upper or 0.0), unit) for search in members)
        panels.scale(size, y=[0, end_of_axis(tops)])
    for size, uut, of_uut in panels.cells:
        by_goal = grouped(of_uut, lambda search: search.goal)
        panels.bars(size, uut, [_bar(goals.index(goal), same) for goal, same in by_goal.items()])
    return panels.finished("y")


def _bar(x: int, same: Sequence[SearchResult]) -> Mark:
    lowest = min(same, key=lambda search: search.lower or 0.0)
    tops = [search.upper for search in same if search.upper is not None]
    numbers: Numbers = {
        "uut": lowest.uut,
        "scenario": lowest.scenario,
        "streams": len(lowest.streams),
        **_numbers(lowest, max(tops, default=None)),
        "state": lowest.state.value,
        "searches": len(same),
    }
    hover = "\n".join(f"{search.goal}: {bounds_text(search)} {remark(search)}".rstrip() for search in same)
    text = ("≥ " if lowest.state is SearchState.AT_LEAST else "") + rate_number(lowest.lower, lowest.unit)
    height = shown_rate(lowest.lower or 0.0, lowest.unit)
    is_bounded = len(tops) == len(same) and all(search.state is not SearchState.AT_LEAST for search in same)
    low, high = (height, shown_rate(max(tops), lowest.unit)) if is_bounded else (None, None)
    return Mark(x, height, hover, numbers, low, high, text=text)


def _panel_of(search: SearchResult) -> FrameSize | str:
    return search.kind_of_traffic.name if isinstance(search.kind_of_traffic, Workload) else search.kind_of_traffic


def _numbers(search: SearchResult, upper: float | None) -> Numbers:
    """The traffic, the goal and the bounds, as columns for files."""
    traffic = search.kind_of_traffic
    if isinstance(traffic, Workload):
        suffix = "bps" if search.unit is LoadKind.L1_BIT_RATE else "per_s"
        columns: Numbers = {"workload": traffic.name}
    else:
        suffix, columns = "fps", {"frame_size": f"{traffic.without_packet:,}", "packet": traffic.packet or None}
    return {**columns, "goal": search.goal, f"lower_{suffix}": search.lower, f"upper_{suffix}": upper}


def _drawable(results: CampaignResults) -> list[SearchResult]:
    """The searches with a lower bound."""
    rows = (*results.searches, *results.maxima_searches)
    return [search for search in rows if search.lower is not None and search.state is not SearchState.FAILED]


FIGURE = Figure(
    "searches",
    "Highest loads",
    lambda model: "" if _drawable(model.results) else "no search found a bound",
    lambda model: by_part(
        grouped(_drawable(model.results), sources_text),
        lambda search: search.uut,
        model.styles,
        highest_loads_chart,
        "searches",
    ),
)

"""The results of searches: the highest load of each UUT that meets a goal."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from netbench.model.campaign import CampaignResults
from netbench.model.distributions import Spread
from netbench.model.frame_mix import rising, size_text
from netbench.model.search import LoadedDelay, SearchedStream, SearchResult, SearchState
from netbench.model.units import l1_bits
from netbench.report.axes import end_of_axis
from netbench.report.chart import Chart, Numbers
from netbench.report.formats import UNKNOWN, count, kfps, mbps, microseconds, percent
from netbench.report.markup import Html, TableColumn, element, table
from netbench.report.panels import Bar, Panels, size_titles
from netbench.report.sections import Section, drawn_apart, note, section
from netbench.report.styles import Style
from netbench.report.tables import stream_label, uut_label
from netbench.statistics.groups import grouped

_METHODS = {
    "mlrsearch": "MLRsearch",
    "rfc2544": "RFC 2544, section 26.1",
    "tst009": "ETSI GS NFV-TST 009, section 12.3.3",
    "loss-rate": "frame loss rate (RFC 2544, section 26.3)",
    "sweep": "most that comes out at any load (Schlosser et al. 2011)",
}


def bounds_text(found: SearchResult) -> str:
    """The bounds of a limit so far, in thousands of frames/s of each stream."""
    if found.state is SearchState.FAILED and found.lower_fps is None:
        return UNKNOWN
    if found.state is SearchState.AT_LEAST:
        return f"≥ {kfps(found.lower_fps)} kfps"
    if found.lower_fps is None:
        return f"< {kfps(found.upper_fps)} kfps" if found.upper_fps is not None else UNKNOWN
    upper = "?" if found.upper_fps is None else kfps(found.upper_fps)
    return f"{kfps(found.lower_fps)} … {upper} kfps"


def remark(found: SearchResult) -> str:
    """The caveats of a result; empty where there are none."""
    given_up = "nothing measured" if found.lower_fps is None else "given up on the way"
    words = {
        SearchState.SEARCHING: "not finished",
        SearchState.FOUND: found.why
        or ("" if found.is_regular else f"bounds further apart than {percent(found.width)}"),
        SearchState.AT_LEAST: f"limited by {found.limited_by}",
        SearchState.AT_MOST: "not even at the lowest load tried",
        SearchState.FAILED: f"{given_up}: {found.why or found.limited_by or 'no trial says anything of the UUT'}",
    }[found.state]
    return "; ".join(part for part in (words, f"unstable: {found.unstable}" if found.unstable else "") if part)


def what_is_told(rows: Sequence[SearchResult]) -> str:
    """The methods of searches, and the meaning of their numbers."""
    methods = ", ".join(dict.fromkeys(_METHODS.get(search.method, search.method) for search in rows))
    return f"{methods}; loads as offered by each stream's source, what came out on the wire (L1) of all streams"


def throughput_mbps(found: SearchResult) -> float | None:
    """The throughput of all streams at the lower bound, on the wire (L1), in Mbit/s."""
    if found.throughput_fps is None or found.state is SearchState.FAILED:
        return None
    return found.throughput_fps * len(found.streams) * l1_bits(found.frame_size) / 1e6


def searches_section(results: CampaignResults, looks: Mapping[str, Style]) -> Iterable[Section]:
    """A row per search and goal, by scenario; nothing without searches."""
    rows = (*results.searches, *results.maxima_searches)
    if not rows:
        return
    refer = (
        " Shares refer to the conditional throughput, or to the throughput under overload where that is higher."
        " This search ran once, on one boot. Quote the maxima under Highest throughput: they are means over all boots."
        if results.maxima_searches
        else ""
    )
    columns: tuple[TableColumn[SearchResult], ...] = (
        TableColumn("UUT", lambda search: uut_label(search.uut, looks)),
        TableColumn("Sources", lambda search: str(len(search.streams))),
        TableColumn("Frame size", lambda search: size_text(search.frame_size)),
        TableColumn("Search", lambda search: str(search.repetition)),
        TableColumn("Goal", lambda search: search.goal, "words"),
        TableColumn("Highest load of each stream", bounds_text),
        TableColumn("Width", _width),
        TableColumn("Conditional throughput, all streams", lambda search: f"{mbps(throughput_mbps(search))} Mbit/s"),
        TableColumn("Trials", lambda search: f"{search.trials:,}"),
        TableColumn("Traffic", lambda search: f"{search.seconds:,.1f} s"),
        TableColumn("Notes", remark, "words"),
    )
    yield section(
        "searches",
        "Highest loads",
        note(
            "The limit lies between the two loads: the goal was met at the lower one (as offered), and missed at the"
            " upper one (as intended). NDR is without loss, PDR with at most the loss ratio named. Frames still in"
            " queues at the end of sending count as lost where they exceed half the width. ≥: lower bound, the UUT was"
            " not the limit. Conditional throughput is the throughput at the lower bound (RFC 9971). "
            + what_is_told(rows)
            + f".{refer}"
        ),
        *_drawn(rows, looks),
        _by_scenario(rows, columns),
        *_streams(rows, looks),
        *_delays(rows, looks),
        link="Highest loads",
        is_open=bool(results.searches),
    )


def with_figures(rows: Iterable[SearchResult]) -> dict[tuple[str, int], list[SearchResult]]:
    """The searches that `highest_loads` draws: those of a figure by its scenario and number of sources."""
    known = (search for search in rows if search.lower_fps is not None and search.state is not SearchState.FAILED)
    return grouped(known, lambda search: (search.scenario, len(search.streams)))


def _drawn(rows: Sequence[SearchResult], looks: Mapping[str, Style]) -> Iterable[Html]:
    parts = with_figures(rows)
    for place, ((scenario, sources), members) in enumerate(parts.items()):
        if len(parts) > 1:
            yield element("h3", f"{scenario}, {count(sources, 'source')}")
        yield drawn_apart(members, lambda search: search.uut, looks, highest_loads, f"searches-{place}")


def highest_loads(rows: Sequence[SearchResult], looks: Mapping[str, Style]) -> Chart:
    """A panel per frame size: the highest load by goal, a bar per UUT to its lower bound, a whisker to its upper one.

    For repeated searches, the bar ends at the lowest bound and the whisker at the highest.
    """
    goals = list(dict.fromkeys(search.goal for search in rows))
    by_size = grouped(
        sorted(rows, key=lambda search: rising(search.frame_size), reverse=True), lambda search: search.frame_size
    )
    panels = Panels(
        size_titles(by_size), (search.uut for search in rows), looks, "", "Highest load [kfps of each stream]"
    )
    panels.figure.intervals = "search bounds, from the lower to the upper one"
    panels.categories(goals)
    for size, members in by_size.items():
        tops = [max(search.lower_fps or 0.0, search.upper_fps or 0.0) / 1000 for search in members]
        panels.scale(size, None, [0, end_of_axis((), tops)])
        for uut, of_uut in grouped(members, lambda search: search.uut).items():
            by_goal = [[search for search in of_uut if search.goal == goal] for goal in goals]
            panels.bars(size, uut, [_bar(same, looks[uut]) for same in by_goal])
    return panels.figure


def _bar(same: Sequence[SearchResult], style: Style) -> Bar:
    if not same:
        return Bar(None, "", "")
    lowest = min(same, key=lambda search: search.lower_fps or 0.0)
    mark = "≥ " if lowest.state is SearchState.AT_LEAST else ""
    hover = "\n".join(f"{style.label}, {search.goal}: {bounds_text(search)} {remark(search)}" for search in same)
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
    if any(row.upper_fps is None or row.state is SearchState.AT_LEAST for row in same):
        return None
    return min(row.lower_fps or 0.0 for row in same) / 1000, max(row.upper_fps or 0.0 for row in same) / 1000


def _streams(rows: Sequence[SearchResult], looks: Mapping[str, Style]) -> Iterable[Html]:
    """A row per stream of searches with several; nothing where there are none."""
    pairs = [(search, stream) for search in rows for stream in search.each]
    if not pairs:
        return
    repeated = len({search.repetition for search, _ in pairs}) > 1
    search: TableColumn[tuple[SearchResult, SearchedStream]] = TableColumn("Search", lambda row: str(row[0].repetition))
    columns: tuple[TableColumn[tuple[SearchResult, SearchedStream]], ...] = (
        TableColumn("UUT", lambda row: uut_label(row[0].uut, looks)),
        TableColumn("Scenario", lambda row: row[0].scenario, "words"),
        TableColumn("Sources", lambda row: str(len(row[0].streams))),
        TableColumn("Frame size", lambda row: size_text(row[0].frame_size)),
        *([search] if repeated else []),
        TableColumn("Goal", lambda row: row[0].goal, "words"),
        TableColumn("Stream", lambda row: stream_label(row[1].stream, row[1].reverse_of), "words"),
        TableColumn("Offered, kfps", lambda row: kfps(row[1].offered_fps)),
        TableColumn("Came out, kfps", lambda row: kfps(row[1].forwarded_fps)),
        TableColumn("Lost", lambda row: percent(row[1].loss_ratio)),
    )
    yield element("h3", "Each stream at its highest load")
    yield note(
        "What a goal allows may be lost is of all streams together. Here they are one by one, directions too (RFC 2544,"
        " section 14), in all trials at the lower bound: what is lost of one alone shows here."
    )
    yield table(columns, [pairs])


def _delays(rows: Sequence[SearchResult], looks: Mapping[str, Style]) -> Iterable[Html]:
    """A row per load at which delays were measured after a search; nothing where none were."""
    loaded = [(search, at) for search in rows for at in search.delays]
    if not loaded:
        return
    times: tuple[tuple[str, Callable[[Spread], float | None]], ...] = (
        ("Median", lambda delay: delay.median_ns),
        ("90 %", lambda delay: delay.p90_ns),
        ("99 %", lambda delay: delay.p99_ns),
        ("99.9 %", lambda delay: delay.p999_ns),
        ("Longest", lambda delay: delay.largest_ns),
    )

    def told(of: Callable[[Spread], float | None]) -> Callable[[tuple[SearchResult, LoadedDelay]], str]:
        return lambda row: UNKNOWN if row[1].delay is None else microseconds(of(row[1].delay))

    columns: tuple[TableColumn[tuple[SearchResult, LoadedDelay]], ...] = (
        TableColumn("UUT", lambda row: uut_label(row[0].uut, looks)),
        TableColumn("Scenario", lambda row: row[0].scenario, "words"),
        TableColumn("Sources", lambda row: str(len(row[0].streams))),
        TableColumn("Frame size", lambda row: size_text(row[0].frame_size)),
        TableColumn("Load", lambda row: f"{100 * row[1].share:g} % of {row[0].goal}", "words"),
        TableColumn("kfps each", lambda row: kfps(row[1].load_fps)),
        *(TableColumn(f"{title}, µs", told(of)) for title, of in times),
        TableColumn("Notes", lambda row: row[1].refused, "words"),
    )
    yield element("h3", "Delay under load")
    yield note(
        "One way, from source to sink, of the stream whose median is longest: one trial at each part of the load that"
        " was found."
    )
    yield table(columns, [loaded])


def _by_scenario(rows: Sequence[SearchResult], columns: Sequence[TableColumn[SearchResult]]) -> Html:
    by_scenario = grouped(rows, lambda search: search.scenario)
    return table(columns, by_scenario if len(by_scenario) > 1 else {"": list(rows)})


def _width(found: SearchResult) -> str:
    """The distance of the bounds, relative to the upper one."""
    if found.lower_fps is None or not found.upper_fps:
        return UNKNOWN
    return percent((found.upper_fps - found.lower_fps) / found.upper_fps)

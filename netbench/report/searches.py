"""What searches found: the highest load of each UUT that a goal allows, as lines, as a table, and on the page."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from netbench.model.campaign import CampaignResults
from netbench.model.distributions import Spread
from netbench.model.search import LoadedDelay, SearchResult, SearchState
from netbench.model.units import l1_bits
from netbench.report.formats import UNKNOWN, count, kfps, mbps, microseconds, percent
from netbench.report.markup import Column, Html, element, table
from netbench.report.sections import Section, note, section
from netbench.report.styles import LEGEND, Style, label
from netbench.report.tables import uut_label
from netbench.statistics.groups import grouped

_METHODS = {
    "mlrsearch": "MLRsearch",
    "rfc2544": "RFC 2544, section 26.1",
    "tst009": "ETSI GS NFV-TST 009, section 12.3.3",
    "sweep": "most that comes out at any load (Schlosser et al. 2011)",
}


def bounds_text(found: SearchResult) -> str:
    """What is known of a limit by now, in thousands of frames/s of each stream."""
    if found.state is SearchState.FAILED:
        return UNKNOWN
    if found.state is SearchState.AT_LEAST:
        return f"≥ {kfps(found.lower_fps)} kfps"
    if found.lower_fps is None:
        return f"< {kfps(found.upper_fps)} kfps" if found.upper_fps is not None else UNKNOWN
    upper = "?" if found.upper_fps is None else kfps(found.upper_fps)
    return f"{kfps(found.lower_fps)} … {upper} kfps"


def remark(found: SearchResult) -> str:
    """What a reader must know of a result beside its bounds; empty for a plain one."""
    words = {
        SearchState.SEARCHING: "not finished",
        SearchState.FOUND: "",
        SearchState.AT_LEAST: f"limited by {found.limited_by}",
        SearchState.AT_MOST: "not even at the lowest load tried",
        SearchState.FAILED: f"nothing measured: {found.why or found.limited_by}",
    }[found.state]
    return "; ".join(part for part in (words, f"unstable: {found.unstable}" if found.unstable else "") if part)


def narrowed_line(found: SearchResult) -> str:
    """Likewise, while it is going on."""
    return f"{found.goal}: {bounds_text(found)}"


def found_line(found: SearchResult) -> str:
    """One line for a console or a log, once it is over."""
    told = f" ({remark(found)})" if remark(found) else ""
    return (
        f"{found.key}: {bounds_text(found)} in {count(found.trials, 'trial')}, {found.seconds:,.0f} s of traffic{told}"
    )


def searches_table(results: CampaignResults) -> Table:
    """A row per search and goal for the console; remarks follow."""
    rows = results.searches
    remarks = {text: None for one in rows if (text := remark(one))}
    numbers = {text: number for number, text in enumerate(remarks, start=1)}
    scenarios = len({one.scenario for one in rows}) > 1
    sources = len({one.streams for one in rows}) > 1
    repeated = len({one.repetition for one in rows}) > 1
    emulated = (LEGEND,) if results.emulated else ()
    remarked = (f"[{number}] {text}" for text, number in numbers.items())
    caption = "\n".join((_told(rows), *emulated, *remarked))
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    shown.add_column("UUT", overflow="fold", min_width=4)
    if scenarios:
        shown.add_column("Scenario", overflow="fold")
    if sources:
        shown.add_column("Sources", justify="right")
    for heading in ("Frame\nsize", "Goal", "Highest load\nkfps", "Out\nMbit/s", "Trials"):
        shown.add_column(heading, justify="left" if heading == "Goal" else "right", overflow="fold")
    previous = None
    for one in rows:
        if previous is not None and previous != one.uut:
            shown.add_section()
        previous = one.uut
        mark = f" [{numbers[remark(one)]}]" if remark(one) else ""
        goal = f"{one.goal} #{one.repetition}" if repeated else one.goal
        shown.add_row(
            Text(label(one.uut, results.emulated)),
            *([Text(one.scenario)] if scenarios else []),
            *([Text(str(len(one.streams)))] if sources else []),
            Text(f"{one.frame_size:,}"),
            Text(goal),
            Text(bounds_text(one).removesuffix(" kfps") + mark),
            Text(mbps(throughput_mbps(one))),
            Text(f"{one.trials:,}"),
        )
    return shown


def _told(rows: Sequence[SearchResult]) -> str:
    """By which method, and what the numbers are."""
    methods = ", ".join(dict.fromkeys(_METHODS.get(one.method, one.method) for one in rows))
    return f"{methods}; loads as offered by each stream's source, what came out on the wire (L1) of all streams"


def throughput_mbps(found: SearchResult) -> float | None:
    """What came out of all streams at the lower bound, on the wire, in Mbit/s."""
    if found.throughput_fps is None or found.state is SearchState.FAILED:
        return None
    return found.throughput_fps * len(found.streams) * l1_bits(found.frame_size) / 1e6


def searches_section(results: CampaignResults, looks: Mapping[str, Style]) -> Iterable[Section]:
    """A row per search and goal, by scenario; nothing where nothing was searched for."""
    if not results.searches:
        return
    columns: tuple[Column[SearchResult], ...] = (
        Column("UUT", lambda one: uut_label(one.uut, looks)),
        Column("Sources", lambda one: str(len(one.streams))),
        Column("Frame size", lambda one: f"{one.frame_size:,}"),
        Column("Search", lambda one: str(one.repetition)),
        Column("Goal", lambda one: one.goal, "words"),
        Column("Highest load of each stream", bounds_text),
        Column("Width", _width),
        Column("Throughput, all streams", lambda one: f"{mbps(throughput_mbps(one))} Mbit/s"),
        Column("Trials", lambda one: f"{one.trials:,}"),
        Column("Traffic", lambda one: f"{one.seconds:,.1f} s"),
        Column("To be known", remark, "words"),
    )
    yield section(
        "searches",
        "Highest loads",
        note(
            "The highest load at which each goal was met, between two loads that were really offered: it was met at the"
            " lower one, and not at the upper one. NDR is without loss, PDR with as much as it says. Frames that were"
            " still in queues when sending ended count as not forwarded where they are more than half the width. ≥: the"
            " UUT's own limit was not reached. Throughput is what came out at the lower bound. "
            + _told(results.searches)
            + "."
        ),
        _by_scenario(results.searches, columns),
        *_delays(results.searches, looks),
        link="Highest loads",
    )


def _delays(rows: Sequence[SearchResult], looks: Mapping[str, Style]) -> Iterable[Html]:
    """A row per load at which delays were measured after a search; nothing where none were."""
    loaded = [(one, at) for one in rows for at in one.delays]
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

    columns: tuple[Column[tuple[SearchResult, LoadedDelay]], ...] = (
        Column("UUT", lambda row: uut_label(row[0].uut, looks)),
        Column("Scenario", lambda row: row[0].scenario, "words"),
        Column("Sources", lambda row: str(len(row[0].streams))),
        Column("Frame size", lambda row: f"{row[0].frame_size:,}"),
        Column("Load", lambda row: f"{100 * row[1].share:g} % of {row[0].goal}", "words"),
        Column("kfps each", lambda row: kfps(row[1].load_fps)),
        *(Column(f"{title}, µs", told(of)) for title, of in times),
        Column("To be known", lambda row: row[1].refused, "words"),
    )
    yield element("h3", "Delay under load")
    yield note(
        "One way, from source to sink, of the stream whose median is longest: one trial at each part of the load that"
        " was found."
    )
    yield table(columns, [loaded])


def _by_scenario(rows: Sequence[SearchResult], columns: Sequence[Column[SearchResult]]) -> Html:
    by_scenario = grouped(rows, lambda one: one.scenario)
    return table(columns, by_scenario if len(by_scenario) > 1 else {"": list(rows)})


def _width(found: SearchResult) -> str:
    """How far apart the bounds are, and may be."""
    if found.lower_fps is None or not found.upper_fps:
        return UNKNOWN
    return percent((found.upper_fps - found.lower_fps) / found.upper_fps)

"""The tables of searches: the highest loads, each stream, delay under load, and the other tests of RFC 2544."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, TypeVar

from netbench.model.counts import l1_mbps
from netbench.model.distributions import Spread
from netbench.model.search import LoadedDelay, Rfc2544Tests, SearchResult, SearchState
from netbench.model.workload import traffic_text
from netbench.report.blocks import Column, Kind, Table, table
from netbench.report.formats import (
    SHOWN_UNITS,
    UNKNOWN,
    count,
    frames,
    kfps,
    mbps,
    microseconds,
    percent,
    rate_number,
    sentence,
)
from netbench.report.model import ReportModel
from netbench.report.tables.registry import report_table, stream_label, uut_column, words
from netbench.statistics.groups import grouped

TestRow = tuple[SearchResult, Rfc2544Tests]
Entry = TypeVar("Entry")
# The cells of a test of RFC 2544 by the titles of their columns.
TestCells = Mapping[str, Callable[[SearchResult, Any], str]]

_NOTES = "Notes"
_METHODS = {
    "mlrsearch": "MLRsearch",
    "rfc2544": "RFC 2544, section 26.1",
    "tst009": "ETSI GS NFV-TST 009, section 12.3.3",
    "loss-rate": "frame loss rate (RFC 2544, section 26.3)",
    "slo": "binary search for the highest rate that meets a service level objective (SLO)",
    "sweep": "highest throughput at any load (Schlosser et al. 2011)",
}


def bounds_text(search: SearchResult) -> str:
    """The bounds of a limit so far, of each stream: in thousands of frames/s, operations/s or Mbit/s."""
    unit, lower, upper = SHOWN_UNITS[search.unit], search.lower, search.upper
    low, high = rate_number(lower, search.unit), "?" if upper is None else rate_number(upper, search.unit)
    if search.state is SearchState.AT_LEAST and lower is not None:
        return f"≥ {low}{unit}"
    if lower is None:
        return UNKNOWN if upper is None or search.state is SearchState.FAILED else f"< {high}{unit}"
    return f"{low} … {high}{unit}"


def remark(search: SearchResult) -> str:
    """The caveats of a result; empty where there are none."""
    given_up = "nothing measured" if search.lower is None else "search aborted"
    far_apart = "" if search.is_regular else f"bounds further apart than {percent(search.width)}"
    texts = {
        SearchState.SEARCHING: "not finished",
        SearchState.FOUND: search.why or far_apart,
        SearchState.AT_LEAST: f"limited by {search.limited_by}",
        SearchState.AT_MOST: "goal missed even at the lowest load tried",
        SearchState.FAILED: f"{given_up}: {search.why or search.limited_by.stored or 'no trial counts for the UUT'}",
    }
    parts = (texts[search.state], f"unstable: {search.unstable}" if search.unstable else "")
    return "; ".join(part for part in parts if part)


def methods_text(searches: Sequence[SearchResult]) -> str:
    """The methods of searches, and the meaning of their numbers."""
    methods = dict.fromkeys(_METHODS.get(search.method, search.method) for search in searches)
    key = "searches.methods_of_flows" if all(search.of_flows for search in searches) else "searches.methods"
    return sentence(key, methods=", ".join(methods))


def throughput_text(search: SearchResult) -> str:
    """The throughput of all streams at the lower bound: of frames on the wire (L1) in Mbit/s, else in its unit."""
    rate = None if search.throughput is None or search.is_failed else search.throughput * len(search.streams)
    if search.of_flows:
        return rate_number(rate, search.unit)
    return mbps(None if rate is None else l1_mbps(rate, search.frame_size.mean_bytes))


def throughput_unit(search: SearchResult) -> str:
    """The unit of that throughput."""
    return SHOWN_UNITS[search.unit] if search.of_flows else " Mbit/s"


def _searches(model: ReportModel) -> tuple[SearchResult, ...]:
    return (*model.results.searches, *model.results.maxima_searches)


@report_table("searches")
def searches(model: ReportModel) -> Iterator[Table]:
    """A row per search and goal, by scenario."""
    kinds = {search.of_flows for search in _searches(model)}
    of_flows, is_mixed = True in kinds, len(kinds) > 1
    columns: tuple[Column[SearchResult], ...] = (
        uut_column(model.styles, lambda search: search.uut),
        Column("Sources", lambda search: str(len(search.streams))),
        Column(
            "Traffic" if is_mixed else "Workload" if of_flows else "Frame size",
            lambda s: traffic_text(s.kind_of_traffic),
        ),
        Column("Search", lambda search: str(search.repetition)),
        words("Goal", lambda search: search.goal),
        Column("Highest load of each stream", bounds_text),
        Column("Width", _width),
        Column("Conditional throughput, all streams", lambda s: f"{throughput_text(s)}{throughput_unit(s)}"),
        Column("Trials", lambda search: f"{search.trials:,}"),
        Column("Traffic", lambda search: f"{search.seconds:,.1f} s"),
        words(_NOTES, remark),
    )
    if rows := _searches(model):
        several = len({search.scenario for search in rows}) > 1
        yield table(rows, *columns, block=(lambda search: search.scenario) if several else None)


def _width(search: SearchResult) -> str:
    """The distance of the bounds, relative to the upper one."""
    if search.lower is None or not search.upper:
        return UNKNOWN
    return percent((search.upper - search.lower) / search.upper)


def _of_searches(
    model: ReportModel,
    rows: Sequence[tuple[SearchResult, Entry]],
    *columns: Column[tuple[SearchResult, Entry]],
    of_one_scenario: bool = False,
) -> Iterator[Table]:
    """A table whose first columns identify a search; nothing without rows."""
    repeated = len({search.repetition for search, _ in rows}) > 1
    by_scenario: tuple[Column[tuple[SearchResult, Entry]], ...] = (
        words("Scenario", lambda row: row[0].scenario),
        Column("Sources", lambda row: str(len(row[0].streams))),
    )
    first: tuple[Column[tuple[SearchResult, Entry]], ...] = (
        uut_column(model.styles, lambda row: row[0].uut),
        *(() if of_one_scenario else by_scenario),
        Column("Frame size", lambda row: traffic_text(row[0].kind_of_traffic)),
        *((Column("Search", lambda row: str(row[0].repetition)),) if repeated else ()),
    )
    if rows:
        yield table(rows, *first, *columns)


@report_table("search-streams")
def search_streams(model: ReportModel) -> Iterator[Table]:
    """A row per stream of searches with several."""
    return _of_searches(
        model,
        [(search, stream) for search in _searches(model) for stream in search.each],
        words("Goal", lambda row: row[0].goal),
        words("Stream", lambda row: stream_label(row[1].stream, row[1].reverse_of)),
        Column("Offered, kfps", lambda row: kfps(row[1].offered_fps)),
        Column("Received, kfps", lambda row: kfps(row[1].forwarded_fps)),
        Column("Lost", lambda row: percent(row[1].loss_ratio)),
    )


@report_table("search-delays")
def search_delays(model: ReportModel) -> Iterator[Table]:
    """A row per load at which delays were measured after a search."""

    def time(title: str, of: Callable[[Spread], float | None]) -> Column[tuple[SearchResult, LoadedDelay]]:
        return Column(title, lambda row: UNKNOWN if row[1].delay is None else microseconds(of(row[1].delay)))

    return _of_searches(
        model,
        [(search, loaded) for search in _searches(model) for loaded in search.delays],
        words("Load", lambda row: f"{100 * row[1].share:g} % of {row[0].goal}"),
        Column("kfps each", lambda row: kfps(row[1].load_fps)),
        time("Median, µs", lambda delay: delay.median_ns),
        time("90 %, µs", lambda delay: delay.p90_ns),
        time("99 %, µs", lambda delay: delay.p99_ns),
        time("99.9 %, µs", lambda delay: delay.p999_ns),
        time("Longest, µs", lambda delay: delay.largest_ns),
        words(_NOTES, lambda row: row[1].refused),
    )


def tested(searches: Iterable[SearchResult]) -> list[TestRow]:
    """The searches that have further tests, each with those tests."""
    return [(search, search.tests) for search in searches if search.tests is not None]


def by_streams(rows: Iterable[TestRow]) -> dict[str, list[TestRow]]:
    """The rows by scenario and number of sources."""
    return grouped(rows, lambda row: sources_text(row[0]))


def sources_text(search: SearchResult) -> str:
    """The scenario and the number of sources, or of clients, of a search."""
    return f"{search.scenario}, {count(len(search.streams), 'client' if search.of_flows else 'source')}"


def latency_text(tests: Rfc2544Tests) -> str:
    """The mean latency of the trials, in µs; empty where it was not tested."""
    latency = tests.latency
    if latency is None:
        return ""
    return microseconds(fmean(latency.means_ns)) if latency.means_ns else UNKNOWN


def bursts_text(tests: Rfc2544Tests) -> str:
    """The mean of the longest bursts, in frames; empty where they were not tested."""
    bursts = tests.back_to_back
    if bursts is None:
        return ""
    if bursts.mean_frames is None:
        return UNKNOWN if bursts.too_long_frames is None else f"< {bursts.too_long_frames:,}"
    return f"{'' if bursts.is_bounded else '≥ '}{bursts.mean_frames:,.0f}"


def buffer_text(tests: Rfc2544Tests) -> str:
    """The buffer that the mean burst implies, as RFC 9004 corrects it, in µs."""
    bursts = tests.back_to_back
    if bursts is None or bursts.corrected_buffer_s is None:
        return "" if bursts is None else UNKNOWN
    return f"{'' if bursts.is_bounded else '≥ '}{microseconds(bursts.corrected_buffer_s * 1e9)}"


def recovery_text(tests: Rfc2544Tests) -> str:
    """The mean of the recovery times, in ms."""
    recovery = tests.recovery
    if recovery is None:
        return ""
    if recovery.unrecovered:
        return f"> {recovery.reduced_s:g} s"
    return f"{1000 * fmean(recovery.seconds):,.1f} ms" if recovery.seconds else UNKNOWN


def reset_text(tests: Rfc2544Tests) -> str:
    """The mean of the reset times, in s."""
    reset = tests.reset
    if reset is None:
        return ""
    if reset.dead:
        return "not back"
    return f"{fmean(reset.seconds):,.2f} s" if reset.seconds else UNKNOWN


def refusals(tests: Rfc2544Tests) -> Iterator[str]:
    """The reasons why tests, or parts of them, were not measured."""
    named = {
        "latency": tests.latency,
        "back-to-back": tests.back_to_back,
        "system recovery": tests.recovery,
        "reset": tests.reset,
    }
    yield from (f"{name}: {test.refused}" for name, test in named.items() if test is not None and test.refused)
    yield from (f"frame loss at {loss.share:.0%}: {loss.refused}" for loss in tests.losses if loss.refused)


def test_tables(rows: Sequence[TestRow], model: ReportModel) -> Iterator[tuple[str, Table]]:
    """A table per test, with its title; a row per UUT, frame size and search."""
    for name, cells in _TESTS.items():
        of_test = [(search, test) for search, tests in rows if (test := getattr(tests, name)) is not None]
        columns: list[Column[tuple[SearchResult, Any]]] = []
        for title, cell in cells.items():
            kind = Kind.WORDS if title == _NOTES else Kind.TEXT
            columns.append(Column(title, lambda row, cell=cell: cell(*row), kind))  # type: ignore[misc]  # mypy cannot infer lambdas with bound arguments
        for table_of_test in _of_searches(model, of_test, *columns, of_one_scenario=True):
            yield sentence(f"rfc2544.{name}"), table_of_test


@report_table("rfc2544")
def rfc2544(model: ReportModel) -> Iterator[Table]:
    """All tables of the other tests of RFC 2544."""
    for rows in by_streams(tested(model.results.searches)).values():
        yield from (of_test for _, of_test in test_tables(rows, model))


def _of_tests(show: Callable[[Rfc2544Tests], str]) -> Callable[[SearchResult, object], str]:
    """A cell that the terminal shows too."""
    return lambda search, _: "" if search.tests is None else show(search.tests)


def _frames(mean: float | None) -> str:
    return UNKNOWN if mean is None else f"{mean:,.1f}"


def _us(seconds: float | None) -> str:
    return microseconds(None if seconds is None else seconds * 1e9)


def _resolution(search: SearchResult, bursts: Sequence[int]) -> str:
    """The step of RFC 9004: the largest distance between the burst without loss and that with loss, in frames."""
    return f"{max(1, int(search.width * max(bursts))):,}" if bursts else UNKNOWN


_TESTS: Mapping[str, TestCells] = {
    "latency": {
        "Load, kfps": lambda _, latency: kfps(latency.load_fps or None),
        "Latency, µs": _of_tests(latency_text),
        "Trials": lambda _, latency: str(len(latency.means_ns)),
        "Trial duration": lambda _, latency: f"{latency.trial_s:g} s",
        _NOTES: lambda _, latency: latency.refused,
    },
    "back_to_back": {
        "Rate, kfps": lambda _, bursts: kfps(bursts.rate_fps),
        "Mean burst, frames": _of_tests(bursts_text),
        "Smallest": lambda _, bursts: frames(min(bursts.frames, default=None)),
        "Largest": lambda _, bursts: frames(max(bursts.frames, default=None)),
        "Standard deviation": lambda _, bursts: _frames(bursts.deviation_frames),
        "Searches": lambda _, bursts: str(len(bursts.frames)),
        "Resolution, frames": lambda search, bursts: _resolution(search, bursts.frames),
        "Longest tried": lambda _, bursts: frames(bursts.longest_frames),
        "Implied buffer, µs": lambda _, bursts: _us(bursts.implied_buffer_s),
        "Corrected buffer, µs": _of_tests(buffer_text),
        "Corrected buffer, frames": lambda _, bursts: _frames(bursts.corrected_buffer_frames),
        _NOTES: lambda _, bursts: bursts.refused,
    },
    "recovery": {
        "Throughput, kfps": lambda search, _: kfps(search.lower),
        "Overload, kfps": lambda _, recovery: kfps(recovery.overload_fps or None),
        "Reduced load, kfps": lambda _, recovery: kfps(recovery.reduced_fps or None),
        "Recovery": _of_tests(recovery_text),
        "Each": lambda _, recovery: ", ".join(f"{1000 * s:,.1f} ms" for s in recovery.seconds) or UNKNOWN,
        _NOTES: lambda _, recovery: recovery.refused,
    },
    "reset": {
        "Load, kfps": lambda _, reset: kfps(reset.load_fps or None),
        "Reset": _of_tests(reset_text),
        "Each": lambda _, reset: ", ".join(f"{s:,.2f} s" for s in reset.seconds) or UNKNOWN,
        _NOTES: lambda _, reset: reset.refused,
    },
}

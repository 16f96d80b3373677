"""The tables of searches: the highest loads, each stream, delay under load, and the other tests of RFC 2544."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean
from typing import TypeVar

from netbench.model.distributions import Spread
from netbench.model.frame_mix import size_text
from netbench.model.search import (
    BackToBack,
    Latency,
    LoadedDelay,
    Recovery,
    Reset,
    Rfc2544Tests,
    SearchedStream,
    SearchResult,
    SearchState,
)
from netbench.model.units import l1_bits
from netbench.report.blocks import Column, Kind, Table, table
from netbench.report.formats import UNKNOWN, frames, kfps, mbps, microseconds, percent
from netbench.report.model import ReportModel
from netbench.report.sentences import sentence
from netbench.report.tables.columns import stream_label, uut_column, words
from netbench.report.tables.registry import report_table
from netbench.statistics.groups import grouped

TestRow = tuple[SearchResult, Rfc2544Tests]
TestCell = tuple[str, Callable[[TestRow], str]]
Test = TypeVar("Test")
Entry = TypeVar("Entry", SearchedStream, LoadedDelay)

_NOTES = "Notes"
_METHODS = {
    "mlrsearch": "MLRsearch",
    "rfc2544": "RFC 2544, section 26.1",
    "tst009": "ETSI GS NFV-TST 009, section 12.3.3",
    "loss-rate": "frame loss rate (RFC 2544, section 26.3)",
    "sweep": "highest throughput at any load (Schlosser et al. 2011)",
}


def bounds_text(search: SearchResult) -> str:
    """The bounds of a limit so far, in thousands of frames/s of each stream."""
    if search.state is SearchState.FAILED and search.lower_fps is None:
        return UNKNOWN
    if search.state is SearchState.AT_LEAST:
        return f"≥ {kfps(search.lower_fps)} kfps"
    if search.lower_fps is None:
        return f"< {kfps(search.upper_fps)} kfps" if search.upper_fps is not None else UNKNOWN
    upper = "?" if search.upper_fps is None else kfps(search.upper_fps)
    return f"{kfps(search.lower_fps)} … {upper} kfps"


def remark(search: SearchResult) -> str:
    """The caveats of a result; empty where there are none."""
    given_up = "nothing measured" if search.lower_fps is None else "search aborted"
    texts = {
        SearchState.SEARCHING: "not finished",
        SearchState.FOUND: search.why
        or ("" if search.is_regular else f"bounds further apart than {percent(search.width)}"),
        SearchState.AT_LEAST: f"limited by {search.limited_by}",
        SearchState.AT_MOST: "goal missed even at the lowest load tried",
        SearchState.FAILED: f"{given_up}: {search.why or search.limited_by or 'no trial counts for the UUT'}",
    }
    parts = (texts[search.state], f"unstable: {search.unstable}" if search.unstable else "")
    return "; ".join(part for part in parts if part)


def methods_text(searches: Sequence[SearchResult]) -> str:
    """The methods of searches, and the meaning of their numbers."""
    methods = dict.fromkeys(_METHODS.get(search.method, search.method) for search in searches)
    return sentence("searches.methods", methods=", ".join(methods))


def throughput_mbps(search: SearchResult) -> float | None:
    """The throughput of all streams at the lower bound, on the wire (L1), in Mbit/s."""
    if search.throughput_fps is None or search.state is SearchState.FAILED:
        return None
    return search.throughput_fps * len(search.streams) * l1_bits(search.frame_size) / 1e6


@report_table("searches", "Highest loads", "searches")
def searches(model: ReportModel) -> Iterator[Table]:
    """A row per search and goal, by scenario."""
    rows = (*model.results.searches, *model.results.maxima_searches)
    if not rows:
        return
    columns: tuple[Column[SearchResult], ...] = (
        uut_column(model.styles, lambda search: search.uut),
        Column("Sources", lambda search: str(len(search.streams))),
        Column("Frame size", lambda search: size_text(search.frame_size)),
        Column("Search", lambda search: str(search.repetition)),
        words("Goal", lambda search: search.goal),
        Column("Highest load of each stream", bounds_text),
        Column("Width", _width),
        Column("Conditional throughput, all streams", lambda search: f"{mbps(throughput_mbps(search))} Mbit/s"),
        Column("Trials", lambda search: f"{search.trials:,}"),
        Column("Traffic", lambda search: f"{search.seconds:,.1f} s"),
        words(_NOTES, remark),
    )
    several = len({search.scenario for search in rows}) > 1
    yield table(columns, rows, block=(lambda search: search.scenario) if several else None)


def _width(search: SearchResult) -> str:
    """The distance of the bounds, relative to the upper one."""
    if search.lower_fps is None or not search.upper_fps:
        return UNKNOWN
    return percent((search.upper_fps - search.lower_fps) / search.upper_fps)


def _of_searches(model: ReportModel, _entry: type[Entry]) -> tuple[Column[tuple[SearchResult, Entry]], ...]:
    """The columns that identify a search."""
    return (
        uut_column(model.styles, lambda row: row[0].uut),
        words("Scenario", lambda row: row[0].scenario),
        Column("Sources", lambda row: str(len(row[0].streams))),
        Column("Frame size", lambda row: size_text(row[0].frame_size)),
    )


@report_table("search-streams", "Each stream at its highest load", "searches with several streams")
def search_streams(model: ReportModel) -> Iterator[Table]:
    """A row per stream of searches with several."""
    rows = [(search, stream) for search in _all(model) for stream in search.each]
    repeated = len({search.repetition for search, _ in rows}) > 1
    columns: tuple[Column[tuple[SearchResult, SearchedStream]], ...] = (
        *_of_searches(model, SearchedStream),
        *((Column("Search", lambda row: str(row[0].repetition)),) if repeated else ()),
        words("Goal", lambda row: row[0].goal),
        words("Stream", lambda row: stream_label(row[1].stream, row[1].reverse_of)),
        Column("Offered, kfps", lambda row: kfps(row[1].offered_fps)),
        Column("Received, kfps", lambda row: kfps(row[1].forwarded_fps)),
        Column("Lost", lambda row: percent(row[1].loss_ratio)),
    )
    if rows:
        yield table(columns, rows)


def _all(model: ReportModel) -> Iterable[SearchResult]:
    return (*model.results.searches, *model.results.maxima_searches)


@report_table("search-delays", "Delay under load", "delay trials after a search")
def search_delays(model: ReportModel) -> Iterator[Table]:
    """A row per load at which delays were measured after a search."""
    rows = [(search, loaded) for search in _all(model) for loaded in search.delays]

    def time(title: str, of: Callable[[Spread], float | None]) -> Column[tuple[SearchResult, LoadedDelay]]:
        return Column(title, lambda row: UNKNOWN if row[1].delay is None else microseconds(of(row[1].delay)))

    columns: tuple[Column[tuple[SearchResult, LoadedDelay]], ...] = (
        *_of_searches(model, LoadedDelay),
        words("Load", lambda row: f"{100 * row[1].share:g} % of {row[0].goal}"),
        Column("kfps each", lambda row: kfps(row[1].load_fps)),
        time("Median, µs", lambda delay: delay.median_ns),
        time("90 %, µs", lambda delay: delay.p90_ns),
        time("99 %, µs", lambda delay: delay.p99_ns),
        time("99.9 %, µs", lambda delay: delay.p999_ns),
        time("Longest, µs", lambda delay: delay.largest_ns),
        words(_NOTES, lambda row: row[1].refused),
    )
    if rows:
        yield table(columns, rows)


def tested(searches: Iterable[SearchResult]) -> list[TestRow]:
    """The searches that have further tests, each with those tests."""
    return [(search, search.tests) for search in searches if search.tests is not None]


def by_streams(rows: Iterable[TestRow]) -> dict[tuple[str, int], list[TestRow]]:
    """The rows by scenario and number of sources."""
    return grouped(rows, lambda row: (row[0].scenario, len(row[0].streams)))


def latency_text(tests: Rfc2544Tests) -> str:
    """The mean latency of the trials, in µs; empty where it was not tested."""
    latency = tests.latency
    if latency is None:
        return ""
    return microseconds(fmean(latency.means_ns)) if latency.means_ns else UNKNOWN


def bursts_text(tests: Rfc2544Tests) -> str:
    """The mean of the longest bursts, in frames."""
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
    for name, test in named.items():
        if test is not None and test.refused:
            yield f"{name}: {test.refused}"
    for loss in tests.losses:
        if loss.refused:
            yield f"frame loss at {loss.share:.0%}: {loss.refused}"


def test_tables(rows: Sequence[TestRow], model: ReportModel) -> Iterator[tuple[str, Table]]:
    """A table per test, with its title; a row per UUT, frame size and search."""
    for name, (measured, cells) in _TESTS.items():
        if of_test := [row for row in rows if measured(row[1])]:
            repeated = len({search.repetition for search, _ in of_test}) > 1
            columns: tuple[Column[TestRow], ...] = (
                uut_column(model.styles, lambda row: row[0].uut),
                Column("Frame size", lambda row: size_text(row[0].frame_size)),
                *((Column("Search", lambda row: str(row[0].repetition)),) if repeated else ()),
                *(Column(title, cell, Kind.WORDS if title == _NOTES else Kind.TEXT) for title, cell in cells),
            )
            yield sentence(f"rfc2544.{name}"), table(columns, of_test)


@report_table("rfc2544", "Tests of RFC 2544", "the tests of RFC 2544")
def rfc2544(model: ReportModel) -> Iterator[Table]:
    """All tables of the other tests of RFC 2544."""
    for rows in by_streams(tested(model.results.searches)).values():
        yield from (of_test for _, of_test in test_tables(rows, model))


def _of(read: Callable[[Rfc2544Tests], Test | None], cell: Callable[[Test], str]) -> Callable[[TestRow], str]:
    """A cell about one test; empty where that was not made."""

    def of_row(row: TestRow) -> str:
        test = read(row[1])
        return "" if test is None else cell(test)

    return of_row


def _latency(cell: Callable[[Latency], str]) -> Callable[[TestRow], str]:
    return _of(lambda tests: tests.latency, cell)


def _bursts(cell: Callable[[BackToBack], str]) -> Callable[[TestRow], str]:
    return _of(lambda tests: tests.back_to_back, cell)


def _recovery(cell: Callable[[Recovery], str]) -> Callable[[TestRow], str]:
    return _of(lambda tests: tests.recovery, cell)


def _reset(cell: Callable[[Reset], str]) -> Callable[[TestRow], str]:
    return _of(lambda tests: tests.reset, cell)


def _frames(mean: float | None) -> str:
    return UNKNOWN if mean is None else f"{mean:,.1f}"


def _resolution(row: TestRow) -> str:
    """The step of RFC 9004: the largest distance between the burst without loss and that with loss, in frames."""
    search, tests = row
    bursts = tests.back_to_back
    return f"{max(1, int(search.width * max(bursts.frames))):,}" if bursts and bursts.frames else UNKNOWN


def _each(values: Sequence[float], show: Callable[[float], str]) -> str:
    return ", ".join(map(show, values)) or UNKNOWN


_TESTS: dict[str, tuple[Callable[[Rfc2544Tests], bool], tuple[TestCell, ...]]] = {
    "latency": (
        lambda tests: tests.latency is not None,
        (
            ("Load, kfps", _latency(lambda latency: kfps(latency.load_fps or None))),
            ("Latency, µs", lambda row: latency_text(row[1])),
            ("Trials", _latency(lambda latency: str(len(latency.means_ns)))),
            ("Each of", _latency(lambda latency: f"{latency.trial_s:g} s")),
            (_NOTES, _latency(lambda latency: latency.refused)),
        ),
    ),
    "back_to_back": (
        lambda tests: tests.back_to_back is not None,
        (
            ("Rate, kfps", _bursts(lambda bursts: kfps(bursts.rate_fps))),
            ("Mean burst, frames", lambda row: bursts_text(row[1])),
            ("Smallest", _bursts(lambda bursts: frames(min(bursts.frames, default=None)))),
            ("Largest", _bursts(lambda bursts: frames(max(bursts.frames, default=None)))),
            ("Standard deviation", _bursts(lambda bursts: _frames(bursts.deviation_frames))),
            ("Searches", _bursts(lambda bursts: str(len(bursts.frames)))),
            ("Resolution, frames", lambda row: _resolution(row)),
            ("Longest tried", _bursts(lambda bursts: frames(bursts.longest_frames))),
            (
                "Implied buffer, µs",
                _bursts(
                    lambda bursts: (
                        UNKNOWN if bursts.implied_buffer_s is None else microseconds(bursts.implied_buffer_s * 1e9)
                    )
                ),
            ),
            ("Corrected buffer, µs", lambda row: buffer_text(row[1])),
            ("In frames", _bursts(lambda bursts: _frames(bursts.corrected_buffer_frames))),
            (_NOTES, _bursts(lambda bursts: bursts.refused)),
        ),
    ),
    "recovery": (
        lambda tests: tests.recovery is not None,
        (
            ("Throughput, kfps", lambda row: kfps(row[0].lower_fps)),
            ("Overload, kfps", _recovery(lambda recovery: kfps(recovery.overload_fps or None))),
            ("Then, kfps", _recovery(lambda recovery: kfps(recovery.reduced_fps or None))),
            ("Recovery", lambda row: recovery_text(row[1])),
            ("Each", _recovery(lambda recovery: _each(recovery.seconds, lambda seconds: f"{1000 * seconds:,.1f} ms"))),
            (_NOTES, _recovery(lambda recovery: recovery.refused)),
        ),
    ),
    "reset": (
        lambda tests: tests.reset is not None,
        (
            ("Load, kfps", _reset(lambda reset: kfps(reset.load_fps or None))),
            ("Reset", lambda row: reset_text(row[1])),
            ("Each", _reset(lambda reset: _each(reset.seconds, lambda seconds: f"{seconds:,.2f} s"))),
            (_NOTES, _reset(lambda reset: reset.refused)),
        ),
    ),
}

"""The tests of RFC 2544 beside that of throughput, in the tables and graphs that its section 26 requires."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import TypeVar

from netbench.model.campaign import CampaignResults
from netbench.model.frame_mix import mean_bytes, rising, size_text
from netbench.model.search import (
    BackToBack,
    Latency,
    LossAtLoad,
    Recovery,
    Reset,
    Rfc2544Tests,
    SearchResult,
    SearchState,
)
from netbench.model.units import l1_bits, line_rate_fps
from netbench.model.verdict import WarningKind
from netbench.report.chart import Chart, Guide
from netbench.report.formats import UNKNOWN, count, frames, kfps, microseconds, percent
from netbench.report.markup import Html, TableColumn, element, table
from netbench.report.panels import Panels, Point, size_titles
from netbench.report.sections import Section, drawn_apart, note, section
from netbench.report.styles import Style
from netbench.report.tables import uut_label
from netbench.statistics.groups import grouped
from netbench.statistics.intervals import Interval

Row = tuple[SearchResult, Rfc2544Tests]
Cell = tuple[str, Callable[[Row], str]]
Test = TypeVar("Test")

_NOTES = "Notes"
_CURVE_STEP = 16  # bytes


def tested(searches: Iterable[SearchResult]) -> list[Row]:
    """The searches that have further tests, each with those tests."""
    return [(search, search.tests) for search in searches if search.tests is not None]


def with_figures(rows: Iterable[Row]) -> dict[tuple[str, int], list[Row]]:
    """The rows of each figure of `throughput_graph` and `loss_graph`, by scenario and number of sources."""
    return grouped(rows, lambda row: (row[0].scenario, len(row[0].streams)))


def has_losses(rows: Iterable[Row]) -> bool:
    """Whether any row has losses for `loss_graph`."""
    return any(tests.losses for _, tests in rows)


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


def rfc2544_section(results: CampaignResults, looks: Mapping[str, Style]) -> Iterable[Section]:
    """A graph or a table per test, and the deviations from RFC 2544; nothing where no test was made."""
    rows = tested(results.searches)
    if not rows:
        return
    otherwise = [warning.text for warning in results.warnings if warning.kind is WarningKind.NOT_AS_RFC_2544]
    yield section(
        "rfc2544",
        "Tests of RFC 2544",
        note(
            "Throughput is the highest load without loss, as searched for. Loads and rates are frames/s of each stream;"
            " the theoretical rate is that of the link's nominal rate in the topology. Protocol: UDP in IPv4. Data"
            " stream: frames at even gaps, but for bursts. Medium: Ethernet, over veth pairs or"
            " NICs as the topology has them."
        ),
        *_by_scenario(rows, looks),
        element("h3", "Not as RFC 2544 has it"),
        element("ul", *(element("li", text) for text in otherwise)) if otherwise else note("Nothing."),
        link="RFC 2544",
        is_open=True,
    )


def _by_scenario(rows: Sequence[Row], looks: Mapping[str, Style]) -> Iterator[Html]:
    parts = with_figures(rows)
    for place, ((scenario, sources), members) in enumerate(parts.items()):
        if len(parts) > 1:
            yield element("h3", f"{scenario}, {count(sources, 'source')}")
        yield element("h4", "Throughput (section 26.1)")
        yield drawn_apart(members, lambda row: row[0].uut, looks, throughput_graph, f"rfc2544-throughput-{place}")
        yield from _table(members, looks, "Latency (section 26.2)", lambda tests: tests.latency is not None, _LATENCY)
        if has_losses(members):
            yield element("h4", "Frame loss rate (section 26.3)")
            yield drawn_apart(members, lambda row: row[0].uut, looks, loss_graph, f"rfc2544-loss-{place}")
        bursts = "Back-to-back frames (section 26.4, RFC 9004; by halving)"
        yield from _table(members, looks, bursts, lambda tests: tests.back_to_back is not None, _BACK_TO_BACK)
        recovery = "System recovery (section 26.5)"
        yield from _table(members, looks, recovery, lambda tests: tests.recovery is not None, _RECOVERY)
        yield from _table(members, looks, "Reset (section 26.6)", lambda tests: tests.reset is not None, _RESET)


def throughput_graph(rows: Sequence[Row], looks: Mapping[str, Style]) -> Chart:
    """The theoretical rate of the link and the throughput of each UUT by frame size, as section 26.1 requires."""
    panels = Panels({"": ""}, (search.uut for search, _ in rows), looks, "Frame size [bytes]", "Throughput [kfps]")
    by_size = sorted(rows, key=lambda row: rising(row[0].frame_size))
    # Also between the measured sizes, because the rate falls in a curve.
    least, most = mean_bytes(by_size[0][0].frame_size), mean_bytes(by_size[-1][0].frame_size)
    link_bps = by_size[0][1].line_rate_fps * l1_bits(least)
    sizes = sorted(
        {*range(int(least), int(most), _CURVE_STEP), *(mean_bytes(search.frame_size) for search, _ in by_size)}
    )
    line_rates = {size: line_rate_fps(link_bps, size) / 1000 for size in sizes}
    tops = [*line_rates.values(), *((search.lower_fps or 0.0) / 1000 for search, _ in rows)]
    far_apart = _are_far_apart(rows)
    bottoms = [
        value
        for value in (min(line_rates.values()), *((search.lower_fps or 0.0) / 1000 for search, _ in rows))
        if value
    ]
    panels.scale("", [0, 1.05 * most], [min(bottoms) / 1.5 if far_apart else 0.0, 1.05 * max(tops)])
    panels.panel("").y.logarithmic = far_apart
    panels.guide("", Guide(tuple((size, line_rates[size]) for size in sizes), "theoretical rate of the link"))
    for uut, members in grouped(by_size, lambda row: row[0].uut).items():
        points = [
            Point(
                _exactly(mean_bytes(search.frame_size)),
                _exactly(search.lower_fps / 1000),
                _hover(search, looks),
                {"uut": search.uut, "frame_size": size_text(search.frame_size), "throughput_fps": search.lower_fps},
            )
            for search, _ in members
            if search.lower_fps is not None
        ]
        panels.line("", uut, points, ends=False)
    panels.legend()
    return panels.figure


def loss_graph(rows: Sequence[Row], looks: Mapping[str, Style]) -> Chart:
    """Loss by offered load, in percent of the highest load tried, both from 0 to 100 % (section 26.3)."""
    by_size = grouped(
        sorted(rows, key=lambda row: rising(row[0].frame_size), reverse=True), lambda row: row[0].frame_size
    )
    titles = size_titles(by_size)
    panels = Panels(titles, (search.uut for search, _ in rows), looks, "Offered load [% of the highest]", "Loss [%]")
    for size, members in by_size.items():
        panels.scale(size, [0, 100], [0, 100])
        for search, tests in members:
            known = [(at, at.loss_ratio) for at in reversed(tests.losses) if at.loss_ratio is not None]
            points = [
                Point(
                    _exactly(100 * at.share),
                    _exactly(100 * loss),
                    _loss_hover(search, at, looks),
                    {"uut": search.uut, "frame_size": size_text(size), "share": at.share, "loss_ratio": loss},
                )
                for at, loss in known
            ]
            panels.line(size, search.uut, points, ends=False)
    panels.legend()
    return panels.figure


def _are_repeated(rows: Sequence[Row]) -> bool:
    return len({search.repetition for search, _ in rows}) > 1


def _are_far_apart(rows: Sequence[Row]) -> bool:
    """Whether the throughput would not be visible beside the theoretical rate."""
    most = max(search.lower_fps or 0.0 for search, _ in rows)
    return 0 < most < max(tests.line_rate_fps for _, tests in rows) / 20


def _exactly(value: float) -> Interval:
    return Interval(value, None, 1)


def _hover(one: SearchResult, looks: Mapping[str, Style]) -> str:
    mark = "≥ " if one.state is SearchState.AT_LEAST else ""
    return f"{looks[one.uut].label}: {mark}{kfps(one.lower_fps)} kfps at {size_text(one.frame_size, ' bytes')}"


def _loss_hover(one: SearchResult, at: LossAtLoad, looks: Mapping[str, Style]) -> str:
    return f"{looks[one.uut].label}: {percent(at.loss_ratio)} lost of {kfps(at.offered_fps)} kfps"


def _table(
    rows: Sequence[Row],
    looks: Mapping[str, Style],
    title: str,
    has: Callable[[Rfc2544Tests], bool],
    cells: Sequence[Cell],
) -> Iterator[Html]:
    """A row per UUT, frame size and search."""
    tested_rows = [row for row in rows if has(row[1])]
    if not tested_rows:
        return
    search: TableColumn[Row] = TableColumn("Search", lambda row: str(row[0].repetition))
    columns: list[TableColumn[Row]] = [
        TableColumn("UUT", lambda row: uut_label(row[0].uut, looks)),
        TableColumn("Frame size", lambda row: size_text(row[0].frame_size)),
        *([search] if _are_repeated(tested_rows) else []),
        *(TableColumn(heading, cell, "words" if heading == _NOTES else "") for heading, cell in cells),
    ]
    yield element("h4", title)
    yield table(columns, [tested_rows])


def _of(found: Callable[[Rfc2544Tests], Test | None], cell: Callable[[Test], str]) -> Callable[[Row], str]:
    """A cell about one test; empty where that was not made."""

    def of_row(row: Row) -> str:
        test = found(row[1])
        return "" if test is None else cell(test)

    return of_row


def _microseconds(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else microseconds(seconds * 1e9)


def _frames(mean: float | None) -> str:
    return UNKNOWN if mean is None else f"{mean:,.1f}"


def _known_to(row: Row) -> str:
    """The step of RFC 9004: the largest distance between the burst without loss and that with loss, in frames."""
    search, tests = row
    bursts = tests.back_to_back
    return f"{max(1, int(search.width * max(bursts.frames))):,}" if bursts and bursts.frames else UNKNOWN


def _each(values: Sequence[float], one: Callable[[float], str]) -> str:
    return ", ".join(map(one, values)) or UNKNOWN


def _latency(cell: Callable[[Latency], str]) -> Callable[[Row], str]:
    return _of(lambda tests: tests.latency, cell)


def _bursts(cell: Callable[[BackToBack], str]) -> Callable[[Row], str]:
    return _of(lambda tests: tests.back_to_back, cell)


def _recovery(cell: Callable[[Recovery], str]) -> Callable[[Row], str]:
    return _of(lambda tests: tests.recovery, cell)


def _reset(cell: Callable[[Reset], str]) -> Callable[[Row], str]:
    return _of(lambda tests: tests.reset, cell)


_LATENCY: tuple[Cell, ...] = (
    ("Load, kfps", _latency(lambda latency: kfps(latency.load_fps or None))),
    ("Latency, µs", lambda row: latency_text(row[1])),
    ("Trials", _latency(lambda latency: str(len(latency.means_ns)))),
    ("Each of", _latency(lambda latency: f"{latency.trial_s:g} s")),
    (_NOTES, _latency(lambda latency: latency.refused)),
)
_BACK_TO_BACK: tuple[Cell, ...] = (
    ("Rate, kfps", _bursts(lambda bursts: kfps(bursts.rate_fps))),
    ("Mean burst, frames", lambda row: bursts_text(row[1])),
    ("Smallest", _bursts(lambda bursts: frames(min(bursts.frames, default=None)))),
    ("Largest", _bursts(lambda bursts: frames(max(bursts.frames, default=None)))),
    ("Standard deviation", _bursts(lambda bursts: _frames(bursts.deviation_frames))),
    ("Searches", _bursts(lambda bursts: str(len(bursts.frames)))),
    ("Known to, frames", lambda row: _known_to(row)),
    ("Longest tried", _bursts(lambda bursts: frames(bursts.longest_frames))),
    ("Implied buffer, µs", _bursts(lambda bursts: _microseconds(bursts.implied_buffer_s))),
    ("Corrected buffer, µs", lambda row: buffer_text(row[1])),
    ("In frames", _bursts(lambda bursts: _frames(bursts.corrected_buffer_frames))),
    (_NOTES, _bursts(lambda bursts: bursts.refused)),
)
_RECOVERY: tuple[Cell, ...] = (
    ("Throughput, kfps", lambda row: kfps(row[0].lower_fps)),
    ("Overload, kfps", _recovery(lambda recovery: kfps(recovery.overload_fps or None))),
    ("Then, kfps", _recovery(lambda recovery: kfps(recovery.reduced_fps or None))),
    ("Recovery", lambda row: recovery_text(row[1])),
    ("Each", _recovery(lambda recovery: _each(recovery.seconds, lambda seconds: f"{1000 * seconds:,.1f} ms"))),
    (_NOTES, _recovery(lambda recovery: recovery.refused)),
)
_RESET: tuple[Cell, ...] = (
    ("Load, kfps", _reset(lambda reset: kfps(reset.load_fps or None))),
    ("Reset", lambda row: reset_text(row[1])),
    ("Each", _reset(lambda reset: _each(reset.seconds, lambda seconds: f"{seconds:,.2f} s"))),
    (_NOTES, _reset(lambda reset: reset.refused)),
)

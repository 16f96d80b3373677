"""The graphs that RFC 2544 requires: throughput by frame size (section 26.1) and loss by load (section 26.3)."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from netbench.model.frame_mix import mean_bytes, rising, size_text
from netbench.model.search import LossAtLoad, Rfc2544Tests, SearchResult, SearchState
from netbench.model.units import l1_bits, line_rate_fps
from netbench.report.figures.chart import Chart, Guide
from netbench.report.figures.panels import Panels, Point, by_rising_size, size_titles
from netbench.report.figures.registry import Draw, Figure, NamedChart, by_setting
from netbench.report.formats import count, kfps, percent
from netbench.report.model import ReportModel
from netbench.report.styles import Style
from netbench.statistics.groups import grouped
from netbench.statistics.intervals import Interval

Row = tuple[SearchResult, Rfc2544Tests]
_CURVE_STEP = 16  # bytes


def throughput_by_size_chart(rows: Sequence[Row], styles: Mapping[str, Style]) -> Chart:
    """The theoretical rate of the link and the throughput of each UUT by frame size, as section 26.1 requires."""
    panels = Panels({"": ""}, (search.uut for search, _ in rows), styles, "Frame size [bytes]", "Throughput [kfps]")
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
    panels.panel("").y.logarithmic, panels.panel("").y.switchable = far_apart, True
    panels.guide("", Guide(tuple((size, line_rates[size]) for size in sizes), "theoretical rate of the link"))
    for uut, members in grouped(by_size, lambda row: row[0].uut).items():
        points = [
            Point(
                _exactly(mean_bytes(search.frame_size)),
                _exactly(search.lower_fps / 1000),
                _tooltip(search),
                {"uut": search.uut, "frame_size": size_text(search.frame_size), "throughput_fps": search.lower_fps},
            )
            for search, _ in members
            if search.lower_fps is not None
        ]
        panels.line("", uut, points, ends=False)
    panels.legend()
    return panels.figure


def loss_rate_chart(rows: Sequence[Row], styles: Mapping[str, Style]) -> Chart:
    """Loss by offered load, in percent of the highest load tried, both from 0 to 100 % (section 26.3)."""
    by_size = by_rising_size(rows, lambda row: row[0].frame_size)
    titles = size_titles(by_size)
    panels = Panels(titles, (search.uut for search, _ in rows), styles, "Offered load [% of the highest]", "Loss [%]")
    for size, members in by_size.items():
        panels.scale(size, [0, 100], [0, 100])
        for search, tests in members:
            known = [(at, at.loss_ratio) for at in reversed(tests.losses) if at.loss_ratio is not None]
            points = [
                Point(
                    _exactly(100 * at.share),
                    _exactly(100 * loss),
                    _loss_tooltip(search, at),
                    {"uut": search.uut, "frame_size": size_text(size), "share": at.share, "loss_ratio": loss},
                )
                for at, loss in known
            ]
            panels.line(size, search.uut, points, ends=False)
    panels.legend()
    return panels.figure


def _are_far_apart(rows: Sequence[Row]) -> bool:
    """Whether the throughput would not be visible beside the theoretical rate."""
    most = max(search.lower_fps or 0.0 for search, _ in rows)
    return 0 < most < max(tests.line_rate_fps for _, tests in rows) / 20


def _exactly(value: float) -> Interval:
    return Interval(value, None, 1)


def _tooltip(search: SearchResult) -> str:
    mark = "≥ " if search.state is SearchState.AT_LEAST else ""
    return f"{mark}{kfps(search.lower_fps)} kfps at {size_text(search.frame_size, ' bytes')}"


def _loss_tooltip(search: SearchResult, at: LossAtLoad) -> str:
    return f"{search.uut}: {percent(at.loss_ratio)} lost of {kfps(at.offered_fps)} kfps"


def _tested(model: ReportModel) -> list[Row]:
    return [(search, search.tests) for search in model.results.searches if search.tests is not None]


def _charts(model: ReportModel, draw: Draw[Row], name: str, has: Callable[[Row], bool]) -> Iterator[NamedChart]:
    parts = grouped(_tested(model), lambda row: (row[0].scenario, len(row[0].streams)))
    for place, ((scenario, sources), rows) in enumerate(parts.items()):
        if any(map(has, rows)):
            yield from by_setting(
                rows,
                lambda row: row[0].uut,
                model.styles,
                draw,
                f"{name}-{place}",
                heading=f"{scenario}, {count(sources, 'source')}" if len(parts) > 1 else "",
            )


THROUGHPUT_BY_SIZE = Figure(
    "rfc2544-throughput",
    "Throughput by frame size (RFC 2544, section 26.1)",
    lambda model: "" if _tested(model) else "no test of RFC 2544 was run",
    lambda model: _charts(model, throughput_by_size_chart, "rfc2544-throughput", lambda row: True),
)
LOSS_RATE = Figure(
    "rfc2544-loss",
    "Frame loss rate (RFC 2544, section 26.3)",
    lambda model: "" if any(tests.losses for _, tests in _tested(model)) else "no loss rate was tested",
    lambda model: _charts(model, loss_rate_chart, "rfc2544-loss", lambda row: bool(row[1].losses)),
)

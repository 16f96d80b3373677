"""The graphs that RFC 2544 requires: throughput by frame size (section 26.1) and loss by load (section 26.3)."""

from collections.abc import Iterator, Mapping, Sequence

from netbench.model.search import Rfc2544Tests, SearchResult, SearchState
from netbench.model.units import l1_bits, line_rate_fps
from netbench.report.figures.chart import Chart, Guide, Mark, Numbers
from netbench.report.figures.panels import Panels
from netbench.report.figures.registry import Draw, Figure, NamedChart, by_part
from netbench.report.formats import kfps, percent
from netbench.report.model import ReportModel
from netbench.report.styles import Style
from netbench.report.tables.searches import TestRow, by_streams, tested
from netbench.statistics.groups import grouped

_CURVE_STEP = 16  # bytes
_FAR_APART = 20  # from this ratio of the theoretical rate to the throughput on, the axis is logarithmic


def throughput_by_size_chart(rows: Sequence[TestRow], styles: Mapping[str, Style]) -> Chart:
    """The theoretical rate of the link and the throughput by frame size, as section 26.1 requires.

    Each UUT has a line for each packet.
    """
    by_size = sorted(rows, key=lambda row: row[0].frame_size)
    panels = Panels(by_size, styles, "Frame size [bytes]", "Throughput [kfps]", key_of=lambda _: "", uut_of=_uut_of)
    # Also between the measured sizes, because the rate falls in a curve.
    measured = [search.frame_size.mean_bytes for search, _ in by_size]
    link_bps = by_size[0][1].line_rate_fps * l1_bits(measured[0])
    sizes = sorted({*range(int(measured[0]), int(measured[-1]), _CURVE_STEP), *measured})
    line_rates = {size: line_rate_fps(link_bps, size) / 1000 for size in sizes}
    dashes = panels.dashes(list(dict.fromkeys(_packet(search) for search, _ in by_size)))
    for key, uut, of_uut in panels.cells:
        for packet, same in grouped(of_uut, lambda row: _packet(row[0])).items():
            marks = [_mark(search) for search, _ in same if search.lower is not None]
            name = f"{styles[uut].label}, {packet}" if len(dashes) > 1 else ""
            panels.line(key, uut, marks, dash=dashes[packet], name=name)
    panels.guide("", Guide(tuple(line_rates.items()), "theoretical rate of the link"))
    throughputs = [(search.lower or 0.0) / 1000 for search, _ in rows]
    most = max(tests.line_rate_fps for _, tests in rows) / 1000
    far_apart = 0 < max(throughputs) < most / _FAR_APART
    least = min(value for value in (*line_rates.values(), *throughputs) if value)
    highest = 1.05 * max(*line_rates.values(), *throughputs)
    panels.scale("", [0, 1.05 * measured[-1]], [least / 1.5 * far_apart, highest])
    axis = panels.panels[""].y
    axis.logarithmic, axis.switchable = far_apart, True
    return panels.finished()


def _packet(search: SearchResult) -> str:
    return search.frame_size.packet or "plain"


def _mark(search: SearchResult) -> Mark:
    fps = search.lower or 0.0
    bound = "≥ " if search.state is SearchState.AT_LEAST else ""
    hover = f"{bound}{kfps(fps)} kfps at {search.frame_size.text(' bytes')}"
    numbers: Numbers = {
        "uut": search.uut,
        "frame_size": f"{search.frame_size.without_packet:,}",
        "packet": search.frame_size.packet or None,
        "throughput_fps": fps,
    }
    return Mark(search.frame_size.mean_bytes, fps / 1000, hover, numbers)


def loss_rate_chart(rows: Sequence[TestRow], styles: Mapping[str, Style]) -> Chart:
    """Loss by offered load, in percent of the highest load tried, both from 0 to 100 % (section 26.3)."""
    x_title = "Offered load [% of the highest]"
    panels = Panels(rows, styles, x_title, "Loss [%]", key_of=lambda row: row[0].frame_size, uut_of=_uut_of)
    for size, members in panels.members.items():
        panels.scale(size, [0, 100], [0, 100])
        for search, tests in members:
            panels.line(size, search.uut, list(_losses(search, tests)))
    return panels.finished()


def _losses(search: SearchResult, tests: Rfc2544Tests) -> Iterator[Mark]:
    for at in reversed(tests.losses):
        if (loss := at.loss_ratio) is not None:
            hover = f"{search.uut}: {percent(loss)} lost of {kfps(at.offered_fps)} kfps"
            size, packet = f"{search.frame_size.without_packet:,}", search.frame_size.packet or None
            numbers = {"uut": search.uut, "frame_size": size, "packet": packet, "share": at.share, "loss_ratio": loss}
            yield Mark(100 * at.share, 100 * loss, hover, numbers)


def _uut_of(row: TestRow) -> str:
    return row[0].uut


def _with_losses(model: ReportModel) -> list[TestRow]:
    return [row for row in tested(model.results.searches) if row[1].losses]


def _charts(model: ReportModel, rows: Sequence[TestRow], draw: Draw[TestRow], name: str) -> Iterator[NamedChart]:
    return by_part(by_streams(rows), _uut_of, model.styles, draw, name)


THROUGHPUT_BY_SIZE = Figure(
    "rfc2544-throughput",
    "Throughput by frame size (RFC 2544, section 26.1)",
    lambda model: "" if tested(model.results.searches) else "no test of RFC 2544 was run",
    lambda model: _charts(model, tested(model.results.searches), throughput_by_size_chart, "rfc2544-throughput"),
)
LOSS_RATE = Figure(
    "rfc2544-loss",
    "Frame loss rate (RFC 2544, section 26.3)",
    lambda model: "" if _with_losses(model) else "no loss rate was tested",
    lambda model: _charts(model, _with_losses(model), loss_rate_chart, "rfc2544-loss"),
)

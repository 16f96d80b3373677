"""Figures as files for a paper: SVG, PDF and PNG by matplotlib, and CSV of exactly the numbers that are drawn."""

import csv
import io
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from netbench.errors import MissingError, UsageError
from netbench.model.frame_size import FrameSize
from netbench.model.search import SearchResult
from netbench.model.workload import Workload
from netbench.report.figures.chart import Axis, Chart, ChartSeries, Form, LegendEntry, Mark, Panel
from netbench.report.figures.registry import charts_of
from netbench.report.model import ReportModel
from netbench.report.styles import GREY, INK, MarkerStyle, on_paper
from netbench.results.atomic import write_atomically
from netbench.statistics.compared_cells import CellSelection
from netbench.statistics.groups import Group, grouped
from netbench.statistics.workload_groups import WorkloadGroup

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_Item = Group | WorkloadGroup | SearchResult
_MM = 1 / 25.4  # inches
_TWO_COLUMNS = 120  # mm: wider figures have two panels beside each other
_POINT = 0.5  # points of a marker for each pixel on the page
_LINE, _INTERVAL = 1.0, 3.5  # points
_FONT, _SMALL = 7, 5.5  # points
_LETTER = 0.055  # inches, the mean width of one
_AROUND = 0.5  # inches above and below a plot
_FEW_DECADES = 1000  # from this ratio of its ends on, a logarithmic axis has labels at powers of ten only
_MARKERS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle-up": "^",
    "triangle-down": "v",
    "pentagon": "p",
    "hexagram": "*",
    "x": "x",
    "": "",
}
_DASHES: dict[str, Any] = {"solid": "-", "dash": (0, (5, 2)), "dashdot": "-.", "longdash": (0, (8, 2)), "dot": ":"}
_HATCHES = {"": "", "/": "////", "\\": "\\\\\\\\", "x": "xxxx"}
_SETTINGS: dict[Any, Any] = {
    "text.parse_math": False,
    "svg.hashsalt": "netbench",  # the same file for the same numbers
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,
    "font.size": _FONT,
    "axes.linewidth": 0.6,
    "hatch.linewidth": 0.5,
}
# Without a date or a version.
_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "png": {"Software": None},
}


class FigureFormat(StrEnum):
    """The formats of figures; the value is also the suffix of their files."""

    SVG = "svg"
    PDF = "pdf"
    PNG = "png"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The size of a figure in a file: its width, by default that of a column, and height ÷ width of a panel."""

    width_mm: float = 85.0
    aspect: float = 0.62
    dpi: int = 300


def write_figures(
    model: ReportModel, formats: Sequence[FigureFormat], out: Path, options: FileOptions = FileOptions()
) -> list[Path]:
    """Write each figure in each format into the existing directory `out`, and return the files.

    MissingError where matplotlib is needed and not installed.
    """
    if set(formats) - {FigureFormat.CSV}:
        try:
            import matplotlib  # noqa: F401, PLC0415 - optional
        except ImportError:
            how = "add it with: pip install 'netbench[figures]'"
            raise MissingError(f"figures as SVG, PDF or PNG need matplotlib; {how}") from None
    written = []
    for named in charts_of(model):
        for form in formats:
            written.append(out / f"{named.name}.{form.value}")
            content = _csv(named.chart) if form is FigureFormat.CSV else picture(named.chart, form, options)
            write_atomically(written[-1], content)
    return written


def selected(model: ReportModel, uuts: Collection[str], sizes: Collection[str]) -> ReportModel:
    """Return the model with these UUTs and frame sizes or workloads (patterns) only; all where empty.

    UsageError for unknown ones.
    """
    results = model.results
    items: list[_Item] = [*model.groups, *model.workload_groups, *results.searches, *results.maxima_searches]
    for option, wanted, known in (
        ("--series", uuts, [item.uut for item in items]),
        ("--size", sizes, [name for item in items for name in _traffic_of(item).names]),
    ):
        if unknown := [name for name in wanted if not any(fnmatchcase(value, name) for value in known)]:
            raise UsageError(f"{option}: there is no {unknown[0]!r}; choose from {', '.join(dict.fromkeys(known))}")

    selection = CellSelection(tuple(uuts), (), tuple(sizes))

    def is_wanted(item: _Item) -> bool:
        return selection.includes(item.uut, item.scenario, _traffic_of(item))

    chosen = replace(
        results,
        searches=tuple(filter(is_wanted, results.searches)),
        maxima_searches=tuple(filter(is_wanted, results.maxima_searches)),
    )
    groups, workload_groups = tuple(filter(is_wanted, model.groups)), tuple(filter(is_wanted, model.workload_groups))
    return replace(model, results=chosen, groups=groups, workload_groups=workload_groups, blocks={})


def _traffic_of(item: _Item) -> FrameSize | Workload:
    if isinstance(item, WorkloadGroup):
        return item.workload
    return item.kind_of_traffic if isinstance(item, SearchResult) else item.frame_size


def picture(chart: Chart, form: FigureFormat, options: FileOptions = FileOptions()) -> bytes:
    """A chart as SVG, PDF or PNG; the same bytes for the same numbers."""
    import matplotlib as mpl  # noqa: PLC0415 - optional, and takes 0.3 s
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415

    width = options.width_mm * _MM
    columns = min(2 if options.width_mm >= _TWO_COLUMNS else 1, len(chart.panels)) or 1
    rows = -(-len(chart.panels) // columns)
    notes = [line for note in chart.notes for line in wrap(note, int(width / _LETTER * _FONT / _SMALL))]
    widest = max((0.4 + _LETTER * len(entry.name) for entry in chart.legend), default=1.0)
    in_a_row = max(1, int(width / widest))
    panels = rows * (width / columns * options.aspect + _AROUND)
    height = panels + 0.16 * -(-len(chart.legend) // in_a_row) + 0.1 * len(notes)
    with mpl.rc_context(_SETTINGS):
        canvas = Canvas(figsize=(width, height), layout="constrained")
        for number, panel in enumerate(chart.panels, start=1):
            _draw(canvas.add_subplot(rows, columns, number), panel)
        if chart.legend:
            handles = [_sign(entry) for entry in chart.legend]
            canvas.legend(handles=handles, loc="outside upper left", ncols=in_a_row, frameon=False, fontsize=_FONT)
        if notes:
            canvas.supxlabel("\n".join(notes), fontsize=_SMALL, color=on_paper(GREY), x=0.01, ha="left")
        file = io.BytesIO()
        canvas.savefig(file, format=form.value, dpi=options.dpi, metadata=_METADATA[form.value])
    return file.getvalue()


def _draw(axes: "Axes", panel: Panel) -> None:
    axes.set_title(panel.title, loc="left", fontsize=_FONT, fontweight="bold")
    axes.set(xlabel=panel.x.title, ylabel=panel.y.title)
    axes.grid(axis="y" if panel.x.categories else "both", color=on_paper("var(--grid)"), linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if panel.band:
        axes.axhspan(*panel.band, color=on_paper("var(--shade)"), zorder=0)
    for guide in panel.guides:
        points = [point or (float("nan"), float("nan")) for point in guide.points]
        xs, ys = [_at(panel.x, x) for x, _ in points], [y for _, y in points]
        axes.plot(xs, ys, color=on_paper(GREY), linestyle=":", linewidth=_LINE)
    bars = [series for series in panel.series if series.form is Form.BARS]
    stacked: dict[float, float] = {}
    for series in panel.series:
        if series.form is Form.BARS:
            _draw_bars(axes, panel, series, (bars.index(series), len(bars)))
        elif series.form is Form.STACK:
            _draw_stack(axes, series, stacked)
        else:
            _draw_line(axes, panel, series)
    _set_axis(axes, panel.x, "x", [mark.x for mark in panel.marks])
    _set_axis(axes, panel.y, "y", [mark.y for mark in panel.marks])
    if any(mark.text for mark in panel.marks):
        axes.set_ylim(top=axes.get_ylim()[1] ** 1.02 if panel.y.logarithmic else 1.15 * axes.get_ylim()[1])


def _draw_line(axes: "Axes", panel: Panel, series: ChartSeries) -> None:
    colour = on_paper(series.style.colour)
    xs = [_at(panel.x, mark.x) for mark in series.marks]
    if series.form is Form.LINE:
        ys = [mark.y for mark in series.marks]
        axes.plot(xs, ys, color=colour, linestyle=_DASHES[series.style.dash], linewidth=_LINE, zorder=2)
    _draw_intervals(axes, xs, series.marks, colour)
    by_sign = grouped(series.marks, lambda mark: (mark.symbol or series.style.symbol, mark.ringed))
    for (symbol, ringed), marks in by_sign.items():
        for style in _marker_styles(series.style, symbol, ringed=ringed):
            at = [_at(panel.x, mark.x) for mark in marks], [mark.y for mark in marks]
            axes.plot(*at, linestyle="", zorder=3, **style)


def _draw_bars(axes: "Axes", panel: Panel, series: ChartSeries, which: tuple[int, int]) -> None:
    place, several = which
    share = (0.8 if len(panel.x.categories) > 1 or several > 1 else 0.4) / several
    xs = [mark.x + (place - (several - 1) / 2) * share for mark in series.marks]
    axes.bar(xs, [mark.y for mark in series.marks], width=0.92 * share, zorder=2, **_fill(series.style))
    _draw_intervals(axes, xs, series.marks, on_paper(INK))
    upright = several * len(panel.x.categories) > 4
    style: dict[str, Any] = {"rotation": 90 if upright else 0, "ha": "center", "va": "bottom", "fontsize": _SMALL}
    for x, mark in zip(xs, series.marks, strict=True):
        top = (x, min(max(mark.y, mark.high or mark.y), panel.y.high))
        axes.annotate(mark.text, top, xytext=(0, 2), textcoords="offset points", **style)


def _draw_stack(axes: "Axes", series: ChartSeries, stacked: dict[float, float]) -> None:
    xs = [mark.x for mark in series.marks]
    bottoms = [stacked.get(x, 0.0) for x in xs]
    axes.bar(xs, [mark.y for mark in series.marks], bottom=bottoms, width=0.7, zorder=2, **_fill(series.style))
    stacked.update({mark.x: bottom + mark.y for mark, bottom in zip(series.marks, bottoms, strict=True)})


def _draw_intervals(axes: "Axes", xs: Sequence[float], marks: Iterable[Mark], colour: str) -> None:
    ends = [(x, mark.low, mark.high) for x, mark in zip(xs, marks, strict=True) if mark.low is not None]
    if ends:
        at, lows, highs = zip(*ends, strict=True)
        axes.vlines(at, lows, highs, color=colour, linewidth=_INTERVAL, alpha=0.35, zorder=2.5)


def _set_axis(axes: "Axes", axis: Axis, letter: str, values: Iterable[float]) -> None:
    """Set the scale, the range and the ticks of an axis that shows these values."""
    from matplotlib.dates import DateFormatter  # noqa: PLC0415
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter  # noqa: PLC0415

    drawn, limit, scale = (
        (axes.xaxis, axes.set_xlim, axes.set_xscale) if letter == "x" else (axes.yaxis, axes.set_ylim, axes.set_yscale)
    )
    if axis.categories:
        longest = max(map(len, axis.categories))
        upright = longest * len(axis.categories) > 40
        drawn.set_ticks(range(len(axis.categories)), list(axis.categories), rotation=90 if upright else 0)
        limit(-0.6, len(axis.categories) - 0.4)
        return
    limit(_at(axis, axis.low), _at(axis, axis.high))
    if axis.is_time:
        axes.xaxis_date()
        drawn.set_major_locator(MaxNLocator(4))
        drawn.set_major_formatter(DateFormatter("%Y-%m-%d\n%H:%M"))  # type: ignore[no-untyped-call]
    elif axis.ticks:
        drawn.set_ticks([at for at, _ in axis.ticks], [text for _, text in axis.ticks])
    else:
        if axis.logarithmic:
            scale("log")
            positive = [value for value in values if value > 0]
            least = axis.low if axis.low > 0 else max(0.7 * min(positive, default=axis.high / 10), axis.high / 1e4)
            limit(least, axis.high * 1.05)
            within_decades = (1.0, 2.0, 5.0) if axis.high < _FEW_DECADES * least else (1.0,)
            drawn.set_major_locator(LogLocator(subs=within_decades, numticks=6))
            drawn.set_minor_formatter(NullFormatter())
        else:
            drawn.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        drawn.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}".replace("-", "−")))


def _at(axis: Axis, value: float) -> float:
    """The coordinate of a value: days since 1970 on an axis of times."""
    return value / 86_400 if axis.is_time else value


def _marker_styles(style: MarkerStyle, symbol: str, *, ringed: bool) -> list[dict[str, Any]]:
    """The properties of a marker; two where it has a dot in it."""
    shape, _, more = symbol.partition("-open")
    colour, hollow = on_paper(style.colour), "-open" in symbol
    size = _POINT * style.size
    made: dict[str, Any] = {
        "marker": _MARKERS[shape],
        "markersize": size,
        "markerfacecolor": "none" if hollow else colour,
        "markeredgecolor": on_paper(INK) if ringed else colour,
        "markeredgewidth": 0.8 if hollow or ringed or shape == "x" else 0,
    }
    dot = {"marker": "o", "markersize": size / 4, "markerfacecolor": colour, "markeredgewidth": 0}
    return [made, dot] if more == "-dot" else [made]


def _fill(style: MarkerStyle) -> dict[str, Any]:
    if style.pattern:
        return {"facecolor": "white", "edgecolor": on_paper(style.colour), "hatch": _HATCHES[style.pattern]}
    return {"facecolor": on_paper(style.colour)}


def _sign(entry: LegendEntry) -> "Artist":
    """The sign of an entry of the legend."""
    from matplotlib.lines import Line2D  # noqa: PLC0415
    from matplotlib.patches import Patch  # noqa: PLC0415

    if entry.form in (Form.BARS, Form.STACK):
        return Patch(label=entry.name, **_fill(entry.style))
    dash: Any = ":" if entry.form is None else "" if entry.form is Form.POINTS else _DASHES[entry.style.dash]
    marker = {} if entry.form is None else _marker_styles(entry.style, entry.style.symbol, ringed=entry.ringed)[0]
    look = {"color": on_paper(entry.style.colour), "linestyle": dash, "linewidth": _LINE, **marker}
    return Line2D([], [], label=entry.name, **look)


def _csv(chart: Chart) -> bytes:
    text = io.StringIO()
    names, rows = chart.table
    csv.writer(text, lineterminator="\n").writerows([names, *rows])
    return text.getvalue().encode()

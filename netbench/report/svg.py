"""Charts drawn as SVG: a panel as wide as its container, or of a fixed width for a separate file.

A panel on a page has no fixed width: x coordinates are percentages of its plot, and only heights are in pixels. So it
needs no script, and text keeps its size on a telephone, a wide screen and paper.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import cos, pi, sin

from netbench.report.chart import (
    GREY,
    INK,
    Axis,
    Chart,
    ChartSeries,
    Form,
    Guide,
    LegendEntry,
    Mark,
    MarkerStyle,
    Panel,
)
from netbench.report.ticks import ticks_of

FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', 'DejaVu Sans', sans-serif"
# Pixels.
LEFT, _RIGHT, _ABOVE, _BELOW = 66, 16, 28, 44
PLOT_HEIGHT = 236
_TEXT = 12
_LETTER = 6.6  # the mean width of one
_INTERVAL = 7  # how thick an interval is
_LOW_BAR = 18  # one that has no room for its text
_STRETCHED = 1000  # units across a plot that has no width

_DASHES = {"dash": "9 5", "dashdot": "9 4 2 4", "longdash": "14 6", "dot": "2 4"}
_MOST_CATEGORIES = 4  # whose names have room beside each other
_LONGEST_NAME = 14
_MANY_BARS = 8  # whose texts stand upright
_VERY_MANY_BARS = 20  # whose texts are small, too
_MOST_TOLD = 24  # marks of a series in the words for a panel


@dataclass(frozen=True, slots=True)
class _Plot:
    """The part of a panel that axes enclose; without a `width` it fills its container."""

    panel: Panel
    width: float | None

    def x(self, place: float) -> str:
        """The x coordinate of a place from 0 (left) to 1 (right)."""
        return f"{100 * place:.5g}%" if self.width is None else f"{place * self.width:.2f}"

    def y(self, value: float) -> float:
        """The height of a value, in pixels from the top."""
        return PLOT_HEIGHT * (1 - self.panel.y.place(value))

    def at(self, x: float, y: float, content: str, number: int | None = None) -> str:
        """Something drawn around a place across (0 to 1) and a height in pixels; `number` is that of its mark."""
        told = "" if number is None else f' data-n="{number}"'
        if self.width is None:
            return f'<svg x="{self.x(x)}" y="{y:.5g}"{told}>{content}</svg>'  # the style sheet shows its overflow
        return f'<g transform="translate({self.x(x)} {y:.5g})"{told}>{content}</g>'

    @property
    def units(self) -> float:
        """The width, in units, of content that is stretched over the plot."""
        return _STRETCHED if self.width is None else self.width


def panel_height(panel: Panel) -> float:
    """The height in pixels, including the title and the text along the x axis."""
    return _ABOVE + PLOT_HEIGHT + _below(panel.x)


def panel_svg(panel: Panel, first: int, width: float | None = None) -> str:
    """A panel; `first` is the number of its first mark in the figure.

    Without a width it is the plot that the style sheet gives one, and what is around it stands in its margins.
    """
    inner = None if width is None else width - LEFT - _RIGHT
    plot = _Plot(panel, inner)
    drawn = "".join((*_titles(panel), *_y_labels(plot), *_frame(plot), *_stretched(plot), *_marks(plot, first)))
    told = f'role="img" aria-label="{escape(words(panel))}"'
    if inner is None:
        margins = f"margin:{_ABOVE}px {_RIGHT}px {_below(panel.x):g}px {LEFT}px"
        size = f'height="{PLOT_HEIGHT}" overflow="visible" style="{margins}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" class="panel" {size} {told}>{drawn}</svg>'
    size = f'width="{width:g}" height="{panel_height(panel):g}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {told}>'
        f'<g transform="translate({LEFT} {_ABOVE})">{drawn}</g></svg>'
    )


def words(panel: Panel) -> str:
    """The content of a panel in words, for screen readers."""
    across = panel.x.title or "category"
    title = f"{panel.title}: " if panel.title else ""
    told = [f"{series.name}: {_told(series, panel.x)}" for series in panel.series if series.marks]
    return f"{title}{panel.y.title} by {across}. " + (". ".join(told) or "Nothing to show")


def legend_svg(entry: LegendEntry) -> str:
    """The sign of an entry, 30 pixels wide and 16 high."""
    look, dash = entry.look, _dash(entry.look.dash)
    parts = []
    if entry.form in (Form.BARS, Form.STACK):
        parts.append(_box('x="8" y="2" width="14" height="12"', look))
    if entry.form is None or entry.form is Form.LINE:
        dotted = _dash("dot") if entry.form is None else dash
        parts.append(f'<line x1="1" x2="29" y1="8" y2="8" stroke="{look.colour}" stroke-width="2"{dotted}/>')
    if entry.form in (Form.LINE, Form.POINTS) and look.symbol:
        parts.append(f'<g transform="translate(15 8)">{_symbol(look, look.symbol, ringed=entry.ringed)}</g>')
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="30" height="16" aria-hidden="true">' + "".join(parts) + "</svg>"
    )


def chart_svg(chart: Chart, width: float = 1000) -> str:
    """The whole figure as a file of its own: panels in two columns, the legend above and the notes below them."""
    columns = min(2, len(chart.panels)) or 1
    each = width / columns
    parts, y = [], 4.0
    x = 8.0
    for entry in chart.legend:
        long = 40 + _LETTER * len(entry.name)
        if x > 8 and x + long > width:
            x, y = 8.0, y + 20
        sign = legend_svg(entry).replace("<svg ", f'<svg x="{x:g}" y="{y:g}" ', 1)
        parts += [sign, _line_of_text(x + 34, y + 12, entry.name)]
        x += long + 12
    y += 30 if chart.legend else 4
    number = 0
    for start in range(0, len(chart.panels), columns):
        row = chart.panels[start : start + columns]
        for column, panel in enumerate(row):
            drawn = panel_svg(panel, number, each).replace("<svg ", f'<svg x="{column * each:g}" y="{y:g}" ', 1)
            parts.append(drawn)
            number += len(list(panel.marks))
        y += max(map(panel_height, row)) + 8
    for line in notes(chart):
        y += 16
        parts.append(_line_of_text(8, y, line))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{y + 12:g}"'
        f' viewBox="0 0 {width:g} {y + 12:g}" font-family="{escape(FONT)}">'
        '<rect width="100%" height="100%" fill="var(--paper)"/>' + "".join(parts) + "</svg>"
    )


def notes(chart: Chart) -> list[str]:
    """The notes that go with the figure, line by line."""
    intervals = f"pale bars: {chart.intervals}, cut where the panel ends" if chart.has_intervals else ""
    first = "; ".join(part for part in (chart.repetitions, intervals) if part)
    return [line for line in (first, chart.note) if line]


def _told(series: ChartSeries, x: Axis) -> str:
    """The marks of a series in words."""
    told = [f"{_where(mark, x)} {mark.text or f'{mark.y:.4g}'}" for mark in series.marks[:_MOST_TOLD]]
    more = len(series.marks) - _MOST_TOLD
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")


def _where(mark: Mark, x: Axis) -> str:
    return x.categories[round(mark.x)] if x.categories else f"at {mark.x:.4g}:"


def _line_of_text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{_TEXT}" fill="{INK}">{escape(text)}</text>'


def _below(x: Axis) -> float:
    """Pixels below the plot: more where the names of categories stand upright."""
    if _upright(x):
        return 16 + _LETTER * max(map(len, x.categories)) + (20 if x.title else 0)
    return _BELOW


def _upright(x: Axis) -> bool:
    return len(x.categories) > _MOST_CATEGORIES or any(len(name) > _LONGEST_NAME for name in x.categories)


def _titles(panel: Panel) -> Iterator[str]:
    yield f'<text x="0" y="-12" font-size="14" font-weight="600" fill="{INK}">{escape(panel.title)}</text>'
    yield (
        f'<text transform="translate({14 - LEFT} {PLOT_HEIGHT / 2:g}) rotate(-90)" text-anchor="middle"'
        f' font-size="{_TEXT}" fill="{INK}">{escape(panel.y.title)}</text>'
    )


def _y_labels(plot: _Plot) -> Iterator[str]:
    for value, label in ticks_of(plot.panel.y):
        yield (
            f'<text x="-8" y="{plot.y(value) + 4:.5g}" text-anchor="end" font-size="{_TEXT}" fill="{INK}">'
            f"{escape(label)}</text>"
        )


def _frame(plot: _Plot) -> Iterator[str]:
    """The band, the grid, the lines of the axes, and the text along the x axis."""
    panel, right, bottom = plot.panel, plot.x(1), PLOT_HEIGHT
    if panel.band:
        top, end = plot.y(panel.band[1]), plot.y(panel.band[0])
        yield f'<rect x="0" y="{top:.5g}" width="{right}" height="{end - top:.5g}" fill="var(--shade)"/>'
    for value, _ in ticks_of(panel.y):
        y = plot.y(value)
        yield f'<line x1="0" x2="{right}" y1="{y:.5g}" y2="{y:.5g}" stroke="var(--grid)"/>'
    for value, label in ticks_of(panel.x):
        x = plot.x(panel.x.place(value))
        if not panel.x.categories:
            yield f'<line x1="{x}" x2="{x}" y1="0" y2="{bottom + 4}" stroke="var(--grid)"/>'
        if _upright(panel.x):
            turned = f'<text transform="rotate(-90)" text-anchor="end" y="4" font-size="11" fill="{INK}">'
            yield plot.at(panel.x.place(value), bottom + 8, f"{turned}{escape(label)}</text>")
            continue
        for row, line in enumerate(label.split("\n")):
            yield (
                f'<text x="{x}" y="{bottom + 17 + 13 * row}" text-anchor="middle" font-size="{_TEXT}"'
                f' fill="{INK}">{escape(line)}</text>'
            )
    yield f'<line x1="0" x2="{right}" y1="{bottom}" y2="{bottom}" stroke="{GREY}"/>'
    yield f'<line x1="0" x2="0" y1="0" y2="{bottom}" stroke="{GREY}"/>'
    if panel.x.title:
        y = bottom + _below(panel.x) - 8
        yield (
            f'<text x="{plot.x(0.5)}" y="{y:.5g}" text-anchor="middle" font-size="{_TEXT}" fill="{INK}">'
            f"{escape(panel.x.title)}</text>"
        )


def _stretched(plot: _Plot) -> Iterator[str]:
    """Guides, and the lines between means; cut where the plot ends."""
    lines = [*_guides(plot), *_lines(plot)]
    if not lines:
        return
    size = f'width="{plot.x(1)}" height="{PLOT_HEIGHT}" viewBox="0 0 {plot.units:g} {PLOT_HEIGHT}"'
    yield f'<svg x="0" y="0" {size} preserveAspectRatio="none" fill="none">' + "".join(lines) + "</svg>"


def _guides(plot: _Plot) -> Iterator[str]:
    for guide in plot.panel.guides:
        for points in _unbroken(guide):
            yield _polyline(plot, points, f'stroke="{GREY}" stroke-width="1.5"{_dash("dot")}')


def _lines(plot: _Plot) -> Iterator[str]:
    for series in plot.panel.series:
        if series.form is Form.LINE and len(series.marks) > 1:
            look = series.look
            stroke = f'stroke="{look.colour}" stroke-width="2"{_dash(look.dash)}'
            yield _polyline(plot, [(mark.x, mark.y) for mark in series.marks], stroke)


def _unbroken(guide: Guide) -> Iterator[list[tuple[float, float]]]:
    part: list[tuple[float, float]] = []
    for point in (*guide.points, None):
        if point is not None:
            part.append(point)
        elif part:
            yield part
            part = []


def _polyline(plot: _Plot, points: Sequence[tuple[float, float]], stroke: str) -> str:
    places = " ".join(f"{plot.units * plot.panel.x.place(x):.5g},{plot.y(y):.5g}" for x, y in points)
    return f'<polyline points="{places}" {stroke} vector-effect="non-scaling-stroke"/>'


def _marks(plot: _Plot, first: int) -> Iterator[str]:
    """Intervals, and on top of all of them the marks themselves."""
    panel, number = plot.panel, first
    stacked: dict[float, float] = {}
    for series in panel.series:
        if series.form in (Form.LINE, Form.POINTS):
            yield from _intervals(plot, series)
    bars = [series for series in panel.series if series.form is Form.BARS]
    for series in panel.series:
        for mark in series.marks:
            if series.form is Form.BARS:
                yield from _bar(plot, series, mark, number, (bars.index(series), len(bars)))
            elif series.form is Form.STACK:
                base = stacked.get(mark.x, 0.0)
                stacked[mark.x] = base + mark.y
                yield _piece(plot, series, mark, number, base)
            elif 0 <= panel.x.place(mark.x) <= 1:
                sign = _symbol(series.look, mark.symbol or series.look.symbol, ringed=mark.ringed)
                yield plot.at(panel.x.place(mark.x), plot.y(mark.y), sign, number)
            number += 1


def _intervals(plot: _Plot, series: ChartSeries) -> Iterator[str]:
    for mark in series.marks:
        y = plot.y(mark.y)
        if drawn := _interval(plot, mark, y, series.look.colour):
            yield plot.at(plot.panel.x.place(mark.x), y, drawn)


def _interval(plot: _Plot, mark: Mark, y: float, colour: str) -> str:
    """The interval of a mark, from where that is, in pixels; empty without one."""
    if mark.low is None or mark.high is None:
        return ""
    top, end = (min(PLOT_HEIGHT, max(0.0, plot.y(value))) for value in (mark.high, mark.low))
    if end - top < 1:
        return ""
    return f'<path d="M0 {top - y:.5g}V{end - y:.5g}" stroke="{colour}" stroke-width="{_INTERVAL}" opacity=".35"/>'


def _bar(plot: _Plot, series: ChartSeries, mark: Mark, number: int, which: tuple[int, int]) -> Iterator[str]:
    place, several = which
    categories = len(plot.panel.x.categories)
    share = (0.8 if categories > 1 or several > 1 else 0.4) / several
    middle = (mark.x + 0.5 + (place - (several - 1) / 2) * share) / categories
    wide = 0.92 * share / categories
    top = min(PLOT_HEIGHT, max(0.0, plot.y(mark.y)))
    at = f'x="{plot.x(middle - wide / 2)}" y="{top:.5g}" width="{plot.x(wide)}" height="{PLOT_HEIGHT - top:.5g}"'
    yield _box(at, series.look, number)
    drawn = _interval(plot, mark, top, INK)
    if drawn:
        yield plot.at(middle, top, drawn)
    if mark.text:
        narrow = several * categories > _MANY_BARS
        room = PLOT_HEIGHT - top > (_LETTER * len(mark.text) + 8 if narrow else _LOW_BAR)
        fill = "var(--paper)" if room and not series.look.pattern else INK
        turned = ' transform="rotate(-90)"' if narrow else ""
        anchor = "start" if narrow else "middle"
        size = 9 if several * categories > _VERY_MANY_BARS else 11.5
        text = f'<text{turned} text-anchor="{anchor}" y="{3 if narrow else 0}" font-size="{size}" fill="{fill}">'
        yield plot.at(middle, (PLOT_HEIGHT if room else top) - 6, f"{text}{escape(mark.text)}</text>")


def _piece(plot: _Plot, series: ChartSeries, mark: Mark, number: int, base: float) -> str:
    """A part of a bar that is made of several."""
    categories = len(plot.panel.x.categories)
    wide = 0.7 / categories
    left = plot.panel.x.place(mark.x) - wide / 2
    top, end = plot.y(base + mark.y), plot.y(base)
    at = f'x="{plot.x(left)}" y="{top:.5g}" width="{plot.x(wide)}" height="{max(0.0, end - top):.5g}"'
    return _box(at, series.look, number)


def _box(at: str, look: MarkerStyle, number: int | None = None) -> str:
    told = "" if number is None else f' data-n="{number}"'
    if look.pattern:
        edge = f'stroke="{look.colour}" stroke-width="1.5"{_dash("dash")}'
        return f'<rect {at} fill="{look.colour}" fill-opacity=".25" {edge}{told}/>'
    return f'<rect {at} fill="{look.colour}" stroke="var(--paper)" stroke-width=".5"{told}/>'


def _dash(name: str) -> str:
    return f' stroke-dasharray="{_DASHES[name]}"' if name in _DASHES else ""


def _symbol(look: MarkerStyle, name: str, *, ringed: bool = False) -> str:
    """A marker around 0, 0."""
    edge = f' stroke="{INK}" stroke-width="2"' if ringed else ""
    if name == "circle":
        return f'<circle r="{look.size / 2:.4g}" fill="{look.colour}"{edge}/>'
    if name.endswith("-dot"):
        hollow = _symbol(look, name.removesuffix("-dot"), ringed=ringed)
        return f'{hollow}<circle r="{look.size / 8:.4g}" fill="{look.colour}"/>'
    shape = _shape(name.removesuffix("-open"), look.size / 2)
    if name == "x":
        return f'<path d="{shape}" stroke="{look.colour}" stroke-width="2" fill="none"/>'
    if name.endswith("-open"):
        return f'<path d="{shape}" stroke="{look.colour}" stroke-width="2" fill="var(--paper)"/>'
    return f'<path d="{shape}" fill="{look.colour}"{edge}/>'


def _shape(name: str, r: float) -> str:
    """The outline of a marker of a radius in pixels."""
    if name == "x":
        return f"M{-r:.4g} {-r:.4g}L{r:.4g} {r:.4g}M{r:.4g} {-r:.4g}L{-r:.4g} {r:.4g}"
    if name == "square":
        return f"M{-r:.4g} {-r:.4g}h{2 * r:.4g}v{2 * r:.4g}h{-2 * r:.4g}z"
    corners = {"diamond": 4, "triangle-up": 3, "triangle-down": 3, "pentagon": 5, "hexagram": 12}.get(name)
    if corners is None:
        return f"M{-r:.4g} 0a{r:.4g} {r:.4g} 0 1 0 {2 * r:.4g} 0a{r:.4g} {r:.4g} 0 1 0 {-2 * r:.4g} 0z"
    turned = pi / 2 if name == "triangle-down" else -pi / 2
    points = []
    for corner in range(corners):
        far = 1.15 * r * (0.6 if name == "hexagram" and corner % 2 else 1)
        angle = turned + 2 * pi * corner / corners
        points.append(f"{far * cos(angle):.3g} {far * sin(angle):.3g}")
    return f"M{'L'.join(points)}z"

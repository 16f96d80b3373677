"""Small multiples: a panel per frame size or another key, the scales of its axes, and one legend for all panels."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, log10
from string import ascii_lowercase
from typing import Generic, TypeVar

from netbench.model.frame_mix import FrameMix, FrameSize, frames_text, rising
from netbench.model.units import l1_bits
from netbench.model.verdict import Verdict
from netbench.report.figures.chart import Axis, Chart, ChartSeries, Form, Guide, LegendEntry, Mark, Numbers, Panel
from netbench.report.styles import GREY, SMALLEST_MARKER, MarkerStyle, Style, emulation_note
from netbench.statistics.groups import grouped
from netbench.statistics.intervals import Interval

Key = TypeVar("Key", FrameSize, str)
Item = TypeVar("Item")

THROUGHPUT = "Throughput [Mbit/s, L1]"
OFFERED = "Offered load [Mbit/s, L1]"
LOSS = "Loss [% of offered frames]"
_HEADROOM = 1.05
_WIDE = 20  # from this ratio of largest to smallest on, an axis is logarithmic until a reader switches it

# Decades of a loss ratio.
_FEWEST_DECADES = 3
_MOST_DECADES = 9
_BAND = 0.7  # height of the band for zero
_GAP = 0.15  # between that band and the lowest decade


@dataclass(frozen=True, slots=True)
class Point:
    """A mean to be drawn, with the intervals of both coordinates, and its tooltip.

    The mean of a `ringed` point includes saturated trials. `kfps` is that of `y` where frame sizes vary.
    """

    x: Interval
    y: Interval
    hover: str
    numbers: Numbers = field(default_factory=dict)
    ringed: bool = False
    kfps: float | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar with its text and tooltip; `ends` are those of its interval, or None."""

    height: float | None
    text: str
    hover: str
    numbers: Numbers = field(default_factory=dict)
    ends: tuple[float, float] | None = None
    kfps: float | None = None


@dataclass(frozen=True, slots=True)
class LossScale:
    """Decades from 10^`lowest` to 100 % and below them a band for zero. Heights are in decades of the ratio.

    In that band, a `row` between 0 and 1 separates UUTs without loss.
    """

    lowest: int

    @classmethod
    def over(cls, ratios: Iterable[float]) -> "LossScale":
        """A scale that reaches down to the smallest loss among `ratios`, zero left aside."""
        smallest = min((ratio for ratio in ratios if ratio > 0), default=1.0)
        return cls(max(-_MOST_DECADES, min(-_FEWEST_DECADES, floor(log10(smallest)))))

    @property
    def border(self) -> float:
        """The upper edge of the band for zero."""
        return self.lowest - _GAP

    @property
    def bottom(self) -> float:
        """The lower edge of the band for zero, and of the scale."""
        return self.border - _BAND

    @property
    def top(self) -> float:
        """The upper end of the scale, a little above 100 %."""
        return 0.2

    def height(self, ratio: float, row: float) -> float:
        """The height of a loss ratio; a ratio of zero or less is in its row of the band."""
        if ratio <= 0:
            return self.bottom + row * _BAND
        return max(log10(ratio), float(self.lowest))

    def ends(self, loss: Interval, row: float) -> tuple[float, float] | None:
        """The heights of the ends of the interval of a loss; None where that is unknown."""
        if loss.half_width is None:
            return None
        here = self.height(loss.mean, row)
        above = self.height(min(1.0, loss.mean + loss.half_width), row)
        below = self.height(max(0.0, loss.mean - loss.half_width), row)
        return min(here, below), max(here, above)

    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Heights and labels, in percent, of zero and of the decades."""
        decades = range(self.lowest, 1)
        return ((self.bottom + _BAND / 2, "0"), *((float(decade), f"{100 * 10.0**decade:.10g}") for decade in decades))


def least_loss(loss: Interval | None) -> float:
    """The value that the scale must include: the mean loss, or its upper limit for no loss; 0 for neither."""
    return 0.0 if loss is None else loss.mean or loss.half_width or 0.0


def rows_of_zero(number: int) -> list[float]:
    """The rows of the band for zero that separate this number of UUTs, the first one highest."""
    return [1 - place / (number + 1) for place in range(1, number + 1)]


def end_of_axis(intervals: Iterable[Interval | None], trials: Iterable[float | None] = ()) -> float:
    """The end of an axis from 0: beyond all means and single trials. A huge error bar does not stretch it."""
    known = [interval for interval in intervals if interval is not None]
    drawn = max([interval.mean for interval in known] + [value for value in trials if value], default=0.0)
    tip = max([interval.mean + (interval.half_width or 0.0) for interval in known], default=0.0)
    return _HEADROOM * max(drawn, min(tip, 1.3 * drawn)) or 1.0


def by_rising_size(items: Iterable[Item], size_of: Callable[[Item], FrameSize]) -> dict[FrameSize, list[Item]]:
    """The items of each frame size, the smallest size first."""
    return grouped(sorted(items, key=lambda item: rising(size_of(item))), size_of)


def size_titles(sizes: Iterable[FrameSize]) -> dict[FrameSize, str]:
    """The panel titles of these frame sizes."""
    return {size: frames_text(size) for size in sizes}


def ends_of(interval: Interval | None) -> tuple[float, float] | None:
    """The ends of the interval of a value that is never below 0; None where they are unknown."""
    if interval is None or interval.half_width is None:
        return None
    return max(0.0, interval.mean - interval.half_width), interval.mean + interval.half_width


def kfps_of_mix(size: FrameSize, fps: Interval | None) -> float | None:
    """The thousand frames/s of a rate in frames of several sizes; None where the size of the frames gives them."""
    return fps.mean / 1000 if fps is not None and isinstance(size, FrameMix) else None


class Panels(Generic[Key]):
    """A figure with a panel for each title, in the order given.

    `uuts` are those that it shows. The figure itself names the emulated ones, because figures are used outside of
    their page.
    """

    def __init__(
        self, titles: Mapping[Key, str], uuts: Iterable[str], styles: Mapping[str, Style], x_title: str, y_title: str
    ) -> None:
        self._uuts = list(dict.fromkeys(uuts))
        self._styles = styles
        self._in_legend: set[str] = set()
        self._panels: dict[Key, Panel] = {}
        for letter, (key, title) in zip(_letters(), titles.items(), strict=False):
            lettered = f"({letter}) {title}" if len(titles) > 1 else title
            kfps = None if isinstance(key, str) or not l1_bits(key) else 1000 / l1_bits(key)
            self._panels[key] = Panel(lettered, Axis(x_title), Axis(y_title), kfps_per_mbps=kfps)
        emulated = [uut for uut in self._uuts if styles[uut].emulated]
        self.figure = Chart(list(self._panels.values()), note=emulation_note(emulated) if emulated else "")

    def panel(self, key: Key) -> Panel:
        """The panel of a key."""
        return self._panels[key]

    def rates(self, *, x: bool = False, y: bool = True) -> None:
        """Let readers switch axes to frames/s and to logarithms; these come first where a UUT would be crushed.

        Call it when all is drawn. An axis in other units than Mbit/s is switched to logarithms only.
        """
        panels = self.figure.panels
        wide = any(_is_wide(panel) for panel in panels)
        for panel in panels:
            for axis in [panel.x] * x + [panel.y] * y:
                axis.switchable, axis.is_rate = True, "Mbit/s" in axis.title and panel.kfps_per_mbps is not None
                axis.logarithmic = wide

    def line(
        self, key: Key, uut: str, points: Sequence[Point], *, dash: str = "", ends: bool = True, name: str = ""
    ) -> None:
        """The line of a UUT through its means, with their intervals where `ends`; its `name` is that of the UUT."""
        marks = []
        for point in points:
            low, high = (ends_of(point.y) if ends else None) or (None, None)
            marks.append(_mark(point, point.y.mean, low, high))
        self._line(key, uut, marks, dash, name)

    def line_of_loss(self, key: Key, uut: str, points: Sequence[Point], scale: LossScale, row: float) -> None:
        """The line of a UUT through its losses on their scale, zero in a `row` of the band for it."""
        marks = [
            _mark(point, scale.height(point.y.mean, row), *(scale.ends(point.y, row) or (None, None)))
            for point in points
        ]
        self._line(key, uut, marks)

    def points(self, key: Key, uut: str, marks: Sequence[Mark], style: MarkerStyle | None = None) -> None:
        """Marks of a UUT without lines between them."""
        if marks:
            label, own = self._styles[uut].label, style or self._styles[uut].marker
            self.panel(key).series.append(ChartSeries(label, own, Form.POINTS, tuple(marks)))

    def bars(self, key: Key, uut: str, bars: Sequence[Bar]) -> None:
        """The bars of a UUT, one a category; none where a height is unknown."""
        marks = []
        for place, bar in enumerate(bars):
            low, high = bar.ends or (None, None)
            if bar.height is not None:
                mark = Mark(place, bar.height, bar.hover, bar.numbers, low, high, text=bar.text, y_kfps=bar.kfps)
                marks.append(mark)
        self._form(key, self._styles[uut].label, self._styles[uut].marker, Form.BARS, marks)

    def stack(self, key: Key, name: str, style: MarkerStyle, marks: Sequence[Mark]) -> None:
        """Parts of bars, on top of those of the stacks before."""
        self._form(key, name, style, Form.STACK, marks)

    def categories(self, names: Sequence[str]) -> None:
        """Set the categories of bars, in the order given."""
        for panel in self.figure.panels:
            panel.x.categories = tuple(names)

    def scale(self, key: Key, x: Sequence[float] | None, y: Sequence[float]) -> None:
        """Set the ranges of the axes of a panel."""
        panel = self.panel(key)
        if x is not None:
            panel.x.low, panel.x.high = x
        panel.y.low, panel.y.high = y

    def scale_of_loss(self, key: Key, x: Sequence[float], ratios: Iterable[float]) -> LossScale:
        """Set the range of a panel's x axis, and make its y axis a scale of losses with a shaded band for zero."""
        loss = LossScale.over(ratios)
        self.scale(key, x, [loss.bottom, loss.top])
        panel = self.panel(key)
        panel.y.ticks = loss.ticks()
        panel.band = (loss.bottom, loss.border)
        return loss

    def rule(self, key: Key, y: float) -> None:
        """A dotted line across a panel."""
        axis = self.panel(key).x
        ends = (-0.5, len(axis.categories) - 0.5) if axis.categories else (axis.low, axis.high)
        self.guide(key, Guide(tuple((x, y) for x in ends)))

    def guide(self, key: Key, guide: Guide) -> None:
        """A dotted line; one that has a name is in the legend."""
        self.panel(key).guides.append(guide)
        if guide.name:
            self._in_legend_once(LegendEntry(guide.name, MarkerStyle(GREY, symbol=""), None))

    def legend(self, verdicts: Iterable[Verdict] = (), *, rings: bool = False) -> None:
        """Name the line of each UUT, and the marks of single trials with these verdicts, once for all panels.

        A valid one is marked as it is an outlier. `rings`: whether any point is ringed.
        """
        shown = [self._styles[uut] for uut in self._uuts]
        entries: list[LegendEntry] = [LegendEntry(style.label, style.marker, Form.LINE) for style in shown]
        if rings:
            marker = MarkerStyle(GREY, size=SMALLEST_MARKER)
            entries.append(LegendEntry("saturated: less offered than intended", marker, Form.POINTS, ringed=True))
        for verdict in verdicts:
            marker = MarkerStyle(GREY, mark_of(verdict, "circle"), size=SMALLEST_MARKER + 2)
            text = "outlier (averaged too)" if verdict is Verdict.VALID else f"{verdict.value} trial (not averaged)"
            entries.append(LegendEntry(text, marker, Form.POINTS))
        self.figure.legend = [*entries, *self.figure.legend]

    def _line(self, key: Key, uut: str, marks: Sequence[Mark], dash: str = "", name: str = "") -> None:
        style = self._styles[uut]
        marker = replace(style.marker, dash=dash) if dash else style.marker
        series = ChartSeries(name or style.label, marker, Form.LINE, tuple(marks), style.label)
        self.panel(key).series.append(series)

    def _form(self, key: Key, name: str, style: MarkerStyle, form: Form, marks: Sequence[Mark]) -> None:
        self.panel(key).series.append(ChartSeries(name, style, form, tuple(marks)))
        self._in_legend_once(LegendEntry(name, style, form))

    def _in_legend_once(self, entry: LegendEntry) -> None:
        if entry.name not in self._in_legend:
            self._in_legend.add(entry.name)
            self.figure.legend.append(entry)


def mark_of(verdict: Verdict, symbol: str) -> str:
    """The symbol of a single trial: hollow when suspicious, a cross when invalid, hollow with a dot for an outlier."""
    return {Verdict.SUSPICIOUS: f"{symbol}-open", Verdict.INVALID: "x", Verdict.VALID: f"{symbol}-open-dot"}[verdict]


def _mark(point: Point, y: float, low: float | None, high: float | None) -> Mark:
    return Mark(point.x.mean, y, point.hover, point.numbers, low, high, ringed=point.ringed, y_kfps=point.kfps)


def _is_wide(panel: Panel) -> bool:
    """Whether the highest values of the series in a panel are too far apart for a linear axis."""
    by_group = grouped(panel.series, lambda series: series.group or series.name)
    highest = [max((mark.y for series in members for mark in series.marks), default=0) for members in by_group.values()]
    positive = [value for value in highest if value > 0]
    return bool(positive) and max(positive) > _WIDE * min(positive)


def _letters() -> Iterator[str]:
    for first in ("", *ascii_lowercase):
        for second in ascii_lowercase:
            yield first + second

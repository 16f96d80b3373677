"""Small multiples: a panel per frame size or another key, what is drawn in it, one legend for all."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import ascii_lowercase
from typing import Generic, TypeVar

from netbench.model.frame_mix import FrameSize, frames_text, rising
from netbench.model.verdict import Verdict
from netbench.report.axes import LossScale
from netbench.report.chart import (
    GREY,
    Axis,
    Chart,
    ChartSeries,
    Form,
    Guide,
    LegendEntry,
    Mark,
    MarkerStyle,
    Numbers,
    Panel,
)
from netbench.report.styles import SMALLEST_MARKER, Style, emulation_note
from netbench.statistics.groups import Group, grouped
from netbench.statistics.intervals import Interval

Key = TypeVar("Key", FrameSize, str)


@dataclass(frozen=True, slots=True)
class Point:
    """A mean to be drawn, with the intervals of both coordinates, and its tooltip.

    The mean of a `ringed` point includes saturated trials.
    """

    x: Interval
    y: Interval
    hover: str
    numbers: Numbers = field(default_factory=dict)
    ringed: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar with its text, above a bar of height 0 and inside others, and its tooltip.

    `ends` are those of its interval, or None.
    """

    height: float | None
    text: str
    hover: str
    numbers: Numbers = field(default_factory=dict)
    ends: tuple[float, float] | None = None


def groups_by_size(groups: Iterable[Group]) -> dict[FrameSize, list[Group]]:
    """The groups of each frame size, the largest first as in the paper."""
    return grouped(
        sorted(groups, key=lambda group: rising(group.frame_size), reverse=True), lambda group: group.frame_size
    )


def groups_by_uut(groups: Iterable[Group]) -> dict[str, list[Group]]:
    """The groups of each UUT, in the order they come."""
    return grouped(groups, lambda group: group.uut)


def size_titles(sizes: Iterable[FrameSize]) -> dict[FrameSize, str]:
    """The panel titles of these frame sizes."""
    return {size: frames_text(size) for size in sizes}


def ends_of(interval: Interval | None) -> tuple[float, float] | None:
    """The ends of the interval of a value that is never below 0; None where they are unknown."""
    if interval is None or interval.half_width is None:
        return None
    return max(0.0, interval.mean - interval.half_width), interval.mean + interval.half_width


class Panels(Generic[Key]):
    """A figure with a panel for each title, in the order given.

    `uuts` are those that it shows. The figure itself names the emulated ones, because figures are used outside of
    their page.
    """

    def __init__(
        self,
        titles: Mapping[Key, str],
        uuts: Iterable[str],
        looks: Mapping[str, Style],
        x_title: str,
        y_title: str,
    ) -> None:
        self._uuts = list(dict.fromkeys(uuts))
        self._looks = looks
        self._in_legend: set[str] = set()
        lettered = [
            f"({letter}) {title}" if len(titles) > 1 else title
            for letter, title in zip(_letters(), titles.values(), strict=False)
        ]
        self._panels: dict[Key, Panel] = {
            key: Panel(title, Axis(x_title), Axis(y_title)) for key, title in zip(titles, lettered, strict=True)
        }
        emulated = [uut for uut in self._uuts if looks[uut].emulated]
        self.figure = Chart(list(self._panels.values()), note=emulation_note(emulated) if emulated else "")

    def panel(self, key: Key) -> Panel:
        """The panel of a key."""
        return self._panels[key]

    def line(
        self, key: Key, uut: str, points: Sequence[Point], *, dash: str = "", ends: bool = True, name: str = ""
    ) -> None:
        """The line of a UUT through its means, with their intervals where `ends`; its `name` is that of the UUT."""
        marks = []
        for point in points:
            low, high = (ends_of(point.y) if ends else None) or (None, None)
            marks.append(Mark(point.x.mean, point.y.mean, point.hover, point.numbers, low, high, ringed=point.ringed))
        self._line(key, uut, marks, dash, name)

    def line_of_loss(self, key: Key, uut: str, points: Sequence[Point], scale: LossScale, row: float) -> None:
        """The line of a UUT through its losses on their scale, zero in a `row` of the band for it."""
        marks = []
        for point in points:
            low, high = scale.ends(point.y, row) or (None, None)
            y = scale.height(point.y.mean, row)
            marks.append(Mark(point.x.mean, y, point.hover, point.numbers, low, high, ringed=point.ringed))
        self._line(key, uut, marks)

    def points(self, key: Key, name: str, look: MarkerStyle, marks: Sequence[Mark]) -> None:
        """Marks without lines between them."""
        if marks:
            self.panel(key).series.append(ChartSeries(name, look, Form.POINTS, tuple(marks)))

    def bars(self, key: Key, uut: str, bars: Sequence[Bar]) -> None:
        """The bars of a UUT, one a category; none where a height is unknown."""
        marks = []
        for place, bar in enumerate(bars):
            low, high = bar.ends or (None, None)
            if bar.height is not None:
                marks.append(Mark(place, bar.height, bar.hover, bar.numbers, low, high, text=bar.text))
        style = self._looks[uut]
        self.panel(key).series.append(ChartSeries(style.label, style.look, Form.BARS, tuple(marks)))
        if uut not in self._in_legend:
            self._in_legend.add(uut)
            self.figure.legend.append(LegendEntry(style.label, style.look, Form.BARS))

    def stack(self, key: Key, name: str, look: MarkerStyle, marks: Sequence[Mark]) -> None:
        """Parts of bars, on top of those of the stacks before."""
        self.panel(key).series.append(ChartSeries(name, look, Form.STACK, tuple(marks)))
        if name not in self._in_legend:
            self._in_legend.add(name)
            self.figure.legend.append(LegendEntry(name, look, Form.STACK))

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
        if guide.name and guide.name not in self._in_legend:
            self._in_legend.add(guide.name)
            self.figure.legend.append(LegendEntry(guide.name, MarkerStyle(GREY), None))

    def legend(self, verdicts: Iterable[Verdict] = (), *, rings: bool = False) -> None:
        """Name the line of each UUT, and the marks of single trials with these verdicts, once for all panels.

        A valid one is marked as it is an outlier.

        `rings`: whether any point is ringed.
        """
        shown = [self._looks[uut] for uut in self._uuts]
        entries: list[LegendEntry] = [LegendEntry(style.label, style.look, Form.LINE) for style in shown]
        if rings:
            look = MarkerStyle(GREY, size=SMALLEST_MARKER)
            entries.append(LegendEntry("saturated: less offered than intended", look, Form.POINTS, ringed=True))
        for verdict in verdicts:
            look = MarkerStyle(GREY, mark_of(verdict, "circle"), size=SMALLEST_MARKER + 2)
            told = "outlier (averaged too)" if verdict is Verdict.VALID else f"{verdict.value} trial (not averaged)"
            entries.append(LegendEntry(told, look, Form.POINTS))
        self.figure.legend = [*entries, *self.figure.legend]

    def _line(self, key: Key, uut: str, marks: Sequence[Mark], dash: str = "", name: str = "") -> None:
        style = self._looks[uut]
        look = replace(style.look, dash=dash) if dash else style.look
        self.panel(key).series.append(ChartSeries(name or style.label, look, Form.LINE, tuple(marks)))


def mark_of(verdict: Verdict, symbol: str) -> str:
    """The symbol of a single trial: hollow when suspicious, a cross when invalid, hollow with a dot for an outlier."""
    return {Verdict.SUSPICIOUS: f"{symbol}-open", Verdict.INVALID: "x", Verdict.VALID: f"{symbol}-open-dot"}[verdict]


def _letters() -> Iterator[str]:
    for first in ("", *ascii_lowercase):
        for second in ascii_lowercase:
            yield first + second

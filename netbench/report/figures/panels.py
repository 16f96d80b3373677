"""Small multiples: a panel per frame size or another key, the scales of its axes, and one legend for all panels."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import floor, log10
from operator import attrgetter
from string import ascii_lowercase
from typing import Generic, TypeVar

from netbench.model.frame_size import FrameSize
from netbench.model.units import l1_bits
from netbench.report.figures.chart import Axis, Chart, ChartSeries, Form, Guide, LegendEntry, Mark, Panel
from netbench.report.styles import GREY, SMALLEST_MARKER, MarkerStyle, Style, emulation_note
from netbench.statistics.groups import grouped
from netbench.statistics.intervals import Interval

Key = TypeVar("Key", bound=FrameSize | str)
Item = TypeVar("Item")

THROUGHPUT = "Throughput [Mbit/s, L1]"
OFFERED = "Offered load [Mbit/s, L1]"
LOSS = "Loss [% of offered frames]"
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_HEADROOM = 1.05
_WIDE = 20  # from this ratio of largest to smallest on, an axis is logarithmic until a reader switches it

# Decades of a loss ratio.
_FEWEST_DECADES = 3
_MOST_DECADES = 9
_BAND = 0.7  # height of the band for zero
_GAP = 0.15  # between that band and the lowest decade


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

    def height(self, ratio: float, row: float) -> float:
        """The height of a loss ratio; a ratio of zero or less is in its row of the band."""
        if ratio <= 0:
            return self.bottom + row * _BAND
        return max(log10(ratio), float(self.lowest))

    def ends(self, loss: Interval, row: float) -> tuple[float | None, float | None]:
        """The heights of the ends of the interval of a loss; None where those are unknown."""
        if loss.half_width is None:
            return None, None
        here = self.height(loss.mean, row)
        above = self.height(min(1.0, loss.mean + loss.half_width), row)
        below = self.height(max(0.0, loss.mean - loss.half_width), row)
        return min(here, below), max(here, above)

    def mark(self, row: float, loss: Interval) -> tuple[float, float | None, float | None]:
        """The height of a loss, and those of the ends of its interval."""
        return self.height(loss.mean, row), *self.ends(loss, row)

    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Heights and labels, in percent, of zero and of the decades."""
        decades = range(self.lowest, 1)
        return ((self.bottom + _BAND / 2, "0"), *((float(decade), f"{100 * 10.0**decade:.10g}") for decade in decades))


def least_loss(loss: Interval | None) -> float:
    """The value that the scale must include: the mean loss, or its upper limit for no loss; 0 for neither."""
    return 0.0 if loss is None else loss.mean or loss.half_width or 0.0


def rows_of_zero(uuts: Iterable[str]) -> dict[str, float]:
    """The rows of the band for zero that separate these UUTs, the first one highest."""
    names = list(dict.fromkeys(uuts))
    return {uut: 1 - place / (len(names) + 1) for place, uut in enumerate(names, start=1)}


def end_of_axis(values: Iterable[float], tips: Iterable[float | None] = ()) -> float:
    """The end of an axis from 0: beyond all values. The tip of a huge error bar does not stretch it."""
    drawn = max(values, default=0.0)
    tip = max((tip for tip in tips if tip is not None), default=0.0)
    return _HEADROOM * max(drawn, min(tip, 1.3 * drawn)) or 1.0


def ends_of(interval: Interval) -> tuple[float | None, float | None]:
    """The ends of the interval of a value that is never below 0; None where they are unknown."""
    if interval.half_width is None:
        return None, None
    return max(0.0, interval.mean - interval.half_width), interval.mean + interval.half_width


def kfps_of_mix(size: FrameSize, fps: float | None) -> float | None:
    """The thousand frames/s of a rate in frames of several sizes; None where the size of the frames gives them."""
    return fps / 1000 if fps is not None and size.is_mix else None


def kfps_per_mbps(size: FrameSize) -> float:
    """The thousand frames/s of this size in a Mbit/s (L1)."""
    return 1000 / l1_bits(size.mean_bytes)


def _rank(key: FrameSize | str) -> tuple[float, str]:
    """The place of a panel: smaller frames first. Packets of one size keep their order, as other titles do."""
    return (0.0, "") if isinstance(key, str) else (key.mean_bytes, key.name)


class Panels(Generic[Key, Item]):
    """A chart with a panel for each key of some items, by default their frame size: sizes rise, names keep their order.

    Draw the `cells`, then call `finished`. The chart itself names its emulated UUTs, because charts are used outside of
    their page.
    """

    def __init__(
        self,
        items: Iterable[Item],
        styles: Mapping[str, Style],
        x_title: str,
        y_title: str,
        *,
        key_of: Callable[[Item], Key] = attrgetter("frame_size"),
        uut_of: Callable[[Item], str] = attrgetter("uut"),
    ) -> None:
        self._styles, self._uut_of = styles, uut_of
        by_key = grouped(items, key_of)
        in_order = sorted(by_key.items(), key=lambda item: _rank(item[0]))
        self.members: dict[Key, list[Item]] = dict(in_order)
        self.panels: dict[Key, Panel] = {}
        letters = ("".join(letters) for letters in product(("", *ascii_lowercase), ascii_lowercase))
        for key, letter in zip(self.members, letters, strict=False):
            title, kfps = (key, None) if isinstance(key, str) else (key.frames_text, kfps_per_mbps(key))
            lettered = f"({letter}) {title}" if len(self.members) > 1 else title
            self.panels[key] = Panel(lettered, Axis(x_title, 0, 0), Axis(y_title, 0, 0), kfps_per_mbps=kfps)
        uuts = dict.fromkeys(uut_of(item) for members in by_key.values() for item in members)
        emulated = [uut for uut in uuts if styles[uut].emulated]
        self.chart = Chart(list(self.panels.values()), note=emulation_note(emulated) if emulated else "")

    @property
    def cells(self) -> Iterator[tuple[Key, str, list[Item]]]:
        """The items by panel and UUT."""
        for key, members in self.members.items():
            for uut, of_uut in grouped(members, self._uut_of).items():
                yield key, uut, of_uut

    def line(self, key: Key, uut: str, marks: Sequence[Mark], *, dash: str = "", name: str = "") -> None:
        """The line of a UUT through its means; `dash` and `name` replace those of the UUT."""
        style = self._styles[uut]
        drawn = replace(style, dash=dash) if dash else style
        self.panels[key].series.append(ChartSeries(name or style.label, drawn, Form.LINE, tuple(marks), style.label))
        self.in_legend(style.label, style, Form.LINE)
        if any(mark.ringed for mark in marks):
            small = MarkerStyle(GREY, size=SMALLEST_MARKER)
            self.in_legend("saturated: less offered than intended", small, Form.POINTS, ringed=True)

    def dashes(self, kinds: Sequence[str]) -> dict[str, str]:
        """The dash for each kind of line of a UUT, in the legend; empty, which is the UUT's own, for a single kind."""
        if len(kinds) == 1:
            return {kinds[0]: ""}
        by_kind = {kind: _DASHES[place % len(_DASHES)] for place, kind in enumerate(kinds)}
        for kind, dash in by_kind.items():
            self.in_legend(kind, MarkerStyle(GREY, symbol="", dash=dash), Form.LINE)
        return by_kind

    def points(self, key: Key, uut: str, marks: Sequence[Mark], style: MarkerStyle | None = None) -> None:
        """Marks of a UUT without lines between them."""
        if marks:
            own = self._styles[uut]
            self.panels[key].series.append(ChartSeries(own.label, style or own, Form.POINTS, tuple(marks)))

    def bars(self, key: Key, uut: str, marks: Iterable[Mark | None]) -> None:
        """The bars of a UUT, at most one a category."""
        style = self._styles[uut]
        self.series(key, style.label, style, Form.BARS, marks)

    def series(self, key: Key, name: str, style: MarkerStyle, form: Form, marks: Iterable[Mark | None]) -> None:
        """Bars, or parts of bars on top of those before."""
        drawn = tuple(mark for mark in marks if mark)
        self.panels[key].series.append(ChartSeries(name, style, form, drawn))
        self.in_legend(name, style, form)

    def categories(self, names: Sequence[str]) -> None:
        """Set the categories of bars, in the order given."""
        for panel in self.chart.panels:
            panel.x.categories = tuple(names)

    def scale(self, key: Key, x: Sequence[float] | None = None, y: Sequence[float] | None = None) -> None:
        """Set the ranges of the axes of a panel; others reach from 0 to the highest mark."""
        panel = self.panels[key]
        if x is not None:
            panel.x.low, panel.x.high = x
        if y is not None:
            panel.y.low, panel.y.high = y

    def scale_of_loss(self, key: Key, ratios: Iterable[float]) -> LossScale:
        """Make the y axis of a panel a scale of losses with a shaded band for zero."""
        loss, panel = LossScale.over(ratios), self.panels[key]
        self.scale(key, y=[loss.bottom, 0.2])  # a little above 100 %
        panel.y.ticks = loss.ticks()
        panel.band = (loss.bottom, loss.border)
        return loss

    def rule(self, key: Key, y: float) -> None:
        """A dotted line across a panel."""
        axis = self.panels[key].x
        ends = (-0.5, len(axis.categories) - 0.5) if axis.categories else (axis.low, axis.high)
        self.guide(key, Guide(tuple((x, y) for x in ends)))

    def guide(self, key: Key, guide: Guide) -> None:
        """A dotted line; one that has a name is in the legend."""
        self.panels[key].guides.append(guide)
        if guide.name:
            self.in_legend(guide.name, MarkerStyle(GREY, symbol=""), None)

    def in_legend(self, name: str, style: MarkerStyle, form: Form | None, *, ringed: bool = False) -> None:
        """Explain a sign in the legend, once."""
        if name not in (entry.name for entry in self.chart.legend):
            self.chart.legend.append(LegendEntry(name, style, form, ringed))

    def finished(self, switchable: str = "", rates: str = "") -> Chart:
        """The chart with all ranges set, and its UUTs first in the legend.

        Readers can switch the axes named in `switchable` (`x`, `y`, `xy`) to logarithms, which come first where a UUT
        would be crushed, and those in `rates`, in Mbit/s, also to frames/s.
        """
        wide = any(map(_is_wide, self.chart.panels))
        for panel in self.chart.panels:
            marks = list(panel.marks)
            panel.x.high = panel.x.high or end_of_axis(mark.x for mark in marks)
            panel.y.high = panel.y.high or end_of_axis((mark.y for mark in marks), (mark.high for mark in marks))
            for name, axis in (("x", panel.x), ("y", panel.y)):
                if name in switchable + rates:
                    axis.switchable, axis.logarithmic = True, wide
                    axis.is_rate = name in rates and panel.kfps_per_mbps is not None
        self.chart.legend.sort(key=lambda entry: not isinstance(entry.style, Style))
        return self.chart


def _is_wide(panel: Panel) -> bool:
    """Whether the highest values of the series in a panel are too far apart for a linear axis."""
    by_group = grouped(panel.series, lambda series: series.group or series.name)
    highest = [max((mark.y for series in members for mark in series.marks), default=0) for members in by_group.values()]
    positive = [value for value in highest if value > 0]
    return bool(positive) and max(positive) > _WIDE * min(positive)

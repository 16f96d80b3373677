"""Small multiples: a panel per frame size or another key, what is drawn in it, one legend for all."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil
from string import ascii_lowercase
from textwrap import wrap
from typing import Any, Generic, TypeVar

from netbench.model.frame_mix import FrameSize, frames_text, rising
from netbench.model.verdict import Verdict
from netbench.report.axes import NO_BAR, LossScale, error_bars, half_widths, uneven_error_bars
from netbench.report.chart import Chart, Trace
from netbench.report.styles import SMALLEST_MARKER, Style, emulation_note
from netbench.statistics.groups import Group, grouped
from netbench.statistics.intervals import Interval

INK = "#222222"
GREY = "#767676"
HOVER = "%{hovertext}<extra></extra>"

_GRID = "#e6e6e6"
_FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', 'DejaVu Sans', sans-serif"
_RING = 2  # pixels
_TINY = 1 / 200  # of an axis: an error bar shorter than the marker it would be hidden by

# Pixels.
_PANEL_HEIGHT = 300
_BETWEEN_PANELS = 96
_ABOVE = 84
_BELOW = 56
_LEFT = 70
_LEGEND_LINE = 20
_NOTE_LINE = 17
_NOTE_FRAME = 26

_NOTE_WIDTH = 46  # characters: as many as fit on a telephone
_LEGEND_WIDTH = 120  # characters: as many as fit on a page
_LEGEND_LINES = 2  # for which there always is room

Key = TypeVar("Key", FrameSize, str)


@dataclass(frozen=True, slots=True)
class Point:
    """A mean as it is drawn, with the intervals of both its coordinates, and what pointing at it tells.

    One that is `ringed` is of trials some of which are saturated.
    """

    x: Interval
    y: Interval
    hover: str
    ringed: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar with its text, above one of height 0 and inside others, and what pointing at it tells."""

    height: float | None
    text: str
    hover: str


def groups_by_size(groups: Iterable[Group]) -> dict[FrameSize, list[Group]]:
    """The groups of each frame size, the largest first as in the paper."""
    return grouped(
        sorted(groups, key=lambda group: rising(group.frame_size), reverse=True), lambda group: group.frame_size
    )


def groups_by_uut(groups: Iterable[Group]) -> dict[str, list[Group]]:
    """The groups of each UUT, in the order they come."""
    return grouped(groups, lambda group: group.uut)


def size_titles(sizes: Iterable[FrameSize]) -> dict[FrameSize, str]:
    """What panels of these frame sizes are called."""
    return {size: frames_text(size) for size in sizes}


class Panels(Generic[Key]):
    """A figure with a panel for each title, in two columns, in the order given.

    `uuts` are those that it shows. It says itself which of them are emulated, for figures leave the page they were
    made for.
    """

    def __init__(
        self,
        titles: Mapping[Key, str],
        uuts: Iterable[str],
        looks: Mapping[str, Style],
        x_title: str,
        y_title: str,
    ) -> None:
        self._keys: list[Key] = list(titles)
        self._uuts = list(dict.fromkeys(uuts))
        self._looks = looks
        self._in_legend: set[str] = set()
        self._columns = min(2, len(self._keys))
        rows = ceil(len(self._keys) / self._columns)
        drawn = rows * _PANEL_HEIGHT + (rows - 1) * _BETWEEN_PANELS
        lettered = [
            f"({letter}) {title}" if len(titles) > 1 else title
            for letter, title in zip(_letters(), titles.values(), strict=False)
        ]
        of_title = {"font": {"size": 14, "color": INK, "weight": "bold"}, "yshift": 4}
        self.figure = Chart.of_panels(lettered, self._columns, _BETWEEN_PANELS / drawn, of_title)
        axis = {
            "showline": True,
            "linecolor": GREY,
            "ticks": "outside",
            "tickcolor": GREY,
            "gridcolor": _GRID,
            "zeroline": False,
            "tickformat": ",",
        }
        for direction, title in (("x", x_title), ("y", y_title)):
            for own in self.figure.axes(direction):
                own.update(axis, title={"text": title, "standoff": 8, "font": {"size": 13}})
        self.figure.layout.update(
            font={"family": _FONT, "size": 13, "color": INK},
            paper_bgcolor="white",
            plot_bgcolor="white",
            height=drawn + _ABOVE + _BELOW,
            margin={"l": _LEFT, "r": 16, "t": _ABOVE, "b": _BELOW},
            # What the page needs to set the panels one below the other where it is narrow.
            meta={"panels": len(self._keys), "panel_height": _PANEL_HEIGHT, "between": _BETWEEN_PANELS},
            legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1 + 34 / drawn, "yanchor": "bottom"},
            hovermode="closest",
            hoverlabel={"align": "left", "bgcolor": "white", "font": {"color": INK}, "namelength": -1},
        )
        self._note_emulation()

    def add(self, key: Key, trace: Trace) -> None:
        """Draw a trace in a panel."""
        self.figure.add(trace, self._keys.index(key))

    def line(self, key: Key, uut: str, points: Sequence[Point], end: float) -> None:
        """The line of a UUT through its means, with their error bars; the x axis ends at `end`."""
        colour = self._looks[uut].colour
        self._line(
            key,
            uut,
            points,
            [point.y.mean for point in points],
            error_bars(colour, half_widths(point.y for point in points)),
            error_bars(colour, half_widths((point.x for point in points), least=end * _TINY)),
        )

    def line_of_loss(self, key: Key, uut: str, points: Sequence[Point], scale: LossScale, row: float) -> None:
        """The line of a UUT through its losses on their scale, zero in a `row` of the band for it."""
        self._line(
            key,
            uut,
            points,
            [scale.height(point.y.mean, row) for point in points],
            uneven_error_bars(self._looks[uut].colour, (scale.reach(point.y, row) for point in points)),
        )

    def line_on_logarithm(self, key: Key, uut: str, points: Sequence[Point], dash: str) -> None:
        """The line of a UUT on a logarithmic axis, which has no 0 that an error bar could reach."""
        reaches = [
            (width, width if isinstance(width, str) or width < point.y.mean else NO_BAR)
            for width, point in zip(half_widths(point.y for point in points), points, strict=True)
        ]
        error_y = uneven_error_bars(self._looks[uut].colour, reaches)
        self._line(key, uut, points, [point.y.mean for point in points], error_y, dash=dash)

    def bars(self, key: Key, uut: str, categories: Sequence[str], bars: Sequence[Bar], error_y: dict[str, Any]) -> None:
        """The bars of a UUT, one a category."""
        style = self._looks[uut]
        self.add(
            key,
            {
                "type": "bar",
                "x": categories,
                "y": [bar.height for bar in bars],
                "error_y": error_y,
                "text": [bar.text for bar in bars],
                "textposition": ["inside" if bar.height else "outside" for bar in bars],
                "insidetextanchor": "middle",
                "hovertext": [bar.hover for bar in bars],
                "hovertemplate": HOVER,
                "marker": {
                    "color": style.colour,
                    "pattern": {"shape": style.pattern, "fillmode": "overlay", "solidity": 0.15},
                },
                "name": escape(style.label),
                "legendgroup": uut,
                "offsetgroup": uut,
                "showlegend": uut not in self._in_legend,
            },
        )
        self._in_legend.add(uut)

    def arrange_bars(self, categories: Sequence[str]) -> None:
        """Bars of the UUTs side by side in each category, categories in the order given."""
        self.figure.layout.update(
            barmode="group",
            bargap=0.25 if len(categories) > 1 else 0.5,
            bargroupgap=0.06,
            uniformtext={"mode": "hide", "minsize": 10},
        )
        for axis in self.figure.axes("x"):
            axis.update(type="category", categoryorder="array", categoryarray=categories, showgrid=False)

    def scale(self, key: Key, x: list[float] | None, y: list[float]) -> None:
        """Set what the axes of a panel span."""
        for direction, reach in (("x", x), ("y", y)):
            if reach is not None:
                self.figure.axis(direction, self._keys.index(key))["range"] = reach

    def scale_of_loss(self, key: Key, x: list[float], ratios: Iterable[float]) -> LossScale:
        """Set what the x axis of a panel spans, and make its y axis a scale of losses, the band for zero shaded."""
        loss = LossScale.over(ratios)
        self.scale(key, x, [loss.bottom, loss.top])
        heights, labels = loss.ticks()
        panel = self._keys.index(key)
        self.figure.axis("y", panel).update(tickvals=heights, ticktext=labels)
        band = {"type": "rect", "fillcolor": "#f0f0f0", "line": {"width": 0}, "layer": "below"}
        self.figure.add_shape(panel, loss.bottom, loss.border, band)
        return loss

    def rule(self, key: Key, y: float) -> None:
        """A dotted line across a panel."""
        line = {"color": GREY, "dash": "dot", "width": 1.5}
        self.figure.add_shape(self._keys.index(key), y, y, {"type": "line", "line": line})

    def show_in_legend(self, **trace: object) -> None:
        """A trace that shows in the legend alone."""
        self.figure.add({"type": "scatter", "x": [None], "y": [None]} | trace)

    def legend(self, verdicts: Iterable[Verdict] = (), *, rings: bool = False) -> None:
        """Name the line of each UUT, and the marks of single trials with these verdicts, once for all panels.

        A valid one is marked as it is an outlier.

        `rings`: whether any point is ringed.
        """
        for uut in self._uuts:
            style = self._looks[uut]
            self.show_in_legend(
                mode="lines+markers",
                line={"color": style.colour, "dash": style.dash},
                marker={"symbol": style.symbol, "size": style.size},
                name=escape(style.label),
                legendgroup=uut,
            )
        if rings:
            self.show_in_legend(
                mode="markers",
                marker={"color": GREY, "size": SMALLEST_MARKER, "line": {"color": INK, "width": _RING}},
                name="saturated: less offered than intended",
            )
        for verdict in verdicts:
            self.show_in_legend(
                mode="markers",
                marker=mark(verdict, GREY, "circle", SMALLEST_MARKER),
                name="outlier (averaged too)" if verdict is Verdict.VALID else f"{verdict.value} trial (not averaged)",
            )

    def leave_room_for(self, names: Sequence[str]) -> None:
        """Make room above the panels for a legend of these names, which is set in columns as wide as the longest."""
        columns = max(1, _LEGEND_WIDTH // max(map(len, names), default=1))
        room = max(0, ceil(len(names) / columns) - _LEGEND_LINES) * _LEGEND_LINE
        self.figure.layout["height"] += room
        self.figure.layout["margin"]["t"] += room

    def _line(
        self,
        key: Key,
        uut: str,
        points: Sequence[Point],
        y: list[float],
        error_y: dict[str, Any],
        error_x: dict[str, Any] | None = None,
        dash: str = "",
    ) -> None:
        style = self._looks[uut]
        self.add(
            key,
            {
                "type": "scatter",
                "x": [point.x.mean for point in points],
                "y": y,
                "error_x": error_x or {"visible": False},
                "error_y": error_y,
                "mode": "lines+markers",
                "line": {"color": style.colour, "dash": dash or style.dash, "width": 2},
                "marker": {
                    "symbol": style.symbol,
                    "size": style.size,
                    "line": {"color": INK, "width": [_RING if point.ringed else 0 for point in points]},
                },
                "hovertext": [point.hover for point in points],
                "hovertemplate": HOVER,
                "name": escape(style.label),
                "legendgroup": uut,
                "showlegend": False,
            },
        )

    def _note_emulation(self) -> None:
        emulated = [uut for uut in self._uuts if self._looks[uut].emulated]
        if not emulated:
            return
        lines = wrap(emulation_note(emulated), _NOTE_WIDTH, break_on_hyphens=False)
        note = {
            "text": "<br>".join(map(escape, lines)),
            "align": "left",
            "showarrow": False,
            "font": {"size": 12, "color": INK},
            "bgcolor": "#fff3d6",
            "bordercolor": "#e69f00",
            "borderpad": 5,
            "xref": "paper",
            "yref": "paper",
            "x": 0,
            "y": 0,
            "xanchor": "left",
            "yanchor": "top",
            "xshift": 12 - _LEFT,
            "yshift": -_BELOW - 6,
        }
        room = len(lines) * _NOTE_LINE + _NOTE_FRAME
        self.figure.layout["annotations"].append(note)
        self.figure.layout["height"] += room
        self.figure.layout["margin"]["b"] = _BELOW + room


def mark(verdict: Verdict, colour: str, symbol: str, size: float) -> dict[str, Any]:
    """The marker of a single trial: hollow when suspicious, a cross when invalid, hollow with a dot for an outlier."""
    shown = {Verdict.SUSPICIOUS: f"{symbol}-open", Verdict.INVALID: "x-thin", Verdict.VALID: f"{symbol}-open-dot"}
    return {"symbol": shown[verdict], "size": size + 5, "color": colour, "line": {"width": 2, "color": colour}}


def _letters() -> Iterator[str]:
    for first in ("", *ascii_lowercase):
        for second in ascii_lowercase:
            yield first + second

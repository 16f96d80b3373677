"""Small multiples: a panel per frame size or another key, one look per UUT, one legend for all."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil
from string import ascii_lowercase
from textwrap import wrap
from typing import Any, Generic, TypeVar

import plotly.graph_objects as go
from plotly.basedatatypes import BaseTraceType
from plotly.subplots import make_subplots

from netbench.model.verdict import Verdict
from netbench.report.emulation import label, note
from netbench.report.loss_scale import LossScale
from netbench.statistics.groups import Group

INK = "#222222"
GREY = "#767676"
_GRID = "#e6e6e6"
_FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', 'DejaVu Sans', sans-serif"

# Okabe and Ito's colours, distinguishable with any colour vision; their yellow is too pale on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagram")
_DASHES = ("solid", "dash", "dashdot", "longdash")
_PATTERNS = ("", "/", "\\", "x")

# Pixels.
_PANEL_HEIGHT = 300
_BETWEEN_PANELS = 96
_ABOVE = 84
_BELOW = 56
_SMALLEST_MARKER = 7.0
_LARGEST_MARKER = 13.0
_LEFT = 70
_LEGEND_LINE = 20
_NOTE_LINE = 17
_NOTE_FRAME = 26

_NOTE_WIDTH = 46  # characters: as many as fit on a telephone
_LEGEND_WIDTH = 120  # characters: as many as fit on a page
_LEGEND_LINES = 2  # for which there always is room

Key = TypeVar("Key", int, str)


@dataclass(frozen=True, slots=True)
class Style:
    """How a UUT looks and what it is called in every figure."""

    label: str
    emulated: bool
    colour: str
    symbol: str
    dash: str  # of its lines
    pattern: str  # of its bars
    size: float  # of its markers, in pixels: larger for those drawn first, so that equals show as rings


def styles(uuts: Iterable[str], emulated: Collection[str] = ()) -> dict[str, Style]:
    """A style for each UUT, in order; used-up colours come again with another dash and pattern."""
    names = list(dict.fromkeys(uuts))
    return {
        uut: Style(
            label(uut, emulated),
            uut in emulated,
            _COLOURS[place % len(_COLOURS)],
            _SYMBOLS[place % len(_SYMBOLS)],
            _DASHES[place // len(_COLOURS) % len(_DASHES)],
            _PATTERNS[place // len(_COLOURS) % len(_PATTERNS)],
            min(_LARGEST_MARKER, _SMALLEST_MARKER + 1.5 * (len(names) - 1 - place)),
        )
        for place, uut in enumerate(names)
    }


def members_by_uut(groups: Iterable[Group]) -> dict[str, list[Group]]:
    """The groups of each UUT, in the order they come."""
    members: dict[str, list[Group]] = {}
    for group in groups:
        members.setdefault(group.uut, []).append(group)
    return members


def groups_by_size(groups: Iterable[Group]) -> dict[int, list[Group]]:
    """The groups of each frame size, the largest first as in the paper."""
    groups = list(groups)
    sizes = sorted({group.frame_size for group in groups}, reverse=True)
    return {size: [group for group in groups if group.frame_size == size] for size in sizes}


def size_titles(sizes: Iterable[int]) -> dict[int, str]:
    """What panels of these frame sizes are called."""
    return {size: f"{size:,}-byte frames" for size in sizes}


def doubtful(groups: Iterable[Group]) -> list[Verdict]:
    """Verdicts of those trials among the groups that are part of no mean."""
    groups = list(groups)
    occurs = {
        Verdict.SUSPICIOUS: any(group.suspicious for group in groups),
        Verdict.INVALID: any(group.invalid for group in groups),
    }
    return [verdict for verdict, there in occurs.items() if there]


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
        self._columns = min(2, len(self._keys))
        rows = ceil(len(self._keys) / self._columns)
        drawn = rows * _PANEL_HEIGHT + (rows - 1) * _BETWEEN_PANELS
        self.figure = make_subplots(
            rows=rows,
            cols=self._columns,
            subplot_titles=[
                f"({letter}) {title}" if len(titles) > 1 else title
                for letter, title in zip(_letters(), titles.values(), strict=False)
            ],
            horizontal_spacing=0.075,
            vertical_spacing=_BETWEEN_PANELS / drawn,
        )
        axis = {
            "showline": True,
            "linecolor": GREY,
            "ticks": "outside",
            "tickcolor": GREY,
            "gridcolor": _GRID,
            "zeroline": False,
            "title_standoff": 8,
            "title_font_size": 13,
            "tickformat": ",",
        }
        self.figure.update_xaxes(title_text=x_title, **axis)
        self.figure.update_yaxes(title_text=y_title, **axis)
        self.figure.update_annotations(font={"size": 14, "color": INK, "weight": "bold"}, yshift=4)
        self.figure.update_layout(
            template=go.layout.Template(),
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

    def add(self, key: Key, trace: BaseTraceType) -> None:
        """Draw a trace in a panel."""
        self.figure.add_trace(trace, **self.place(key))

    def scale(self, key: Key, x: list[float] | None, y: list[float]) -> None:
        """Set what the axes of a panel span."""
        self.figure.update_xaxes(range=x, **self.place(key))
        self.figure.update_yaxes(range=y, **self.place(key))

    def scale_of_loss(self, key: Key, x: list[float], loss: LossScale) -> None:
        """Set what the x axis of a panel spans, and make its y axis a scale of losses, the band for zero shaded."""
        self.scale(key, x, [loss.bottom, loss.top])
        heights, labels = loss.ticks()
        self.figure.update_yaxes(tickvals=heights, ticktext=labels, **self.place(key))
        self.figure.add_hrect(
            y0=loss.bottom,
            y1=loss.border,
            fillcolor="#f0f0f0",
            line_width=0,
            layer="below",
            exclude_empty_subplots=False,
            **self.place(key),
        )

    def place(self, key: Key) -> dict[str, int]:
        """Row and column of a panel, as plotly counts them."""
        row, column = divmod(self._keys.index(key), self._columns)
        return {"row": row + 1, "col": column + 1}

    def legend(self, verdicts: Iterable[Verdict] = ()) -> None:
        """Name the line of each UUT, and the marks of single trials with these verdicts, once for all panels."""
        for uut in self._uuts:
            style = self._looks[uut]
            self.figure.add_scatter(
                x=[None],
                y=[None],
                mode="lines+markers",
                line={"color": style.colour, "dash": style.dash},
                marker={"symbol": style.symbol, "size": style.size},
                name=escape(style.label),
                legendgroup=uut,
            )
        for verdict in verdicts:
            self.figure.add_scatter(
                x=[None],
                y=[None],
                mode="markers",
                marker=mark(verdict, GREY, "circle", _SMALLEST_MARKER),
                name=f"{verdict.value} trial (not averaged)",
            )

    def leave_room_for(self, names: Sequence[str]) -> None:
        """Make room above the panels for a legend of these names, which is set in columns as wide as the longest."""
        columns = max(1, _LEGEND_WIDTH // max(map(len, names), default=1))
        room = max(0, ceil(len(names) / columns) - _LEGEND_LINES) * _LEGEND_LINE
        layout = self.figure.layout
        self.figure.update_layout(height=layout.height + room, margin_t=layout.margin.t + room)

    def _note_emulation(self) -> None:
        emulated = [uut for uut in self._uuts if self._looks[uut].emulated]
        if not emulated:
            return
        lines = wrap(note(emulated), _NOTE_WIDTH, break_on_hyphens=False)
        self.figure.add_annotation(
            text="<br>".join(map(escape, lines)),
            align="left",
            showarrow=False,
            font={"size": 12, "color": INK},
            bgcolor="#fff3d6",
            bordercolor="#e69f00",
            borderpad=5,
            xref="paper",
            yref="paper",
            x=0,
            y=0,
            xanchor="left",
            yanchor="top",
            xshift=12 - _LEFT,
            yshift=-_BELOW - 6,
        )
        room = len(lines) * _NOTE_LINE + _NOTE_FRAME
        self.figure.update_layout(height=self.figure.layout.height + room, margin_b=_BELOW + room)


def mark(verdict: Verdict, colour: str, symbol: str, size: float) -> dict[str, Any]:
    """The marker of a single trial that is not simply valid: hollow when suspicious, a cross when invalid."""
    symbol = f"{symbol}-open" if verdict is Verdict.SUSPICIOUS else "x-thin"
    return {"symbol": symbol, "size": size + 5, "color": colour, "line": {"width": 2, "color": colour}}


def _letters() -> Iterator[str]:
    for first in ("", *ascii_lowercase):
        for second in ascii_lowercase:
            yield first + second

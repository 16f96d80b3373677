"""A chart as plain data: what is drawn, and the numbers that it is drawn from. `svg.py` draws it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import log10

Numbers = Mapping[str, str | int | float | None]
"""What a mark is drawn from, by the names that exports have for it."""

INK, GREY = "var(--ink)", "var(--soft)"


class Form(Enum):
    """How the marks of a series are drawn."""

    LINE = "line"  # marks connected by straight lines
    POINTS = "points"
    BARS = "bars"  # side by side with those of other series
    STACK = "stack"  # on top of those of the series before


@dataclass(frozen=True, slots=True)
class MarkerStyle:
    """The style of a series: colours are those of CSS, or of the variables in `palette.py`."""

    colour: str
    symbol: str = "circle"  # `-open` behind it: hollow; `-open-dot`: with a dot in it; `x`: a cross
    dash: str = "solid"
    pattern: str = ""  # of bars; empty: plain
    size: float = 8.0  # pixels


@dataclass(frozen=True, slots=True)
class Mark:
    """A number where it is drawn, in the units of the axes; on an axis of categories `x` is the place of one.

    `low` and `high` are the ends of its interval; None where there is none. `hover` is what pointing at it tells, line
    by line; `text` stands on a bar. `symbol`, where not empty, is its own instead of that of its series.
    """

    x: float
    y: float
    hover: str
    numbers: Numbers = field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    ringed: bool = False
    symbol: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """Marks that belong together, mostly those of a UUT."""

    name: str
    look: MarkerStyle
    form: Form
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Guide:
    """A dotted line that is no measurement, through points in the units of the axes; None breaks it."""

    points: tuple[tuple[float, float] | None, ...]
    name: str = ""  # in the legend, where not empty


@dataclass(slots=True)
class Axis:
    """Title and range of an axis. With `categories` these are at 0, 1, … ; with `ticks` those values have labels."""

    title: str
    low: float = 0.0
    high: float = 1.0
    logarithmic: bool = False
    is_time: bool = False  # in seconds since 1970, UTC
    categories: tuple[str, ...] = ()
    ticks: tuple[tuple[float, str], ...] = ()

    def place(self, value: float) -> float:
        """The position of a value along the axis: 0 at the low end, 1 at the high one."""
        if self.categories:
            return (value + 0.5) / len(self.categories)
        low, high = (log10(self.low), log10(self.high)) if self.logarithmic else (self.low, self.high)
        at = log10(max(value, 1e-12)) if self.logarithmic else value
        return (at - low) / ((high - low) or 1.0)


@dataclass(slots=True)
class Panel:
    """One of the small charts of a figure; `band` is a grey strip between two heights."""

    title: str
    x: Axis
    y: Axis
    series: list[ChartSeries] = field(default_factory=list)
    guides: list[Guide] = field(default_factory=list)
    band: tuple[float, float] | None = None

    @property
    def marks(self) -> Iterator[Mark]:
        """All marks, series by series, in the order in which they are drawn."""
        return (mark for series in self.series for mark in series.marks)


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A sign in the panels with its meaning."""

    name: str
    look: MarkerStyle
    form: Form | None  # None: a guide
    ringed: bool = False


@dataclass(slots=True)
class Chart:
    """Panels with one legend; `note` goes with it wherever it is shown. `intervals`: the meaning of pale bars."""

    panels: list[Panel]
    legend: list[LegendEntry] = field(default_factory=list)
    note: str = ""
    intervals: str = "95 % interval of the mean"

    @property
    def marks(self) -> list[Mark]:
        """All marks, panel by panel."""
        return [mark for panel in self.panels for mark in panel.marks]

    @property
    def table(self) -> tuple[list[str], list[list[str | int | float | None]]]:
        """The numbers of all marks: the names of the columns that hold any, and a row for each mark."""
        rows = [mark.numbers for mark in self.marks]
        names = [
            name
            for name in dict.fromkeys(name for row in rows for name in row)
            if any(row.get(name) is not None for row in rows)
        ]
        return names, [[row.get(name) for name in names] for row in rows]

    @property
    def repetitions(self) -> str:
        """`n = 3` or `n = 2 … 3`, of the marks with that number; empty without any."""
        known = sorted({n for mark in self.marks if isinstance(n := mark.numbers.get("valid_trials"), int) and n})
        return f"n = {known[0]}" + (f" … {known[-1]}" if len(known) > 1 else "") if known else ""

    @property
    def has_intervals(self) -> bool:
        """Whether any mark has an interval to be drawn."""
        return any(mark.low is not None for mark in self.marks)

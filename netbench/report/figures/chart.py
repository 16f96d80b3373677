"""A chart as plain data: panels of series of marks, and the numbers behind each mark.

`plotly_json.py` draws it on a page, `files.py` into files for a paper.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from netbench.report.styles import MarkerStyle

Numbers = Mapping[str, str | int | float | None]
"""The numbers behind a mark, under the column names of exports."""


class Form(Enum):
    """How the marks of a series are drawn."""

    LINE = "line"  # marks connected by straight lines
    POINTS = "points"
    BARS = "bars"  # side by side with those of other series
    STACK = "stack"  # on top of those of the series before


@dataclass(frozen=True, slots=True)
class Mark:
    """A number where it is drawn, in the units of the axes; on an axis of categories `x` is the index of one.

    `low` and `high` are the ends of its interval. `hover` is its tooltip, `text` stands on a bar. `symbol` replaces the
    symbol of its series. `y_kfps` is `y` in thousand frames/s where the sizes of the frames vary.
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
    y_kfps: float | None = None


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """Marks that belong together; series of one `group` (by default the name) are hidden and shown together."""

    name: str
    style: MarkerStyle
    form: Form
    marks: tuple[Mark, ...]
    group: str = ""


@dataclass(frozen=True, slots=True)
class Guide:
    """A dotted line that is no measurement, through points in the units of the axes; None breaks it."""

    points: tuple[tuple[float, float] | None, ...]
    name: str = ""  # in the legend, where not empty


@dataclass(slots=True)
class Axis:
    """Title and range of an axis. With `categories` these are at 0, 1, … ; with `ticks` those values have labels.

    A reader can make an axis `switchable` to logarithmic or linear, and see a rate (`is_rate`, Mbit/s) in frames/s.
    """

    title: str
    low: float = 0.0
    high: float = 1.0
    logarithmic: bool = False
    is_time: bool = False  # in seconds since 1970, UTC
    categories: tuple[str, ...] = ()
    ticks: tuple[tuple[float, str], ...] = ()
    switchable: bool = False
    is_rate: bool = False


@dataclass(slots=True)
class Panel:
    """One of the small charts of a figure; `band` is a grey strip between two heights.

    `kfps_per_mbps` converts its rates to thousand frames/s; None where it cannot be known.
    """

    title: str
    x: Axis
    y: Axis
    series: list[ChartSeries] = field(default_factory=list)
    guides: list[Guide] = field(default_factory=list)
    band: tuple[float, float] | None = None
    kfps_per_mbps: float | None = None

    @property
    def marks(self) -> Iterator[Mark]:
        """All marks, series by series, in the order in which they are drawn."""
        return (mark for series in self.series for mark in series.marks)


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A sign in the panels with its meaning."""

    name: str
    style: MarkerStyle
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
    def notes(self) -> list[str]:
        """The notes below the figure, line by line."""
        has_intervals = any(mark.low is not None for mark in self.marks)
        intervals = f"pale bars: {self.intervals}, cut where the panel ends" if has_intervals else ""
        first = "; ".join(part for part in (self.repetitions, intervals) if part)
        return [line for line in (first, self.note) if line]

"""A chart as plain data: panels of series of marks, and the numbers and the tooltip behind each mark.

The numbers have the names of `export --aggregate`.

`plotly_json.py` draws it on a page, `files.py` into files for a paper.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from netbench.report.formats import count, kfps_interval, mbps, mbps_interval, percent_interval
from netbench.report.styles import MarkerStyle
from netbench.results.group_columns import GROUP_COLUMNS
from netbench.statistics.groups import Group
from netbench.statistics.intervals import Interval

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


_COLUMNS = {column.name: column for column in GROUP_COLUMNS}
_WHICH = ("uut", "scenario", "streams", "frame_size", "frame_mix", "packet", "load", "valid_trials")
LOADS = ("offered_mbps", "throughput_mbps", "offered_fps", "throughput_fps", "loss_ratio")


def numbers_of(group: Group, *names: str) -> Numbers:
    """The identity of a group and its numbers of these names, each as a mean and, if known, a half width."""
    with_widths = (column for name in names for column in (name, f"{name}_ci95") if column in _COLUMNS)
    cells = {name: _COLUMNS[name].read(group) for name in (*_WHICH, *with_widths)}
    return {**cells, "packet": cells["packet"] or None}


def of_interval(name: str, interval: Interval | None) -> Numbers:
    """A mean and its half width as two columns."""
    if interval is None:
        return {}
    return {name: interval.mean, f"{name}_ci95": interval.half_width}


def load_text(load: str, sources: int) -> str:
    """The load, and the number of sources if there are several."""
    return f"{load} each from {sources} sources" if sources > 1 else load


def group_tooltip(group: Group) -> str:
    """A group of repetitions: its loads, throughput and loss with their intervals, and the trials left out."""
    left_out = [f"{len(group.suspicious)} suspicious"] * bool(group.suspicious)
    left_out += [f"{len(group.invalid)} invalid"] * bool(group.invalid)
    lines = [
        f"{mbps_interval(group.throughput_mbps)} Mbit/s = {kfps_interval(group.throughput_fps)} kfps",
        f"offered {mbps_interval(group.offered_mbps)} Mbit/s = {kfps_interval(group.offered_fps)} kfps",
        f"intended {load_text(str(group.load), group.sources)} = {mbps(group.intended_mbps)} Mbit/s",
        f"loss {percent_interval(group.loss_ratio)}, unsent {percent_interval(group.unsent_ratio)}",
        f"{count(len(group.valid), 'valid trial')}{f', {group.saturated} saturated' if group.saturated else ''}"
        + (f"; left out: {', '.join(left_out)}" if left_out else ""),
    ]
    return "\n".join(lines)

"""The tables of interference: isolation, the matrix, fairness, and the layouts of Tables 1 to 3 of Schlosser et al."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from netbench.model.campaign import Maximum
from netbench.model.counts import l1_mbps
from netbench.model.frame_size import FrameSize
from netbench.report.blocks import Cell, Column, ColumnHeading, Kind, Table, TableRow, table
from netbench.report.formats import (
    UNKNOWN,
    at_least,
    bounded,
    change,
    change_limits,
    count,
    index,
    index_limits,
    index_spread,
    kfps,
    mbps,
    mbps_spread,
    mean,
    p_value,
    percent,
    sentence,
)
from netbench.report.model import ReportModel, baselines, uut_cell
from netbench.report.published import PublishedTable
from netbench.report.styles import Style
from netbench.report.tables.registry import number, report_table, size_column, uut_column
from netbench.statistics.groups import Victim, grouped
from netbench.statistics.interference import RelativeMaximum, matrix, worst_isolation
from netbench.statistics.intervals import Interval, RatioOfMeans, statement
from netbench.statistics.sharing import Background, Fairness, fairness
from netbench.statistics.stream_fairness import stream_fairness

_STRONGEST = 45.0  # percent of ink in the colour of a cell that lost everything
_UNKNOWN = Cell(UNKNOWN, css="number")


@report_table("worst-isolation")
def worst(model: ReportModel) -> Iterator[Table]:
    """The lowest isolation index of each UUT, with its scenario and frame size."""
    if model.maxima:
        yield table(worst_isolation(model.maxima), *_isolation_columns(model.styles))


@report_table("isolation", is_exported=True)
def isolation(model: ReportModel) -> Iterator[Table]:
    """The isolation index of each UUT, scenario and frame size."""
    if maxima := model.maxima:
        caption = sentence("captions.isolation", ratios=count(len(maxima), "ratio"), baselines=baselines(maxima))
        yield table(maxima, *_isolation_columns(model.styles), name="isolation", caption=caption)


def _isolation_columns(styles: Mapping[str, Style]) -> tuple[Column[RelativeMaximum], ...]:
    return (
        uut_column(styles, lambda maximum: maximum.victim.uut),
        number("Isolation index", lambda maximum: Cell(_index(maximum), badge="strong")),
        number("95 % interval", lambda maximum: index_limits(maximum.ratio) or UNKNOWN),
        Column("In scenario", lambda maximum: maximum.scenario),
        number("Frame size", lambda maximum: _size(maximum.victim)),
        Column("Change of its highest throughput", lambda maximum: statement(maximum.ratio)),
    )


def _index(maximum: RelativeMaximum) -> str:
    return bounded(index(maximum.isolation_index), maximum.ratio)


@report_table("matrix")
def matrix_table(model: ReportModel) -> Iterator[Table]:
    """A row per victim, a column per scenario; cells that lost more throughput are darker."""
    if not model.maxima:
        return
    cells = matrix(model.groups)
    several = len({victim.sources for victim in cells.victims}) > 1
    columns: tuple[Column[Victim], ...] = (
        uut_column(model.styles, lambda victim: victim.uut),
        size_column(lambda victim: victim.frame_size),
        *((number("Sources", lambda victim: str(victim.sources)),) if several else ()),
        *(
            Column(scenario, lambda victim, scenario=scenario: _matrix_cell(cells.cells.get((victim, scenario))))  # type: ignore[misc]  # mypy cannot infer lambdas with bound arguments
            for scenario in cells.scenarios
        ),
    )
    yield table(cells.victims, *columns, css="matrix", block=lambda victim: victim.uut, shows_blocks=False)


def _matrix_cell(maximum: RelativeMaximum | None) -> Cell:
    if maximum is None or maximum.isolation_index is None:
        return Cell(UNKNOWN, tooltip="" if maximum is None else statement(maximum.ratio))
    ratio = maximum.ratio
    limits = index_limits(ratio) if ratio.significant or ratio.bound else "not significant"
    return Cell(
        _index(maximum),
        small=limits if ratio.unknown is None else ratio.why_unknown,
        tooltip=f"{statement(ratio)}; relative to {maximum.baseline}",
        shade=_STRONGEST * min(1.0, max(0.0, 1 - maximum.isolation_index)),
    )


@report_table("fairness")
def fairness_tables(model: ReportModel) -> Iterator[Table]:
    """Jain's index of each measurement in which a neighbour forwards, a table per scenario."""
    columns: tuple[Column[Fairness], ...] = (
        uut_column(model.styles, lambda row: row.victim.uut),
        number("Frame size", lambda row: _size(row.victim)),
        Column("Load per source", lambda row: str(row.load)),
        Column("Fairness index", lambda row: index(row.index.mean), Kind.NUMBER, lambda row: index_spread(row.index)),
        number("Forwarded by the UUT", lambda row: percent(row.victim_share.mean)),
        Column(
            "Forwarded by its neighbours",
            lambda row: ", ".join(f"{name}: {percent(mean(share))}" for name, share in row.neighbour_shares.items()),
        ),
    )
    for scenario, rows in grouped(fairness(model.groups), lambda row: row.scenario).items():
        yield table(rows, *columns, caption=scenario)


@report_table("stream-fairness", is_exported=True)
def stream_fairness_table(model: ReportModel) -> Iterator[Table]:
    """Jain's index of the streams of each measurement with several sources, and their throughputs."""
    if rows := stream_fairness(model.groups):
        yield table(
            rows,
            uut_column(model.styles, lambda row: row.victim.uut),
            Column("Scenario", lambda row: row.scenario),
            number("Frame size", lambda row: _size(row.victim)),
            Column("Load per source", lambda row: str(row.load)),
            Column(
                "Fairness index", lambda row: index(row.index.mean), Kind.NUMBER, lambda row: index_spread(row.index)
            ),
            Column(
                "Throughput of each stream, Mbit/s",
                lambda row: ", ".join(f"{name}: {mbps(mean(rate))}" for name, rate in row.throughput_mbps.items()),
            ),
            number("p", lambda row: p_value(row.p)),
            Column("Streams differ", lambda row: {True: "yes", False: "no", None: UNKNOWN}[row.differ]),
            row_css=lambda row: "changed" if row.differ else "",
            name="stream-fairness",
            caption=sentence("captions.stream_fairness"),
        )


@report_table("load-maxima")
def load_maxima(model: ReportModel) -> Iterator[Table]:
    """The maxima that loads given as shares refer to."""

    def bound(maximum: Maximum, rate: str) -> str:
        return at_least(rate, not maximum.limited_by.is_uut)

    def method(maximum: Maximum) -> str:
        if maximum.goal:
            return f"a search, {maximum.goal}, {count(maximum.repetitions, 'trial')}"
        return f"the loads of the profile, {count(maximum.repetitions, 'repetition')}"

    if maxima := model.results.maxima:
        yield table(
            maxima,
            uut_column(model.styles, lambda maximum: maximum.uut),
            size_column(lambda maximum: maximum.frame_size),
            number("Sources", lambda maximum: str(maximum.sources)),
            number("Maximum, kfps a stream", lambda maximum: bound(maximum, kfps(maximum.fps))),
            number("Mbit/s", lambda maximum: bound(maximum, mbps(l1_mbps(maximum.fps, maximum.frame_size.mean_bytes)))),
            Column("Limited by", lambda maximum: str(maximum.limited_by)),
            Column("Reached at a load of", lambda maximum: maximum.load),
            Column("Found by", method),
        )


def change_table(maxima: Sequence[RelativeMaximum], columns: Mapping[str, str], styles: Mapping[str, Style]) -> Table:
    """The layout of Table 1: a column per scenario, named by `columns`; small frames first."""
    cells: dict[Victim, list[Cell]] = {}
    for victim, members in grouped(maxima, lambda maximum: maximum.victim).items():
        changes = {maximum.scenario: _change(maximum.ratio) for maximum in members}
        cells[victim] = [changes.get(scenario, _UNKNOWN) for scenario in columns]
    return _measured_table("Measured here, %", styles, list(columns.values()), cells)


def background_table(backgrounds: Sequence[Background], styles: Mapping[str, Style]) -> Table:
    """The layout of Tables 2 and 3: what the neighbours were offered (in) and forwarded (out); large frames first."""
    cells = {row.victim: [_rate(row.offered_mbps), _rate(row.throughput_mbps)] for row in backgrounds}
    return _measured_table("Measured here, Mbit/s (L1)", styles, ["in", "out"], cells, largest_first=True)


def _measured_table(
    caption: str,
    styles: Mapping[str, Style],
    columns: Sequence[str],
    cells: Mapping[Victim, Sequence[Cell]],
    *,
    largest_first: bool = False,
) -> Table:
    """The cells of victims with one number of sources in the layout of the paper."""
    uuts = dict.fromkeys(victim.uut for victim in cells)
    by_size = grouped(cells, lambda victim: victim.frame_size)
    rows: dict[FrameSize, list[Cell]] = {}
    for size in sorted(by_size, reverse=largest_first):
        of_uut = {victim.uut: cells[victim] for victim in by_size[size]}
        rows[size] = [cell for uut in uuts for cell in of_uut.get(uut, [_UNKNOWN] * len(columns))]
    return _paper_table(caption, [uut_cell(uut, styles) for uut in uuts], columns, rows)


def published_table(published: PublishedTable) -> Table:
    """A table of the paper as printed."""
    show: Callable[[float], str] = (lambda value: change(value / 100)) if published.unit == "%" else mbps
    return _paper_table(
        f"Table {published.number} of the paper, {published.unit}",
        [Cell(uut) for uut in published.uuts],
        list(published.columns),
        {size: [Cell(show(value), css="number") for value in values] for size, values in published.rows.items()},
        "paper published",
    )


def _paper_table(
    caption: str,
    uuts: Sequence[Cell],
    columns: Sequence[str],
    rows: Mapping[FrameSize, Sequence[Cell]] | Mapping[int, Sequence[Cell]],
    css: str = "paper",
) -> Table:
    """The layout of the paper's tables: a row per frame size, the same columns for each UUT."""
    numbers = [ColumnHeading(name, Kind.NUMBER) for _ in uuts for name in columns]
    return Table(
        (ColumnHeading("packet size", Kind.TEXT), *numbers),
        tuple(TableRow((Cell(str(size)), *cells)) for size, cells in rows.items()),
        css,
        caption=caption,
        spans=tuple((uut, len(columns)) for uut in uuts),
    )


def _change(ratio: RatioOfMeans) -> Cell:
    """A relative change in percent, its interval below it, and the conclusion as a tooltip."""
    css = {True: "number change", False: "number no-change", None: "number"}[ratio.significant]
    return Cell(bounded(change(ratio.change), ratio), small=change_limits(ratio), tooltip=statement(ratio), css=css)


def _rate(interval: Interval | None) -> Cell:
    return _UNKNOWN if interval is None else Cell(mbps(mean(interval)), small=mbps_spread(interval), css="number")


def _size(victim: Victim) -> str:
    return victim.frame_size.text(" B") + (f", {count(victim.sources, 'source')}" if victim.sources > 1 else "")

"""The tables of interference: isolation, the matrix, fairness, and the layouts of Tables 1 to 3 of Schlosser et al."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from netbench.model.counts import l1_mbps
from netbench.model.frame_mix import FrameSize, rising, size_text
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
    percent,
    sentence,
)
from netbench.report.model import PublishedTable, ReportModel, baselines, uut_cell
from netbench.report.styles import Style
from netbench.report.tables.registry import number, report_table, size_column, uut_column
from netbench.statistics.groups import Victim
from netbench.statistics.interference import RelativeMaximum, matrix, worst_isolation
from netbench.statistics.intervals import Interval, RatioOfMeans, statement
from netbench.statistics.sharing import Background, Fairness, fairness

_STRONGEST = 45.0  # percent of ink in the colour of a cell that lost everything
_UNKNOWN = Cell(UNKNOWN, css="number")


@report_table("worst-isolation", "Lowest isolation index", "a neighbour")
def worst(model: ReportModel) -> Iterator[Table]:
    """The lowest isolation index of each UUT, with its scenario and frame size."""
    if model.maxima:
        yield table(worst_isolation(model.maxima), *_isolation_columns(model.styles))


@report_table("isolation", "Isolation indices", "a neighbour", is_exported=True)
def isolation(model: ReportModel) -> Iterator[Table]:
    """The isolation index of each UUT, scenario and frame size."""
    if maxima := model.maxima:
        caption = sentence("captions.isolation", ratios=count(len(maxima), "ratio"), baselines=baselines(maxima))
        yield table(maxima, *_isolation_columns(model.styles), name="isolation", caption=caption)


def _isolation_columns(styles: Mapping[str, Style]) -> tuple[Column[RelativeMaximum], ...]:
    return (
        uut_column(styles, lambda maximum: maximum.victim.uut),
        number(
            "Isolation index",
            lambda maximum: Cell(bounded(index(maximum.isolation_index), maximum.ratio), badge="strong"),
        ),
        number("95 % interval", lambda maximum: index_limits(maximum.ratio) or UNKNOWN),
        Column("In scenario", lambda maximum: maximum.scenario),
        number("Frame size", lambda maximum: _size(maximum.victim)),
        Column("Change of its highest throughput", lambda maximum: statement(maximum.ratio)),
    )


@report_table("matrix", "Victim × neighbour", "a neighbour")
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
        bounded(index(maximum.isolation_index), ratio),
        small=limits if ratio.unknown is None else ratio.why_unknown,
        tooltip=f"{statement(ratio)}; relative to {maximum.baseline}",
        shade=_STRONGEST * min(1.0, max(0.0, 1 - maximum.isolation_index)),
    )


@report_table("fairness", "Fairness", "a neighbour that forwards")
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
    rows = fairness(model.groups)
    for scenario in dict.fromkeys(row.scenario for row in rows):
        yield table([row for row in rows if row.scenario == scenario], *columns, caption=scenario)


@report_table("load-maxima", "Maxima that loads refer to", "loads as shares of a maximum")
def load_maxima(model: ReportModel) -> Iterator[Table]:
    """The maxima that loads given as shares refer to."""
    if maxima := model.results.maxima:
        yield table(
            maxima,
            uut_column(model.styles, lambda maximum: maximum.uut),
            size_column(lambda maximum: maximum.frame_size),
            number("Sources", lambda maximum: str(maximum.sources)),
            number(
                "Maximum, kfps a stream", lambda maximum: at_least(kfps(maximum.fps), not maximum.limited_by.is_uut)
            ),
            number(
                "Mbit/s",
                lambda maximum: at_least(mbps(l1_mbps(maximum.fps, maximum.frame_size)), not maximum.limited_by.is_uut),
            ),
            Column("Limited by", lambda maximum: str(maximum.limited_by)),
            Column("Reached at a load of", lambda maximum: maximum.load),
            Column(
                "Found by",
                lambda maximum: (
                    f"a search, {maximum.goal}, {count(maximum.repetitions, 'trial')}"
                    if maximum.goal
                    else f"the loads of the profile, {count(maximum.repetitions, 'repetition')}"
                ),
            ),
        )


def change_table(maxima: Sequence[RelativeMaximum], columns: Mapping[str, str], styles: Mapping[str, Style]) -> Table:
    """The layout of Table 1: a column per scenario, named by `columns`; small frames first."""
    cells = {
        (maximum.victim.uut, maximum.victim.frame_size, maximum.scenario): _change(maximum.ratio) for maximum in maxima
    }
    uuts = list(dict.fromkeys(maximum.victim.uut for maximum in maxima))
    sizes = sorted({maximum.victim.frame_size for maximum in maxima}, key=rising)
    return _paper_table(
        "Measured here, %",
        [uut_cell(uut, styles) for uut in uuts],
        list(columns.values()),
        {size: [cells.get((uut, size, scenario), _UNKNOWN) for uut in uuts for scenario in columns] for size in sizes},
    )


def background_table(backgrounds: Sequence[Background], styles: Mapping[str, Style]) -> Table:
    """The layout of Tables 2 and 3: what the neighbours were offered (in) and forwarded (out); large frames first."""
    cells = {
        (row.victim.uut, row.victim.frame_size): [_rate(row.offered_mbps), _rate(row.throughput_mbps)]
        for row in backgrounds
    }
    uuts = list(dict.fromkeys(row.victim.uut for row in backgrounds))
    sizes = sorted({row.victim.frame_size for row in backgrounds}, key=rising, reverse=True)
    return _paper_table(
        "Measured here, Mbit/s (L1)",
        [uut_cell(uut, styles) for uut in uuts],
        ["in", "out"],
        {size: [cell for uut in uuts for cell in cells.get((uut, size), [_UNKNOWN, _UNKNOWN])] for size in sizes},
    )


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
    return size_text(victim.frame_size, " B") + (f", {count(victim.sources, 'source')}" if victim.sources > 1 else "")

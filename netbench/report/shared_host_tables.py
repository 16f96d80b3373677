"""Tables of interference: those of Schlosser et al. 2011, the matrix of isolation indices, fairness, maxima."""

from collections.abc import Iterable, Mapping, Sequence

from netbench.model.campaign import Maximum
from netbench.model.counts import l1_mbps
from netbench.model.frame_mix import FrameSize, rising, size_text
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
)
from netbench.report.markup import Html, TableColumn, element, folded, join, table
from netbench.report.published import PublishedTable
from netbench.report.styles import Style
from netbench.report.tables import uut_label
from netbench.statistics.groups import Victim, grouped
from netbench.statistics.interference import Matrix, RelativeMaximum
from netbench.statistics.intervals import Interval, RatioOfMeans, statement
from netbench.statistics.sharing import Background, Fairness

_STRONGEST = 45.0  # percent of ink in the colour of a cell that lost everything
_UNKNOWN = element("td", UNKNOWN, css="number")


def published_table(published: PublishedTable) -> Html:
    """A table of the paper as printed."""
    show = _printed_change if published.unit == "%" else mbps
    rows: dict[FrameSize, list[Html]] = {
        size: [element("td", show(number), css="number") for number in numbers]
        for size, numbers in published.rows.items()
    }
    caption = join((element("b", f"Table {published.number} of the paper"), f", {published.unit}"))
    return _table_of_paper(caption, published.uuts, tuple(published.columns), rows, css="paper published")


def change_table(
    maxima: Sequence[RelativeMaximum], columns: Mapping[str, str], looks: Mapping[str, Style], caption: str
) -> Html:
    """The layout of Table 1: a column per scenario, named by `columns`; small frames first."""
    cells = {
        (maximum.victim.uut, maximum.victim.frame_size, maximum.scenario): _change(maximum.ratio) for maximum in maxima
    }
    uuts = list(dict.fromkeys(maximum.victim.uut for maximum in maxima))
    rows = {
        size: [cells.get((uut, size, scenario), _UNKNOWN) for uut in uuts for scenario in columns]
        for size in sorted({maximum.victim.frame_size for maximum in maxima}, key=rising)
    }
    return _table_of_paper(caption, [uut_label(uut, looks) for uut in uuts], tuple(columns.values()), rows)


def background_table(backgrounds: Sequence[Background], looks: Mapping[str, Style], caption: str) -> Html:
    """The layout of Tables 2 and 3: what the neighbours were offered (in) and forwarded (out); large frames first."""
    cells = {
        (row.victim.uut, row.victim.frame_size): (_rate(row.offered_mbps), _rate(row.throughput_mbps))
        for row in backgrounds
    }
    uuts = list(dict.fromkeys(row.victim.uut for row in backgrounds))
    rows = {
        size: [cell for uut in uuts for cell in cells.get((uut, size), (_UNKNOWN, _UNKNOWN))]
        for size in sorted({row.victim.frame_size for row in backgrounds}, key=rising, reverse=True)
    }
    return _table_of_paper(caption, [uut_label(uut, looks) for uut in uuts], ("in", "out"), rows)


def matrix_table(matrix: Matrix, looks: Mapping[str, Style]) -> Html:
    """A row per victim, a column per scenario; cells that lost more throughput are darker."""
    several = len({victim.sources for victim in matrix.victims}) > 1
    names = ("UUT", "Frame size", *(("Sources",) if several else ()), *matrix.scenarios)
    head = element("tr", *(element("th", name, scope="col") for name in names))
    bodies = []
    for uut, victims in grouped(matrix.victims, lambda victim: victim.uut).items():
        heading = element("th", uut_label(uut, looks), scope="rowgroup", rowspan=str(len(victims)))
        rows: list[Html] = []
        for victim in victims:
            place = (size_text(victim.frame_size, " B"), *((str(victim.sources),) if several else ()))
            cells = [_matrix_cell(matrix.cells.get((victim, scenario))) for scenario in matrix.scenarios]
            rows.append(element("tr", "" if rows else heading, *(element("td", text) for text in place), *cells))
        bodies.append(element("tbody", *rows))
    return element("div", element("table", element("thead", head), *bodies, css="matrix"), css="wide")


def worst_table(worst: Iterable[RelativeMaximum], looks: Mapping[str, Style]) -> Html:
    """The lowest isolation index of each UUT, with its scenario and frame size."""
    return table(isolation_columns(looks), [worst])


def isolation_columns(looks: Mapping[str, Style]) -> tuple[TableColumn[RelativeMaximum], ...]:
    """The columns of a table of maxima beside a neighbour."""
    return (
        TableColumn("UUT", lambda maximum: uut_label(maximum.victim.uut, looks)),
        TableColumn(
            "Isolation index",
            lambda maximum: element("b", bounded(index(maximum.isolation_index), maximum.ratio)),
            "number",
        ),
        TableColumn("95 % interval", lambda maximum: index_limits(maximum.ratio) or UNKNOWN, "number"),
        TableColumn("In scenario", lambda maximum: maximum.scenario),
        TableColumn("Frame size", lambda maximum: _size(maximum.victim), "number"),
        TableColumn("Change of its highest throughput", lambda maximum: statement(maximum.ratio)),
    )


def fairness_table(fairness: Iterable[Fairness], looks: Mapping[str, Style]) -> Html:
    """Jain's index of each measurement in which a neighbour forwards, a table per scenario."""
    columns: tuple[TableColumn[Fairness], ...] = (
        TableColumn("UUT", lambda row: uut_label(row.victim.uut, looks)),
        TableColumn("Frame size", lambda row: _size(row.victim), "number"),
        TableColumn("Load per source", lambda row: str(row.load)),
        TableColumn("Fairness index", lambda row: index(row.index.mean), "number", lambda row: index_spread(row.index)),
        TableColumn("The UUT got through", lambda row: percent(row.victim_share.mean), "number"),
        TableColumn("Its neighbours got through", _neighbour_shares),
    )
    by_scenario = grouped(fairness, lambda row: row.scenario)
    return join(
        folded(f"{scenario} – {count(len(rows), 'measurement')}", len(rows), table(columns, [rows]))
        for scenario, rows in by_scenario.items()
    )


def maxima_table(maxima: Iterable[Maximum], looks: Mapping[str, Style]) -> Html:
    """The maxima that loads given as shares refer to."""
    columns: tuple[TableColumn[Maximum], ...] = (
        TableColumn("UUT", lambda maximum: uut_label(maximum.uut, looks)),
        TableColumn("Frame size", lambda maximum: size_text(maximum.frame_size, " B"), "number"),
        TableColumn("Sources", lambda maximum: str(maximum.sources), "number"),
        TableColumn(
            "Maximum, kfps a stream", lambda maximum: at_least(kfps(maximum.fps), maximum.limited_by), "number"
        ),
        TableColumn(
            "Mbit/s",
            lambda maximum: at_least(mbps(l1_mbps(maximum.fps, maximum.frame_size)), maximum.limited_by),
            "number",
        ),
        TableColumn("Limited by", lambda maximum: maximum.limited_by or "the UUT"),
        TableColumn("Reached at a load of", lambda maximum: maximum.load),
        TableColumn("Found by", _found_by),
    )
    return table(columns, [maxima])


def _found_by(one: Maximum) -> str:
    if one.goal:
        return f"a search, {one.goal}, {count(one.repetitions, 'trial')}"
    return f"the loads of the profile, {count(one.repetitions, 'repetition')}"


def _table_of_paper(
    caption: str,
    uuts: Sequence[str],
    columns: Sequence[str],
    rows: Mapping[FrameSize, Iterable[Html]],
    css: str = "paper",
) -> Html:
    """A row of cells per frame size, the columns again for each UUT, in a frame that scrolls where it is wide."""
    width = str(len(columns))
    of_uuts = [element("colgroup", span=width) for _ in uuts]
    names = [element("th", name, scope="col", css="number") for _ in uuts for name in columns]
    head = element(
        "thead",
        element(
            "tr",
            element("th", "packet size", rowspan="2", scope="col"),
            *(element("th", uut, colspan=width, scope="colgroup", css="group") for uut in uuts),
        ),
        element("tr", *names),
    )
    lines = [element("tr", element("th", str(size), scope="row"), *cells) for size, cells in rows.items()]
    parts = (element("caption", caption), element("colgroup", span="1"), *of_uuts, head, element("tbody", *lines))
    return element("div", element("table", *parts, css=css), css="wide")


def _printed_change(percent: float) -> str:
    return change(percent / 100)


def _change(ratio: RatioOfMeans) -> Html:
    """A relative change in percent, its interval below it, and the conclusion as a tooltip."""
    css = {True: "number change", False: "number no-change", None: "number"}[ratio.significant]
    limits = element("small", change_limits(ratio))
    return element("td", bounded(change(ratio.change), ratio), limits, css=css, title=statement(ratio))


def _rate(interval: Interval | None) -> Html:
    if interval is None:
        return _UNKNOWN
    return element("td", mbps(mean(interval)), element("small", mbps_spread(interval)), css="number")


def _matrix_cell(one: RelativeMaximum | None) -> Html:
    if one is None or one.isolation_index is None:
        return element("td", UNKNOWN, title="" if one is None else statement(one.ratio))
    lost = _STRONGEST * min(1.0, max(0.0, 1 - one.isolation_index))
    colour = f"color-mix(in srgb, var(--ink) {lost:.1f}%, transparent)"
    if one.ratio.unknown is not None:
        words = one.ratio.why_unknown
    else:
        words = index_limits(one.ratio) if one.ratio.significant or one.ratio.bound else "not significant"
    title = f"{statement(one.ratio)}; relative to {one.baseline}"
    shown = bounded(index(one.isolation_index), one.ratio)
    return element("td", shown, element("small", words), style=f"background:{colour}", title=title)


def _neighbour_shares(one: Fairness) -> str:
    return ", ".join(f"{name}: {percent(mean(share))}" for name, share in one.neighbour_shares.items())


def _size(victim: Victim) -> str:
    return size_text(victim.frame_size, " B") + (f", {count(victim.sources, 'source')}" if victim.sources > 1 else "")

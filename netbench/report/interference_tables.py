"""Tables of what neighbours do: the matrix of isolation indices, the worst of each UUT, fairness, and the maxima."""

from collections.abc import Iterable, Mapping, Sequence

from netbench.model.campaign import Maximum
from netbench.model.counts import l1_mbps
from netbench.report.formats import UNKNOWN, count, index, index_limits, index_spread, kfps, mbps, mean, percent
from netbench.report.markup import Column, Html, element, folded, join, row, table
from netbench.report.panels import Style
from netbench.report.tables import uut_label
from netbench.statistics.interference.isolation import Fairness
from netbench.statistics.interference.throughput_change import Matrix, RelativeMaximum, Victim
from netbench.statistics.ratios import RatioOfMeans, statement

_LOST, _GAINED = "213, 94, 0", "0, 114, 178"  # Okabe and Ito's vermillion and blue
_STRONGEST = 0.8  # how opaque the colour of a cell is that lost everything

_NUMBER = "number"
_SPREAD = Column("±", css="spread")
_WORST = (
    Column("UUT"),
    Column("Isolation index", css=_NUMBER),
    Column("95 % interval", css=_NUMBER),
    Column("In scenario"),
    Column("Frame size", css=_NUMBER),
    Column("Change of its most throughput"),
)
_FAIRNESS = (
    Column("UUT"),
    Column("Frame size", css=_NUMBER),
    Column("Load per source"),
    Column("Fairness index", css=_NUMBER),
    _SPREAD,
    Column("The UUT got through", css=_NUMBER),
    Column("Its neighbours got through"),
)
_MAXIMA = (
    Column("UUT"),
    Column("Frame size", css=_NUMBER),
    Column("Maximum, kfps a stream", css=_NUMBER),
    Column("Mbit/s", css=_NUMBER),
    Column("Reached at a load of"),
    Column("Repetitions", css=_NUMBER),
)


def matrix_table(matrix: Matrix, looks: Mapping[str, Style]) -> Html:
    """A row per victim, a column per scenario, a cell the darker the more throughput was lost."""
    several = len({victim.sources for victim in matrix.victims}) > 1
    names = ("UUT", "Frame size", *(("Sources",) if several else ()), *matrix.scenarios)
    head = element("tr", *(element("th", name, scope="col") for name in names))
    bodies = []
    for uut in dict.fromkeys(victim.uut for victim in matrix.victims):
        own = [victim for victim in matrix.victims if victim.uut == uut]
        heading = element("th", uut_label(uut, looks), scope="rowgroup", rowspan=str(len(own)))
        bodies.append([_matrix_row(matrix, victim, several, heading if victim is own[0] else "") for victim in own])
    parts = (element("thead", head), *(element("tbody", *lines) for lines in bodies))
    return element("div", element("table", *parts, css="matrix"), css="wide")


def worst_table(worst: Iterable[RelativeMaximum], looks: Mapping[str, Style]) -> Html:
    """Of each UUT its lowest isolation index, and where it was found."""
    rows = [
        row(
            _WORST,
            (
                uut_label(one.victim.uut, looks),
                element("b", index(one.isolation_index)),
                index_limits(one.ratio) or UNKNOWN,
                one.scenario,
                _size(one.victim),
                statement(one.ratio),
            ),
        )
        for one in worst
    ]
    return table(_WORST, [rows])


def fairness_table(fairness: Sequence[Fairness], looks: Mapping[str, Style]) -> Html:
    """Jain's index of each measurement in which a neighbour forwards, a table per scenario."""
    parts = []
    for scenario in dict.fromkeys(one.scenario for one in fairness):
        rows = [row(_FAIRNESS, _fairness_cells(one, looks)) for one in fairness if one.scenario == scenario]
        parts.append(folded(f"{scenario} – {count(len(rows), 'measurement')}", len(rows), table(_FAIRNESS, [rows])))
    return join(parts)


def maxima_table(maxima: Iterable[Maximum], looks: Mapping[str, Style]) -> Html:
    """What the shares that neighbours are loaded with refer to."""
    rows = [
        row(
            _MAXIMA,
            (
                uut_label(one.uut, looks),
                f"{one.frame_size:,} B",
                kfps(one.fps),
                mbps(l1_mbps(one.fps, one.frame_size)),
                one.load,
                f"{one.repetitions:,}",
            ),
        )
        for one in maxima
    ]
    return table(_MAXIMA, [rows])


def _matrix_row(matrix: Matrix, victim: Victim, several: bool, heading: str) -> Html:
    place = (f"{victim.frame_size:,} B", *((str(victim.sources),) if several else ()))
    cells = [_matrix_cell(matrix.cells.get((victim, scenario))) for scenario in matrix.scenarios]
    return element("tr", heading, *(element("td", one) for one in place), *cells)


def _matrix_cell(one: RelativeMaximum | None) -> Html:
    if one is None or one.isolation_index is None:
        return element("td", UNKNOWN)
    change = one.isolation_index - 1
    colour = f"rgba({_LOST if change < 0 else _GAINED}, {_STRONGEST * min(1.0, abs(change)):.3f})"
    words = element("small", _significance(one.ratio))
    title = f"{statement(one.ratio)}; relative to {one.baseline}"
    return element("td", index(one.isolation_index), words, style=f"background:{colour}", title=title)


def _significance(ratio: RatioOfMeans) -> str:
    if ratio.unknown is not None:
        return ratio.unknown.value
    return index_limits(ratio) if ratio.significant else "not significant"


def _fairness_cells(one: Fairness, looks: Mapping[str, Style]) -> tuple[str, ...]:
    shares = one.neighbour_shares
    return (
        uut_label(one.victim.uut, looks),
        _size(one.victim),
        str(one.load),
        index(one.index.mean),
        index_spread(one.index),
        percent(one.victim_share.mean),
        join((f"{name}: {percent(mean(share))}" for name, share in shares.items()), ", "),
    )


def _size(victim: Victim) -> str:
    return f"{victim.frame_size:,} B" + (f", {count(victim.sources, 'source')}" if victim.sources > 1 else "")

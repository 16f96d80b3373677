"""Tables in the layout of Schlosser et al. 2011: a row per frame size, columns of their own for each UUT."""

from collections.abc import Iterable, Mapping, Sequence

from netbench.report.formats import UNKNOWN, change, change_limits, mbps, mbps_spread, mean
from netbench.report.markup import Html, element, join
from netbench.report.panels import Style
from netbench.report.published import PublishedTable
from netbench.report.tables import uut_label
from netbench.statistics.interference.background import Background
from netbench.statistics.interference.throughput_change import RelativeMaximum
from netbench.statistics.intervals import Interval
from netbench.statistics.ratios import RatioOfMeans, statement

_UNKNOWN = element("td", UNKNOWN, css="number")


def published_table(table: PublishedTable) -> Html:
    """A table as printed."""
    show = _printed_change if table.unit == "%" else mbps
    rows = {
        size: [element("td", show(number), css="number") for pair in pairs for number in pair]
        for size, pairs in table.rows.items()
    }
    caption = join((element("b", f"Table {table.number} of the paper"), f", {table.unit}"))
    return _table(caption, table.uuts, tuple(table.columns), rows, css="published")


def change_table(
    maxima: Sequence[RelativeMaximum], columns: Mapping[str, str], looks: Mapping[str, Style], caption: str
) -> Html:
    """The layout of Table 1: a column per scenario, which `columns` gives a name; small frames first."""
    cells = {(one.victim.uut, one.victim.frame_size, one.scenario): _change(one.ratio) for one in maxima}
    uuts = list(dict.fromkeys(one.victim.uut for one in maxima))
    rows = {
        size: [cells.get((uut, size, scenario), _UNKNOWN) for uut in uuts for scenario in columns]
        for size in sorted({one.victim.frame_size for one in maxima})
    }
    return _table(caption, [uut_label(uut, looks) for uut in uuts], tuple(columns.values()), rows)


def background_table(backgrounds: Sequence[Background], looks: Mapping[str, Style], caption: str) -> Html:
    """The layout of Tables 2 and 3: what the neighbours were offered (in) and forwarded (out); large frames first."""
    cells = {
        (one.victim.uut, one.victim.frame_size): (_rate(one.offered_mbps), _rate(one.throughput_mbps))
        for one in backgrounds
    }
    uuts = list(dict.fromkeys(one.victim.uut for one in backgrounds))
    rows = {
        size: [cell for uut in uuts for cell in cells.get((uut, size), (_UNKNOWN, _UNKNOWN))]
        for size in sorted({one.victim.frame_size for one in backgrounds}, reverse=True)
    }
    return _table(caption, [uut_label(uut, looks) for uut in uuts], ("in", "out"), rows)


def _table(
    caption: str, uuts: Sequence[str], columns: Sequence[str], rows: Mapping[int, Iterable[Html]], css: str = ""
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
    return element("div", element("table", *parts, css=f"paper {css}".strip()), css="wide")


def _change(ratio: RatioOfMeans) -> Html:
    """A relative change in percent, its interval below it, and what may be said of it when pointed at."""
    css = {True: "number change", False: "number no-change", None: "number"}[ratio.significant]
    limits = element("small", change_limits(ratio))
    return element("td", change(ratio.change), limits, css=css, title=statement(ratio))


def _rate(interval: Interval | None) -> Html:
    if interval is None:
        return _UNKNOWN
    return element("td", mbps(mean(interval)), element("small", mbps_spread(interval)), css="number")


def _printed_change(percent: float) -> str:
    return change(percent / 100)

"""Tables of every guest on the UUTs' host: the CPU time of each, scenario by scenario."""

from collections.abc import Iterable, Mapping

from netbench.report.formats import cpu, cpu_spread, mean
from netbench.report.markup import Column, Html, row, table
from netbench.report.panels import Style
from netbench.report.tables import uut_label
from netbench.statistics.interference.guest_cpu import CpuUse
from netbench.statistics.intervals import Interval

_ITSELF = "itself"

_SPREAD = Column("±", css="spread")
_CPU = (
    Column("UUT"),
    Column("Scenario"),
    Column("Guest"),
    Column("What it does", css="words"),
    Column("Guest CPU", css="number"),
    _SPREAD,
    Column("Of that its load", css="number"),
    _SPREAD,
    Column("Host CPU", css="number"),
    _SPREAD,
    Column("Whole machine", css="number"),
    _SPREAD,
)


def knows_guests(uses: Iterable[CpuUse]) -> bool:
    """Whether there is anything to tell but the CPU time of the UUTs themselves."""
    return any(use.machine is not None or use.neighbours for use in uses)


def cpu_by_scenario(uses: Iterable[CpuUse], looks: Mapping[str, Style]) -> Html:
    """A row per UUT, scenario and guest: CPU time in percent of one CPU."""
    bodies: dict[str, list[Html]] = {}
    for use in uses:
        bodies.setdefault(use.uut, []).extend(_rows(use, looks))
    return table(_CPU, bodies.values(), css="cpu")


def _rows(use: CpuUse, looks: Mapping[str, Style]) -> Iterable[Html]:
    own = (*_share(use.guest), *_share(None), *_share(use.host), *_share(use.machine))
    yield row(_CPU, (uut_label(use.uut, looks), use.scenario, _ITSELF, "", *own))
    for one in use.neighbours:
        shares = (*_share(one.guest), *_share(one.load), *_share(one.host), "", "")
        yield row(_CPU, ("", "", one.name, one.activity, *shares))


def _share(interval: Interval | None) -> tuple[str, str]:
    return cpu(mean(interval)), cpu_spread(interval)

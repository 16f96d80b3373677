"""What is known of the UUTs themselves: facts, the CPU time they took, what their own counters say."""

from collections.abc import Iterable, Mapping, Sequence

from netbench.report.formats import UNKNOWN, count, cpu, cpu_spread, frames, mbps, mean
from netbench.report.markup import Column, Html, element, folded, join, row, table
from netbench.report.panels import Style
from netbench.report.tables import uut_label
from netbench.statistics.groups import Group
from netbench.statistics.interference.guest_cpu import CpuUse
from netbench.statistics.intervals import Interval
from netbench.statistics.uut_counters import CounterSums

_ROLES = {"repeated": "dropped (in another counter too)"}

_SPREAD = Column("±", css="spread")
_CPU = (
    Column("UUT"),
    Column("Load per source"),
    Column("Offered Mbit/s", css="number"),
    Column("Guest CPU", css="number"),
    _SPREAD,
    Column("Host CPU", css="number"),
    _SPREAD,
    Column("Valid", css="number"),
)
_ITSELF = "itself"

_CPU_BY_SCENARIO = (
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
_COUNTERS = (
    Column("Place"),
    Column("Counter"),
    Column("Frames it counts"),
    Column("Sum", css="number"),
    Column("Read in valid trials", css="number"),
)


def facts_table(facts: Mapping[str, Mapping[str, str]], looks: Mapping[str, Style]) -> Html:
    """A row per fact, a column per UUT that told any."""
    uuts = [uut for uut in looks if facts.get(uut)]
    names = dict.fromkeys(fact for uut in uuts for fact in facts[uut])
    columns = (Column("Fact"), *(Column(looks[uut].label) for uut in uuts))
    rows = [row(columns, (name.replace("_", " "), *(facts[uut].get(name, UNKNOWN) for uut in uuts))) for name in names]
    return table(columns, [rows], css="facts")


def knows_cpu(groups: Iterable[Group]) -> bool:
    """Whether any valid trial knows what CPU time its UUT took."""
    return any(map(_knows_cpu, groups))


def cpu_table(groups: Sequence[Group], looks: Mapping[str, Style]) -> Html:
    """Mean CPU time of the valid trials with its 95 % interval, a block per frame size, the largest first."""
    known = [group for group in groups if _knows_cpu(group)]
    bodies = []
    for size in sorted({group.frame_size for group in known}, reverse=True):
        heading = element("th", f"{size:,}-byte frames", colspan=str(len(_CPU)), scope="rowgroup")
        rows = [row(_CPU, _cpu_cells(group, looks)) for group in known if group.frame_size == size]
        bodies.append([element("tr", heading, css="block"), *rows])
    return folded(count(len(known), "measurement"), len(known), table(_CPU, bodies, css="cpu"))


def knows_guests(uses: Iterable[CpuUse]) -> bool:
    """Whether there is anything to tell but the CPU time of the UUTs themselves."""
    return any(use.machine is not None or use.neighbours for use in uses)


def cpu_by_scenario(uses: Iterable[CpuUse], looks: Mapping[str, Style]) -> Html:
    """A row per UUT, scenario and guest: CPU time in percent of one CPU."""
    bodies: dict[str, list[Html]] = {}
    for use in uses:
        bodies.setdefault(use.uut, []).extend(_cpu_rows(use, looks))
    return table(_CPU_BY_SCENARIO, bodies.values(), css="cpu")


def _cpu_rows(use: CpuUse, looks: Mapping[str, Style]) -> Iterable[Html]:
    own = (*_share(use.guest), *_share(None), *_share(use.host), *_share(use.machine))
    yield row(_CPU_BY_SCENARIO, (uut_label(use.uut, looks), use.scenario, _ITSELF, "", *own))
    for one in use.neighbours:
        shares = (*_share(one.guest), *_share(one.load), *_share(one.host), "", "")
        yield row(_CPU_BY_SCENARIO, ("", "", one.name, one.activity, *shares))


def counters_tables(sums: Mapping[tuple[str, str], CounterSums], looks: Mapping[str, Style]) -> Html:
    """For each guest that counts frames itself, the sum of each of its counters; `sums` are by UUT and neighbour."""
    parts = []
    for uut in looks:
        for (of_uut, neighbour), own in sums.items():
            if of_uut == uut:
                label = uut_label(uut, looks)
                parts.append(_counters(join((label, f", {neighbour}")) if neighbour else label, own))
    return join(parts)


def _counters(guest: Html, sums: CounterSums) -> Html:
    counters = sums.counters()
    if not counters:
        return Html()
    rows = [
        row(
            _COUNTERS,
            (
                one.point,
                one.counter,
                _ROLES.get(one.role, one.role),
                frames(one.frames),
                f"{one.trials:,} of {sums.trials:,}",
            ),
        )
        for one in counters
    ]
    summary = join((guest, f" – {count(len(counters), 'counter')}"))
    return folded(summary, len(counters), table(_COUNTERS, [rows], css="counters"))


def _knows_cpu(group: Group) -> bool:
    return group.cpu_share("guest") is not None or group.cpu_share("host") is not None


def _cpu_cells(group: Group, looks: Mapping[str, Style]) -> tuple[str, ...]:
    return (
        uut_label(group.uut, looks),
        str(group.load),
        mbps(mean(group.offered_mbps)),
        *_share(group.cpu_share("guest")),
        *_share(group.cpu_share("host")),
        str(len(group.valid)),
    )


def _share(interval: Interval | None) -> tuple[str, str]:
    return cpu(mean(interval)), cpu_spread(interval)

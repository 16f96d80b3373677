"""The sections about the UUTs themselves: their facts, CPU time, and own counters."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from netbench.report.formats import UNKNOWN, count, cpu, cpu_spread, frames, mbps, mean
from netbench.report.markup import Html, TableColumn, folded, join, table
from netbench.report.sections import Section, View, chosen, note, section
from netbench.report.styles import Style
from netbench.report.tables import by_size_title, mean_column, uut_label
from netbench.statistics.groups import Group
from netbench.statistics.lost_frames import CounterSums, UutCounter
from netbench.statistics.sharing import CpuUse, NeighbourCpu, cpu_use

_ROLES = {"repeated": "dropped (in another counter too)"}


def facts_section(facts: Mapping[str, Mapping[str, str]], looks: Mapping[str, Style]) -> Iterable[Section]:
    """The facts that UUTs reported: a row per fact, a column per UUT with facts; nothing without facts.

    Facts that are the same for all of several UUTs are listed once.
    """
    uuts = [uut for uut in looks if facts.get(uut)]
    every = list(dict.fromkeys(fact for uut in uuts for fact in facts[uut]))
    alike = [name for name in every if len(uuts) > 1 and len({facts[uut].get(name) for uut in uuts}) == 1]
    names = [name for name in every if name not in alike]

    def told(uut: str) -> Callable[[str], str]:
        return lambda fact: facts[uut].get(fact, UNKNOWN)

    if every:
        name: TableColumn[str] = TableColumn("Fact", lambda fact: fact.replace("_", " "))
        of_all: TableColumn[str] = TableColumn(f"All {len(uuts)}", lambda fact: facts[uuts[0]][fact])
        yield section(
            "uuts",
            "Units under test",
            note("What each said of itself when it was ready."),
            *((table((name, of_all), [alike], css="facts"),) if alike else ()),
            *(
                (table((name, *(TableColumn(looks[uut].label, told(uut)) for uut in uuts)), [names], css="facts"),)
                * bool(names)
            ),
        )


def cpu_section(choice: Sequence[View], groups: Sequence[Group], looks: Mapping[str, Style]) -> Iterable[Section]:
    """CPU time by scenario and guest, and by measurement; nothing where no valid trial has any."""
    uses = cpu_use(groups)
    parts = []
    if any(use.machine is not None or use.neighbours for use in uses):
        parts.append(_cpu_by_scenario(uses, looks))
    if any(map(_knows_cpu, groups)):
        parts.append(chosen(choice, lambda view: _cpu_table(view.groups, looks)))
    if parts:
        yield section(
            "cpu",
            "CPU time",
            note(
                "In percent of one CPU while the trial sent and drained, means of the valid trials ± 95 % interval."
                " Guest: as its own kernel counts it. Host: what the guest cost the machine it runs on."
            ),
            *parts,
        )


def counters_section(sums: Mapping[tuple[str, str], CounterSums], looks: Mapping[str, Style]) -> Iterable[Section]:
    """For each guest that counts frames itself, the sum of each of its counters; `sums` are by UUT and neighbour."""
    columns: tuple[TableColumn[tuple[UutCounter, CounterSums]], ...] = (
        TableColumn("Place", lambda row: row[0].point),
        TableColumn("Counter", lambda row: row[0].counter),
        TableColumn("Frames it counts", lambda row: _ROLES.get(row[0].role, row[0].role)),
        TableColumn("Sum", lambda row: frames(row[0].frames), "number"),
        TableColumn("Read in valid trials", lambda row: f"{row[0].trials:,} of {row[1].trials:,}", "number"),
    )
    parts = []
    for (uut, neighbour), counter_sums in sorted(sums.items(), key=lambda item: list(looks).index(item[0][0])):
        if counters := [(counter, counter_sums) for counter in counter_sums.counters()]:
            guest = (uut_label(uut, looks), f", {neighbour}" if neighbour else "")
            summary = join((*guest, f" – {count(len(counters), 'counter')}"))
            parts.append(folded(summary, len(counters), table(columns, [counters], css="counters")))
    if parts:
        yield section(
            "counters",
            "Counters inside the UUTs",
            note(
                "What the UUTs themselves counted, from source to sink, summed over all valid trials at any load and"
                " frame size. Frames that are not of a stream count too."
            ),
            *parts,
        )


def _cpu_by_scenario(uses: Iterable[CpuUse], looks: Mapping[str, Style]) -> Html:
    """A row per UUT, scenario and guest, the UUT itself first: CPU time in percent of one CPU."""
    columns: tuple[TableColumn[CpuUse | NeighbourCpu], ...] = (
        TableColumn("UUT", lambda use: uut_label(use.uut, looks) if isinstance(use, CpuUse) else ""),
        TableColumn("Scenario", lambda use: use.scenario if isinstance(use, CpuUse) else ""),
        TableColumn("Guest", lambda use: "itself" if isinstance(use, CpuUse) else use.name),
        TableColumn("What it does", lambda use: "" if isinstance(use, CpuUse) else use.activity, "words"),
        mean_column("Guest CPU", lambda use: use.guest, cpu, cpu_spread),
        mean_column("Of that its load", lambda use: None if isinstance(use, CpuUse) else use.load, cpu, cpu_spread),
        mean_column("Host CPU", lambda use: use.host, cpu, cpu_spread),
        TableColumn(
            "Whole machine",
            lambda use: cpu(mean(use.machine)) if isinstance(use, CpuUse) else "",
            "number",
            lambda use: cpu_spread(use.machine) if isinstance(use, CpuUse) else "",
        ),
    )
    bodies: dict[str, list[CpuUse | NeighbourCpu]] = {}
    for use in uses:
        bodies.setdefault(use.uut, []).extend((use, *use.neighbours))
    return table(columns, bodies.values(), css="cpu")


def _cpu_table(groups: Iterable[Group], looks: Mapping[str, Style]) -> Html:
    """Mean CPU time of the valid trials with its 95 % interval, a block per frame size, the largest first."""
    columns: tuple[TableColumn[Group], ...] = (
        TableColumn("UUT", lambda group: uut_label(group.uut, looks)),
        TableColumn("Load per source", lambda group: str(group.load)),
        TableColumn("Offered Mbit/s", lambda group: mbps(mean(group.offered_mbps)), "number"),
        mean_column("Guest CPU", lambda group: group.cpu_share("guest"), cpu, cpu_spread),
        mean_column("Host CPU", lambda group: group.cpu_share("host"), cpu, cpu_spread),
        TableColumn("Valid", lambda group: str(len(group.valid)), "number"),
    )
    known = [group for group in groups if _knows_cpu(group)]
    return folded(count(len(known), "measurement"), len(known), table(columns, by_size_title(known), css="cpu"))


def _knows_cpu(group: Group) -> bool:
    return group.cpu_share("guest") is not None or group.cpu_share("host") is not None

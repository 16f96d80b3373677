"""The tables about the UUTs themselves: facts, platforms, CPU time and their own counters."""

from collections.abc import Iterable, Iterator, Mapping
from statistics import median

from netbench.model.campaign import Boot
from netbench.model.virtualisation import Virtualisation
from netbench.report.blocks import Cell, Column, Kind, Table, table
from netbench.report.formats import UNKNOWN, count, cpu, cpu_spread, frames, mbps, mean
from netbench.report.model import KINDS, ReportModel, uut_cell, virtualisation
from netbench.report.tables.columns import block_of, largest_first, means, number, uut_column, words
from netbench.report.tables.registry import report_table
from netbench.statistics.groups import Group, grouped
from netbench.statistics.lost_frames import CounterSums, UutCounter
from netbench.statistics.sharing import CpuUse, NeighbourCpu, cpu_use

_ROLES = {"repeated": "dropped (in another counter too)"}
_TITLES = {
    Virtualisation.NONE: "No virtualisation",
    Virtualisation.OS_LEVEL: "OS-level virtualisation",
    Virtualisation.PARA: "Paravirtualisation",
    Virtualisation.FULL: "Full virtualisation, by a program",
    Virtualisation.HARDWARE: "Full virtualisation, hardware-assisted",
}
# Kinds whose guests run on the CPU of their machine.
_OF_MACHINE = (Virtualisation.NONE, Virtualisation.OS_LEVEL, Virtualisation.PARA)

Facts = Mapping[str, str]


@report_table("facts", "Units under test", "facts that UUTs report")
def facts(model: ReportModel) -> Iterator[Table]:
    """A row per fact, a column per UUT; facts that all of several UUTs share are in a separate table."""
    facts = model.results.facts
    uuts = [uut for uut in model.styles if facts.get(uut)]
    every = list(dict.fromkeys(fact for uut in uuts for fact in facts[uut]))
    shared = [name for name in every if len(uuts) > 1 and len({facts[uut].get(name) for uut in uuts}) == 1]
    name: Column[str] = Column("Fact", lambda fact: fact.replace("_", " "))
    if shared:
        yield table((name, Column(f"All {len(uuts)}", lambda fact: facts[uuts[0]][fact])), shared, "facts")
    if different := [name for name in every if name not in shared]:
        columns = (
            Column(model.styles[uut].label, lambda fact, uut=uut: facts[uut].get(fact, UNKNOWN))  # type: ignore[misc]
            for uut in uuts
        )
        yield table((name, *columns), different, "facts")


@report_table("platforms", "Platforms", "UUTs of known virtualisation")
def platforms(model: ReportModel) -> Iterator[Table]:
    """A row per UUT of known virtualisation, by its kind."""
    facts = model.results.facts
    kinds = {uut: kind for uut in model.styles if (kind := virtualisation(facts.get(uut, {}))) is not None}

    def boots(uut: str) -> list[Boot]:
        return [boot for boot in model.results.boots if boot.uut == uut]

    if kinds:
        yield table(
            (
                uut_column(model.styles, lambda uut: uut),
                words("CPU", lambda uut: _cpu(facts[uut])),
                words("Machine", lambda uut: _machine(facts[uut])),
                words("NICs", lambda uut: _nics(facts[uut])),
                words("Start to forwarding", lambda uut: _spread((boot.start_s for boot in boots(uut)), 1, "s")),
                words("Memory", lambda uut: _spread((boot.memory_bytes for boot in boots(uut)), 2**20, "MiB")),
            ),
            sorted(kinds, key=lambda uut: KINDS.index(kinds[uut])),
            "platforms",
            block=lambda uut: _TITLES[kinds[uut]],
        )


def _spread(values: Iterable[float | None], unit: float, name: str) -> str:
    """The median of the known values, and their range where there are several."""
    known = [value / unit for value in values if value is not None]
    if not known:
        return UNKNOWN
    reach = f" ({min(known):.2f} to {max(known):.2f}, {count(len(known), 'start')})" if len(known) > 1 else ""
    return f"{median(known):.2f} {name}{reach}"


def _cpu(facts: Facts) -> str:
    """How the instructions of a UUT are run, as seen from its machine."""
    by = f", {facts['accelerator']}" if "accelerator" in facts else ""
    if "emulated" in facts:
        return f"emulated{by}: {facts['emulated']}"
    kind = virtualisation(facts)
    if kind is Virtualisation.HARDWARE:
        return f"its machine's, assisted by the processor{by}"
    return f"its machine's{by}" if kind in _OF_MACHINE else f"a program's{by}"


def _machine(facts: Facts) -> str:
    if "vm" not in facts:
        return "this one"
    by = f", {facts['vm_accelerator']}" if "vm_accelerator" in facts else ""
    cpu = f"CPU emulated{by}: {facts['vm_emulated']}" if "vm_emulated" in facts else f"CPU not emulated{by}"
    return f"VM {facts['vm']}, {cpu}"


def _nics(facts: Facts) -> str:
    if "attachment" not in facts:
        return "its machine's" if virtualisation(facts) is Virtualisation.NONE else UNKNOWN
    kind = f" ({facts['nic_kind']})" if "nic_kind" in facts else ""
    model = f"{facts['nic']}{kind}, " if "nic" in facts else ""
    return f"{model}attached by {facts['attachment']}"


@report_table("cpu-scenarios", "CPU time by scenario", "CPU time of the machine or of neighbours")
def cpu_by_scenario(model: ReportModel) -> Iterator[Table]:
    """A row per UUT, scenario and guest, the UUT itself first: CPU time in percent of one CPU."""
    uses = cpu_use(model.groups)
    if not any(use.machine is not None or use.neighbours for use in uses):
        return
    rows: list[tuple[CpuUse, CpuUse | NeighbourCpu]] = []
    for use in uses:
        rows += [(use, use), *((use, neighbour) for neighbour in use.neighbours)]
    columns: tuple[Column[tuple[CpuUse, CpuUse | NeighbourCpu]], ...] = (
        Column("UUT", lambda row: uut_cell(row[0].uut, model.styles) if row[0] is row[1] else Cell("")),
        Column("Scenario", lambda row: row[0].scenario if row[0] is row[1] else ""),
        Column("Guest", lambda row: "itself" if isinstance(row[1], CpuUse) else row[1].name),
        words("Activity", lambda row: "" if isinstance(row[1], CpuUse) else row[1].activity),
        means("Guest CPU", lambda row: row[1].guest, cpu, cpu_spread),
        means("Load of it", lambda row: None if isinstance(row[1], CpuUse) else row[1].load, cpu, cpu_spread),
        means("Host CPU", lambda row: row[1].host, cpu, cpu_spread),
        Column(
            "Whole machine",
            lambda row: cpu(mean(row[1].machine)) if isinstance(row[1], CpuUse) else "",
            Kind.NUMBER,
            lambda row: cpu_spread(row[1].machine) if isinstance(row[1], CpuUse) else "",
        ),
    )
    yield table(columns, rows, "cpu", block=lambda row: row[0].uut, shows_blocks=False)


@report_table("cpu", "CPU time", "CPU time of guests")
def cpu_tables(model: ReportModel) -> Iterator[Table]:
    """Mean CPU time of the valid trials with its 95 % interval, a block per frame size, for each view."""
    columns: tuple[Column[Group], ...] = (
        uut_column(model.styles, lambda group: group.uut),
        Column("Load per source", lambda group: str(group.load)),
        number("Offered Mbit/s", lambda group: mbps(mean(group.offered_mbps))),
        means("Guest CPU", lambda group: group.cpu_share("guest"), cpu, cpu_spread),
        means("Host CPU", lambda group: group.cpu_share("host"), cpu, cpu_spread),
        number("Valid", lambda group: str(len(group.valid))),
    )
    for view in model.views:
        if groups := [group for group in view.groups if group.cpu_share("guest") or group.cpu_share("host")]:
            groups = list(largest_first(groups, lambda group: group.frame_size))
            yield table(columns, groups, "cpu", block=block_of, view=view.name)


@report_table("counters", "Counters inside the UUTs", "UUTs that count frames")
def counters(model: ReportModel) -> Iterator[Table]:
    """For each guest that counts frames itself, the sum of each of its counters."""
    columns: tuple[Column[tuple[UutCounter, CounterSums]], ...] = (
        Column("Place", lambda row: row[0].point),
        Column("Counter", lambda row: row[0].counter),
        Column("Role", lambda row: _ROLES.get(row[0].role, row[0].role)),
        number("Sum", lambda row: frames(row[0].frames)),
        number("Read in valid trials", lambda row: f"{row[0].trials:,} of {row[1].trials:,}"),
    )
    uuts = list(model.styles)
    by_guest = sorted(model.counters.sums.items(), key=lambda item: uuts.index(item[0][0]))
    for (uut, neighbour), sums in by_guest:
        if rows := [(counter, sums) for counter in sums.counters()]:
            name = model.styles[uut].label + (f", {neighbour}" if neighbour else "")
            yield table(columns, rows, "counters", caption=name)


def distinct_settings(model: ReportModel) -> int:
    """The number of settings that the UUTs run in."""
    return len(grouped(model.styles.values(), lambda style: style.setting))

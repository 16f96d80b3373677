"""The tables about the UUTs themselves: facts, platforms, CPU time and their own counters."""

from collections.abc import Iterable, Iterator, Mapping
from statistics import median

from netbench.model.virtualisation import Virtualisation
from netbench.report.blocks import Cell, Column, Kind, Table, table
from netbench.report.formats import UNKNOWN, count, cpu, cpu_spread, frames, mean
from netbench.report.model import KINDS, ReportModel, uut_cell, virtualisation
from netbench.report.tables.registry import means, number, report_table, tables_of_groups, uut_column, words
from netbench.statistics.groups import grouped
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


@report_table("facts")
def facts(model: ReportModel) -> Iterator[Table]:
    """A row per fact, a column per UUT; facts that all of several UUTs share are in a separate table."""
    facts = model.results.facts
    uuts = [uut for uut in model.styles if facts.get(uut)]
    every = list(dict.fromkeys(fact for uut in uuts for fact in facts[uut]))
    shared = [name for name in every if len(uuts) > 1 and len({facts[uut].get(name) for uut in uuts}) == 1]
    name: Column[str] = Column("Fact", lambda fact: fact.replace("_", " "))
    if shared:
        yield table(shared, name, Column(f"All {len(uuts)} UUTs", lambda fact: facts[uuts[0]][fact]), css="facts")
    if different := [name for name in every if name not in shared]:
        columns = (
            Column(model.styles[uut].label, lambda fact, uut=uut: facts[uut].get(fact, UNKNOWN))  # type: ignore[misc]  # mypy cannot infer lambdas with bound arguments
            for uut in uuts
        )
        yield table(different, name, *columns, css="facts")


@report_table("platforms")
def platforms(model: ReportModel) -> Iterator[Table]:
    """A row per UUT of known virtualisation, by its kind."""
    facts = model.results.facts
    kinds = {uut: kind for uut in model.styles if (kind := virtualisation(facts.get(uut, {}))) is not None}
    boots = grouped(model.results.boots, lambda boot: boot.uut)
    start = "Start to ready" if model.results.has_flows else "Start to forwarding"
    if kinds:
        yield table(
            sorted(kinds, key=lambda uut: KINDS.index(kinds[uut])),
            uut_column(model.styles, lambda uut: uut),
            words("CPU", lambda uut: _cpu(facts[uut])),
            words("Machine", lambda uut: _machine(facts[uut])),
            words("NICs", lambda uut: _nics(facts[uut])),
            words(start, lambda uut: _spread((boot.start_s for boot in boots.get(uut, ())), 1, "s")),
            words("Memory", lambda uut: _spread((boot.memory_bytes for boot in boots.get(uut, ())), 2**20, "MiB")),
            css="platforms",
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
        return f"hardware-assisted{by}"
    return f"native{by}" if kind in _OF_MACHINE else f"by software{by}"


def _machine(facts: Facts) -> str:
    if "vm" not in facts:
        return "this one"
    by = f", {facts['vm_accelerator']}" if "vm_accelerator" in facts else ""
    cpu = f"CPU emulated{by}: {facts['vm_emulated']}" if "vm_emulated" in facts else f"CPU not emulated{by}"
    return f"VM {facts['vm']}, {cpu}"


def _nics(facts: Facts) -> str:
    if "attachment" not in facts:
        return "native" if virtualisation(facts) is Virtualisation.NONE else UNKNOWN
    kind = f" ({facts['nic_kind']})" if "nic_kind" in facts else ""
    model = f"{facts['nic']}{kind}, " if "nic" in facts else ""
    return f"{model}attached by {facts['attachment']}"


@report_table("cpu-scenarios")
def cpu_by_scenario(model: ReportModel) -> Iterator[Table]:
    """A row per UUT, scenario and guest, the UUT itself first: CPU time in percent of one CPU."""
    uses = cpu_use(model.groups)
    if not any(use.machine is not None or use.neighbours for use in uses):
        return
    rows = [(use, guest) for use in uses for guest in (None, *use.neighbours)]
    columns: tuple[Column[tuple[CpuUse, NeighbourCpu | None]], ...] = (
        Column("UUT", lambda row: uut_cell(row[0].uut, model.styles) if row[1] is None else Cell("")),
        Column("Scenario", lambda row: row[0].scenario if row[1] is None else ""),
        Column("Guest", lambda row: "itself" if row[1] is None else row[1].name),
        words("Activity", lambda row: "" if row[1] is None else str(row[1].activity)),
        means("Guest CPU", lambda row: (row[1] or row[0]).guest, cpu, cpu_spread),
        means("CPU of its load", lambda row: None if row[1] is None else row[1].load, cpu, cpu_spread),
        means("Host CPU", lambda row: (row[1] or row[0]).host, cpu, cpu_spread),
        Column(
            "Whole machine",
            lambda row: cpu(mean(row[0].machine)) if row[1] is None else "",
            Kind.NUMBER,
            lambda row: cpu_spread(row[0].machine) if row[1] is None else "",
        ),
    )
    yield table(rows, *columns, css="cpu", block=lambda row: row[0].uut, shows_blocks=False)


@report_table("cpu")
def cpu_tables(model: ReportModel) -> Iterator[Table]:
    """Mean CPU time of the valid trials with its 95 % interval, a block per frame size, for each view."""
    return tables_of_groups(
        model,
        lambda group: group.cpu_share("guest") or group.cpu_share("host"),
        means("Guest CPU", lambda group: group.cpu_share("guest"), cpu, cpu_spread),
        means("Host CPU", lambda group: group.cpu_share("host"), cpu, cpu_spread),
        css="cpu",
    )


@report_table("counters")
def counters(model: ReportModel) -> Iterator[Table]:
    """For each guest that counts frames itself, the sum of each of its counters."""
    uuts = list(model.styles)
    by_guest = sorted(model.counters.sums.items(), key=lambda item: uuts.index(item[0][0]))
    for (uut, neighbour), sums in by_guest:
        if rows := [(counter, sums) for counter in sums.counters()]:
            yield table(
                rows,
                Column("Place", lambda row: row[0].point),
                Column("Counter", lambda row: row[0].counter),
                Column("Role", lambda row: _ROLES.get(row[0].role, row[0].role)),
                number("Sum", lambda row: frames(row[0].frames)),
                number("Read in valid trials", lambda row: f"{row[0].trials:,} of {row[1].trials:,}"),
                css="counters",
                caption=model.styles[uut].label + (f", {neighbour}" if neighbour else ""),
            )

"""The section about the platform of each UUT: kind of virtualisation, acceleration, NICs."""

from collections.abc import Iterable, Mapping
from statistics import median

from netbench.model.campaign import Boot, CampaignResults
from netbench.model.virtualisation import Setting, Virtualisation
from netbench.report.formats import UNKNOWN, count
from netbench.report.markup import TableColumn, table
from netbench.report.sections import Section, note, section
from netbench.report.styles import Style
from netbench.report.tables import uut_label
from netbench.statistics.groups import grouped

_KINDS = list(Virtualisation)
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


def in_order(uuts: Iterable[str], facts: Mapping[str, Facts]) -> list[str]:
    """The distinct UUTs by setting, then by kind of virtualisation; equal ones in the given order."""

    def place(uut: str) -> tuple[Setting, int]:
        own = facts.get(uut, {})
        kind = _kind(own)
        return Setting.of(own), len(_KINDS) if kind is None else _KINDS.index(kind)

    return sorted(dict.fromkeys(uuts), key=place)


def platforms_section(results: CampaignResults, looks: Mapping[str, Style]) -> Iterable[Section]:
    """A row per UUT of known virtualisation, by its kind; nothing where none is known."""
    facts = results.facts
    known = [uut for uut in looks if "virtualisation" in facts.get(uut, {})]
    by_kind = grouped(known, lambda uut: Virtualisation(facts[uut]["virtualisation"]))

    def starts(uut: str) -> list[Boot]:
        return [boot for boot in results.boots if boot.uut == uut]

    columns: tuple[TableColumn[str], ...] = (
        TableColumn("UUT", lambda uut: uut_label(uut, looks)),
        TableColumn("CPU", lambda uut: _cpu(facts[uut]), "words"),
        TableColumn("Machine", lambda uut: _machine(facts[uut]), "words"),
        TableColumn("NICs", lambda uut: _nics(facts[uut]), "words"),
        TableColumn(
            "Start to forwarding", lambda uut: _spread((boot.start_s for boot in starts(uut)), 1, "s"), "words"
        ),
        TableColumn("Memory", lambda uut: _spread((boot.memory_bytes for boot in starts(uut)), 2**20, "MiB"), "words"),
    )
    apart = (
        "They did not all run on the same CPU: that of some is imitated by a program, or in another machine. What such"
        " UUTs achieve says nothing of each other's VMM, so they are in no figure together."
    )
    if known:
        yield section(
            "platforms",
            "Platforms",
            note(
                "What stands between each unit under test and the processor; how long each took to come up, and what"
                " its own processes took of its machine then: median, and least to most over its starts."
            ),
            *((note(apart),) if len({looks[uut].setting for uut in looks}) > 1 else ()),
            table(
                columns, {_TITLES[kind]: by_kind[kind] for kind in Virtualisation if kind in by_kind}, css="platforms"
            ),
        )


def _spread(values: Iterable[float | None], unit: float, name: str) -> str:
    """The median of the known values, and their range where there are several."""
    known = [value / unit for value in values if value is not None]
    if not known:
        return UNKNOWN
    reach = f" ({min(known):.2f} to {max(known):.2f}, {count(len(known), 'start')})" if len(known) > 1 else ""
    return f"{median(known):.2f} {name}{reach}"


def _kind(facts: Facts) -> Virtualisation | None:
    return Virtualisation(facts["virtualisation"]) if "virtualisation" in facts else None


def _cpu(facts: Facts) -> str:
    """How the instructions of a UUT are run, as seen from its machine."""
    by = f", {facts['accelerator']}" if "accelerator" in facts else ""
    if "emulated" in facts:
        return f"emulated{by}: {facts['emulated']}"
    kind = _kind(facts)
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
        return "its machine's" if _kind(facts) is Virtualisation.NONE else UNKNOWN
    kind = f" ({facts['nic_kind']})" if "nic_kind" in facts else ""
    model = f"{facts['nic']}{kind}, " if "nic" in facts else ""
    return f"{model}attached by {facts['attachment']}"

"""The table of the CPU time of guests per operation of flows."""

from collections.abc import Iterator

from netbench.model.scenario import VICTIM
from netbench.report.blocks import Column, Table, table
from netbench.report.formats import UNKNOWN, sentence, three_digits
from netbench.report.model import ReportModel, uut_cell
from netbench.report.tables.registry import number, report_table
from netbench.statistics.flow_cpu import GuestCpu, guests_cpu


@report_table("flow-cpu", is_exported=True)
def flow_cpu(model: ReportModel) -> Iterator[Table]:
    """A row per cell and guest, a block per workload."""
    found = list(guests_cpu(model.workload_groups))
    if found:
        yield table(
            found,
            Column("UUT", lambda cpu: uut_cell(cpu.group.uut, model.styles)),
            Column("Scenario", lambda cpu: cpu.group.scenario),
            Column("Load", lambda cpu: str(cpu.group.load)),
            Column("Guest", lambda cpu: "the UUT" if cpu.guest == VICTIM else f"neighbour {cpu.guest}"),
            number("By its kernel [ms]", lambda cpu: _time(cpu, "guest")),
            number("On its host [ms]", lambda cpu: _time(cpu, "host")),
            css="results",
            block=lambda cpu: cpu.group.workload.name,
            name="flow-cpu",
            caption=sentence("captions.flow_cpu"),
        )


def _time(cpu: GuestCpu, whose: str) -> str:
    """The mean with its 95 % interval."""
    interval = cpu.per_operation_ms.get(whose)
    if interval is None:
        return UNKNOWN
    width = "" if interval.half_width is None else f" ± {three_digits(interval.half_width)}"
    return f"{three_digits(interval.mean)}{width}"

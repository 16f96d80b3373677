"""The table of flows at the end of a run."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Group as RenderGroup
from rich.console import RenderableType
from rich.text import Text

from netbench.cli.console import TerminalTable
from netbench.cli.summary import differ, remark_line, verdict_counts, verdict_remarks
from netbench.model.campaign import CampaignResults
from netbench.report.flow_formats import figure_mean, unit_of_times
from netbench.report.formats import sentence
from netbench.report.styles import LEGEND, label
from netbench.statistics.flow_figures import FIGURES, KINDS, FlowFigure
from netbench.statistics.workload_groups import WorkloadGroup, without_payload, workload_groups_of

_MOST_ROWS = 48
_HEADINGS = {
    "to_server_mbps": "To server\nMbit/s",
    "to_client_mbps": "To client\nMbit/s",
    "completed_per_s": "Completed\n/s",
    "error_ratio": "Failed\n%",
    "retransmissions": "Retrans-\nmissions",
}
_HEADINGS_OF_DATAGRAMS = {"completed_per_s": "Datagrams\n/s", "error_ratio": "Lost\n%"}
_HEADINGS_OF_BOTH = {"error_ratio": "Failed,\nlost %"}
_BANDWIDTHS = ("to_server_mbps", "to_client_mbps")
_FAULTS = ("error_ratio", "retransmissions")


def flows_table(results: CampaignResults) -> RenderableType:
    """Return a table of flows with the means over the valid trials and the verdicts; the reasons follow below.

    There is one row per UUT, scenario, workload and load. Columns are rates and percentiles of the first kind of times.
    With several scenarios UUTs are headings.
    """
    every = workload_groups_of(results)
    groups = every[:_MOST_ROWS]
    kind = next((group.kind_of_times for group in groups if group.kind_of_times), "")
    figures = list(_shown_figures(groups, kind))
    unit, always_zero = unit_of_times(figures, groups), without_payload(groups)
    headings = _HEADINGS | _headings_of_datagrams(groups)
    scenarios = differ(groups, lambda group: group.scenario)
    workloads = differ(groups, lambda group: group.workload)
    table = TerminalTable()
    table.add_columns_of(texts=("UUT,\nscenario" if scenarios else "UUT",))
    table.add_columns_of(texts=("Workload",) if workloads else ())
    table.add_columns_of(
        numbers=("Load", *(headings.get(figure.name) or _percentile(figure, unit) for figure in figures))
    )
    table.add_columns_of(texts=("Verdict",))
    for uut, rows in groupby(groups, key=lambda group: group.uut):
        name = label(uut, results.emulated)
        table.add_section()
        if scenarios:
            table.add_cells(Text(name, style="bold"))
        for group in rows:
            load = f"{group.load}\n× {group.sources} clients" if group.sources > 1 else str(group.load)
            first = group.scenario if scenarios else name
            texts = (first, group.workload.name, load) if workloads else (first, load)
            values = (
                "" if (group.workload.name, figure.name) in always_zero else figure_mean(figure, group, unit)
                for figure in figures
            )
            table.add_cells(*texts, *values, verdict_counts(group))
    remarks = [sentence("flow_summary.times" if kind else "flow_summary.means", kind=KINDS.get(kind, ""))]
    remarks += [] if workloads or not groups else [sentence("flow_summary.workload", workload=groups[0].workload)]
    remarks += [LEGEND] if results.emulated else []
    if len(groups) < len(every):
        remarks.insert(0, sentence("flow_summary.first_rows", shown=len(groups), rows=f"{len(every):,}"))
    return RenderGroup(table, *map(remark_line, (*remarks, *verdict_remarks(results))))


def _headings_of_datagrams(groups: Sequence[WorkloadGroup]) -> dict[str, str]:
    """Return the headings that differ if all operations are datagrams, or some."""
    are_datagrams = {group.has_datagrams for group in groups}
    if are_datagrams == {True}:
        return _HEADINGS_OF_DATAGRAMS
    return _HEADINGS_OF_BOTH if True in are_datagrams else {}


def _shown_figures(groups: Sequence[WorkloadGroup], kind: str) -> Iterator[FlowFigure]:
    """Yield the known figures, percentiles of one kind of times only; faults and bandwidths if there were any.

    Consoles are narrow: without bandwidths if all cells that have them have times and a rate of operations, too.
    """
    has_others = any(
        not group.kind_of_times or "completed_per_s" not in group.figures
        for group in groups
        if any((interval := group.figures.get(name)) and interval.mean for name in _BANDWIDTHS)
    )
    for figure in FIGURES:
        if figure.name in _BANDWIDTHS and not has_others:
            continue
        means = [interval.mean for group in groups if (interval := group.figures.get(figure.name))]
        if (any(means) if figure.name in (*_FAULTS, *_BANDWIDTHS) else means) and figure.kind in ("", kind):
            yield figure


def _percentile(figure: FlowFigure, unit: str) -> str:
    """Return the heading of a percentile: its name above its unit."""
    return f"{figure.title.split(' ')[0]}\n{unit}"

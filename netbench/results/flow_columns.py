"""The columns of exported flows: of a row per trial and flow, and of a row per group of repetitions.

Bandwidths are Mbit/s of payload. The columns that only frames have are empty in rows of flows, and vice versa.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from netbench.model.flow_result import CLIENT, GUEST, FlowResult, Latencies, times_of_kind
from netbench.results.export_columns import (
    Cell,
    ExportColumn,
    column_at,
    columns_at,
    reason_kinds,
)
from netbench.statistics.flow_cpu import guests_cpu, per_operation_ms
from netbench.statistics.flow_figures import (
    FIGURES,
    KINDS,
    LOST_DATAGRAMS,
    NS_PER_MS,
    FlowFigure,
    latencies_of,
    percentile_ms,
    percentile_name,
)
from netbench.statistics.flow_witnesses import tap_of
from netbench.statistics.workload_groups import WorkloadGroup

Read = Callable[[Any], Cell]


def _of_flow(figure: FlowFigure) -> Read:
    return lambda row: None if row.flow is None else figure.read([row.flow])


def _times(kind: str) -> list[ExportColumn[Any]]:
    """Return the columns of one kind of times of a flow, except its percentiles."""

    def column(name: str, cell_type: type[int] | type[float], read: Callable[[Latencies], Cell]) -> ExportColumn[Any]:
        def cell(row: Any) -> Cell:  # noqa: ANN401 - a row of a module that imports this one
            times = None if row.flow is None else latencies_of([row.flow], kind)
            return None if times is None else read(times)

        return ExportColumn(f"{kind}_{name}", cell_type, cell)

    return [
        column("times", int, lambda times: times.count),
        column("min_ms", float, lambda times: times.smallest_ns / NS_PER_MS),
        column("mean_ms", float, lambda times: times.mean_ns / NS_PER_MS),
        column("max_ms", float, lambda times: times.largest_ns / NS_PER_MS),
    ]


def _errors(row: Any) -> str | None:  # noqa: ANN401 - a row of a module that imports this one
    flow: FlowResult | None = row.flow
    return None if flow is None else ";".join(f"{kind}={number}" for kind, number in flow.errors.items())


def _tap(place: str) -> list[ExportColumn[Any]]:
    """Return the columns of a tap, beside the client or on the server's side."""

    def column(name: str) -> ExportColumn[Any]:
        def cell(row: Any) -> Cell:  # noqa: ANN401 - a row of a module that imports this one
            tap = None if row.flow is None else tap_of(row.flow, place)
            number: int | None = None if tap is None else getattr(tap, name)
            return number

        return ExportColumn(f"{place}_tap_{name}", int, cell)

    return [column(name) for name in _OF_TAPS]


def _wire_percentile(kind: str, part: int) -> Read:
    """Return the reader of a percentile of times on the wire beside the client, in ms."""

    def cell(row: Any) -> float | None:  # noqa: ANN401 - a row of a module that imports this one
        tap = None if row.flow is None else tap_of(row.flow, CLIENT)
        times = times_of_kind(tap.latencies, kind) if tap else None
        return percentile_ms(times, part)

    return cell


_OF_TAPS = (
    *("frames", "dropped_frames", "to_server_bytes", "to_client_bytes", "to_server_segments", "to_client_segments"),
    *("retransmissions", "uncaptured_bytes", "connections"),
)
_WHOLE = ("retransmissions",)  # figures with a column of integers


def _client_late(row: Any) -> float | None:  # noqa: ANN401 - a row of a module that imports this one
    late = None if row.flow is None else row.flow.client_late
    return None if late is None else late.percentile_ns(99_000) / NS_PER_MS


def _cpu_per_operation(row: Any) -> str | None:  # noqa: ANN401 - a row of a module that imports this one
    """Return the CPU time of each guest per operation of the victim: `victim: host=0.2; second: host=10.1`."""
    if row.flow is None or not row.of_victim:
        return None
    times = {
        guest: " ".join(f"{whose}={time_ms:.4g}" for whose, time_ms in by_consumer.items())
        for guest, by_consumer in per_operation_ms(row.trial).items()
    }
    return "; ".join(f"{guest}: {text}" for guest, text in times.items() if text) or None


FLOW_COLUMNS: tuple[ExportColumn[Any], ...] = (
    *columns_at(str, "flow", "workload", "tool"),
    column_at("flow_duration_s", float, "flow.duration_s"),
    *columns_at(int, "flow", "to_server_bytes", "to_client_bytes", "run_to_server_bytes", "run_to_client_bytes"),
    *columns_at(int, "flow", intended_operations="intended", started_operations="started"),
    column_at("completed_operations", int, "flow.completed"),
    column_at("completed_in_time_operations", int, "flow.completed_in_time"),
    ExportColumn("failed_operations", int, lambda row: None if row.flow is None else sum(row.flow.errors.values())),
    ExportColumn("errors", str, _errors),
    *columns_at(int, "flow", "retransmissions", "lost_datagrams"),
    *(ExportColumn(figure.name, float, _of_flow(figure)) for figure in FIGURES if figure.name not in _WHOLE),
    *(column for kind in KINDS for column in _times(kind)),
    ExportColumn("client_late_p99_ms", float, _client_late),
    column_at("client_cpu_share", float, "flow.client_cpu_share"),
    *(column for place in (CLIENT, GUEST) for column in _tap(place)),
    *(
        ExportColumn(f"wire_{kind}_{percentile_name(part)}_ms", float, _wire_percentile(kind, part))
        for kind in ("exchange", "handshake")
        for part in (50_000, 99_000)
    ),
    ExportColumn("tool_error", str, lambda row: None if row.flow is None else row.flow.error or None),
    ExportColumn("operation_cpu_ms", str, _cpu_per_operation),
    *columns_at(int, "flow", "socket_drops"),
)
"""The columns of a flow; the row has it in `flow`."""


def _interval_columns(figure: FlowFigure) -> list[ExportColumn[WorkloadGroup]]:
    def column(name: str, attribute: str) -> ExportColumn[WorkloadGroup]:
        return ExportColumn(name, float, lambda group: getattr(group.figures.get(figure.name), attribute, None))

    return [column(figure.name, "mean"), column(f"{figure.name}_ci95", "half_width")]


def _merged_times(kind: str) -> ExportColumn[WorkloadGroup]:
    def number(group: WorkloadGroup) -> int | None:
        times = group.latencies(kind)
        return None if times is None else times.count

    return ExportColumn(f"{kind}_times", int, number)


def _mean_cpu_per_operation(group: WorkloadGroup) -> str | None:
    times = (
        (found.guest, " ".join(f"{whose}={of.mean:.4g}" for whose, of in found.per_operation_ms.items()))
        for found in guests_cpu([group])
    )
    return "; ".join(f"{guest}: {text}" for guest, text in times) or None


FLOW_GROUP_COLUMNS: tuple[ExportColumn[WorkloadGroup], ...] = (
    *columns_at(str, "", workload="workload.name"),
    ExportColumn("tool", str, lambda group: group.tool or None),
    *(column for figure in FIGURES for column in _interval_columns(figure)),
    *map(_merged_times, KINDS),
    *_interval_columns(LOST_DATAGRAMS),
    ExportColumn("operation_cpu_ms", str, _mean_cpu_per_operation),
)
"""The columns that only groups of flows have: means over the valid trials, percentiles over all times of them."""


def _boots(group: WorkloadGroup) -> int | None:
    return len({trial.boot for trial in group.valid if trial.boot}) or None


_SHARED: Sequence[ExportColumn[WorkloadGroup]] = (
    *columns_at(str, "", "uut", "scenario"),
    column_at("streams", int, "sources"),
    ExportColumn("load", str, lambda group: str(group.load)),
    ExportColumn("valid_trials", int, lambda group: len(group.valid)),
    ExportColumn("suspicious_trials", int, lambda group: len(group.suspicious)),
    ExportColumn("invalid_trials", int, lambda group: len(group.invalid)),
    ExportColumn("reasons", str, lambda group: reason_kinds(group.reasons)),
    ExportColumn("trials_valid_at_once", int, lambda group: sum(trial.valid_at_once for trial in group.trials)),
    column_at("thrown_away_attempts", int, "thrown_away"),
    ExportColumn("boots", int, _boots),
)
_CELLS: Mapping[str, Read] = {column.name: column.read for column in (*_SHARED, *FLOW_GROUP_COLUMNS)}


def flow_cell(column: str, group: WorkloadGroup) -> Cell:
    """Return the cell of a group of flows in a column of groups; None in the columns that only frames have."""
    return _CELLS[column](group) if column in _CELLS else None

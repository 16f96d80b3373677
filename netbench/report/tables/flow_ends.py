"""The table of the ends of flows: the client of each stream, its server, and the taps beside them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from netbench.model.flow_result import FlowResult
from netbench.model.scenario import VICTIM
from netbench.model.workload import FlowPath
from netbench.report.blocks import Column, Table, table
from netbench.report.formats import UNKNOWN, enumerated
from netbench.report.model import ReportModel
from netbench.report.tables.registry import report_table, words

_OWN_CLIENT = "netbench "  # how the names of clients begin that have a server of another program


class _EndsRow(NamedTuple):
    """A stream with the guest that serves it, a workload, and the program and version that ran it."""

    stream: str
    guest: str
    workload: str
    tool: str
    path: FlowPath


@report_table("flow-ends")
def flow_ends(model: ReportModel) -> Iterator[Table]:
    """A row per stream and tool, in the order of the trials."""
    taps: dict[_EndsRow, dict[str, None]] = {}
    for trial in model.results.trials:
        for guest in trial.guests:
            for flow in guest.flows:
                serves = trial.spec.task(guest.name).serves
                if flow.tool and serves:
                    ends = _EndsRow(flow.stream, guest.name, flow.workload, flow.tool, serves.workload.path)
                    taps.setdefault(ends, {}).update(dict.fromkeys(_taps(flow)))
    hosts = model.results.stream_hosts
    if taps:
        yield table(
            list(taps),
            Column("Stream", lambda ends: ends.stream),
            Column("Workload", lambda ends: ends.workload),
            words("Client", lambda ends: _client(ends, *hosts.get(ends.stream, ("", "")))),
            words("Server", lambda ends: _server(ends, hosts.get(ends.stream, ("", ""))[1])),
            words("Taps", lambda ends: _taps_text(ends, list(taps[ends]))),
            css="checks",
        )


def _taps(flow: FlowResult) -> list[str]:
    return [tap.place for tap in flow.wire if not tap.error]


def _programs(ends: _EndsRow) -> tuple[str, str]:
    """The programs of client and server with their versions; the server's is empty if it is unknown."""
    client, comma, server = ends.tool.rpartition(", ")
    if comma:
        return client, server
    return ends.tool, "" if ends.tool.startswith(_OWN_CLIENT) else ends.tool


def _taps_text(ends: _EndsRow, places: Sequence[str]) -> str:
    if ends.path is FlowPath.LOOPBACK:
        return "none: no link carries these flows"
    return f"beside {enumerated(list(places))}" if places else UNKNOWN


def _client(ends: _EndsRow, source_host: str, uut_host: str) -> str:
    program = _programs(ends)[0]
    if ends.path is FlowPath.LOOPBACK:
        return f"{_guest(ends, uut_host)}: {program}"
    if ends.path is FlowPath.BETWEEN_GUESTS:
        return f"the first neighbour{f' on host {uut_host}' if uut_host else ''}: {program}"
    return f"host {source_host}: {program}" if source_host else program


def _server(ends: _EndsRow, uut_host: str) -> str:
    is_behind = ends.path is FlowPath.THROUGH
    place = f"the host of the sink, behind {_guest(ends, uut_host)}" if is_behind else _guest(ends, uut_host)
    program = _programs(ends)[1]
    return f"{place}: {program}" if program else place


def _guest(ends: _EndsRow, host: str) -> str:
    where = "the UUT" if ends.guest == VICTIM else f"the neighbour {ends.guest}"
    return f"{where} on host {host}" if host else where

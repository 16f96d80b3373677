"""The table of the ends of flows: the client of each stream, its server, and the taps beside them."""

from collections.abc import Iterator
from typing import NamedTuple

from netbench.model.flow_result import FlowResult
from netbench.model.scenario import VICTIM
from netbench.report.blocks import Column, Table, table
from netbench.report.formats import UNKNOWN, enumerated
from netbench.report.model import ReportModel
from netbench.report.tables.registry import report_table, words

_OWN_CLIENT = "netbench "  # how the names of clients begin that have a server of another program


class _FlowEnds(NamedTuple):
    """A stream with the guest that serves it, a workload, and the program and version that ran it."""

    stream: str
    guest: str
    workload: str
    tool: str


@report_table("flow-ends")
def flow_ends(model: ReportModel) -> Iterator[Table]:
    """A row per stream and tool, in the order of the trials."""
    taps: dict[_FlowEnds, dict[str, None]] = {}
    for trial in model.results.trials:
        for guest in trial.guests:
            for flow in guest.flows:
                if flow.tool:
                    ends = _FlowEnds(flow.stream, guest.name, flow.workload, flow.tool)
                    taps.setdefault(ends, {}).update(dict.fromkeys(_taps(flow)))
    hosts = model.results.stream_hosts
    if taps:
        yield table(
            list(taps),
            Column("Stream", lambda ends: ends.stream),
            Column("Workload", lambda ends: ends.workload),
            words("Client", lambda ends: _at(hosts.get(ends.stream, ("", ""))[0], _programs(ends)[0])),
            words("Server", lambda ends: _server(ends, hosts.get(ends.stream, ("", ""))[1])),
            words("Taps", lambda ends: f"beside {enumerated(list(taps[ends]))}" if taps[ends] else UNKNOWN),
            css="checks",
        )


def _taps(flow: FlowResult) -> list[str]:
    return [tap.place for tap in flow.wire if not tap.error]


def _programs(ends: _FlowEnds) -> tuple[str, str]:
    """The programs of client and server with their versions; the server's is empty if it is unknown."""
    client, comma, server = ends.tool.rpartition(", ")
    if comma:
        return client, server
    return ends.tool, "" if ends.tool.startswith(_OWN_CLIENT) else ends.tool


def _at(host: str, program: str) -> str:
    return f"host {host}: {program}" if host else program


def _server(ends: _FlowEnds, host: str) -> str:
    where = "the UUT" if ends.guest == VICTIM else f"the neighbour {ends.guest}"
    place = f"{where} on host {host}" if host else where
    program = _programs(ends)[1]
    return f"{place}: {program}" if program else place

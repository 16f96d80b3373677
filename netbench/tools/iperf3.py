"""Tool `iperf3`: TCP and UDP bandwidth between client and guest (esnet/iperf, version 3)."""

import json
from collections.abc import Iterable, Sequence
from math import ceil, isclose
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from netbench.hosts.base import Completed
from netbench.linux.requirements import Command
from netbench.model.datagram_witness import IPERF3_KEY
from netbench.model.flow_result import FlowResult
from netbench.model.units import Load, LoadKind
from netbench.tools.base import Demand, FlowEnds, Tool, ToolError, WireView, number_of, whole_number

# Linux limits send and receive buffers to 4 and 6 MiB by default (tcp_wmem and tcp_rmem, ip-sysctl.rst).
_SOCKET_BYTES = 10 << 20
_ROUNDING = 1e-6  # of seconds, in a rate
_INTERVALS_S = 0.3  # at the end, and at that of the omitted time


class Iperf3Options(BaseModel):
    """The flows of iperf3."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    protocol: Literal["tcp", "udp"] = "tcp"
    """tcp or udp."""
    direction: Literal["upload", "download"] = "upload"
    """upload: the client sends; download: the server in the guest sends."""
    flows: Annotated[int, Field(strict=True, ge=1, le=128)] = 1
    """Number of parallel flows."""
    message_size: Annotated[int, Field(strict=True, ge=1, le=1 << 20)] | None = None
    """Bytes of each write, or payload of each datagram. Default: iperf3's own, 128 KiB or what fits into one packet."""
    congestion: str | None = None
    """Congestion control of TCP, such as cubic. Default: that of the sender's kernel."""


class Iperf3(Tool):
    """Bulk transfer. UDP datagrams of iperf3 leave in bursts: its loss is checked on the wire."""

    Options: ClassVar[type[BaseModel]] = Iperf3Options
    loads = frozenset({LoadKind.MAX, LoadKind.L1_BIT_RATE})
    server_programs = ("iperf3",)
    client_programs = ("iperf3",)
    may_need = (Command("iperf3", "iperf3", "the tool iperf3", optional=True, version="--version"),)

    can_be_probed = False  # its server listens anew after each connection, and refuses others until then

    def __init__(self, options: Iperf3Options) -> None:
        super().__init__(options)
        self.options = options

    def wire_view(self, load: Load) -> WireView:
        if self.options.protocol == "udp":
            return WireView("udp", key=IPERF3_KEY, message_bytes=self.options.message_size)
        # It counts what it wrote to a socket although it drops the rest at its end, or does not wait for the rest.
        buffered = _SOCKET_BYTES * self.options.flows if load.kind is LoadKind.MAX else 0
        return WireView(control_connections=1, buffered_bytes=buffered)

    def server_command(self, ends: FlowEnds) -> Sequence[str]:
        return ["iperf3", "--server", "--bind", ends.address, "--port", str(ends.port)]

    def client_command(self, ends: FlowEnds, demand: Demand) -> Sequence[str]:
        options = self.options
        # iperf3 accepts whole seconds only. Below 2 s nothing is omitted.
        # The losses of UDP that iperf3 reports contain those of the omitted time, which its datagrams do not.
        omits = demand.duration_s >= 2 and options.protocol == "tcp"
        omitted = ceil(demand.warm_up_s) if omits else 0
        seconds = max(1, ceil(demand.duration_s) - omitted)
        argv = ["iperf3", "--client", ends.address, "--port", str(ends.port), "--json"]
        argv += ["--time", str(seconds), "--omit", str(omitted), "--parallel", str(options.flows)]
        if options.protocol == "udp":
            argv += ["--udp"]
        if options.direction == "download":
            argv += ["--reverse"]
        if options.message_size:
            argv += ["--length", str(options.message_size)]
        if options.congestion:
            argv += ["--congestion", options.congestion]
        if demand.load.kind is LoadKind.L1_BIT_RATE:
            # iperf3 limits each flow.
            argv += ["--bitrate", str(round(demand.load.value / options.flows))]
        elif options.protocol == "udp":
            argv += ["--bitrate", "0"]
        return argv

    def result(self, done: Completed, demand: Demand, ends: FlowEnds, workload: str) -> FlowResult:
        try:
            output: Any = json.loads(done.stdout)
            error = output.get("error")
        except (ValueError, AttributeError, RecursionError) as fault:
            words = (done.stderr.strip() or done.stdout.strip())[-300:] or "nothing"
            raise ToolError(f"iperf3 ended with exit code {done.exit_code} and printed no JSON: {words}") from fault
        if error or done.exit_code:
            raise ToolError(f"iperf3 ended with exit code {done.exit_code}: {error or done.stderr.strip()[-300:]}")
        try:
            return self._figures(output, ends, workload)
        except (KeyError, TypeError, AttributeError) as fault:
            raise ToolError(f"iperf3's output lacks {fault}") from fault

    def _figures(self, output: Any, ends: FlowEnds, workload: str) -> FlowResult:  # noqa: ANN401 - any JSON
        version, total = output["start"]["version"], output["end"]
        if not isinstance(version, str):
            raise ToolError(f"iperf3's version is {version!r} in its output")
        is_upload = self.options.direction == "upload"
        whole = sum(_total(interval["sum"], "bytes", interval["streams"]) for interval in output["intervals"])
        retransmissions = lost = started = None
        received = total.get("sum_received", total.get("sum"))
        if self.options.protocol == "tcp":
            arrived = _total(received, "bytes", [flow["receiver"] for flow in total["streams"]])
            senders = [flow["sender"] for flow in total["streams"]]
            if any("retransmits" in flow for flow in (total["sum_sent"], *senders)):
                retransmissions = _total(total["sum_sent"], "retransmits", senders)
        else:
            flows = [flow["udp"] for flow in total["streams"]]
            started, lost = (_total(total["sum"], key, flows) for key in ("packets", "lost_packets"))
            size = whole_number(output["start"]["test_start"]["blksize"], "blksize")
            arrived = (started - lost) * size
            if lost > started or total["sum"]["bytes"] not in (started * size, arrived):
                raise ToolError(f"iperf3 reports {lost} lost datagrams of {started}, and other bytes than these have")
        seconds = number_of(received["seconds"], "seconds")
        # Intervals are those of the client's side.
        here = number_of(total.get("sum_sent" if is_upload else "sum_received", received)["seconds"], "seconds")
        lasted = sum(number_of(interval["sum"]["seconds"], "seconds") for interval in output["intervals"])
        if abs(lasted - number_of(output["start"]["test_start"]["omit"], "omit") - here) > _INTERVALS_S:
            raise ToolError(f"iperf3 reports intervals of {lasted:g} s, and a measurement of {here:g} s")
        bits = number_of(received["bits_per_second"], "bits_per_second") * seconds
        if not isclose(bits, 8 * number_of(received["bytes"], "bytes"), rel_tol=_ROUNDING, abs_tol=1):
            raise ToolError(f"iperf3 reports {received['bytes']} bytes in {seconds} s, and another rate than that")
        return FlowResult(
            stream=ends.stream,
            workload=workload,
            tool=version,
            duration_s=seconds,
            to_server_bytes=arrived if is_upload else None,
            to_client_bytes=None if is_upload else arrived,
            run_to_server_bytes=whole if is_upload else None,
            run_to_client_bytes=None if is_upload else whole,
            started=started,
            completed=None if started is None or lost is None else started - lost,
            errors={"lost": lost} if lost else {},
            retransmissions=retransmissions,
            lost_datagrams=lost,
        )


def _total(total: Any, key: str, flows: Iterable[Any]) -> int:  # noqa: ANN401 - any JSON
    """Return a figure of all flows; ToolError unless it is the sum of theirs, which a damaged output contradicts."""
    number = whole_number(total[key], key)
    if number != sum(whole_number(flow[key], key) for flow in flows):
        raise ToolError(f"iperf3 reports {number} {key}, which is not the sum of all flows")
    return number

"""Tool `iperf3`: TCP and UDP bandwidth between client and guest (esnet/iperf, version 3)."""

from collections.abc import Sequence
from math import ceil
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from netbench.hosts.base import Completed
from netbench.linux.requirements import Command
from netbench.model.datagram_witness import IPERF3_KEY
from netbench.model.flow_result import FlowResult
from netbench.model.units import Load, LoadKind
from netbench.tools.base import Demand, FlowEnds, Tool, WireView
from netbench.tools.iperf3_output import INTERVAL_S, read_iperf3

# Linux limits send and receive buffers to 4 and 6 MiB by default (tcp_wmem and tcp_rmem, ip-sysctl.rst).
_SOCKET_BYTES = 10 << 20
_LEAST_UDP, _MOST_UDP = 16, 65_507  # bytes of payload (iperf.h)


class Iperf3Options(BaseModel):
    """The flows of iperf3."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    protocol: Literal["tcp", "udp"] = "tcp"
    """tcp or udp."""
    direction: Literal["upload", "download"] = "upload"
    """upload: the client sends; download: the server in the guest sends."""
    parallel: Annotated[int, Field(strict=True, ge=1, le=128)] = 1
    """Number of parallel flows."""
    message_size: Annotated[int, Field(strict=True, ge=1, le=1 << 20)] | None = None
    """Bytes of each write, or payload of each datagram. Default: iperf3's own, 128 KiB or what fits into one packet."""
    congestion: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,15}$")] | None = None
    """Congestion control of TCP, such as cubic. Default: that of the sender's kernel."""


class Iperf3(Tool):
    """Bulk transfer. UDP datagrams of iperf3 leave in bursts: its loss is checked on the wire."""

    Options: ClassVar[type[BaseModel]] = Iperf3Options
    loads = frozenset({LoadKind.MAX, LoadKind.L1_BIT_RATE})
    reports_times = False
    server_programs = ("iperf3",)
    client_programs = ("iperf3",)
    may_need = (Command("iperf3", "iperf3", "the tool iperf3", optional=True, version="--version"),)

    can_be_probed = False  # its server listens anew after each connection, and refuses others until then

    def __init__(self, options: Iperf3Options) -> None:
        super().__init__(options)
        self.options = options

    def unsupported_reason(self, demand: Demand) -> str:
        load = demand.load
        if load.kind is LoadKind.L1_BIT_RATE and load.value < self.options.parallel:
            return f"{load} is less than 1 bit/s for each of {self.options.parallel} flows: iperf3 would have no limit"
        size = self.options.message_size
        if self.options.protocol == "udp" and size is not None and not _LEAST_UDP <= size <= _MOST_UDP:
            return f"message_size: iperf3 sends datagrams of {_LEAST_UDP} to {_MOST_UDP} bytes, not {size}"
        return super().unsupported_reason(demand)

    def wire_view(self, load: Load) -> WireView:
        if self.options.protocol == "udp":
            return WireView("udp", key=IPERF3_KEY, message_bytes=self.options.message_size)
        # It counts what it wrote to a socket although it drops the rest at its end, or does not wait for the rest.
        buffered = _SOCKET_BYTES * self.options.parallel if load.kind is LoadKind.MAX else 0
        return WireView(control_connections=1, buffered_bytes=buffered)

    def server_command(self, ends: FlowEnds) -> Sequence[str]:
        return ["iperf3", "--server", "--bind", ends.bound, "--port", str(ends.port)]

    def client_command(self, ends: FlowEnds, demand: Demand) -> Sequence[str]:
        options = self.options
        argv = ["iperf3", "--client", ends.address, "--port", str(ends.port), "--json"]
        # Whole seconds only. Its own warm-up, --omit, drops an interval from its output: it would not add up.
        argv += [
            "--time",
            str(ceil(demand.duration_s)),
            "--interval",
            str(INTERVAL_S),
            "--parallel",
            str(options.parallel),
        ]
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
            argv += ["--bitrate", str(round(demand.load.value / options.parallel))]
        elif options.protocol == "udp":
            argv += ["--bitrate", "0"]
        return argv

    def result(self, done: Completed, demand: Demand, ends: FlowEnds, workload: str) -> FlowResult:
        return read_iperf3(done, self.options.protocol, self.options.direction, demand, ends, workload)

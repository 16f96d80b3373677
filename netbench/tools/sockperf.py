"""Tool `sockperf`: round-trip times of UDP datagrams and TCP messages (Mellanox/sockperf, version 3)."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from netbench.hosts.base import Completed
from netbench.hosts.remote_code import program_command
from netbench.linux.requirements import Command
from netbench.model.datagram_witness import SOCKPERF_KEY
from netbench.model.flow_result import FlowResult
from netbench.model.units import Load, LoadKind
from netbench.tools import sockperf_client
from netbench.tools.base import Demand, FlowEnds, Tool, ToolError, WireView, number_of, text_of, whole_number
from netbench.tools.client_output import latencies_of, read_output

# It calibrates its clock and waits, before its first message; the first messages and the last are not in its figures.
_START_S, _WARM_UP_S, _END_S = 2.05, 0.4, 0.1
_STALL_S = 0.5
_LEAST_BYTES, _MOST_BYTES = 14, 65_507


class SockperfOptions(BaseModel):
    """The messages of sockperf."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    protocol: Literal["tcp", "udp"] = "udp"
    """tcp or udp."""
    message_size: Annotated[int, Field(strict=True, ge=_LEAST_BYTES, le=_MOST_BYTES)] = 64
    """Bytes of each message and of each reply."""
    reply_every: Annotated[int, Field(strict=True, ge=1, le=100_000)] = 1
    """The server replies to each message of this number, at a rate."""


class Sockperf(Tool):
    """Ping-pong (load `max`), or messages at a rate that does not wait for replies (load `1000/s`).

    Round-trip times begin when a message is sent, not when it was due: compare `started` with `intended`. sockperf
    starts 2.05 s late and measures whole seconds: a duration of 5 s measures 2 s, 7 s measures 4 s.
    """

    Options: ClassVar[type[BaseModel]] = SockperfOptions
    loads = frozenset({LoadKind.MAX, LoadKind.OPERATION_RATE})
    server_programs = ("sockperf",)
    client_programs = ("python3", "sockperf", "setpriv")
    may_need = (Command("sockperf", "sockperf", "the tool sockperf", optional=True, version="--version"),)

    def __init__(self, options: SockperfOptions) -> None:
        super().__init__(options)
        self.options = options
        self.can_be_probed = options.protocol == "tcp"

    def unsupported_reason(self, demand: Demand) -> str:
        load = demand.load
        if load.kind is LoadKind.OPERATION_RATE and (load.value < 1 or load.value % 1):
            return f"sockperf sends whole messages per second, not {load.value:g}"
        if demand.duration_s < _START_S + 1:
            return f"sockperf starts {_START_S:g} s late and measures whole seconds: use a duration of 4 s or more"
        return super().unsupported_reason(demand)

    def wire_view(self, load: Load) -> WireView:
        options = self.options
        answered = load.kind is LoadKind.MAX or options.reply_every == 1
        # The last message may be on its way when sockperf ends.
        last = options.message_size
        view = WireView(options.protocol, exchanges=answered, compared="rtt", warm_up_s=_WARM_UP_S, buffered_bytes=last)
        if options.protocol == "udp":
            return replace(view, key=SOCKPERF_KEY, message_bytes=options.message_size)
        return replace(view, message_bytes=options.message_size)

    def server_command(self, ends: FlowEnds) -> Sequence[str]:
        # Connections of the server before may be in TIME-WAIT at this port.
        reuse = ["--uc-reuseaddr"] if self.options.protocol == "tcp" else []
        return ["sockperf", "server", *self._endpoint(ends.bound, ends.port), *reuse]

    def client_command(self, ends: FlowEnds, demand: Demand) -> Sequence[str]:
        options = self.options
        if demand.load.kind is LoadKind.OPERATION_RATE:
            argv = ["under-load", f"--mps={_per_s(demand)}", f"--reply-every={options.reply_every}"]
        else:
            argv = ["ping-pong"]
        waited = max(0, ceil(demand.warm_up_s - _START_S - _WARM_UP_S))
        argv += [
            *self._endpoint(ends.address, ends.port),
            "--msg-size",
            str(options.message_size),
            "--time",
            str(_run_s(demand)),
        ]
        return program_command(
            ends.client, sockperf_client, *argv, *(["--pre-warmup-wait", str(waited)] if waited else [])
        )

    def result(self, done: Completed, demand: Demand, ends: FlowEnds, workload: str) -> FlowResult:
        output = read_output(done, "sockperf")
        try:
            return self._figures(output, demand, ends, workload)
        except (KeyError, TypeError, AttributeError) as fault:
            raise ToolError(f"the output of sockperf lacks {fault}") from fault

    def _figures(self, output: Any, demand: Demand, ends: FlowEnds, workload: str) -> FlowResult:  # noqa: ANN401 - JSON
        size, has_rate = self.options.message_size, demand.load.kind is LoadKind.OPERATION_RATE
        every = self.options.reply_every if has_rate else 1
        sent, received, dropped, total_sent, total_received = (
            whole_number(output[key], key) for key in ("sent", "received", "dropped", "total_sent", "total_received")
        )
        valid_s, run_s = number_of(output["valid_s"], "valid_s"), _run_s(demand)
        if not has_rate and self.options.protocol == "udp" and valid_s < run_s - _WARM_UP_S - _END_S - _STALL_S:
            raise ToolError(
                f"sockperf's ping-pong stopped after {valid_s:g} s of {run_s} s: it waits forever for a lost datagram; "
                "use a load of messages, such as 1000/s, or TCP"
            )
        # Without replies to all, the first and the last message may be on either side of the end.
        if abs(sent / every - received - dropped) > (1 if every > 1 else 0):
            raise ToolError(
                f"sockperf sent {sent} messages, received {received} replies and reports {dropped} as lost, which "
                "does not add up: it had too little CPU time"
            )
        return FlowResult(
            stream=ends.stream,
            workload=workload,
            tool=f"sockperf {text_of(output['version'], 'version')}",
            duration_s=valid_s,
            to_server_bytes=received * size if every == 1 else None,
            to_client_bytes=received * size,
            run_to_server_bytes=total_sent * size,
            run_to_client_bytes=total_received * size,
            intended=round(_per_s(demand) * valid_s / every) if has_rate else None,
            started=received + dropped,
            completed=received,
            # Duplicated and reordered messages were completed, too.
            errors={"lost": dropped} if dropped else {},
            lost_datagrams=dropped if self.options.protocol == "udp" else None,
            latencies=(latencies_of(output["rtt"], "rtt", received),),
        )

    def _endpoint(self, address: str, port: int) -> list[str]:
        return ["-i", address, "-p", str(port), *(["--tcp"] if self.options.protocol == "tcp" else [])]


def _per_s(demand: Demand) -> int:
    """Return the messages per second that sockperf sends: searches try rates in between, too."""
    return max(1, round(demand.load.value))


def _run_s(demand: Demand) -> int:
    """Return the whole seconds that sockperf runs for: it ends with the duration, if that is long enough."""
    waited = max(0, ceil(demand.warm_up_s - _START_S - _WARM_UP_S))
    return max(1, int(demand.duration_s - _START_S - waited))

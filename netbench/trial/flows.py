"""The flows of one guest in a trial: their servers inside it, their clients beside the sources, and their results."""

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

from netbench.errors import MachineGoneError, TestbedError
from netbench.hosts.base import Completed, Process, machine_name
from netbench.hosts.clock import Clock
from netbench.hosts.host_wrappers import confined
from netbench.hosts.pipes import end
from netbench.linux.socket_drops import read_socket_drops
from netbench.model.flow_result import CLIENT, FlowResult, WireFigures, times_of_kind
from netbench.model.scenario import VICTIM, Serve
from netbench.model.trial import GuestTask
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import Reason, ReasonKind
from netbench.tools.base import GRACE_S, Demand, FlowEnds, RunningServer, Tool, ToolError
from netbench.trial.wire_taps import BLOCK_S, WireTap, differences

_BUSY_CLIENT = 0.9  # part of a CPU
_MAY_BE_APART_PART = 0.1  # of the duration, as sources of frames may be
# A client may begin its latest requests so late, in ns, or so late as a part of the response time there.
_LATE_PART, _MAY_BE_LATE_NS, _MAY_BE_LATE_PART = 99_000, 200_000, 0.5


class SocketDrops(NamedTuple):
    """The datagrams that the kernels of a stream's client and server dropped at full sockets; None if unknown."""

    client: int | None
    server: int | None


@dataclass(slots=True)
class GuestFlows:
    """The flows of a guest that serves, one client and one server for each of its streams.

    Order of calls: start(), start_clients(), wait(), stop(), which is harmless at any time.
    """

    task: GuestTask
    serve: Serve
    tool: Tool
    ends: Sequence[FlowEnds]
    seeds: Mapping[str, int] = field(default_factory=dict)  # of the clients, by stream
    machine: str | None = None  # of the taps beside the clients; None: this one
    servers: list[RunningServer] = field(default_factory=list)
    commands: dict[str, Sequence[str]] = field(default_factory=dict)  # of clients, by stream
    clients: dict[str, tuple[FlowEnds, Process]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)  # by stream
    taps: Sequence[WireTap] = ()
    wire: dict[str, list[WireFigures]] = field(default_factory=dict)  # by stream
    results: dict[str, FlowResult] = field(default_factory=dict)
    # Whether no other guest of the trial serves: hosts count dropped datagrams for all of their sockets together.
    is_alone: bool = True
    # By stream: until the clients start, and then by them.
    socket_drops: dict[str, SocketDrops] = field(default_factory=dict)

    @property
    def load(self) -> Load:
        """The load of each client; the rate of a share of a maximum."""
        return self.serve.load.as_rate

    @property
    def demand(self) -> Demand:
        """The load of each client, which has a seed as well."""
        return Demand(self.load, self.task.duration_s, self.task.warm_up_s)

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """When the first client began and the last one was to end, in ns since 1970 by their machine's clock.

        By taps that follow all connections; None without any.
        """
        taps = [tap for of_stream in self.wire.values() for tap in of_stream if tap.place == CLIENT and tap.one_of == 1]
        began_ns = [tap.began_ns for tap in taps if tap.began_ns is not None]
        if not began_ns:
            return None
        return min(began_ns), max(began_ns) + round(self.demand.duration_s * 1e9)

    def start(self) -> None:
        """Start the servers; returns once clients can connect. A failure is kept for the result.

        Clients are copied to VMs with netbench here, because that costs CPU time which is not part of the flows.
        """
        for ends in self.ends:
            with self._noted(ends):
                if ends.second_tier:
                    self.servers.append(self.tool.start_second_tier(ends))
                self.servers.append(self.tool.start_server(ends))
                demand = replace(self.demand, seed=self.seeds.get(ends.stream, 1))
                self.commands[ends.stream] = self.tool.client_command(ends, demand)

    def arm_taps(self) -> None:
        """Start the taps of the wire. A failure is kept for their figures: the tool's are measured all the same."""
        for tap in self.taps if not self.errors else ():
            try:
                tap.start()
            except MachineGoneError:
                raise
            except TestbedError as error:
                self.wire.setdefault(tap.ends.stream, []).append(WireFigures(tap.place, error=str(error)))
        self.socket_drops = self._socket_drops()

    def read_taps(self, clock: Clock) -> None:
        """Stop the taps and read their captures."""
        if any(tap.process for tap in self.taps):
            clock.sleep(BLOCK_S)
        for tap in self.taps:
            if tap.process is None:
                continue
            try:
                tap.stop()
                figures = tap.figures(self.tool.wire_view(self.load), self.demand.warm_up_s)
            except MachineGoneError:
                raise
            except TestbedError as error:
                figures = WireFigures(tap.place, error=str(error))
            with suppress(TestbedError):
                tap.remove()
            self.wire.setdefault(tap.ends.stream, []).append(figures)

    def start_clients(self) -> None:
        """Start all clients, unless a server failed: a part of the flows would be another load."""
        for ends in self.ends if not self.errors else ():
            with self._noted(ends):
                process = ends.client.spawn(confined(self.commands[ends.stream], ends.client_cpus, ""))
                self.clients[ends.stream] = ends, process

    def wait(self) -> None:
        """Wait until all clients have ended, and read their figures; one that exceeds its time is killed."""
        limit_s = self.demand.duration_s + GRACE_S
        deadline = time.monotonic() + limit_s
        for stream, (ends, process) in self.clients.items():
            with self._noted(ends):
                self.results[stream] = self._result(ends, process, max(0.0, deadline - time.monotonic()))
        for server in self.servers:
            with self._noted(server.ends):
                server.require_alive()
        before, after = self.socket_drops, self._socket_drops()
        self.socket_drops = {
            stream: SocketDrops(*map(_grown, before[stream], now)) for stream, now in after.items() if stream in before
        }

    def stop(self) -> None:
        """Kill all clients and servers that run."""
        for tap in self.taps:
            tap.abort()
        for _, process in self.clients.values():
            if process.poll() is None:
                with suppress(TestbedError):
                    end(process)
        while self.servers:
            self.servers.pop().stop()

    @property
    def measured(self) -> tuple[FlowResult, ...]:
        """The results by stream, in order; with the error where there is none."""
        results = (
            self.results.get(ends.stream) or self._without_result(ends.stream, self.errors.get(ends.stream, ""))
            for ends in self.ends
        )
        return tuple(
            replace(result, wire=tuple(self.wire.get(result.stream, ())), socket_drops=self._dropped(result))
            for result in results
        )

    def _socket_drops(self) -> dict[str, SocketDrops]:
        """Return the drops so far by stream, if datagrams flow that taps see."""
        if not self.taps or self.tool.wire_view(self.serve.load).protocol != "udp":
            return {}
        return {
            ends.stream: SocketDrops(read_socket_drops(ends.client), read_socket_drops(ends.server))
            for ends in self.ends
        }

    def _dropped(self, result: FlowResult) -> int | None:
        """Return the drops of a result's receiver; None if both ends receive, if several flows do, or if unknown."""
        drops = self.socket_drops.get(result.stream)
        is_one_way = (result.to_server_bytes is None) != (result.to_client_bytes is None)
        if drops is None or not is_one_way or len(self.ends) > 1 or not self.is_alone:
            return None
        return drops.server if result.to_client_bytes is None else drops.client

    def _result(self, ends: FlowEnds, process: Process, left_s: float) -> FlowResult:
        try:
            stdout, stderr = process.communicate(timeout=left_s)
        except subprocess.TimeoutExpired as error:
            end(process)
            raise ToolError(
                f"the client ran for {self.demand.duration_s + GRACE_S:g} s, {GRACE_S:g} s more than its duration"
            ) from error
        done = Completed((), process.returncode or 0, stdout, stderr)
        return self.tool.result(done, self.demand, ends, self.serve.workload.name)

    def _without_result(self, stream: str, error: str) -> FlowResult:
        return FlowResult(stream, self.serve.workload.name, error=error or "not run: another flow of the trial failed")

    @contextmanager
    def _noted(self, ends: FlowEnds) -> Iterator[None]:
        """Keep the block's TestbedError as the error of a stream, the first one, unless a whole machine is gone."""
        try:
            yield
        except MachineGoneError:
            raise
        except TestbedError as error:
            self.errors.setdefault(ends.stream, str(error))


def client_seed(seed: int, repetition: int, guest: str, stream: str) -> int:
    """Return the seed of a client in a repetition, from that of the profile: 32 bits.

    Clients of one trial, and repetitions, differ in their random times; UUTs and scenarios have the same ones.
    """
    return Random(f"{seed}/{repetition}/{guest}/{stream}").getrandbits(32)


def judge_flows(flows: GuestFlows) -> Iterator[Reason]:
    """Yield the reasons against the flows of a trial."""
    yield from _apart(flows)
    for result in flows.measured:
        error = flows.errors.get(result.stream) or result.error
        if error:
            yield Reason(ReasonKind.TOOL_FAILED, result.stream, f"{flows.serve.workload.tool}: {error}")
        if error or flows.task.name != VICTIM:
            continue
        if detail := _limited_by_client(result, has_rate=flows.load.kind is LoadKind.OPERATION_RATE):
            yield Reason(ReasonKind.TESTER_LIMITED, result.stream, detail)
        for difference in differences(result, result.wire, flows.tool.wire_view(flows.load)):
            yield Reason(ReasonKind.TOOL_DISAGREES, result.stream, f"{flows.serve.workload.tool}: {difference}")
        for tap in result.wire:
            if tap.error:
                detail = f"the capture beside the {tap.place} is unusable: {tap.error}"
                yield Reason(ReasonKind.CAPTURE_FAILED, result.stream, detail)


def _apart(flows: GuestFlows) -> Iterator[Reason]:
    """Yield a reason if the clients on one machine did not begin together: their rates do not add up then."""
    began_ns: dict[str, list[int]] = {}
    for ends in flows.ends:
        tap = next((tap for tap in flows.wire.get(ends.stream, ()) if tap.place == CLIENT), None)
        if tap and tap.began_ns is not None and tap.one_of == 1:  # the first followed connection may be a later one
            began_ns.setdefault(machine_name(ends.client), []).append(tap.began_ns)
    for times in began_ns.values():
        apart_s = (max(times) - min(times)) / 1e9
        if apart_s > _MAY_BE_APART_PART * flows.demand.duration_s:
            detail = (
                f"{len(times)} clients began {apart_s * 1e3:,.0f} ms apart, so the sum of their rates never occurred; "
                "use a longer duration"
            )
            yield Reason(ReasonKind.SOURCES_APART, "", detail)


def _limited_by_client(result: FlowResult, *, has_rate: bool) -> str:
    """Return why the client itself, and not the guest, may have determined its figures; empty if it did not."""
    if (result.client_cpu_share or 0.0) > _BUSY_CLIENT:
        return (
            f"the client used {result.client_cpu_share:.0%} of a CPU, so its figures may be its own limits; request a "
            "lower load, or measure with several streams"
        )
    response = times_of_kind(result.latencies, "response")
    late = result.client_late
    if not has_rate or late is None or response is None or not (late.count and response.count):
        return ""
    late_ns, response_ns = late.percentile_ns(_LATE_PART), response.percentile_ns(_LATE_PART)
    if late_ns <= _MAY_BE_LATE_NS or late_ns <= _MAY_BE_LATE_PART * response_ns:
        return ""
    return (
        f"the client began 1 % of its requests {late_ns / 1e6:.3g} ms late or later, and the 99th percentile of "
        f"response times is {response_ns / 1e6:.3g} ms; request a lower load, or measure on an idle machine"
    )


def _grown(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else now - before


def end_flows(flows: GuestFlows) -> None:
    """Stop flows; a connection that is gone has taken them along."""
    with suppress(TestbedError):
        flows.stop()

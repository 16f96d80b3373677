"""The seam between a trial and a tool that runs flows: commands of client and server, and the figures of its output."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel

from netbench.errors import TestbedError
from netbench.hosts.base import Completed, Host, Process
from netbench.hosts.clock import wait_until
from netbench.hosts.pipes import Tail, end
from netbench.linux.requirements import Requirement
from netbench.model.datagram_witness import PayloadKey
from netbench.model.flow_result import FlowResult
from netbench.model.paths import server_port
from netbench.model.profile import NoOptions
from netbench.model.units import Load, LoadKind
from netbench.model.workload import FlowPath

_READY_S, _POLL_S, _CONNECT_S = 30.0, 0.02, 5.0
# How much longer than its duration a client may take before it counts as hung.
GRACE_S = 20.0
_LONGEST_TEXT = 300
# Connects once, so that a server that answers connections is ready; the kernel of the server's host answers alone.
_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])).close()"

# Sockets that listen (0A) or, of UDP, are bound and not connected (07), in the format of /proc/net/tcp (proc(5)).
_PORTS = "cat /proc/net/tcp /proc/net/udp /proc/net/tcp6 /proc/net/udp6 2>/dev/null"
_OPEN_PORT = re.compile(r"^ *\d+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F]+:0000 0[7A] ", re.M)


class ToolError(TestbedError):
    """A tool failed, or printed something that is no result of it."""


class ArpEntry(NamedTuple):
    """An IPv4 address that a host reaches by an interface, with its MAC address in the ARP table of the host."""

    host: Host
    interface: str
    address: str


class SecondTier(NamedTuple):
    """A guest behind the server, which the server reaches at an address."""

    host: Host
    address: str


@dataclass(frozen=True, slots=True)
class FlowEnds:
    """The ends of one stream's flows: the host of the client, and the host and address of the server.

    `directory` of the server's host is for its files; it disappears with the run. `listen` is the server's own address
    where clients connect to another one, which is translated; empty: the same. The client runs on the CPUs
    `client_cpus` of its machine; empty: any. If connections are `accepted_by_host`, a client can connect before the
    server is there. `arp_entries` may have the MAC address of the UUT before. `second_tier` is a guest behind the
    server, for tools that need one. A client that `shares_cpu` with its server must not precede it.
    """

    stream: str
    number: int  # of the stream, from 1
    client: Host
    server: Host
    address: str
    directory: str
    arp_entries: tuple[ArpEntry, ...] = ()
    listen: str = ""
    client_cpus: tuple[int, ...] = ()
    accepted_by_host: bool = False
    second_tier: SecondTier | None = None
    shares_cpu: bool = False

    @property
    def bound(self) -> str:
        """The address that the server listens at."""
        return self.listen or self.address

    @property
    def port(self) -> int:
        """The server's port: streams may share a guest."""
        return server_port(self.number)


@dataclass(frozen=True, slots=True)
class Demand:
    """The load of one client: for `duration_s` seconds, of which the first `warm_up_s` are not measured."""

    load: Load
    duration_s: float
    warm_up_s: float = 0.0
    seed: int = 1

    @property
    def measured_s(self) -> float:
        """The time that is measured, in seconds."""
        return self.duration_s - self.warm_up_s


@dataclass(frozen=True, slots=True)
class WireView:
    """How a tool's flows look on the wire.

    Its first `control_connections` carry no data of the flows. With `exchanges` the wire shows a time for each request
    and its response, which the tool reports as latencies of the kind `compared`; `wire_kind` `handshake` compares
    those with the time to connect instead. `message_bytes` is the size of messages that may be on their way at once.
    `key` is the number in each datagram. `buffered_bytes` may be in socket buffers when the tool ends: it counts them
    otherwise than the wire does. `warm_up_s` is the tool's own warm-up, if it has one. Of `many_connections`, a part
    shows the times of all.
    """

    protocol: Literal["tcp", "udp"] = "tcp"
    control_connections: int = 0
    exchanges: bool = False
    compared: str = ""
    wire_kind: Literal["exchange", "handshake"] = "exchange"
    message_bytes: int | None = None
    key: PayloadKey | None = None
    buffered_bytes: int = 0
    warm_up_s: float | None = None
    many_connections: bool = False


class Tool(ABC):
    """A kind of tool, with its options. Profiles name it, as registered in the entry points `netbench.tools`."""

    Options: ClassVar[type[BaseModel]] = NoOptions
    loads: ClassVar[frozenset[LoadKind]] = frozenset({LoadKind.MAX})
    server_programs: ClassVar[tuple[str, ...]] = ()
    client_programs: ClassVar[tuple[str, ...]] = ("python3",)
    may_need: ClassVar[tuple[Requirement, ...]] = ()  # these programs: how to install them
    paths: ClassVar[frozenset[FlowPath]] = frozenset(FlowPath)  # of its flows
    reports_times: ClassVar[bool] = True  # response or round-trip times, on which a search can set a limit
    needs_second_tier: ClassVar[bool] = False  # whether its server needs a process in another guest
    # Whether a connection that ends at once does no harm to the server. Otherwise the open ports of its host are read.
    can_be_probed: bool = True

    def __init__(self, options: BaseModel) -> None:
        self._options = options

    def wire_view(self, load: Load) -> WireView:
        """Return how its flows look on the wire: by default as TCP connections whose bytes it reports."""
        return WireView()

    def unsupported_reason(self, demand: Demand) -> str:
        """Return why this tool cannot run at a load, or for so long, with these options; empty if it can."""
        return (
            "" if demand.load.kind in self.loads else f"{demand.load} is not supported; supported: {self.loads_text()}"
        )

    @property
    def timeout_s(self) -> float | None:
        """The time after which an operation has failed, in seconds; None if there is no limit."""
        return None

    @classmethod
    def loads_text(cls) -> str:
        """Return an example of each kind of load that it supports: `10Mbit/s, max`."""
        return ", ".join(sorted(_EXAMPLES.get(kind, kind.value) for kind in cls.loads))

    @abstractmethod
    def server_command(self, ends: FlowEnds) -> Sequence[str]:
        """Return the command that serves in the foreground until it is killed."""

    @abstractmethod
    def client_command(self, ends: FlowEnds, demand: Demand) -> Sequence[str]:
        """Return the command that runs the flows and prints their figures."""

    @abstractmethod
    def result(self, done: Completed, demand: Demand, ends: FlowEnds, workload: str) -> FlowResult:
        """Return the figures of a client that has ended; ToolError for anything that is no complete output of it."""

    def before_serving(self, ends: FlowEnds) -> None:
        """Write files that the server needs; usually none."""
        return

    def start_server(self, ends: FlowEnds) -> "RunningServer":
        """Start the server and return once the client's host can connect to it; ToolError when it does not serve."""
        for entry in ends.arp_entries:
            # Otherwise requests may go to the MAC address of the UUT before, for up to a minute (arp(7)).
            entry.host.run(["ip", "neigh", "flush", "to", entry.address, "dev", entry.interface])
        self.before_serving(ends)
        return _ready(ends, self.server_command(ends), connects=self.can_be_probed and not ends.accepted_by_host)

    def second_tier_command(self, ends: FlowEnds) -> Sequence[str]:
        """Return the command of the second tier's process, which serves until it is killed. `ends` are as second_ends.

        Only for tools that need one.
        """
        raise NotImplementedError

    def start_second_tier(self, ends: FlowEnds) -> "RunningServer":
        """Start the process of the second tier, and return once its port is open; ToolError when it does not serve."""
        behind = second_ends(ends)
        return _ready(behind, self.second_tier_command(behind), connects=False)


def second_ends(ends: FlowEnds) -> FlowEnds:
    """Return the ends of the connections between the server, as their client, and its second tier."""
    assert ends.second_tier is not None, "tools that need a second tier have one"
    host, address = ends.second_tier
    return replace(ends, client=ends.server, server=host, address=address, listen="", second_tier=None)


def _ready(ends: FlowEnds, command: Sequence[str], *, connects: bool) -> "RunningServer":
    """Return a server that was started by a command, once it is ready."""
    running = RunningServer.started(ends, command)
    try:
        running.await_ready(connects=connects)
    except BaseException:
        running.stop()
        raise
    return running


_EXAMPLES = {
    LoadKind.MAX: "max",
    LoadKind.L1_BIT_RATE: "10Mbit/s",
    LoadKind.OPERATION_RATE: "100/s",
}


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server, from its start to its end."""

    ends: FlowEnds
    process: Process
    output: tuple[Tail, ...]

    @classmethod
    def started(cls, ends: FlowEnds, command: Sequence[str]) -> "RunningServer":
        """Start a server. Its output is read continuously, so that a full pipe never blocks it."""
        process = ends.server.spawn(command)
        return cls(ends, process, tuple(Tail(pipe) for pipe in (process.stdout, process.stderr) if pipe))

    def await_ready(self, *, connects: bool) -> None:
        """Return once the client's host can connect to it, or else once its port is open where it runs."""
        is_open = self._accepts if connects else self._has_port

        def is_ready() -> bool:
            self.require_alive()
            return is_open()

        if not wait_until(is_ready, _READY_S, _POLL_S):
            where = f"{self.ends.address}:{self.ends.port}"
            raise ToolError(f"the server at {where} was not ready for {self.ends.client} within {_READY_S:g} s")

    def _accepts(self) -> bool:
        ends = self.ends
        probe = ["python3", "-c", _CONNECT, ends.address, str(ends.port), str(_CONNECT_S)]
        return ends.client.run(probe, timeout_s=2 * _CONNECT_S).exit_code == 0

    def _has_port(self) -> bool:
        tables = self.ends.server.run(["sh", "-c", _PORTS]).stdout
        return any(match[1] == f"{self.ends.port:04X}" for match in _OPEN_PORT.finditer(tables))

    def require_alive(self) -> None:
        """Raise ToolError, with its last output, when it has ended."""
        if self.process.poll() is not None:
            words = " ".join(text for tail in self.output if (text := tail.text().strip()))
            raise ToolError(
                f"the server on {self.ends.server} ended with exit code {self.process.returncode}: "
                f"{words[-500:] or 'it printed nothing'}"
            )

    def stop(self) -> None:
        """Kill it and all processes that it started."""
        with suppress(TestbedError):
            end(self.process)


def number_of(value: Any, what: str) -> float:  # noqa: ANN401 - any JSON
    """Return a finite number >= 0 of a tool's output; ToolError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**63:
        raise ToolError(f"{what} is {value!r} in its output, which is no number that it can be")
    return value


def whole_number(value: Any, what: str) -> int:  # noqa: ANN401 - any JSON
    """Return an integer >= 0 of a tool's output; ToolError for anything else."""
    if not isinstance(value, int):
        raise ToolError(f"{what} is {value!r} in its output, which is no whole number")
    return int(number_of(value, what))


def text_of(value: Any, what: str) -> str:  # noqa: ANN401 - any JSON
    """Return a short printable text of a tool's output; ToolError for anything else."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > _LONGEST_TEXT:
        raise ToolError(f"{what} is {value!r} in its output, which is no text that it can be")
    return value

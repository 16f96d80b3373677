"""The TRex servers of a campaign: their options, and one worker per server, shared by its sources and sinks."""

import json
import shlex
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, model_validator

from netbench.errors import KeyedError, MissingError, TestbedError, UsageError
from netbench.generators.trex.trex_package import MODULE, SERVER, no_client
from netbench.hosts.base import Host, exists, machine_name, run_checked
from netbench.hosts.remote_code import bring, module_command_on, scratch_of
from netbench.hosts.trusted_code import module_command
from netbench.hosts.worker_client import WorkerProcess
from netbench.model.documents import plain

TcpPort = Annotated[int, Field(ge=1, le=65535)]

_LOOPBACK_UP = ("ip", "link", "set", "lo", "up")
_MODULE = "netbench.generators.trex.trex_worker"
# Time limits for replies of the worker, in seconds: a server takes seconds to start.
_OPEN_S = 60.0
_ANSWER_S = 10.0


class TrexOptions(BaseModel, extra="forbid"):
    """A running server and its ports, by interface name of the sources; or the package to start servers from.

    The server receives requests at `sync_port` and publishes at `async_port` (its `zmq_rpc_port` and `zmq_pub_port`).
    With `path`, the directory of a TRex package, netbench starts its own servers, in software. `delay_fps` frames/s
    of each stream measure its delay, where the sink is trex as well.
    """

    server: str = Field(default="127.0.0.1", min_length=1)
    """Address of a running server, as seen by the sources' machine."""
    sync_port: TcpPort = 4501
    """Request port (`zmq_rpc_port`)."""
    async_port: TcpPort = 4500
    """Publisher port (`zmq_pub_port`)."""
    ports: dict[str, Annotated[int, Field(ge=0, le=255)]] = Field(default_factory=dict)
    """Ports of the running server, by interface name."""
    path: str | None = Field(default=None, pattern="^/")
    """Directory of an unpacked TRex package; netbench then starts the servers."""
    delay_fps: float = Field(default=0, ge=0, le=100_000)
    """With sink trex: frames/s of each stream that measure delay."""

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Self:
        if self.path is None and not self.ports:
            raise ValueError(
                "neither `ports` nor `path`: give the port of a running server for each interface, as in {kind: trex, "
                "ports: {eth1: 0}}, or the package to start servers from: {kind: trex, path: /opt/trex/v3.08}"
            )
        if self.path is not None and self.model_fields_set - {"path", "delay_fps"}:
            raise ValueError("with `path`, netbench starts the servers: leave out server, sync_port, async_port, ports")
        if len(set(self.ports.values())) < len(self.ports):
            raise KeyedError("ports", "two interfaces have the same port of TRex; give each another port")
        return self


class TrexServer:
    """The worker of one server, alive as long as it has users.

    A server that netbench starts starts with the first request, when all its interfaces have joined.
    """

    def __init__(self, options: TrexOptions, host: Host, cpus: Sequence[int]) -> None:
        self._options, self._host, self._cpus = options, host, list(cpus)
        self._users: set[object] = set()
        self._receive: dict[str, bool] = {}  # whether each interface receives
        self._worker: WorkerProcess | None = None
        self._ids = count(1)
        self._replies: dict[object, Mapping[str, Any]] = {}
        self.version = ""  # as the worker reports it

    def join(self, user: object, interface: str, *, receives: bool, at_once: bool) -> None:
        """Add an interface for this user, and acquire its port `at_once` or with the first request.

        MissingError as in TrexSession and TrexPort.
        """
        is_served = interface in self._receive and self._receive[interface] >= receives
        self._users.add(user)
        self._receive[interface] = receives or self._receive.get(interface, False)
        if self._options.path is not None and not is_served:
            self._end()  # it must be restarted with one more interface
        if at_once:
            try:
                self.ask("take", interface)
            except BaseException:  # Ctrl-C too: the worker must not stay
                self.leave(user)
                raise

    def leave(self, user: object) -> None:
        """Remove a user; the worker ends with its last user. Harmless when called twice."""
        if user in self._users:
            self._users.remove(user)
            if not self._users:
                self._receive.clear()
                self._end()

    def send(self, do: str, interface: str, **more: object) -> int:
        """Send a request and return its number."""
        number = next(self._ids)
        self.worker().request({"id": number, "do": do, "interface": interface, **more})
        return number

    def reply(self, number: int, timeout_s: float) -> Mapping[str, Any]:
        """Return the reply to a request; errors as in WorkerProcess.reply."""
        worker = self.worker()
        while number not in self._replies:
            message = worker.any_reply(timeout_s)
            self._replies[message.get("id")] = message
        reply = self._replies.pop(number)
        worker.require_no_failure(reply)
        return reply

    def ask(self, do: str, interface: str, **more: object) -> Mapping[str, Any]:
        """Send a request and return its immediate reply; TestbedError also where none arrives in time."""
        try:
            return self.reply(self.send(do, interface, **more), _ANSWER_S)
        except TimeoutError as error:
            raise TestbedError(str(error)) from error

    def worker(self) -> WorkerProcess:
        """Return the worker, started if it is not running; MissingError, TestbedError as it reports."""
        if self._worker is not None:
            return self._worker
        if self._options.path is not None and self._host.netns is not None:
            # Server and client connect at 127.0.0.1. netbench removes the namespace after the campaign.
            run_checked(self._host, _LOOPBACK_UP)
        title = f"the trex worker for {', '.join(self._receive)} of host {self._host.name}"
        process = self._host.spawn(_command(self._options, self._receive, self._cpus, self._host))
        worker = self._worker = WorkerProcess(title, process)
        self._replies = {}
        try:
            self.version = str(worker.reply(_OPEN_S).get("version", ""))
            if self._options.path is not None:
                for interface in self._receive:
                    self.ask("take", interface)
        except BaseException as error:  # Ctrl-C too: the worker must not stay
            self._end()
            if isinstance(error, TimeoutError):
                raise TestbedError(str(error)) from error
            raise
        return worker

    def _end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()


class TrexServers:
    """The servers of a campaign; `has_sinks` is whether there are sinks of TRex.

    An already running server serves all its interfaces. Otherwise netbench starts one server per source. With sinks of
    TRex, it starts one per host for all interfaces, because a server counts only frames that it has sent itself.
    """

    def __init__(self, options: TrexOptions) -> None:
        self._options = options
        self._servers: dict[str, TrexServer] = {}
        self.has_sinks = False

    def join(self, user: object, host: Host, interface: str, cpus: Sequence[int], *, receives: bool) -> TrexServer:
        """Return the server with an interface of a host as a port, for this user until it leaves.

        MissingError without client, server or package, or where the port has another owner; UsageError for an interface
        that is none of its ports.
        """
        if missing := no_client():
            raise MissingError(missing)
        self.require_port(interface)
        key = self._key(host, interface)
        bring(host, MODULE)
        if receives and key not in self._servers:
            raise UsageError(
                f"sink trex: no source is on host {host.name}, where {interface} receives. A server that netbench "
                "starts counts only frames that it sent: put source and sink of a stream on one host"
            )
        server = self._servers.setdefault(key, TrexServer(self._options, host, cpus))
        server.join(user, interface, receives=receives, at_once=self._options.path is None or not self.has_sinks)
        return server

    def require_port(self, interface: str) -> None:
        """Raise UsageError where the options have no port for an interface, or a delay that no sink measures."""
        options = self._options
        if options.path is None and interface not in options.ports:
            raise UsageError(
                f"generator trex: `ports` has no interface {interface}, only {', '.join(options.ports)}; add it, for "
                f"example {{{interface}: 0}}"
            )
        if options.delay_fps and not self.has_sinks:
            raise UsageError(
                "generator trex: delay_fps needs the sink trex, which measures delay; add sink: trex, or leave it out"
            )

    def commands(self, receives: Mapping[str, bool], cpus: Sequence[int]) -> list[str]:
        """Return the commands that start the worker for these interfaces."""
        first = [] if self._options.path is None else [f"{shlex.join(_LOOPBACK_UP)} # in a network namespace"]
        return [*first, shlex.join(_command(self._options, receives, cpus))]

    def _key(self, host: Host, interface: str) -> str:
        if self._options.path is None:
            # Each host has its own server at the address in the options; hosts on this machine share one.
            return machine_name(host)
        program = Path(self._options.path, SERVER)
        if not exists(host, str(program)):
            where = "" if host.shares_files else f" on host {host.name}"
            raise MissingError(
                f"{program} does not exist{where}: set `path` to the directory of an unpacked TRex package"
            )
        return host.name if self.has_sinks else f"{host.name}/{interface}"


def _command(
    options: TrexOptions, receives: Mapping[str, bool], cpus: Sequence[int], host: Host | None = None
) -> list[str]:
    """Return the command of a worker on a host; without a host, on this machine."""
    # A server keeps sending when its client dies. The worker must therefore outlive netbench until it has stopped the
    # server, which it does at the end of its stdin. numpy would start a thread on every CPU.
    outlive = ["setpriv", "--pdeathsig", "clear", "env", "OPENBLAS_NUM_THREADS=1"]
    settings = plain(options, include={"server", "sync_port", "async_port", "ports"})
    if options.path is not None:
        # The scratch directory is removed with the run, however the worker ends.
        scratch = scratch_of(host) if host else None
        settings = {"path": options.path, "interfaces": dict(receives), "scratch": scratch}
    words = json.dumps(settings), *map(str, cpus)
    return [*outlive, *(module_command_on(host, _MODULE, *words) if host else module_command(_MODULE, *words))]

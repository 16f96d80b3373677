"""TRex servers as netbench has them: the worker of each, which the sources and sinks that use it share."""

import json
import shlex
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

from netbench.errors import MissingError, TestbedError, UsageError
from netbench.generators.trex.client_package import MODULE, SERVER, no_client, no_server
from netbench.generators.trex.trex_options import TrexOptions
from netbench.hosts.base import Host, exists, run_checked
from netbench.hosts.composed import bring, module_command_on, scratch_of
from netbench.hosts.json_conversation import Conversation
from netbench.hosts.python_modules import module_command
from netbench.model.documents import plain

_LOOPBACK_UP = ("ip", "link", "set", "lo", "up")
_MODULE = "netbench.generators.trex.trex_worker"
# How long the worker may take to answer, in seconds: a server takes seconds to start.
_OPEN_S = 60.0
_ANSWER_S = 10.0


class TrexServer:
    """The worker of one server, for as long as it has users.

    One that netbench starts is started when it is first asked for something: all its interfaces are known by then.
    """

    def __init__(self, options: TrexOptions, host: Host, cpus: Sequence[int]) -> None:
        self._options = options
        self._host = host
        self._cpus = list(cpus)
        self._users: dict[object, str] = {}
        self._receive: dict[str, bool] = {}
        self._worker: Conversation | None = None
        self._ids = count(1)
        self._replies: dict[object, Mapping[str, object]] = {}
        self.version = ""  # as it says

    def join(self, user: object, interface: str, *, receives: bool) -> None:
        """Have an interface among its own, for this user; it is taken at once where the server runs already.

        MissingError as of TrexSession and TrexPort.
        """
        known = interface in self._receive and self._receive[interface] >= receives
        self._users[user] = interface
        self._receive[interface] = receives or self._receive.get(interface, False)
        if self._options.path is None:
            try:
                self._started()
                self.ask("take", interface)
            except BaseException:  # Ctrl-C too: the worker must not stay
                self.leave(user)
                raise
        elif not known:
            self._end()  # it is to be started with one more

    def leave(self, user: object) -> None:
        """Do without it; the last one ends its worker. Harmless when called twice."""
        if self._users.pop(user, None) is not None and not self._users:
            self._receive.clear()
            self._end()

    def start(self) -> None:
        """Start it, where that was not done yet: MissingError, TestbedError as of the worker."""
        self._started()

    def tell(self, do: str, interface: str, **more: object) -> int:
        """Send a request, whose number is returned."""
        number = next(self._ids)
        self._started().tell({"id": number, "do": do, "interface": interface, **more})
        return number

    def reply(self, number: int, timeout_s: float) -> Mapping[str, object]:
        """The reply to a request; errors as of Conversation.reply."""
        worker = self._started()
        while number not in self._replies:
            found = worker.said(timeout_s)
            self._replies[found.get("id")] = found
        reply = self._replies.pop(number)
        worker.require_no_failure(reply)
        return reply

    def ask(self, do: str, interface: str, **more: object) -> Mapping[str, object]:
        """The reply to a request that is answered at once; TestbedError also where it is not."""
        try:
            return self.reply(self.tell(do, interface, **more), _ANSWER_S)
        except TimeoutError as error:
            raise TestbedError(str(error)) from error

    def failure(self, what: str) -> str:
        """A message about its worker."""
        return self._started().failure(what)

    def kill(self) -> None:
        """End the worker at once: whatever it is doing, it is not to go on."""
        if self._worker is not None:
            self._worker.kill()

    def _started(self) -> Conversation:
        if self._worker is not None:
            return self._worker
        if self._options.path is not None and self._host.netns is not None:
            # Server and client meet at 127.0.0.1. A namespace is netbench's own, and gone after the campaign.
            run_checked(self._host, _LOOPBACK_UP)
        who = f"the trex worker for {', '.join(self._receive)} of host {self._host.name}"
        worker = self._worker = Conversation(
            who, self._host.spawn(_command(self._options, self._receive, self._cpus, self._host))
        )
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
    """The servers of a campaign.

    A server that runs already is one. Of those that netbench starts, each source has one of its own, and with sinks of
    TRex, which know only what their own server has sent, each host one for all its interfaces.
    """

    def __init__(self, options: TrexOptions) -> None:
        self._options = options
        self._servers: dict[str, TrexServer] = {}
        self.count = False  # whether there are sinks of TRex

    def join(
        self, user: object, host: Host, interface: str, cpus: Sequence[int], *, receives: bool = False
    ) -> TrexServer:
        """The server that an interface of a host is a port of, for this user until it leaves.

        MissingError without client, server or package, or where the port is another's; UsageError for an interface that
        is none of its ports.
        """
        if missing := no_client():
            raise MissingError(missing)
        self.require_sense(interface)
        key = self._key(host, interface)
        bring(host, MODULE)
        if receives and key not in self._servers:
            raise UsageError(
                f"sink trex: {interface} of host {host.name} receives, and no source is on that host: a server that "
                "netbench starts counts what it has sent itself, so put source and sink of a stream on one host"
            )
        server = self._servers.setdefault(key, TrexServer(self._options, host, cpus))
        server.join(user, interface, receives=receives)
        if self._options.path is not None and not self.count:
            try:
                server.start()
            except BaseException:  # Ctrl-C too: the worker must not stay
                server.leave(user)
                raise
        return server

    def require_sense(self, interface: str) -> None:
        """UsageError where the options do not say which port an interface is, or want delay that nobody measures."""
        options = self._options
        if options.path is None and interface not in options.ports:
            raise UsageError(
                f"generator trex: which port of TRex is interface {interface}? `ports` has {', '.join(options.ports)} "
                f"only; add it, for example {{{interface}: 0}}"
            )
        if options.delay_fps and not self.count:
            raise UsageError(
                "generator trex: TRex alone can tell what delay_fps measures; add sink: trex, or leave it out"
            )

    def commands(self, receives: Mapping[str, bool], cpus: Sequence[int]) -> list[str]:
        """What the worker for some interfaces is started with, as commands."""
        first = [] if self._options.path is None else [f"{shlex.join(_LOOPBACK_UP)} # in a network namespace"]
        return [*first, shlex.join(_command(self._options, receives, cpus))]

    def _key(self, host: Host, interface: str) -> str:
        if self._options.path is None:
            # Of several hosts each has a server where the options say, except those that are this machine.
            return "" if host.shares_files else host.name
        program = Path(self._options.path, SERVER)
        if not exists(host, str(program)):
            raise no_server(program, "" if host.shares_files else f" on host {host.name}")
        return host.name if self.count else f"{host.name}/{interface}"


def _command(
    options: TrexOptions, receives: Mapping[str, bool], cpus: Sequence[int], host: Host | None = None
) -> list[str]:
    """The command of a worker on a host; without one, as of this machine."""
    # A server sends on when its client dies: the worker is to outlive netbench until it has stopped that, which it
    # does as soon as its stdin ends. numpy would start a thread on every CPU.
    outlive = ["setpriv", "--pdeathsig", "clear", "env", "OPENBLAS_NUM_THREADS=1"]
    # What is left there goes with the run, whatever ends the worker.
    scratch = scratch_of(host) if host else None
    settings: dict[str, object] = {"path": options.path, "interfaces": dict(receives), "scratch": scratch}
    if options.path is None:
        settings = plain(options, include={"server", "sync_port", "async_port", "ports"})
    words = json.dumps(settings), *map(str, cpus)
    return [*outlive, *(module_command_on(host, _MODULE, *words) if host else module_command(_MODULE, *words))]

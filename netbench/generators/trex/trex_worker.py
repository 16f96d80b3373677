"""The process of TRex's sources and sinks: `python -m netbench.generators.trex.trex_worker SETTINGS [CPU…]`.

Only this process imports the client of TRex, whose yaml, scapy and zmq replace the installed ones. SETTINGS is JSON:
either the address of a server and its `ports` by interface; or the `path` of a package to start a server from, the
`interfaces` that become its ports, each with whether it receives, and a `scratch` directory or null. The protocol is
JSON, one object per line; the `id` of a request is repeated in its reply. An unrequested first reply reports readiness
and the server's version:

    → {"do": "take", "interface": …}                      ← {"ready": true}: its port is acquired
    → {"do": "prepare", "interface": …, "traffic": {…}, "delay_fps": n}   ← {"ready": true}
    → {"do": "listen", "interface": …}                    ← {"ready": true}: frames are counted from now on
    → {"do": "start", "interface": …, "at_monotonic_ns": n}   ← {"sent": {…}} when sending has ended
    → {"do": "stop", "interface": …}                      ends sending early; the reply to `start` reports it
    → {"do": "received", "interface": …, "of": …}         ← {"received": {…}} of frames from `of`: FlowCounts

or {"failed": "why"}, {"missing": "why"} to any of them. When its stdin ends, its parent may be dead: it stops the
traffic, which a server would continue.
"""

import io
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from netbench.errors import MissingError, NetbenchError, TestbedError
from netbench.generators.trex.flow_counts import FlowCounts
from netbench.generators.trex.own_server import OwnServer
from netbench.generators.trex.trex_port import TrexPort
from netbench.generators.trex.trex_sending import PortSending
from netbench.generators.trex.trex_session import ServerAddress, TrexSession
from netbench.model.traffic import traffic_of


class _Apart(io.TextIOBase):
    """Redirects the client's output to stderr, because stdout is for replies; fileno() is still that of stdout."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def fileno(self) -> int:
        return 1


class TrexWorker:
    """A session with a server, which it may have started itself, and its acquired ports by interface."""

    def __init__(self, ending: ExitStack, settings: Mapping[str, Any], cpus: list[int]) -> None:
        """Connect to the server; MissingError where there is none, or none can be started."""
        ending.callback(self.leave)  # also after a failure in this constructor
        self._settings, self._cpus = settings, cpus
        self._numbers: Mapping[str, int] = settings.get("ports") or {
            name: number for number, name in enumerate(settings["interfaces"])
        }
        self._server: OwnServer | None = None
        self._session: TrexSession | None = None
        self._ports: dict[str, PortSending] = {}
        self._missed_before: dict[str, int] = {}
        self._threads: list[threading.Thread] = []
        if cpus:
            os.sched_setaffinity(0, cpus)
        self._connect()

    @property
    def version(self) -> str:
        """The version of the server."""
        return f"TRex {self._opened.version}"

    def do(self, request: Mapping[str, Any]) -> None:
        """Execute a request and reply; the reply to `start` comes after sending."""
        interface = request["interface"]
        match request["do"]:
            case "take":
                self._take(interface)
            case "prepare":
                self._renewed(interface).prepare(traffic_of(request["traffic"]), request["delay_fps"])
            case "listen":
                self._missed_before[interface] = self._opened.missed_at(self._numbers[interface])
            case "start":
                port = self._ports[interface]
                sending = threading.Thread(
                    target=_replying,
                    args=(request, lambda: {"sent": asdict(port.send(request["at_monotonic_ns"]))}),
                )
                self._threads.append(sending)
                sending.start()
                return
            case "stop":
                self._ports[interface].halt.set("stopped before its end")
                return
            case "received":
                _reply(request, {"received": asdict(self._received(interface, request["of"]))})
                return
        _reply(request, {"ready": True})

    def leave(self) -> None:
        """Clear and release all ports; a server that this worker started is ended instead."""
        for port in self._ports.values():
            port.halt.set("the worker ends")
        for thread in self._threads:
            thread.join()
        if self._server is not None:
            self._server.close()  # the session with it ends with this process
        else:
            self._disconnect()

    def _connect(self) -> None:
        if "path" in self._settings:
            self._server = OwnServer(
                Path(self._settings["path"]), self._settings["interfaces"], self._cpus, self._settings["scratch"]
            )
            address = self._server.address()
        else:
            address = ServerAddress(**{name: self._settings[name] for name in ("server", "sync_port", "async_port")})
        self._session = TrexSession(address)

    def _disconnect(self) -> None:
        session, self._session = self._session, None
        server, self._server = self._server, None
        if session is not None:
            for port in self._ports.values() if server is None else ():
                port.close()
            session.close()
        if server is not None:
            server.close()

    def _take(self, interface: str) -> None:
        if interface not in self._ports:
            port = TrexPort(self._opened, self._numbers[interface])
            self._ports[interface] = PortSending(self._opened, port, self._server, interface)

    def _renewed(self, interface: str) -> PortSending:
        """Return a port to send from; the server is restarted where its ring still has frames of an earlier trial."""
        if any(port.left_over for port in self._ports.values()):
            taken = list(self._ports)
            self._disconnect()
            self._ports.clear()
            self._connect()
            for name in taken:
                self._take(name)
            self._missed_before = {name: self._opened.missed_at(self._numbers[name]) for name in self._missed_before}
        return self._ports[interface]

    def _received(self, interface: str, of: str) -> FlowCounts:
        """Return the counts at the port of an interface, of frames that the interface `of` has sent."""
        number, session = self._numbers[interface], self._opened
        if of not in self._ports:
            raise TestbedError(f"{of}, which sends, is no port of the server that is to count it")
        sender = self._ports[of]
        frames_of, missed = session.at_rest(lambda: (sender.received_at(number), session.missed_at(number)))
        groups = sender.groups
        by_size = {size: frames_of[groups.of_size(size)] for size in groups.sizes}
        delay = None
        if groups.delay_fps:
            by_size[groups.delay_size] += frames_of[groups.of_delay]
            delay = session.delay(groups.of_delay)
        return FlowCounts(sum(by_size.values()), by_size, missed - self._missed_before[interface], delay)

    @property
    def _opened(self) -> TrexSession:
        if self._session is None:
            raise TestbedError("there is no session with a TRex server any more")
        return self._session


def _replying(request: Mapping[str, Any], done: Callable[[], Mapping[str, object]]) -> None:
    try:
        _reply(request, done())
    except NetbenchError as error:
        _reply(request, _what_failed(error))
    except Exception as error:  # no caller of a thread could catch it
        _reply(request, {"failed": f"sending failed: {error!r}"})


def _what_failed(error: Exception) -> Mapping[str, object]:
    return {"missing" if isinstance(error, MissingError) else "failed": str(error)}


def _reply(request: Mapping[str, Any], message: Mapping[str, object]) -> None:
    line = json.dumps({"id": request["id"], **message} if "id" in request else message)
    with suppress(BrokenPipeError):  # the controller is gone: the end of stdin will show it
        os.write(1, line.encode() + b"\n")


def _serve(ending: ExitStack) -> None:
    """Execute the requests on stdin until it ends."""
    settings, *cpus = sys.argv[1:]
    try:
        worker = TrexWorker(ending, json.loads(settings), [int(cpu) for cpu in cpus])
    except (OSError, NetbenchError) as error:
        _reply({}, _what_failed(error))
        return
    _reply({}, {"ready": True, "version": worker.version})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            worker.do(request)
        except (OSError, NetbenchError) as error:
            _reply(request, _what_failed(error))


def _main() -> None:
    def end(*_: object) -> None:
        raise SystemExit(0)

    # netbench handles Ctrl-C: the client would report it as an error of the server. SIGTERM comes from netbench, and
    # from the client when its thread crashes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end)
    sys.stdout = _Apart()
    ending = ExitStack()
    try:
        _serve(ending)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with suppress(OSError):  # replies that cannot be delivered any more
            ending.close()


if __name__ == "__main__":
    _main()

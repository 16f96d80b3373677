"""The process of TRex's sources and sinks: `python -m netbench.generators.trex.trex_worker SETTINGS [CPU…]`.

Only this process imports the client of TRex, whose yaml, scapy and zmq replace the installed ones. SETTINGS is JSON:
either the address of a server and its `ports` by interface; or the `path` of a package to start a server from, the
`interfaces` that become its ports, each with whether it receives, and a `scratch` directory or null. The protocol is
JSON, one object per line; the `id` of a request is repeated in its reply. An unrequested first reply reports readiness
and the server's version:

    → {"do": "take", "interface": …}                      ← {"ready": true}: its port is acquired
    → {"do": "prepare", "interface": …, "traffic": {…}, "template": {…}, "delay_fps": n}
                                                          ← {"ready": true}
    → {"do": "listen", "interface": …}                    ← {"ready": true}: frames are counted from now on
    → {"do": "start", "interface": …, "at_monotonic_ns": n}   ← {"sent": {…}} when sending has ended
    → {"do": "stop", "interface": …}                      ends sending early; the reply to `start` reports it
    → {"do": "received", "interface": …, "of": …}         ← {"received": {…}} of frames from `of`: FlowCounts

or {"failed": "why"}, {"missing": "why"} to any of them. When its stdin ends, its parent may be dead: it stops the
traffic, which a server would continue.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from netbench.errors import TestbedError
from netbench.generators.trex.trex_counts import FlowCounts
from netbench.generators.trex.trex_package import OwnServer, ServerAddress
from netbench.generators.trex.trex_session import TrexPort, TrexSession
from netbench.hosts.worker_requests import Reply, Request, reply_to, reply_when_sent, serve_requests
from netbench.model.frame_template import FrameTemplate
from netbench.model.traffic import traffic_of


class TrexWorker:
    """A session with a server, which it may have started itself, and its acquired ports by interface."""

    def __init__(self, settings: Mapping[str, Any], cpus: list[int]) -> None:
        self._settings, self._cpus = settings, cpus
        self._numbers: Mapping[str, int] = settings.get("ports") or {
            name: number for number, name in enumerate(settings["interfaces"])
        }
        self._server: OwnServer | None = None
        self._session: TrexSession | None = None
        self._ports: dict[str, TrexPort] = {}
        self._missed_before: dict[str, int] = {}
        self._threads: list[threading.Thread] = []

    @property
    def session(self) -> TrexSession:
        """The session with the server, from connect() to end()."""
        assert self._session is not None, "connect() comes first"
        return self._session

    def connect(self) -> Reply:
        """Connect to the server and return the first reply; MissingError if there is none, or none can be started."""
        if self._cpus:
            os.sched_setaffinity(0, self._cpus)
        if "path" in self._settings:
            self._server = OwnServer(
                Path(self._settings["path"]), self._settings["interfaces"], self._cpus, self._settings["scratch"]
            )
            address = self._server.address()
        else:
            address = ServerAddress(**{name: self._settings[name] for name in ("server", "sync_port", "async_port")})
        self._session = TrexSession(address)
        return {"ready": True, "version": f"TRex {self._session.version}"}

    def execute(self, request: Request) -> Reply | None:
        """Execute a request and return its reply; the reply to `start` is sent by its thread."""
        interface = request["interface"]
        match request["do"]:
            case "take":
                self._take(interface)
            case "prepare":
                if any(port.left_over for port in self._ports.values()):
                    self._restart()
                template = FrameTemplate.from_json(request["template"])
                self._ports[interface].prepare(traffic_of(request["traffic"]), template, request["delay_fps"])
            case "listen":
                self._missed_before[interface] = self.session.missed_at(self._numbers[interface])
            case "start":
                port = self._ports[interface]
                self._threads.append(reply_when_sent(request, lambda: port.send(request["at_monotonic_ns"])))
                return None
            case "stop":
                self._ports[interface].halt.set("stopped before its end")
                return None
            case "received":
                return {"received": asdict(self._received(interface, request["of"]))}
        return {"ready": True}

    def end(self) -> None:
        """Clear and release all ports; a server that this worker started is ended instead."""
        for port in self._ports.values():
            port.halt.set("the worker ended")
        for thread in self._threads:
            thread.join()
        if self._server is not None:
            self._server.close()  # the session with it ends with this process
        elif self._session is not None:
            for port in self._ports.values():
                port.close()
            self._session.close()

    def _restart(self) -> None:
        """Restart the server that this worker started, whose ring still has frames of an earlier trial."""
        assert self._server is not None
        self.session.close()
        self._server.close()
        interfaces, self._ports = list(self._ports), {}
        self.connect()
        for interface in interfaces:
            self._take(interface)
        self._missed_before = {name: self.session.missed_at(self._numbers[name]) for name in self._missed_before}

    def _take(self, interface: str) -> None:
        if interface not in self._ports:
            number = self._numbers[interface]
            self._ports[interface] = TrexPort(self.session, number, interface, self._server)

    def _received(self, interface: str, of: str) -> FlowCounts:
        """Return the counts at the port of an interface, of frames that the interface `of` has sent."""
        number, session = self._numbers[interface], self.session
        if of not in self._ports:
            raise TestbedError(f"the frames of {of} cannot be counted: it is not a port of the same TRex server")
        sender = self._ports[of]
        frames_of, missed = session.at_rest(lambda: (sender.received_at(number), session.missed_at(number)))
        groups = sender.groups
        by_size = {size: frames_of[groups.of_size(size)] for size in groups.sizes}
        delay = None
        if groups.delay_fps:
            by_size[groups.delay_size] += frames_of[groups.of_delay]
            delay = session.delay(groups.of_delay)
        return FlowCounts(by_size, missed - self._missed_before[interface], delay)


def _main() -> None:
    def end(*_: object) -> None:
        raise SystemExit(0)

    # netbench handles Ctrl-C: the client would report it as an error of the server. SIGTERM comes from netbench, and
    # from the client when its thread crashes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end)
    sys.stdout = sys.stderr  # output of the client must not mix with replies
    settings, *cpus = sys.argv[1:]
    worker = TrexWorker(json.loads(settings), [int(cpu) for cpu in cpus])
    try:
        if reply_to({}, worker.connect):
            serve_requests(worker.execute)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with suppress(OSError):  # replies that cannot be delivered any more
            worker.end()


if __name__ == "__main__":
    _main()

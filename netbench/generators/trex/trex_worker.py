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

import io
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from netbench.errors import MissingError, NetbenchError, TestbedError
from netbench.generators.frame_template import FrameTemplate
from netbench.generators.trex.trex_counts import FlowCounts, GroupCount, Groups
from netbench.generators.trex.trex_package import BEGINS_LATER_S, OwnServer, ServerAddress
from netbench.generators.trex.trex_session import TrexPort, TrexSession
from netbench.generators.trex.trex_streams import streams_of
from netbench.generators.worker_process import Halt
from netbench.model.frame_mix import genome_of, sizes_in
from netbench.model.traffic import NOTHING_SENT, Sent, Traffic, traffic_of

# The server checks for ports that have ended every 10 ms (CGlobalTRex::run_in_master), and is polled as often.
_END_NOTICED_S = 0.02
_POLL_S = 0.005
# A server whose client is gone stops by itself this long after a trial's longest duration, by its own clock.
_ABANDONED_S = 10.0
_BEGINS_LATER_NS = round(BEGINS_LATER_S * 1e9)


@dataclass(frozen=True, slots=True)
class _SendingTimes:
    """When the port was last seen sending, and first seen not to (None: never), in ns of CLOCK_MONOTONIC."""

    sending_ns: int
    ended_ns: int | None


@dataclass(frozen=True, slots=True)
class _Trial:
    """The traffic of a trial, the groups that count it, and their counts before."""

    traffic: Traffic
    groups: Groups
    before: dict[int, GroupCount]
    out_before: int | None  # frames that had left the interface before; None where not read


@dataclass(slots=True)
class PortSending:
    """A port owned by the worker, and the server if netbench started it; `halt` ends the sending of a trial."""

    session: TrexSession
    port: TrexPort
    server: OwnServer | None
    interface: str
    halt: Halt = field(default_factory=Halt)
    left_over: int = 0  # frames left in the ring of a server that netbench started
    _trial: _Trial | None = None

    def prepare(self, traffic: Traffic, template: FrameTemplate, delay_fps: float) -> None:
        """Load the streams of the next trial."""
        self.halt = Halt()
        out_before = None
        if self.server is not None:
            self.server.require_alive()
            out_before = self.server.sent_from(self.interface)
        groups = Groups(self.port.number, sizes_in(traffic.frame_size), delay_fps, genome_of(traffic.frame_size)[0])
        self.port.load(streams_of(traffic, template, groups))
        self._trial = _Trial(traffic, groups, self.session.counted(groups.all), out_before)

    def send(self, at_monotonic_ns: int) -> Sent:
        """Send the prepared trial, and end it here: TRex's own clock stands still while TRex is overloaded."""
        traffic, port = self._prepared.traffic, self.port
        self.halt.wait_until(at_monotonic_ns - _BEGINS_LATER_NS)
        if self.halt.is_set():
            return replace(NOTHING_SENT, error=self.halt.reason)
        first_ns, called_ns = time.time_ns() + _BEGINS_LATER_NS, time.monotonic_ns() + _BEGINS_LATER_NS
        port.start(BEGINS_LATER_S + traffic.longest_s + _ABANDONED_S)
        begun_ns = time.monotonic_ns() + _BEGINS_LATER_NS
        seen = self._watch(begun_ns)
        if seen.ended_ns is None:
            port.stop()
        ended_ns = time.monotonic_ns() if seen.ended_ns is None else seen.ended_ns
        frames, error = self.session.at_rest(self._sent_frames), self.halt.reason
        if seen.ended_ns is not None and frames != traffic.frames and not error:
            error = f"TRex ended early, after {frames:,} of {traffic.frames:,} frames: check its port and its link"
        duration_s, slot_s = max(0.0, ended_ns - called_ns) / 1e9, 0.0
        if frames == traffic.frames:
            # TRex ends with its last frame, not with that frame's slot. The slot is added by the intended rate, unless
            # this contradicts the observed times.
            slot_s = 1 / (traffic.later_fps or traffic.fps or 1.0)
            at_least_s = (seen.sending_ns - begun_ns) / 1e9 - _END_NOTICED_S + slot_s
            duration_s = max(at_least_s, min(traffic.duration_s, duration_s + slot_s))
        if self.server is not None and self._prepared.out_before is not None:
            left = self.server.sent_from(self.interface) - self._prepared.out_before
            self.left_over = max(0, frames - left)
            frames -= self.left_over
        return Sent(
            frames=frames,
            errors=0,
            duration_s=duration_s,
            first_ns=first_ns if frames else None,
            last_ns=first_ns + round((duration_s - slot_s) * 1e9) if frames else None,
            max_burst_frames=0,  # unknown
            max_lateness_s=max(0.0, duration_s - traffic.duration_s) if traffic.fps else 0.0,
            error=error,
            stamped=False,
            numbered=not self.groups.delay_fps,
        )

    @property
    def groups(self) -> Groups:
        """The groups of the last trial."""
        return self._prepared.groups

    def received_at(self, port: int) -> dict[int, int]:
        """Return how many frames of each group of the last trial have arrived at a port so far."""
        before, counted = self._prepared.before, self.session.counted(self.groups.all)
        return {group: count.received_since(before[group], port) for group, count in counted.items()}

    def close(self) -> None:
        """Clear and release the port."""
        self.port.close()

    def _sent_frames(self) -> int:
        before, counted = self._prepared.before, self.session.counted(self.groups.all)
        return sum(count.sent_since(before[group], self.port.number) for group, count in counted.items())

    def _watch(self, begun_ns: int) -> _SendingTimes:
        """Poll for the end of sending, from shortly before it is due until the longest duration is over."""
        traffic, sending_ns = self._prepared.traffic, begun_ns
        longest_s = traffic.duration_s if traffic.fps is None else traffic.longest_s
        last_ns = begun_ns + round(longest_s * 1e9)
        # Polling disturbs the server: not before the end is near.
        self.halt.sleep_until(begun_ns + round((traffic.duration_s - _END_NOTICED_S) * 1e9))
        while not self.halt.is_set() and (now_ns := time.monotonic_ns()) < last_ns:
            if traffic.fps is not None and not self.port.is_sending():
                return _SendingTimes(sending_ns, time.monotonic_ns())
            sending_ns = now_ns
            self.halt.sleep_until(min(last_ns, now_ns + round(_POLL_S * 1e9)))
        return _SendingTimes(sending_ns, None)

    @property
    def _prepared(self) -> _Trial:
        assert self._trial is not None, "prepare() comes first"
        return self._trial


class _StdoutToStderr(io.TextIOBase):
    """Redirects the client's output to stderr, because stdout is for replies; fileno() is still that of stdout."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def fileno(self) -> int:
        return 1


class TrexWorker:
    """A session with a server, which it may have started itself, and its acquired ports by interface."""

    def __init__(self, ending: ExitStack, settings: Mapping[str, Any], cpus: list[int]) -> None:
        """Connect to the server; MissingError where there is none, or none can be started."""
        ending.callback(self.end)  # also after a failure in this constructor
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
                template = FrameTemplate.from_json(request["template"])
                self._clean_port(interface).prepare(traffic_of(request["traffic"]), template, request["delay_fps"])
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

    def end(self) -> None:
        """Clear and release all ports; a server that this worker started is ended instead."""
        for port in self._ports.values():
            port.halt.set("the worker ended")
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

    def _clean_port(self, interface: str) -> PortSending:
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
            raise TestbedError(f"the frames of {of} cannot be counted: it is not a port of the same TRex server")
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
            raise TestbedError("the session with the TRex server has ended")
        return self._session


def _replying(request: Mapping[str, Any], done: Callable[[], Mapping[str, object]]) -> None:
    try:
        _reply(request, done())
    except NetbenchError as error:
        _reply(request, _failure_reply(error))
    except Exception as error:  # no caller of a thread could catch it
        _reply(request, {"failed": f"sending failed: {error!r}"})


def _failure_reply(error: Exception) -> Mapping[str, object]:
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
        _reply({}, _failure_reply(error))
        return
    _reply({}, {"ready": True, "version": worker.version})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            worker.do(request)
        except (OSError, NetbenchError) as error:
            _reply(request, _failure_reply(error))


def _main() -> None:
    def end(*_: object) -> None:
        raise SystemExit(0)

    # netbench handles Ctrl-C: the client would report it as an error of the server. SIGTERM comes from netbench, and
    # from the client when its thread crashes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end)
    sys.stdout = _StdoutToStderr()
    ending = ExitStack()
    try:
        _serve(ending)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with suppress(OSError):  # replies that cannot be delivered any more
            ending.close()


if __name__ == "__main__":
    _main()

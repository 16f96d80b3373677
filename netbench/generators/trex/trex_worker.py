"""The process of a `trex` source: `python -m netbench.generators.trex.trex_worker IFACE SETTINGS [CPU…]`.

It alone imports the client of TRex, whose yaml, scapy and zmq take the place of others' here. SETTINGS are a `Place`,
or the `path` of a package to start a server of, in JSON. When its stdin ends, whoever started it may be dead: it stops
the traffic, which a server would go on with.
"""

import io
import json
import os
import signal
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from netbench.generators.trex.own_server import OwnServer
from netbench.generators.trex.trex_port import Place, TrexPort
from netbench.generators.trex.trex_streams import streams_of
from netbench.generators.worker_process import Worker, serve
from netbench.model.traffic import Sent, Traffic

# The server looks for ports that have ended every 10 ms (CGlobalTRex::run_in_master), and is asked as often.
_TOLD_LATE_S = 0.02
_ASK_S = 0.005
# A server whose client is gone stops by itself so long after a trial's longest duration.
_LEFT_ALONE_S = 10.0


class _Apart(io.TextIOBase):
    """What the client prints goes to stderr: stdout, whose descriptor is still asked for here, is for replies."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def fileno(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class _Seen:
    """When it was last seen to send, and when first not to (None: never), in ns of CLOCK_MONOTONIC."""

    sending_ns: int
    ended_ns: int | None


class TrexWorker(Worker):
    """One port, taken until the process ends, and the server where that is its own."""

    _port: TrexPort | None = None
    _server: OwnServer | None = None
    _left_over = 0  # frames in the ring of its own server

    def __init__(self, ending: ExitStack, interface: str, settings: str, *cpus: str) -> None:
        ending.callback(self.leave)  # also of one that was opened only in part
        if cpus:
            os.sched_setaffinity(0, [int(cpu) for cpu in cpus])
        wanted = json.loads(settings)
        if "path" in wanted:
            self._start_server = partial(OwnServer, Path(wanted["path"]), interface, [int(cpu) for cpu in cpus])
            self._server = self._start_server()
            self._port = self._server.port()
        else:
            self._port = TrexPort(Place(**wanted))
        self.version = f"TRex {self._port.version}"

    def prepare(self, traffic: Traffic) -> None:
        self._traffic = traffic
        if self._server is not None:
            self._server.require_room_for(traffic.frame_size)
            if self._left_over:
                # They are late for any trial: they go with the server.
                self._server.close()
                self._server, self._left_over = self._start_server(), 0
                self._port = self._server.port()
            self._out_before = self._server.out_of_the_interface()
        self._taken.load(streams_of(traffic, self._taken.group))

    def send(self, at_monotonic_ns: int) -> Sent:
        """As TRex paces by a time of its own, which stands still while it is overloaded, the end is seen to here."""
        traffic, port = self._traffic, self._taken
        self.halt.wait_until(at_monotonic_ns)
        if self.halt.is_set():
            return Sent(0, 0, 0.0, None, None, 0, 0.0, self.halt.reason)
        first_ns, called_ns = time.time_ns(), time.monotonic_ns()
        port.start(traffic.longest_s + _LEFT_ALONE_S)
        begun_ns = time.monotonic_ns()
        seen = self._watch(begun_ns)
        if seen.ended_ns is None:
            port.stop()
        ended_ns = time.monotonic_ns() if seen.ended_ns is None else seen.ended_ns
        frames, error = port.sent_frames(), self.halt.reason
        if seen.ended_ns is not None and frames != traffic.frames and not error:
            error = f"TRex ended by itself after {frames:,} of {traffic.frames:,} frames: look at its port and its link"
        at_most_s = (ended_ns - called_ns) / 1e9
        at_least_s = (seen.sending_ns - begun_ns) / 1e9 - _TOLD_LATE_S
        # As its own rate has it, unless that does not go with what was seen.
        duration_s = at_most_s
        if frames == traffic.frames:
            duration_s = max(at_least_s, min(traffic.duration_s, at_most_s))
        if self._server is not None:
            self._left_over = max(0, frames - (self._server.out_of_the_interface() - self._out_before))
            frames -= self._left_over
        return Sent(
            frames=frames,
            errors=0,
            duration_s=duration_s,
            first_ns=first_ns if frames else None,
            last_ns=first_ns + round(duration_s * 1e9) if frames else None,
            max_burst_frames=0,  # not known
            max_lateness_s=max(0.0, duration_s - traffic.duration_s) if traffic.fps else 0.0,
            error=error,
            stamped=False,
        )

    def leave(self) -> None:
        """Give the port back, with nothing on it; a server of its own ends with all it has."""
        self.halt.set("the worker ends")
        if self._server is not None:
            self._server.close()
        elif self._port is not None:
            self._port.close()

    @property
    def _taken(self) -> TrexPort:
        assert self._port
        return self._port

    def _watch(self, begun_ns: int) -> _Seen:
        """Ask whether it has ended, from shortly before that is due, until it has or that was long enough."""
        traffic, sending_ns = self._traffic, begun_ns
        longest_s = traffic.duration_s if traffic.fps is None else traffic.longest_s
        last_ns = begun_ns + round(longest_s * 1e9)
        # Asking disturbs: not before the end is near.
        self.halt.sleep_until(begun_ns + round((traffic.duration_s - _TOLD_LATE_S) * 1e9))
        while not self.halt.is_set() and (now_ns := time.monotonic_ns()) < last_ns:
            if traffic.fps is not None and not self._taken.is_sending():
                return _Seen(sending_ns, time.monotonic_ns())
            sending_ns = now_ns
            self.halt.sleep_until(min(last_ns, now_ns + round(_ASK_S * 1e9)))
        return _Seen(sending_ns, None)


def _main() -> None:
    def end(*_: object) -> None:
        raise SystemExit(0)

    # Ctrl-C is netbench's to answer. SIGTERM comes from there too, and from the client, should its thread crash.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end)
    sys.stdout = _Apart()
    ending = ExitStack()
    try:
        serve(partial(TrexWorker, ending))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with suppress(OSError):  # what cannot be told any more
            ending.close()


if __name__ == "__main__":
    _main()

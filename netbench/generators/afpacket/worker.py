"""The process of an `afpacket` source: `python -m netbench.generators.afpacket.worker IFACE THREADS [CPU…]`.

It talks JSON, one object a line. The first reply, to no request, says that its sockets are open:

    → {"do": "prepare", "traffic": {…}}       ← {"ready": true} or {"failed": "why"}
    → {"do": "start", "at_monotonic_ns": n}   ← {"sent": {…}} when sending has ended
    → {"do": "stop"}                          ends sending early; the reply to `start` says so

It ends when its stdin does. Only numpy and the standard library are imported here: it starts quickly.
"""

import errno
import json
import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict

from netbench.generators.afpacket.sending import Trial
from netbench.model.traffic import Traffic

# linux/if_packet.h; the socket module does not name them.
_SOL_PACKET = 263
_PACKET_QDISC_BYPASS = 20


class _Worker:
    """One interface's sockets, kept open across trials, and the trial at hand."""

    def __init__(self, interface: str, threads: int, cpus: Sequence[int]) -> None:
        self._interface = interface
        self._cpus = cpus
        if cpus:
            os.sched_setaffinity(0, cpus)
        self._sockets = [_open_socket() for _ in range(threads)]
        self._bind()
        self._trial: Trial | None = None
        self._sending: threading.Thread | None = None

    def prepare(self, traffic: Traffic) -> None:
        """Build the frames of a trial; OSError when the interface is not there (any more)."""
        self._bind()
        self._trial = Trial(traffic, [each.fileno() for each in self._sockets], self._cpus)

    def start(self, at_monotonic_ns: int) -> None:
        """Send what is prepared; its end is told by a reply."""

        def send(trial: Trial) -> None:
            _reply({"sent": asdict(trial.run(at_monotonic_ns))})

        self._sending = threading.Thread(target=send, args=(self._trial,))
        self._sending.start()

    def stop(self, reason: str) -> None:
        """End the trial at hand, if there is one; returns when nothing more is sent."""
        if self._trial is not None:
            self._trial.halt.set(reason)
        if self._sending is not None:
            self._sending.join()

    def _bind(self) -> None:
        # Again for each trial: an interface of the same name may have taken the place of the first.
        for each in self._sockets:
            each.bind((self._interface, 0))


def _open_socket() -> socket.socket:
    """A socket that receives nothing (protocol 0, see packet(7)) and sends past the queueing disciplines."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
    return opened


def _explain(error: OSError) -> str:
    match error.errno:
        case errno.EPERM:
            return "opening a packet socket needs root or CAP_NET_RAW"
        case errno.ENODEV:
            return "there is no such interface"
        case errno.EINVAL:
            return "none of the CPUs it is to be pinned to is usable here"
        case _:
            return str(error)


def _reply(message: Mapping[str, object]) -> None:
    with suppress(BrokenPipeError):  # nobody listens any more: stdin will tell
        os.write(sys.stdout.fileno(), json.dumps(message).encode() + b"\n")


def main(arguments: Sequence[str]) -> None:
    """Serve requests until stdin ends."""
    interface, threads, *cpus = arguments
    try:
        worker = _Worker(interface, int(threads), [int(cpu) for cpu in cpus])
    except OSError as error:
        _reply({"failed": _explain(error)})
        return
    _reply({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        match request["do"]:
            case "prepare":
                try:
                    worker.prepare(Traffic(**request["traffic"]))
                except OSError as error:
                    _reply({"failed": _explain(error)})
                else:
                    _reply({"ready": True})
            case "start":
                worker.start(request["at_monotonic_ns"])
            case "stop":
                worker.stop("stopped before its end")
    worker.stop("netbench went away")


if __name__ == "__main__":
    main(sys.argv[1:])

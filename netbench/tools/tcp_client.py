"""The client of the tools `http` and `connect`: `python -m netbench.tools.tcp_client SETTINGS`, which is JSON.

It sends GET requests, or only connects, and prints counts, errors by kind, payload, and times as steps
of a distribution, in JSON. It runs on the client's host: it needs the standard library alone.
"""

import json
import os
import select
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from netbench.model.logarithmic_steps import middle_of, step_of
from netbench.tools.client_load import Figures, LoopSettings
from netbench.tools.client_loop import SO_TIMESTAMPNS, ClientConnection, Loop, kind_of
from netbench.tools.http_response import Response
from netbench.tools.sealed_output import sealed

_BUFFER_BYTES = 1 << 18
_EXTRA_BYTES = 64
_TIMESPEC = struct.Struct("qq")
# tcpi_rtt and tcpi_total_retrans of struct tcp_info (linux/tcp.h).
_RTT_AT, _REPEATED_AT, _INFO_BYTES = 68, 100, 104


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The work of the client: `loop` has its load; without a `path` it only connects."""

    loop: LoopSettings
    path: str = ""
    keep_alive: bool = True

    @property
    def as_argument(self) -> str:
        """The argument of the client."""
        return json.dumps(asdict(self))

    @staticmethod
    def of(argument: str) -> "ClientSettings":
        """Return the settings in the argument of the client."""
        values = json.loads(argument)
        return ClientSettings(**(values | {"loop": LoopSettings(**values["loop"])}))


@dataclass(slots=True)
class _Exchange:
    """Constants of all connections, and the server's name as it replied."""

    request: bytes
    keep_alive: bool
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(_BUFFER_BYTES)))
    server: str = ""


class _Connecting(ClientConnection):
    """Connects, and closes the connection at once."""

    __slots__ = ()

    def start(self, loop: Loop) -> None:
        loop.complete(self, keep=False, after_ns=handshake_ns(self.socket))

    def proceed(self, loop: Loop, mask: int) -> None:
        return


class _Requesting(ClientConnection):
    """Sends requests, and receives their responses."""

    __slots__ = ("_exchange", "_response", "_unsent")

    def __init__(self, settings: LoopSettings, exchange: _Exchange) -> None:
        super().__init__(settings.address, settings.port)
        self._exchange = exchange
        self._response = Response()
        self._unsent = b""

    def start(self, loop: Loop) -> None:
        self._response = Response()
        self._unsent = self._exchange.request
        self._send(loop)

    def proceed(self, loop: Loop, mask: int) -> None:
        if mask & select.EPOLLOUT and self._unsent:
            self._send(loop)
        elif mask & ~select.EPOLLOUT:
            self._receive(loop)

    def _send(self, loop: Loop) -> None:
        try:
            sent = self.socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            loop.fail(self, kind_of(error.errno))
            return
        loop.count_sent(self, sent)
        self._unsent = self._unsent[sent:]
        loop.await_events(self, select.EPOLLIN | select.EPOLLOUT if self._unsent else select.EPOLLIN)

    def _receive(self, loop: Loop) -> None:
        buffer = self._exchange.buffer
        try:
            size, extras, _, _ = self.socket.recvmsg_into([buffer], _EXTRA_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if self.operation is None:
                loop.forget_idle(self)
            else:
                loop.fail(self, kind_of(error.errno))
            return
        loop.count_received(self, size)
        if self.operation is None:  # the server closes the connection, or sends what was not requested
            loop.forget_idle(self)
            return
        response = self._response
        if size:
            response.feed(buffer[:size])
        else:
            response.end()
        if not response.has_ended:
            return
        self._exchange.server = self._exchange.server or response.server
        keep = self._exchange.keep_alive and response.is_reusable and not self._unsent
        if response.error:
            loop.fail(self, response.error, keep=keep)
        else:
            loop.complete(self, keep=keep, arrived_ns=arrival_ns(extras))


def arrival_ns(extras: list[tuple[int, int, bytes]]) -> int | None:
    """Return when the kernel received the latest bytes (CLOCK_REALTIME in ns); None if it does not report that.

    The client itself may get a CPU much later: that delay is its own.
    """
    for level, kind, value in extras:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS) and len(value) == _TIMESPEC.size:
            seconds, ns = _TIMESPEC.unpack(value)
            return int(seconds * 1_000_000_000 + ns)
    return None


def handshake_ns(connected: socket.socket) -> int | None:
    """Return the time from SYN to SYN/ACK in ns, as the kernel measured it in µs; None if it repeated the SYN."""
    info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    if len(info) < _INFO_BYTES:
        return None
    rtt_us, repeated = (int.from_bytes(info[at : at + 4], sys.byteorder) for at in (_RTT_AT, _REPEATED_AT))
    return 1000 * rtt_us if rtt_us and not repeated else None


def session_maker(settings: ClientSettings, exchange: _Exchange) -> Callable[[], ClientConnection]:
    """Return the function that makes the client's connections."""
    if settings.path:
        return lambda: _Requesting(settings.loop, exchange)
    return lambda: _Connecting(settings.loop.address, settings.loop.port)


def times(values_ns: Sequence[int]) -> dict[str, object]:
    """Return the distribution of times, in ns, for the output."""
    counts = Counter(map(step_of, values_ns))
    return {
        "steps": [(middle_of(step), counts[step]) for step in sorted(counts)],
        "total_ns": sum(values_ns),
        "smallest_ns": min(values_ns, default=None),
        "largest_ns": max(values_ns, default=None),
    }


def output_of(figures: Figures, server: str) -> dict[str, object]:
    """Return the output of the client. Its keys are those that `client_output.py` reads."""
    return {
        "python": sys.version.split()[0],
        "server": server,
        "intended": figures.intended,
        "started": figures.started,
        "completed": figures.completed,
        "completed_in_time": figures.completed_in_time,
        "errors": dict(sorted(figures.errors.items())),
        "connections": figures.connections,
        "to_server_bytes": figures.to_server,
        "to_client_bytes": figures.to_client,
        "run_to_server_bytes": figures.run_to_server,
        "run_to_client_bytes": figures.run_to_client,
        "cpu_share": round(figures.cpu_share, 4),
        "response": times(figures.response_ns),
        "service": times(figures.service_ns),
        "late": times(figures.late_ns),
    }


def main() -> None:
    """Run the client that the first argument describes, and print its figures."""
    settings = ClientSettings.of(sys.argv[1])
    loop = settings.loop
    if loop.rate and not loop.shares_cpu:
        _take_precedence()
    host = f"[{loop.address}]" if ":" in loop.address else loop.address
    fields = f"Host: {host}:{loop.port}\r\n" + ("" if settings.keep_alive else "Connection: close\r\n")
    exchange = _Exchange(f"GET {settings.path} HTTP/1.1\r\n{fields}\r\n".encode(), settings.keep_alive)
    figures = Loop(loop, session_maker(settings, exchange)).run()
    sys.stdout.write(sealed(output_of(figures, exchange.server)))


def _take_precedence() -> None:
    """Run before all other programs on a CPU, where that is allowed (sched(7)).

    A client that sends at a rate sleeps most of the time. It must not wait for a CPU when a request is due.
    """
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


if __name__ == "__main__":
    main()

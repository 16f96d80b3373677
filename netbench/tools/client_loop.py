"""Operations of a client over TCP, each started at its intended time: connections, deadlines, and the times of both.

Open loop: operations start at times that were fixed before, however late earlier ones are answered. Otherwise the
times during a stall would be missing ("coordinated omission": Tene, How NOT to Measure Latency, 2013). Closed loop: N
clients, each of which starts its next operation a think time after the last one ended.

It runs on the client's host: it needs the standard library alone.
"""

import errno
import gc
import os
import resource
import select
import socket
import struct
import time
from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from pathlib import Path
from random import Random

from netbench.tools.client_load import Figures, LoopSettings

_NS = 1_000_000_000
_KINDS = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
    errno.ETIMEDOUT: "timeout",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
}
TIMEOUT = "timeout"
# A connection that is closed at once by a RST leaves no port in TIME_WAIT: a client has 28,000 ports for each server.
_CLOSE_AT_ONCE = struct.pack("ii", 1, 0)
_NEVER_NS = 1 << 62
_NO_CLIENT = -1
_SPARE_FILES = 64
SO_TIMESTAMPNS = 35  # asm-generic/socket.h: the time of arrival with each recvmsg(2)


class Operation:
    """One operation, such as a request; times are CLOCK_MONOTONIC in ns, 0 for not yet."""

    __slots__ = ("client", "deadline_ns", "has_ended", "intended_ns", "is_measured", "session", "started_ns")

    def __init__(self, intended_ns: int, deadline_ns: int, client: int, *, is_measured: bool) -> None:
        self.intended_ns = intended_ns
        self.deadline_ns = deadline_ns
        self.client = client
        self.is_measured = is_measured
        self.started_ns = 0
        self.has_ended = False
        self.session: ClientConnection | None = None  # None also while it waits for one


class ClientConnection(ABC):
    """A connection of the client, and the operation on it. Subclasses send and receive."""

    __slots__ = ("descriptor", "is_connected", "mask", "operation", "socket")

    def __init__(self, address: str, port: int) -> None:
        self.operation: Operation | None = None
        self.is_connected = False
        self.mask = select.EPOLLIN | select.EPOLLOUT  # the events that it waits for
        self.socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.descriptor = self.socket.fileno()
        if (number := self.socket.connect_ex((address, port))) not in (0, errno.EINPROGRESS):
            self.socket.close()
            raise OSError(number, os.strerror(number))

    @abstractmethod
    def start(self, loop: "Loop") -> None:
        """Start its operation, over the connection."""

    @abstractmethod
    def proceed(self, loop: "Loop", mask: int) -> None:
        """Receive or send what the events of epoll in `mask` allow."""

    def handle(self, loop: "Loop", mask: int) -> None:
        """Handle events of epoll."""
        if self.is_connected:
            self.proceed(loop, mask)
        elif number := self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            loop.fail(self, kind_of(number))
        else:
            self.is_connected = True
            self.start(loop)

    def close(self) -> None:
        """Close it at once, without TIME_WAIT."""
        with suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSE_AT_ONCE)
        self.socket.close()


class Loop:
    """Runs operations on sessions. A session calls `complete` or `fail` when its operation has ended."""

    def __init__(self, settings: LoopSettings, new_session: Callable[[], ClientConnection]) -> None:
        self.figures = Figures()
        self._settings = settings
        self._new_session = new_session
        self._most_sessions = settings.connections if settings.rate else settings.clients
        self._epoll = select.epoll()
        self._sessions: dict[int, ClientConnection] = {}
        self._idle: list[ClientConnection] = []
        self._waiting: deque[Operation] = deque()  # for a connection
        self._pending: deque[Operation] = deque()  # by deadline, as they start in order
        self._thinking: list[tuple[int, int]] = []  # a heap: next start in ns, and number of the client
        self._timeout_ns = round(settings.timeout_s * _NS)
        self._random = Random(settings.seed)
        self._measured_from_ns = self._end_ns = self._realtime_ahead_ns = 0

    def run(self) -> Figures:
        """Run all operations, and wait for the outstanding ones until their deadlines."""
        settings = self._settings
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = self._most_sessions + _SPARE_FILES
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, wanted)), hard))
        with suppress(OSError):  # otherwise each wait takes up to 50 µs longer (prctl(2), PR_SET_TIMERSLACK)
            Path("/proc/self/timerslack_ns").write_text("1")
        offsets = settings.starts_ns() if settings.rate else array("q")
        gc.collect()
        gc.freeze()
        gc.disable()
        cpu, begin = time.process_time_ns(), time.monotonic_ns()
        self._realtime_ahead_ns = time.time_ns() - time.monotonic_ns()
        self._end_ns = begin + round(settings.duration_s * _NS)
        self._measured_from_ns = begin + round(settings.warm_up_s * _NS)
        if not settings.rate:
            self._thinking = sorted(
                (begin + delay_ns, client) for client, delay_ns in enumerate(self._first_thinks_ns())
            )
        self._loop(begin, offsets)
        self.figures.cpu_share = (time.process_time_ns() - cpu) / (time.monotonic_ns() - begin)
        for session in list(self._sessions.values()):
            self._drop(session)
        self._epoll.close()
        return self.figures

    def _first_thinks_ns(self) -> list[int]:
        """Return when each client of a closed loop begins: together they would come in waves.

        They are spread over a think time, or drawn as later think times are, so that the rate is steady from the start.
        """
        think_ns, clients = self._settings.think_time_s * _NS, self._settings.clients
        if self._settings.poisson and think_ns:
            return [round(self._random.expovariate(1 / think_ns)) for _ in range(clients)]
        return [round(client * think_ns / clients) for client in range(clients)]

    def complete(
        self, session: ClientConnection, *, keep: bool, arrived_ns: int | None = None, after_ns: int | None = None
    ) -> None:
        """End a session's operation, which has succeeded. With `keep` the connection is used again.

        It ended when its last bytes arrived (CLOCK_REALTIME), or `after_ns` from its start; now, if both are unknown.
        """
        now, operation = time.monotonic_ns(), session.operation
        assert operation is not None
        figures, end = self.figures, now
        if arrived_ns is not None:
            end = arrived_ns - self._realtime_ahead_ns
        elif after_ns is not None:
            end = operation.started_ns + after_ns
        if not operation.started_ns <= end <= now:  # the clock was set
            end = now
        figures.completed_in_time += self._measured_from_ns <= end < self._end_ns
        if operation.is_measured:
            figures.completed += 1
            figures.response_ns.append(end - operation.intended_ns)
            figures.service_ns.append(end - operation.started_ns)
        self._finish(operation, now)
        self._release(session, keep=keep)

    def fail(self, session: ClientConnection, kind: str, *, keep: bool = False) -> None:
        """End a session's operation, which has failed."""
        operation = session.operation
        assert operation is not None
        self._count_error(operation, kind)
        self._release(session, keep=keep)

    def forget_idle(self, session: ClientConnection) -> None:
        """Close a session whose connection the server has closed between operations."""
        with suppress(ValueError):
            self._idle.remove(session)
        self._drop(session)

    def count_sent(self, session: ClientConnection, size: int) -> None:
        """Count bytes of payload that were sent for a session's operation."""
        self.figures.run_to_server += size
        if session.operation is not None and session.operation.is_measured:
            self.figures.to_server += size

    def count_received(self, session: ClientConnection, size: int) -> None:
        """Count bytes of payload that arrived on a session."""
        self.figures.run_to_client += size
        if session.operation is not None and session.operation.is_measured:
            self.figures.to_client += size

    def await_events(self, session: ClientConnection, mask: int) -> None:
        """Let epoll report these events of a session from now on."""
        if session.mask != mask:
            session.mask = mask
            self._epoll.modify(session.descriptor, mask)

    def _loop(self, begin: int, offsets: "array[int]") -> None:
        clock, poll, epoll, sessions = time.monotonic_ns, self._epoll.poll, [self._epoll.fileno()], self._sessions
        thinking, pending, waiting = self._thinking, self._pending, self._waiting
        number, last = 0, len(offsets)
        next_ns = begin + offsets[0] if last else _NEVER_NS
        while True:
            now = clock()
            while pending and (pending[0].has_ended or pending[0].deadline_ns <= now):
                self._expire(pending.popleft())
            while waiting and (self._idle or len(sessions) < self._most_sessions):
                self._start(waiting.popleft())
            while next_ns <= now:
                self._begin(next_ns, _NO_CLIENT)
                number += 1
                next_ns = begin + offsets[number] if number < last else _NEVER_NS
            while thinking and thinking[0][0] <= now:
                self._begin(*heappop(thinking))
            events = poll(0)
            if not events:
                until_ns = min(
                    next_ns,
                    thinking[0][0] if thinking else _NEVER_NS,
                    pending[0].deadline_ns if pending else _NEVER_NS,
                )
                if until_ns == _NEVER_NS:
                    return
                # epoll_wait(2) counts in ms, select(2) in µs. A descriptor of epoll is readable when it has events.
                if (left_ns := until_ns - clock()) > 0:
                    select.select(epoll, (), (), left_ns / _NS)
                    events = poll(0)
            for descriptor, mask in events:
                if (session := sessions.get(descriptor)) is not None:
                    session.handle(self, mask)

    def _begin(self, intended_ns: int, client: int) -> None:
        """Start an operation that is due, or let it wait for a connection."""
        is_measured = intended_ns >= self._measured_from_ns
        operation = Operation(intended_ns, intended_ns + self._timeout_ns, client, is_measured=is_measured)
        self._pending.append(operation)
        self.figures.intended += is_measured
        if self._waiting or not (self._idle or len(self._sessions) < self._most_sessions):
            self._waiting.append(operation)
            return
        if is_measured:
            self.figures.late_ns.append(time.monotonic_ns() - intended_ns)
        self._start(operation)

    def _start(self, operation: Operation) -> None:
        """Start an operation on an idle connection, or else on a new one."""
        if operation.has_ended:  # at its deadline, while it waited
            return
        operation.started_ns = time.monotonic_ns()
        self.figures.started += operation.is_measured
        if self._idle:
            session = self._idle.pop()
        else:
            try:
                session = self._new_session()
            except OSError as error:
                self._count_error(operation, kind_of(error.errno))
                return
            self.figures.connections += 1
            self._sessions[session.descriptor] = session
            self._epoll.register(session.descriptor, session.mask)
        session.operation, operation.session = operation, session
        if session.is_connected:
            session.start(self)

    def _expire(self, operation: Operation) -> None:
        if operation.has_ended:
            return
        session = operation.session
        if session is None:
            self._count_error(operation, TIMEOUT)
        else:
            self.fail(session, TIMEOUT)

    def _count_error(self, operation: Operation, kind: str) -> None:
        if operation.is_measured:
            self.figures.errors[kind] += 1
            if kind == TIMEOUT:  # its response time is at least this long: without it the slowest would be left out
                self.figures.response_ns.append(operation.deadline_ns - operation.intended_ns)
        self._finish(operation, time.monotonic_ns())

    def _finish(self, operation: Operation, now: int) -> None:
        operation.has_ended, operation.session = True, None
        if operation.client == _NO_CLIENT:
            return
        think_ns = self._settings.think_time_s * _NS
        if self._settings.poisson and think_ns:
            think_ns = self._random.expovariate(1 / think_ns)
        if (next_ns := now + round(think_ns)) < self._end_ns:
            heappush(self._thinking, (next_ns, operation.client))

    def _release(self, session: ClientConnection, *, keep: bool) -> None:
        session.operation = None
        if keep:
            self._idle.append(session)
        else:
            self._drop(session)

    def _drop(self, session: ClientConnection) -> None:
        del self._sessions[session.descriptor]
        session.close()


def kind_of(number: int | None) -> str:
    """Return the kind of an error of connect(2), send(2) or recv(2)."""
    return _KINDS.get(number or 0) or errno.errorcode.get(number or 0, "unknown").lower()

"""The controller's end of the channel to the agent in a guest: commands, files and clocks of the guest."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from queue import Empty, SimpleQueue
from typing import NamedTuple

from netbench.errors import TestbedError
from netbench.hosts.base import Completed, GoneError, refusal
from netbench.hosts.clock import wait_until
from netbench.hosts.guest_agent.program import HEADER, LONGEST_BODY, VERSION
from netbench.model.foreign_text import decoded, encoded

# Maximum output of a command, and maximum size of a file that is read as a whole, except captures.
LONGEST_ANSWER = 64 << 20
_PIECE_BYTES = 1 << 16
_HELLO_AGAIN_S = 0.2
_ANSWER_S = 20.0
_NONCE = b"netbench"


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its kind (one byte, see `program.py`), the number of its process or file, and its body."""

    kind: bytes
    number: int
    body: bytes

    def encode(self) -> bytes:
        """Return the bytes for the channel."""
        return HEADER.pack(self.kind, self.number, len(self.body)) + self.body


class Decoder:
    """Assembles whole messages from bytes."""

    def __init__(self) -> None:
        self._unread = bytearray()

    def take(self, data: bytes) -> None:
        """Add bytes."""
        self._unread += data

    def messages(self) -> list[Message]:
        """Return the messages that have become complete; ValueError for one that exceeds the maximum length."""
        messages = []
        while len(self._unread) >= HEADER.size:
            kind, number, length = HEADER.unpack_from(self._unread)
            if length > LONGEST_BODY:
                raise ValueError(f"a message of {length} bytes")
            end = HEADER.size + length
            if len(self._unread) < end:
                break
            messages.append(Message(kind, number, bytes(self._unread[HEADER.size : end])))
            del self._unread[:end]
        return messages

    def skip_to(self, mark: bytes) -> bool:
        """Drop the bytes before `mark`; return whether it was found."""
        position = self._unread.find(mark)
        possible_start = len(self._unread) - len(mark) + 1  # a possible beginning of the mark is kept
        del self._unread[: position if position >= 0 else max(possible_start, 0)]
        return position >= 0


# The channel's thread calls it with each answer, and with None when there will be no more: it must not block.
Handler = Callable[[Message | None], None]


class NoAnswerError(TestbedError):
    """An answer did not come in time."""


class Clocks(NamedTuple):
    """CLOCK_MONOTONIC and CLOCK_REALTIME of a guest, in ns, read together."""

    monotonic_ns: int
    realtime_ns: int


class AgentChannel:
    """A connection to the agent of one machine over a connected stream socket; messages name it `machine`.

    Every method raises TestbedError, with that name, when no answer comes in time, and GoneError when the channel is
    gone. One thread sends and another receives, so that neither end ever waits for the other to read.
    """

    def __init__(self, machine: str, connected: socket.socket) -> None:
        self.machine = machine
        self.given_up = ""  # why the controller gave it up, for messages; empty if it has gone by itself
        self._socket = connected
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._lock = threading.Lock()  # for the handlers and `_gone`
        self._handlers: dict[int, Handler] = {}
        self._gone = ""
        self._numbers = count(1)
        self._greeting = b""
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send_all, self._receive_all)]
        for thread in self._threads:
            thread.start()

    def hello(self, timeout_s: float, hopeless: Callable[[], str] = str) -> None:
        """Return once the agent answers; TestbedError when it does not, or as soon as `hopeless` returns the cause."""
        answered = threading.Event()
        number = self.expect(lambda message: answered.set())
        self._greeting = Message(b"H", number, _NONCE + b" " + VERSION).encode()

        def answers() -> bool:
            if answered.wait(_HELLO_AGAIN_S):
                return True
            if why := hopeless():
                raise TestbedError(why)
            self.send(b"H", number, _NONCE)
            return False

        try:
            if not wait_until(answers, timeout_s, 0.0):
                raise TestbedError(f"{self.machine} did not answer within {timeout_s:g} s of its start")
        finally:
            self.forget(number)
        self._refuse_gone()

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = _ANSWER_S) -> Completed:
        """Run a command to its end."""
        command = f"`{' '.join(argv)}`"
        written = {b"O": bytearray(), b"S": bytearray()}

        def last(message: Message) -> bool:
            if message.kind in written:
                written[message.kind] += message.body
                return sum(map(len, written.values())) > LONGEST_ANSWER
            return True

        with self._request(last) as (number, answer):
            self.send(b"R", number, encoded_command(argv))
            for start in range(0, len(stdin), LONGEST_BODY):
                self.send(b"I", number, stdin[start : start + LONGEST_BODY])
            self.send(b"I", number, b"")
            try:
                ending = answer(timeout_s, f"{command} did not end")
            except TestbedError:
                with suppress(TestbedError):  # the cause is raised below
                    self.send(b"K", number, b"9")
                raise
        if ending.kind in written:
            self.send(b"K", number, b"9")
            raise TestbedError(f"{self.machine}: {command} printed too much: more than {LONGEST_ANSWER >> 20} MiB")
        if ending.kind == b"F":
            raise refusal(f"{self.machine}: {command} cannot start", decoded(ending.body))
        stdout, stderr = (decoded(bytes(written[kind])) for kind in (b"O", b"S"))
        return Completed(tuple(argv), int(ending.body), stdout, stderr)

    def get(self, path: str, timeout_s: float = _ANSWER_S, most: int = LONGEST_ANSWER) -> bytes:
        """Return the content of a file of at most `most` bytes."""
        read = bytearray()

        def last(message: Message) -> bool:
            read.extend(message.body)
            return message.kind == b"F" or not message.body or len(read) > most

        self._transfer(b"G", path, encoded(path), last, timeout_s, "read")
        if len(read) > most:
            why = f"it sent more than {most >> 20} MiB of {path}, which has no end"
            self.give_up(why)  # it would continue to send
            raise GoneError(f"{self.machine}: {why}")
        return bytes(read)

    def put(self, path: str, data: bytes, timeout_s: float = _ANSWER_S) -> None:
        """Write a file, in one write(2) if the guest's kernel accepts it in one."""
        self._transfer(b"P", path, encoded(path) + b"\0" + data, lambda message: True, timeout_s, "written")

    def clocks(self, timeout_s: float = _ANSWER_S) -> Clocks:
        """Return the guest's clocks now."""
        with self._request(lambda message: True) as (number, answer):
            self.send(b"C", number, b"")
            monotonic, realtime = answer(timeout_s, "no answer about its clocks").body.split()
        return Clocks(int(monotonic), int(realtime))

    def request(self, kind: bytes, body: bytes, timeout_s: float = _ANSWER_S) -> bytes:
        """Return the answer to a message of a kind that not all agents support; TestbedError with its error message."""
        with self._request(lambda message: True) as (number, answer):
            self.send(kind, number, body)
            message = answer(timeout_s, "no answer")
        if message.kind == b"F":
            raise refusal(self.machine, decoded(message.body))
        return message.body

    def give_up(self, why: str) -> None:
        """Treat the guest as gone: all pending and further requests fail at once, with the cause `why`."""
        self._lose(why, by_us=True)

    def close(self) -> None:
        """Close the channel; harmless when called twice."""
        self._lose("its channel was closed")
        for thread in self._threads:
            thread.join()
        self._socket.close()

    def expect(self, handler: Handler) -> int:
        """Return a new number, whose answers go to `handler`; a gone channel calls `handler` with None at once."""
        with self._lock:
            number = next(self._numbers)
            gone = self._gone
            if not gone:
                self._handlers[number] = handler
        if gone:
            handler(None)
        return number

    def forget(self, number: int) -> None:
        """Stop passing on the answers to a number."""
        with self._lock:
            self._handlers.pop(number, None)

    def send(self, kind: bytes, number: int, body: bytes) -> None:
        """Queue a message for sending."""
        self._refuse_gone()
        self._outgoing.put(Message(kind, number, body).encode())

    def _transfer(
        self, kind: bytes, path: str, body: bytes, last: Callable[[Message], bool], timeout_s: float, verb: str
    ) -> None:
        with self._request(last) as (number, answer):
            self.send(kind, number, body)
            ending = answer(timeout_s, f"{path} was not {verb}")
        if ending.kind == b"F":
            raise refusal(f"{self.machine}: {path} cannot be {verb}", decoded(ending.body))

    @contextmanager
    def _request(self, last: Callable[[Message], bool]) -> Iterator[tuple[int, Callable[[float, str], Message]]]:
        """Yield a request number, and a function that waits for its last answer, which `last` recognises."""
        ending: SimpleQueue[Message | None] = SimpleQueue()
        number = self.expect(lambda message: ending.put(message) if message is None or last(message) else None)

        def answer(timeout_s: float, failure: str) -> Message:
            try:
                message = ending.get(timeout=timeout_s)
            except Empty:
                raise NoAnswerError(f"{self.machine}: {failure} within {timeout_s:g} s") from None
            if message is None:
                raise GoneError(f"{self.machine}: {self._gone}")
            return message

        try:
            yield number, answer
        finally:
            self.forget(number)

    def _refuse_gone(self) -> None:
        if self._gone:
            raise GoneError(f"{self.machine}: {self._gone}")

    def _lose(self, why: str, *, by_us: bool = False) -> None:
        with self._lock:
            if self._gone:
                return
            self._gone = why
            if by_us:
                self.given_up = f"{self.machine}: {why}"
            handlers = list(self._handlers.values())
            self._handlers.clear()
        for handler in handlers:
            handler(None)
        self._outgoing.put(None)
        with suppress(OSError):  # the other end has gone already
            self._socket.shutdown(socket.SHUT_RDWR)

    def _send_all(self) -> None:
        while (message := self._outgoing.get()) is not None:
            try:
                self._socket.sendall(message)
            except OSError:
                return self._lose("it is gone")
        return None

    def _receive_all(self) -> None:
        decoder = Decoder()
        in_step = False
        while True:
            try:
                data = self._socket.recv(_PIECE_BYTES)
            except OSError:
                data = b""
            if not data:
                return self._lose("it is gone")
            decoder.take(data)
            # Bytes before the answer to our hello are for an earlier controller, or output of a console.
            in_step = in_step or decoder.skip_to(self._greeting)
            try:
                for message in decoder.messages() if in_step else ():
                    with self._lock:
                        handler = self._handlers.get(message.number)
                    if handler:
                        handler(message)
            except ValueError as error:
                return self._lose(f"its agent sent malformed data: {error}")


def encoded_command(argv: Sequence[str]) -> bytes:
    """Return a command in the encoding of the agent."""
    return b"".join(encoded(word) + b"\0" for word in argv)

"""The agent inside a guest: runs commands and moves files for netbench, over one byte channel.

    python3 -I -S agent.py CHANNEL        CHANNEL: virtio:NAME, the path of a raw terminal, or fd:N

It imports only small modules of the standard library, and nothing of netbench. Messages have a header of kind (one
byte), number (of a process or file, chosen by the controller) and length of the body, in network order, then the body.

    from the controller                       from the guest
    H  hello; body: a nonce                   H  the same nonce, and the protocol's version
    R  run; body: words, each ended by NUL    E  exit code, or -N when signal N ended it, as text
    I  to its stdin; empty: end of input      O, S  of its stdout, its stderr; empty: ended
    K  signal to its process group; body: its number as text
    G  get the file the body names            D  its bytes in pieces, then an empty one; or
    P  put: path, NUL, bytes                  F  failed: the errno's text. An empty D ends a put
    C  clocks                                 C  CLOCK_MONOTONIC, CLOCK_REALTIME, in ns, as text

A hello ends all processes: a new controller finds none of an earlier one.
"""

import errno
import os
import selectors
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from glob import glob

VERSION = b"1"
HEADER = struct.Struct("!cII")
LONGEST_BODY = 1 << 24
_PIECE_BYTES = 1 << 16
_NO_CONTROLLER_S = 0.1
_FULL_S = 0.001
_POLL_S = 0.5
# A message that arrives more slowly than this was none: its length was a mistake.
_STALLED_S, _SLOWEST_BYTES_PER_S = 10.0, 1000
_MOST_PIECES = 64  # of an ended process's output, because a child of it may still write to the pipe

_OUTLETS = (("stdout", b"O"), ("stderr", b"S"))


class AgentProcess:
    """A running command: its pid, and this end of its open pipes."""

    def __init__(self, argv: list[bytes]) -> None:
        self.pipes: dict[str, int] = {}
        stdin, self.pipes["stdin"] = os.pipe()
        self.pipes["stdout"], stdout = os.pipe()
        self.pipes["stderr"], stderr = os.pipe()
        self.unwritten = bytearray()
        self.input_ended = False
        actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate((stdin, stdout, stderr))]
        try:
            # In its own session, so that a signal reaches the processes it starts, too.
            self.pid = os.posix_spawnp(
                argv[0], argv, os.environ, file_actions=actions, setsid=True, setsigdef=[signal.SIGPIPE]
            )
        except OSError:
            for fd in self.pipes.values():
                os.close(fd)
            raise
        finally:
            for fd in (stdin, stdout, stderr):
                os.close(fd)
        os.set_blocking(self.pipes["stdin"], False)


class Agent:
    """Serves one channel until it ends."""

    kinds = b"HRIKGPC"  # of messages that it supports

    def __init__(
        self, channel: int, *, comes_back: bool, outlet: int | None = None, silence_s: float | None = None
    ) -> None:
        """`comes_back`: the channel reads as ended only while no controller is connected, as a virtio port does.

        `outlet` is the descriptor for writing, if it is not the channel. A controller that sends nothing, or reads
        nothing, for longer than `silence_s` has gone (None: never).
        """
        self._channel = channel
        self._outgoing = channel if outlet is None else outlet
        self._comes_back = comes_back
        self._silence_s = silence_s
        if silence_s is not None:
            os.set_blocking(self._outgoing, False)
        self._heard_s = time.monotonic()
        self._received = bytearray()
        self._begun_s = self._heard_s  # when the incomplete message began
        self._selector = selectors.DefaultSelector()
        self._processes: dict[int, AgentProcess] = {}
        self._files: dict[int, int] = {}  # being read, piece by piece
        self._open = True
        wake, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(wake, selectors.EVENT_READ, lambda _: self._reap(wake))
        self._selector.register(channel, selectors.EVENT_READ, lambda _: self._receive())

    def serve(self) -> None:
        """Serve until the channel ends for good, or the controller has gone."""
        while self._open and self._heard_lately():
            polls = self._silence_s is not None or self._received
            for key, _ in self._selector.select(0 if self._files else _POLL_S if polls else None):
                if self._selector.get_map().get(key.fd) == key:  # not closed by an earlier callback
                    key.data(key.fd)
            for number in list(self._files):
                self._read_on(number)
            if self._received and self._is_stalled():
                del self._received[0]
                self._execute_received()
        self._end_all()

    def _is_stalled(self) -> bool:
        waited_s = time.monotonic() - self._begun_s
        return waited_s > _STALLED_S and len(self._received) < waited_s * _SLOWEST_BYTES_PER_S

    def _heard_lately(self) -> bool:
        return self._silence_s is None or time.monotonic() - self._heard_s < self._silence_s

    def _receive(self) -> None:
        try:
            data = os.read(self._channel, _PIECE_BYTES)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR):
                return
            data = b""
        if not data:
            self._await_controller()
            return
        self._heard_s = time.monotonic()
        if not self._received:
            self._begun_s = self._heard_s
        self._received += data
        self._execute_received()

    def _execute_received(self) -> None:
        """Execute the complete messages; a malformed one is answered with its error."""
        while len(self._received) >= HEADER.size:
            kind, number, length = HEADER.unpack_from(self._received)
            if length > LONGEST_BODY or kind not in self.kinds:
                # Not a header (a terminal's echo, an interrupted controller): skip to the next hello.
                del self._received[0]
                continue
            end = HEADER.size + length
            if len(self._received) < end:
                return
            body = bytes(self._received[HEADER.size : end])
            del self._received[:end]
            self._begun_s = time.monotonic()
            try:
                self._execute(kind, number, body)
            except (OSError, ValueError, LookupError, OverflowError) as error:
                self._send(b"F", number, str(error).encode(errors="replace"))

    def _await_controller(self) -> None:
        if self._comes_back:
            time.sleep(_NO_CONTROLLER_S)
        else:
            self._open = False

    def _execute(self, kind: bytes, number: int, body: bytes) -> None:
        if kind == b"H":
            self._end_all()
            self._send(b"H", number, body + b" " + VERSION)
        elif kind == b"R":
            self._run(number, body)
        elif kind == b"I":
            self._input(number, body)
        elif kind == b"K":
            self._kill(number, int(body))
        elif kind == b"G":
            self._get(number, body)
        elif kind == b"P":
            self._put(number, body)
        elif kind == b"C":
            self._send(b"C", number, b"%d %d" % (time.monotonic_ns(), time.time_ns()))

    def command(self, argv: list[bytes]) -> list[bytes]:
        """Return the command that is started to run `argv`."""
        return argv

    def _run(self, number: int, body: bytes) -> None:
        argv = body.split(b"\0")[:-1]
        if not argv or number in self._processes:
            self._send(b"F", number, b"a process of this number runs already" if argv else b"there is no command")
            return
        try:
            process = AgentProcess(self.command(argv))
        except OSError as error:
            self._send(b"F", number, _words(error))
            return
        self._processes[number] = process
        for name, kind in _OUTLETS:
            read = self._outlet(number, process, name, kind)
            self._selector.register(process.pipes[name], selectors.EVENT_READ, read)

    def _outlet(self, number: int, process: AgentProcess, name: str, kind: bytes) -> Callable[[int], None]:
        def read(fd: int) -> None:
            data = os.read(fd, _PIECE_BYTES)
            if not data:
                self._close(process, name)
            self._send(kind, number, data)

        return read

    def _input(self, number: int, data: bytes) -> None:
        process = self._processes.get(number)
        if process is None or "stdin" not in process.pipes:
            return
        if data:
            process.unwritten += data
        else:
            process.input_ended = True
        self._feed(process)

    def _feed(self, process: AgentProcess) -> None:
        """Write to the stdin of a process; the rest waits until its pipe has room."""
        pipe = process.pipes["stdin"]
        waiting = pipe in self._selector.get_map()
        try:
            while process.unwritten:
                del process.unwritten[: os.write(pipe, process.unwritten[:_PIECE_BYTES])]
        except BlockingIOError:
            if not waiting:
                self._selector.register(pipe, selectors.EVENT_WRITE, lambda _: self._feed(process))
            return
        except OSError:  # it reads no more
            process.unwritten.clear()
            process.input_ended = True
        if waiting:
            self._selector.unregister(pipe)
        if process.input_ended:
            self._close(process, "stdin")

    def _kill(self, number: int, signum: int) -> None:
        if number in self._processes:
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(self._processes[number].pid, signum)

    def _reap(self, wake: int) -> None:
        os.read(wake, 512)
        for number, process in list(self._processes.items()):
            pid, status = os.waitpid(process.pid, os.WNOHANG)
            if pid:
                self._drain(number, process)
                del self._processes[number]
                self._send(b"E", number, b"%d" % os.waitstatus_to_exitcode(status))

    def _drain(self, number: int, process: AgentProcess) -> None:
        """Send the remaining output of an ended process, and close its pipes, even if a child has them open."""
        for name, kind in _OUTLETS:
            if name not in process.pipes:
                continue
            os.set_blocking(process.pipes[name], False)
            with suppress(BlockingIOError):  # empty, but a child has the other end open
                for _ in range(_MOST_PIECES):
                    if not (data := os.read(process.pipes[name], _PIECE_BYTES)):
                        break
                    self._send(kind, number, data)
            self._close(process, name)
            self._send(kind, number, b"")
        self._close(process, "stdin")

    def _close(self, process: AgentProcess, name: str) -> None:
        fd = process.pipes.pop(name, None)
        if fd is not None:
            if fd in self._selector.get_map():
                self._selector.unregister(fd)
            os.close(fd)

    def _end_all(self) -> None:
        for process in self._processes.values():
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(process.pid, signal.SIGKILL)
            os.waitpid(process.pid, 0)
            for name in list(process.pipes):
                self._close(process, name)
        self._processes.clear()
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()

    def _get(self, number: int, path: bytes) -> None:
        if number in self._files:
            raise ValueError("a file of this number is being read already")
        try:
            self._files[number] = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO would wait for its writer
        except OSError as error:
            self._send(b"F", number, _words(error))

    def _read_on(self, number: int) -> None:
        fd = self._files[number]
        try:
            kind, body = b"D", os.read(fd, _PIECE_BYTES)
        except OSError as error:
            kind, body = b"F", _words(error)
        if kind == b"F" or not body:
            os.close(fd)
            del self._files[number]
        self._send(kind, number, body)

    def _put(self, number: int, body: bytes) -> None:
        path, _, data = body.partition(b"\0")
        try:
            # In one write, because files under /proc accept one command per write.
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, 0o644)
            try:
                while data:
                    data = data[os.write(fd, data) :]
            finally:
                os.close(fd)
        except OSError as error:
            self._send(b"F", number, _words(error))
        else:
            self._send(b"D", number, b"")

    def _send(self, kind: bytes, number: int, body: bytes) -> None:
        message = HEADER.pack(kind, number, len(body)) + body
        began_s = time.monotonic()
        while message and self._open:
            try:
                message = message[os.write(self._outgoing, message) :]
            except BlockingIOError:
                if self._silence_s is not None and time.monotonic() - began_s > self._silence_s:
                    self._open = False
                time.sleep(_FULL_S)
            except OSError:  # no controller is connected; reading the channel shows it
                return


def _words(error: OSError) -> bytes:
    return os.strerror(error.errno or 0).encode()


def open_channel(name: str) -> int:
    """Return the channel's file descriptor; waits for a virtio port of that name to appear."""
    if name.startswith("fd:"):
        channel = int(name[3:])
        os.set_inheritable(channel, False)  # otherwise commands would keep it open
        return channel
    if name.startswith("virtio:"):
        name = _virtio_port(name[7:])
    return os.open(name, os.O_RDWR | os.O_NOCTTY)


def _virtio_port(name: str) -> str:
    while True:
        for port in glob("/sys/class/virtio-ports/*"):
            with open(f"{port}/name") as file:
                if file.read().strip() == name:
                    return port.replace("/sys/class/virtio-ports", "/dev")
        time.sleep(_NO_CONTROLLER_S)


if __name__ == "__main__":
    channel = sys.argv[1]
    Agent(open_channel(channel), comes_back=channel.startswith("virtio:")).serve()

"""A machine reached through the agent inside it: its commands, processes and files."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO

from netbench.errors import TestbedError
from netbench.hosts.base import Completed, GoneError, Remote, load, refusal, save
from netbench.hosts.guest_agent.channel import (
    LONGEST_ANSWER,
    AgentChannel,
    Clocks,
    Message,
    NoAnswerError,
    encoded_command,
)
from netbench.model.foreign_text import ENCODING, ERRORS, decoded, encoded

_PIECE_BYTES = 1 << 16
_LOST = -signal.SIGKILL  # it ended with the guest
_FILE_S = 120.0
_LONGEST_FILE = 4 << 30  # a capture, which is in memory for a moment
_HANG_S = 15.0  # a machine with an emulated CPU that runs guests itself may take that long


class GuestProcess:
    """A command that runs in a guest. Its pipes are pipes of this machine, so select(2) works on them.

    A command that cannot start ends with exit code 127 and the cause on stderr, as in a shell.
    """

    def __init__(self, channel: AgentChannel, argv: Sequence[str]) -> None:
        self._channel = channel
        self.returncode: int | None = None
        self._ended = threading.Event()
        self._lock = threading.Lock()  # for the count of bytes that were received and are in no pipe yet
        self._unread, self._flooded = 0, False
        self._outlets: dict[bytes, SimpleQueue[bytes]] = {b"O": SimpleQueue(), b"S": SimpleQueue()}
        self.stdout: IO[str] = self._outlet(b"O")
        self.stderr: IO[str] = self._outlet(b"S")
        self._number = 0  # before expect(), because a gone channel calls _handle at once
        self._number = channel.expect(self._handle)
        channel.send(b"R", self._number, encoded_command(argv))
        ours, theirs = os.pipe()
        self.stdin: IO[str] = os.fdopen(theirs, "w")
        threading.Thread(target=self._feed, args=(ours,), daemon=True).start()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("a command in a guest", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        if not self.stdin.closed:
            with suppress(OSError):  # it has ended, or reads nothing; subprocess ignores that too
                self.stdin.write(input or "")
                self.stdin.close()
        self.wait(timeout)
        written = self.stdout.read(), self.stderr.read()
        self.stdout.close()
        self.stderr.close()
        return written

    def send_signal(self, sig: int) -> None:
        with suppress(TestbedError):  # it has ended with its guest
            self._channel.send(b"K", self._number, str(int(sig)).encode())

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _handle(self, message: Message | None) -> None:
        if message is None:
            self._end(_LOST)
        elif message.kind in self._outlets:
            if self._unread < LONGEST_ANSWER:
                self._count(len(message.body))
                self._outlets[message.kind].put(message.body)
            elif not self._flooded:  # its output is not read
                self._flooded = True
                self.kill()
        elif message.kind == b"F":
            self._outlets[b"S"].put(message.body + b"\n")
            self._end(127)
        else:
            self._end(int(message.body))

    def _count(self, more: int) -> None:
        with self._lock:
            self._unread += more

    def _end(self, exit_code: int) -> None:
        self.returncode = exit_code
        self._channel.forget(self._number)
        for outlet in self._outlets.values():
            outlet.put(b"")
        self._ended.set()

    def _outlet(self, kind: bytes) -> IO[str]:
        """Return the read end of a pipe that a thread fills with the command's output."""
        ours, theirs = os.pipe()

        def fill(queue: SimpleQueue[bytes]) -> None:
            with suppress(BrokenPipeError):  # the reader has gone
                while data := queue.get():
                    self._count(-len(data))
                    while data:
                        data = data[os.write(theirs, data) :]
            os.close(theirs)

        threading.Thread(target=fill, args=(self._outlets[kind],), daemon=True).start()
        return os.fdopen(ours, encoding=ENCODING, errors=ERRORS)

    def _feed(self, pipe: int) -> None:
        with suppress(TestbedError):  # the guest is gone
            while data := os.read(pipe, _PIECE_BYTES):
                self._channel.send(b"I", self._number, data)
            self._channel.send(b"I", self._number, b"")
        os.close(pipe)


class AgentHost(Remote):
    """The machine itself, outside any of its namespaces.

    Every method raises TestbedError when the agent does not answer in time, and GoneError when the machine has gone or
    hangs.
    """

    def __init__(self, name: str, channel: AgentChannel) -> None:
        super().__init__(name, channel.machine)
        self.channel = channel

    def await_answer(self, limit_s: float, hopeless: Callable[[], str]) -> None:
        self.channel.hello(limit_s, hopeless)

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        with self._hang_detected():
            return self.channel.run(argv, encoded(stdin), timeout_s)

    def spawn(self, argv: Sequence[str]) -> GuestProcess:
        """Start a command; it ends with the guest at the latest."""
        return GuestProcess(self.channel, argv)

    def read(self, path: str) -> str:
        with self._hang_detected():
            return decoded(self.channel.get(path))

    def write(self, path: str, text: str) -> None:
        with self._hang_detected():
            self.channel.put(path, encoded(text))

    def fetch(self, path: str, target: Path) -> None:
        with self._hang_detected():
            data = self.channel.get(path, _FILE_S, _LONGEST_FILE)
        save(target, data)

    def send(self, source: Path, path: str) -> None:
        data = load(source)
        with self._hang_detected():
            # Not `put`, which sends one message: a file may exceed the maximum of a message.
            done = self.channel.run(["dd", f"of={path}", "bs=1M", "iflag=fullblock", "status=none"], data, _FILE_S)
        if done.exit_code:
            raise refusal(f"{self}: {path} cannot be written", done.stderr.strip())

    def clocks(self) -> Clocks:
        """Return its clocks."""
        return self.channel.clocks(_HANG_S)

    def close(self) -> None:
        self.channel.close()

    @contextmanager
    def _hang_detected(self) -> Iterator[None]:
        """Distinguish a slow command from a machine that hangs; further requests to the latter fail at once."""
        try:
            yield
        except NoAnswerError as error:
            try:
                self.channel.clocks(_HANG_S)
            except TestbedError:
                why = f"it hangs: no answer about its clocks within {_HANG_S:g} s"
                self.channel.give_up(why)
                raise GoneError(f"{error}, and {why}") from error
            raise

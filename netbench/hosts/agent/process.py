"""A process in a guest with the interface of `subprocess.Popen` with pipes in text mode."""

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import IO

from netbench.errors import TestbedError
from netbench.hosts.agent.channel import LONGEST_ANSWER, AgentChannel, words
from netbench.hosts.agent.messages import Message
from netbench.model.foreign_text import ENCODING, ERRORS

_PIECE_BYTES = 1 << 16
_LOST = -signal.SIGKILL  # it ended with the guest


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
        channel.send(b"R", self._number, words(argv))
        ours, theirs = os.pipe()
        self.stdin: IO[str] = os.fdopen(theirs, "w")
        threading.Thread(target=self._feed, args=(ours,), daemon=True).start()

    def poll(self) -> int | None:
        """Return its exit code, -N when signal N ended it; None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code once it has ended; subprocess.TimeoutExpired when that takes longer."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("a command in a guest", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        """Return the rest of its output once it has ended; subprocess.TimeoutExpired when that takes longer."""
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
        """Send it a signal; harmless when it, or its guest, has ended."""
        with suppress(TestbedError):  # it has ended with its guest
            self._channel.send(b"K", self._number, str(int(sig)).encode())

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send it SIGKILL."""
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

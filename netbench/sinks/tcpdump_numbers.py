"""What tcpdump says it counted: at its end, and while it runs, asked by signals (tcpdump(1): SIGUSR1, SIGUSR2)."""

import os
import re
import select
import signal
import time
from collections.abc import Mapping

from netbench.hosts.base import Process

_NUMBER = re.compile(
    r"(?:^(?:tcpdump: )?|, )(\d+) packets? (captured|received by filter|dropped by kernel|dropped by interface)", re.M
)
_VERSION = re.compile(r"tcpdump version (\d+)\.(\d+)")
_FLUSHES = (4, 99)  # the first version that SIGUSR2 does not kill
_ANSWER_S = 0.2
# How often it is asked whether it has come to rest, and how long between.
_QUESTIONS, _PAUSE_S = 20, 0.0005


def numbers_in(words: str) -> Mapping[str, int]:
    """The latest count of each kind in what tcpdump has said; empty where it did not say any."""
    return {what: int(count) for count, what in _NUMBER.findall(words)}


def is_number(line: str) -> bool:
    """Whether a line of what tcpdump says is of counts."""
    return _NUMBER.match(line) is not None


def tells_while_running(version: str) -> bool:
    """Whether a tcpdump that says this of its version can be asked by `Inquiry`."""
    found = _VERSION.search(version)
    return found is not None and tuple(map(int, found.groups())) >= _FLUSHES


class Inquiry:
    """Questions to one running tcpdump; `words` is what it has said to them."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.words = ""

    def complete_numbers(self) -> Mapping[str, int] | None:
        """What it has counted, once it is at rest and has written out every frame of that; None if it does not tell.

        Its handler of SIGUSR2 writes what its output buffer holds, whatever else it is doing with that buffer. It was
        not at work on it if it has captured nothing between two answers, the latter of which comes after that.
        """
        earlier = self._ask(signal.SIGUSR1)
        for _ in range(_QUESTIONS):
            now = self._ask(signal.SIGUSR1)
            if earlier is None or now is None:
                return None
            if now == earlier:
                last = self._ask(signal.SIGUSR2, signal.SIGUSR1)
                return last if last == now else None
            earlier = now
            time.sleep(_PAUSE_S)
        return None

    def _ask(self, *signals: int) -> Mapping[str, int] | None:
        """What it says when it is sent these signals; None where that are no counts."""
        assert self._process.stderr is not None
        descriptor, said, deadline = self._process.stderr.fileno(), b"", time.monotonic() + _ANSWER_S
        for one in signals:
            self._process.send_signal(one)
        while not said.endswith(b"\n"):
            in_time = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]
            piece = os.read(descriptor, 4096) if in_time else b""
            if not piece:
                break
            said += piece
        text = said.decode(errors="replace")
        self.words += text
        found = numbers_in(text)
        return found if "captured" in found and text.endswith("\n") and text.count("\n") == 1 else None

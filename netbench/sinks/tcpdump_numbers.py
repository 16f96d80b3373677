"""Counts that tcpdump reports at its end, and on signals while it runs (tcpdump(1): SIGUSR1, SIGUSR2)."""

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
# The number of queries whether it is idle, and the pause between them.
_QUESTIONS, _PAUSE_S = 20, 0.0005


def numbers_in(words: str) -> Mapping[str, int]:
    """Return the latest count of each kind in the output of tcpdump; empty if there is none."""
    return {what: int(count) for count, what in _NUMBER.findall(words)}


def is_number(line: str) -> bool:
    """Return whether a line of the output of tcpdump contains counts."""
    return _NUMBER.match(line) is not None


def tells_while_running(version: str) -> bool:
    """Return whether a tcpdump with this version text can be queried by `Inquiry`."""
    match = _VERSION.search(version)
    return match is not None and tuple(map(int, match.groups())) >= _FLUSHES


class Inquiry:
    """Queries to one running tcpdump; `words` is its output in response."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.words = ""

    def complete_numbers(self) -> Mapping[str, int] | None:
        """Return its counts once it is idle and has written every counted frame; None if it does not report them.

        Its handler of SIGUSR2 writes the output buffer, even while tcpdump modifies it. tcpdump did not modify it if it
        captured nothing between two answers, the second of which follows the writing.
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
        """Send these signals and return the counts in the answer; None if it contains none."""
        assert self._process.stderr is not None
        descriptor, output, deadline = self._process.stderr.fileno(), b"", time.monotonic() + _ANSWER_S
        for number in signals:
            self._process.send_signal(number)
        while not output.endswith(b"\n"):
            in_time = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]
            piece = os.read(descriptor, 4096) if in_time else b""
            if not piece:
                break
            output += piece
        text = output.decode(errors="replace")
        self.words += text
        numbers = numbers_in(text)
        return numbers if "captured" in numbers and text.endswith("\n") and text.count("\n") == 1 else None

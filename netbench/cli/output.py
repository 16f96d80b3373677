"""Standard output and standard error, which may go away while a command is at work."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOBase
from typing import TextIO

from netbench.errors import TestbedError


def open_standard_streams() -> None:
    """Have the descriptors 0, 1 and 2 be something, before a file that is opened gets the number of a closed one.

    What takes the place of a closed one cannot be used either, so that using it fails and is noticed.
    """
    for descriptor, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def printable(message: str) -> str:
    """A message that may quote what somebody else wrote: nothing in it controls a terminal, nor is without end."""
    shown = "".join(one if one.isprintable() or one == "\n" else ascii(one)[1:-1] for one in message)
    return _ENDLESS.sub(lambda word: f"{word[0][:_SHOWN]}… ({len(word[0]):,} characters)", shown)


_SHOWN = 400  # characters of a word
_ENDLESS = re.compile(rf"\S{{{_SHOWN + 100},}}")


def say(line: str) -> None:
    """Print a line to standard output; raises as `flush_output`, and BrokenPipeError when its reader has gone."""
    with _written():
        print(line)


def flush_output() -> None:
    """Have what was printed written; TestbedError when it cannot be, other than for want of a reader (`| head`)."""
    with suppress(BrokenPipeError), _written():
        sys.stdout.flush()


@contextmanager
def _written() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            raise
        raise TestbedError(f"standard output was not written: {error.strerror}") from None


class LastingOutput(TextIOBase):
    """A stream that is written to for as long as that works; afterwards nothing is shown, and nothing fails.

    For what must not be given up because nobody can read of it any more.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]  # rich asks for it
        return self._stream.encoding

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            _discard(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            _discard(self._stream)


def _discard(stream: TextIO) -> None:
    """Let all that is written to a stream from now on, and what it holds already, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)

"""Standard output and standard error, which may go away while a command is at work."""

import os
import re
import sys
from io import TextIOBase, TextIOWrapper
from shutil import get_terminal_size
from textwrap import fill
from typing import IO, TYPE_CHECKING, BinaryIO, TextIO, cast

from netbench.errors import TestbedError
from netbench.model.foreign_text import well_formed

if TYPE_CHECKING:
    from rich.console import Console

UNLIMITED = 10_000  # columns of a file, which whoever reads it lays out


def open_standard_streams() -> None:
    """Have the descriptors 0, 1 and 2 be something, before a file that is opened gets the number of a closed one.

    What takes the place of a closed one cannot be used either, so that using it fails and is noticed.
    """
    for descriptor, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path need not be UTF-8
    sys.stdout = cast(TextIO, CheckedOutput(sys.stdout))


def visible(text: str) -> str:
    """Text that may quote what somebody else wrote: nothing in it controls a terminal."""
    return "".join(one if one.isprintable() or one == "\n" else ascii(one)[1:-1] for one in well_formed(text))


def printable(message: str) -> str:
    """The same of a message, in which no word is without end."""
    return _ENDLESS.sub(lambda word: f"{word[0][:_SHOWN]}… ({len(word[0]):,} characters)", visible(message))


_SHOWN = 400  # characters of a word
_ENDLESS = re.compile(rf"\S{{{_SHOWN + 100},}}")


def say(line: str) -> None:
    """Print a line, which may quote what somebody else wrote, to standard output; raises as CheckedOutput."""
    print(visible(line))


def width_of(output: TextIO) -> int:
    """Columns of the terminal that is written to; what is no terminal has no limit, unless $COLUMNS says so."""
    is_limited = output.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    return get_terminal_size().columns if is_limited else UNLIMITED


def wrapped(first: str, text: str, width: int) -> str:
    """A text behind what it begins with, in lines of at most that width, further ones indented as that is long.

    Words that are longer stay whole, to be copied.
    """
    indent = " " * len(first)
    filled = fill(
        text, width, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return filled or first.rstrip()


def console_on(output: TextIOBase) -> "Console":
    """A console as wide as its terminal, and without a limit where it is none."""
    from rich.console import Console  # noqa: PLC0415 - most commands need none

    # A terminal may change its width meanwhile.
    width = None if output.isatty() else width_of(cast(TextIO, output))
    return Console(file=cast(IO[str], output), width=width)


class _Output(TextIOBase):
    """What stands in for a stream whose file may go away."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def buffer(self) -> BinaryIO:
        """As that of the stream: whoever writes to it sees to its errors."""
        return self._stream.buffer

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
        except OSError as error:
            self._failed(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        _discard(self._stream)


class LastingOutput(_Output):
    """A stream that is written to for as long as that works; afterwards nothing is shown, and nothing fails.

    For what must not be given up because nobody can read of it any more.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream.unchecked if isinstance(stream, CheckedOutput) else stream)


class CheckedOutput(_Output):
    """Standard output of what only prints: that it cannot be written is TestbedError, whoever printed.

    BrokenPipeError says that its reader has gone, which is no error (`| head`). Either is raised by the next flush()
    once more: some libraries only try whether they can write, and go on.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._error: Exception | None = None

    def flush(self) -> None:
        try:
            super().flush()
        finally:
            error, self._error = self._error, None
        if error:
            raise error

    @property
    def unchecked(self) -> TextIO:
        """The stream itself."""
        return self._stream

    def _failed(self, error: OSError) -> None:
        super()._failed(error)
        words = f"standard output was not written: {error.strerror}"
        self._error = error if isinstance(error, BrokenPipeError) else TestbedError(words)
        raise self._error from None


def _discard(stream: TextIO) -> None:
    """Let all that is written to a stream from now on, and what it holds already, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)

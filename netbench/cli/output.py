"""Standard output and standard error, which may be closed while a command runs."""

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

UNLIMITED = 10_000  # columns of a file, which its reader wraps


def open_standard_streams() -> None:
    """Open the descriptors 0, 1 and 2 if they are closed, before another file gets one of these numbers.

    The replacement of a closed descriptor is unusable too, so that its use fails and is noticed.
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
    """Return the text, which may quote foreign text, with characters that control a terminal escaped."""
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in well_formed(text))


def printable(message: str) -> str:
    """Return the message like `visible`, with very long words shortened."""
    return _ENDLESS.sub(lambda word: f"{word[0][:_SHOWN]}… ({len(word[0]):,} characters)", visible(message))


_SHOWN = 400  # characters of a word
_ENDLESS = re.compile(rf"\S{{{_SHOWN + 100},}}")


def say(line: str) -> None:
    """Print a line, which may quote foreign text, to standard output; raises as CheckedOutput."""
    print(visible(line))


def width_of(output: TextIO) -> int:
    """Return the columns of the output's terminal; unlimited for other outputs, unless $COLUMNS sets a limit."""
    is_limited = output.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    return get_terminal_size().columns if is_limited else UNLIMITED


def wrapped(first: str, text: str, width: int) -> str:
    """Return `first` and the text in lines of at most this width; further lines are indented by the length of `first`.

    Words that are longer stay whole, so that they can be copied.
    """
    indent = " " * len(first)
    filled = fill(
        text, width, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return filled or first.rstrip()


def console_on(output: TextIOBase) -> "Console":
    """Return a console as wide as its terminal, or without a limit if the output is no terminal."""
    from rich.console import Console  # noqa: PLC0415 - most commands need none

    # The width of a terminal may change meanwhile.
    width = None if output.isatty() else width_of(cast(TextIO, output))
    return Console(file=cast(IO[str], output), width=width)


class _Output(TextIOBase):
    """A wrapper of a stream whose file may be closed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def buffer(self) -> BinaryIO:
        """The buffer of the stream; its users must handle its errors."""
        return self._stream.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]  # rich reads it
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
    """A stream that discards all output after the first failed write, without an error.

    For commands that must go on even if their output has no reader any more.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream.unchecked if isinstance(stream, CheckedOutput) else stream)


class CheckedOutput(_Output):
    """Standard output of commands that only print: a failed write raises TestbedError.

    BrokenPipeError means that the reader is gone, which is no error (`| head`). The next flush() raises the error once
    more, because some libraries catch errors of writes and go on.
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
        """The wrapped stream."""
        return self._stream

    def _failed(self, error: OSError) -> None:
        super()._failed(error)
        words = f"standard output was not written: {error.strerror}"
        self._error = error if isinstance(error, BrokenPipeError) else TestbedError(words)
        raise self._error from None


def _discard(stream: TextIO) -> None:
    """Discard all further output of a stream, and its buffered output."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)

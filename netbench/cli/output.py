"""Standard output and standard error, which may be closed while a command runs."""

import os
import re
import sys
from io import TextIOWrapper
from shutil import get_terminal_size
from textwrap import fill
from typing import Any, TextIO, cast

from netbench.errors import TestbedError
from netbench.model.foreign_text import well_formed

UNLIMITED = 10_000  # columns of a file, which its reader wraps
_SHOWN = 400  # characters of a word
_ENDLESS = re.compile(rf"\S{{{_SHOWN + 100},}}")


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


class LastingOutput:
    """A stream that discards all output after the first failed write, without an error.

    For commands that must go on even if their output has no reader any more.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO = stream._stream if isinstance(stream, LastingOutput) else stream

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of a stream
        return getattr(self._stream, name)

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
        """Discard the buffered and all further output."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


class CheckedOutput(LastingOutput):
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

    def _failed(self, error: OSError) -> None:
        super()._failed(error)
        text = f"standard output was not written: {error.strerror}"
        self._error = error if isinstance(error, BrokenPipeError) else TestbedError(text)
        raise self._error from None


def visible(text: str) -> str:
    """Return the text, which may quote foreign text, with characters that control a terminal escaped."""
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in well_formed(text))


def printable(message: str) -> str:
    """Return the message like `visible`, with very long words shortened."""
    return _ENDLESS.sub(lambda word: f"{word[0][:_SHOWN]}… ({len(word[0]):,} characters)", visible(message))


def say(line: str) -> None:
    """Print a line, which may quote foreign text, to standard output; raises as CheckedOutput."""
    print(visible(line))


def complain(message: str) -> None:
    """Print a message, which may quote foreign text, to standard error, if it can be written to."""
    print(printable(message), file=LastingOutput(sys.stderr))


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

"""The console of commands that print by Rich, and tables on it."""

from errno import EPIPE
from os import strerror
from typing import IO, Any, TextIO, cast

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from netbench.cli.output import LastingOutput, width_of

_WIDEST_WORD = 12  # columns of texts are as wide as their longest word, up to this


class PrintingConsole(Console):
    """A console as wide as its terminal, or without a limit if the output is no terminal."""

    def __init__(self, output: TextIO | LastingOutput) -> None:
        # The width of a terminal may change meanwhile.
        width = None if output.isatty() else width_of(cast(TextIO, output))
        super().__init__(file=cast(IO[str], output), width=width, highlight=False)

    def print(self, *objects: Any, crop: bool = False, **options: Any) -> None:  # noqa: ANN401 - as of Rich
        """Print like Rich, but whole lines also where the console is too narrow for them."""
        super().print(*objects, crop=crop, **options)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError: Rich would exit with 1, the exit code of a regression."""
        raise BrokenPipeError(EPIPE, strerror(EPIPE))


class TerminalTable(Table):
    """A table whose cells are plain text, not markup. In a narrow console texts wrap, and numbers stay whole."""

    def __init__(self) -> None:
        super().__init__(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))

    def add_columns_of(self, *, texts: tuple[str, ...] = (), numbers: tuple[str, ...] = ()) -> None:
        """Add columns of texts, then columns of numbers, which are right-aligned."""
        for heading in texts:
            self.add_column(heading, overflow="fold", min_width=_text_width(heading))
        for heading in numbers:
            self.add_column(heading, justify="right", no_wrap=True, min_width=_number_width(heading))

    def add_cells(self, *cells: Text | str) -> None:
        """Add a row; fewer cells than columns are filled up with empty ones."""
        for column, cell in zip(self.columns, cells, strict=False):
            width = _number_width(str(cell)) if column.no_wrap else _text_width(str(cell))
            column.min_width = max(column.min_width or 0, width)
        self.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))


def _number_width(text: str) -> int:
    return max(map(len, text.split("\n")))


def _text_width(text: str) -> int:
    return min(_WIDEST_WORD, max(map(len, text.split()), default=0))

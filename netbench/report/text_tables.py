"""Tables as Markdown and LaTeX, with the same columns as those of the page."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TypeVar

from markupsafe import Markup

from netbench.report.markup import TableColumn, with_spreads

Item = TypeVar("Item")

_OF_MARKDOWN = {"|": "\\|", "\n": " "}
# Characters that are special in LaTeX, or that its fonts may lack.
_OF_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"${sign}$" for sign in "<>|"},
    "±": r"$\pm$",
    "≥": r"$\ge$",
    "≤": r"$\le$",
    "−": "$-$",
    "×": r"$\times$",
    "…": r"\dots{}",
    "–": "--",
    "µ": r"$\mu$",
    "÷": r"$\div$",
    "\n": " ",
}


class TableFormat(StrEnum):
    """The formats of tables; the value is that of the command line."""

    MARKDOWN = "markdown"
    LATEX = "latex"

    @property
    def suffix(self) -> str:
        """The suffix of file names, with its dot."""
        return {TableFormat.MARKDOWN: ".md", TableFormat.LATEX: ".tex"}[self]


def text_table(form: TableFormat, columns: Iterable[TableColumn[Item]], items: Iterable[Item], caption: str) -> str:
    """A table with a row per item under a caption; numbers are flush right.

    LaTeX needs the package booktabs, and text that is UTF-8.
    """
    every = list(with_spreads(columns))
    titles = [column.title for column in every]
    rows = [[_plain(column.cell(item)) for column in every] for item in items]
    right = [column.css in ("number", "spread") for column in every]
    draw = {TableFormat.MARKDOWN: _markdown, TableFormat.LATEX: _latex}[form]
    return draw(titles, rows, right, caption)


def _plain(cell: str) -> str:
    """A cell without its markup."""
    return cell.striptags() if isinstance(cell, Markup) else cell


def _markdown(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], caption: str) -> str:
    lines = [titles, ["---:" if is_right else "---" for is_right in right], *rows]
    texts = ("| " + " | ".join(_escaped(cell, _OF_MARKDOWN) for cell in line) + " |" for line in lines)
    return f"{caption}\n\n" + "\n".join(texts) + "\n"


def _latex(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], caption: str) -> str:
    def line(cells: Sequence[str]) -> str:
        return " & ".join(_escaped(cell, _OF_LATEX) for cell in cells) + r" \\"

    alignment = "".join("r" if is_right else "l" for is_right in right)
    return "\n".join(
        (
            r"\begin{table}",
            rf"\caption{{{_escaped(caption, _OF_LATEX)}}}",
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            line(titles),
            r"\midrule",
            *map(line, rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        )
    )


def _escaped(text: str, signs: dict[str, str]) -> str:
    return "".join(signs.get(sign, sign) for sign in text)

"""The exported tables of the registry as Markdown and LaTeX."""

from collections.abc import Iterator, Sequence
from enum import StrEnum

from netbench.report.blocks import Kind, Table
from netbench.report.model import ReportModel
from netbench.report.tables import TABLES

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


def exported_tables(model: ReportModel, form: TableFormat) -> Iterator[tuple[str, str]]:
    """The exported tables as text, with the names of their files."""
    for definition in TABLES.values():
        if definition.is_exported:
            yield from ((table.name, text_table(form, table)) for table in definition.make(model))


def text_table(form: TableFormat, table: Table) -> str:
    """A table under its caption; numbers are flush right.

    LaTeX needs the package booktabs, and text that is UTF-8.
    """
    titles = [column.title for column in table.columns]
    rows = [[cell.text for cell in row.cells] for row in table.rows]
    right = [column.kind in (Kind.NUMBER, Kind.SPREAD) for column in table.columns]
    draw = {TableFormat.MARKDOWN: _markdown, TableFormat.LATEX: _latex}[form]
    return draw(titles, rows, right, table.caption)


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

"""The exported tables of the registry as Markdown and LaTeX."""

from collections.abc import Iterator
from enum import StrEnum

from netbench.report.blocks import Kind, Table
from netbench.report.model import ReportModel
from netbench.report.renderer import template
from netbench.report.tables import EXPORTED


class TableFormat(StrEnum):
    """The formats of tables; the value is that of the command line."""

    MARKDOWN = "markdown"
    LATEX = "latex"

    @property
    def suffix(self) -> str:
        """The suffix of file names, with its dot."""
        return {TableFormat.MARKDOWN: ".md", TableFormat.LATEX: ".tex"}[self]


# The characters that are special, or that fonts may lack.
_SPECIAL = {
    TableFormat.MARKDOWN: {"|": "\\|", "\n": " "},
    TableFormat.LATEX: {
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
        "÷": r"$\div$",
        "µ": r"$\mu$",
        "…": r"\dots{}",
        "–": "--",
        "\n": " ",
    },
}


def exported_tables(model: ReportModel, form: TableFormat) -> Iterator[tuple[str, str]]:
    """The exported tables as text, with the names of their files."""
    return ((table.name, text_table(form, table)) for make in EXPORTED for table in make(model))


def text_table(form: TableFormat, table: Table) -> str:
    """A table under its caption; numbers are flush right, and headings of blocks are in a first column.

    LaTeX needs the package booktabs, and text that is UTF-8.
    """
    special = str.maketrans(_SPECIAL[form])
    left, right = ("---", "---:") if form is TableFormat.MARKDOWN else ("l", "r")
    first = [table.block_title] if table.block_title else []
    titles = [*first, *(column.title for column in table.columns)]
    kinds = [*(Kind.TEXT for _ in first), *(column.kind for column in table.columns)]
    rows = [[*(row.block for _ in first), *(cell.text for cell in row.cells)] for row in table.rows]
    text = template(f"table{form.suffix}").render(
        caption=table.caption.translate(special),
        titles=[title.translate(special) for title in titles],
        alignment=[right if kind in (Kind.NUMBER, Kind.SPREAD) else left for kind in kinds],
        rows=[[text.translate(special) for text in row] for row in rows],
    )
    return f"{text}\n"

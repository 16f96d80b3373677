"""Published measurements: read from the data files beside this module."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from netbench.config.document import yaml_value


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table as printed: a row per frame size (bytes), in each row a number per UUT and column, all in `unit`.

    `columns` names and explains the numbers of a UUT; `about` explains all of them.
    `sources` is how many sources the first guest had; `share` the load of the second guest in percent of its maximum,
    where the table is about one such load.
    """

    number: int
    title: str
    about: str
    unit: str
    columns: Mapping[str, str]
    uuts: Sequence[str]
    rows: Mapping[int, Sequence[float]]
    sources: int
    share: float | None = None


@dataclass(frozen=True, slots=True)
class PublishedPaper:
    """A paper: its citation, its tables by number, and remarks on `figure 3`, `table 2`, … ."""

    citation: str
    doi: str
    tables: Mapping[int, PublishedTable]
    notes: Mapping[str, str]

    def on_figure(self, number: int) -> str:
        """The paper's remark on a figure; empty without one."""
        return self.notes.get(f"figure {number}", "")

    def on_table(self, number: int) -> str:
        """The remarks on a table: its subject, and the statement in the paper's text."""
        return f"{self.tables[number].about} {self.notes.get(f'table {number}', '')}".strip()


@cache
def schlosser2011() -> PublishedPaper:
    """Schlosser, Duelli, Goll 2011, DOI 10.1007/978-3-642-20757-0_31: its Tables 1, 2 and 3."""
    text = files("netbench.report.published_data").joinpath("schlosser2011.yaml").read_text(encoding="utf-8")
    data = yaml_value(text)
    source = data["source"]
    return PublishedPaper(
        citation=f"{', '.join(source['authors'])}: {source['title']}. {source['published']}.",
        doi=source["doi"],
        tables={table["number"]: PublishedTable(**table) for table in data["tables"]},
        notes={f"{what} {number}": text for what, texts in data["notes"].items() for number, text in texts.items()},
    )

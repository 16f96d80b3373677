"""Published measurements: read from the data files beside this module."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

import yaml


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table as printed: a row per frame size (bytes), in each row a number per UUT and column, all in `unit`.

    `columns` names the numbers of a UUT and says what each means. `share` is the load of the second guest in percent of
    its maximum, where the table is about one such load.
    """

    number: int
    title: str
    about: str
    unit: str
    columns: Mapping[str, str]
    uuts: Sequence[str]
    rows: Mapping[int, Sequence[float]]
    share: float | None = None


@dataclass(frozen=True, slots=True)
class PublishedPaper:
    """A paper: where it is found, its tables by number, and what its text says of its figures (None: of no figure)."""

    citation: str
    doi: str
    tables: Mapping[int, PublishedTable]
    notes: Sequence[tuple[int | None, str]]

    def on_figure(self, number: int) -> str:
        """What its text says of a figure; empty where it says nothing."""
        return " ".join(text for figure, text in self.notes if figure == number)


def schlosser2011() -> PublishedPaper:
    """Schlosser, Duelli, Goll 2011, DOI 10.1007/978-3-642-20757-0_31: its Tables 1, 2 and 3."""
    text = files("netbench.report.published_data").joinpath("schlosser2011.yaml").read_text(encoding="utf-8")
    data = yaml.safe_load(text)
    source = data["source"]
    return PublishedPaper(
        citation=f"{', '.join(source['authors'])}: {source['title']}. {source['published']}.",
        doi=source["doi"],
        tables={table["number"]: PublishedTable(**table) for table in data["tables"]},
        notes=[(note.get("figure"), note["text"]) for note in data["notes"]],
    )

"""Published measurements: read from the data files beside this module."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

_COLUMNS = 2  # a UUT


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table as printed: a row per frame size (bytes), in each row a pair of numbers per UUT, all in `unit`.

    `columns` names the two numbers of a pair and says what each means. `share` is the load of the second guest in
    percent of its maximum, where the table is about one such load.
    """

    number: int
    title: str
    about: str
    unit: str
    columns: Mapping[str, str]
    uuts: tuple[str, ...]
    rows: Mapping[int, tuple[tuple[float, float], ...]]
    share: float | None = None

    def __post_init__(self) -> None:
        """ValueError where a row does not have a pair for each UUT."""
        for frame_size, pairs in self.rows.items():
            if len(pairs) != len(self.uuts):
                raise ValueError(f"Table {self.number}, {frame_size} bytes: {len(pairs)} pairs, {len(self.uuts)} UUTs")

    def cell(self, frame_size: int, uut: str, column: str) -> float:
        """One number; KeyError or ValueError for what the table does not have."""
        return self.rows[frame_size][self.uuts.index(uut)][list(self.columns).index(column)]


@dataclass(frozen=True, slots=True)
class PublishedPaper:
    """A paper: where it is found, its tables by number, and what its text says of its figures (None: of no figure)."""

    citation: str
    doi: str
    tables: Mapping[int, PublishedTable]
    notes: tuple[tuple[int | None, str], ...]

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
        tables={table["number"]: _table(table) for table in data["tables"]},
        notes=tuple((note.get("figure"), note["text"]) for note in data["notes"]),
    )


def _table(data: Mapping[str, Any]) -> PublishedTable:
    return PublishedTable(
        number=data["number"],
        title=data["title"],
        about=data["about"],
        unit=data["unit"],
        columns=data["columns"],
        uuts=tuple(data["uuts"]),
        rows={size: _pairs(numbers) for size, numbers in data["rows"].items()},
        share=data.get("share"),
    )


def _pairs(numbers: list[float]) -> tuple[tuple[float, float], ...]:
    firsts, seconds = numbers[::_COLUMNS], numbers[1::_COLUMNS]
    return tuple((float(first), float(second)) for first, second in zip(firsts, seconds, strict=True))

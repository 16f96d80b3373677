"""Published measurements: the papers that profiles repeat, read from the data files in `published_data`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Self

from netbench.config.document import yaml_value
from netbench.model.workload import Scalar, Workload

_DATA = "netbench.report.published_data"
_DEFAULT_PATH = "to-guest"  # of a workload that is written without a path


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
class PublishedValue:
    """A number as printed, or the statement in the text where no number is printed.

    `deviation` is the printed standard deviation of the printed `tests`; both are empty where the paper has none.
    """

    text: str
    deviation: str = ""
    tests: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: str | Mapping[str, Any]) -> Self:
        """Return the value of a data file: a text, or a mapping with `mean`, `deviation` and `tests`."""
        if isinstance(data, str):
            return cls(data)
        return cls(data["mean"], data["deviation"], tuple(data["tests"]))

    def __str__(self) -> str:
        return f"{self.text} (σ {self.deviation}, n = {len(self.tests)})" if self.deviation else self.text


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """A figure of applications as printed: its values in `unit` by platform, and the cells to compare them with.

    A cell belongs to it if it has the `scenario` (empty: without active neighbours), the `load`, and all the options
    of `workload`. `measure` is the name of a figure of cells (statistics/cell_measures.py); times `factor` it has the
    printed unit. `printed` is the place in the paper; `remark` has substitutes, scaling, and ambiguities of the text.
    """

    title: str
    printed: str
    unit: str
    measure: str
    workload: Mapping[str, Scalar]
    values: Mapping[str, PublishedValue]
    remark: str
    load: str = "max"
    scenario: str = ""
    factor: float = 1.0

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """Return the figure of a data file."""
        values = {platform: PublishedValue.of(value) for platform, value in data["values"].items()}
        return cls(**{**data, "values": values})

    def is_of(self, workload: Workload) -> bool:
        """Whether it is compared with this workload."""
        written = {"path": _DEFAULT_PATH, **workload.written}
        return all(written.get(key) == value for key, value in self.workload.items())


@dataclass(frozen=True, slots=True)
class RepeatedPlatform:
    """A UUT of the shipped topology: the platform of the paper that it equals, empty for none, and how they differ."""

    platform: str = ""
    remark: str = ""


@dataclass(frozen=True, slots=True)
class PublishedPaper:
    """A paper: its citation, its tables by number, its figures of applications, and remarks on `figure 3`, `table 2`.

    `doi` is empty where there is none. `uuts` has the platforms that UUTs of the shipped topology repeat.
    `about` is about all figures.
    """

    citation: str
    doi: str = ""
    tables: Mapping[int, PublishedTable] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    figures: tuple[PublishedFigure, ...] = ()
    uuts: Mapping[str, RepeatedPlatform] = field(default_factory=dict)
    about: str = ""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """Return the paper of a data file."""
        source, notes = data["source"], data.get("notes", {})
        return cls(
            citation=f"{', '.join(source['authors'])}: {source['title']}. {source['published']}.",
            doi=source.get("doi", ""),
            tables={table["number"]: PublishedTable(**table) for table in data.get("tables", ())},
            notes={f"{kind} {number}": text for kind, texts in notes.items() for number, text in texts.items()},
            figures=tuple(PublishedFigure.of(figure) for figure in data.get("figures", ())),
            uuts={name: RepeatedPlatform(**platform) for name, platform in data.get("uuts", {}).items()},
            about=data.get("about", ""),
        )

    def on_figure(self, number: int) -> str:
        """The paper's remark on a figure; empty without one."""
        return self.notes.get(f"figure {number}", "")

    def on_table(self, number: int) -> str:
        """The remarks on a table: its subject, and the statement in the paper's text."""
        return f"{self.tables[number].about} {self.notes.get(f'table {number}', '')}".strip()

    def platform_of(self, uut: str) -> RepeatedPlatform:
        """The platform that a UUT repeats; none for other UUTs."""
        return self.uuts.get(uut, RepeatedPlatform())


def published_papers() -> list[str]:
    """The names of all papers: their profiles begin with these."""
    names = (file.name for file in files(_DATA).iterdir())
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


@cache
def published_paper(name: str) -> PublishedPaper:
    """The paper of this name."""
    file = files(_DATA).joinpath(f"{name}.yaml")
    return PublishedPaper.of(yaml_value(file.read_text(encoding="utf-8")))


def schlosser2011() -> PublishedPaper:
    """Schlosser, Duelli, Goll 2011, DOI 10.1007/978-3-642-20757-0_31: its Tables 1, 2 and 3."""
    return published_paper("schlosser2011")


def paper_of_profile(profile: str) -> PublishedPaper | None:
    """The paper that a profile of this name repeats; None if it repeats none."""
    return next((published_paper(name) for name in published_papers() if profile.startswith(name)), None)

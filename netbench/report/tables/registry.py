"""The registry of tables: name, title, requirement, and the function that makes them from the results of a campaign."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from netbench.report.blocks import Table
from netbench.report.model import ReportModel

Make = Callable[[ReportModel], Iterable[Table]]


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """A table of the report.

    `make` yields the table, or one for each view of the results; nothing where its `requirement` is not met.
    """

    name: str
    title: str
    requirement: str
    make: Make
    is_exported: bool = False


TABLES: dict[str, TableDefinition] = {}


def report_table(name: str, title: str, requirement: str, *, is_exported: bool = False) -> Callable[[Make], Make]:
    """Register the decorated function; an exported table is written by `netbench export --tables`."""

    def register(make: Make) -> Make:
        TABLES[name] = TableDefinition(name, title, requirement, make, is_exported)
        return make

    return register


def tables_of(name: str, model: ReportModel) -> list[Table]:
    """The tables of this name."""
    return list(TABLES[name].make(model))

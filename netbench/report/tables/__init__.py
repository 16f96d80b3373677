"""The tables of the report; importing a module registers its tables."""

from netbench.report.tables import (
    delay,
    environment,
    interference,
    losses,
    results,
    searches,
    stability,
    tester,
    uuts,
    verdicts,
)
from netbench.report.tables.registry import TABLES, TableDefinition, report_table, tables_of

__all__ = [
    "TABLES",
    "TableDefinition",
    "delay",
    "environment",
    "interference",
    "losses",
    "report_table",
    "results",
    "searches",
    "stability",
    "tables_of",
    "tester",
    "uuts",
    "verdicts",
]

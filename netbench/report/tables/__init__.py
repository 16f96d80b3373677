"""The tables of the report; importing a module registers its tables."""

from netbench.report.tables import (
    delay,
    flow_cpu,
    flow_ends,
    flows,
    interference,
    losses,
    packets,
    published,
    results,
    searches,
    stability,
    tester,
    uuts,
    verdicts,
)
from netbench.report.tables.registry import EXPORTED, TABLES, report_table, tables_of

MODULES = (
    delay,
    flow_cpu,
    flow_ends,
    flows,
    interference,
    losses,
    packets,
    published,
    results,
    searches,
    stability,
    tester,
    uuts,
    verdicts,
)
__all__ = ["EXPORTED", "MODULES", "TABLES", "report_table", "tables_of"]

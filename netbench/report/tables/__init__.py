"""The tables of the report; importing a module registers its tables."""

from netbench.report.tables import delay, interference, losses, results, searches, stability, tester, uuts, verdicts
from netbench.report.tables.registry import TABLES, TableDefinition, report_table, tables_of

__all__ = [
    *("TABLES", "TableDefinition", "report_table", "tables_of"),
    *("delay", "interference", "losses", "results", "searches", "stability", "tester", "uuts", "verdicts"),
]

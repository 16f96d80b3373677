"""The sections of flows on a campaign's page, in the order of the page."""

from netbench.report.blocks import Block
from netbench.report.model import ReportModel
from netbench.report.section_parts import figure_charts, plain_section, sections_of_other_packages
from netbench.report.tables import tables_of


def _with_tables(figure: str, name: str, model: ReportModel) -> list[Block]:
    """The charts of a figure, and the tables of its numbers, folded."""
    tables = (table.folded("cell", f"{table.caption.partition(':')[0]} – ") for table in tables_of(name, model))
    return [*figure_charts(figure, model), *tables]


FLOW_SECTIONS = (
    plain_section("neighbour-load", lambda model: figure_charts("neighbour-load", model), is_open=True),
    plain_section("latency", lambda model: _with_tables("percentiles", "latency", model), is_open=True),
    plain_section("message-size", lambda model: figure_charts("message-size", model), is_open=True),
    plain_section("rates", lambda model: _with_tables("bandwidth", "flow-rates", model), is_open=True),
    plain_section("neighbours", lambda model: tables_of("flow-costs", model), is_open=True),
    plain_section("witness", lambda model: [table.folded("figure") for table in tables_of("witness", model)]),
    sections_of_other_packages,
)

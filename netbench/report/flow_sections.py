"""The sections of flows on a campaign's page, in the order of the page."""

from netbench.report.blocks import Block, Bullets, Note, section
from netbench.report.figures.flow_latency import NEIGHBOUR_LOAD
from netbench.report.formats import sentence
from netbench.report.model import ReportModel
from netbench.report.section_parts import (
    Sections,
    figure_charts,
    paper_reference,
    plain_section,
    sections_of_other_packages,
)
from netbench.report.tables import tables_of
from netbench.statistics.flow_costs import missing_points
from netbench.statistics.flow_witnesses import witnessed
from netbench.statistics.groups import grouped


def _with_tables(figure: str, name: str, model: ReportModel) -> list[Block]:
    """The charts of a figure, and the tables of its numbers, folded."""
    tables = (table.folded("cell", f"{table.caption.partition(':')[0]} – ") for table in tables_of(name, model))
    return [*figure_charts(figure, model), *tables]


def _witness(model: ReportModel) -> Sections:
    """The section on tool and wire, open where the two disagree."""
    if tables := tables_of("witness", model):
        disagree = any(figure.disagreeing for figure in witnessed(model.workload_groups))
        yield section("witness", [table.folded("figure") for table in tables], is_open=disagree)


def _neighbour_load(model: ReportModel) -> list[Block]:
    """The charts, and the scenarios that they lack, or the whole figure lacks, without a valid trial."""
    missing = "; ".join(map(str, missing_points(model.workload_groups)))
    requirement = NEIGHBOUR_LOAD.requirement(model)
    key = "notes.no_load_figure" if requirement else "notes.no_load_points"
    return [*figure_charts("neighbour-load", model), *([Note(sentence(key, why=missing))] if missing else [])]


def _published(model: ReportModel) -> list[Block]:
    """The table of the paper's figures, with the remarks on them; nothing without a paper."""
    paper, tables = model.paper_of_flows, tables_of("published", model)
    if not paper or not tables:
        return []
    by_remark = grouped(paper.figures, lambda figure: figure.remark)
    remarks = [("; ".join(figure.title for figure in figures), remark) for remark, figures in by_remark.items()]
    return [Note(paper.about), *tables, Bullets(remarks), paper_reference(paper, sentence("notes.the_paper"))]


FLOW_SECTIONS = (
    plain_section("neighbour-load", _neighbour_load, is_open=True),
    plain_section("latency", lambda model: _with_tables("percentiles", "latency", model), is_open=True),
    plain_section("message-size", lambda model: figure_charts("message-size", model), is_open=True),
    plain_section("rates", lambda model: _with_tables("bandwidth", "flow-rates", model), is_open=True),
    plain_section("flow-cpu", lambda model: tables_of("flow-cpu", model)),
    plain_section("neighbours", lambda model: tables_of("flow-costs", model), is_open=True),
    plain_section("published", _published, is_open=True),
    _witness,
    sections_of_other_packages,
)

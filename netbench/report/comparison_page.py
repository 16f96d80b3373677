"""The comparison page: one HTML file that needs no network, with the templates of a campaign's page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from netbench.model.campaign import CampaignResults
from netbench.model.verdict import CampaignWarning
from netbench.report import figures
from netbench.report.blocks import Block, Bullets, Choice, Folded, Heading, Note, Option, Section, section, under_titles
from netbench.report.comparison import (
    Compared,
    gate_advice,
    gate_words,
    how_flows_tested,
    how_searches_compare,
    how_tested,
)
from netbench.report.figures.comparison import highest_charts, started, trend_charts, trends
from netbench.report.flow_comparison import flow_comparisons, flows_table
from netbench.report.formats import count, sentence
from netbench.report.renderer import PageContent, rendered
from netbench.report.stability import steadiness_warnings
from netbench.report.styles import Style, emulation_note, styles
from netbench.report.tables.comparison import gate_table, loss_table, searches_table, settings_table, throughput_table
from netbench.report.tester_sections import warning_bullets
from netbench.results.atomic import write_atomically
from netbench.statistics.compared_cells import DISTURBING, Campaign, Comparison
from netbench.statistics.drift import steadiness_of
from netbench.statistics.groups import grouped
from netbench.statistics.regression_gate import GateResult, total
from netbench.statistics.search_comparison import SearchComparison

_STATES = {GateResult.PASSED: "", GateResult.FAILED: "invalid", GateResult.INCONCLUSIVE: "suspicious"}


def write_comparison(base: CampaignResults, compared: Sequence[Compared], out: Path) -> None:
    """Write the page, whole or not at all; UsageError or TestbedError where `out` cannot be written."""
    write_atomically(out, comparison_page(base, compared).encode(errors="backslashreplace"))


def comparison_page(base: CampaignResults, compared: Sequence[Compared]) -> str:
    """The page as text; `compared` are one or more campaigns against this base."""
    model = _ComparisonModel.of(base, compared)
    gates = [new.gate for new in compared if new.gate is not None]
    matter = sum(setting.matters for new in compared for setting in new.differs)
    slower = any(comparison.slower for _, comparison in model.of_loads) or any(
        (difference.benefit or 0.0) < 0 for _, flows in flow_comparisons(compared) for difference in flows.differences
    )
    state = "invalid" if slower else "suspicious" if matter else ""
    emulated = [uut for uut, style in model.styles.items() if style.emulated]
    content = PageContent(
        title=f"{', '.join(new.name for new in compared)} against {compared[0].base}",
        byline="; ".join(
            f"{name}: {results.topology} × {results.profile}, {_when(results)}" for name, results in model.campaigns
        ),
        headline=[
            *(f"{new.name}: {new.verdict}" for new in compared),
            *(f"Gate, {gate.name}: {gate_words(gate)}" for gate in gates),
        ],
        state=_STATES[total(gate.outcome for gate in gates)] if gates else state,
        chart=model.chart,
        has_frame_rates=not base.has_flows,
        remarks=[
            *([sentence("comparison.settings", settings=count(matter, "setting"))] if matter else []),
            *([f"{emulation_note(emulated)}."] if emulated else []),
        ],
        sections=list(_sections(model)),
    )
    return "".join(rendered(content))


@dataclass(frozen=True)
class _ComparisonModel:
    """The compared campaigns with their names, the base first, and the styles of all UUTs."""

    campaigns: Sequence[tuple[str, CampaignResults]]
    compared: Sequence[Compared]
    styles: Mapping[str, Style]

    @classmethod
    def of(cls, base: CampaignResults, compared: Sequence[Compared]) -> "_ComparisonModel":
        campaigns = [(compared[0].base, base), *((new.name, new.results) for new in compared)]
        uuts = [uut for _, results in campaigns for uut in results.uuts]
        uuts += [search.uut for _, results in campaigns for search in results.searches]
        for new in compared:
            if isinstance(new.comparison, Comparison):
                sides = (new.comparison.base, new.comparison.new)
                uuts += [group.uut for campaign in sides for group in campaign.groups]
        for _, flows in flow_comparisons(compared):
            uuts += [group.uut for side in (flows.base, flows.new) for group in side.groups]
        # A UUT emulated in only one campaign is marked, and not compared.
        settings = {uut: setting for _, results in campaigns for uut, setting in results.settings.items()}
        return cls(campaigns, compared, styles(uuts, settings))

    @property
    def of_loads(self) -> list[tuple[Compared, Comparison]]:
        """The comparisons of campaigns with loads."""
        return [(new, new.comparison) for new in self.compared if isinstance(new.comparison, Comparison)]

    @property
    def sides(self) -> list[Campaign]:
        """The campaigns with loads, the base first."""
        comparisons = [comparison for _, comparison in self.of_loads]
        return [comparisons[0].base, *(comparison.new for comparison in comparisons)] if comparisons else []

    @property
    def chart(self) -> Markup:
        """The highest throughput of each campaign."""
        comparisons = [comparison for _, comparison in self.of_loads]
        base = {cell.place: cell.base for comparison in comparisons for cell in comparison.maxima}
        if not base:
            return Markup()
        highest = {comparisons[0].base.name: base}
        for comparison in comparisons:
            highest[comparison.new.name] = {cell.place: cell.new for cell in comparison.maxima}
        charts = highest_charts(self.sides, highest, self.styles)
        return Markup().join(figures.drawn(chart).html for chart in charts)


def _sections(model: _ComparisonModel) -> Iterator[Section]:
    yield from _by_campaign(
        "gate",
        [
            (new.gate.name, [*map(Note, (gate_words(new.gate), *gate_advice(new.gate))), gate_table(new.gate)])
            for new in model.compared
            if new.gate is not None
        ],
        is_open=True,
    )
    disturbed = ((name, [w for w in results.warnings if w.kind in DISTURBING]) for name, results in model.campaigns)
    yield from _warnings("disturbed", disturbed, is_open=True)
    differing = [(new.name, [settings_table(new.differs)]) for new in model.compared if new.differs]
    yield from _by_campaign("differing", differing, is_open=True)
    if flows := list(flow_comparisons(model.compared)):
        tables = [flows_table(of.differences, model.styles).folded("figure", f"{new.name}: ") for new, of in flows]
        yield section("compared-flows", tables, is_open=True)
        yield from _left_out(model)
        yield section("tests", map(Note, how_flows_tested([of for _, of in flows])))
        return
    if not model.of_loads:
        yield _searches(model)
        return
    unsteady = ((side.name, list(steadiness_warnings(steadiness_of(side.groups)))) for side in model.sides)
    yield from _warnings("unsteady", unsteady)
    for anchor, table, of_loads in (
        ("compared-maximum", throughput_table, False),
        ("compared-loads", throughput_table, True),
        ("compared-loss", loss_table, True),
    ):
        tables = [
            table(comparison.by_load if of_loads else comparison.maxima, model.styles).folded("cell", f"{new.name}: ")
            for new, comparison in model.of_loads
        ]
        yield section(anchor, tables, is_open=not of_loads)
    maxima = [new.maxima for new in model.compared if new.maxima is not None]
    if any(comparison.differences for comparison in maxima):
        yield section("maxima-searched", _search_tables(maxima, model), lead=how_searches_compare())
    yield from _trend(model)
    yield from _left_out(model)
    yield section("tests", map(Note, how_tested([comparison for _, comparison in model.of_loads])))


def _left_out(model: _ComparisonModel) -> Iterator[Section]:
    left_out = [(new.name, [Bullets([("", text) for text in new.left_out])]) for new in model.compared if new.left_out]
    yield from _by_campaign("left-out", left_out)


def _by_campaign(
    anchor: str, parts: Sequence[tuple[str, Sequence[Block]]], *, is_open: bool = False
) -> Iterator[Section]:
    """The blocks of each campaign under its name; nothing without any."""
    if parts:
        yield section(anchor, under_titles(parts), is_open=is_open)


def _warnings(
    anchor: str, by_campaign: Iterable[tuple[str, Sequence[CampaignWarning]]], *, is_open: bool = False
) -> Iterator[Section]:
    """The warnings of each campaign that has some; nothing without any."""
    parts = [Folded(name, [warning_bullets(warnings)], is_open=True) for name, warnings in by_campaign if warnings]
    if parts:
        yield section(anchor, parts, is_open=is_open)


def _searches(model: _ComparisonModel) -> Section:
    """The limits of campaigns of searches."""
    comparisons = [new.comparison for new in model.compared if isinstance(new.comparison, SearchComparison)]
    tested = any(search.tests is not None for _, results in model.campaigns for search in results.searches)
    notes = [Note(sentence("comparison.tests_not_compared"))] if tested else []
    blocks = [*notes, *_search_tables(comparisons, model)]
    return section("compared-searches", blocks, is_open=True, lead=how_searches_compare())


def _search_tables(comparisons: Sequence[SearchComparison], model: _ComparisonModel) -> list[Block]:
    parts: list[tuple[str, Sequence[Block]]] = []
    for comparison in comparisons:
        blocks: list[Block] = [searches_table(comparison.differences, model.styles)]
        if comparison.left_out:
            left_out = Bullets([("", str(limit)) for limit in comparison.left_out])
            blocks += [Heading("Not compared", 4), left_out]
        parts.append((comparison.new, blocks))
    return under_titles(parts)


def _trend(model: _ComparisonModel) -> Iterator[Section]:
    """Throughput over time; nothing for fewer than three campaigns."""
    if len(model.sides) <= 2:
        return
    in_time = [
        (started(results.manifest.get("started")), campaign)
        for campaign, (_, results) in zip(model.sides, model.campaigns, strict=True)
    ]
    blocks: list[Block] = []
    if unknown := [campaign.name for start, campaign in in_time if start is None]:
        blocks.append(Note(sentence("notes.unknown_start", names=", ".join(unknown))))
    cells = trends((start, campaign) for start, campaign in in_time if start is not None)
    if by_load := grouped(cells, lambda cell: str(cell.place.load or "Highest throughput")):
        options = [Option(f"trend-{number}", load) for number, load in enumerate(by_load)]
        charts = [
            list(map(figures.drawn, trend_charts(members, model.styles, option.value)))
            for option, members in zip(options, by_load.values(), strict=True)
        ]
        blocks.append(Choice("Load", options, charts, name="trend", start=options[0].value))
    else:
        blocks.append(Note(sentence("notes.no_common_cell")))
    yield section("trend", blocks, is_open=True)


def _when(results: CampaignResults) -> str:
    moment = started(results.manifest.get("started"))
    return "start unknown" if moment is None else f"started {moment:%Y-%m-%d %H:%M} UTC"

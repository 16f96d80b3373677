"""The comparison page: one HTML file that needs no network, with the templates of a campaign's page."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from netbench.model.campaign import CampaignResults
from netbench.report.blocks import (
    Block,
    Bullets,
    Choice,
    FigureMarkup,
    Folded,
    Heading,
    Note,
    Option,
    Section,
    Table,
    section,
    under_titles,
)
from netbench.report.comparison import Compared, gate_advice, gate_words, how_searches_compare, how_tested
from netbench.report.figures.comparison import InTime, most_block, started, trend_block, trends
from netbench.report.formats import count
from netbench.report.renderer import PageContent, rendered
from netbench.report.sections import warning_bullets
from netbench.report.sentences import sentence
from netbench.report.stability import steadiness_warnings
from netbench.report.styles import Style, emulation_note, styles
from netbench.report.tables.comparison import gate_table, loss_table, searches_table, settings_table, throughput_table
from netbench.results.atomic import write_atomically
from netbench.statistics.compared_cells import DISTURBING, Campaign, Comparison, Difference
from netbench.statistics.drift import steadiness_of
from netbench.statistics.groups import grouped
from netbench.statistics.regression_gate import GateResult, total
from netbench.statistics.search_comparison import SearchComparison

_MAXIMUM = "Highest throughput"
_STATES = {GateResult.PASSED: "", GateResult.FAILED: "invalid", GateResult.INCONCLUSIVE: "suspicious"}


def write_comparison(base: CampaignResults, compared: Sequence[Compared], out: Path) -> None:
    """Write the page, whole or not at all; UsageError or TestbedError where `out` cannot be written."""
    write_atomically(out, comparison_page(base, compared).encode(errors="backslashreplace"))


def comparison_page(base: CampaignResults, compared: Sequence[Compared]) -> str:
    """The page as text; `compared` are one or more campaigns against this base."""
    model = _ComparisonModel.of(base, compared)
    gates = [new.gate for new in compared if new.gate is not None]
    matter = sum(setting.matters for new in compared for setting in new.differs)
    slower = any(isinstance(new.comparison, Comparison) and new.comparison.slower for new in compared)
    state = "invalid" if slower else "suspicious" if matter else ""
    emulated = [uut for uut, style in model.styles.items() if style.emulated]
    content = PageContent(
        title=f"{', '.join(model.names[1:])} against {model.names[0]}",
        byline="; ".join(
            f"{name}: {results.topology} × {results.profile}, {_when(results)}"
            for name, results in zip(model.names, model.campaigns, strict=True)
        ),
        headline=[
            *(f"{new.name}: {new.verdict}" for new in compared),
            *(f"Gate, {gate.name}: {gate_words(gate)}" for gate in gates),
        ],
        state=_STATES[total(gate.outcome for gate in gates)] if gates else state,
        chart=model.chart,
        remarks=[
            *([sentence("comparison.settings", settings=count(matter, "setting"))] if matter else []),
            *([f"{emulation_note(emulated)}."] if emulated else []),
        ],
        sections=list(_sections(model)),
    )
    return "".join(rendered(content))


@dataclass(frozen=True)
class _ComparisonModel:
    """The compared campaigns, the base first, with their names and the styles of all UUTs."""

    campaigns: Sequence[CampaignResults]
    names: Sequence[str]
    compared: Sequence[Compared]
    styles: Mapping[str, Style]

    @classmethod
    def of(cls, base: CampaignResults, compared: Sequence[Compared]) -> "_ComparisonModel":
        campaigns = [base, *(new.results for new in compared)]
        uuts = [uut for results in campaigns for uut in results.uuts]
        uuts += [search.uut for results in campaigns for search in results.searches]
        for new in compared:
            if isinstance(new.comparison, Comparison):
                sides = (new.comparison.base, new.comparison.new)
                uuts += [group.uut for campaign in sides for group in campaign.groups]
        # A UUT emulated in only one campaign is marked, and not compared.
        settings = {uut: setting for results in campaigns for uut, setting in results.settings.items()}
        return cls(campaigns, [compared[0].base, *(new.name for new in compared)], compared, styles(uuts, settings))

    @property
    def of_loads(self) -> list[tuple[Compared, Comparison]]:
        """The comparisons of campaigns with loads."""
        return [(new, new.comparison) for new in self.compared if isinstance(new.comparison, Comparison)]

    @property
    def of_searches(self) -> list[SearchComparison]:
        """The comparisons of campaigns of searches."""
        return [new.comparison for new in self.compared if isinstance(new.comparison, SearchComparison)]

    @property
    def sides(self) -> list[Campaign]:
        """The campaigns with loads, the base first."""
        comparisons = [comparison for _, comparison in self.of_loads]
        return [comparisons[0].base, *(comparison.new for comparison in comparisons)] if comparisons else []

    @property
    def chart(self) -> Markup:
        """The highest throughput of each campaign."""
        comparisons = [comparison for _, comparison in self.of_loads]
        if not any(comparison.maxima for comparison in comparisons):
            return Markup()
        most = {
            comparisons[0].base.name: {
                difference.place: difference.base for comparison in comparisons for difference in comparison.maxima
            }
        }
        for comparison in comparisons:
            most[comparison.new.name] = {difference.place: difference.new for difference in comparison.maxima}
        return most_block(self.sides, most, self.styles)


def _sections(model: _ComparisonModel) -> Iterator[Section]:
    yield from _gate(model)
    yield from _disturbed(model)
    yield from _differing(model)
    if model.of_loads:
        yield from _unsteady(model)
        yield from _cells(model)
        yield from _searched_maxima(model)
        yield from _trend(model)
        left_out = [
            (new.name, [Bullets([("", text) for text in new.left_out])]) for new in model.compared if new.left_out
        ]
        if left_out:
            yield section("left-out", under_titles(left_out))
        texts = how_tested([comparison for _, comparison in model.of_loads])
        yield section("tests", [Note(text) for text in texts])
    else:
        tested = any(search.tests is not None for results in model.campaigns for search in results.searches)
        notes = [Note(sentence("comparison.tests_not_compared"))] if tested else []
        blocks = [*notes, *_search_tables(model.of_searches, model)]
        yield section("compared-searches", blocks, is_open=True, lead=how_searches_compare())


def _gate(model: _ComparisonModel) -> Iterator[Section]:
    """The result of the gate and its cells."""
    parts: list[tuple[str, Sequence[Block]]] = [
        (new.gate.name, [*map(Note, (gate_words(new.gate), *gate_advice(new.gate))), gate_table(new.gate)])
        for new in model.compared
        if new.gate is not None
    ]
    if parts:
        yield section("gate", under_titles(parts), is_open=True)


def _disturbed(model: _ComparisonModel) -> Iterator[Section]:
    """The warnings of each campaign about other work on its host."""
    parts = [
        Folded(name, [warning_bullets(warnings)], is_open=True)
        for name, results in zip(model.names, model.campaigns, strict=True)
        if (warnings := [warning for warning in results.warnings if warning.kind in DISTURBING])
    ]
    if parts:
        yield section("disturbed", parts, is_open=True)


def _differing(model: _ComparisonModel) -> Iterator[Section]:
    parts = [(new.name, [settings_table(new.differs)]) for new in model.compared if new.differs]
    if parts:
        yield section("differing", under_titles(parts), is_open=True)


def _unsteady(model: _ComparisonModel) -> Iterator[Section]:
    """The changes within each campaign; nothing where there are none."""
    parts = [
        Folded(campaign.name, [warning_bullets(warnings)], is_open=True)
        for campaign in model.sides
        if (warnings := list(steadiness_warnings(steadiness_of(campaign.groups))))
    ]
    if parts:
        yield section("unsteady", parts)


def _cells(model: _ComparisonModel) -> Iterator[Section]:
    def tables(
        cells: Callable[[Comparison], Sequence[Difference]],
        table: Callable[[Sequence[Difference], Mapping[str, Style]], Table],
    ) -> list[Block]:
        return [
            table(cells(comparison), model.styles).folded("cell", f"{new.name}: ") for new, comparison in model.of_loads
        ]

    maxima = tables(lambda comparison: comparison.maxima, throughput_table)
    yield section("compared-maximum", maxima, is_open=True)
    yield section("compared-loads", tables(lambda comparison: comparison.by_load, throughput_table))
    yield section("compared-loss", tables(lambda comparison: comparison.by_load, loss_table))


def _searched_maxima(model: _ComparisonModel) -> Iterator[Section]:
    """The searches for maxima, where both sides made them."""
    comparisons = [new.maxima for new in model.compared if new.maxima is not None]
    if any(comparison.differences for comparison in comparisons):
        yield section("maxima-searched", _search_tables(comparisons, model), lead=how_searches_compare())


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
        InTime(campaign, started(results.manifest.get("started")))
        for campaign, results in zip(model.sides, model.campaigns, strict=True)
    ]
    by_load = grouped(trends(in_time), lambda trend: _MAXIMUM if trend.place.load is None else str(trend.place.load))
    unknown = [dated.campaign.name for dated in in_time if dated.started is None]
    blocks: list[Block] = []
    if unknown:
        blocks.append(Note(sentence("notes.unknown_start", names=", ".join(unknown))))
    if by_load:
        options = [Option(f"trend-{number}", load) for number, load in enumerate(by_load)]
        parts = [
            [FigureMarkup(trend_block(cells, model.styles, option.value))]
            for option, cells in zip(options, by_load.values(), strict=True)
        ]
        blocks.append(Choice("Load", options, parts, name="trend", start=options[0].value))
    else:
        blocks.append(Note(sentence("notes.no_common_cell")))
    yield section("trend", blocks, is_open=True)


def _when(results: CampaignResults) -> str:
    moment = started(results.manifest.get("started"))
    return "start unknown" if moment is None else f"started {moment:%Y-%m-%d %H:%M} UTC"

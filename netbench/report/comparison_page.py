"""The comparison page: one HTML file that needs no network, like the report of a campaign."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from netbench.model.campaign import CampaignResults
from netbench.model.frame_mix import frames_text, rising, size_text
from netbench.report.chart import Chart
from netbench.report.comparison_figures import CellTrend, InTime, most_by_campaign, started, throughput_in_time, trends
from netbench.report.comparison_words import (
    HOW_SEARCHES_COMPARE,
    TESTS_NOT_COMPARED,
    change_words,
    gate_advice,
    gate_words,
    how_tested,
    judged_words,
    left_out_words,
    loss_words,
    p_words,
    percent_or_nothing,
    range_words,
    repetitions_words,
    search_words,
    searches_verdict,
    verdict_words,
)
from netbench.report.formats import count, mbps, mbps_spread, percent, percent_spread
from netbench.report.markup import Html, TableColumn, element, folded, html, join, table
from netbench.report.page_template import Content, filled_in
from netbench.report.sections import Option, Section, by_title, drawn_apart, note, picked, section
from netbench.report.steadiness_words import steadiness_warnings
from netbench.report.styles import Style, emulation_note, styles
from netbench.report.tables import mean_column, uut_label, warning_list
from netbench.results.atomic import write_atomically
from netbench.results.comparability import Differs
from netbench.statistics.compared_cells import DISTURBING, Campaign, ComparedCell, Comparison, Difference
from netbench.statistics.drift import steadiness_of
from netbench.statistics.groups import grouped
from netbench.statistics.regression_gate import CellResult, Gate, GateResult, total
from netbench.statistics.search_comparison import SearchComparison, SearchDifference

_MAXIMUM = "Highest throughput"
REFERRED_TO = "Maxima that loads are a share of"


@dataclass(frozen=True)
class Compared:
    """A campaign compared with the base: the comparison, its results, and the settings that differ."""

    comparison: Comparison
    results: CampaignResults
    differs: tuple[Differs, ...]
    maxima: SearchComparison | None = None  # the searches for the maxima that loads refer to
    gate: Gate | None = None

    @property
    def name(self) -> str:
        """The name of the new campaign."""
        return self.comparison.new.name


@dataclass(frozen=True)
class ComparedSearches:
    """A campaign of searches compared with the base, like `Compared`."""

    comparison: SearchComparison
    results: CampaignResults
    differs: tuple[Differs, ...]
    gate: Gate | None = None

    @property
    def name(self) -> str:
        """The name of the new campaign."""
        return self.comparison.new


def write_comparison(base: CampaignResults, compared: Sequence[Compared], out: Path) -> None:
    """Write the page, whole or not at all; UsageError or TestbedError where `out` cannot be written."""
    write_atomically(out, comparison_page(base, compared).encode(errors="backslashreplace"))


def comparison_page(base: CampaignResults, compared: Sequence[Compared]) -> str:
    """The page as text; `compared` are one or more campaigns against this base."""
    campaigns = [compared[0].comparison.base, *(new.comparison.new for new in compared)]
    measured = [group.uut for campaign in campaigns for group in campaign.groups]
    looks = _looks([base, *(new.results for new in compared)], measured)
    sections = [
        *_gates([new.gate for new in compared if new.gate is not None]),
        *_disturbed([base, *(new.results for new in compared)], [campaign.name for campaign in campaigns]),
        *_differing(compared),
        *_unsteady(campaigns),
        _maxima(compared, looks),
        _by_load(compared, looks),
        *_losses(compared, looks),
        *_referred_to(compared, looks),
        *_trend([base, *(new.results for new in compared)], compared, looks),
        *_left_out(compared),
        section("tests", "How this was tested", *map(note, how_tested([new.comparison for new in compared]))),
    ]
    return _page(
        [base, *(new.results for new in compared)],
        [campaign.name for campaign in campaigns],
        _verdict(compared, looks),
        sections,
    )


def write_searches_comparison(base: CampaignResults, compared: Sequence[ComparedSearches], out: Path) -> None:
    """Write the page about campaigns of searches, like `write_comparison`."""
    every = [base, *(new.results for new in compared)]
    looks = _looks(every, [search.uut for results in every for search in results.searches])
    tested = any(search.tests is not None for results in every for search in results.searches)
    names = [compared[0].comparison.base, *(new.name for new in compared)]
    gates = [new.gate for new in compared if new.gate is not None]
    sections = [
        *_gates(gates),
        *_disturbed(every, names),
        *_differing(compared),
        section(
            "searches",
            "Highest loads",
            note(f"{HOW_SEARCHES_COMPARE}." + (f" Also, {TESTS_NOT_COMPARED}." if tested else "")),
            _searches([new.comparison for new in compared], looks),
            is_open=True,
        ),
    ]
    lines = [f"{new.name}: {searches_verdict(new.comparison)}" for new in compared]
    lines += [f"gate, {gate.name}: {gate_words(gate)}" for gate in gates]
    headings = join((element("strong", line) for line in lines), Html("<br>"))
    verdict = element("div", headings, css=_CSS[total(gate.outcome for gate in gates)] if gates else "verdict")
    write_atomically(out, _page(every, names, verdict, sections).encode(errors="backslashreplace"))


def _referred_to(compared: Sequence[Compared], looks: Mapping[str, Style]) -> Iterator[Section]:
    """The searches for maxima, where both sides made them."""
    comparisons = [new.maxima for new in compared if new.maxima is not None]
    if any(comparison.differences for comparison in comparisons):
        yield section("maxima-searched", REFERRED_TO, note(f"{HOW_SEARCHES_COMPARE}."), _searches(comparisons, looks))


def _searches(comparisons: Sequence[SearchComparison], looks: Mapping[str, Style]) -> Html:
    columns: tuple[TableColumn[SearchDifference], ...] = (
        TableColumn("UUT", lambda difference: uut_label(difference.what.uut, looks)),
        TableColumn("Scenario", lambda difference: difference.what.scenario),
        TableColumn("Sources", lambda difference: str(difference.what.sources), "number"),
        TableColumn("Frame size", lambda difference: size_text(difference.what.frame_size), "number"),
        TableColumn("Goal", lambda difference: difference.what.goal),
        TableColumn("Base, kfps each", lambda difference: range_words(difference.base), "number"),
        TableColumn("New, kfps each", lambda difference: range_words(difference.new), "number"),
        TableColumn("Difference", search_words, "number"),
        TableColumn("Notes", lambda difference: "unstable" if difference.unstable else ""),
    )
    parts = []
    for comparison in comparisons:
        shown = table(
            columns, [comparison.differences], "results", lambda difference: "changed" if difference.change else ""
        )
        left_out = (element("li", str(limit)) for limit in comparison.left_out)
        more = join((element("h4", "Not compared"), element("ul", *left_out))) if comparison.left_out else Html("")
        parts.append((comparison.new, join((shown, more))))
    return by_title(parts) if len(parts) > 1 else parts[0][1]


def _page(every: Sequence[CampaignResults], names: Sequence[str], verdict: Html, sections: Sequence[Section]) -> str:
    """The page as text; the base comes first."""
    content = Content(
        title=f"{', '.join(names[1:])} against {names[0]}",
        version=version("netbench"),
        byline="; ".join(
            f"{name}: {results.topology} × {results.profile}, {_when(results)}"
            for name, results in zip(names, every, strict=True)
        ),
        verdict=verdict,
        contents=[element("a", part.link, href=f"#{part.anchor}") for part in sections],
        sections=[part.html for part in sections],
    )
    return "".join(filled_in(content))


def _looks(every: Sequence[CampaignResults], measured: Iterable[str]) -> dict[str, Style]:
    """The styles of all UUTs. A UUT emulated in only one campaign is marked, and not compared."""
    uuts = [*(uut for results in every for uut in results.uuts), *measured]
    settings = {uut: setting for results in every for uut, setting in results.settings.items()}
    return styles(uuts, settings)


def _verdict(compared: Sequence[Compared], looks: Mapping[str, Style]) -> Html:
    lines = [f"{new.name}: {verdict_words(new.comparison)}" for new in compared]
    gates = [new.gate for new in compared if new.gate is not None]
    lines += [f"gate, {gate.name}: {gate_words(gate)}" for gate in gates]
    remarks = []
    if matter := sum(setting.matters for new in compared for setting in new.differs):
        link = element("a", count(matter, "setting"), href="#differing")
        remarks.append(join(("Not only the numbers differ: ", link, ". ")))
    if emulated := [uut for uut, look in looks.items() if look.emulated]:
        remarks.append(html(f"{emulation_note(emulated)}. "))
    slower = any(new.comparison.slower for new in compared)
    css = "verdict invalid" if slower else "verdict suspicious" if matter else "verdict"
    css = _CSS[total(gate.outcome for gate in gates)] if gates else css
    headings = join((element("strong", line) for line in lines), Html("<br>"))
    return element("div", headings, element("p", *remarks), css=css)


_CSS = {
    GateResult.PASSED: "verdict",
    GateResult.FAILED: "verdict invalid",
    GateResult.INCONCLUSIVE: "verdict suspicious",
}


def _gates(gates: Sequence[Gate]) -> Iterator[Section]:
    """The result of the gate and its cells."""
    if not gates:
        return
    columns: tuple[TableColumn[CellResult], ...] = (
        TableColumn("Cell", lambda cell: str(cell.place)),
        TableColumn("Result", lambda cell: cell.outcome.value),
        TableColumn("Change", judged_words),
        TableColumn("Reason", lambda cell: cell.why),
        TableColumn("Smallest detectable change", lambda cell: percent_or_nothing(cell.detectable), "number"),
        TableColumn(
            "Repetitions needed", lambda cell: "" if cell.repetitions is None else f"{cell.repetitions:,}", "number"
        ),
    )
    parts = []
    for gate in gates:
        in_order = [cell for outcome in _WORST_FIRST for cell in gate.with_outcome(outcome)]
        shown = table(
            columns, [in_order], "results", lambda cell: "changed" if cell.outcome is GateResult.FAILED else ""
        )
        parts.append((gate.name, join((*map(note, (gate_words(gate), *gate_advice(gate))), shown))))
    yield section(
        "gate",
        "Gate",
        note(
            "Passed: a regression above the threshold is excluded. Failed: one is shown. Inconclusive: neither; this "
            "is no pass."
        ),
        by_title(parts) if len(parts) > 1 else parts[0][1],
        is_open=True,
    )


_WORST_FIRST = (GateResult.FAILED, GateResult.INCONCLUSIVE, GateResult.NOT_JUDGED, GateResult.PASSED)


def _disturbed(every: Sequence[CampaignResults], names: Sequence[str]) -> Iterator[Section]:
    """The warnings of each campaign about other work on its host."""
    parts = [
        (name, warning_list(warnings))
        for name, results in zip(names, every, strict=True)
        if (warnings := [warning for warning in results.warnings if warning.kind in DISTURBING])
    ]
    if parts:
        yield section(
            "disturbed",
            "Disturbed campaigns",
            note("The host had other work. A difference may be its doing, so that the cells are inconclusive."),
            by_title(parts),
            is_open=True,
        )


def _differing(compared: Sequence[Compared] | Sequence[ComparedSearches]) -> Iterator[Section]:
    columns: tuple[TableColumn[Differs], ...] = (
        TableColumn("Setting", lambda setting: setting.setting),
        TableColumn("Base", lambda setting: setting.base),
        TableColumn("New", lambda setting: setting.new),
    )
    parts = [
        (new.name, table(columns, [new.differs], "environment", lambda setting: "changed" if setting.matters else ""))
        for new in compared
        if new.differs
    ]
    if parts:
        yield section(
            "differing",
            "What else differs",
            note(
                "Settings that are not the same in both campaigns. Those that rates are known to depend on are marked."
            ),
            by_title(parts) if len(compared) > 1 else parts[0][1],
            is_open=True,
        )


def _unsteady(campaigns: Sequence[Campaign]) -> Iterator[Section]:
    """The changes within each campaign; nothing where there are none."""
    parts = [
        (campaign.name, warning_list(warnings))
        for campaign in campaigns
        if (warnings := list(steadiness_warnings(steadiness_of(campaign.groups))))
    ]
    if parts:
        yield section(
            "unsteady",
            "What changed within a campaign",
            note("Part of a difference may be when either side was measured, or on which boot."),
            by_title(parts),
            link="Not steady",
        )


def _maxima(compared: Sequence[Compared], looks: Mapping[str, Style]) -> Section:
    base = compared[0].comparison.base
    most = {base.name: {difference.place: difference.base for new in compared for difference in new.comparison.maxima}}
    most |= {new.name: {difference.place: difference.new for difference in new.comparison.maxima} for new in compared}
    campaigns = [base, *(new.comparison.new for new in compared)]
    places = list(dict.fromkeys(place for own in most.values() for place in own))

    def draw(own: Sequence[ComparedCell], looks: Mapping[str, Style]) -> Chart:
        shown = {name: {place: group for place, group in of.items() if place in own} for name, of in most.items()}
        return most_by_campaign(campaigns, shown, looks)

    figure = drawn_apart(places, lambda place: place.uut, looks, draw, "most") if places else note("None.")
    return section(
        "maximum",
        "Highest throughput",
        note(
            "The plateau of the throughput over the loads that both campaigns measured. Below saturation, a UUT"
            " forwards what it is offered: only here a slower UUT shows."
        ),
        figure,
        _tables(compared, lambda comparison: comparison.maxima, partial(_throughput_table, looks=looks)),
        is_open=True,
    )


def _by_load(compared: Sequence[Compared], looks: Mapping[str, Style]) -> Section:
    return section(
        "loads",
        "Throughput by load",
        note("Means of the valid trials ± 95 % interval; bandwidths are L1, all sources added up."),
        _tables(compared, lambda comparison: comparison.by_load, partial(_throughput_table, looks=looks)),
    )


def _losses(compared: Sequence[Compared], looks: Mapping[str, Style]) -> Iterator[Section]:
    yield section(
        "loss",
        "Loss by load",
        note(
            "Lost ÷ offered, and by how many percentage points (pp) it differs, ± the half width of its 95 % interval."
        ),
        _tables(compared, lambda comparison: comparison.by_load, partial(_loss_table, looks=looks)),
    )


def _tables(
    compared: Sequence[Compared],
    cells: Callable[[Comparison], Sequence[Difference]],
    draw: Callable[[Sequence[Difference]], Html],
) -> Html:
    parts = []
    for new in compared:
        differences = cells(new.comparison)
        drawn = draw(differences) if differences else note("None.")
        parts.append(folded(f"{new.name}: {count(len(differences), 'cell')}", len(differences), drawn))
    return join(parts)


def _throughput_table(cells: Sequence[Difference], looks: Mapping[str, Style]) -> Html:
    columns: tuple[TableColumn[Difference], ...] = (
        *_of_place(looks),
        mean_column("Base Mbit/s", lambda difference: difference.base.throughput_mbps, mbps, mbps_spread),
        mean_column("New Mbit/s", lambda difference: difference.new.throughput_mbps, mbps, mbps_spread),
        TableColumn("Difference", change_words, "number"),
        TableColumn("p", lambda difference: p_words(difference.throughput_test), "number"),
        TableColumn("Test", lambda difference: difference.throughput_test.test.value),
        TableColumn("n", lambda difference: repetitions_words(difference.base, difference.new), "number"),
    )
    return table(columns, _blocks(cells), "results", lambda difference: "" if difference.change is None else "changed")


def _loss_table(cells: Sequence[Difference], looks: Mapping[str, Style]) -> Html:
    columns: tuple[TableColumn[Difference], ...] = (
        *_of_place(looks),
        mean_column("Base", lambda difference: difference.base.loss_ratio, percent, percent_spread),
        mean_column("New", lambda difference: difference.new.loss_ratio, percent, percent_spread),
        TableColumn("Difference", loss_words, "number"),
        TableColumn("p", lambda difference: p_words(difference.loss_test), "number"),
        TableColumn("n", lambda difference: repetitions_words(difference.base, difference.new), "number"),
    )
    return table(
        columns, _blocks(cells), "results", lambda difference: "" if difference.change_of_loss is None else "changed"
    )


def _of_place(looks: Mapping[str, Style]) -> tuple[TableColumn[Difference], ...]:
    return (
        TableColumn("UUT", lambda difference: uut_label(difference.place.uut, looks)),
        TableColumn("Scenario", lambda difference: difference.place.scenario),
        TableColumn("Sources", lambda difference: str(difference.place.sources), "number"),
        TableColumn("Load per source", _load),
    )


def _load(one: Difference) -> str:
    base, new = str(one.base.load), str(one.new.load)
    return base if base == new else f"{base} → {new}"


def _blocks(cells: Sequence[Difference]) -> dict[str, list[Difference]]:
    in_order = sorted(cells, key=lambda difference: rising(difference.place.frame_size), reverse=True)
    return grouped(in_order, lambda difference: frames_text(difference.place.frame_size))


def _trend(
    every: Sequence[CampaignResults], compared: Sequence[Compared], looks: Mapping[str, Style]
) -> Iterator[Section]:
    """Throughput over time; nothing for fewer than three campaigns."""
    campaigns = [compared[0].comparison.base, *(new.comparison.new for new in compared)]
    if len(campaigns) <= 2:
        return
    in_time = [
        InTime(campaign, started(results.manifest.get("started")))
        for campaign, results in zip(campaigns, every, strict=True)
    ]
    by_load = grouped(trends(in_time), lambda trend: _MAXIMUM if trend.place.load is None else str(trend.place.load))
    unknown = [dated.campaign.name for dated in in_time if dated.started is None]
    content = [note("The throughput of each cell by the start of its campaign, with its 95 % interval.")]
    if unknown:
        content.append(note(f"When these started is not known: {', '.join(unknown)}."))
    if by_load:
        options = [Option(f"trend-{number}", load) for number, load in enumerate(by_load)]
        parts = [
            drawn_apart(cells, _uut_of_trend, looks, throughput_in_time, option.value)
            for option, cells in zip(options, by_load.values(), strict=True)
        ]
        content.append(picked("trend", "Load", options, parts, options[0].value))
    else:
        content.append(note("No two campaigns have a cell in common."))
    yield section("trend", "Trend", *content, is_open=True)


def _uut_of_trend(one: CellTrend) -> str:
    return one.place.uut


def _left_out(compared: Sequence[Compared]) -> Iterator[Section]:
    parts = [
        (new.name, element("ul", *(element("li", line) for line in left_out_words(new.comparison.left_out))))
        for new in compared
        if new.comparison.left_out
    ]
    if parts:
        yield section("left-out", "Not compared", by_title(parts))


def _when(results: CampaignResults) -> str:
    moment = started(results.manifest.get("started"))
    return "start unknown" if moment is None else f"started {moment:%Y-%m-%d %H:%M} UTC"

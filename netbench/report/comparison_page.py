"""The page about a comparison: one HTML file that needs no network, as that of a campaign."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from netbench.model.campaign import CampaignResults
from netbench.model.frame_mix import frames_text, rising, size_text
from netbench.report.chart import Chart
from netbench.report.comparison_figures import InTime, Trend, most_by_campaign, started, throughput_in_time, trends
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
from netbench.report.markup import Column, Html, element, folded, html, join, table
from netbench.report.page_template import Content, filled_in
from netbench.report.sections import Option, Section, by_title, drawn_apart, note, picked, section
from netbench.report.steadiness_words import steadiness_warnings
from netbench.report.styles import Style, emulation_note, styles
from netbench.report.tables import mean_column, uut_label, warning_list
from netbench.results.atomic import write_atomically
from netbench.results.comparability import Differs
from netbench.statistics.comparison import DISTURBING, Campaign, Comparison, Difference, Place
from netbench.statistics.drift import steadiness_of
from netbench.statistics.groups import grouped
from netbench.statistics.regression_gate import CellResult, Gate, Outcome, total
from netbench.statistics.search_comparison import SearchComparison, SearchDifference

_MAXIMUM = "Highest throughput"
REFERRED_TO = "Maxima that loads are a share of"


@dataclass(frozen=True)
class Compared:
    """A campaign against the base, what it said, and what else the two differ in."""

    comparison: Comparison
    results: CampaignResults
    differs: tuple[Differs, ...]
    maxima: SearchComparison | None = None  # the searches for what loads are a share of
    gate: Gate | None = None

    @property
    def name(self) -> str:
        """What the new campaign is called."""
        return self.comparison.new.name


@dataclass(frozen=True)
class ComparedSearches:
    """The same of campaigns that searched."""

    comparison: SearchComparison
    results: CampaignResults
    differs: tuple[Differs, ...]
    gate: Gate | None = None

    @property
    def name(self) -> str:
        """What the new campaign is called."""
        return self.comparison.new


def write_comparison(base: CampaignResults, compared: Sequence[Compared], out: Path) -> None:
    """Write the page, whole or not at all; UsageError or TestbedError where `out` cannot be written."""
    write_atomically(out, comparison_page(base, compared).encode(errors="backslashreplace"))


def comparison_page(base: CampaignResults, compared: Sequence[Compared]) -> str:
    """The page as text; `compared` are one or more campaigns against this base."""
    campaigns = [compared[0].comparison.base, *(one.comparison.new for one in compared)]
    measured = [group.uut for one in campaigns for group in one.groups]
    looks = _looks([base, *(one.results for one in compared)], measured)
    sections = [
        *_gates([one.gate for one in compared if one.gate is not None]),
        *_disturbed([base, *(one.results for one in compared)], [one.name for one in campaigns]),
        *_differing(compared),
        *_unsteady(campaigns),
        _maxima(compared, looks),
        _by_load(compared, looks),
        *_losses(compared, looks),
        *_referred_to(compared, looks),
        *_trend([base, *(one.results for one in compared)], compared, looks),
        *_left_out(compared),
        section("tests", "How this was tested", *map(note, how_tested([one.comparison for one in compared]))),
    ]
    return _page(
        [base, *(one.results for one in compared)], [one.name for one in campaigns], _verdict(compared, looks), sections
    )


def write_searches_comparison(base: CampaignResults, compared: Sequence[ComparedSearches], out: Path) -> None:
    """The same of campaigns that searched."""
    every = [base, *(one.results for one in compared)]
    looks = _looks(every, [search.uut for one in every for search in one.searches])
    tested = any(search.tests is not None for one in every for search in one.searches)
    names = [compared[0].comparison.base, *(one.name for one in compared)]
    gates = [one.gate for one in compared if one.gate is not None]
    sections = [
        *_gates(gates),
        *_disturbed(every, names),
        *_differing(compared),
        section(
            "searches",
            "Highest loads",
            note(f"{HOW_SEARCHES_COMPARE}." + (f" Also, {TESTS_NOT_COMPARED}." if tested else "")),
            _searches([one.comparison for one in compared], looks),
            is_open=True,
        ),
    ]
    lines = [f"{one.name}: {searches_verdict(one.comparison)}" for one in compared]
    lines += [f"gate, {one.name}: {gate_words(one)}" for one in gates]
    headings = join((element("strong", line) for line in lines), Html("<br>"))
    verdict = element("div", headings, css=_CSS[total(one.outcome for one in gates)] if gates else "verdict")
    write_atomically(out, _page(every, names, verdict, sections).encode(errors="backslashreplace"))


def _referred_to(compared: Sequence[Compared], looks: Mapping[str, Style]) -> Iterator[Section]:
    """The searches for maxima, where both sides made them."""
    each = [one.maxima for one in compared if one.maxima is not None]
    if any(one.differences for one in each):
        yield section("maxima-searched", REFERRED_TO, note(f"{HOW_SEARCHES_COMPARE}."), _searches(each, looks))


def _searches(comparisons: Sequence[SearchComparison], looks: Mapping[str, Style]) -> Html:
    columns: tuple[Column[SearchDifference], ...] = (
        Column("UUT", lambda one: uut_label(one.what.uut, looks)),
        Column("Scenario", lambda one: one.what.scenario),
        Column("Sources", lambda one: str(one.what.sources), "number"),
        Column("Frame size", lambda one: size_text(one.what.frame_size), "number"),
        Column("Goal", lambda one: one.what.goal),
        Column("Base, kfps each", lambda one: range_words(one.base), "number"),
        Column("New, kfps each", lambda one: range_words(one.new), "number"),
        Column("Difference", search_words, "number"),
        Column("Notes", lambda one: "unstable" if one.unstable else ""),
    )
    parts = []
    for one in comparisons:
        shown = table(columns, [one.differences], "results", lambda each: "changed" if each.change else "")
        left_out = (element("li", str(each)) for each in one.left_out)
        more = join((element("h4", "Not compared"), element("ul", *left_out))) if one.left_out else Html("")
        parts.append((one.new, join((shown, more))))
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
        contents=[element("a", one.link, href=f"#{one.anchor}") for one in sections],
        sections=[one.html for one in sections],
    )
    return "".join(filled_in(content))


def _looks(every: Sequence[CampaignResults], measured: Iterable[str]) -> dict[str, Style]:
    """Those of all UUTs; a UUT that was emulated in one campaign alone is compared in none, and marked."""
    uuts = [*(uut for one in every for uut in one.uuts), *measured]
    settings = {uut: setting for one in every for uut, setting in one.settings.items()}
    return styles(uuts, settings)


def _verdict(compared: Sequence[Compared], looks: Mapping[str, Style]) -> Html:
    lines = [f"{one.name}: {verdict_words(one.comparison)}" for one in compared]
    gates = [one.gate for one in compared if one.gate is not None]
    lines += [f"gate, {one.name}: {gate_words(one)}" for one in gates]
    remarks = []
    if matter := sum(each.matters for one in compared for each in one.differs):
        link = element("a", count(matter, "setting"), href="#differing")
        remarks.append(join(("Not only the numbers differ: ", link, ". ")))
    if emulated := [uut for uut, look in looks.items() if look.emulated]:
        remarks.append(html(f"{emulation_note(emulated)}. "))
    slower = any(one.comparison.slower for one in compared)
    css = "verdict invalid" if slower else "verdict suspicious" if matter else "verdict"
    css = _CSS[total(one.outcome for one in gates)] if gates else css
    headings = join((element("strong", line) for line in lines), Html("<br>"))
    return element("div", headings, element("p", *remarks), css=css)


_CSS = {
    Outcome.PASSED: "verdict",
    Outcome.FAILED: "verdict invalid",
    Outcome.INCONCLUSIVE: "verdict suspicious",
}


def _gates(gates: Sequence[Gate]) -> Iterator[Section]:
    """The result of the gate, and the cells that it is about."""
    if not gates:
        return
    columns: tuple[Column[CellResult], ...] = (
        Column("Cell", lambda one: str(one.place)),
        Column("Result", lambda one: one.outcome.value),
        Column("Change", judged_words),
        Column("Reason", lambda one: one.why),
        Column("Smallest detectable change", lambda one: percent_or_nothing(one.detectable), "number"),
        Column("Repetitions needed", lambda one: "" if one.repetitions is None else f"{one.repetitions:,}", "number"),
    )
    parts = []
    for gate in gates:
        in_order = [one for outcome in _WORST_FIRST for one in gate.with_outcome(outcome)]
        shown = table(columns, [in_order], "results", lambda each: "changed" if each.outcome is Outcome.FAILED else "")
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


_WORST_FIRST = (Outcome.FAILED, Outcome.INCONCLUSIVE, Outcome.NOT_JUDGED, Outcome.PASSED)


def _disturbed(every: Sequence[CampaignResults], names: Sequence[str]) -> Iterator[Section]:
    """The warnings of each campaign that its host had other work."""
    parts = [
        (name, warning_list(warnings))
        for name, results in zip(names, every, strict=True)
        if (warnings := [one for one in results.warnings if one.kind in DISTURBING])
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
    columns: tuple[Column[Differs], ...] = (
        Column("Setting", lambda one: one.setting),
        Column("Base", lambda one: one.base),
        Column("New", lambda one: one.new),
    )
    parts = [
        (one.name, table(columns, [one.differs], "environment", lambda each: "changed" if each.matters else ""))
        for one in compared
        if one.differs
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
    """What changed within each campaign, where anything did."""
    parts = [
        (one.name, warning_list(warnings))
        for one in campaigns
        if (warnings := list(steadiness_warnings(steadiness_of(one.groups))))
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
    most = {base.name: {one.place: one.base for each in compared for one in each.comparison.maxima}}
    most |= {each.name: {one.place: one.new for one in each.comparison.maxima} for each in compared}
    campaigns = [base, *(one.comparison.new for one in compared)]
    places = list(dict.fromkeys(place for own in most.values() for place in own))

    def draw(own: Sequence[Place], looks: Mapping[str, Style]) -> Chart:
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
        _tables(compared, lambda one: one.maxima, partial(_throughput_table, looks=looks)),
        is_open=True,
    )


def _by_load(compared: Sequence[Compared], looks: Mapping[str, Style]) -> Section:
    return section(
        "loads",
        "Throughput by load",
        note("Means of the valid trials ± 95 % interval; bandwidths are L1, all sources added up."),
        _tables(compared, lambda one: one.by_load, partial(_throughput_table, looks=looks)),
    )


def _losses(compared: Sequence[Compared], looks: Mapping[str, Style]) -> Iterator[Section]:
    yield section(
        "loss",
        "Loss by load",
        note(
            "Lost ÷ offered, and by how many percentage points (pp) it differs, ± the half width of its 95 % interval."
        ),
        _tables(compared, lambda one: one.by_load, partial(_loss_table, looks=looks)),
    )


def _tables(
    compared: Sequence[Compared],
    cells: Callable[[Comparison], Sequence[Difference]],
    draw: Callable[[Sequence[Difference]], Html],
) -> Html:
    parts = []
    for one in compared:
        own = cells(one.comparison)
        drawn = draw(own) if own else note("None.")
        parts.append(folded(f"{one.name}: {count(len(own), 'cell')}", len(own), drawn))
    return join(parts)


def _throughput_table(cells: Sequence[Difference], looks: Mapping[str, Style]) -> Html:
    columns: tuple[Column[Difference], ...] = (
        *_of_place(looks),
        mean_column("Base Mbit/s", lambda one: one.base.throughput_mbps, mbps, mbps_spread),
        mean_column("New Mbit/s", lambda one: one.new.throughput_mbps, mbps, mbps_spread),
        Column("Difference", change_words, "number"),
        Column("p", lambda one: p_words(one.throughput_test), "number"),
        Column("Test", lambda one: one.throughput_test.test.value),
        Column("n", lambda one: repetitions_words(one.base, one.new), "number"),
    )
    return table(columns, _blocks(cells), "results", lambda one: "" if one.change is None else "changed")


def _loss_table(cells: Sequence[Difference], looks: Mapping[str, Style]) -> Html:
    columns: tuple[Column[Difference], ...] = (
        *_of_place(looks),
        mean_column("Base", lambda one: one.base.loss_ratio, percent, percent_spread),
        mean_column("New", lambda one: one.new.loss_ratio, percent, percent_spread),
        Column("Difference", loss_words, "number"),
        Column("p", lambda one: p_words(one.loss_test), "number"),
        Column("n", lambda one: repetitions_words(one.base, one.new), "number"),
    )
    return table(columns, _blocks(cells), "results", lambda one: "" if one.change_of_loss is None else "changed")


def _of_place(looks: Mapping[str, Style]) -> tuple[Column[Difference], ...]:
    return (
        Column("UUT", lambda one: uut_label(one.place.uut, looks)),
        Column("Scenario", lambda one: one.place.scenario),
        Column("Sources", lambda one: str(one.place.sources), "number"),
        Column("Load per source", _load),
    )


def _load(one: Difference) -> str:
    base, new = str(one.base.load), str(one.new.load)
    return base if base == new else f"{base} → {new}"


def _blocks(cells: Sequence[Difference]) -> dict[str, list[Difference]]:
    in_order = sorted(cells, key=lambda one: rising(one.place.frame_size), reverse=True)
    return grouped(in_order, lambda one: frames_text(one.place.frame_size))


def _trend(
    every: Sequence[CampaignResults], compared: Sequence[Compared], looks: Mapping[str, Style]
) -> Iterator[Section]:
    """Throughput along time, where there are more than two campaigns."""
    campaigns = [compared[0].comparison.base, *(one.comparison.new for one in compared)]
    if len(campaigns) <= 2:
        return
    in_time = [
        InTime(one, started(results.manifest.get("started"))) for one, results in zip(campaigns, every, strict=True)
    ]
    by_load = grouped(trends(in_time), lambda one: _MAXIMUM if one.place.load is None else str(one.place.load))
    unknown = [one.campaign.name for one in in_time if one.started is None]
    content = [note("The throughput of each cell by the start of its campaign, with its 95 % interval.")]
    if unknown:
        content.append(note(f"When these started is not known: {', '.join(unknown)}."))
    if by_load:
        options = [Option(f"trend-{number}", load) for number, load in enumerate(by_load)]
        parts = [
            drawn_apart(own, _uut_of_trend, looks, throughput_in_time, option.value)
            for option, own in zip(options, by_load.values(), strict=True)
        ]
        content.append(picked("trend", "Load", options, parts, options[0].value))
    else:
        content.append(note("No two campaigns have a cell in common."))
    yield section("trend", "Trend", *content, is_open=True)


def _uut_of_trend(one: Trend) -> str:
    return one.place.uut


def _left_out(compared: Sequence[Compared]) -> Iterator[Section]:
    parts = [
        (one.name, element("ul", *(element("li", line) for line in left_out_words(one.comparison.left_out))))
        for one in compared
        if one.comparison.left_out
    ]
    if parts:
        yield section("left-out", "Not compared", by_title(parts))


def _when(results: CampaignResults) -> str:
    moment = started(results.manifest.get("started"))
    return "start unknown" if moment is None else f"started {moment:%Y-%m-%d %H:%M} UTC"

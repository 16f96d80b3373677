"""The report: one HTML page that needs no network, made only from the results of a campaign."""

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

from netbench.model.campaign import CampaignResults
from netbench.model.frame_mix import rising, size_text
from netbench.model.scenario import DEDICATED
from netbench.model.search import SearchResult
from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.model.virtualisation import Setting
from netbench.report import figures, tables
from netbench.report.chart import Chart
from netbench.report.delay_and_order import delay_sections, order_sections
from netbench.report.directions_section import directions_section
from netbench.report.environment_section import environment_section
from netbench.report.findings import Finding, findings
from netbench.report.formats import count, enumerated
from netbench.report.frame_mixes import frame_mixes_section
from netbench.report.markup import Html, element, html, join
from netbench.report.page_template import Content, filled_in
from netbench.report.places import places_sections
from netbench.report.platforms_section import platforms_section
from netbench.report.published import PublishedPaper, schlosser2011
from netbench.report.rfc2544_section import rfc2544_section
from netbench.report.searches import searches_section
from netbench.report.sections import Section, View, by_title, chosen, drawn_apart, note, section, views
from netbench.report.shared_host import shared_host_sections
from netbench.report.shown import Shown
from netbench.report.software_delay_section import software_delay_sections
from netbench.report.steadiness_section import steadiness_section
from netbench.report.steadiness_words import steadiness_warnings
from netbench.report.styles import Style, emulation_note, label
from netbench.report.tester_section import failed_selftest, tester_line, tester_section
from netbench.report.uut_sections import counters_section, cpu_section, facts_section
from netbench.results.atomic import file_written_atomically
from netbench.statistics.drift import Steadiness, steadiness_of
from netbench.statistics.groups import Group, grouped
from netbench.statistics.lost_frames import CounterTotals, uuts_with_guest
from netbench.statistics.outliers import outliers_of

# Profiles whose reports show the paper's figures and tables too.
OF_PAPER = "schlosser2011"
_MOST_NAMED = 6  # UUTs
# Sections that a campaign need not have, by their ids.
_OPTIONAL = {
    "isolation": "interference (no neighbour)",
    "delay": "delay",
    "order": "order of frames",
    "steadiness": "steadiness along time (one repetition)",
    "cpu": "CPU time of guests",
    "counters": "counters inside UUTs",
    "searches": "highest loads (no search)",
}


def write_report(results: CampaignResults, out: Path) -> None:
    """Write the page, whole or not at all; UsageError or TestbedError where `out` cannot be written."""
    content = _content(results)  # first, so that no trial is in memory any more when the page is written
    with file_written_atomically(out) as file:
        for part in filled_in(content):
            file.write(part.encode(errors="backslashreplace"))  # a path need not be UTF-8


def report_page(results: CampaignResults) -> str:
    """The page as text: results, finished or not, as they stand."""
    return "".join(filled_in(_content(results)))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Switch garbage collection off in the block: the objects of many trials are all in use, and collecting is slow."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_no_collection()
def _content(results: CampaignResults) -> Content:
    counted = CounterTotals()
    for trial, times in results.added_up:
        counted.add(trial, times)
    results = results.in_memory
    calibration = [trial for trial in results.trials if trial.spec.finds_maximum]
    shown = Shown.of(replace(results, planned_trials=results.planned_trials - len(calibration)))
    results, groups, looks = shown.results, shown.groups, shown.looks
    all_findings = findings(results, groups)
    counted.guests |= uuts_with_guest(results.trials)
    steady = replace(results, trials=tuple(trial for trial in results.trials if not trial.spec.benchmark))
    steadiness = () if results.searches else steadiness_of(groups)
    results = replace(results, warnings=(*results.warnings, *steadiness_warnings(steadiness)))
    searched = list(searches_section(results, looks))
    sections = [
        *(searched if results.searches else ()),
        *rfc2544_section(results, looks),
        *(_result_sections(groups, looks, steady, counted, steadiness) if groups else ()),
        *(() if results.searches else searched),
        *platforms_section(results, looks),
        _verdicts(results, looks, calibration),
        *((section("warnings", "Warnings", tables.warning_list(results.warnings)),) if results.warnings else ()),
        tester_section(results),
        *facts_section(results.facts, looks),
        environment_section(results.manifest),
    ]
    anchors = {part.anchor for part in sections}
    return Content(
        title=f"{results.topology} × {results.profile}",
        version=_text(results.manifest.get("netbench")),
        about=_about(results, groups),
        byline=_byline(results.manifest),
        findings=[_finding(finding, anchors) for finding in all_findings],
        verdict=_verdict_line(results),
        contents=[element("a", part.link, href=f"#{part.anchor}") for part in sections],
        sections=[*(part.html for part in sections), *_absent(anchors, results)],
    )


def _finding(one: Finding, there: Collection[str]) -> Html:
    """A sentence with its main part in bold, and a link to the section that shows its numbers."""
    first, semicolon, more = one.text.partition("; ")
    said = join((element("span", f"{one.topic}:", css="topic"), " ", element("strong", first), semicolon, more))
    if one.chart not in there:
        return said
    return join((said, " ", element("a", "Show", href=f"#{one.chart}", aria_label=f"Show: {one.topic}")))


def _absent(there: Collection[str], results: CampaignResults) -> Iterator[Html]:
    """A line that lists the sections without data, which are not on the page."""
    if results.trials and (missing := [words for anchor, words in _OPTIONAL.items() if anchor not in there]):
        yield element("p", f"Not on this page, as nothing was measured of it: {', '.join(missing)}.", css="absent")


def _result_sections(
    groups: Sequence[Group],
    looks: Mapping[str, Style],
    results: CampaignResults,
    counted: CounterTotals,
    steadiness: Sequence[Steadiness],
) -> Iterable[Section]:
    choice = views(groups)
    paper = schlosser2011() if results.profile.startswith(OF_PAPER) else None
    yield section(
        "throughput",
        "Offered load and throughput",
        note(
            f"{'As Figure 3 of the paper. ' if paper else ''}Below the dotted diagonal, frames are lost. Where a line"
            f" stops short, the source could not send more.{_marks_explained(groups)}"
        ),
        _scale_switch(),
        chosen(choice, _figure("throughput", looks, figures.throughput_on_scales)),
        *_found_by(paper, 3),
        link="Throughput",
        is_open=True,
    )
    yield section(
        "maximum",
        "Highest throughput by scenario" if _one_number_each(groups) else "Highest throughput by number of sources",
        note(
            f"{'As Figure 4 of the paper. ' if paper else ''}The plateau of the throughput: the mean over all loads"
            " at which equally much came out, all sources added up, from valid trials only. "
            "A load counts where at least two thirds of its repetitions were valid at the"
            f" first attempt{_left_out(groups)}. ≥: lower bound, the UUT was not the limit."
        ),
        _maxima(groups, looks),
        *tables.lower_bounds(groups, looks),
        *_found_by(paper, 4),
        link="Highest throughput",
        is_open=True,
    )
    yield section(
        "loss",
        "Loss",
        note("The scale is logarithmic. Points in the grey band are 0 %, offset for visibility only."),
        chosen(choice, _figure("loss", looks, figures.loss_against_offered)),
        is_open=True,
    )
    yield from shared_host_sections(groups, looks, results, paper)
    yield from places_sections(choice, looks, results.trials, counted.guests)
    yield from delay_sections(choice, looks, results.trials)
    yield from software_delay_sections(choice, looks)
    yield from order_sections(results.trials, looks)
    yield section(
        "results",
        "Results",
        note("Means of the valid trials ± 95 % interval; bandwidths are L1, all sources added up."),
        chosen(choice, lambda view: tables.results_table(view.groups, looks)),
        *tables.skipped_loads(results.ended_sweeps, looks),
    )
    yield from steadiness_section(steadiness, groups, list(results.warm_ups), looks)
    yield from directions_section(choice, looks)
    yield from frame_mixes_section(groups, looks, results)
    yield from cpu_section(choice, groups, looks)
    yield from counters_section(counted.sums, looks)


def _scale_switch() -> Html:
    """Buttons for the scales of throughput."""
    buttons = [
        element("button", scale, type="button", data_scale=scale, aria_pressed="false") for scale in figures.SCALES
    ]
    return element("div", *buttons, css="choice", role="group", aria_label="Scale of loads and throughput")


def _marks_explained(groups: Sequence[Group]) -> str:
    """The meaning of single marks; empty where there are none."""
    text = ""
    if any(group.suspicious or group.invalid for group in groups):
        text += " Hollow marks are single suspicious trials and crosses single invalid ones, part of no mean."
    if any((outliers := outliers_of(group)) and outliers.marked for group in groups):
        text += " Hollow marks with a dot are outliers, which are part of it."
    return text


def _found_by(paper: PublishedPaper | None, figure: int) -> Iterator[Html]:
    """The findings of a paper on its figure, folded; nothing without a paper."""
    if paper:
        yield element("details", element("summary", "What the paper found"), note(paper.on_figure(figure)))


def _left_out(groups: Sequence[Group]) -> str:
    """The number of measurements with valid trials that do not count for a maximum, as text."""
    number = sum(bool(group.valid) and not group.counts_as_maximum for group in groups)
    return f"; {count(number, 'measurement')} with valid trials did not" if number else ""


def _one_number_each(groups: Sequence[Group]) -> bool:
    """Whether there are several scenarios, each with one number of sources."""
    pairs = {(group.scenario, group.sources) for group in groups}
    return 1 < len(pairs) == len({scenario for scenario, _ in pairs})


def _maxima(groups: Sequence[Group], looks: Mapping[str, Style]) -> Html:
    """Maxima by number of sources where a scenario has several, and by scenario where there are several."""
    by_scenario = grouped(groups, lambda group: group.scenario)
    if len(by_scenario) == 1:
        return drawn_apart(groups, _uut, looks, figures.most_throughput, "maximum")
    parts = [
        (scenario, drawn_apart(members, _uut, looks, figures.most_throughput, f"maximum-{place}"))
        for place, (scenario, members) in enumerate(by_scenario.items())
        if len({group.sources for group in members}) > 1
    ]
    fewest = min(group.sources for group in groups)
    beside = [group for group in groups if group.sources == fewest]
    figure = drawn_apart(beside, _uut, looks, partial(figures.most_throughput, by_scenario=True), "maximum-scenarios")
    return by_title([*parts, (f"By scenario, {count(fewest, 'source')}", figure)])


def _figure(
    name: str,
    looks: Mapping[str, Style],
    draw: Callable[[Sequence[Group], Mapping[str, Style]], Chart | Mapping[str, Chart]],
) -> Callable[[View], Html]:
    return lambda view: drawn_apart(view.groups, _uut, looks, draw, f"{name}-{view.name}")


def _uut(group: Group) -> str:
    return group.uut


def _verdict_line(results: CampaignResults) -> Html:
    measured = len(results.trials)
    numbers = {verdict: sum(trial.verdict is verdict for trial in results.trials) for verdict in Verdict}
    missing = results.planned_trials - measured - results.skipped_trials
    if not measured:
        text = f"No trial has been measured yet; {results.planned_trials:,} are planned"
    else:
        text = (
            f"{numbers[Verdict.VALID]:,} of {count(measured, 'trial')} valid,"
            f" {numbers[Verdict.SUSPICIOUS]:,} suspicious, {numbers[Verdict.INVALID]:,} invalid;"
            f" {missing:,} of {results.planned_trials:,} planned missing"
        )
    if results.skipped_trials:
        text += f"; {results.skipped_trials:,} skipped, saturated"
    remarks = [tester_line(results)]
    if thrown_away := sum(len(trial.thrown_away) for trial in results.trials):
        link = element("a", f"{count(thrown_away, 'invalid attempt')} discarded", href="#verdicts")
        remarks.append(join((link, ", and the trials repeated. ")))
    if measured and (warm_ups := sum(1 for _ in results.warm_ups)):
        link = element("a", count(warm_ups, "warm-up trial"), href="#steadiness")
        remarks.append(join((link, ", part of no number. ")))
    if emulated := [uut for uut in results.uuts if uut in results.emulated]:
        remarks.append(join((element("a", emulation_note(emulated), href="#uuts"), ". ")))
    if saturated := sum(trial.is_saturated for trial in results.trials if trial.verdict is Verdict.VALID):
        link = element("a", f"{count(saturated, 'valid trial')} saturated", href="#verdicts")
        remarks.append(join((link, ": the link pushed back, and they count for the load that was offered. ")))
    if numbers[Verdict.SUSPICIOUS] or numbers[Verdict.INVALID]:
        remarks.append(join((element("a", "The reasons", href="#verdicts"), ". ")))
    if missing > 0:
        remarks.append(html("The campaign is not complete: netbench resume goes on with the missing trials. "))
    if results.warnings:
        warnings = element("a", count(len(results.warnings), "warning"), href="#warnings")
        remarks.append(join(("Read with ", warnings, ".")))
    if numbers[Verdict.INVALID] or not measured:
        css = "verdict invalid"
    elif numbers[Verdict.SUSPICIOUS] or missing > 0 or failed_selftest(results.manifest):
        css = "verdict suspicious"
    else:
        css = "verdict"
    return element("div", element("strong", text), element("p", *remarks), css=css)


def _about(results: CampaignResults, groups: Sequence[Group]) -> str:
    """`bridge and xdp forward frames of 64 bytes and imix, alone and beside neighbours (cpu-heavy); bridge is the
    baseline.`; empty where nothing is known.

    With several settings there are several baselines, which are named in the findings.
    """
    cells: Sequence[Group | SearchResult] = results.searches or groups
    known = {cell.uut for cell in cells}
    uuts = [uut for uut in results.uuts if uut in known]
    if not uuts:
        return ""
    sizes = enumerated([size_text(size, " bytes") for size in sorted({cell.frame_size for cell in cells}, key=rising)])
    beside = [
        scenario for scenario in dict.fromkeys(cell.scenario for cell in cells) if scenario and scenario != DEDICATED
    ]
    how = ["alone"] if any(cell.scenario == DEDICATED for cell in cells) else []
    how += [f"beside neighbours ({enumerated(beside)})"] if beside else []
    many = len(uuts) > _MOST_NAMED
    named = f"{len(uuts)} units under test" if many else enumerated([label(uut, results.emulated) for uut in uuts])
    text = f"{named} {'forward' if len(uuts) > 1 else 'forwards'} frames of {sizes}"
    alike = len({results.settings.get(uut, Setting()) for uut in uuts}) == 1
    base = f"; {label(uuts[0], results.emulated)} is the baseline" if alike and len(uuts) > 1 else ""
    return f"{text}{', ' if how else ''}{' and '.join(how)}{base}."


def _byline(manifest: Mapping[str, object]) -> str:
    commit, dash, dirty = str(manifest.get("git_revision") or "").partition("-")
    version = f"netbench {_text(manifest.get('netbench'))}" + (f" ({commit[:12]}{dash}{dirty})" if commit else "")
    finished = manifest.get("finished")
    until = f"finished {_moment(finished)}" if finished else "not finished"
    return f"Started {_moment(manifest.get('started'))}, {until}; measured by {version}"


def _verdicts(results: CampaignResults, looks: Mapping[str, Style], finding: Sequence[TrialResult]) -> Section:
    scenarios = {trial.spec.scenario for trial in results.trials}
    content = [note("A trial with several reasons is listed under each of them.")]
    if not results.trials:
        content = [note("No trial has been measured.")]
    elif not any(trial.reasons for trial in results.trials):
        content = [note("Every trial measured is valid.")]
    else:
        content.append(tables.verdict_list(tables.against_trials(results.trials), looks, scenarios))
    if thrown_away := tables.against_thrown_away(results.trials):
        content += [
            element("h3", "Discarded attempts"),
            note("Invalid attempts at trials that were then repeated. Nothing else on this page includes them."),
            tables.verdict_list(thrown_away, looks, scenarios),
        ]
    if any(trial.reasons for trial in finding):
        content += [
            element("h3", "Trials that searched for maxima"),
            note("They also try loads above any limit. Their results are under ", _HIGHEST_LOADS, "."),
            tables.verdict_list(tables.against_trials(finding), looks, scenarios),
        ]
    return section("verdicts", "Verdicts and reasons", *content, link="Verdicts")


_HIGHEST_LOADS = element("a", "Highest loads", href="#searches")


def _moment(value: object) -> str:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return _text(value)
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}".strip()


def _text(value: object) -> str:
    return "unknown" if value is None else str(value)

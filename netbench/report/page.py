"""The report: one HTML page that needs no network, made from the results of a campaign alone."""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from string import Template

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from netbench.model.campaign import CampaignResults
from netbench.model.verdict import Verdict
from netbench.report import emulation, figures, tables
from netbench.report import uut_sections as uuts
from netbench.report.delay_and_order import delay_sections, order_sections
from netbench.report.environment_section import changed_settings, environment_table
from netbench.report.formats import count
from netbench.report.glossary import definitions
from netbench.report.markup import Html, element, html, join
from netbench.report.panels import Style, styles
from netbench.report.places import places_sections
from netbench.report.sections import Section, View, by_title, chosen, drawn, note, section, views
from netbench.report.shared_host import shared_host_sections
from netbench.report.tester import failed_selftest, tester_line, tester_section
from netbench.report.uut_sections import cpu_by_scenario, knows_guests
from netbench.results.atomic import write_atomically
from netbench.statistics.groups import Group, group_trials
from netbench.statistics.interference.guest_cpu import cpu_use
from netbench.statistics.uut_counters import Counted


def write_report(results: CampaignResults, out: Path) -> None:
    """Write the page, whole or not at all; UsageError or TestbedError where `out` cannot be written."""
    write_atomically(out, report_page(results).encode())


def report_page(results: CampaignResults) -> str:
    """The page as text: results, finished or not, as they stand."""
    counted = Counted()
    results = replace(results, trials=tuple(map(counted.noted, results.trials)))
    groups = group_trials(results)
    looks = styles([*results.uuts, *(group.uut for group in groups)], results.emulated)
    sections = [
        *(_result_sections(groups, looks, results, counted) if groups else ()),
        _verdicts(results, looks),
        _warnings(results),
        tester_section(results),
        *((_facts(results, looks),) if any(results.facts.values()) else ()),
        _environment(results.manifest),
        section(
            "reading", "How to read this", definitions(neighbours=any(trial.neighbours for trial in results.trials))
        ),
    ]
    template = Template(files("netbench.report").joinpath("template.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=html(f"{results.topology} × {results.profile}"),
        version=html(_text(results.manifest.get("netbench"))),
        byline=_byline(results.manifest),
        verdict=_verdict_line(results),
        contents=_contents(sections),
        plotly_js=get_plotlyjs(),
        sections=join((section.html for section in sections), "\n"),
    )


def _result_sections(
    groups: Sequence[Group], looks: Mapping[str, Style], results: CampaignResults, counted: Counted
) -> Iterable[Section]:
    choice = views(groups)
    yield section(
        "throughput",
        "Offered load and throughput",
        note(
            "As Figure 3 of the paper. A line below the dotted diagonal loses frames; a line that ends early could not"
            " be offered more. Hollow marks are single suspicious trials and crosses single invalid ones, part of no"
            " mean."
        ),
        chosen(choice, _figure("throughput", looks, figures.offered_against_throughput)),
        link="Throughput",
    )
    yield section(
        "maximum",
        "Most throughput by scenario" if _one_number_each(groups) else "Most throughput by number of sources",
        note(
            "As Figure 4 of the paper. The highest mean throughput at any load, all sources added up, from valid trials"
            " only. It is not always reached at the highest load."
        ),
        _maxima(groups, looks),
        link="Most throughput",
    )
    yield section(
        "loss",
        "Loss",
        note("The scale is logarithmic. The grey band at the bottom is zero, the lines in it set apart."),
        chosen(choice, _figure("loss", looks, figures.loss_against_offered)),
    )
    yield from shared_host_sections(groups, looks, results)
    yield from places_sections(choice, looks, results.trials, counted.guests)
    yield from delay_sections(choice, looks, results.trials)
    yield from order_sections(results.trials, looks)
    yield section(
        "results",
        "Results",
        note("Means of the valid trials ± 95 % interval; bandwidths are L1, all sources added up."),
        chosen(choice, lambda view: tables.results_table(view.groups, looks)),
    )
    by_scenario = cpu_use(groups)
    if uuts.knows_cpu(groups) or knows_guests(by_scenario):
        yield section(
            "cpu",
            "CPU time",
            note(
                "In percent of one CPU while the trial sent and drained, means of the valid trials ± 95 % interval."
                " Guest: as its own kernel counts it. Host: what the guest cost the machine it runs on."
            ),
            *((cpu_by_scenario(by_scenario, looks),) if knows_guests(by_scenario) else ()),
            *((chosen(choice, lambda view: uuts.cpu_table(view.groups, looks)),) if uuts.knows_cpu(groups) else ()),
        )
    if counters := uuts.counters_tables(counted.sums, looks):
        yield section(
            "counters",
            "Counters inside the UUTs",
            note(
                "What the UUTs themselves counted, from source to sink, summed over all valid trials at any load and"
                " frame size. Frames that are not of a stream count too."
            ),
            counters,
        )


def _one_number_each(groups: Sequence[Group]) -> bool:
    """Whether there are several scenarios, each with one number of sources."""
    pairs = {(group.scenario, group.sources) for group in groups}
    return 1 < len(pairs) == len({scenario for scenario, _ in pairs})


def _maxima(groups: Sequence[Group], looks: Mapping[str, Style]) -> Html:
    """By number of sources where a scenario has several, and scenario beside scenario where there are several."""
    by_scenario: dict[str, list[Group]] = {}
    for group in groups:
        by_scenario.setdefault(group.scenario, []).append(group)
    if len(by_scenario) == 1:
        return drawn(figures.most_throughput(groups, looks), "maximum")
    parts = [
        (scenario, drawn(figures.most_throughput(own, looks), f"maximum-{place}"))
        for place, (scenario, own) in enumerate(by_scenario.items())
        if len({group.sources for group in own}) > 1
    ]
    fewest = min(group.sources for group in groups)
    beside = [group for group in groups if group.sources == fewest]
    figure = figures.most_throughput(beside, looks, by_scenario=True)
    return by_title([*parts, (f"By scenario, {count(fewest, 'source')}", drawn(figure, "maximum-scenarios"))])


def _figure(
    name: str, looks: Mapping[str, Style], draw: Callable[[Sequence[Group], Mapping[str, Style]], go.Figure]
) -> Callable[[View], Html]:
    return lambda view: drawn(draw(view.groups, looks), f"{name}-{view.name}")


def _verdict_line(results: CampaignResults) -> Html:
    measured = len(results.trials)
    numbers = {verdict: sum(trial.verdict is verdict for trial in results.trials) for verdict in Verdict}
    missing = results.planned_trials - measured
    if not measured:
        text = f"No trial has been measured yet; {results.planned_trials:,} are planned"
    else:
        text = (
            f"{numbers[Verdict.VALID]:,} of {count(measured, 'trial')} valid,"
            f" {numbers[Verdict.SUSPICIOUS]:,} suspicious, {numbers[Verdict.INVALID]:,} invalid;"
            f" {missing:,} of {results.planned_trials:,} planned missing"
        )
    remarks = [tester_line(results)]
    if emulated := [uut for uut in results.uuts if uut in results.emulated]:
        remarks.append(join((element("a", emulation.note(emulated), href="#uuts"), ". ")))
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


def _byline(manifest: Mapping[str, object]) -> Html:
    revision = manifest.get("git_revision")
    version = f"netbench {_text(manifest.get('netbench'))}" + (f" ({_short(str(revision))})" if revision else "")
    finished = manifest.get("finished")
    until = f"finished {_moment(finished)}" if finished else "not finished"
    return html(f"Started {_moment(manifest.get('started'))}, {until}; measured by {version}")


def _short(revision: str) -> str:
    commit, _, dirty = revision.partition("-")
    return commit[:12] + (f"-{dirty}" if dirty else "")


def _contents(sections: Iterable[Section]) -> Html:
    return join(element("a", section.link, href=f"#{section.anchor}") for section in sections)


def _verdicts(results: CampaignResults, looks: Mapping[str, Style]) -> Section:
    if all(trial.verdict is Verdict.VALID for trial in results.trials):
        nothing = "No trial has been measured." if not results.trials else "Every trial measured is valid."
        return section("verdicts", "Verdicts and reasons", note(nothing), link="Verdicts")
    return section(
        "verdicts",
        "Verdicts and reasons",
        note("A trial with several reasons is listed under each of them."),
        tables.verdict_list(results.trials, looks),
        link="Verdicts",
    )


def _warnings(results: CampaignResults) -> Section:
    content = tables.warning_list(results.warnings) if results.warnings else note("None.")
    return section("warnings", "Warnings", content)


def _facts(results: CampaignResults, looks: Mapping[str, Style]) -> Section:
    return section(
        "uuts",
        "Units under test",
        note("What each said of itself when it was ready."),
        uuts.facts_table(results.facts, looks),
    )


def _environment(manifest: Mapping[str, object]) -> Section:
    command = manifest.get("command")
    words = [str(word) for word in command] if isinstance(command, list | tuple) else []
    changed = changed_settings(manifest)
    if changed:
        remark = f"{count(len(changed), 'setting')} changed during the campaign: {', '.join(changed)}."
    elif manifest.get("after"):
        remark = "No setting changed during the campaign."
    else:
        remark = "What holds after the campaign is not known yet."
    return section(
        "environment",
        "Environment",
        element(
            "dl",
            element("dt", "command"),
            element("dd", element("code", shlex.join(words) or "unknown")),
            element("dt", "seed"),
            element("dd", _text(manifest.get("seed"))),
        ),
        note(remark),
        environment_table(manifest),
    )


def _moment(value: object) -> str:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return _text(value)
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}".strip()


def _text(value: object) -> str:
    return "unknown" if value is None else str(value)

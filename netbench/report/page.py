"""The report: one HTML page that needs no network, made from the results of a campaign alone."""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from string import Template

import plotly.graph_objects as go
from plotly.io import to_html
from plotly.offline import get_plotlyjs

from netbench.model.verdict import Verdict
from netbench.report import emulation, figures, tables, uuts
from netbench.report.environment import changed_settings, environment_table
from netbench.report.formats import count
from netbench.report.glossary import definitions
from netbench.report.markup import Html, element, html, join
from netbench.report.panels import Style, styles
from netbench.results.atomic import write_atomically
from netbench.results.campaign import CampaignResults
from netbench.results.groups import Group, group_trials

_BUTTONS = [["toImage", "zoom2d", "pan2d", "resetScale2d"]]


@dataclass(frozen=True, slots=True)
class _View:
    """The part of the results shown at a time: one scenario and number of sources."""

    name: str
    title: str
    groups: list[Group]


@dataclass(frozen=True, slots=True)
class _Section:
    """A part of the page; `link` is its name in the contents."""

    anchor: str
    link: str
    html: Html


def write_report(results: CampaignResults, out: Path) -> None:
    """Write the page, whole or not at all; UsageError or TestbedError where `out` cannot be written."""
    write_atomically(out, report_page(results).encode())


def report_page(results: CampaignResults) -> str:
    """The page as text: results, finished or not, as they stand."""
    groups = group_trials(results)
    looks = styles([*results.uuts, *(group.uut for group in groups)], results.emulated)
    sections = [
        *(_result_sections(groups, looks, results) if groups else ()),
        _verdicts(results, looks),
        _warnings(results),
        *((_facts(results, looks),) if any(results.facts.values()) else ()),
        _environment(results.manifest),
        _section("reading", "How to read this", definitions()),
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
    groups: Sequence[Group], looks: Mapping[str, Style], results: CampaignResults
) -> Iterable[_Section]:
    views = _views(groups)
    yield _section(
        "throughput",
        "Offered load and throughput",
        _note(
            "A line below the dotted diagonal loses frames; a line that ends early could not be offered more."
            " Hollow marks are single suspicious trials and crosses single invalid ones, part of no mean."
        ),
        _chosen(views, _figure("throughput", looks, figures.offered_against_throughput)),
        link="Throughput",
    )
    yield _section(
        "maximum",
        "Most throughput by number of sources",
        _note(
            "The highest mean throughput at any load, all sources added up, from valid trials only. It is not"
            " always reached at the highest load."
        ),
        *_by_scenario(groups, looks),
        link="Most throughput",
    )
    yield _section(
        "loss",
        "Loss",
        _note("The scale is logarithmic. The grey band at the bottom is zero, the lines in it set apart."),
        _chosen(views, _figure("loss", looks, figures.loss_against_offered)),
    )
    yield _section(
        "places",
        "Where frames were lost",
        _note(
            "By the counters of the path from source to sink, summed over all valid trials of a UUT at any load and"
            " frame size. Suspicious trials have a column of their own; invalid ones are left out."
        ),
        tables.lost_frames_table(results.trials, looks),
    )
    yield _section(
        "results",
        "Results",
        _note("Means of the valid trials ± 95 % interval; bandwidths are L1, all sources added up."),
        _chosen(views, lambda view: tables.results_table(view.groups, looks)),
    )
    if uuts.knows_cpu(groups):
        yield _section(
            "cpu",
            "CPU time",
            _note(
                "In percent of one CPU while the trial sent and drained, means of the valid trials ± 95 % interval."
                " Guest: as its own kernel counts it. Host: what the guest cost the machine it runs on."
            ),
            _chosen(views, lambda view: uuts.cpu_table(view.groups, looks)),
        )
    if counters := uuts.counters_tables(results.trials, looks):
        yield _section(
            "counters",
            "Counters inside the UUTs",
            _note(
                "What the UUTs themselves counted, from source to sink, summed over all valid trials at any load and"
                " frame size. Frames that are not of a stream count too."
            ),
            counters,
        )


def _views(groups: Sequence[Group]) -> list[_View]:
    scenarios = list(dict.fromkeys(group.scenario for group in groups))
    parts: dict[tuple[str, int], list[Group]] = {}
    for group in groups:
        parts.setdefault((group.scenario, group.sources), []).append(group)
    views = []
    for place, (scenario, sources) in enumerate(sorted(parts, key=lambda part: (scenarios.index(part[0]), part[1]))):
        title = count(sources, "source")
        if len(scenarios) > 1:
            title = f"{scenario}, {title}"
        views.append(_View(f"view-{place}", title, parts[scenario, sources]))
    return views


def _chosen(views: Sequence[_View], content: Callable[[_View], Html]) -> Html:
    """The content of each view behind buttons that choose one; without buttons when there is only one."""
    if len(views) == 1:
        return content(views[0])
    buttons = [
        element("button", view.title, type="button", data_view=view.name, aria_pressed="false") for view in views
    ]
    parts = [
        element("div", element("h3", view.title), content(view), css="view", data_view=view.name) for view in views
    ]
    choice = element("div", *buttons, css="choice", role="group", aria_label="Scenario and number of sources")
    return join((choice, *parts))


def _by_scenario(groups: Sequence[Group], looks: Mapping[str, Style]) -> Iterable[Html]:
    scenarios = list(dict.fromkeys(group.scenario for group in groups))
    for place, scenario in enumerate(scenarios):
        if len(scenarios) > 1:
            yield element("h3", scenario)
        own = [group for group in groups if group.scenario == scenario]
        yield _drawn(figures.most_throughput(own, looks), f"maximum-{place}", own)


def _figure(
    name: str, looks: Mapping[str, Style], draw: Callable[[Sequence[Group], Mapping[str, Style]], go.Figure]
) -> Callable[[_View], Html]:
    return lambda view: _drawn(draw(view.groups, looks), f"{name}-{view.name}", view.groups)


def _drawn(figure: go.Figure, name: str, groups: Sequence[Group]) -> Html:
    markup = to_html(
        figure,
        full_html=False,
        include_plotlyjs=False,
        div_id=f"figure-{name}",
        config={"responsive": True, "displaylogo": False, "modeBarButtons": _BUTTONS},
    )
    single = len({group.frame_size for group in groups}) == 1
    return element("div", Html(markup), css="figure single" if single else "figure")


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
    remarks = []
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
    elif numbers[Verdict.SUSPICIOUS] or missing > 0:
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


def _contents(sections: Iterable[_Section]) -> Html:
    return join(element("a", section.link, href=f"#{section.anchor}") for section in sections)


def _verdicts(results: CampaignResults, looks: Mapping[str, Style]) -> _Section:
    if all(trial.verdict is Verdict.VALID for trial in results.trials):
        nothing = "No trial has been measured." if not results.trials else "Every trial measured is valid."
        return _section("verdicts", "Verdicts and reasons", _note(nothing), link="Verdicts")
    return _section(
        "verdicts",
        "Verdicts and reasons",
        _note("A trial with several reasons is listed under each of them."),
        tables.verdict_list(results.trials, looks),
        link="Verdicts",
    )


def _warnings(results: CampaignResults) -> _Section:
    content = tables.warning_list(results.warnings) if results.warnings else _note("None.")
    return _section("warnings", "Warnings", content)


def _facts(results: CampaignResults, looks: Mapping[str, Style]) -> _Section:
    return _section(
        "uuts",
        "Units under test",
        _note("What each said of itself when it was ready."),
        uuts.facts_table(results.facts, looks),
    )


def _environment(manifest: Mapping[str, object]) -> _Section:
    command = manifest.get("command")
    words = [str(word) for word in command] if isinstance(command, list | tuple) else []
    changed = changed_settings(manifest)
    if changed:
        remark = f"{count(len(changed), 'setting')} changed during the campaign: {', '.join(changed)}."
    elif manifest.get("after"):
        remark = "No setting changed during the campaign."
    else:
        remark = "What holds after the campaign is not known yet."
    return _section(
        "environment",
        "Environment",
        element(
            "dl",
            element("dt", "command"),
            element("dd", element("code", shlex.join(words) or "unknown")),
            element("dt", "seed"),
            element("dd", _text(manifest.get("seed"))),
        ),
        _note(remark),
        environment_table(manifest),
    )


def _section(anchor: str, title: str, *content: Html, link: str = "") -> _Section:
    return _Section(anchor, link or title, element("section", element("h2", title), *content, id=anchor))


def _note(text: str) -> Html:
    return element("p", text, css="note")


def _moment(value: object) -> str:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return _text(value)
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}".strip()


def _text(value: object) -> str:
    return "unknown" if value is None else str(value)

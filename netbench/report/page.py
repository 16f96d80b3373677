"""The report: one HTML page that needs no network, made only from the results of a campaign."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from markupsafe import Markup

from netbench.model.campaign import CampaignResults
from netbench.model.verdict import Verdict
from netbench.report.findings import findings
from netbench.report.formats import count, sentence
from netbench.report.model import ReportModel
from netbench.report.renderer import PageContent, rendered
from netbench.report.section_parts import main_chart
from netbench.report.sections import campaign_sections
from netbench.report.selftest_page import selftest_before
from netbench.report.styles import emulation_note
from netbench.report.tables.tester import text_of
from netbench.report.tester_sections import warnings_of
from netbench.results.atomic import file_written_atomically
from netbench.results.manifest import SELFTEST
from netbench.statistics.lost_frames import CounterTotals

# Sections that a campaign of frames need not have, by their ids.
_OPTIONAL = ("isolation", "delay", "order", "steadiness", "cpu", "counters", "searches")


def write_report(results: CampaignResults, out: Path) -> None:
    """Write the page, whole or not at all; UsageError or TestbedError where `out` cannot be written."""
    content = _content(results)  # first, so that no trial is in memory any more when the page is written
    with file_written_atomically(out) as file:
        for part in rendered(content):
            file.write(part.encode(errors="backslashreplace"))  # a path need not be UTF-8


def _content(results: CampaignResults) -> PageContent:
    counters = CounterTotals()
    for trial, times in results.added_up:
        counters.add(trial, times)
    model = ReportModel.of(results.in_memory, counters)
    first, *others = findings(model.results, model.groups)
    sections, chart = campaign_sections(model), main_chart(model)
    anchors = {section.anchor for section in sections}
    optional = () if results.has_flows else _OPTIONAL
    missing = ", ".join(sentence(f"optional.{anchor}") for anchor in optional if anchor not in anchors)
    return PageContent(
        title=f"{results.topology} × {results.profile}",
        byline=_byline(results.manifest),
        headline=[first.lead],
        state=_state(model),
        chart=chart.html if chart else Markup(),
        has_frame_rates=not results.has_flows,
        findings=[first, *others],
        status=_status(model),
        remarks=list(_remarks(model)),
        sections=sections,
        absent=sentence("notes.not_measured", names=missing) if missing and results.trials else "",
    )


def _byline(manifest: Mapping[str, object]) -> str:
    commit, dash, dirty = str(manifest.get("git_revision") or "").partition("-")
    version = f"netbench {text_of(manifest.get('netbench'))}" + (f" ({commit[:12]}{dash}{dirty})" if commit else "")
    finished = manifest.get("finished")
    until = f"finished {_moment(finished)}" if finished else "not finished"
    return f"Started {_moment(manifest.get('started'))}, {until}; measured by {version}"


def _moment(value: object) -> str:
    try:
        return f"{datetime.fromisoformat(str(value)):%Y-%m-%d %H:%M:%S %Z}".strip()
    except ValueError:
        return text_of(value)


def _status(model: ReportModel) -> str:
    """The numbers of trials by verdict, and of those that are missing."""
    results = model.results
    verdicts = Counter(trial.verdict for trial in results.trials)
    text = sentence(
        "status.trials" if results.trials else "status.nothing",
        trials=count(len(results.trials), "trial"),
        missing=f"{results.missing_trials:,}",
        planned=f"{results.planned_trials:,}",
        **{verdict.value: f"{verdicts[verdict]:,}" for verdict in Verdict},
    )
    skipped = results.skipped_trials
    return text + (sentence("status.skipped", skipped=f"{skipped:,}") if skipped else "")


def _state(model: ReportModel) -> str:
    results, record = model.results, SELFTEST.of(model.results.manifest)
    verdicts = {trial.verdict for trial in results.trials}
    if Verdict.INVALID in verdicts or not results.trials:
        return "invalid"
    failed_selftest = record is not None and not record.passed
    return "suspicious" if Verdict.SUSPICIOUS in verdicts or results.missing_trials > 0 or failed_selftest else ""


def _remarks(model: ReportModel) -> Iterator[str]:
    """Short sentences about the tester and the trials, each with a link to its section."""
    results = model.results
    with_results = {*(group.uut for group in model.groups), *(group.uut for group in model.workload_groups)}
    measured = [uut for uut in results.uuts if uut in with_results]
    if len(measured) > 1 and len({model.styles[uut].setting for uut in measured}) == 1:
        yield sentence("status.baseline", uut=model.styles[measured[0]].label)
    record = SELFTEST.of(results.manifest)
    if record is None and not results.has_flows:
        yield sentence("status.tester_unknown", topology=results.topology)
    elif record is not None:
        outcome = "passed" if record.passed else "FAILED"
        yield sentence("status.tester", outcome=outcome, when=selftest_before(record.when_ns, results.manifest))
    if discarded := sum(len(trial.thrown_away) for trial in results.trials):
        yield sentence("status.discarded", attempts=count(discarded, "invalid attempt"))
    if results.trials and (warm_ups := sum(1 for _ in results.warm_ups)):
        yield sentence("status.warm_ups", trials=count(warm_ups, "warm-up trial"))
    if model.emulated:
        yield sentence("status.emulated", note=emulation_note(model.emulated))
    if saturated := sum(trial.is_saturated for trial in results.trials if trial.verdict is Verdict.VALID):
        yield sentence("status.saturated", trials=count(saturated, "valid trial"))
    if any(trial.verdict is not Verdict.VALID for trial in results.trials):
        yield sentence("status.reasons")
    if results.missing_trials > 0:
        yield sentence("status.incomplete")
    if warnings := warnings_of(model):
        yield sentence("status.warnings", warnings=count(len(warnings), "warning"))

"""The sections about verdicts, warnings, the tester and its environment."""

import shlex
from collections.abc import Iterable

from netbench.model.verdict import CampaignWarning, ReasonKind, WarningKind
from netbench.report.blocks import Block, Bullets, Definitions, Heading, Note, section
from netbench.report.formats import count, sentence
from netbench.report.model import ReportModel
from netbench.report.section_parts import Sections, notes_of, titled
from netbench.report.selftest_page import selftest_before, selftest_blocks, selftest_sentence
from netbench.report.stability import steadiness_warnings
from netbench.report.tables import tables_of
from netbench.report.tables.tester import UNKNOWN_SETTING, Environment, identity_tables, text_of
from netbench.report.tables.verdicts import reasons_against, reasons_by_kind, reasons_of_discarded
from netbench.results.manifest import IDENTITIES, SELFTEST


def verdicts_section(model: ReportModel) -> Sections:
    """The section on the reasons against trials, also those of discarded attempts and of the calibration."""
    trials = model.results.trials
    lead = None
    if not any(trial.reasons for trial in trials):
        lead = sentence("notes.all_valid" if trials else "notes.no_trial")
    blocks: list[Block] = [*reasons_by_kind(model, reasons_against(trials))]
    for title, note, reasons in (
        ("Discarded attempts", "discarded", reasons_of_discarded(trials)),
        ("Calibration trials", "calibration", reasons_against(model.calibration)),
    ):
        if reasons:
            blocks += [Heading(title), *notes_of(note), *reasons_by_kind(model, reasons)]
    yield section("verdicts", blocks, lead=lead)


def warnings_of(model: ReportModel) -> tuple[CampaignWarning, ...]:
    """The warnings of the campaign, and those about its stability.

    The self-test measures the ceilings of sources of frames: unknown ones do not matter to flows.
    """
    issued = [
        warning
        for warning in model.results.warnings
        if not (model.results.has_flows and warning.kind is WarningKind.CEILING_UNKNOWN)
    ]
    return (*issued, *steadiness_warnings(model.steadiness))


def warning_bullets(warnings: Iterable[CampaignWarning]) -> Bullets:
    """The warnings, each with its kind and text."""
    return Bullets([(warning.kind.value, warning.text) for warning in warnings])


def tester_section(model: ReportModel) -> Sections:
    """The section on sources, sinks, hosts, stalls, ceilings and the last self-test."""
    manifest = model.results.manifest
    record, testers = SELFTEST.of(manifest), IDENTITIES.of(manifest)
    blocks: list[Block] = []
    if record is None and not model.results.has_flows:
        blocks += [Note(sentence("notes.selftest_unknown", topology=model.results.topology))]
    blocks += titled("Clients, servers and taps", tables_of("flow-ends", model))
    without = _streams_of_flows(model)
    for tester in testers:
        since = f" from {tester.since} on" if len(testers) > 1 else ""
        blocks += [Heading(f"Sources, sinks and hosts{since}"), *identity_tables(tester, without)]
    blocks += titled("Stalls of the tester", tables_of("stalls", model), "stalls")
    blocks += titled("Highest rate of the sources", tables_of("source-ceilings", model), "source_ceiling")
    if record is not None:
        kinds = ({reason.kind for reason in trial.reasons} for trial in model.results.trials)
        limited = sum(ReasonKind.TESTER_LIMITED in of_trial for of_trial in kinds)
        blocks += [
            Note(sentence("notes.selftest_when", when=selftest_before(record.when_ns, manifest)) + "."),
            Note(selftest_sentence(record), "strong"),
            *selftest_blocks(record, sentence("notes.ceiling_limited", trials=count(limited, "trial"))),
        ]
    yield section("tester", blocks)


def _streams_of_flows(model: ReportModel) -> set[str]:
    """The streams that ran flows in all trials, so that no source or sink of frames was used."""
    of_flows, of_frames = set[str](), set[str]()
    for trial in model.results.trials:
        of_flows.update(trial.spec.streams if trial.spec.serves else ())
        for guest in trial.guests:
            of_flows.update(flow.stream for flow in guest.flows)
            of_frames.update(counts.stream for counts in guest.streams)
    return of_flows - of_frames


def environment_section(model: ReportModel) -> Sections:
    """The section on the command line, the seed and the settings of the machines."""
    manifest = model.results.manifest
    state = Environment.of(manifest)
    command = manifest.get("command")
    words = [str(word) for word in command] if isinstance(command, list | tuple) else []
    text = sentence("notes.no_setting_changed" if state.is_finished else "notes.no_after")
    if changed := state.changed:
        names = ", ".join(map(".".join, changed))
        text = sentence("notes.settings_changed", settings=count(len(changed), "setting"), names=names)
    run = {"command": shlex.join(words) or UNKNOWN_SETTING, "seed": text_of(manifest.get("seed"))}
    yield section("environment", [Definitions(run), Note(text), *tables_of("environment", model)])

"""The section about the tester: the last self-test on the testbed, and the loads up to which the tester is reliable."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from statistics import median

from netbench.model.campaign import CampaignResults
from netbench.model.counts import l1_mbps
from netbench.model.frame_mix import size_text
from netbench.model.selftest_record import Ceiling, SelftestCheck, SelftestRecord
from netbench.model.source_ceiling import SourceCeiling
from netbench.model.tester import HostIdentity, Identity, LinkIdentity
from netbench.model.trial import TrialResult
from netbench.model.verdict import ReasonKind
from netbench.report.formats import UNKNOWN, count, kfps, mbps, percent
from netbench.report.markup import Html, TableColumn, element, join, table
from netbench.report.page_template import Content, filled_in
from netbench.report.sections import Section, note, section
from netbench.results.manifest import ceilings_of, identities_of, selftest_of


def _samples(ceiling: SourceCeiling) -> str:
    """All samples in kfps, in time order; rejected ones in brackets."""
    texts = (
        kfps(sample.offered_fps) if sample.accepted else f"({kfps(sample.offered_fps)})" for sample in ceiling.samples
    )
    return ", ".join(texts)


_OUTCOMES = {
    True: element("span", "pass", css="badge"),
    False: element("span", "FAIL", css="badge invalid"),
    None: element("span", "skipped", css="badge suspicious"),
}
_CHECKS: tuple[TableColumn[SelftestCheck], ...] = (
    TableColumn("Check", lambda check: check.name),
    TableColumn("UUT", lambda check: check.uut),
    TableColumn("Truth", lambda check: check.truth, "words"),
    TableColumn("Measured", lambda check: check.measured, "words"),
    TableColumn("Error", lambda check: check.error),
    TableColumn("Result", lambda check: _OUTCOMES[check.passed]),
    TableColumn("Remark", lambda check: check.detail, "words"),
)
_CEILINGS: tuple[TableColumn[Ceiling], ...] = (
    TableColumn("Sources", lambda ceiling: f"{ceiling.sources:,}"),
    TableColumn("Frame size", lambda ceiling: f"{ceiling.frame_size:,}", "number"),
    TableColumn("kfps of each source", lambda ceiling: kfps(ceiling.fps), "number"),
    TableColumn("Mbit/s of each source, L1", lambda ceiling: mbps(l1_mbps(ceiling.fps, ceiling.frame_size)), "number"),
)
_SOURCES: tuple[TableColumn[SourceCeiling], ...] = (
    TableColumn("Source", lambda ceiling: ceiling.source),
    TableColumn("Sources", lambda ceiling: f"{ceiling.sources:,}"),
    TableColumn("Frame size", lambda ceiling: size_text(ceiling.frame_size), "number"),
    TableColumn("Through", lambda ceiling: ceiling.uut or "no UUT"),
    TableColumn("kfps of each source", lambda ceiling: kfps(ceiling.fps) if ceiling.is_known else UNKNOWN, "number"),
    TableColumn(
        "Paced, kfps", lambda ceiling: UNKNOWN if ceiling.paced_fps is None else kfps(ceiling.paced_fps), "number"
    ),
    TableColumn("Samples, kfps", _samples, "words"),
    TableColumn(
        "Elsewhere, kfps",
        lambda ceiling: ", ".join(f"{at.name} {kfps(at.fps)}" for at in ceiling.compared_with),
        "words",
    ),
    TableColumn("Doubt", lambda ceiling: ceiling.doubt, "words"),
)


@dataclass(slots=True)
class _Disturbed:
    """The stalls of the tester in the trials of a UUT; `parts` are relative to the duration of each trial."""

    uut: str
    parts: list[float] = field(default_factory=list)
    steal_s: float = 0.0
    throttled_s: float = 0.0

    def add(self, trial: TrialResult) -> None:
        """Add the stalls of a trial."""
        disturbance = trial.disturbance
        if disturbance is None:
            return
        stalled = [seconds for stream in trial.spec.streams if (seconds := disturbance.stalled_of(stream)) is not None]
        if stalled:
            self.parts.append(max(stalled) / trial.spec.duration_s)
        self.steal_s += disturbance.steal_s or 0.0
        self.throttled_s += disturbance.throttled_s or 0.0


_DISTURBED: tuple[TableColumn[_Disturbed], ...] = (
    TableColumn("UUT", lambda stalls: stalls.uut),
    TableColumn("Trials", lambda stalls: f"{len(stalls.parts):,}", "number"),
    TableColumn("Stalled, median", lambda stalls: percent(median(stalls.parts)), "number"),
    TableColumn("Stalled, most", lambda stalls: percent(max(stalls.parts)), "number"),
    TableColumn("Steal time, s", lambda stalls: f"{stalls.steal_s:.2f}", "number"),
    TableColumn("Stopped by CPU limits, s", lambda stalls: f"{stalls.throttled_s:.2f}", "number"),
)
_ENDS: tuple[TableColumn[tuple[str, str, Identity]], ...] = (
    TableColumn("Stream", lambda end: end[0]),
    TableColumn("End", lambda end: end[1]),
    TableColumn("Kind", lambda end: end[2].kind),
    TableColumn("Version, options, threads, CPUs", lambda end: end[2].details, "words"),
)
_LINKS: tuple[TableColumn[tuple[str, LinkIdentity]], ...] = (
    TableColumn("Stream", lambda link: link[0]),
    TableColumn("Frames come in at the UUT", lambda link: link[1].details, "words"),
    TableColumn("Remark", lambda link: link[1].remark, "words"),
)
_HOSTS: tuple[TableColumn[tuple[str, HostIdentity]], ...] = (
    TableColumn("Host", lambda host: host[0]),
    TableColumn("Kernel", lambda host: host[1].kernel or UNKNOWN),
    TableColumn("Where", lambda host: host[1].where, "words"),
    TableColumn(
        "VM", lambda host: ", ".join(f"{name} {host[1].facts[name]}" for name in _apart(host[1].facts)), "words"
    ),
)


def failed_selftest(manifest: Mapping[str, object]) -> bool:
    """Whether the last self-test on the testbed of a campaign failed."""
    record = selftest_of(manifest)
    return record is not None and not record.passed


def tester_line(results: CampaignResults) -> Html:
    """A line for the head of the page: whether and when the tester was tested on this testbed."""
    record = selftest_of(results.manifest)
    if record is None:
        command = element("code", f"netbench selftest {results.topology}")
        return join((element("a", "Tester", href="#tester"), ": accuracy not verified here, run ", command, ". "))
    outcome = "passed" if record.passed else "FAILED"
    return join((element("a", f"Self-test {outcome}", href="#tester"), f" {_before(record, results.manifest)}. "))


def tester_section(results: CampaignResults) -> Section:
    """The checks of the self-test, and the ceilings with the number of trials above them."""
    record = selftest_of(results.manifest)
    limited, held_up = _seen(results)
    if record is None:
        tester = (*_identities(results.manifest), *_held_up(held_up), *_source_ceilings(results.manifest))
        unknown = note("The tester's accuracy and ceilings on this testbed are unknown: run `netbench selftest`.")
        return section("tester", "The tester", unknown, *tester)
    return section(
        "tester",
        "The tester",
        *_identities(results.manifest),
        *_held_up(held_up),
        *_source_ceilings(results.manifest),
        note(f"The last self-test on this testbed was made {_before(record, results.manifest)}."),
        element("p", element("strong", selftest_sentence(record))),
        _checks(record),
        *_ceilings(record, limited),
    )


def _apart(facts: Mapping[str, str]) -> list[str]:
    """The names of the VM facts that no other column shows."""
    return [name for name in facts if name not in ("vm", "accelerator", "emulated", "guest_kernel")]


def _identities(manifest: Mapping[str, object]) -> Iterable[Html]:
    """The sources, sinks, links and hosts; repeated for each change during the campaign."""
    testers = identities_of(manifest)
    for tester in testers:
        yield element("h3", "What sent and received" + (f" from {tester.since} on" if len(testers) > 1 else ""))
        ends = [
            (stream, role, end)
            for stream, of_stream in tester.streams.items()
            for role, end in (("source", of_stream.source), ("sink", of_stream.sink))
        ]
        yield table(_ENDS, [ends], "checks")
        if tester.links:
            yield table(_LINKS, [list(tester.links.items())], "checks")
        yield table(_HOSTS, [list(tester.hosts.items())], "checks")


def _source_ceilings(manifest: Mapping[str, object]) -> Iterable[Html]:
    """The highest rates of the campaign's sources, with each sample; nothing where none was measured."""
    ceilings = ceilings_of(manifest)
    if ceilings:
        yield element("h3", "The highest rate of the sources")
        yield note(
            "Measured once for the campaign, without a UUT where the links allow it. The value is the lower one of the"
            " two highest samples. A maximum that the source limits is a lower bound."
        )
        yield table(_SOURCES, [ceilings])


def selftest_sentence(record: SelftestRecord) -> str:
    """Whether the tester can be trusted, and the number of checks behind it."""
    failed = sum(check.passed is False for check in record.checks)
    skipped = sum(check.passed is None for check in record.checks)
    made = len(record.checks) - skipped
    if not made:
        text = "FAILED: no check could be made here"
    elif failed or not record.passed:
        text = f"FAILED: {failed:,} of {count(made, 'check')}; do not trust this tester here"
    else:
        text = f"Passed: {count(made, 'check')}; the tester can be trusted here"
    return f"{text}. {count(skipped, 'check')} could not be made." if skipped else f"{text}."


def selftest_page(record: SelftestRecord) -> str:
    """One self-contained HTML page about a self-test."""
    checks = section("checks", "Truth and measurement", _checks(record), *_ceilings(record), is_open=True)
    css = "verdict" if record.passed else "verdict invalid"
    content = Content(
        title=f"Self-test of {record.topology}",
        version=version("netbench"),
        byline=f"Measured {_moment(record)}; source {record.generator}; testbed {record.fingerprint}",
        verdict=element("div", element("strong", selftest_sentence(record)), css=css),
        sections=[checks.html],
    )
    return "".join(filled_in(content))


def _checks(record: SelftestRecord) -> Html:
    """Truth, measurement and error of each check, those that failed first."""
    in_order = sorted(record.checks, key=lambda check: (check.passed is not False, check.passed is None))
    return table(_CHECKS, [in_order], "checks", lambda check: "changed" if check.passed is False else "")


def _ceilings(record: SelftestRecord, limited: int | None = None) -> Iterable[Html]:
    """The tester's rates without a UUT; `limited` trials of a campaign were above them."""
    if not record.ceilings:
        yield note("The tester's own ceiling is unknown: it was not measured without a UUT.")
        return
    yield element("h3", "The tester's own ceiling")
    above = "" if limited is None else f" In this campaign: {count(limited, 'trial')}."
    yield note(
        "Source wired to sink, without a UUT: the highest rate at which every frame arrived. Trials that offer more are"
        f" marked {ReasonKind.TESTER_LIMITED.value}.{above}"
    )
    yield table(_CEILINGS, [record.ceilings])


def _moment(record: SelftestRecord) -> str:
    """The time of a self-test as text, in UTC."""
    return f"{datetime.fromtimestamp(record.when_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _before(record: SelftestRecord, manifest: Mapping[str, object]) -> str:
    """How long before the campaign a self-test was made."""
    try:
        started = datetime.fromisoformat(str(manifest.get("started"))).timestamp()
    except ValueError:
        return f"at {_moment(record)}"
    return f"{_long(started - record.when_ns / 1e9)} before ({_moment(record)})"


def _long(seconds: float) -> str:
    for unit, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= unit:
            return count(int(seconds // unit), name)
    return "less than a minute"


def _seen(results: CampaignResults) -> tuple[int, list[_Disturbed]]:
    """The number of tester-limited trials, and the tester's stalls by UUT, in one pass over the trials."""
    limited, held_up = 0, {uut: _Disturbed(uut) for uut in results.uuts}
    for trial in results.trials:
        limited += any(reason.kind is ReasonKind.TESTER_LIMITED for reason in trial.reasons)
        held_up.setdefault(trial.spec.uut, _Disturbed(trial.spec.uut)).add(trial)
    return limited, [stalls for stalls in held_up.values() if stalls.parts]


def _held_up(found: Sequence[_Disturbed]) -> Iterable[Html]:
    """The stalls of the tester while frames were sent."""
    if found:
        yield element("h3", "Stalls of the tester")
        yield note(
            "For what part of a trial its source and its ingress thread were kept from running by others than the"
            f" trial itself. Beyond the limit a trial is {ReasonKind.TESTER_DISTURBED.value}, and repeated. The exports"
            " have the numbers of each trial."
        )
        yield table(_DISTURBED, [found])

"""The tables about the tester: self-test, ceilings, stalls, and the identities of sources, sinks, links and hosts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from netbench.model.counts import l1_mbps
from netbench.model.frame_mix import size_text
from netbench.model.selftest_record import SelftestRecord
from netbench.model.source_ceiling import SourceCeiling
from netbench.model.tester import HostIdentity, Identities, LinkIdentity
from netbench.model.trial import TrialResult
from netbench.report.blocks import Cell, Column, Table, table
from netbench.report.formats import UNKNOWN, kfps, mbps, percent
from netbench.report.model import ReportModel
from netbench.report.tables.columns import number, words
from netbench.report.tables.registry import report_table
from netbench.results.manifest import CEILINGS

_OUTCOMES = {
    True: Cell("pass", badge="badge"),
    False: Cell("FAIL", badge="badge invalid"),
    None: Cell("skipped", badge="badge suspicious"),
}
_VM_FACTS_IN_COLUMNS = ("vm", "accelerator", "emulated", "guest_kernel")


def checks_table(record: SelftestRecord) -> Table:
    """Truth, measurement and error of each check, those that failed first."""
    return table(
        (
            Column("Check", lambda check: check.name),
            Column("UUT", lambda check: check.uut),
            words("Truth", lambda check: check.truth),
            words("Measured", lambda check: check.measured),
            Column("Error", lambda check: check.error),
            Column("Result", lambda check: _OUTCOMES[check.passed]),
            words("Remark", lambda check: check.detail),
        ),
        sorted(record.checks, key=lambda check: (check.passed is not False, check.passed is None)),
        "checks",
        row_css=lambda check: "changed" if check.passed is False else "",
    )


def ceilings_table(record: SelftestRecord) -> Table:
    """The tester's rates without a UUT."""
    return table(
        (
            Column("Sources", lambda ceiling: f"{ceiling.sources:,}"),
            number("Frame size", lambda ceiling: f"{ceiling.frame_size:,}"),
            number("kfps of each source", lambda ceiling: kfps(ceiling.fps)),
            number("Mbit/s of each source, L1", lambda ceiling: mbps(l1_mbps(ceiling.fps, ceiling.frame_size))),
        ),
        record.ceilings,
    )


@report_table("source-ceilings", "Highest rate of the sources", "a calibration of the sources")
def source_ceilings(model: ReportModel) -> Iterator[Table]:
    """The highest rates of the campaign's sources, with each sample."""
    if ceilings := CEILINGS.of(model.results.manifest):
        yield table(
            (
                Column("Source", lambda ceiling: ceiling.source),
                Column("Sources", lambda ceiling: f"{ceiling.sources:,}"),
                number("Frame size", lambda ceiling: size_text(ceiling.frame_size)),
                Column("Through", lambda ceiling: ceiling.uut or "no UUT"),
                number("kfps of each source", lambda ceiling: kfps(ceiling.fps) if ceiling.is_known else UNKNOWN),
                number("Paced, kfps", lambda ceiling: kfps(ceiling.paced_fps)),
                words("Samples, kfps", _samples),
                words(
                    "Elsewhere, kfps",
                    lambda ceiling: ", ".join(f"{at.name} {kfps(at.fps)}" for at in ceiling.compared_with),
                ),
                words("Doubt", lambda ceiling: ceiling.doubt),
            ),
            ceilings,
        )


def _samples(ceiling: SourceCeiling) -> str:
    """All samples in kfps, in time order; rejected ones in brackets."""
    texts = (
        kfps(sample.offered_fps) if sample.accepted else f"({kfps(sample.offered_fps)})" for sample in ceiling.samples
    )
    return ", ".join(texts)


@dataclass(slots=True)
class _Stalls:
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


@report_table("stalls", "Stalls of the tester", "CPU wait times of the tester's threads")
def stalls(model: ReportModel) -> Iterator[Table]:
    """How long the tester's threads waited for a CPU, by UUT."""
    by_uut = {uut: _Stalls(uut) for uut in model.results.uuts}
    for trial in model.results.trials:
        by_uut.setdefault(trial.spec.uut, _Stalls(trial.spec.uut)).add(trial)
    if rows := [row for row in by_uut.values() if row.parts]:
        yield table(
            (
                Column("UUT", lambda row: row.uut),
                number("Trials", lambda row: f"{len(row.parts):,}"),
                number("Stalled, median", lambda row: percent(median(row.parts))),
                number("Stalled, most", lambda row: percent(max(row.parts))),
                number("Steal time, s", lambda row: f"{row.steal_s:.2f}"),
                number("Stopped by CPU limits, s", lambda row: f"{row.throttled_s:.2f}"),
            ),
            rows,
        )


def identity_tables(tester: Identities) -> Sequence[Table]:
    """The sources and sinks, links and hosts of a tester."""
    ends = [
        (stream, role, end)
        for stream, of_stream in tester.streams.items()
        for role, end in (("source", of_stream.source), ("sink", of_stream.sink))
    ]
    tables = [
        table(
            (
                Column("Stream", lambda end: end[0]),
                Column("End", lambda end: end[1]),
                Column("Kind", lambda end: end[2].kind),
                words("Version, options, threads, CPUs", lambda end: end[2].details),
            ),
            ends,
            "checks",
        )
    ]
    if tester.links:
        links: tuple[Column[tuple[str, LinkIdentity]], ...] = (
            Column("Stream", lambda link: link[0]),
            words("Ingress of the UUT", lambda link: link[1].details),
            words("Remark", lambda link: link[1].remark),
        )
        tables.append(table(links, list(tester.links.items()), "checks"))
    hosts: tuple[Column[tuple[str, HostIdentity]], ...] = (
        Column("Host", lambda host: host[0]),
        Column("Kernel", lambda host: host[1].kernel or UNKNOWN),
        words("Where", lambda host: host[1].where),
        words(
            "VM",
            lambda host: ", ".join(
                f"{name} {value}" for name, value in host[1].facts.items() if name not in _VM_FACTS_IN_COLUMNS
            ),
        ),
    )
    return [*tables, table(hosts, list(tester.hosts.items()), "checks")]

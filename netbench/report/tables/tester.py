"""The tables about the tester: self-test, ceilings, stalls, sources and sinks, hosts, and settings of the host."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from netbench.model.counts import l1_mbps
from netbench.model.selftest_record import SelftestRecord
from netbench.model.source_ceiling import SourceCeiling
from netbench.model.tester import Identities
from netbench.model.trial import TrialResult
from netbench.report.blocks import Cell, Column, Table, table
from netbench.report.formats import UNKNOWN, kfps, mbps, percent
from netbench.report.model import ReportModel
from netbench.report.tables.registry import number, report_table, words
from netbench.results.manifest import CEILINGS, settings
from netbench.statistics.groups import grouped

UNKNOWN_SETTING = "unknown"
_ALWAYS_CHANGING = "activity"  # load and CPU ticks: the activity of the host, not its settings
_OUTCOMES = {
    True: Cell("pass", badge="badge"),
    False: Cell("FAIL", badge="badge invalid"),
    None: Cell("skipped", badge="badge suspicious"),
}
_VM_FACTS_IN_COLUMNS = ("vm", "accelerator", "emulated", "guest_kernel")

SettingPath = tuple[str, ...]  # the names under which a setting is nested


def checks_table(record: SelftestRecord) -> Table:
    """Truth, measurement and error of each check, those that failed first."""
    return table(
        sorted(record.checks, key=lambda check: (check.passed is not False, check.passed is None)),
        Column("Check", lambda check: check.name),
        Column("UUT", lambda check: check.uut),
        words("Truth", lambda check: check.truth),
        words("Measured", lambda check: check.measured),
        Column("Error", lambda check: check.error),
        Column("Result", lambda check: _OUTCOMES[check.passed]),
        words("Remark", lambda check: check.detail),
        css="checks",
        row_css=lambda check: "changed" if check.passed is False else "",
    )


def ceilings_table(record: SelftestRecord) -> Table:
    """The tester's rates without a UUT."""
    return table(
        record.ceilings,
        Column("Sources", lambda ceiling: f"{ceiling.sources:,}"),
        number("Frame size", lambda ceiling: f"{ceiling.frame_size:,}"),
        number("kfps of each source", lambda ceiling: kfps(ceiling.fps)),
        number("Mbit/s of each source, L1", lambda ceiling: mbps(l1_mbps(ceiling.fps, ceiling.frame_size))),
    )


@report_table("source-ceilings")
def source_ceilings(model: ReportModel) -> Iterator[Table]:
    """The highest rates of the campaign's sources, with each sample."""
    if ceilings := CEILINGS.of(model.results.manifest):
        yield table(
            ceilings,
            Column("Source", lambda ceiling: ceiling.source),
            Column("Sources", lambda ceiling: f"{ceiling.sources:,}"),
            number("Frame size", lambda ceiling: f"{ceiling.frame_size:,}"),
            Column("Through", lambda ceiling: ceiling.uut or "no UUT"),
            number("kfps of each source", lambda ceiling: kfps(ceiling.fps) if ceiling.is_known else UNKNOWN),
            number("Paced, kfps", lambda ceiling: kfps(ceiling.paced_fps)),
            words("Samples, kfps", _samples),
            words(
                "Elsewhere, kfps",
                lambda ceiling: ", ".join(f"{at.name} {kfps(at.fps)}" for at in ceiling.compared_with),
            ),
            words("Doubt", lambda ceiling: ceiling.doubt),
        )


def _samples(ceiling: SourceCeiling) -> str:
    """All samples in kfps, in time order; rejected ones in brackets."""
    rates = ((kfps(sample.offered_fps), sample.accepted) for sample in ceiling.samples)
    return ", ".join(rate if accepted else f"({rate})" for rate, accepted in rates)


@report_table("stalls")
def stalls(model: ReportModel) -> Iterator[Table]:
    """How long the tester's threads waited for a CPU, by UUT; parts are relative to the duration of each trial."""
    by_uut = grouped(model.results.trials, lambda trial: trial.spec.uut)
    order = dict.fromkeys((*model.results.uuts, *by_uut))
    rows = [
        (uut, parts, trials)
        for uut in order
        if (trials := by_uut.get(uut)) and (parts := [part for trial in trials for part in _stalled_part(trial)])
    ]
    if rows:
        yield table(
            rows,
            Column("UUT", lambda row: row[0]),
            number("Trials", lambda row: f"{len(row[1]):,}"),
            number("Stalled, median", lambda row: percent(median(row[1]))),
            number("Stalled, most", lambda row: percent(max(row[1]))),
            number("Steal time, s", lambda row: f"{_sum(row[2], 'steal_s'):.2f}"),
            number("Stopped by CPU limits, s", lambda row: f"{_sum(row[2], 'throttled_s'):.2f}"),
        )


def _stalled_part(trial: TrialResult) -> Iterator[float]:
    """The longest stall of the sources relative to the duration of the trial, where it is known."""
    if disturbance := trial.disturbance:
        stalled = [seconds for name in trial.spec.streams if (seconds := disturbance.stalled_of(name)) is not None]
        if stalled:
            yield max(stalled) / trial.spec.duration_s


def _sum(trials: Sequence[TrialResult], quantity: str) -> float:
    return sum(getattr(trial.disturbance, quantity) or 0.0 for trial in trials if trial.disturbance)


def identity_tables(tester: Identities, without: Collection[str] = ()) -> Sequence[Table]:
    """The sources and sinks, links and hosts of a tester; streams `without` a source and a sink ran flows only."""
    sources_and_sinks = [
        (stream, role, end)
        for stream, of_stream in tester.streams.items()
        for role, end in (("source", of_stream.source), ("sink", of_stream.sink))
        if stream not in without
    ]
    ends = table(
        sources_and_sinks,
        Column("Stream", lambda end: end[0]),
        Column("End", lambda end: end[1]),
        Column("Kind", lambda end: end[2].kind),
        words("Version, options, threads, CPUs", lambda end: end[2].details),
        css="checks",
    )
    links = table(
        list(tester.links.items()),
        Column("Stream", lambda link: link[0]),
        words("Ingress of the UUT", lambda link: link[1].details),
        words("Remark", lambda link: link[1].remark),
        css="checks",
    )
    hosts = table(
        list(tester.hosts.items()),
        Column("Host", lambda host: host[0]),
        Column("Kernel", lambda host: host[1].kernel or UNKNOWN),
        words("Where", lambda host: host[1].where),
        words(
            "VM",
            lambda host: ", ".join(
                f"{name} {value}" for name, value in host[1].facts.items() if name not in _VM_FACTS_IN_COLUMNS
            ),
        ),
        css="checks",
    )
    return [*([ends] if sources_and_sinks else []), *([links] if tester.links else []), hosts]


@dataclass(frozen=True, slots=True)
class Environment:
    """The known settings of the host, each before and after a campaign, and whether those after it are known."""

    values: Mapping[SettingPath, tuple[str, str]]
    is_finished: bool

    @classmethod
    def of(cls, manifest: Mapping[str, object]) -> "Environment":
        """Read a manifest."""
        before, after = (
            {path: text_of(value) for path, value in settings(manifest.get(key))} for key in ("before", "after")
        )
        paths = dict.fromkeys((*before, *after))
        values = {path: (before.get(path, UNKNOWN_SETTING), after.get(path, UNKNOWN_SETTING)) for path in paths}
        known = {path: both for path, both in values.items() if set(both) != {UNKNOWN_SETTING}}
        return cls(known, bool(after))

    @property
    def changed(self) -> list[SettingPath]:
        """The settings that changed during the campaign."""
        differing = (path for path, (before, after) in self.values.items() if before != after)
        return [path for path in differing if self.is_finished and path[0] != _ALWAYS_CHANGING]


@report_table("environment")
def environment(model: ReportModel) -> Iterator[Table]:
    """Settings with both values, the changed ones marked; then settings with a single value."""
    state = Environment.of(model.results.manifest)
    changed = set(state.changed)
    both: tuple[Column[SettingPath], ...] = (
        Column("Setting", ".".join),
        Column("Before", lambda path: state.values[path][0]),
        Column("After", lambda path: state.values[path][1] if state.is_finished else UNKNOWN),
    )
    single: tuple[Column[SettingPath], ...] = (
        Column("Setting, the same before and after", ".".join),
        Column("Value", lambda path: state.values[path][0]),
    )
    same = {path for path, (before, after) in state.values.items() if state.is_finished and before == after}
    for columns, is_same in ((both, False), (single, True)):
        if paths := [path for path in state.values if (path in same) is is_same]:
            yield table(
                paths,
                *columns,
                css="environment",
                block=lambda path: path[0],
                row_css=lambda path: "changed" if path in changed else "",
                shows_blocks=False,
            )


def text_of(value: object) -> str:
    """A value of the manifest as text."""
    if value is None:
        return UNKNOWN_SETTING
    if isinstance(value, list | tuple):
        return ", ".join(text_of(item) for item in value)
    return str(value)

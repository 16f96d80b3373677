"""The tables of verdicts: reasons against trials, by kind, and against discarded attempts."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from netbench.model.frame_size import FrameSize
from netbench.model.trial import TrialResult
from netbench.model.verdict import Reason, ReasonKind, Verdict
from netbench.model.workload import Workload
from netbench.report.blocks import Column, Folded, Table, table
from netbench.report.model import ReportModel
from netbench.report.tables.registry import number, report_table, words
from netbench.statistics.groups import grouped


class TrialReason(NamedTuple):
    """A reason against an attempt at a trial."""

    trial: TrialResult
    attempt: int
    reason: Reason


def reasons_against(trials: Iterable[TrialResult]) -> list[TrialReason]:
    """The reasons against trials that were kept."""
    return [TrialReason(trial, trial.attempt, reason) for trial in trials for reason in trial.reasons]


def reasons_of_discarded(trials: Iterable[TrialResult]) -> list[TrialReason]:
    """The reasons for which attempts were discarded."""
    return [
        TrialReason(trial, attempt, reason)
        for trial in trials
        for attempt, reasons in enumerate(trial.thrown_away, start=1)
        for reason in reasons
        if reason.kind.verdict is Verdict.INVALID
    ]


def reasons_by_kind(model: ReportModel, reasons: Sequence[TrialReason]) -> list[Folded]:
    """The reasons by kind under summaries, the worst first."""
    by_kind = grouped(reasons, lambda entry: entry.reason.kind)
    worst_first = sorted(ReasonKind, key=lambda kind: list(Verdict).index(kind.verdict), reverse=True)
    return [
        _reasons_table(by_kind[kind], model).folded("time", f"{kind.value} – ", badge=kind.verdict.value)
        for kind in worst_first
        if kind in by_kind
    ]


@report_table("verdicts")
def verdicts(model: ReportModel) -> Iterator[Table]:
    """All reasons against trials."""
    if reasons := reasons_against(model.results.trials):
        yield _reasons_table(reasons, model)


def _reasons_table(reasons: Sequence[TrialReason], model: ReportModel) -> Table:
    traffic = "Workload" if model.results.has_flows else "Frame size"
    every: tuple[Column[TrialReason], ...] = (
        Column("UUT", lambda entry: model.styles[entry.trial.spec.uut].label),
        Column("Scenario", lambda entry: entry.trial.spec.scenario),
        (Column if model.results.has_flows else number)(
            traffic, lambda entry: _traffic(entry.trial.spec.kind_of_traffic)
        ),
        Column("Load per source", lambda entry: str(entry.trial.spec.load)),
        number("Sources", lambda entry: str(len(entry.trial.spec.streams))),
        number("Repetition", lambda entry: str(entry.trial.spec.repetition)),
        number("Attempt", lambda entry: str(entry.attempt)),
        Column("Stream", lambda entry: _stream(entry.trial, entry.reason.stream)),
        words("Reason", lambda entry: entry.reason.detail),
    )
    scenarios = {trial.spec.scenario for trial in model.results.trials}
    shown = {"Scenario": len(scenarios) > 1, "Attempt": any(entry.attempt > 1 for entry in reasons)}
    return table(reasons, *(column for column in every if shown.get(column.title, True)))


def _traffic(traffic: FrameSize | Workload) -> str:
    """A frame size with its unit, or the name of a workload."""
    return traffic.name if isinstance(traffic, Workload) else traffic.text(" B")


def _stream(trial: TrialResult, stream: str) -> str:
    """The name of a stream, of the stream that it is the reverse of, and of the neighbour it runs through."""
    counts_of_stream = [counts for guest in trial.guests for counts in guest.streams if counts.stream == stream]
    remarks = [f"reverse of {counts.reverse_of}" for counts in counts_of_stream if counts.reverse_of]
    neighbours = (
        neighbour.name for neighbour in trial.neighbours if any(counts.stream == stream for counts in neighbour.streams)
    )
    remarks += [f"of {name}" for name in neighbours][:1]
    return f"{stream} ({', '.join(remarks)})" if remarks else stream or "all"

"""The tables of the report: results, verdicts with their reasons, warnings."""

from collections.abc import Iterable, Mapping, Sequence

from netbench.model.trial import TrialResult
from netbench.model.units import LoadKind
from netbench.model.verdict import Reason, ReasonKind, Verdict, Warning
from netbench.report.formats import (
    count,
    kfps,
    mbps,
    mbps_spread,
    mean,
    percent,
    percent_spread,
)
from netbench.report.markup import Column, Html, element, folded, join, row, table
from netbench.report.panels import Style
from netbench.statistics.groups import Group
from netbench.statistics.intervals import Interval

_SPREAD = Column("±", css="spread")
_RESULTS = (
    Column("UUT"),
    Column("Load per source"),
    Column("Intended Mbit/s", css="number"),
    Column("Offered Mbit/s", css="number"),
    _SPREAD,
    Column("Throughput Mbit/s", css="number"),
    _SPREAD,
    Column("Throughput kfps", css="number"),
    Column("Unsent", css="number"),
    _SPREAD,
    Column("Loss", css="number"),
    _SPREAD,
    Column("Valid", css="number"),
    Column("Suspicious", css="number"),
    Column("Invalid", css="number"),
)
_REASONS = (
    Column("UUT"),
    Column("Scenario"),
    Column("Frame size", css="number"),
    Column("Load per source"),
    Column("Sources", css="number"),
    Column("Repetition", css="number"),
    Column("Stream"),
    Column("What was found", css="words"),
)


def results_table(groups: Sequence[Group], looks: Mapping[str, Style]) -> Html:
    """Means of the valid trials with their 95 % intervals, a block per frame size, the largest first."""
    bodies = []
    for size in sorted({group.frame_size for group in groups}, reverse=True):
        heading = element("th", f"{size:,}-byte frames", colspan=str(len(_RESULTS)), scope="rowgroup")
        rows = [_result(group, looks) for group in groups if group.frame_size == size]
        bodies.append([element("tr", heading, css="block"), *rows])
    return table(_RESULTS, bodies, css="results")


def verdict_list(trials: Iterable[TrialResult], looks: Mapping[str, Style]) -> Html:
    """What speaks against each trial that is not valid, by kind of reason, invalidating kinds first."""
    trials = list(trials)
    several = len({trial.spec.scenario for trial in trials}) > 1
    columns = [column for column in _REASONS if several or column.title != "Scenario"]
    blocks = []
    for kind in sorted(ReasonKind, key=lambda kind: kind.verdict is not Verdict.INVALID):
        entries = [
            row(columns, _reason_cells(trial, reason, looks, several))
            for trial in trials
            for reason in trial.reasons
            if reason.kind is kind
        ]
        if entries:
            summary = join(
                (
                    element("span", kind.verdict.value, css=f"badge {kind.verdict.value}"),
                    " ",
                    element("b", kind.value),
                    f" – {count(len(entries), 'time')}",
                )
            )
            blocks.append(folded(summary, len(entries), table(columns, [entries])))
    return join(blocks)


def warning_list(warnings: Iterable[Warning]) -> Html:
    """Each warning of the campaign with what it means."""
    items = [element("li", element("b", warning.kind.value), ": ", warning.text) for warning in warnings]
    return element("ul", *items, css="warnings")


def uut_label(uut: str, looks: Mapping[str, Style]) -> Html:
    """The name of a UUT behind a swatch of its colour in the figures."""
    return join((element("span", css="swatch", style=f"background:{looks[uut].colour}"), looks[uut].label))


def _result(group: Group, looks: Mapping[str, Style]) -> Html:
    cells = (
        uut_label(group.uut, looks),
        str(group.load),
        str(group.load) if group.load.kind is LoadKind.MAX else mbps(group.intended_mbps),
        *_mbps(group.offered_mbps),
        *_mbps(group.throughput_mbps),
        kfps(mean(group.throughput_fps)),
        *_percent(group.unsent_ratio),
        *_percent(group.loss_ratio),
        str(len(group.valid)),
        _marked_count(len(group.suspicious), Verdict.SUSPICIOUS),
        _marked_count(len(group.invalid), Verdict.INVALID),
    )
    return row(_RESULTS, cells, css="" if group.valid else "nothing-valid")


def _mbps(interval: Interval | None) -> tuple[str, str]:
    return mbps(mean(interval)), mbps_spread(interval)


def _percent(interval: Interval | None) -> tuple[str, str]:
    return percent(mean(interval)), percent_spread(interval)


def _marked_count(number: int, verdict: Verdict) -> Html:
    return element("span", str(number), css=f"count {verdict.value}" if number else "count none")


def _reason_cells(trial: TrialResult, reason: Reason, looks: Mapping[str, Style], several: bool) -> tuple[str, ...]:
    spec = trial.spec
    return (
        looks[spec.uut].label,
        *((spec.scenario,) if several else ()),
        f"{spec.frame_size:,} B",
        str(spec.load),
        str(len(spec.streams)),
        str(spec.repetition),
        _stream(trial, reason.stream),
        reason.detail,
    )


def _stream(trial: TrialResult, stream: str) -> str:
    """The name of a stream, and of the neighbour it runs through."""
    whose = [one.name for one in trial.neighbours if stream in {counts.stream for counts in one.streams}]
    return f"{stream} (of {whose[0]})" if whose else stream or "all"

"""The tables of the report: results, verdicts with their reasons, warnings; and the shared parts of tables of UUTs."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from netbench.model.campaign import EndedSweep
from netbench.model.frame_mix import size_text
from netbench.model.trial import TrialResult
from netbench.model.units import LoadKind
from netbench.model.verdict import CampaignWarning, Reason, ReasonKind, Verdict
from netbench.report.formats import UNKNOWN, count, frames, kfps, mbps, mbps_spread, mean, percent, percent_spread
from netbench.report.markup import Html, TableColumn, element, folded, html, join, table
from netbench.report.panels import groups_by_size, size_titles
from netbench.report.sections import note
from netbench.report.styles import Style
from netbench.statistics.groups import Group, grouped
from netbench.statistics.intervals import Interval
from netbench.statistics.outliers import FEWEST, outliers_of

Item = TypeVar("Item")


def results_table(groups: Sequence[Group], looks: Mapping[str, Style]) -> Html:
    """Means of the valid trials with their 95 % intervals, a block per frame size, the largest first."""
    columns = results_columns(looks)
    return table(columns, by_size_title(groups), "results", lambda group: "" if group.valid else "nothing-valid")


def results_columns(looks: Mapping[str, Style]) -> tuple[TableColumn[Group], ...]:
    """The columns of a table of groups. In queues: the most frames that were under way when sending ended."""
    return (
        TableColumn("UUT", lambda group: uut_label(group.uut, looks)),
        TableColumn("Load per source", lambda group: str(group.load)),
        TableColumn("Intended Mbit/s", _intended, "number"),
        mean_column("Offered Mbit/s", lambda group: group.offered_mbps, mbps, mbps_spread),
        mean_column("Throughput Mbit/s", lambda group: group.throughput_mbps, mbps, mbps_spread),
        TableColumn("Throughput kfps", lambda group: kfps(mean(group.throughput_fps)), "number"),
        mean_column("Unsent", lambda group: group.unsent_ratio, percent, percent_spread),
        mean_column("Loss", lambda group: group.loss_ratio, percent, percent_spread),
        TableColumn("In queues", lambda group: frames(group.buffered_frames), "number"),
        TableColumn("Valid", lambda group: str(len(group.valid)), "number"),
        TableColumn("Outliers", _outliers, "number"),
        TableColumn("Saturated", lambda group: _marked_count(group.saturated, Verdict.VALID), "number"),
        TableColumn("At first attempt", _valid_at_once, "number"),
        TableColumn("Discarded attempts", lambda group: str(group.thrown_away), "number"),
        TableColumn("Suspicious", lambda group: _marked_count(len(group.suspicious), Verdict.SUSPICIOUS), "number"),
        TableColumn("Invalid", lambda group: _marked_count(len(group.invalid), Verdict.INVALID), "number"),
    )


def skipped_loads(ended: Sequence[EndedSweep], looks: Mapping[str, Style]) -> Iterator[Html]:
    """The loads that were skipped because lower ones were saturated; nothing where there are none."""
    columns: tuple[TableColumn[EndedSweep], ...] = (
        TableColumn("UUT", lambda sweep: uut_label(sweep.uut, looks)),
        TableColumn("Scenario", lambda sweep: sweep.scenario),
        TableColumn("Sources", lambda sweep: str(len(sweep.streams)), "number"),
        TableColumn("Frame size", lambda sweep: size_text(sweep.frame_size, " B"), "number"),
        TableColumn("Saturated at", lambda sweep: ", ".join(sweep.saturated_loads)),
        TableColumn("Skipped, saturated", lambda sweep: ", ".join(sweep.skipped_loads)),
        TableColumn("Trials skipped", lambda sweep: f"{sweep.skipped_trials:,}", "number"),
    )
    if ended:
        yield element("h3", "Skipped, saturated")
        yield table(columns, [ended])


def lower_bounds(groups: Sequence[Group], looks: Mapping[str, Style]) -> Iterator[Html]:
    """The maxima that were not limited by the UUT; nothing where there are none."""
    columns: tuple[TableColumn[Group], ...] = (
        TableColumn("UUT", lambda group: uut_label(group.uut, looks)),
        TableColumn("Scenario", lambda group: group.scenario),
        TableColumn("Sources", lambda group: str(group.sources), "number"),
        TableColumn("Frame size", lambda group: size_text(group.frame_size, " B"), "number"),
        TableColumn("Highest throughput", most_words),
    )
    if limited := [group for group in groups if group.limited_by]:
        remark = note("Their throughput still rises at the highest valid load. The maximum is this value or more.")
        summary = f"Lower bounds: {count(len(limited), 'maximum that is', 'maxima that are')} not saturated"
        yield element("details", element("summary", summary), remark, table(columns, [limited]))


def most_words(group: Group) -> str:
    """`≥ 97.0 Mbit/s, not saturated: limited by the load asked`, or just the number where the UUT was the limit."""
    most = f"{mbps(mean(group.maximum_mbps))} Mbit/s"
    return f"≥ {most}, not saturated: limited by {group.limited_by}" if group.limited_by else most


@dataclass(frozen=True, slots=True)
class DiscardedReason:
    """A reason against an attempt at a trial."""

    trial: TrialResult
    attempt: int
    reason: Reason


def against_trials(trials: Iterable[TrialResult]) -> list[DiscardedReason]:
    """The reasons against trials that were kept."""
    return [DiscardedReason(trial, trial.attempt, reason) for trial in trials for reason in trial.reasons]


def against_thrown_away(trials: Iterable[TrialResult]) -> list[DiscardedReason]:
    """The reasons against attempts that were discarded."""
    return [
        DiscardedReason(trial, attempt, reason)
        for trial in trials
        for attempt, reasons in enumerate(trial.thrown_away, start=1)
        for reason in reasons
    ]


def verdict_list(found: Sequence[DiscardedReason], looks: Mapping[str, Style], scenarios: Collection[str]) -> Html:
    """The findings by kind of reason, the worst first; `scenarios` are those of the campaign."""
    every: tuple[TableColumn[DiscardedReason], ...] = (
        TableColumn("UUT", lambda finding: looks[finding.trial.spec.uut].label),
        TableColumn("Scenario", lambda finding: finding.trial.spec.scenario),
        TableColumn("Frame size", lambda finding: size_text(finding.trial.spec.frame_size, " B"), "number"),
        TableColumn("Load per source", lambda finding: str(finding.trial.spec.load)),
        TableColumn("Sources", lambda finding: str(len(finding.trial.spec.streams)), "number"),
        TableColumn("Repetition", lambda finding: str(finding.trial.spec.repetition), "number"),
        TableColumn("Attempt", lambda finding: str(finding.attempt), "number"),
        TableColumn("Stream", lambda finding: _stream(finding.trial, finding.reason.stream)),
        TableColumn("What was found", lambda finding: finding.reason.detail, "words"),
    )
    several = {"Scenario": len(scenarios) > 1, "Attempt": any(finding.attempt > 1 for finding in found)}
    columns = [column for column in every if several.get(column.title, True)]
    of_kind = grouped(found, lambda finding: finding.reason.kind)
    blocks = []
    for kind in sorted(ReasonKind, key=lambda kind: list(Verdict).index(kind.verdict), reverse=True):
        if of_this_kind := of_kind.get(kind):
            badge = element("span", kind.verdict.value, css=f"badge {kind.verdict.value}")
            summary = join((badge, " ", element("b", kind.value), f" – {count(len(of_this_kind), 'time')}"))
            blocks.append(folded(summary, len(of_this_kind), table(columns, [of_this_kind])))
    return join(blocks)


def warning_list(warnings: Iterable[CampaignWarning]) -> Html:
    """The warnings of the campaign, each with its kind and text."""
    items = [element("li", element("b", warning.kind.value), ": ", warning.text) for warning in warnings]
    return element("ul", *items, css="warnings")


def size_column() -> TableColumn[Group]:
    """The frame size, for a table without blocks by frame size."""
    return TableColumn("Frame size", lambda group: size_text(group.frame_size, " B"), "number")


def mean_column(
    title: str,
    read: Callable[[Item], Interval | None],
    show: Callable[[float | None], str],
    show_spread: Callable[[Interval | None], str],
) -> TableColumn[Item]:
    """A column of means, and their spreads behind them."""
    return TableColumn(title, lambda item: show(mean(read(item))), "number", lambda item: show_spread(read(item)))


def swatch(colour: str) -> Html:
    """A small square of a colour, to be put before a name."""
    return element("span", css="swatch", style=f"background:{colour}")


def uut_label(uut: str, looks: Mapping[str, Style]) -> Html:
    """The name of a UUT behind a swatch of its colour in the figures."""
    return join((swatch(looks[uut].colour), looks[uut].label))


def stream_label(stream: str, reverse_of: str) -> str:
    """The name of a stream, and the stream that it is the reverse of, if any."""
    return f"{stream}, reverse of {reverse_of}" if reverse_of else stream


def by_size_title(groups: Iterable[Group]) -> dict[str, list[Group]]:
    """Groups by the panel title of their frame size, the largest first."""
    by_size = groups_by_size(groups)
    return dict(zip(size_titles(by_size).values(), by_size.values(), strict=True))


def _outliers(group: Group) -> str:
    """The number of outliers among the valid trials; unknown where those are too few."""
    if len(group.valid) < FEWEST:
        return UNKNOWN
    outliers = outliers_of(group)
    return str(len(outliers.marked)) if outliers else "0"


def _intended(group: Group) -> str:
    return str(group.load) if group.load.kind is LoadKind.MAX else mbps(group.intended_mbps)


def _marked_count(number: int, verdict: Verdict) -> Html:
    return element("span", str(number), css=f"count {verdict.value}" if number else "count none")


def _valid_at_once(group: Group) -> Html:
    """The number of trials valid at the first attempt, marked where it is too low for a maximum."""
    number = str(group.valid_at_once)
    return html(number) if group.counts_as_maximum else element("span", number, css="count suspicious")


def _stream(trial: TrialResult, stream: str) -> str:
    """The name of a stream, of the stream that it is the reverse of, and of the neighbour it runs through."""
    whose = [
        neighbour.name for neighbour in trial.neighbours if stream in {counts.stream for counts in neighbour.streams}
    ]
    known = (counts for guest in trial.guests for counts in guest.streams if counts.stream == stream)
    remarks = [f"reverse of {counts.reverse_of}" for counts in known if counts.reverse_of]
    remarks += [f"of {name}" for name in whose[:1]]
    return f"{stream} ({', '.join(remarks)})" if remarks else stream or "all"

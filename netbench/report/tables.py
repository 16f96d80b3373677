"""The tables of the report: results, verdicts with their reasons, warnings; and what tables of UUTs have in common."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from netbench.model.trial import TrialResult
from netbench.model.units import LoadKind
from netbench.model.verdict import Reason, ReasonKind, Verdict, Warning
from netbench.report.formats import count, frames, kfps, mbps, mbps_spread, mean, percent, percent_spread
from netbench.report.markup import Column, Html, element, folded, join, table
from netbench.report.panels import groups_by_size, size_titles
from netbench.report.styles import Style
from netbench.statistics.groups import Group
from netbench.statistics.intervals import Interval

Item = TypeVar("Item")


def results_table(groups: Sequence[Group], looks: Mapping[str, Style]) -> Html:
    """Means of the valid trials with their 95 % intervals, a block per frame size, the largest first.

    In queues: the most frames that were under way when sending ended.
    """
    columns: tuple[Column[Group], ...] = (
        Column("UUT", lambda group: uut_label(group.uut, looks)),
        Column("Load per source", lambda group: str(group.load)),
        Column("Intended Mbit/s", _intended, "number"),
        mean_column("Offered Mbit/s", lambda group: group.offered_mbps, mbps, mbps_spread),
        mean_column("Throughput Mbit/s", lambda group: group.throughput_mbps, mbps, mbps_spread),
        Column("Throughput kfps", lambda group: kfps(mean(group.throughput_fps)), "number"),
        mean_column("Unsent", lambda group: group.unsent_ratio, percent, percent_spread),
        mean_column("Loss", lambda group: group.loss_ratio, percent, percent_spread),
        Column("In queues", lambda group: frames(group.buffered_frames), "number"),
        Column("Valid", lambda group: str(len(group.valid)), "number"),
        Column("Suspicious", lambda group: _marked_count(len(group.suspicious), Verdict.SUSPICIOUS), "number"),
        Column("Invalid", lambda group: _marked_count(len(group.invalid), Verdict.INVALID), "number"),
    )
    return table(columns, by_size_title(groups), "results", lambda group: "" if group.valid else "nothing-valid")


def verdict_list(trials: Iterable[TrialResult], looks: Mapping[str, Style]) -> Html:
    """What speaks against each trial that is not valid, by kind of reason, invalidating kinds first."""
    trials = list(trials)
    several = len({trial.spec.scenario for trial in trials}) > 1
    every: tuple[Column[tuple[TrialResult, Reason]], ...] = (
        Column("UUT", lambda found: looks[found[0].spec.uut].label),
        Column("Scenario", lambda found: found[0].spec.scenario),
        Column("Frame size", lambda found: f"{found[0].spec.frame_size:,} B", "number"),
        Column("Load per source", lambda found: str(found[0].spec.load)),
        Column("Sources", lambda found: str(len(found[0].spec.streams)), "number"),
        Column("Repetition", lambda found: str(found[0].spec.repetition), "number"),
        Column("Stream", lambda found: _stream(found[0], found[1].stream)),
        Column("What was found", lambda found: found[1].detail, "words"),
    )
    columns = [column for column in every if several or column.title != "Scenario"]
    blocks = []
    for kind in sorted(ReasonKind, key=lambda kind: kind.verdict is not Verdict.INVALID):
        found = [(trial, reason) for trial in trials for reason in trial.reasons if reason.kind is kind]
        if found:
            badge = element("span", kind.verdict.value, css=f"badge {kind.verdict.value}")
            summary = join((badge, " ", element("b", kind.value), f" – {count(len(found), 'time')}"))
            blocks.append(folded(summary, len(found), table(columns, [found])))
    return join(blocks)


def warning_list(warnings: Iterable[Warning]) -> Html:
    """Each warning of the campaign with what it means."""
    items = [element("li", element("b", warning.kind.value), ": ", warning.text) for warning in warnings]
    return element("ul", *items, css="warnings")


def mean_column(
    title: str,
    read: Callable[[Item], Interval | None],
    show: Callable[[float | None], str],
    show_spread: Callable[[Interval | None], str],
) -> Column[Item]:
    """A column of means, and their spreads behind them."""
    return Column(title, lambda item: show(mean(read(item))), "number", lambda item: show_spread(read(item)))


def swatch(colour: str) -> Html:
    """A small square of a colour, to be put before a name."""
    return element("span", css="swatch", style=f"background:{colour}")


def uut_label(uut: str, looks: Mapping[str, Style]) -> Html:
    """The name of a UUT behind a swatch of its colour in the figures."""
    return join((swatch(looks[uut].colour), looks[uut].label))


def by_size_title(groups: Iterable[Group]) -> dict[str, list[Group]]:
    """Groups by what panels of their frame size are called, the largest first."""
    by_size = groups_by_size(groups)
    return dict(zip(size_titles(by_size).values(), by_size.values(), strict=True))


def _intended(group: Group) -> str:
    return str(group.load) if group.load.kind is LoadKind.MAX else mbps(group.intended_mbps)


def _marked_count(number: int, verdict: Verdict) -> Html:
    return element("span", str(number), css=f"count {verdict.value}" if number else "count none")


def _stream(trial: TrialResult, stream: str) -> str:
    """The name of a stream, and of the neighbour it runs through."""
    whose = [one.name for one in trial.neighbours if stream in {counts.stream for counts in one.streams}]
    return f"{stream} (of {whose[0]})" if whose else stream or "all"

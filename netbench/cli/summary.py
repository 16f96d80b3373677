"""The table at the end of a run: what was measured, at a glance."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from netbench.model.campaign import CampaignResults
from netbench.model.frame_mix import mixes_among, size_text
from netbench.model.search import SearchResult
from netbench.model.verdict import ReasonKind, Verdict, WarningKind
from netbench.report.findings import findings
from netbench.report.formats import at_least, count, frames, kfps, mbps, mean, percent, percent_limit, rough_percent
from netbench.report.rfc2544_section import (
    buffer_text,
    bursts_text,
    latency_text,
    recovery_text,
    refusals,
    reset_text,
    tested,
)
from netbench.report.searches import bounds_text, remark, throughput_mbps, what_is_told
from netbench.report.steadiness_words import steadiness_remarks
from netbench.report.styles import LEGEND, label
from netbench.statistics.drift import steadiness_of
from netbench.statistics.groups import Group, group_trials
from netbench.statistics.limits import with_limits
from netbench.statistics.lost_frames import lost_frames_by_place
from netbench.statistics.outliers import outliers_of

_STYLES = {Verdict.VALID: "green", Verdict.SUSPICIOUS: "yellow", Verdict.INVALID: "red"}


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of numbers, and what it has in the row of a group."""

    heading: str
    cell: Callable[[Group], str]


def summary_table(results: CampaignResults) -> Table:
    """A row per UUT, scenario, frame size and load: means over the valid trials, and the verdicts; the reasons below.

    All sources of a trial are added up; UUTs whose CPU is emulated are marked. Number of sources and neighbours have
    columns only where they tell something, the latter in place of others. With several scenarios UUTs are headings.
    """
    groups = with_limits(group_trials(results))
    scenarios = len({group.scenario for group in groups}) > 1
    columns = list(_columns(groups))
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        caption="\n".join(("means of the valid trials; Mbit/s on the wire (L1)", *_remarks(results, groups))),
        caption_justify="left",
    )
    table.add_column("UUT,\nscenario" if scenarios else "UUT", overflow="fold", min_width=4)
    for column in columns:
        table.add_column(column.heading, justify="right", no_wrap=True)
    table.add_column("Verdict", no_wrap=True)
    for previous, group in zip((None, *groups), groups, strict=False):
        name = label(group.uut, results.emulated)
        if previous is None or previous.uut != group.uut:
            table.add_section()
            if scenarios:
                table.add_row(Text(name, style="bold"))
        cells = (group.scenario if scenarios else name, *(column.cell(group) for column in columns))
        table.add_row(*map(Text, cells), _verdict(group))
    return table


def findings_text(results: CampaignResults) -> Text:
    """What the report begins with: a line each, to be wrapped."""
    return Text("\n".join(f"• {one}" for one in findings(results)))


def searches_table(results: CampaignResults, rows: Sequence[SearchResult]) -> Table:
    """A row per search and goal for the console; remarks follow."""
    remarks = {text: None for one in rows if (text := remark(one))}
    numbers = {text: number for number, text in enumerate(remarks, start=1)}
    scenarios = len({one.scenario for one in rows}) > 1
    sources = len({one.streams for one in rows}) > 1
    repeated = len({one.repetition for one in rows}) > 1
    emulated = (LEGEND,) if results.emulated else ()
    remarked = (f"[{number}] {text}" for text, number in numbers.items())
    mixes = (mix.summary for mix in mixes_among(one.frame_size for one in rows))
    caption = "\n".join((what_is_told(rows), *mixes, *emulated, *remarked))
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    shown.add_column("UUT", overflow="fold", min_width=4)
    if scenarios:
        shown.add_column("Scenario", overflow="fold")
    if sources:
        shown.add_column("Sources", justify="right")
    for heading in ("Frame\nsize", "Goal", "Highest load\nkfps", "Out\nMbit/s", "Trials"):
        shown.add_column(heading, justify="left" if heading == "Goal" else "right", overflow="fold")
    previous = None
    for one in rows:
        if previous is not None and previous != one.uut:
            shown.add_section()
        previous = one.uut
        mark = f" [{numbers[remark(one)]}]" if remark(one) else ""
        goal = f"{one.goal} #{one.repetition}" if repeated else one.goal
        shown.add_row(
            Text(label(one.uut, results.emulated)),
            *([Text(one.scenario)] if scenarios else []),
            *([Text(str(len(one.streams)))] if sources else []),
            Text(size_text(one.frame_size)),
            Text(goal),
            Text(bounds_text(one).removesuffix(" kfps") + mark),
            Text(mbps(throughput_mbps(one))),
            Text(f"{one.trials:,}"),
        )
    return shown


def rfc2544_table(results: CampaignResults) -> Table | None:
    """A row per UUT and frame size with the other tests of RFC 2544; None where none was made."""
    rows = tested(results.searches)
    if not rows:
        return None
    missing = {why: None for _, tests in rows for why in refusals(tests)}
    otherwise = sum(one.kind is WarningKind.NOT_AS_RFC_2544 for one in results.warnings)
    caption = "\n".join((*missing, f"not as RFC 2544 has it: {count(otherwise, 'point')}, which the report lists"))
    scenarios = len({one.scenario for one, _ in rows}) > 1
    sources = len({one.streams for one, _ in rows}) > 1
    repeated = len({one.repetition for one, _ in rows}) > 1
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    shown.add_column("UUT", overflow="fold", min_width=4)
    if scenarios:
        shown.add_column("Scenario", overflow="fold")
    apart = (*(["Sources"] if sources else []), *(["Search"] if repeated else []))
    for heading in (*apart, "Frame\nsize", "Latency\nµs", "Back to back\nframes", "Buffer\nµs", "Recovery", "Reset"):
        shown.add_column(heading, justify="right", overflow="fold")
    for one, tests in rows:
        shown.add_row(
            Text(label(one.uut, results.emulated)),
            *([Text(one.scenario)] if scenarios else []),
            *([Text(str(len(one.streams)))] if sources else []),
            *([Text(f"#{one.repetition}")] if repeated else []),
            Text(size_text(one.frame_size)),
            *map(Text, (latency_text(tests), bursts_text(tests), buffer_text(tests))),
            *map(Text, (recovery_text(tests), reset_text(tests))),
        )
    return shown


def _columns(groups: Sequence[Group]) -> Iterator[_Column]:
    """The columns of numbers that matter most for these groups; no more, for consoles are narrow."""
    neighbours = any(group.neighbours_offered_mbps for group in groups)
    if len({group.sources for group in groups}) > 1:
        yield _Column("Sources", lambda group: str(group.sources))
    yield _Column("Frame\nsize", lambda group: size_text(group.frame_size))
    yield _Column("Intended\nMbit/s", _intended)
    if not neighbours:
        yield _Column("Offered\nMbit/s", lambda group: mbps(mean(group.offered_mbps)))
    yield _Column("Throughput\nMbit/s", lambda group: at_least(mbps(mean(group.throughput_mbps)), group.limited_by))
    if not neighbours:
        yield _Column("\nkfps", lambda group: kfps(mean(group.throughput_fps)))
    yield _Column("Loss\n%", _loss)
    if neighbours:
        yield _Column("Neigh-\nbour in", lambda group: mbps(mean(group.neighbours_offered_mbps)))
        yield _Column("\nand out", lambda group: mbps(mean(group.neighbours_throughput_mbps)))


def _intended(group: Group) -> str:
    return str(group.load) if group.intended_mbps is None else mbps(group.intended_mbps)


def _loss(group: Group) -> str:
    """In percent; where there was none, and repetitions tell, what it is below."""
    loss = group.loss_ratio
    if loss is not None and not loss.mean and loss.half_width:
        return f"<{percent_limit(loss.half_width)}"
    return percent(mean(loss)).removesuffix(" %")


def _verdict(group: Group) -> Text:
    """How many trials are valid, suspicious and invalid, and attempts thrown away; a line each."""
    lines = []
    for verdict, trials in (
        (Verdict.VALID, group.valid),
        (Verdict.SUSPICIOUS, group.suspicious),
        (Verdict.INVALID, group.invalid),
    ):
        if trials:
            lines.append(Text(f"{len(trials):,} {verdict.value}", style=_STYLES[verdict]))
        if verdict is Verdict.VALID and group.saturated:
            lines.append(Text(f"{group.saturated:,} saturated"))
    if group.thrown_away:
        lines.append(Text("1 retry" if group.thrown_away == 1 else f"{group.thrown_away:,} retries"))
    return Text("\n").join(lines)


def _remarks(results: CampaignResults, groups: Sequence[Group]) -> Iterator[str]:
    """What the marks of no loss and of emulated UUTs mean; where most frames were lost; a line for each kind of reason.

    The most frequent reasons come first.
    """
    yield from (mix.summary for mix in mixes_among(group.frame_size for group in groups))
    limits = dict.fromkeys(group.limited_by.partition(":")[0] for group in groups if group.limited_by)
    if limits:
        yield f"≥: a maximum that is limited by {' or '.join(limits)}, not by the UUT, is a lower bound"
    if any(_loss(group).startswith("<") for group in groups):
        yield "loss <: no frame was lost, and at 95 % confidence the loss is less than this"
    if results.emulated:
        yield LEGEND
    for uut in results.uuts:
        places = lost_frames_by_place(
            trial for trial in results.wanted_trials if trial.spec.uut == uut and trial.verdict is Verdict.VALID
        )
        for place, number in places.most_common(1):
            share = rough_percent(number / places.total())
            yield f"most lost of {uut}: {place.name}, {share} of {frames(places.total())}"
    if warm_ups := sum(1 for _ in results.warm_ups):
        yield f"made to warm up, and part of no number: {count(warm_ups, 'trial')}"
    yield from steadiness_remarks(steadiness_of(groups))
    if marked := sum(len(one.marked) for group in groups if (one := outliers_of(group))):
        yield f"apart from the others of their cell, and part of its mean: {count(marked, 'trial')}"
    if results.ended_sweeps:
        sweeps = count(len(results.ended_sweeps), "sweep")
        yield f"skipped, saturated: {count(results.skipped_trials, 'trial')} of {sweeps}, as of stop_when_saturated"
    kinds = Counter(kind for trial in results.wanted_trials for kind in {reason.kind for reason in trial.reasons})
    for kind, trials in kinds.most_common():
        if kind is ReasonKind.SATURATED:
            yield f"saturated, which counts for the load that was offered: {count(trials, 'trial')}"
        elif kind is ReasonKind.SHARE_OF_LOWER_BOUND:
            yield f"neighbours' load a share of no more than a lower bound of the maximum: {count(trials, 'trial')}"
        else:
            yield f"{kind.verdict.value} for {kind.value}: {count(trials, 'trial')}"
    earlier = (reasons for trial in results.wanted_trials for reasons in trial.thrown_away)
    thrown_away = Counter(kind for reasons in earlier for kind in {reason.kind for reason in reasons})
    for kind, attempts in thrown_away.most_common():
        yield f"thrown away and measured again for {kind.value}: {count(attempts, 'attempt')}"

"""The table at the end of a run: the results at a glance."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Group as RenderGroup
from rich.console import RenderableType
from rich.text import Text

from netbench.cli.fitted_table import FittedTable, Row, TerminalColumn
from netbench.model.campaign import CampaignResults
from netbench.model.frame_mix import mixes_among, size_text
from netbench.model.search import SearchResult
from netbench.model.verdict import ReasonKind, Verdict, WarningKind
from netbench.report.findings import findings
from netbench.report.formats import at_least, count, frames, kfps, mbps, mean, percent, percent_limit, rough_percent
from netbench.report.stability import steadiness_remarks
from netbench.report.styles import LEGEND, label
from netbench.report.tables.searches import (
    bounds_text,
    buffer_text,
    bursts_text,
    latency_text,
    methods_text,
    recovery_text,
    refusals,
    remark,
    reset_text,
    tested,
    throughput_mbps,
)
from netbench.statistics.drift import steadiness_of
from netbench.statistics.groups import Group, group_trials
from netbench.statistics.limits import with_limits
from netbench.statistics.lost_frames import lost_frames_by_place
from netbench.statistics.outliers import outliers_of

_MOST_ROWS = 24  # of a small table; the report has all rows
_ADVICE = {
    ReasonKind.OFFERED_OUT_OF_TOLERANCE: "; the sources did not reach that load here: leave the machine to netbench, "
    "ask for less, or for `max`, which is as much as they can"
}
_STYLES = {Verdict.VALID: "green", Verdict.SUSPICIOUS: "yellow", Verdict.INVALID: "red"}


@dataclass(frozen=True, slots=True)
class _Numbers:
    """A column of numbers, and its cell for a group."""

    heading: str
    cell: Callable[[Group], str]


def summary_table(results: CampaignResults) -> RenderableType:
    """Return a table with the means over the valid trials and the verdicts; the reasons follow below.

    There is one row per UUT, scenario, frame size and load. If that would be many rows, all loads of a frame size share
    one row. All sources of a trial are added up; UUTs whose CPU is emulated are marked. Number of sources and
    neighbours have columns only where they vary or exist; those of neighbours replace others. With several scenarios
    UUTs are headings.
    """
    every = with_limits(group_trials(results))
    groups = every if len(every) <= _MOST_ROWS else list(_best(every))
    scenarios = len({group.scenario for group in groups}) > 1
    numbers = list(_columns(groups))
    columns = [
        TerminalColumn("UUT,\nscenario" if scenarios else "UUT", is_number=False, wraps=True),
        *(TerminalColumn(column.heading) for column in numbers),
        TerminalColumn("Verdict", is_number=False),
    ]
    rows = []
    for previous, group in zip((None, *groups), groups, strict=False):
        name = label(group.uut, results.emulated)
        first = group.scenario if scenarios else name
        cells: tuple[Text | str, ...] = (first, *(column.cell(group) for column in numbers), _verdict(group))
        begins = previous is None or previous.uut != group.uut
        rows.append(Row(cells, name if scenarios else "", begins_section=begins))
    remarks = ["means of the valid trials; Mbit/s on the wire (L1)", *_remarks(results, every)]
    if len(groups) < len(every):
        remarks[:0] = [
            f"of each frame size only the load with the highest throughput; the report has all {len(every):,} rows"
        ]
    return RenderGroup(FittedTable(columns, rows), *map(_remark, remarks))


def _best(groups: Iterable[Group]) -> Iterator[Group]:
    """Yield for each sweep the load with the highest throughput, among those that count as a maximum if any does."""
    for _, loads in groupby(groups, key=lambda group: (group.uut, group.scenario, group.sources, group.frame_size)):
        yield max(loads, key=lambda group: (group.counts_as_maximum, mean(group.throughput_fps) or 0.0))


def findings_text(results: CampaignResults) -> Text:
    """Return the findings at the top of the report, one per line, not wrapped."""
    return Text("\n".join(f"• {finding}" for finding in findings(results)))


def searches_table(results: CampaignResults, found: Sequence[SearchResult]) -> RenderableType:
    """Return a table with a row per search and goal, and its remarks below."""
    remarks = {text: None for search in found if (text := remark(search))}
    numbers = {text: number for number, text in enumerate(remarks, start=1)}
    scenarios, sources = _differ(found, lambda search: search.scenario), _differ(found, lambda search: search.streams)
    repeated = _differ(found, lambda search: search.repetition)
    columns = [
        TerminalColumn("UUT", is_number=False, wraps=True),
        *([TerminalColumn("Scenario", is_number=False, wraps=True)] if scenarios else []),
        *([TerminalColumn("Sources")] if sources else []),
        TerminalColumn("Frame\nsize"),
        TerminalColumn("Goal", is_number=False, wraps=True),
        *map(TerminalColumn, ("Highest load\nkfps", "Out\nMbit/s", "Trials")),
    ]
    rows, previous = [], ""
    for search in found:
        mark = f" [{numbers[remark(search)]}]" if remark(search) else ""
        cells = (
            label(search.uut, results.emulated),
            *([search.scenario] if scenarios else []),
            *([str(len(search.streams))] if sources else []),
            size_text(search.frame_size),
            f"{search.goal} #{search.repetition}" if repeated else search.goal,
            bounds_text(search).removesuffix(" kfps") + mark,
            mbps(throughput_mbps(search)),
            f"{search.trials:,}",
        )
        rows.append(Row(cells, begins_section=previous != search.uut))
        previous = search.uut
    emulated = (LEGEND,) if results.emulated else ()
    remarked = (f"[{number}] {text}" for text, number in numbers.items())
    mixes = (mix.summary for mix in mixes_among(search.frame_size for search in found))
    return RenderGroup(FittedTable(columns, rows), *map(_remark, (methods_text(found), *mixes, *emulated, *remarked)))


def rfc2544_table(results: CampaignResults) -> RenderableType | None:
    """Return a table of the other tests of RFC 2544, a row per UUT and frame size; None without such tests."""
    found = tested(results.searches)
    if not found:
        return None
    searches = [search for search, _ in found]
    missing = {why: None for _, tests in found for why in refusals(tests)}
    otherwise = sum(warning.kind is WarningKind.NOT_AS_RFC_2544 for warning in results.warnings)
    scenarios, sources = (
        _differ(searches, lambda search: search.scenario),
        _differ(searches, lambda search: search.streams),
    )
    repeated = _differ(searches, lambda search: search.repetition)
    columns = [
        TerminalColumn("UUT", is_number=False, wraps=True),
        *([TerminalColumn("Scenario", is_number=False, wraps=True)] if scenarios else []),
        *map(TerminalColumn, (*(["Sources"] if sources else []), *(["Search"] if repeated else []), "Frame\nsize")),
        *(TerminalColumn(heading, wraps=True) for heading in ("Latency\nµs", "Back to back\nframes", "Buffer\nµs")),
        *(TerminalColumn(heading, wraps=True) for heading in ("Recovery", "Reset")),
    ]
    rows = [
        Row(
            (
                label(search.uut, results.emulated),
                *([search.scenario] if scenarios else []),
                *([str(len(search.streams))] if sources else []),
                *([f"#{search.repetition}"] if repeated else []),
                size_text(search.frame_size),
                *(latency_text(tests), bursts_text(tests), buffer_text(tests)),
                *(recovery_text(tests), reset_text(tests)),
            )
        )
        for search, tests in found
    ]
    not_as = f"not as RFC 2544 has it: {count(otherwise, 'point')}, which the report lists"
    return RenderGroup(FittedTable(columns, rows), *map(_remark, (*missing, not_as)))


def _differ(found: Iterable[SearchResult], what: Callable[[SearchResult], object]) -> bool:
    return len({what(search) for search in found}) > 1


def _remark(text: str) -> Text:
    """Return a line below a table."""
    return Text(text, style="dim italic")


def _columns(groups: Sequence[Group]) -> Iterator[_Numbers]:
    """Yield the most relevant columns of numbers for these groups; no more, because consoles are narrow."""
    neighbours = any(group.neighbours_offered_mbps for group in groups)
    if len({group.sources for group in groups}) > 1:
        yield _Numbers("Sources", lambda group: str(group.sources))
    yield _Numbers("Frame\nsize", lambda group: size_text(group.frame_size))
    yield _Numbers("Intended\nMbit/s", _intended)
    if not neighbours:
        yield _Numbers("Offered\nMbit/s", lambda group: mbps(mean(group.offered_mbps)))
    yield _Numbers("Throughput\nMbit/s", lambda group: at_least(mbps(mean(group.throughput_mbps)), group.limited_by))
    if not neighbours:
        yield _Numbers("\nkfps", lambda group: kfps(mean(group.throughput_fps)))
    yield _Numbers("Loss\n%", _loss)
    if neighbours:
        yield _Numbers("Neigh-\nbour in", lambda group: mbps(mean(group.neighbours_offered_mbps)))
        yield _Numbers("\nand out", lambda group: mbps(mean(group.neighbours_throughput_mbps)))


def _intended(group: Group) -> str:
    return str(group.load) if group.intended_mbps is None else mbps(group.intended_mbps)


def _loss(group: Group) -> str:
    """Return the loss in percent; for a loss of zero its upper limit, if the repetitions determine one."""
    loss = group.loss_ratio
    if loss is not None and not loss.mean and loss.half_width:
        return f"<{percent_limit(loss.half_width)}"
    return percent(mean(loss)).removesuffix(" %")


def _verdict(group: Group) -> Text:
    """Return the numbers of valid, suspicious and invalid trials and of discarded attempts, one per line."""
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
    """Yield the legend of the marks in the table, the places of most lost frames, and a line per kind of reason.

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
    if marked := sum(len(outliers.marked) for group in groups if (outliers := outliers_of(group))):
        yield f"apart from the others of their cell, and part of its mean: {count(marked, 'trial')}"
    if results.ended_sweeps:
        sweeps = count(len(results.ended_sweeps), "sweep")
        yield f"skipped, saturated: {count(results.skipped_trials, 'trial')} of {sweeps}, as of stop_when_saturated"
    kinds = Counter(kind for trial in results.wanted_trials for kind in {reason.kind for reason in trial.reasons})
    for kind, trials in kinds.most_common():
        if kind is ReasonKind.SATURATED:
            yield f"saturated, which counts for the load that was offered: {count(trials, 'trial')}"
        elif kind is ReasonKind.SHARE_OF_LOWER_BOUND:
            yield f"a load a share of no more than a lower bound of the maximum: {count(trials, 'trial')}"
        elif kind is ReasonKind.LESS_THAN_SHARE:
            yield f"offered less than the share asked for, all that the sources hold: {count(trials, 'trial')}"
        else:
            yield f"{kind.verdict.value} for {kind.value}: {count(trials, 'trial')}{_ADVICE.get(kind, '')}"
    earlier = (reasons for trial in results.wanted_trials for reasons in trial.thrown_away)
    thrown_away = Counter(kind for reasons in earlier for kind in {reason.kind for reason in reasons})
    for kind, attempts in thrown_away.most_common():
        yield f"discarded and repeated for {kind.value}: {count(attempts, 'attempt')}"

"""The tables at the end of a run: the results at a glance."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from rich.console import Group as RenderGroup
from rich.console import RenderableType
from rich.text import Text

from netbench.cli.console import TerminalTable
from netbench.model.campaign import CampaignResults
from netbench.model.search import SearchResult
from netbench.model.verdict import Reason, ReasonKind, Verdict, WarningKind
from netbench.model.workload import traffic_text
from netbench.report.caveats import frequent_kinds
from netbench.report.findings import findings
from netbench.report.formats import (
    SHOWN_UNITS,
    at_least,
    count,
    frames,
    kfps,
    mbps,
    mean,
    percent,
    percent_limit,
    rough_percent,
)
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
    throughput_text,
    throughput_unit,
)
from netbench.statistics.drift import steadiness_of
from netbench.statistics.groups import Group, group_trials
from netbench.statistics.limits import with_limits
from netbench.statistics.lost_frames import lost_frames_by_place
from netbench.statistics.outliers import outliers_of
from netbench.statistics.workload_groups import WorkloadGroup

_MOST_ROWS = 24  # of a small table; the report has all rows
_STYLES = {Verdict.VALID: "green", Verdict.SUSPICIOUS: "yellow", Verdict.INVALID: "red"}
# Lines about the trials with a reason; other kinds have a common one.
_REMARKS_OF_REASONS = {
    ReasonKind.SATURATED: "saturated, which counts for the load that was offered: {trials}",
    ReasonKind.SHARE_OF_LOWER_BOUND: "load is a share of a lower bound of the maximum: {trials}",
    ReasonKind.LESS_THAN_SHARE: "offered less than the requested share, which the sources cannot reach: {trials}",
    ReasonKind.TOOL_DISAGREES: "tool and wire disagree, by as much as the report shows: {trials}",
    ReasonKind.OFFERED_OUT_OF_TOLERANCE: "{verdict} for {kind}: {trials}; the sources did not reach that load here: "
    "keep the machine idle, or request a lower load, or `max`, which is as much as they can send",
}
_USUAL_REMARK = "{verdict} for {kind}: {trials}"
T = TypeVar("T")
Column = tuple[str, Callable[[Group], str]]
SearchColumns = dict[str, Callable[[SearchResult], str]]


def findings_text(results: CampaignResults) -> Text:
    """Return the findings at the top of the report, one per line, not wrapped."""
    return Text("\n".join(f"• {finding}" for finding in findings(results)))


def summary_table(results: CampaignResults) -> RenderableType:
    """Return a table with the means over the valid trials and the verdicts; the reasons follow below.

    There is one row per UUT, scenario, frame size and load. If that would be many rows, all loads of a frame size share
    one row. All sources of a trial are added up; UUTs whose CPU is emulated are marked. With several scenarios UUTs are
    headings.
    """
    every = with_limits(group_trials(results))
    groups = every if len(every) <= _MOST_ROWS else list(_best(every))
    scenarios = differ(groups, lambda group: group.scenario)
    columns = list(_columns(groups))
    table = TerminalTable()
    table.add_columns_of(
        texts=("UUT,\nscenario" if scenarios else "UUT",), numbers=tuple(heading for heading, _ in columns)
    )
    table.add_columns_of(texts=("Verdict",))
    for uut, rows in groupby(groups, key=lambda group: group.uut):
        name = label(uut, results.emulated)
        table.add_section()
        if scenarios:
            table.add_cells(Text(name, style="bold"))
        for group in rows:
            numbers = (cell(group) for _, cell in columns)
            table.add_cells(group.scenario if scenarios else name, *numbers, verdict_counts(group))
    remarks = ["means of the valid trials; Mbit/s on the wire (L1)", *_remarks(results, every)]
    if len(groups) < len(every):
        many = f"{len(every):,} rows"
        remarks.insert(0, f"of each frame size only the load with the highest throughput; the report has all {many}")
    return RenderGroup(table, *map(remark_line, remarks))


def _best(groups: Iterable[Group]) -> Iterator[Group]:
    """Yield for each sweep the load with the highest throughput, among those that count as a maximum if any does."""
    for _, loads in groupby(groups, key=lambda group: (group.uut, group.scenario, group.sources, group.frame_size)):
        yield max(loads, key=lambda group: (group.counts_as_maximum, mean(group.throughput_fps) or 0.0))


def searches_table(results: CampaignResults, found: Sequence[SearchResult]) -> RenderableType:
    """Return a table with a row per search and goal, and its remarks below."""
    numbers = {text: number for number, text in enumerate(filter(None, dict.fromkeys(map(remark, found))), start=1)}
    texts, which = _names(results, found)
    repeated = differ(found, lambda search: search.repetition)
    table = TerminalTable()
    table.add_columns_of(texts=tuple(texts), numbers=tuple(which))
    unit, out = SHOWN_UNITS[found[0].unit], throughput_unit(found[0])
    table.add_columns_of(texts=("Goal",), numbers=(f"Highest load\n{unit.strip()}", f"Out\n{out.strip()}", "Trials"))
    for _, searches in groupby(found, key=lambda search: search.uut):
        table.add_section()
        for search in searches:
            mark = f" [{numbers[remark(search)]}]" if remark(search) else ""
            table.add_cells(
                *(cell(search) for cell in (texts | which).values()),
                f"{search.goal} #{search.repetition}" if repeated else search.goal,
                bounds_text(search).removesuffix(unit) + mark,
                throughput_text(search),
                f"{search.trials:,}",
            )
    emulated = (LEGEND,) if results.emulated else ()
    remarked = (f"[{number}] {text}" for text, number in numbers.items())
    sizes = (search.frame_size for search in found if not search.of_flows)
    mixes = dict.fromkeys(size.without_packet.summary for size in sizes if size.is_mix)
    return RenderGroup(table, *map(remark_line, (methods_text(found), *mixes, *emulated, *remarked)))


def rfc2544_table(results: CampaignResults) -> RenderableType | None:
    """Return a table of the other tests of RFC 2544, a row per UUT and frame size; None without such tests."""
    rows = tested(results.searches)
    if not rows:
        return None
    searches = [search for search, _ in rows]
    missing = dict.fromkeys(why for _, tests in rows for why in refusals(tests))
    otherwise = sum(warning.kind is WarningKind.NOT_AS_RFC_2544 for warning in results.warnings)
    texts, which = _names(results, searches, with_repetition=True)
    table = TerminalTable()
    table.add_columns_of(texts=tuple(texts), numbers=tuple(which))
    table.add_columns_of(numbers=("Latency\nµs", "Back to back\nframes", "Buffer\nµs", "Recovery", "Reset"))
    for search, tests in rows:
        values = (read(tests) for read in (latency_text, bursts_text, buffer_text, recovery_text, reset_text))
        table.add_cells(*(cell(search) for cell in (texts | which).values()), *values)
    not_as = f"{count(otherwise, 'deviation')} from RFC 2544, listed in the report"
    return RenderGroup(table, *map(remark_line, (*missing, not_as)))


def _names(
    results: CampaignResults, found: Sequence[SearchResult], *, with_repetition: bool = False
) -> tuple[SearchColumns, SearchColumns]:
    """Return the columns that name a search: of texts, and of numbers, the frame size last."""
    texts: SearchColumns = {"UUT": lambda search: label(search.uut, results.emulated)}
    if differ(found, lambda search: search.scenario):
        texts["Scenario"] = lambda search: search.scenario
    numbers: SearchColumns = {}
    if differ(found, lambda search: search.streams):
        numbers["Sources"] = lambda search: str(len(search.streams))
    if with_repetition and differ(found, lambda search: search.repetition):
        numbers["Search"] = lambda search: f"#{search.repetition}"
    if any(search.of_flows for search in found):
        texts["Workload"] = lambda search: traffic_text(search.kind_of_traffic)
    else:
        numbers["Frame\nsize"] = lambda search: f"{search.frame_size:,}"
    return texts, numbers


def differ(items: Iterable[T], value: Callable[[T], object]) -> bool:
    """Return whether items have different values."""
    return len({value(item) for item in items}) > 1


def remark_line(text: str) -> Text:
    """Return a line below a table."""
    return Text(text, style="dim italic")


def _columns(groups: Sequence[Group]) -> Iterator[Column]:
    """Yield the most relevant columns of numbers for these groups, as heading and cell.

    No more, because consoles are narrow: columns of neighbours replace others.
    """
    neighbours = any(group.neighbours_offered_mbps for group in groups)
    if differ(groups, lambda group: group.sources):
        yield "Sources", lambda group: str(group.sources)
    yield "Frame\nsize", lambda group: f"{group.frame_size:,}"
    yield (
        "Intended\nMbit/s",
        lambda group: str(group.load) if group.intended_mbps is None else mbps(group.intended_mbps),
    )
    if not neighbours:
        yield "Offered\nMbit/s", lambda group: mbps(mean(group.offered_mbps))
    yield "Throughput\nMbit/s", lambda group: at_least(mbps(mean(group.throughput_mbps)), group.is_lower_bound)
    if not neighbours:
        yield "\nkfps", lambda group: kfps(mean(group.throughput_fps))
    yield "Loss\n%", _loss
    if neighbours:
        yield "Neigh-\nbour in", lambda group: mbps(mean(group.neighbours_offered_mbps))
        yield "\nand out", lambda group: mbps(mean(group.neighbours_throughput_mbps))


def _loss(group: Group) -> str:
    """Return the loss in percent; for a loss of zero its upper limit, if the repetitions determine one."""
    limit = _upper_limit(group)
    return f"<{percent_limit(limit)}" if limit else percent(mean(group.loss_ratio)).removesuffix(" %")


def _upper_limit(group: Group) -> float | None:
    """Return the upper limit of a loss of zero; None (or 0) for another loss, or if the repetitions do not give it."""
    loss = group.loss_ratio
    return None if loss is None or loss.mean else loss.half_width


def verdict_counts(group: Group | WorkloadGroup) -> Text:
    """Return the numbers of valid, suspicious and invalid trials and of discarded attempts, one per line."""
    trials = {Verdict.VALID: group.valid, Verdict.SUSPICIOUS: group.suspicious, Verdict.INVALID: group.invalid}
    lines = [Text(f"{len(of):,} {verdict.value}", style=_STYLES[verdict]) for verdict, of in trials.items() if of]
    if group.saturated:
        lines.insert(1 if group.valid else 0, Text(f"{group.saturated:,} saturated"))
    if group.thrown_away:
        lines.append(Text("1 retry" if group.thrown_away == 1 else f"{group.thrown_away:,} retries"))
    return Text("\n").join(lines)


def _remarks(results: CampaignResults, groups: Sequence[Group]) -> Iterator[str]:
    """Yield the legend of the marks in the table, the places of most lost frames, and a line per kind of reason."""
    yield from dict.fromkeys(group.frame_size.without_packet.summary for group in groups if group.frame_size.is_mix)
    limits = dict.fromkeys(group.limited_by.kind.value for group in groups if group.limited_by and group.is_lower_bound)
    if limits:
        yield f"≥: a maximum that is limited by {' or '.join(limits)}, not by the UUT, is a lower bound"
    if any(map(_upper_limit, groups)):
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
        yield f"warm-up trials, not part of any result: {count(warm_ups, 'trial')}"
    yield from steadiness_remarks(steadiness_of(groups))
    if marked := sum(len(outliers.marked) for group in groups if (outliers := outliers_of(group))):
        yield f"outliers, included in the means: {count(marked, 'trial')}"
    if results.ended_sweeps:
        sweeps = count(len(results.ended_sweeps), "sweep")
        skipped = count(results.skipped_trials, "trial")
        yield f"skipped above saturated loads (stop_when_saturated): {skipped} of {sweeps}"
    yield from verdict_remarks(results)


def verdict_remarks(results: CampaignResults) -> Iterator[str]:
    """Yield a line per kind of reason against trials and against discarded attempts, the most frequent first."""
    for kind, number in frequent_kinds(_decisive(trial.reasons, trial.verdict) for trial in results.wanted_trials):
        text = _REMARKS_OF_REASONS.get(kind, _USUAL_REMARK)
        yield text.format(verdict=kind.verdict.value, kind=kind.value, trials=count(number, "trial"))
    discarded = (reasons for trial in results.wanted_trials for reasons in trial.thrown_away)
    for kind, number in frequent_kinds(_decisive(reasons, Verdict.INVALID) for reasons in discarded):
        yield f"discarded and repeated for {kind.value}: {count(number, 'attempt')}"


def _decisive(reasons: Iterable[Reason], verdict: Verdict) -> list[Reason]:
    """Return the reasons that led to this verdict, without lesser ones."""
    return [reason for reason in reasons if reason.kind.verdict is verdict]

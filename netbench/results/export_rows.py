"""Results as flat rows of all exports: one per trial and stream, or one per group of repetitions."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from netbench.model.campaign import Boot, CampaignResults, WarmUpTrial
from netbench.model.packet_counts import PacketCounts
from netbench.model.source_ceiling import SourceCeiling
from netbench.model.trial import TrialResult
from netbench.results.export_columns import ExportColumn, Row, Source
from netbench.results.flow_columns import flow_cell
from netbench.results.group_columns import GROUP_COLUMNS
from netbench.results.stream_columns import STREAM_COLUMNS, StreamOfTrial
from netbench.statistics.compared_cells import ALL_CELLS, CellSelection
from netbench.statistics.flow_figures import workload_groups_of
from netbench.statistics.groups import group_trials
from netbench.statistics.limits import with_limits
from netbench.statistics.outliers import outlier_marks

Details = list[dict[str, str | int | None]]  # of JSON documents, which have no table's columns


def stream_rows(
    trials: Sequence[TrialResult],
    boots: Iterable[Boot] = (),
    facts: Mapping[str, Mapping[str, str]] = {},
    warm_ups: Iterable[WarmUpTrial] = (),
    ceilings: Iterable[SourceCeiling] = (),
    *,
    details: bool = False,
    selection: CellSelection = ALL_CELLS,
) -> Iterator[Row]:
    """Yield one row of `STREAM_COLUMNS` per trial and stream, in plan order: the victim's, then each neighbour's.

    `boots`, `warm_ups` and `facts` (by UUT) are as in CampaignResults. `ceilings` are those of the sources. The trials
    are read twice. With `details`, rows also have lists, as `DETAILS` describes them. `selection` are the cells whose
    trials have rows.
    """
    by_cell = {(ceiling.uut, ceiling.sources, ceiling.frame_size): ceiling for ceiling in ceilings}
    warm_ups_on = Counter(warm_up.result.boot for warm_up in warm_ups)
    outliers, by_number = outlier_marks(trials), {boot.number: boot for boot in boots}
    for trial in trials:
        spec = trial.spec
        if not selection.includes(spec.uut, spec.scenario, spec.kind_of_traffic):
            continue
        of_victim: dict[str, Any] = {"boot": by_number.get(trial.boot)}
        if not spec.serves:
            sources = len(spec.streams), spec.frame_size
            # Measured through its UUT, or else without a UUT.
            ceiling = by_cell.get((spec.uut, *sources), by_cell.get(("", *sources)))
            of_victim |= {"outlier": outliers.get(spec.key), "ceiling": ceiling}
        of_all = {"facts": facts.get(spec.uut, {}), "warm_ups": warm_ups_on[trial.boot]}
        yield from _rows(trial, of_victim, of_all, details=details)


def warm_up_rows(
    results: CampaignResults, *, details: bool = False, selection: CellSelection = ALL_CELLS
) -> Iterator[Row]:
    """Yield one row of `STREAM_COLUMNS` per warm-up trial and stream, in order, boot by boot; options as above."""
    by_number = {boot.number: boot for boot in results.boots}
    for warm_up in results.warm_ups:
        trial, number = warm_up.result, warm_up.number
        if not selection.includes(trial.spec.uut, trial.spec.scenario, trial.spec.kind_of_traffic):
            continue
        of_all = {"facts": results.facts.get(trial.spec.uut, {}), "warm_ups": number - 1, "warm_up": number}
        yield from _rows(trial, {"boot": by_number.get(trial.boot)}, of_all, details=details)


def group_rows(results: CampaignResults, *, selection: CellSelection = ALL_CELLS) -> Iterator[Row]:
    """Yield one row of `GROUP_COLUMNS` per selected group of repetitions: means over valid trials, streams added up.

    `_ci95` is the half width of the 95 % interval; None for a single valid trial. Percentiles of flows are those of all
    times of the valid trials together.
    """
    for group in with_limits(group_trials(results)):
        if selection.includes(group.uut, group.scenario, group.frame_size):
            yield _row(GROUP_COLUMNS, group)
    for flows in workload_groups_of(results):
        if selection.includes(flows.uut, flows.scenario, flows.workload):
            yield {column.name: flow_cell(column.name, flows) for column in GROUP_COLUMNS}


def _rows(
    trial: TrialResult, of_victim: Mapping[str, Any], of_all: Mapping[str, Any], *, details: bool
) -> Iterator[Row]:
    """Yield the rows of a trial; `of_victim` are fields of StreamOfTrial for the victim's streams only."""
    for stream in _streams(trial, of_victim, of_all):
        more: dict[str, Any] = {name: of(stream.packet_counts) for name, of in DETAILS.items()} if details else {}
        yield {**_row(STREAM_COLUMNS, stream), **more}


def _streams(trial: TrialResult, of_victim: Mapping[str, Any], of_all: Mapping[str, Any]) -> Iterator[StreamOfTrial]:
    counted = {counts.stream: counts for counts in trial.streams}
    flows = {flow.stream: flow for flow in trial.victim.flows}
    for name in trial.spec.streams:
        measured = {"counts": counted.get(name), "flow": flows.get(name), **of_victim}
        yield StreamOfTrial(trial, trial.spec.victim, trial.victim, name, **measured, **of_all)
    for guest in trial.neighbours:
        task = trial.spec.task(guest.name)
        for counts in guest.streams:
            yield StreamOfTrial(trial, task, guest, counts.stream, counts, **of_all)
        for flow in guest.flows:
            yield StreamOfTrial(trial, task, guest, flow.stream, None, **{"flow": flow, **of_all})


def _changed_fields(counts: PacketCounts | None) -> Details:
    if counts is None:
        return []
    return [
        {
            "field": field.name,
            "frames": field.frames,
            "sent": field.sent or None,
            "expected": field.expected or None,
            "arrived": field.arrived or None,
        }
        for field in counts.changed
    ]


def _lossy_groups(counts: PacketCounts | None) -> Details:
    return [
        {"field": field.field, "values": group.values, "sent_frames": group.sent, "lost_frames": group.lost}
        for field in (counts.groups if counts else ())
        for group in field.lossy
    ]


# The lists of JSON documents: the header fields that were not as expected, and the groups of flows that lost frames.
DETAILS: Mapping[str, Callable[[PacketCounts | None], Details]] = {
    "changed_fields": _changed_fields,
    "lossy_groups": _lossy_groups,
}


def _row(columns: Iterable[ExportColumn[Source]], source: Source) -> Row:
    return {column.name: column.read(source) for column in columns}

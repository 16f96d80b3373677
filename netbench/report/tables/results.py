"""The tables of throughput and loss: all results, maxima, lower bounds, skipped loads, directions and frame mixes."""

from collections.abc import Iterator

from netbench.model.limits import LIMITED_BY_UUT
from netbench.model.units import LoadKind
from netbench.model.verdict import Verdict
from netbench.report.blocks import Cell, Column, Table, table
from netbench.report.formats import (
    UNKNOWN,
    frames,
    kfps,
    mbps,
    mbps_spread,
    mean,
    microseconds,
    percent,
    percent_spread,
    rough_percent,
    sentence,
)
from netbench.report.model import ReportModel
from netbench.report.tables.registry import (
    block_of,
    largest_first,
    means,
    number,
    place_columns,
    report_table,
    size_column,
    stream_label,
    tables_of_views,
    uut_column,
    words,
)
from netbench.statistics.delay_and_order import Direction, delay_of, directions, time_of
from netbench.statistics.groups import Group, best_groups
from netbench.statistics.intervals import known_interval
from netbench.statistics.outliers import FEWEST_TO_MARK, outliers_of
from netbench.statistics.totals import ratio, total


@report_table("results")
def results(model: ReportModel, *, is_file: bool = False) -> Iterator[Table]:
    """Means of the valid trials with their 95 % intervals, a block per frame size, for each view."""
    columns: tuple[Column[Group], ...] = (
        *((size_column(lambda group: group.frame_size),) if is_file else ()),
        uut_column(model.styles, lambda group: group.uut),
        Column("Load per source", lambda group: str(group.load)),
        number("Intended Mbit/s", _intended),
        means("Offered Mbit/s", lambda group: group.offered_mbps, mbps, mbps_spread),
        means("Throughput Mbit/s", lambda group: group.throughput_mbps, mbps, mbps_spread),
        number("Throughput kfps", lambda group: kfps(mean(group.throughput_fps))),
        means("Unsent", lambda group: group.unsent_ratio, percent, percent_spread),
        means("Loss", lambda group: group.loss_ratio, percent, percent_spread),
        number("In queues", lambda group: frames(group.buffered_frames)),
        number("Valid", lambda group: str(len(group.valid))),
        number("Outliers", _outliers),
        number("Saturated", lambda group: _marked(group.saturated, Verdict.VALID)),
        number("At first attempt", _valid_at_once),
        number("Discarded attempts", lambda group: str(group.thrown_away)),
        number("Suspicious", lambda group: _marked(len(group.suspicious), Verdict.SUSPICIOUS)),
        number("Invalid", lambda group: _marked(len(group.invalid), Verdict.INVALID)),
    )
    for view in model.views:
        yield table(
            view.groups if is_file else largest_first(view.groups, lambda group: group.frame_size),
            *columns,
            css="results",
            block=block_of,
            row_css=lambda group: "" if group.valid else "nothing-valid",
            name=f"results-{view.name}",
            caption=sentence("captions.results", view=view.title),
            view=view.name,
        )


@report_table("results-file", is_exported=True)
def results_for_files(model: ReportModel) -> Iterator[Table]:
    """The same with a column of the frame size instead of blocks."""
    return results(model, is_file=True)


@report_table("maximum", is_exported=True)
def maximum(model: ReportModel) -> Iterator[Table]:
    """The highest throughput of each UUT, scenario, number of sources and frame size."""
    if best := best_groups(model.groups):
        yield table(
            best,
            *place_columns(model.styles),
            Column("≥", lambda group: "≥" if group.is_lower_bound else ""),
            means("Highest throughput Mbit/s", lambda group: group.maximum_mbps, mbps, mbps_spread),
            Column("At load", lambda group: ", ".join(map(str, group.maximum_loads))),
            number("Offered Mbit/s", lambda group: mbps(mean(group.offered_mbps))),
            number("n", lambda group: str(group.maximum_fps.n if group.maximum_fps else 0)),
            Column("Limited by", lambda group: str(group.limited_by or LIMITED_BY_UUT)),
            name="maximum",
            caption=sentence("captions.maximum"),
        )


@report_table("lower-bounds")
def lower_bounds(model: ReportModel) -> Iterator[Table]:
    """The maxima that were not limited by the UUT."""
    if limited := [group for group in model.groups if group.is_lower_bound]:
        yield table(limited, *place_columns(model.styles), Column("Highest throughput", maximum_text))


def maximum_text(group: Group) -> str:
    """`≥ 97.0 Mbit/s, not overloaded: limited by the source`, or just the number where the UUT was the limit."""
    text = f"{mbps(mean(group.maximum_mbps))} Mbit/s"
    return f"≥ {text}, not overloaded: limited by {group.limited_by}" if group.is_lower_bound else text


@report_table("skipped-loads")
def skipped_loads(model: ReportModel) -> Iterator[Table]:
    """The loads that were skipped because lower ones were saturated."""
    if ended := model.results.ended_sweeps:
        yield table(
            ended,
            uut_column(model.styles, lambda sweep: sweep.uut),
            Column("Scenario", lambda sweep: sweep.scenario),
            number("Sources", lambda sweep: str(len(sweep.streams))),
            size_column(lambda sweep: sweep.frame_size),
            Column("Saturated at", lambda sweep: ", ".join(sweep.saturated_loads)),
            Column("Skipped, saturated", lambda sweep: ", ".join(sweep.skipped_loads)),
            number("Trials skipped", lambda sweep: f"{sweep.skipped_trials:,}"),
        )


@report_table("directions")
def directions_tables(model: ReportModel) -> Iterator[Table]:
    """Each direction of measurements with a stream and its reverse, for each view."""
    return tables_of_views(
        model,
        directions,
        lambda direction: direction.group,
        Column("Stream", lambda direction: stream_label(direction.stream, direction.reverse_of)),
        means("Offered Mbit/s", lambda direction: direction.offered_mbps, mbps, mbps_spread),
        means("Throughput Mbit/s", lambda direction: direction.throughput_mbps, mbps, mbps_spread),
        number("Throughput kfps", lambda direction: kfps(mean(direction.throughput_fps))),
        means("Loss", lambda direction: direction.loss_ratio, percent, percent_spread),
        number("Frames lost", lambda direction: frames(total(trial.lost_frames for trial in direction.valid))),
        number("Median delay, µs", lambda direction: microseconds(_median_ns(direction))),
        number("Valid", lambda direction: str(len(direction.valid))),
    )


def _median_ns(direction: Direction) -> float | None:
    streams = (counts for trial in direction.valid for counts in trial.streams)
    return mean(known_interval(time_of(counts, delay_of, lambda delay: delay.median_ns) for counts in streams))


@report_table("mixes")
def mixes(model: ReportModel) -> Iterator[Table]:
    """The composition of each mix."""
    sizes = (
        *(group.frame_size for group in model.groups),
        *(search.frame_size for search in model.results.searches if not search.of_flows),
    )
    if mixes := list(dict.fromkeys(size.without_packet for size in sizes if size.is_mix)):
        yield table(
            mixes,
            Column("Mix", lambda mix: mix.name),
            number("Mean size", lambda mix: f"{mix.mean_bytes:,.1f} B"),
            Column("Frames of each size", lambda mix: mix.shares),
            words("Sequence that repeats", lambda mix: mix.in_letters),
        )


@report_table("mix-sizes")
def mix_sizes(model: ReportModel) -> Iterator[Table]:
    """The frames of each size of a mix, summed over the streams of its valid trials."""
    with_size = ((group, group.frame_size) for group in model.groups if group.valid)
    sent, lost = "sent_frames", "lost_frames"
    if rows := [(group, size) for group, mix in with_size if mix.is_mix for size in mix.sizes]:
        yield table(
            rows,
            *place_columns(model.styles, lambda row: row[0])[:-1],  # without the mix, which blocks have as heading
            Column("Load per source", lambda row: str(row[0].load)),
            number("Frame size", lambda row: f"{row[1]:,} B"),
            number("Sent", lambda row: frames(_of_size(row, sent))),
            number("Received", lambda row: frames(_of_size(row, "received_frames"))),
            number("Lost", lambda row: frames(_of_size(row, lost))),
            number("of sent", lambda row: rough_percent(ratio(_of_size(row, lost), _of_size(row, sent)))),
            block=lambda row: str(row[0].frame_size),
        )


def _of_size(row: tuple[Group, int], quantity: str) -> int | None:
    """The sum of a quantity of the frames of one size; None where a stream does not know it."""
    group, size = row
    streams = [stream for trial in group.valid for stream in trial.streams]
    by_size = [{} if stream is None else {entry.size: entry for entry in stream.by_size or ()} for stream in streams]
    return total(getattr(counts.get(size), quantity, None) for counts in by_size)


def _outliers(group: Group) -> str:
    """The number of outliers among the valid trials; unknown where those are too few."""
    if len(group.valid) < FEWEST_TO_MARK:
        return UNKNOWN
    outliers = outliers_of(group)
    return str(len(outliers.marked)) if outliers else "0"


def _intended(group: Group) -> str:
    return str(group.load) if group.load.kind is LoadKind.MAX else mbps(group.intended_mbps)


def _marked(trials: int, verdict: Verdict) -> Cell:
    return Cell(str(trials), badge=f"count {verdict.value}" if trials else "count none")


def _valid_at_once(group: Group) -> Cell:
    """The number of trials valid at the first attempt, marked where it is too low for a maximum."""
    return Cell(str(group.valid_at_once), badge="" if group.counts_as_maximum else "count suspicious")

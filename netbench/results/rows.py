"""Results as flat rows: the columns of every export, each with its unit in its name.

Bandwidths are Mbit/s on the wire (L1) unless named `_l2`. None means unknown. Columns may be added at the
end, never renamed or moved.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from netbench.model.campaign import Boot, CampaignResults, WarmUpTrial
from netbench.model.counts import SizeCounts, StreamCounts, l1_mbps, l2_mbps
from netbench.model.distributions import SoftwareDelay
from netbench.model.frame_mix import FrameMix, FrameSize, mean_bytes
from netbench.model.scenario import VICTIM
from netbench.model.source_ceiling import SourceCeiling
from netbench.model.tester import Disturbance, Identity, Role, StreamEnds
from netbench.model.trial import GuestResult, GuestTask, TrialResult
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import Reason
from netbench.statistics.delay_percentiles import ReadSpread, ReadTime, delay_of, ipdv_of, pdv_of, time_of
from netbench.statistics.groups import Group, group_trials
from netbench.statistics.intervals import Interval
from netbench.statistics.limits import with_limits
from netbench.statistics.outliers import FEWEST, outlier_marks, outliers_of
from netbench.statistics.totals import LOAD, Mbps, cpu_of_victim, observed_s

Cell = str | int | float | None
Row = dict[str, Cell]
Source = TypeVar("Source")


@dataclass(frozen=True, slots=True)
class ExportColumn(Generic[Source]):
    """A column: its name, the type of its known cells, and the function that reads a cell from the row's source."""

    name: str
    type: type[str] | type[int] | type[float]
    read: Callable[[Source], Cell]


@dataclass(frozen=True, slots=True)
class StreamOfTrial:
    """The source of one row: a stream of a trial, and the guest that it runs through.

    `counts` is None for a planned stream of a trial that failed before it was counted.
    """

    trial: TrialResult
    guest: GuestTask
    measured: GuestResult
    stream: str
    counts: StreamCounts | None
    boot: Boot | None = None
    facts: Mapping[str, str] = field(default_factory=dict)  # reported by the UUT and its neighbours
    outlier: bool | None = None  # None: unknown
    warm_ups: int = 0  # number of earlier warm-up trials on its boot
    warm_up: int | None = None  # number of this warm-up trial; None: it is not a warm-up trial
    ceiling: SourceCeiling | None = None  # of the victim's sources; None: unknown

    @property
    def of_victim(self) -> bool:
        """True if it runs through the victim."""
        return self.guest.name == VICTIM

    @property
    def frame_size(self) -> FrameSize | None:
        """The size of the frames of this stream."""
        return self.guest.traffic.size if self.guest.traffic else None

    @property
    def cpu_s(self) -> Mapping[str, float]:
        """CPU time of the guest that this stream runs through, in seconds, by consumer."""
        return cpu_of_victim(self.trial) if self.of_victim else self.measured.cpu_s


def stream_rows(
    trials: Sequence[TrialResult],
    boots: Iterable[Boot] = (),
    facts: Mapping[str, Mapping[str, str]] = {},
    warm_ups: Iterable[WarmUpTrial] = (),
    ceilings: Iterable[SourceCeiling] = (),
) -> Iterator[Row]:
    """Yield one row of `STREAM_COLUMNS` per trial and stream, in plan order: the victim's, then each neighbour's.

    `boots`, `warm_ups` and `facts` (by UUT) are as in CampaignResults. `ceilings` are those of the sources. The trials
    are read twice.
    """
    by_cell = {(known.uut, known.sources, known.frame_size): known for known in ceilings}
    made = Counter(warm_up.result.boot for warm_up in warm_ups)
    outliers = outlier_marks(trials)
    by_number = {boot.number: boot for boot in boots}
    for trial in trials:
        uut_facts, boot = facts.get(trial.spec.uut, {}), by_number.get(trial.boot)
        for stream in _streams(trial):
            own = boot if stream.of_victim else None
            outlier = outliers.get(trial.spec.key) if stream.of_victim else None
            warmed = made[trial.boot]
            ceiling = _ceiling(by_cell, trial) if stream.of_victim else None
            row = replace(stream, boot=own, facts=uut_facts, outlier=outlier, warm_ups=warmed, ceiling=ceiling)
            yield _row(STREAM_COLUMNS, row)


def warm_up_rows(results: CampaignResults) -> Iterator[Row]:
    """Yield one row of `STREAM_COLUMNS` per warm-up trial and stream, in order, boot by boot."""
    by_number = {boot.number: boot for boot in results.boots}
    for warm_up in results.warm_ups:
        uut_facts, boot = results.facts.get(warm_up.result.spec.uut, {}), by_number.get(warm_up.result.boot)
        for stream in _streams(warm_up.result):
            own = boot if stream.of_victim else None
            yield _row(
                STREAM_COLUMNS,
                replace(stream, boot=own, facts=uut_facts, warm_ups=warm_up.number - 1, warm_up=warm_up.number),
            )


def _ceiling(ceilings: Mapping[tuple[str, int, FrameSize], SourceCeiling], trial: TrialResult) -> SourceCeiling | None:
    """Return the ceiling of a trial's sources, measured through its UUT, or else without a UUT."""
    sources, size = len(trial.spec.streams), trial.spec.frame_size
    return ceilings.get((trial.spec.uut, sources, size), ceilings.get(("", sources, size)))


def _streams(trial: TrialResult) -> Iterator[StreamOfTrial]:
    counted = {counts.stream: counts for counts in trial.streams}
    for stream in trial.spec.streams:
        yield StreamOfTrial(trial, trial.spec.victim, trial.victim, stream, counted.get(stream))
    for guest in trial.neighbours:
        for counts in guest.streams:
            yield StreamOfTrial(trial, trial.spec.task(guest.name), guest, counts.stream, counts)


def group_rows(results: CampaignResults) -> Iterator[Row]:
    """Yield one row of `GROUP_COLUMNS` per group of repetitions: means over its valid trials, streams added up.

    `_ci95` is the half width of the 95 % interval; None for a single valid trial.
    """
    return (_row(GROUP_COLUMNS, group) for group in with_limits(group_trials(results)))


def reason_kinds(reasons: Iterable[Reason], between: str = ";") -> str:
    """Return the kinds of these reasons, each once."""
    return between.join(dict.fromkeys(reason.kind.value for reason in reasons))


def _row(columns: Iterable[ExportColumn[Source]], source: Source) -> Row:
    return {column.name: column.read(source) for column in columns}


def _reasons(row: StreamOfTrial) -> str:
    concerned = ("", row.stream) if row.of_victim else (row.stream,)
    return reason_kinds(reason for reason in row.trial.reasons if reason.stream in concerned)


def _saturated(row: StreamOfTrial) -> str | None:
    return None if row.counts is None else "yes" if row.stream in row.trial.saturated else "no"


def _thrown_away(trial: TrialResult) -> str:
    return ";".join(
        f"{attempt}={reason_kinds(reasons, '+')}" for attempt, reasons in enumerate(trial.thrown_away, start=1)
    )


def _start_skew_us(row: StreamOfTrial) -> tuple[float | None, float | None]:
    """Return how long after the first source of its trial this source began, and the error bound, both in µs.

    Both are by the clocks of the sources' machines, and None if the clock of this source was not compared.
    """
    begun = [
        (counts.first_sent_ns - counts.source_clock.middle_ns, counts.source_clock, counts.stream)
        for guest in row.trial.guests
        for counts in guest.streams
        if counts.first_sent_ns is not None and counts.source_clock is not None
    ]
    own_starts = [(begun_ns, clock) for begun_ns, clock, stream in begun if stream == row.stream]
    if not own_starts:
        return None, None
    ((own_ns, own),), (first_ns, clock, _) = own_starts, min(begun, key=lambda start: start[0])
    after_ns = own_ns - first_ns
    bound_ns = 0 if own == clock else own.uncertainty_ns + clock.uncertainty_ns
    return after_ns / 1000, bound_ns / 1000


def _load(row: StreamOfTrial) -> str | None:
    if row.of_victim:
        return str(row.trial.spec.load)
    if row.counts is None:
        return None
    fps = row.counts.intended_fps
    return str(Load(LoadKind.MAX) if fps is None else Load(LoadKind.FRAME_RATE, fps))


def _activity(row: StreamOfTrial) -> str:
    if not row.of_victim:
        return str(row.guest.activity)
    return "; ".join(f"{guest.name}: {row.trial.spec.task(guest.name).activity}" for guest in row.trial.neighbours)


def _neighbours_cpu(row: StreamOfTrial) -> str:
    if not row.of_victim:
        return ""
    return "; ".join(f"{guest.name}: {_times(guest.cpu_s)}" for guest in row.trial.neighbours if guest.cpu_s)


def _times(cpu_s: Mapping[str, float]) -> str:
    return " ".join(f"{whose}={round(seconds, 6)}" for whose, seconds in cpu_s.items())


def _fact(row: StreamOfTrial, name: str) -> str | None:
    return row.facts.get(name if row.of_victim else f"{row.guest.name}: {name}")


def _emulated(row: StreamOfTrial) -> str | None:
    if _fact(row, "emulated") or "vm_emulated" in row.facts:
        return "yes"
    return "no" if _fact(row, "virtualisation") else None


def _mib(boot: Boot | None) -> float | None:
    return None if boot is None or boot.memory_bytes is None else round(boot.memory_bytes / 2**20, 3)


def _identity(
    name: str, end: Callable[[StreamEnds], Identity], read: Callable[[Identity], str]
) -> ExportColumn[StreamOfTrial]:
    def words(row: StreamOfTrial) -> str | None:
        ends = row.trial.ends.get(row.stream)
        return None if ends is None else read(end(ends))

    return ExportColumn(name, str, words)


def _lost_at(counts: StreamCounts) -> str:
    return ";".join(f"{loss.place}={loss.frames}" for loss in counts.lost_at)


def _loss_run_lengths(counts: StreamCounts) -> str:
    return ";".join(f"{length.from_frames}={length.runs}" for length in counts.loss_run_lengths)


def _counted(
    name: str, kind: type[str] | type[int] | type[float], read: Callable[[StreamCounts], Cell]
) -> ExportColumn[StreamOfTrial]:
    return ExportColumn(name, kind, lambda row: None if row.counts is None else read(row.counts))


def _tester(
    name: str, kind: type[str] | type[int] | type[float], read: Callable[[SoftwareDelay], Cell]
) -> ExportColumn[StreamOfTrial]:
    return _counted(name, kind, lambda counts: None if counts.software_delay is None else read(counts.software_delay))


def _time(name: str, spread: ReadSpread, read: ReadTime) -> ExportColumn[StreamOfTrial]:
    def microseconds(counts: StreamCounts) -> float | None:
        nanoseconds = time_of(counts, spread, read)
        return None if nanoseconds is None else nanoseconds / 1000

    return _counted(name, float, microseconds)


def _wait_s(row: StreamOfTrial, role: Role) -> float | None:
    disturbance = row.trial.disturbance
    return None if disturbance is None else disturbance.wait_s(role, row.stream)


def _disturbed(name: str, read: Callable[[Disturbance, StreamOfTrial], float | None]) -> ExportColumn[StreamOfTrial]:
    def seconds(row: StreamOfTrial) -> float | None:
        return None if row.trial.disturbance is None else read(row.trial.disturbance, row)

    return ExportColumn(name, float, seconds)


def _bandwidth(
    name: str,
    unit: Mbps,
    read: Callable[[StreamCounts], float | None],
    mean: Callable[[StreamCounts, FrameSize], float] = lambda _, size: mean_bytes(size),
) -> ExportColumn[StreamOfTrial]:
    def mbps(row: StreamOfTrial) -> float | None:
        size = row.frame_size
        return None if row.counts is None or size is None else unit(read(row.counts), mean(row.counts, size))

    return ExportColumn(name, float, mbps)


def _one_size(size: FrameSize | None) -> int | None:
    """Return the frame size in bytes; None for a mix of sizes."""
    return None if isinstance(size, FrameMix) else size


def _mean(size: FrameSize | None) -> float | None:
    return None if size is None else float(mean_bytes(size))


def _mix(size: FrameSize | None, read: Callable[[FrameMix], str]) -> str | None:
    return read(size) if isinstance(size, FrameMix) else None


def _of_sizes(name: str, read: Callable[[SizeCounts], int | None]) -> ExportColumn[StreamOfTrial]:
    def frames(counts: StreamCounts) -> str | None:
        known = [(entry.size, read(entry)) for entry in counts.by_size]
        return ";".join(f"{size}={count}" for size, count in known if count is not None) or None

    return _counted(name, str, frames)


def _interval(name: str, read: Callable[[Group], Interval | None]) -> tuple[ExportColumn[Group], ExportColumn[Group]]:
    def mean(group: Group) -> float | None:
        interval = read(group)
        return None if interval is None else interval.mean

    def half_width(group: Group) -> float | None:
        interval = read(group)
        return None if interval is None else interval.half_width

    return ExportColumn(name, float, mean), ExportColumn(f"{name}_ci95", float, half_width)


def _maximum_loads(group: Group) -> str | None:
    return None if group.limited_by is None else ";".join(map(str, group.maximum_loads))


def _boots(group: Group) -> int | None:
    """Return the number of boots of the throughput; None if it is unknown."""
    throughput = group.throughput_fps
    return None if throughput is None or not throughput.boots else throughput.boots


def _outlier_trials(group: Group) -> int | None:
    if len(group.valid) < FEWEST:
        return None
    outliers = outliers_of(group)
    return len(outliers.marked) if outliers else 0


def _without_outliers(group: Group) -> float | None:
    outliers = outliers_of(group)
    if outliers is None:
        return None if len(group.valid) < FEWEST or group.throughput_mbps is None else group.throughput_mbps.mean
    return l1_mbps(outliers.mean_without, group.frame_size)


def _percent(name: str, whose: str) -> tuple[ExportColumn[Group], ExportColumn[Group]]:
    def percent(group: Group) -> Interval | None:
        share = group.cpu_share(whose)
        return None if share is None else share.scaled(100)

    return _interval(name, percent)


STREAM_COLUMNS: tuple[ExportColumn[StreamOfTrial], ...] = (
    ExportColumn("uut", str, lambda row: row.trial.spec.uut),
    ExportColumn("scenario", str, lambda row: row.trial.spec.scenario),
    ExportColumn("streams", int, lambda row: len(row.trial.spec.streams)),
    ExportColumn("stream", str, lambda row: row.stream),
    ExportColumn("frame_size", int, lambda row: _one_size(row.frame_size)),
    ExportColumn("repetition", int, lambda row: row.trial.spec.repetition),
    _counted("intended_fps", float, lambda counts: counts.intended_fps),
    _counted("sent_frames", int, lambda counts: counts.sent_frames),
    _counted("unsent_frames", int, lambda counts: counts.unsent_frames),
    _counted("received_frames", int, lambda counts: counts.received_frames),
    _counted("lost_frames", int, lambda counts: counts.lost_frames),
    _counted("duplicate_frames", int, lambda counts: counts.duplicate_frames),
    _counted("reordered_frames", int, lambda counts: counts.reordered_frames),
    _counted("capture_dropped_frames", int, lambda counts: counts.capture_dropped_frames),
    _counted("unexplained_frames", int, lambda counts: counts.unexplained_frames),
    _counted("loss_ratio", float, lambda counts: counts.loss_ratio),
    _counted("duration_s", float, lambda counts: counts.duration_s),
    _bandwidth("offered_mbps", l1_mbps, lambda counts: counts.offered_fps, StreamCounts.offered_bytes),
    _bandwidth("throughput_mbps", l1_mbps, lambda counts: counts.throughput_fps, StreamCounts.throughput_bytes),
    _bandwidth("offered_l2_mbps", l2_mbps, lambda counts: counts.offered_fps, StreamCounts.offered_bytes),
    _bandwidth("throughput_l2_mbps", l2_mbps, lambda counts: counts.throughput_fps, StreamCounts.throughput_bytes),
    ExportColumn("verdict", str, lambda row: row.trial.verdict.value),
    ExportColumn("reasons", str, _reasons),
    ExportColumn("trial", int, lambda row: row.trial.spec.index),
    ExportColumn("attempt", int, lambda row: row.trial.attempt),
    ExportColumn("load", str, _load),
    ExportColumn("started_ns", int, lambda row: row.trial.started_ns),
    _bandwidth("intended_mbps", l1_mbps, lambda counts: counts.intended_fps),
    _counted("offered_fps", float, lambda counts: counts.offered_fps),
    _counted("throughput_fps", float, lambda counts: counts.throughput_fps),
    _counted("foreign_frames", int, lambda counts: counts.foreign_frames),
    _counted("loss_runs", int, lambda counts: counts.loss_runs),
    _counted("longest_loss_run_frames", int, lambda counts: counts.longest_loss_run_frames),
    _counted("last_missing_frame", int, lambda counts: counts.last_missing_frame),
    _counted("generator_errors", int, lambda counts: counts.generator_errors),
    _counted("max_burst_frames", int, lambda counts: counts.max_burst_frames),
    _counted("max_lateness_s", float, lambda counts: counts.max_lateness_s),
    _counted("lost_at", str, _lost_at),
    _time("delay_min_us", delay_of, lambda delay: delay.smallest_ns),
    _time("delay_median_us", delay_of, lambda delay: delay.median_ns),
    _time("delay_max_us", delay_of, lambda delay: delay.largest_ns),
    ExportColumn("cpu_guest_s", float, lambda row: row.cpu_s.get("guest")),
    ExportColumn("cpu_host_s", float, lambda row: row.cpu_s.get("host")),
    ExportColumn("guest", str, lambda row: "" if row.of_victim else row.guest.name),
    ExportColumn("trial_frame_size", int, lambda row: _one_size(row.trial.spec.frame_size)),
    ExportColumn("activity", str, _activity),
    ExportColumn("lifetime", int, lambda row: row.trial.boot or None),
    ExportColumn("cpu_machine_s", float, lambda row: row.trial.machine_cpu_s),
    ExportColumn("cpu_load_s", float, lambda row: row.cpu_s.get(LOAD)),
    ExportColumn("observed_s", float, lambda row: observed_s(row.trial)),
    ExportColumn("neighbours_cpu", str, _neighbours_cpu),
    _time("delay_mean_us", delay_of, lambda delay: delay.mean_ns),
    _time("delay_p90_us", delay_of, lambda delay: delay.p90_ns),
    _time("delay_p99_us", delay_of, lambda delay: delay.p99_ns),
    _time("delay_p999_us", delay_of, lambda delay: delay.p999_ns),
    _time("pdv_median_us", pdv_of, lambda pdv: pdv.median_ns),
    _time("pdv_p99_us", pdv_of, lambda pdv: pdv.p99_ns),
    _time("pdv_p999_us", pdv_of, lambda pdv: pdv.p999_ns),
    _time("pdv_max_us", pdv_of, lambda pdv: pdv.largest_ns),
    _time("ipdv_median_us", ipdv_of, lambda ipdv: ipdv.median_ns),
    _time("ipdv_mean_us", ipdv_of, lambda ipdv: ipdv.mean_ns),
    _time("ipdv_p99_us", ipdv_of, lambda ipdv: ipdv.p99_ns),
    _time("ipdv_p999_us", ipdv_of, lambda ipdv: ipdv.p999_ns),
    _time("ipdv_max_us", ipdv_of, lambda ipdv: ipdv.largest_ns),
    _counted("delay_refused", str, lambda counts: counts.delay_refused),
    _counted("loss_run_lengths", str, _loss_run_lengths),
    _counted("reordered_ratio", float, lambda counts: counts.reordered_ratio),
    _counted("reordering_extent_median_frames", int, lambda counts: counts.reordering_extent_median_frames),
    _counted("reordering_extent_mean_frames", float, lambda counts: counts.reordering_extent_mean_frames),
    _counted("reordering_extent_max_frames", int, lambda counts: counts.reordering_extent_max_frames),
    _counted("window_s", float, lambda counts: counts.window.seconds if counts.window else None),
    _counted("window_frames", int, lambda counts: counts.window.frames if counts.window else None),
    _counted("buffered_frames", int, lambda counts: counts.buffered_frames),
    _identity("source", lambda ends: ends.source, lambda identity: identity.kind),
    _identity("source_details", lambda ends: ends.source, lambda identity: identity.details),
    _identity("sink", lambda ends: ends.sink, lambda identity: identity.kind),
    _identity("sink_details", lambda ends: ends.sink, lambda identity: identity.details),
    _counted("order_refused", str, lambda counts: counts.order_refused),
    _counted("late_frames", int, lambda counts: counts.late_frames),
    _counted("control_frames", int, lambda counts: counts.control_frames),
    ExportColumn("thrown_away", str, lambda row: _thrown_away(row.trial)),
    _counted(
        "clock_bound_us", float, lambda counts: counts.clock_offset.bound_ns / 1000 if counts.clock_offset else None
    ),
    ExportColumn("saturated", str, _saturated),
    _counted("link_held_s", float, lambda counts: counts.link_s),
    _counted("source_away_s", float, lambda counts: None if counts.link_s is None else counts.away_s),
    ExportColumn("virtualisation", str, lambda row: _fact(row, "virtualisation")),
    ExportColumn("cpu_emulated", str, _emulated),
    ExportColumn("start_s", float, lambda row: row.boot.start_s if row.boot else None),
    ExportColumn("memory_mib", float, lambda row: _mib(row.boot)),
    ExportColumn("cpu_softirq_s", float, lambda row: row.trial.machine_softirq_s),
    ExportColumn("outlier", str, lambda row: None if row.outlier is None else "yes" if row.outlier else "no"),
    ExportColumn("warm_up_trials", int, lambda row: row.warm_ups),
    ExportColumn("warm_up_trial", int, lambda row: row.warm_up),
    ExportColumn("finds_maximum", str, lambda row: "yes" if row.trial.spec.finds_maximum else "no"),
    _counted("reverse_of", str, lambda counts: counts.reverse_of),
    ExportColumn("frame_mix", str, lambda row: _mix(row.frame_size, str)),
    ExportColumn("frame_mix_genome", str, lambda row: _mix(row.frame_size, lambda mix: mix.in_letters)),
    ExportColumn("frame_size_mean", float, lambda row: _mean(row.frame_size)),
    _of_sizes("sent_frames_by_size", lambda counts: counts.sent_frames),
    _of_sizes("received_frames_by_size", lambda counts: counts.received_frames),
    _of_sizes("lost_frames_by_size", lambda counts: counts.lost_frames),
    _of_sizes("window_frames_by_size", lambda counts: counts.window_frames),
    ExportColumn("trial_frame_mix", str, lambda row: _mix(row.trial.spec.frame_size, str)),
    ExportColumn("start_skew_us", float, lambda row: _start_skew_us(row)[0]),
    ExportColumn("start_skew_bound_us", float, lambda row: _start_skew_us(row)[1]),
    _tester("software_delay_by", str, lambda delay: delay.measured_by),
    _tester("software_delay_frames", int, lambda delay: delay.frames),
    _tester("software_delay_min_us", float, lambda delay: delay.smallest_us),
    _tester("software_delay_mean_us", float, lambda delay: delay.smoothed_mean_us),
    _tester("software_delay_max_us", float, lambda delay: delay.largest_us),
    _tester("software_delay_jitter_us", float, lambda delay: delay.jitter_us),
    _tester(
        "software_delay_classes",
        str,
        lambda delay: ";".join(f"{bucket.from_us}-{bucket.below_us}={bucket.frames}" for bucket in delay.classes),
    ),
    ExportColumn("source_wait_s", float, lambda row: _wait_s(row, "source")),
    ExportColumn("ingress_wait_s", float, lambda row: _wait_s(row, "ingress")),
    ExportColumn("uut_wait_s", float, lambda row: _wait_s(row, "uut")),
    ExportColumn("sink_wait_s", float, lambda row: _wait_s(row, "sink")),
    _disturbed("stalled_s", lambda disturbance, row: disturbance.stalled_of(row.stream)),
    _disturbed("steal_s", lambda disturbance, _: disturbance.steal_s),
    _disturbed("cpu_pressure_s", lambda disturbance, _: disturbance.cpu_pressure_s),
    _disturbed("throttled_s", lambda disturbance, _: disturbance.throttled_s),
    _disturbed("sending_s", lambda disturbance, _: disturbance.window_s),
    ExportColumn("source_ceiling_fps", float, lambda row: row.ceiling.fps or None if row.ceiling else None),
    ExportColumn("source_ceiling_doubt", str, lambda row: row.ceiling.doubt or None if row.ceiling else None),
)

GROUP_COLUMNS: tuple[ExportColumn[Group], ...] = (
    ExportColumn("uut", str, lambda group: group.uut),
    ExportColumn("scenario", str, lambda group: group.scenario),
    ExportColumn("streams", int, lambda group: group.sources),
    ExportColumn("frame_size", int, lambda group: _one_size(group.frame_size)),
    ExportColumn("load", str, lambda group: str(group.load)),
    ExportColumn("valid_trials", int, lambda group: len(group.valid)),
    ExportColumn("suspicious_trials", int, lambda group: len(group.suspicious)),
    ExportColumn("invalid_trials", int, lambda group: len(group.invalid)),
    ExportColumn("intended_fps", float, lambda group: group.intended_fps),
    ExportColumn("intended_mbps", float, lambda group: group.intended_mbps),
    *_interval("offered_mbps", lambda group: group.offered_mbps),
    *_interval("throughput_mbps", lambda group: group.throughput_mbps),
    *_interval("loss_ratio", lambda group: group.loss_ratio),
    *_interval("unsent_ratio", lambda group: group.unsent_ratio),
    *_interval("offered_fps", lambda group: group.offered_fps),
    *_interval("throughput_fps", lambda group: group.throughput_fps),
    *_interval("offered_l2_mbps", lambda group: group.offered_l2_mbps),
    *_interval("throughput_l2_mbps", lambda group: group.throughput_l2_mbps),
    ExportColumn("reasons", str, lambda group: reason_kinds(group.reasons)),
    *_interval("cpu_guest_s", lambda group: group.cpu_s("guest")),
    *_interval("cpu_host_s", lambda group: group.cpu_s("host")),
    *_interval("neighbour_offered_mbps", lambda group: group.neighbours_offered_mbps),
    *_interval("neighbour_throughput_mbps", lambda group: group.neighbours_throughput_mbps),
    *_interval("neighbour_loss_ratio", lambda group: group.neighbours_loss_ratio),
    ExportColumn("neighbour_frame_size", int, lambda group: _one_size(group.neighbours_frame_size)),
    *_interval("cpu_machine_s", lambda group: group.cpu_s("machine")),
    *_interval("cpu_load_s", lambda group: group.cpu_s(LOAD)),
    *_percent("cpu_guest_percent", "guest"),
    *_percent("cpu_host_percent", "host"),
    *_percent("cpu_machine_percent", "machine"),
    *_percent("cpu_load_percent", LOAD),
    ExportColumn("buffered_frames_max", int, lambda group: group.buffered_frames),
    ExportColumn("trials_valid_at_once", int, lambda group: group.valid_at_once),
    ExportColumn("thrown_away_attempts", int, lambda group: group.thrown_away),
    ExportColumn("counts_as_maximum", str, lambda group: "yes" if group.counts_as_maximum else "no"),
    ExportColumn("saturated_trials", int, lambda group: group.saturated),
    ExportColumn("outlier_trials", int, _outlier_trials),
    ExportColumn("throughput_mbps_without_outliers", float, _without_outliers),
    # Empty in all rows except those of a maximum.
    ExportColumn("limited_by", str, lambda group: None if group.limited_by is None else group.limited_by or "the UUT"),
    *_interval("maximum_fps", lambda group: None if group.limited_by is None else group.maximum_fps),
    ExportColumn("maximum_loads", str, lambda group: _maximum_loads(group)),
    ExportColumn("boots", int, lambda group: _boots(group)),
    ExportColumn("noise_floor", float, lambda group: group.noise_floor),
    ExportColumn("frame_mix", str, lambda group: _mix(group.frame_size, str)),
    ExportColumn("frame_mix_genome", str, lambda group: _mix(group.frame_size, lambda mix: mix.in_letters)),
    ExportColumn("frame_size_mean", float, lambda group: _mean(group.frame_size)),
    ExportColumn("neighbour_frame_mix", str, lambda group: _mix(group.neighbours_frame_size, str)),
)

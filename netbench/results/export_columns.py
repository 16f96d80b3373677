"""Results as flat rows: the columns of every export, each with its unit in its name.

Bandwidths are Mbit/s on the wire (L1) unless named `_l2`. None means unknown. Columns may be added at the
end, never renamed or moved.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from netbench.model.campaign import Boot
from netbench.model.counts import StreamCounts, l1_mbps, l2_mbps
from netbench.model.frame_size import FrameSize
from netbench.model.packet_counts import PacketCounts
from netbench.model.scenario import VICTIM
from netbench.model.source_ceiling import SourceCeiling
from netbench.model.tester import Role, StreamEnds
from netbench.model.trial import GuestResult, GuestTask, TrialResult
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import Reason
from netbench.statistics.drift import FEWEST_TO_MARK, outliers_of
from netbench.statistics.groups import Group
from netbench.statistics.totals import LOAD, Mbps, cpu_of_victim, observed_s

Cell = str | int | float | None
CellType = type[str] | type[int] | type[float]
Row = dict[str, Cell]
Source = TypeVar("Source")
_ROLES: tuple[Role, ...] = ("source", "ingress", "uut", "sink")


@dataclass(frozen=True, slots=True)
class ExportColumn(Generic[Source]):
    """A column: its name, the type of its known cells, and the function that reads a cell from the row's source."""

    name: str
    type: CellType
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
    def packet_name(self) -> str | None:
        """The name of its described packet; empty for the plain one, None for a stream that sends nothing."""
        if self.counts is not None and self.counts.packet is not None:
            return self.counts.packet.name
        return self.frame_size.packet if self.frame_size else None

    @property
    def flows(self) -> int | None:
        """The number of its flows; None if it is unknown."""
        if self.counts is not None and self.counts.packet is not None:
            return self.counts.packet.flows
        return self.guest.traffic.flows if self.guest.traffic and self.packet_name == "" else None

    @property
    def packet_counts(self) -> PacketCounts | None:
        """The counts that only described packets have; None if unknown."""
        return self.counts.received.packet if self.counts else None

    @property
    def cpu_s(self) -> Mapping[str, float]:
        """CPU time of the guest that this stream runs through, in seconds, by consumer."""
        return cpu_of_victim(self.trial) if self.of_victim else self.measured.cpu_s

    @property
    def ends(self) -> StreamEnds | None:
        """The source and the sink of the stream; None if unknown."""
        return self.trial.ends.get(self.stream)

    def fact(self, name: str) -> str | None:
        """Return a fact that the guest of the stream reported."""
        return self.facts.get(name if self.of_victim else f"{self.guest.name}: {name}")


def _reason_kinds(reasons: Iterable[Reason], between: str = ";") -> str:
    return between.join(dict.fromkeys(reason.kind.value for reason in reasons))


def _reasons(row: StreamOfTrial) -> str:
    concerned = ("", row.stream) if row.of_victim else (row.stream,)
    return _reason_kinds(reason for reason in row.trial.reasons if reason.stream in concerned)


def _discarded_attempts(row: StreamOfTrial) -> str:
    return ";".join(
        f"{attempt}={_reason_kinds(reasons, '+')}" for attempt, reasons in enumerate(row.trial.thrown_away, start=1)
    )


def _start_skew_us(row: StreamOfTrial) -> tuple[float | None, float | None]:
    """Return how long after the first source of its trial this source began, and the error bound, both in µs.

    Both are by the clocks of the sources' machines, and None if the clock of this source was not compared.
    """
    starts = {
        counts.stream: (counts.sent.first_ns - counts.source_clock.middle_ns, counts.source_clock)
        for guest in row.trial.guests
        for counts in guest.streams
        if counts.sent.first_ns is not None and counts.source_clock is not None
    }
    if row.stream not in starts:
        return None, None
    (start_ns, clock), (first_ns, first_clock) = starts[row.stream], min(starts.values(), key=lambda start: start[0])
    bound_ns = 0 if clock == first_clock else clock.uncertainty_ns + first_clock.uncertainty_ns
    return (start_ns - first_ns) / 1000, bound_ns / 1000


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
    times = {
        guest.name: " ".join(f"{whose}={round(seconds, 6)}" for whose, seconds in guest.cpu_s.items())
        for guest in row.trial.neighbours
    }
    return "; ".join(f"{name}: {text}" for name, text in times.items() if text)


def _emulated(row: StreamOfTrial) -> str | None:
    if row.fact("emulated") or "vm_emulated" in row.facts:
        return "yes"
    return "no" if row.fact("virtualisation") else None


def _memory_mib(row: StreamOfTrial) -> float | None:
    memory = row.boot.memory_bytes if row.boot else None
    return None if memory is None else round(memory / 2**20, 3)


def _away_s(row: StreamOfTrial) -> float | None:
    return row.counts.sent.descheduled_s if row.counts and row.counts.sent.backpressure_s is not None else None


def _software_delay_classes(row: StreamOfTrial) -> str | None:
    delay = row.counts.received.software_delay if row.counts else None
    if delay is None:
        return None
    return ";".join(f"{delays.from_us}-{delays.below_us}={delays.frames}" for delays in delay.classes)


def _maximum_loads(group: Group) -> str | None:
    return None if group.limited_by is None else ";".join(map(str, group.maximum_loads))


def _one_size(size: FrameSize | None) -> int | None:
    """Return the frame size in bytes; None for a mix of sizes."""
    return None if size is None or size.is_mix else size.only_size


def _outlier_trials(group: Group) -> int | None:
    if len(group.valid) < FEWEST_TO_MARK:
        return None
    outliers = outliers_of(group)
    return len(outliers.marked) if outliers else 0


def _without_outliers(group: Group) -> float | None:
    outliers = outliers_of(group)
    if outliers is None:
        return group.throughput_mbps.mean if group.throughput_mbps and len(group.valid) >= FEWEST_TO_MARK else None
    return l1_mbps(outliers.mean_without, group.frame_size.mean_bytes)


def _value(path: str) -> Callable[[Any], Any]:
    """Return a function that follows the attributes of a path such as `counts.sent.frames`; None if one is None."""
    names = path.split(".")

    def read(value: object) -> Any:  # noqa: ANN401 - the type of the last attribute
        for name in names:
            if value is None:
                return None
            value = getattr(value, name)
        return value

    return read


def _column(name: str, kind: CellType, path: str) -> ExportColumn[Any]:
    return ExportColumn(name, kind, _value(path))


def _columns(kind: CellType, parent: str, *names: str, **attributes: str) -> list[ExportColumn[Any]]:
    """Return the columns of attributes of `parent`, a path: those of the same name, and `column name = attribute`."""
    attributes = dict(zip(names, names, strict=True)) | attributes
    return [_column(name, kind, f"{parent}.{attribute}".removeprefix(".")) for name, attribute in attributes.items()]


def _yes_no(name: str, read: Callable[[Any], bool | None]) -> ExportColumn[Any]:
    return ExportColumn(name, str, lambda row: {None: None, True: "yes", False: "no"}[read(row)])


def _list(name: str, path: str, read: Callable[[Any], str]) -> ExportColumn[StreamOfTrial]:
    """Return a column with the items of a sequence in one cell."""
    items = _value(path)
    return ExportColumn(name, str, lambda row: None if row.counts is None else ";".join(map(read, items(row) or ())))


def _by_size(name: str) -> ExportColumn[StreamOfTrial]:
    def frames(row: StreamOfTrial) -> str | None:
        known = [(entry.size, getattr(entry, name)) for entry in (row.counts.by_size if row.counts else ())]
        return ";".join(f"{size}={count}" for size, count in known if count is not None) or None

    return ExportColumn(f"{name}_by_size", str, frames)


def _microseconds(name: str, path: str) -> ExportColumn[StreamOfTrial]:
    nanoseconds = _value(path)
    return ExportColumn(name, float, lambda row: None if (ns := nanoseconds(row)) is None else ns / 1000)


def _spread(path: str, *statistics: str) -> list[ExportColumn[StreamOfTrial]]:
    """Return columns of a Spread of StreamCounts."""
    name = path.split(".")[-1]
    attributes = {"min": "smallest", "max": "largest"}
    return [
        _microseconds(f"{name}_{statistic}_us", f"counts.{path}.{attributes.get(statistic, statistic)}_ns")
        for statistic in statistics
    ]


def _bandwidth(
    name: str, unit: Mbps, fps: str, mean: Callable[[StreamCounts, FrameSize], float] = lambda _, size: size.mean_bytes
) -> ExportColumn[StreamOfTrial]:
    def mbps(row: StreamOfTrial) -> float | None:
        counts, size = row.counts, row.frame_size
        return None if counts is None or size is None else unit(getattr(counts, fps), mean(counts, size))

    return ExportColumn(name, float, mbps)


def _cpu(whose: str) -> ExportColumn[StreamOfTrial]:
    return ExportColumn(f"cpu_{whose}_s", float, lambda row: row.cpu_s.get(whose))


def _wait(role: Role) -> ExportColumn[StreamOfTrial]:
    disturbance = _value("trial.disturbance")
    return ExportColumn(
        f"{role}_wait_s", float, lambda row: None if (of := disturbance(row)) is None else of.wait_s(role, row.stream)
    )


def _mix(prefix: str, path: str) -> list[ExportColumn[Any]]:
    """Return the columns of a frame size that may be a mix: its name, and its genome (RFC 6985)."""
    size = _value(path)

    def column(name: str, text: Callable[[FrameSize], str]) -> ExportColumn[Any]:
        return ExportColumn(name, str, lambda row: text(mix) if (mix := size(row)) and mix.is_mix else None)

    return [column(f"{prefix}frame_mix", str), column(f"{prefix}frame_mix_genome", lambda mix: mix.in_letters)]


_MIX: list[ExportColumn[Any]] = [
    *_mix("", "frame_size"),
    ExportColumn(
        "frame_size_mean", float, lambda row: None if row.frame_size is None else float(row.frame_size.mean_bytes)
    ),
]


def _interval(name: str, read: Callable[[Group], Any]) -> list[ExportColumn[Group]]:
    """Return the columns of the mean and of the half width of an interval."""

    def column(name: str, attribute: str) -> ExportColumn[Group]:
        return ExportColumn(name, float, lambda group: getattr(read(group), attribute, None))

    return [column(name, "mean"), column(f"{name}_ci95", "half_width")]


def _intervals(*names: str, prefix: str = "", parent: str = "") -> list[ExportColumn[Group]]:
    """Return the columns of attributes of a group that are intervals."""
    return [column for name in names for column in _interval(prefix + name, _value(parent + name))]


def _cpu_seconds(whose: str) -> list[ExportColumn[Group]]:
    return _interval(f"cpu_{whose}_s", lambda group: group.cpu_s(whose))


def _cpu_percent(whose: str) -> list[ExportColumn[Group]]:
    return _interval(f"cpu_{whose}_percent", lambda group: (share := group.cpu_share(whose)) and share.scaled(100))


STREAM_COLUMNS: tuple[ExportColumn[StreamOfTrial], ...] = (
    *_columns(str, "trial.spec", "uut", "scenario"),
    ExportColumn("streams", int, lambda row: len(row.trial.spec.streams)),
    _column("stream", str, "stream"),
    ExportColumn("frame_size", int, lambda row: _one_size(row.frame_size)),
    _column("repetition", int, "trial.spec.repetition"),
    _column("intended_fps", float, "counts.intended_fps"),
    *_columns(int, "counts", sent_frames="sent.frames", unsent_frames="unsent_frames"),
    *_columns(int, "counts", received_frames="received.frames", lost_frames="lost_frames"),
    *_columns(int, "counts.received", duplicate_frames="duplicates", reordered_frames="reordered"),
    *_columns(int, "counts", "capture_dropped_frames", "unexplained_frames"),
    *_columns(float, "counts", loss_ratio="loss_ratio", duration_s="sent.duration_s"),
    _bandwidth("offered_mbps", l1_mbps, "offered_fps", StreamCounts.offered_bytes),
    _bandwidth("throughput_mbps", l1_mbps, "throughput_fps", StreamCounts.throughput_bytes),
    _bandwidth("offered_l2_mbps", l2_mbps, "offered_fps", StreamCounts.offered_bytes),
    _bandwidth("throughput_l2_mbps", l2_mbps, "throughput_fps", StreamCounts.throughput_bytes),
    _column("verdict", str, "trial.verdict.value"),
    ExportColumn("reasons", str, _reasons),
    *_columns(int, "trial", trial="spec.index", attempt="attempt"),
    ExportColumn("load", str, _load),
    _column("started_ns", int, "trial.started_ns"),
    _bandwidth("intended_mbps", l1_mbps, "intended_fps"),
    *_columns(float, "counts", "offered_fps", "throughput_fps"),
    _column("foreign_frames", int, "counts.foreign_frames"),
    *_columns(int, "counts.received", loss_runs="loss_runs", longest_loss_run_frames="longest_loss_run"),
    _column("last_missing_frame", int, "counts.received.last_missing"),
    *_columns(int, "counts.sent", generator_errors="errors", max_burst_frames="max_burst_frames"),
    _column("max_lateness_s", float, "counts.sent.max_lateness_s"),
    _list("lost_at", "counts.lost_at", lambda loss: f"{loss.place}={loss.frames}"),
    *_spread("received.delay", "min", "median", "max"),
    _cpu("guest"),
    _cpu("host"),
    ExportColumn("guest", str, lambda row: "" if row.of_victim else row.guest.name),
    ExportColumn("trial_frame_size", int, lambda row: _one_size(row.trial.spec.frame_size)),
    ExportColumn("activity", str, _activity),
    ExportColumn("lifetime", int, lambda row: row.trial.boot or None),
    _column("cpu_machine_s", float, "trial.machine_cpu_s"),
    _cpu(LOAD),
    ExportColumn("observed_s", float, lambda row: observed_s(row.trial)),
    ExportColumn("neighbours_cpu", str, _neighbours_cpu),
    *_spread("received.delay", "mean", "p90", "p99", "p999"),
    *_spread("pdv", "median", "p99", "p999", "max"),
    *_spread("received.ipdv", "median", "mean", "p99", "p999", "max"),
    _column("delay_refused", str, "counts.received.no_delay"),
    _list("loss_run_lengths", "counts.received.loss_run_lengths", lambda length: f"{length.from_frames}={length.runs}"),
    _column("reordered_ratio", float, "counts.reordered_ratio"),
    _column("reordering_extent_median_frames", int, "counts.received.reordering_extent.median"),
    _column("reordering_extent_mean_frames", float, "counts.received.reordering_extent.mean"),
    _column("reordering_extent_max_frames", int, "counts.received.reordering_extent.largest"),
    _column("window_s", float, "counts.received.window.seconds"),
    *_columns(int, "counts.received.window", window_frames="frames", buffered_frames="buffered_frames"),
    *_columns(str, "ends.source", source="kind", source_details="details"),
    *_columns(str, "ends.sink", sink="kind", sink_details="details"),
    _column("order_refused", str, "counts.order_refused"),
    *_columns(int, "counts.received", late_frames="late", control_frames="control"),
    ExportColumn("thrown_away", str, _discarded_attempts),
    _microseconds("clock_bound_us", "counts.received.clock_offset.bound_ns"),
    _yes_no("saturated", lambda row: None if row.counts is None else row.stream in row.trial.saturated),
    _column("link_held_s", float, "counts.sent.backpressure_s"),
    ExportColumn("source_away_s", float, _away_s),
    ExportColumn("virtualisation", str, lambda row: row.fact("virtualisation")),
    ExportColumn("cpu_emulated", str, _emulated),
    _column("start_s", float, "boot.start_s"),
    ExportColumn("memory_mib", float, _memory_mib),
    _column("cpu_softirq_s", float, "trial.machine_softirq_s"),
    _yes_no("outlier", lambda row: row.outlier),
    *_columns(int, "", warm_up_trials="warm_ups", warm_up_trial="warm_up"),
    _yes_no("finds_maximum", lambda row: row.trial.spec.finds_maximum),
    _column("reverse_of", str, "counts.reverse_of"),
    *_MIX,
    *map(_by_size, ("sent_frames", "received_frames", "lost_frames", "window_frames")),
    _mix("trial_", "trial.spec.frame_size")[0],
    ExportColumn("start_skew_us", float, lambda row: _start_skew_us(row)[0]),
    ExportColumn("start_skew_bound_us", float, lambda row: _start_skew_us(row)[1]),
    _column("software_delay_by", str, "counts.received.software_delay.measured_by"),
    _column("software_delay_frames", int, "counts.received.software_delay.frames"),
    _column("software_delay_min_us", float, "counts.received.software_delay.smallest_us"),
    _column("software_delay_mean_us", float, "counts.received.software_delay.smoothed_mean_us"),
    _column("software_delay_max_us", float, "counts.received.software_delay.largest_us"),
    _column("software_delay_jitter_us", float, "counts.received.software_delay.jitter_us"),
    ExportColumn("software_delay_classes", str, _software_delay_classes),
    *map(_wait, _ROLES),
    ExportColumn(
        "stalled_s", float, lambda row: row.trial.disturbance.stalled_of(row.stream) if row.trial.disturbance else None
    ),
    *_columns(float, "trial.disturbance", "steal_s", "cpu_pressure_s", "throttled_s"),
    _column("sending_s", float, "trial.disturbance.window_s"),
    ExportColumn("source_ceiling_fps", float, lambda row: row.ceiling.fps or None if row.ceiling else None),
    ExportColumn("source_ceiling_doubt", str, lambda row: row.ceiling.doubt or None if row.ceiling else None),
    _column("packet", str, "packet_name"),
    ExportColumn("vlan", str, lambda row: row.counts.packet.vlan or None if row.counts and row.counts.packet else None),
    _column("flows", int, "flows"),
    *_columns(int, "packet_counts", changed_frames="changed_frames", reordered_in_flows_frames="reordered_in_flows"),
    *_columns(int, "packet_counts", "lossy_flows"),
    _column("trial_packet", str, "trial.spec.frame_size.packet"),
)

GROUP_COLUMNS: tuple[ExportColumn[Group], ...] = (
    *_columns(str, "", "uut", "scenario"),
    _column("streams", int, "sources"),
    ExportColumn("frame_size", int, lambda group: _one_size(group.frame_size)),
    ExportColumn("load", str, lambda group: str(group.load)),
    ExportColumn("valid_trials", int, lambda group: len(group.valid)),
    ExportColumn("suspicious_trials", int, lambda group: len(group.suspicious)),
    ExportColumn("invalid_trials", int, lambda group: len(group.invalid)),
    *_columns(float, "", "intended_fps", "intended_mbps"),
    *_intervals("offered_mbps", "throughput_mbps", "loss_ratio", "unsent_ratio", "offered_fps", "throughput_fps"),
    *_intervals("offered_l2_mbps", "throughput_l2_mbps"),
    ExportColumn("reasons", str, lambda group: _reason_kinds(group.reasons)),
    *_cpu_seconds("guest"),
    *_cpu_seconds("host"),
    *_intervals("offered_mbps", "throughput_mbps", "loss_ratio", prefix="neighbour_", parent="neighbours_"),
    ExportColumn("neighbour_frame_size", int, lambda group: _one_size(group.neighbours_frame_size)),
    *_cpu_seconds("machine"),
    *_cpu_seconds(LOAD),
    *_cpu_percent("guest"),
    *_cpu_percent("host"),
    *_cpu_percent("machine"),
    *_cpu_percent(LOAD),
    *_columns(int, "", buffered_frames_max="buffered_frames", trials_valid_at_once="valid_at_once"),
    _column("thrown_away_attempts", int, "thrown_away"),
    _yes_no("counts_as_maximum", lambda group: group.counts_as_maximum),
    _column("saturated_trials", int, "saturated"),
    ExportColumn("outlier_trials", int, _outlier_trials),
    ExportColumn("throughput_mbps_without_outliers", float, _without_outliers),
    # Empty in all rows except those of a maximum.
    ExportColumn("limited_by", str, lambda group: None if group.limited_by is None else str(group.limited_by)),
    *_interval("maximum_fps", lambda group: None if group.limited_by is None else group.maximum_fps),
    ExportColumn("maximum_loads", str, _maximum_loads),
    ExportColumn("boots", int, lambda group: _value("throughput_fps.boots")(group) or None),
    _column("noise_floor", float, "noise_floor"),
    *_MIX,
    _mix("neighbour_", "neighbours_frame_size")[0],
    _column("packet", str, "frame_size.packet"),
    _column("flows", int, "packet.flows"),
)

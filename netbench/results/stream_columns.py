"""The columns of exported trials, with one row per trial and stream."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from netbench.model.campaign import Boot
from netbench.model.counts import StreamCounts, l1_mbps, l2_mbps
from netbench.model.flow_result import FlowResult
from netbench.model.frame_size import FrameSize
from netbench.model.packet_counts import PacketCounts
from netbench.model.scenario import VICTIM
from netbench.model.source_ceiling import SourceCeiling
from netbench.model.tester import Role, StreamEnds
from netbench.model.trial import GuestResult, GuestTask, TrialResult
from netbench.model.units import Load, LoadKind
from netbench.results.export_columns import (
    MIX_COLUMNS,
    ExportColumn,
    column_at,
    columns_at,
    mix_columns,
    one_size,
    reason_kinds,
    value_at,
    yes_no_column,
)
from netbench.results.flow_columns import FLOW_COLUMNS
from netbench.statistics.totals import LOAD, Mbps, cpu_of_victim, observed_s

_ROLES: tuple[Role, ...] = ("source", "ingress", "uut", "sink")


@dataclass(frozen=True, slots=True)
class StreamOfTrial:
    """The source of one row: a stream of a trial, and the guest that it runs through.

    `counts` is None for a planned stream of a trial that failed before it was counted, and for a stream of flows, which
    has a `flow`.
    """

    trial: TrialResult
    guest: GuestTask
    measured: GuestResult
    stream: str
    counts: StreamCounts | None
    flow: FlowResult | None = None
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
    def trial_frame_size(self) -> FrameSize | None:
        """The size of the victim's frames; None if it serves flows."""
        return None if self.trial.spec.serves else self.trial.spec.frame_size

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


def _reasons(row: StreamOfTrial) -> str:
    concerned = ("", row.stream) if row.of_victim else (row.stream,)
    return reason_kinds(reason for reason in row.trial.reasons if reason.stream in concerned)


def _discarded_attempts(row: StreamOfTrial) -> str:
    return ";".join(
        f"{attempt}={reason_kinds(reasons, '+')}" for attempt, reasons in enumerate(row.trial.thrown_away, start=1)
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


def _list(name: str, path: str, read: Callable[[Any], str]) -> ExportColumn[StreamOfTrial]:
    """Return a column with the items of a sequence in one cell."""
    items = value_at(path)
    return ExportColumn(name, str, lambda row: None if row.counts is None else ";".join(map(read, items(row) or ())))


def _by_size(name: str) -> ExportColumn[StreamOfTrial]:
    def frames(row: StreamOfTrial) -> str | None:
        known = [(entry.size, getattr(entry, name)) for entry in (row.counts.by_size if row.counts else ())]
        return ";".join(f"{size}={count}" for size, count in known if count is not None) or None

    return ExportColumn(f"{name}_by_size", str, frames)


def _microseconds(name: str, path: str) -> ExportColumn[StreamOfTrial]:
    nanoseconds = value_at(path)
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
    disturbance = value_at("trial.disturbance")
    return ExportColumn(
        f"{role}_wait_s", float, lambda row: None if (of := disturbance(row)) is None else of.wait_s(role, row.stream)
    )


STREAM_COLUMNS: tuple[ExportColumn[StreamOfTrial], ...] = (
    *columns_at(str, "trial.spec", "uut", "scenario"),
    ExportColumn("streams", int, lambda row: len(row.trial.spec.streams)),
    column_at("stream", str, "stream"),
    ExportColumn("frame_size", int, lambda row: one_size(row.frame_size)),
    column_at("repetition", int, "trial.spec.repetition"),
    column_at("intended_fps", float, "counts.intended_fps"),
    *columns_at(int, "counts", sent_frames="sent.frames", unsent_frames="unsent_frames"),
    *columns_at(int, "counts", received_frames="received.frames", lost_frames="lost_frames"),
    *columns_at(int, "counts.received", duplicate_frames="duplicates", reordered_frames="reordered"),
    *columns_at(int, "counts", "capture_dropped_frames", "unexplained_frames"),
    *columns_at(float, "counts", loss_ratio="loss_ratio", duration_s="sent.duration_s"),
    _bandwidth("offered_mbps", l1_mbps, "offered_fps", StreamCounts.offered_bytes),
    _bandwidth("throughput_mbps", l1_mbps, "throughput_fps", StreamCounts.throughput_bytes),
    _bandwidth("offered_l2_mbps", l2_mbps, "offered_fps", StreamCounts.offered_bytes),
    _bandwidth("throughput_l2_mbps", l2_mbps, "throughput_fps", StreamCounts.throughput_bytes),
    column_at("verdict", str, "trial.verdict.value"),
    ExportColumn("reasons", str, _reasons),
    *columns_at(int, "trial", trial="spec.index", attempt="attempt"),
    ExportColumn("load", str, _load),
    column_at("started_ns", int, "trial.started_ns"),
    _bandwidth("intended_mbps", l1_mbps, "intended_fps"),
    *columns_at(float, "counts", "offered_fps", "throughput_fps"),
    column_at("foreign_frames", int, "counts.foreign_frames"),
    *columns_at(int, "counts.received", loss_runs="loss_runs", longest_loss_run_frames="longest_loss_run"),
    column_at("last_missing_frame", int, "counts.received.last_missing"),
    *columns_at(int, "counts.sent", generator_errors="errors", max_burst_frames="max_burst_frames"),
    column_at("max_lateness_s", float, "counts.sent.max_lateness_s"),
    _list("lost_at", "counts.lost_at", lambda loss: f"{loss.place}={loss.frames}"),
    *_spread("received.delay", "min", "median", "max"),
    _cpu("guest"),
    _cpu("host"),
    ExportColumn("guest", str, lambda row: "" if row.of_victim else row.guest.name),
    ExportColumn("trial_frame_size", int, lambda row: one_size(row.trial_frame_size)),
    ExportColumn("activity", str, _activity),
    ExportColumn("lifetime", int, lambda row: row.trial.boot or None),
    column_at("cpu_machine_s", float, "trial.machine_cpu_s"),
    _cpu(LOAD),
    ExportColumn("observed_s", float, lambda row: observed_s(row.trial)),
    ExportColumn("neighbours_cpu", str, _neighbours_cpu),
    *_spread("received.delay", "mean", "p90", "p99", "p999"),
    *_spread("pdv", "median", "p99", "p999", "max"),
    *_spread("received.ipdv", "median", "mean", "p99", "p999", "max"),
    column_at("delay_refused", str, "counts.received.no_delay"),
    _list("loss_run_lengths", "counts.received.loss_run_lengths", lambda length: f"{length.from_frames}={length.runs}"),
    column_at("reordered_ratio", float, "counts.reordered_ratio"),
    column_at("reordering_extent_median_frames", int, "counts.received.reordering_extent.median"),
    column_at("reordering_extent_mean_frames", float, "counts.received.reordering_extent.mean"),
    column_at("reordering_extent_max_frames", int, "counts.received.reordering_extent.largest"),
    column_at("window_s", float, "counts.received.window.seconds"),
    *columns_at(int, "counts.received.window", window_frames="frames", buffered_frames="buffered_frames"),
    *columns_at(str, "ends.source", source="kind", source_details="details"),
    *columns_at(str, "ends.sink", sink="kind", sink_details="details"),
    column_at("order_refused", str, "counts.order_refused"),
    *columns_at(int, "counts.received", late_frames="late", control_frames="control"),
    ExportColumn("thrown_away", str, _discarded_attempts),
    _microseconds("clock_bound_us", "counts.received.clock_offset.bound_ns"),
    yes_no_column("saturated", lambda row: None if row.counts is None else row.stream in row.trial.saturated),
    column_at("link_held_s", float, "counts.sent.backpressure_s"),
    ExportColumn("source_away_s", float, _away_s),
    ExportColumn("virtualisation", str, lambda row: row.fact("virtualisation")),
    ExportColumn("cpu_emulated", str, _emulated),
    column_at("start_s", float, "boot.start_s"),
    ExportColumn("memory_mib", float, _memory_mib),
    column_at("cpu_softirq_s", float, "trial.machine_softirq_s"),
    yes_no_column("outlier", lambda row: row.outlier),
    *columns_at(int, "", warm_up_trials="warm_ups", warm_up_trial="warm_up"),
    yes_no_column("finds_maximum", lambda row: row.trial.spec.finds_maximum),
    column_at("reverse_of", str, "counts.reverse_of"),
    *MIX_COLUMNS,
    *map(_by_size, ("sent_frames", "received_frames", "lost_frames", "window_frames")),
    mix_columns("trial_", "trial_frame_size")[0],
    ExportColumn("start_skew_us", float, lambda row: _start_skew_us(row)[0]),
    ExportColumn("start_skew_bound_us", float, lambda row: _start_skew_us(row)[1]),
    column_at("software_delay_by", str, "counts.received.software_delay.measured_by"),
    column_at("software_delay_frames", int, "counts.received.software_delay.frames"),
    column_at("software_delay_min_us", float, "counts.received.software_delay.smallest_us"),
    column_at("software_delay_mean_us", float, "counts.received.software_delay.smoothed_mean_us"),
    column_at("software_delay_max_us", float, "counts.received.software_delay.largest_us"),
    column_at("software_delay_jitter_us", float, "counts.received.software_delay.jitter_us"),
    ExportColumn("software_delay_classes", str, _software_delay_classes),
    *map(_wait, _ROLES),
    ExportColumn(
        "stalled_s", float, lambda row: row.trial.disturbance.stalled_of(row.stream) if row.trial.disturbance else None
    ),
    *columns_at(float, "trial.disturbance", "steal_s", "cpu_pressure_s", "throttled_s"),
    column_at("sending_s", float, "trial.disturbance.window_s"),
    ExportColumn("source_ceiling_fps", float, lambda row: row.ceiling.fps or None if row.ceiling else None),
    ExportColumn("source_ceiling_doubt", str, lambda row: row.ceiling.doubt or None if row.ceiling else None),
    column_at("packet", str, "packet_name"),
    ExportColumn("vlan", str, lambda row: row.counts.packet.vlan or None if row.counts and row.counts.packet else None),
    column_at("flows", int, "flows"),
    *columns_at(int, "packet_counts", changed_frames="changed_frames", reordered_in_flows_frames="reordered_in_flows"),
    *columns_at(int, "packet_counts", "lossy_flows"),
    column_at("trial_packet", str, "trial_frame_size.packet"),
    *FLOW_COLUMNS,
)

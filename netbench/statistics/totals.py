"""Totals of one guest in one trial: the sum of its streams, and its CPU time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from netbench.model.counts import StreamCounts, l1_mbps
from netbench.model.frame_size import FrameSize
from netbench.model.scenario import Activity
from netbench.model.trial import GuestResult, GuestTask, TrialResult
from netbench.statistics.intervals import Interval, boots_interval, counting_error

Number = TypeVar("Number", int, float)
Mbps = Callable[[float | None, float], float | None]
"""Mbit/s, L1 or L2, of frames/s of some mean size or mix."""

MACHINE = "machine"  # owner of the CPU time of the whole machine of the UUT
LOAD = "load"  # owner of the CPU time of the loads inside the neighbours
_STEPS_UNDER_WATCH = ("send", "drain")


def observed_s(trial: TrialResult) -> float | None:
    """Return the seconds from the first to the second reading of the trial's counters; None without any.

    Trials without this record count as observed while they sent and drained.
    """
    steps = trial.steps_s
    return steps.get("observe") or sum(steps.get(step, 0.0) for step in _STEPS_UNDER_WATCH) or None


class Sum(Generic[Number]):
    """A property: the sum of a number over the streams of a guest; None if it is unknown for any stream."""

    def __init__(self, read: Callable[[StreamCounts], Number | None], doc: str) -> None:
        self._read: Callable[[StreamCounts], Number | None] = read
        self.__doc__ = doc

    def __get__(self, totals: "Totals", _: type) -> Number | None:
        return summed(totals.streams, self._read)


@dataclass(frozen=True, slots=True)
class Totals:
    """The streams of one guest in one trial, added up; a sum is None if the value of any stream is unknown.

    `streams` contains None for a planned stream without counts. Rates are sums of the rates of the streams, each over
    its own duration ("accumulated throughput" in Schlosser et al. 2011, section 4). `frame_size` is None for a guest
    that forwards nothing. `used_s` is CPU time in seconds by owner, `counted_s` the seconds it was counted over. `boot`
    is the number of the boot, as in TrialResult.
    """

    streams: tuple[StreamCounts | None, ...]
    frame_size: FrameSize | None
    used_s: Mapping[str, float]
    counted_s: float | None
    boot: int

    intended_fps = Sum(lambda counts: counts.intended_fps, "Intended frames per second.")
    offered_fps = Sum(lambda counts: counts.offered_fps, "Offered frames per second.")
    throughput_fps = Sum(lambda counts: counts.throughput_fps, "Received frames per second.")
    intended_frames = Sum(
        lambda counts: counts.intended_frames, "Frames to be sent; None for a `max` load, which intends no number."
    )
    sent_frames = Sum(lambda counts: counts.sent.frames, "Frames sent.")
    unsent_frames = Sum(lambda counts: counts.unsent_frames, "Intended − sent; None for a `max` load.")
    received_frames = Sum(lambda counts: counts.received.frames, "Distinct frames received.")
    lost_frames = Sum(
        lambda counts: counts.lost_frames, "Frames sent that neither arrived nor were dropped by the capture."
    )
    buffered_frames = Sum(
        lambda counts: None if counts.received.window is None else counts.received.window.buffered_frames,
        "Frames that were still in queues when sending ended, and arrived afterwards.",
    )

    @property
    def loss_ratio(self) -> float | None:
        """Lost ÷ offered over all streams; None if unknown or nothing was sent."""
        return ratio(self.lost_frames, self.sent_frames)

    @property
    def unsent_ratio(self) -> float | None:
        """Unsent ÷ intended over all streams; None for a `max` load."""
        return ratio(self.unsent_frames, self.intended_frames)

    @property
    def offered_mbps(self) -> float | None:
        """Offered load in Mbit/s (L1)."""
        return self.offered_in(l1_mbps)

    @property
    def throughput_mbps(self) -> float | None:
        """Throughput in Mbit/s (L1)."""
        return self.throughput_in(l1_mbps)

    def offered_in(self, mbps: Mbps) -> float | None:
        """Return the offered load in Mbit/s; for a mix, by the sizes of the sent frames."""
        size = self.frame_size
        if size and size.is_mix:
            return summed(self.streams, lambda counts: mbps(counts.offered_fps, counts.offered_bytes(size)))
        return None if size is None else mbps(self.offered_fps, size.mean_bytes)

    def throughput_in(self, mbps: Mbps) -> float | None:
        """Return the throughput in Mbit/s; for a mix, by the sizes of the received frames."""
        size = self.frame_size
        if size and size.is_mix:
            return summed(self.streams, lambda counts: mbps(counts.throughput_fps, counts.throughput_bytes(size)))
        return None if size is None else mbps(self.throughput_fps, size.mean_bytes)

    def cpu_s(self, whose: str) -> float | None:
        """Return the CPU time of an owner in seconds, as in TrialResult and GuestResult; None if unknown."""
        return self.used_s.get(whose)

    def cpu_share(self, whose: str) -> float | None:
        """Return the CPU time ÷ the time it was counted over: 1 is one CPU all the time; several CPUs can exceed it."""
        used, period = self.cpu_s(whose), self.counted_s
        return None if used is None or period is None else used / period


@dataclass(frozen=True, slots=True)
class NeighbourTotals(Totals):
    """One neighbour in one trial; its rates are None if it forwards nothing."""

    name: str
    activity: Activity

    @classmethod
    def of(cls, task: GuestTask, measured: GuestResult, counted_s: float | None, boot: int) -> "NeighbourTotals":
        """Add up the streams of a neighbour."""
        return cls(
            streams=measured.streams,
            frame_size=task.traffic.size if task.traffic else None,
            used_s=measured.cpu_s,
            counted_s=counted_s,
            boot=boot,
            name=task.name,
            activity=task.activity,
        )


@dataclass(frozen=True, slots=True)
class TrialTotals(Totals):
    """The victim in one trial, and each of its neighbours.

    The victim's CPU times include, as `load`, the sum of those of its neighbours' loads.
    """

    frame_size: FrameSize
    trial: TrialResult
    neighbours: tuple[NeighbourTotals, ...]

    @classmethod
    def of(cls, trial: TrialResult) -> "TrialTotals":
        """Add up the streams of a trial; a planned stream without counts makes every sum unknown."""
        counted = {counts.stream: counts for counts in trial.streams}
        period = observed_s(trial)
        return cls(
            streams=tuple(counted.get(name) for name in trial.spec.streams),
            frame_size=trial.spec.frame_size,
            used_s=cpu_of_victim(trial),
            counted_s=period,
            boot=trial.boot,
            trial=trial,
            neighbours=tuple(
                NeighbourTotals.of(trial.spec.task(neighbour.name), neighbour, period, trial.boot)
                for neighbour in trial.neighbours
            ),
        )

    def neighbour(self, name: str) -> NeighbourTotals | None:
        """Return the neighbour of this name; None if absent."""
        return next((neighbour for neighbour in self.neighbours if neighbour.name == name), None)

    @property
    def neighbours_offered_mbps(self) -> float | None:
        """The offered load of all forwarding neighbours together, in Mbit/s (L1); None without any."""
        return total(neighbour.offered_mbps for neighbour in self.forwarding)

    @property
    def neighbours_throughput_mbps(self) -> float | None:
        """The throughput of all forwarding neighbours together, in Mbit/s (L1)."""
        return total(neighbour.throughput_mbps for neighbour in self.forwarding)

    @property
    def neighbours_loss_ratio(self) -> float | None:
        """Lost ÷ offered over the frames of all forwarding neighbours."""
        return ratio(self.neighbours_lost_frames, self.neighbours_sent_frames)

    @property
    def neighbours_lost_frames(self) -> int | None:
        """Lost frames of all forwarding neighbours, as `lost_frames`; None without any."""
        return total(neighbour.lost_frames for neighbour in self.forwarding)

    @property
    def neighbours_sent_frames(self) -> int | None:
        """Frames sent to all forwarding neighbours; None without any."""
        return total(neighbour.sent_frames for neighbour in self.forwarding)

    @property
    def forwarding(self) -> tuple[NeighbourTotals, ...]:
        """The forwarding neighbours."""
        return tuple(neighbour for neighbour in self.neighbours if neighbour.frame_size is not None)


def cpu_of_victim(trial: TrialResult) -> dict[str, float]:
    """Return the CPU time of a trial in seconds by owner: the victim's, its machine's, and the sum of all loads."""
    used = dict(trial.victim.cpu_s)
    if trial.machine_cpu_s is not None:
        used[MACHINE] = trial.machine_cpu_s
    loads = [neighbour.cpu_s[LOAD] for neighbour in trial.neighbours if LOAD in neighbour.cpu_s]
    return {**used, LOAD: sum(loads)} if loads else used


def summed(streams: Sequence[StreamCounts | None], read: Callable[[StreamCounts], Number | None]) -> Number | None:
    """Return the sum of a number over some streams; None for none, or if one is unknown."""
    if len(streams) == 1:  # the usual case; large campaigns compute this very often
        (only,) = streams
        return None if only is None else read(only)
    return total(None if counts is None else read(counts) for counts in streams)


def total(numbers: Iterable[Number | None]) -> Number | None:
    """Return the sum of some numbers; None for none, or if one is unknown."""
    known = []
    for number in numbers:
        if number is None:
            return None
        known.append(number)
    return sum(known) if known else None


def ratio(part: float | None, whole: float | None) -> float | None:
    """Return part ÷ whole; None if either is unknown, or `whole` is 0."""
    return None if part is None or not whole else part / whole


OfTrial = TypeVar("OfTrial")


@dataclass(frozen=True, slots=True)
class CountedNumber(Generic[OfTrial]):
    """A number of a trial that depends on the count of some frames: `events` out of `among`.

    `scale` is the change of the number if all frames were events. The events of a throughput are the lost frames; its
    scale is the offered load.
    """

    read: Callable[[OfTrial], float | None]
    events: Callable[[OfTrial], int | None]
    among: Callable[[OfTrial], int | None]
    scale: Callable[[OfTrial], float | None]

    def over(self, trials: Iterable[OfTrial]) -> Interval | None:
        """Return the mean over the trials with a known value and its 95 % interval over boots; None without any.

        If all trials counted the same number of events, they show no scatter. The interval is then at least as wide as
        that of a Poisson number of events, or of the other frames if those are fewer.
        """
        known = [(trial, value) for trial in trials if (value := self.read(trial)) is not None]
        if not known:
            return None
        return boots_interval(
            [(_boot(trial), value) for trial, value in known], self.counting_half_width([trial for trial, _ in known])
        )

    def counting_half_width(self, trials: Sequence[OfTrial]) -> float:
        """Return the half width due to counting alone for the mean of trials with equal counts; 0 for other trials."""
        counted = self.events(trials[0]) if trials else None
        # The second count usually differs, so the others are rarely read.
        if counted is None or any(self.events(trial) != counted for trial in trials[1:]):
            return 0.0
        counted *= len(trials)
        among, scale = total(map(self.among, trials)), total(map(self.scale, trials))
        if not among or scale is None:
            return 0.0
        rarer = max(0, min(counted, among - counted))
        return counting_error(rarer) / among * scale / len(trials)


def _boot(totals: object) -> int:
    return totals.boot if isinstance(totals, Totals) else 0


def _unsent(totals: Totals) -> int | None:
    """Return the unsent frames; for a `max` load, which intends no number, the sent ones."""
    return totals.sent_frames if totals.unsent_frames is None else totals.unsent_frames


def _intended(totals: Totals) -> int | None:
    return totals.sent_frames if totals.unsent_frames is None else totals.intended_frames


def _whole(_: Totals) -> float:
    return 1.0


OFFERED_FPS: CountedNumber[Totals] = CountedNumber(
    lambda totals: totals.offered_fps, _unsent, _intended, lambda totals: totals.offered_fps
)
THROUGHPUT_FPS: CountedNumber[Totals] = CountedNumber(
    lambda totals: totals.throughput_fps,
    lambda totals: totals.lost_frames,
    lambda totals: totals.sent_frames,
    lambda totals: totals.offered_fps,
)
LOSS_RATIO: CountedNumber[Totals] = CountedNumber(
    lambda totals: totals.loss_ratio, lambda totals: totals.lost_frames, lambda totals: totals.sent_frames, _whole
)
UNSENT_RATIO: CountedNumber[Totals] = CountedNumber(lambda totals: totals.unsent_ratio, _unsent, _intended, _whole)
# The same numbers for all forwarding neighbours together, in Mbit/s (L1).
NEIGHBOURS_OFFERED_MBPS: CountedNumber[TrialTotals] = CountedNumber(
    lambda totals: totals.neighbours_offered_mbps,
    lambda totals: total(map(_unsent, totals.forwarding)),
    lambda totals: total(map(_intended, totals.forwarding)),
    lambda totals: totals.neighbours_offered_mbps,
)
NEIGHBOURS_THROUGHPUT_MBPS: CountedNumber[TrialTotals] = CountedNumber(
    lambda totals: totals.neighbours_throughput_mbps,
    lambda totals: totals.neighbours_lost_frames,
    lambda totals: totals.neighbours_sent_frames,
    lambda totals: totals.neighbours_offered_mbps,
)
NEIGHBOURS_LOSS_RATIO: CountedNumber[TrialTotals] = CountedNumber(
    lambda totals: totals.neighbours_loss_ratio,
    lambda totals: totals.neighbours_lost_frames,
    lambda totals: totals.neighbours_sent_frames,
    _whole,
)

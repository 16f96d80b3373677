"""One guest in one trial: its streams added up, and its CPU time."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from netbench.model.counts import StreamCounts, l1_mbps
from netbench.model.frame_mix import FrameMix, FrameSize
from netbench.model.trial import GuestResult, GuestTask, TrialResult

Number = TypeVar("Number", int, float)
Mbps = Callable[[float | None, FrameSize | float], float | None]
"""Mbit/s, L1 or L2, of frames/s of some mean size or mix."""

MACHINE = "machine"  # whose CPU time it is when it is that of all that the machine of the UUT did
LOAD = "load"  # whose CPU time it is when it is that of the loads inside the neighbours
_STEPS_UNDER_WATCH = ("send", "drain")


def observed_s(trial: TrialResult) -> float | None:
    """Seconds over which the trial's counters grew: from their first reading to the second; None without any.

    Trials that did not record it are taken to have been watched while they sent and drained.
    """
    steps = trial.steps_s
    return steps.get("observe") or sum(steps.get(step, 0.0) for step in _STEPS_UNDER_WATCH) or None


@dataclass(frozen=True, slots=True)
class Totals:
    """The streams of one guest in one trial, added up; None where the number of any of them is unknown.

    `streams` holds None for a planned stream without counts. Rates are sums of the rates of the streams, each over its
    own duration ("accumulated throughput" in Schlosser et al. 2011, section 4). `frame_size` is None for a guest that
    forwards nothing. `used_s` is CPU time in seconds by whose it is, `counted_s` the seconds it was counted over.
    `boot` is the number of the boot, as of TrialResult.
    """

    streams: tuple[StreamCounts | None, ...]
    frame_size: FrameSize | None
    used_s: Mapping[str, float]
    counted_s: float | None
    boot: int

    @property
    def intended_fps(self) -> float | None:
        """Intended frames per second."""
        return self._total(lambda counts: counts.intended_fps)

    @property
    def offered_fps(self) -> float | None:
        """Offered frames per second."""
        return self._total(lambda counts: counts.offered_fps)

    @property
    def throughput_fps(self) -> float | None:
        """Received frames per second."""
        return self._total(lambda counts: counts.throughput_fps)

    @property
    def intended_frames(self) -> int | None:
        """Frames to be sent; None for a `max` load, which intends no number."""
        return self._total(lambda counts: counts.intended_frames)

    @property
    def sent_frames(self) -> int | None:
        """Frames sent."""
        return self._total(lambda counts: counts.sent_frames)

    @property
    def unsent_frames(self) -> int | None:
        """Intended − sent; None for a `max` load."""
        return self._total(lambda counts: counts.unsent_frames)

    @property
    def received_frames(self) -> int | None:
        """Distinct frames received."""
        return self._total(lambda counts: counts.received_frames)

    @property
    def lost_frames(self) -> int | None:
        """Frames sent that neither arrived nor were dropped by the capture."""
        return self._total(lambda counts: counts.lost_frames)

    @property
    def buffered_frames(self) -> int | None:
        """Frames that were still in queues when sending ended, and arrived then."""
        return self._total(lambda counts: counts.buffered_frames)

    @property
    def loss_ratio(self) -> float | None:
        """Lost ÷ offered over all streams; None where unknown or nothing was sent."""
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
        """Offered load in Mbit/s; of a mix, by the sizes of what was sent."""
        size = self.frame_size
        if isinstance(size, FrameMix):
            return self._total(lambda counts: mbps(counts.offered_fps, counts.offered_bytes(size)))
        return None if size is None else mbps(self.offered_fps, size)

    def throughput_in(self, mbps: Mbps) -> float | None:
        """Throughput in Mbit/s; of a mix, by the sizes of what was received."""
        size = self.frame_size
        if isinstance(size, FrameMix):
            return self._total(lambda counts: mbps(counts.throughput_fps, counts.throughput_bytes(size)))
        return None if size is None else mbps(self.throughput_fps, size)

    def cpu_s(self, whose: str) -> float | None:
        """CPU time in seconds by whose it is, as TrialResult and GuestResult have it; None where unknown."""
        return self.used_s.get(whose)

    def cpu_share(self, whose: str) -> float | None:
        """That CPU time ÷ the time it was counted over: 1 is one CPU all the time, several CPUs make it more."""
        used, period = self.cpu_s(whose), self.counted_s
        return None if used is None or period is None else used / period

    def _total(self, read: Callable[[StreamCounts], Number | None]) -> Number | None:
        if len(self.streams) == 1:  # as nearly always: that of a large campaign is asked for very often
            (only,) = self.streams
            return None if only is None else read(only)
        return total(None if counts is None else read(counts) for counts in self.streams)


@dataclass(frozen=True, slots=True)
class NeighbourTotals(Totals):
    """One neighbour in one trial; a rate of None where it forwards nothing."""

    name: str
    activity: str

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
            activity=str(task.activity),
        )


@dataclass(frozen=True, slots=True)
class TrialTotals(Totals):
    """The victim in one trial, and beside it each of its neighbours.

    The victim's own CPU time has that of its neighbours' loads among it as `load`, added up.
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
                NeighbourTotals.of(trial.spec.task(one.name), one, period, trial.boot) for one in trial.neighbours
            ),
        )

    def neighbour(self, name: str) -> NeighbourTotals | None:
        """The neighbour of this name; None where it was not there."""
        return next((one for one in self.neighbours if one.name == name), None)

    @property
    def neighbours_offered_mbps(self) -> float | None:
        """What all neighbours that forward were offered, in Mbit/s (L1); None where none does."""
        return total(one.offered_mbps for one in self.forwarding)

    @property
    def neighbours_throughput_mbps(self) -> float | None:
        """What they forwarded, in Mbit/s (L1)."""
        return total(one.throughput_mbps for one in self.forwarding)

    @property
    def neighbours_loss_ratio(self) -> float | None:
        """Lost ÷ offered over the frames of all of them."""
        return ratio(self.neighbours_lost_frames, self.neighbours_sent_frames)

    @property
    def neighbours_lost_frames(self) -> int | None:
        """Frames of theirs that did not arrive, as `lost_frames`; None where none forwards."""
        return total(one.lost_frames for one in self.forwarding)

    @property
    def neighbours_sent_frames(self) -> int | None:
        """Frames sent to them; None where none forwards."""
        return total(one.sent_frames for one in self.forwarding)

    @property
    def forwarding(self) -> tuple[NeighbourTotals, ...]:
        """Those of its neighbours that forward."""
        return tuple(one for one in self.neighbours if one.frame_size is not None)


def cpu_of_victim(trial: TrialResult) -> dict[str, float]:
    """CPU time of a trial in seconds by whose it is: the victim's, its machine's, and that of all loads together."""
    used = dict(trial.victim.cpu_s)
    if trial.machine_cpu_s is not None:
        used[MACHINE] = trial.machine_cpu_s
    loads = [one.cpu_s[LOAD] for one in trial.neighbours if LOAD in one.cpu_s]
    return {**used, LOAD: sum(loads)} if loads else used


def total(numbers: Iterable[Number | None]) -> Number | None:
    """The sum of some numbers; None for none, or where one is unknown."""
    known = []
    for number in numbers:
        if number is None:
            return None
        known.append(number)
    return sum(known) if known else None


def ratio(part: float | None, whole: float | None) -> float | None:
    """One number ÷ another; None where one is unknown, or the other is 0."""
    return None if part is None or not whole else part / whole

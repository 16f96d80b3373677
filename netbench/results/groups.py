"""Trials to groups: the streams of a trial added up, the repetitions of a measurement brought together.

Only valid trials are averaged. Suspicious and invalid ones stay beside them, to be counted and shown.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from netbench.analysis.intervals import Interval, mean_interval
from netbench.model.counts import StreamCounts, l1_mbps, l2_mbps
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import Reason, Verdict
from netbench.results.campaign import CampaignResults

Number = TypeVar("Number", int, float)
_COUNTED_STEPS = ("send", "drain")


@dataclass(frozen=True, slots=True)
class TrialTotals:
    """One trial, its streams added up; None where the number of any stream is unknown.

    Rates are sums of the rates of the streams, each over its own duration ("accumulated throughput" in
    Schlosser et al. 2011, section 4).
    """

    trial: TrialResult
    intended_fps: float | None
    offered_fps: float | None
    throughput_fps: float | None
    intended_frames: int | None
    sent_frames: int | None
    unsent_frames: int | None
    received_frames: int | None
    lost_frames: int | None

    @classmethod
    def of(cls, trial: TrialResult) -> "TrialTotals":
        """Add up the streams of a trial; a planned stream without counts makes every sum unknown."""
        counted = {counts.stream: counts for counts in trial.streams}
        streams = [counted.get(name) for name in trial.spec.streams]

        def total(read: Callable[[StreamCounts], Number | None]) -> Number | None:
            numbers = [None if counts is None else read(counts) for counts in streams]
            known = [number for number in numbers if number is not None]
            return sum(known[1:], start=known[0]) if known and len(known) == len(numbers) else None

        return cls(
            trial,
            intended_fps=total(lambda counts: counts.intended_fps),
            offered_fps=total(lambda counts: counts.offered_fps),
            throughput_fps=total(lambda counts: counts.throughput_fps),
            intended_frames=total(lambda counts: counts.intended_frames),
            sent_frames=total(lambda counts: counts.sent_frames),
            unsent_frames=total(lambda counts: counts.unsent_frames),
            received_frames=total(lambda counts: counts.received_frames),
            lost_frames=total(lambda counts: counts.lost_frames),
        )

    @property
    def loss_ratio(self) -> float | None:
        """Lost ÷ offered over all streams; None where unknown or nothing was sent."""
        return _ratio(self.lost_frames, self.sent_frames)

    @property
    def unsent_ratio(self) -> float | None:
        """Unsent ÷ intended over all streams; None for a `max` load, which intends no number."""
        return _ratio(self.unsent_frames, self.intended_frames)

    @property
    def counted_s(self) -> float | None:
        """Seconds over which the trial's counters grew: while it sent and drained; None if it did neither."""
        return sum(self.trial.steps_s.get(step, 0.0) for step in _COUNTED_STEPS) or None

    @property
    def offered_mbps(self) -> float | None:
        """Offered load in Mbit/s (L1)."""
        return l1_mbps(self.offered_fps, self.trial.spec.frame_size)

    @property
    def throughput_mbps(self) -> float | None:
        """Throughput in Mbit/s (L1)."""
        return l1_mbps(self.throughput_fps, self.trial.spec.frame_size)

    def cpu_s(self, whose: str) -> float | None:
        """CPU time in seconds that the `guest` saw itself use, or that it cost the `host`; None where unknown."""
        return self.trial.cpu_s.get(whose)

    def cpu_share(self, whose: str) -> float | None:
        """That CPU time ÷ the time it was counted over: 1 is one CPU all the time, several CPUs make it more."""
        used, period = self.cpu_s(whose), self.counted_s
        return None if used is None or period is None else used / period


@dataclass(frozen=True, slots=True)
class Group:
    """All repetitions of one measurement: same UUT, scenario, number of sources, frame size and load.

    Intervals are over the valid repetitions; None without any.
    """

    uut: str
    scenario: str
    sources: int
    frame_size: int
    load: Load
    valid: tuple[TrialTotals, ...]
    suspicious: tuple[TrialTotals, ...]
    invalid: tuple[TrialTotals, ...]

    @property
    def intended_fps(self) -> float | None:
        """Intended frames per second, all sources together; None for `max`, or when nothing told it."""
        everything = (*self.valid, *self.suspicious, *self.invalid)
        return next((one.intended_fps for one in everything if one.intended_fps is not None), None)

    @property
    def intended_mbps(self) -> float | None:
        """Intended load in Mbit/s (L1), all sources together."""
        return l1_mbps(self.intended_fps, self.frame_size)

    @property
    def offered_fps(self) -> Interval | None:
        """Offered frames per second, all sources together."""
        return _interval(one.offered_fps for one in self.valid)

    @property
    def throughput_fps(self) -> Interval | None:
        """Received frames per second, all sources together."""
        return _interval(one.throughput_fps for one in self.valid)

    @property
    def offered_mbps(self) -> Interval | None:
        """Offered load in Mbit/s (L1)."""
        return self._l1(self.offered_fps)

    @property
    def throughput_mbps(self) -> Interval | None:
        """Throughput in Mbit/s (L1)."""
        return self._l1(self.throughput_fps)

    @property
    def offered_l2_mbps(self) -> Interval | None:
        """Offered load in Mbit/s (L2)."""
        return self._l2(self.offered_fps)

    @property
    def throughput_l2_mbps(self) -> Interval | None:
        """Throughput in Mbit/s (L2)."""
        return self._l2(self.throughput_fps)

    @property
    def loss_ratio(self) -> Interval | None:
        """Lost ÷ offered, the mean of the ratios of the repetitions."""
        return _interval(one.loss_ratio for one in self.valid)

    @property
    def unsent_ratio(self) -> Interval | None:
        """Unsent ÷ intended, the mean of the ratios of the repetitions; None for `max`."""
        return _interval(one.unsent_ratio for one in self.valid)

    def cpu_s(self, whose: str) -> Interval | None:
        """CPU time of a trial in seconds, of the `guest` or the `host`; None where no repetition knows it."""
        return _interval(one.cpu_s(whose) for one in self.valid)

    def cpu_share(self, whose: str) -> Interval | None:
        """CPU time ÷ the time it was counted over, the mean of the shares of the repetitions."""
        return _interval(one.cpu_share(whose) for one in self.valid)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """What speaks against its suspicious and invalid trials."""
        return tuple(reason for one in (*self.suspicious, *self.invalid) for reason in one.trial.reasons)

    def _l1(self, fps: Interval | None) -> Interval | None:
        factor = l1_mbps(1.0, self.frame_size)
        return None if fps is None or factor is None else fps.scaled(factor)

    def _l2(self, fps: Interval | None) -> Interval | None:
        factor = l2_mbps(1.0, self.frame_size)
        return None if fps is None or factor is None else fps.scaled(factor)


def group_trials(results: CampaignResults) -> tuple[Group, ...]:
    """The groups of a campaign: UUTs in the order of the topology, then sources, sizes and loads rising."""
    gathered: dict[tuple[str, str, int, int, Load], list[TrialTotals]] = {}
    for trial in results.trials:
        gathered.setdefault(_key(trial.spec), []).append(TrialTotals.of(trial))
    uuts = [*results.uuts, *(key[0] for key in gathered)]
    scenarios = [key[1] for key in gathered]
    groups = [Group(*key, *_by_verdict(trials)) for key, trials in gathered.items()]
    # A UUT that never came up was not told its loads in frames/s; those of the others say where they belong.
    told = {_measurement(group): group.intended_fps for group in groups if group.intended_fps is not None}

    def order(group: Group) -> tuple[int, int, int, int, bool, float, float]:
        return (
            uuts.index(group.uut),
            scenarios.index(group.scenario),
            group.sources,
            group.frame_size,
            group.load.kind is LoadKind.MAX,
            told.get(_measurement(group), 0.0),
            group.load.value,
        )

    return tuple(sorted(groups, key=order))


def best_groups(groups: Iterable[Group]) -> tuple[Group, ...]:
    """Of each UUT, scenario, number of sources and frame size the group with the most throughput.

    That is not always the one with the most offered load (Schlosser et al. 2011, section 4, Figure 4).
    Groups without a valid trial are out of the running.
    """
    best: dict[tuple[str, str, int, int], tuple[float, Group]] = {}
    for group in groups:
        throughput = group.throughput_fps
        place = (group.uut, group.scenario, group.sources, group.frame_size)
        if throughput is not None and (place not in best or throughput.mean > best[place][0]):
            best[place] = (throughput.mean, group)
    return tuple(group for _, group in best.values())


def _key(spec: TrialSpec) -> tuple[str, str, int, int, Load]:
    return (spec.uut, spec.scenario, len(spec.streams), spec.frame_size, spec.load)


def _measurement(group: Group) -> tuple[int, int, Load]:
    return (group.sources, group.frame_size, group.load)


def _by_verdict(totals: list[TrialTotals]) -> tuple[tuple[TrialTotals, ...], ...]:
    in_order = sorted(totals, key=lambda one: one.trial.spec.repetition)
    return tuple(tuple(one for one in in_order if one.trial.verdict is verdict) for verdict in Verdict)


def _interval(values: Iterable[float | None]) -> Interval | None:
    known = [value for value in values if value is not None]
    return mean_interval(known) if known else None


def _ratio(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole

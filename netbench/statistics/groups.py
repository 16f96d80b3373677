"""Trials to groups: the repetitions of a measurement brought together.

Only valid trials are averaged. Suspicious and invalid ones stay beside them, to be counted and shown.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from netbench.model.campaign import CampaignResults
from netbench.model.counts import l1_mbps, l2_mbps
from netbench.model.frame_mix import FrameMix, FrameSize, rising
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import Reason, Verdict
from netbench.statistics.counted import (
    LOSS_RATIO,
    NEIGHBOURS_LOSS_RATIO,
    NEIGHBOURS_OFFERED_MBPS,
    NEIGHBOURS_THROUGHPUT_MBPS,
    OFFERED_FPS,
    THROUGHPUT_FPS,
    UNSENT_RATIO,
)
from netbench.statistics.intervals import Interval, boots_interval, known_interval
from netbench.statistics.totals import Mbps, Totals, TrialTotals

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)

# A load of which no more than this is lost says nothing of what the UUT can do beyond it.
LOST = 0.005
_MOST = 0.5  # of the repetitions
# What part of the repetitions of a load must be valid at the first attempt for it to count as a maximum.
_ENOUGH = 2 / 3


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Some items by what they have in common, both in the order they come."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def counts_as_maximum(repetitions: Sequence[TrialResult]) -> bool:
    """Whether the mean of these repetitions of a load may be called a maximum.

    At least two thirds of them have to be valid at the first attempt. Of loads that were measured again and again until
    something was valid, few repetitions are left, and the highest of many means is then that of the luckiest of those.
    """
    return sum(one.valid_at_once for one in repetitions) >= _ENOUGH * len(repetitions) > 0


@dataclass(frozen=True)  # no slots: what is computed once is kept in the instance
class Repetitions:
    """One guest over the valid repetitions of a measurement, its streams added up.

    Intervals are over those repetitions whose number is known; None without any. `frame_size` is None for a guest that
    forwards nothing.
    """

    frame_size: FrameSize | None
    valid: tuple[Totals, ...]

    @cached_property
    def offered_fps(self) -> Interval | None:
        """Offered frames per second, all sources together."""
        return OFFERED_FPS.over(self.valid)

    @cached_property
    def throughput_fps(self) -> Interval | None:
        """Received frames per second, all sources together; its interval is over boots, with the noise floor."""
        throughput = self.throughput_without_noise
        return None if throughput is None else throughput.widened(self._noise)

    @cached_property
    def throughput_without_noise(self) -> Interval | None:
        """The same without the noise floor, for a comparison with other loads of the campaign."""
        return THROUGHPUT_FPS.over(self.valid)

    @cached_property
    def offered_mbps(self) -> Interval | None:
        """Offered load in Mbit/s (L1)."""
        return self._in(l1_mbps, self.offered_fps, Totals.offered_in)

    @cached_property
    def throughput_mbps(self) -> Interval | None:
        """Throughput in Mbit/s (L1)."""
        return self._in(l1_mbps, self.throughput_fps, Totals.throughput_in)

    @property
    def offered_l2_mbps(self) -> Interval | None:
        """Offered load in Mbit/s (L2)."""
        return self._in(l2_mbps, self.offered_fps, Totals.offered_in)

    @property
    def throughput_l2_mbps(self) -> Interval | None:
        """Throughput in Mbit/s (L2)."""
        return self._in(l2_mbps, self.throughput_fps, Totals.throughput_in)

    @cached_property
    def loss_ratio(self) -> Interval | None:
        """Lost ÷ offered, the mean of the ratios of the repetitions."""
        return LOSS_RATIO.over(self.valid)

    @cached_property
    def unsent_ratio(self) -> Interval | None:
        """Unsent ÷ intended, the mean of the ratios of the repetitions; None for `max`."""
        return UNSENT_RATIO.over(self.valid)

    def cpu_s(self, whose: str) -> Interval | None:
        """CPU time of a trial in seconds by whose it is, as Totals have it; None where no repetition knows it."""
        return known_interval(one.cpu_s(whose) for one in self.valid)

    def cpu_share(self, whose: str) -> Interval | None:
        """CPU time ÷ the time it was counted over, the mean of the shares of the repetitions."""
        return self.once(("CPU share", whose), lambda: known_interval(one.cpu_share(whose) for one in self.valid))

    def once(self, what: Hashable, computed: Callable[[], Interval | None]) -> Interval | None:
        """An interval that others ask for again and again; `what` tells it from all others over these repetitions."""
        if what not in self._intervals:
            self._intervals[what] = computed()
        return self._intervals[what]

    @property
    def _noise(self) -> float | None:
        """By how much of its mean the host moves a throughput from run to run, beside what repetitions show."""
        return None

    @cached_property
    def _intervals(self) -> dict[Hashable, Interval | None]:
        return {}

    def _in(self, mbps: Mbps, fps: Interval | None, of_each: Callable[[Totals, Mbps], float | None]) -> Interval | None:
        if isinstance(self.frame_size, FrameMix):  # sizes differ from trial to trial, where not all of them arrive
            known = [(one.boot, value) for one in self.valid if (value := of_each(one, mbps)) is not None]
            return boots_interval(known).widened(self._noise) if known else None
        factor = None if self.frame_size is None else mbps(1.0, self.frame_size)
        return None if fps is None or factor is None else fps.scaled(factor)


@dataclass(frozen=True)  # no slots: what is computed once is kept in the instance
class NeighbourGroup(Repetitions):
    """One neighbour over the valid repetitions of a measurement; its rates are None where it forwards nothing."""

    name: str
    activity: str


@dataclass(frozen=True, slots=True)
class Victim:
    """Whose throughput it is: a UUT, how many sources send through it, and their frame size in bytes with FCS."""

    uut: str
    sources: int
    frame_size: FrameSize


@dataclass(frozen=True, slots=True)
class Plateau:
    """The highest throughput of a UUT: that of all loads above it, at which equally much came out.

    `throughput_fps` is over the boots, each with the mean of its trials at any of these `loads`.
    """

    throughput_fps: Interval
    loads: tuple[Load, ...]


@dataclass(frozen=True)  # no slots: what is computed once is kept in the instance
class Group(Repetitions):
    """All repetitions of one measurement: same UUT, scenario, number of sources, frame size and load.

    It is itself what the victim did; its neighbours are beside it. Where it is a maximum, `limited_by` says what was in
    the way of a higher one if that was not the UUT, nor its links, and `plateau` is the maximum itself; with_limits()
    looks both up. `noise_floor` is that of the host, as a ratio; None where it is unknown. So is `run_to_run`, as of
    NoiseFloor.
    """

    frame_size: FrameSize
    valid: tuple[TrialTotals, ...]
    suspicious: tuple[TrialTotals, ...]
    invalid: tuple[TrialTotals, ...]
    uut: str
    scenario: str
    sources: int
    load: Load
    limited_by: str | None = None  # None: nobody has looked, or it is no maximum
    plateau: Plateau | None = None
    noise_floor: float | None = None
    run_to_run: float | None = None

    @property
    def victim(self) -> Victim:
        """Whose repetitions these are."""
        return Victim(self.uut, self.sources, self.frame_size)

    @property
    def everything(self) -> tuple[TrialTotals, ...]:
        """All its trials, the valid ones first."""
        return (*self.valid, *self.suspicious, *self.invalid)

    @cached_property
    def valid_at_once(self) -> int:
        """How many of its trials are valid, and were so at the first attempt."""
        return sum(one.trial.valid_at_once for one in self.everything)

    @cached_property
    def saturated(self) -> int:
        """How many of its valid trials are saturated: their offered load is below the intended one."""
        return sum(one.trial.is_saturated for one in self.valid)

    @cached_property
    def is_overloaded(self) -> bool:
        """Whether more was lost than 0.5 %, or the link pushed back: this load was more than the UUT took."""
        return self.is_saturated or (self.loss_ratio is not None and self.loss_ratio.mean > LOST)

    @property
    def is_saturated(self) -> bool:
        """Whether the link pushed back in most of its valid trials."""
        return self.saturated > _MOST * len(self.valid)

    @property
    def _noise(self) -> float | None:
        """The noise floor, unless all that was intended came out: then the source's clock decides the throughput."""
        return self.noise_floor if self.is_overloaded or self.load.kind is LoadKind.MAX else None

    @property
    def maximum_fps(self) -> Interval | None:
        """The highest throughput in frames/s, of a group that has it: of its plateau, where there is one.

        Its interval contains the variation between runs; that of `maximum_of_run_fps` does not.
        """
        return self._of_any_run(self.maximum_of_run_fps)

    @property
    def maximum_of_run_fps(self) -> Interval | None:
        """The same without the variation between runs, to compare maxima of one UUT in one run."""
        return self.plateau.throughput_fps if self.plateau else self.throughput_fps

    @property
    def maximum_mbps(self) -> Interval | None:
        """`maximum_fps` in Mbit/s (L1)."""
        if self.plateau is None or isinstance(self.frame_size, FrameMix):
            return self._of_any_run(self.throughput_mbps)
        return self._of_any_run(self.plateau.throughput_fps.scaled(l1_mbps(1.0, self.frame_size) or 0.0))

    def _of_any_run(self, maximum: Interval | None) -> Interval | None:
        """The interval with the variation between runs, where the UUT was the limit."""
        return maximum.widened(self.run_to_run) if maximum and not self.limited_by else maximum

    @property
    def maximum_loads(self) -> tuple[Load, ...]:
        """The loads at which it was measured."""
        return self.plateau.loads if self.plateau else (self.load,)

    @property
    def thrown_away(self) -> int:
        """How many attempts at its trials are not among them, because the same trial was made again."""
        return sum(len(one.trial.thrown_away) for one in self.everything)

    @cached_property
    def counts_as_maximum(self) -> bool:
        """Whether its mean may be called a maximum."""
        return counts_as_maximum([one.trial for one in self.everything])

    @cached_property
    def intended_fps(self) -> float | None:
        """Intended frames per second, all sources together; None for `max`, or when nothing told it."""
        return next((one.intended_fps for one in self.everything if one.intended_fps is not None), None)

    @property
    def intended_mbps(self) -> float | None:
        """Intended load in Mbit/s (L1), all sources together."""
        return l1_mbps(self.intended_fps, self.frame_size)

    @property
    def buffered_frames(self) -> int | None:
        """The most frames in queues at the end of a repetition: what the UUT's buffers hold, once they overflow.

        Of valid and suspicious trials; None where none tells.
        """
        known = [one.buffered_frames for one in (*self.valid, *self.suspicious)]
        return max((frames for frames in known if frames is not None), default=None)

    @cached_property
    def neighbours(self) -> tuple[NeighbourGroup, ...]:
        """Each of its neighbours, also those of which no repetition is valid."""
        found = grouped((neighbour for one in self.everything for neighbour in one.neighbours), lambda one: one.name)
        return tuple(
            NeighbourGroup(
                frame_size=seen[0].frame_size,
                valid=tuple(own for one in self.valid if (own := one.neighbour(name)) is not None),
                name=name,
                activity=seen[0].activity,
            )
            for name, seen in found.items()
        )

    @cached_property
    def forwarding(self) -> tuple[NeighbourGroup, ...]:
        """Those of its neighbours that forward."""
        return tuple(one for one in self.neighbours if one.frame_size is not None)

    def neighbour(self, name: str) -> NeighbourGroup | None:
        """The neighbour of this name; None where it was not there."""
        return next((one for one in self.neighbours if one.name == name), None)

    @cached_property
    def neighbours_offered_mbps(self) -> Interval | None:
        """What all neighbours that forward were offered, in Mbit/s (L1); None where none does."""
        return NEIGHBOURS_OFFERED_MBPS.over(self.valid)

    @cached_property
    def neighbours_throughput_mbps(self) -> Interval | None:
        """What they forwarded, in Mbit/s (L1)."""
        return NEIGHBOURS_THROUGHPUT_MBPS.over(self.valid)

    @cached_property
    def neighbours_loss_ratio(self) -> Interval | None:
        """Lost ÷ offered over the frames of all of them, the mean of the ratios of the repetitions."""
        return NEIGHBOURS_LOSS_RATIO.over(self.valid)

    @property
    def neighbours_frame_size(self) -> FrameSize | None:
        """The size of the neighbours' frames; None where none forwards, or where theirs differ."""
        sizes = {one.frame_size for one in self.forwarding}
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """What speaks against its suspicious and invalid trials."""
        return tuple(reason for one in (*self.suspicious, *self.invalid) for reason in one.trial.reasons)


def group_trials(results: CampaignResults) -> tuple[Group, ...]:
    """The groups of a campaign, gathered in one pass over its trials; counters are not among what is kept of those.

    Trials without a steady load, which are for a test of RFC 2544, are in none, nor are those that only find a maximum:
    their loads are nobody's.

    UUTs come in the order of the topology, scenarios in that of the profile, then sources, sizes and loads rise.
    """
    steady = (trial for trial in results.wanted_trials if not trial.spec.benchmark)
    groups = gathered(TrialTotals.of(trial.without_counters) for trial in steady)
    if results.noise_floor is not None:
        floor, run_to_run = results.noise_floor.half_width, results.noise_floor.run_to_run
        groups = [replace(group, noise_floor=floor, run_to_run=run_to_run) for group in groups]
    uuts = [*results.uuts, *(group.uut for group in groups)]
    scenarios = [*results.scenarios, *(group.scenario for group in groups)]
    # A UUT that never came up was not told its loads in frames/s; those of the others say where they belong.
    told = {_measurement(group): group.intended_fps for group in groups if group.intended_fps is not None}

    def order(group: Group) -> tuple[int, int, int, tuple[float, str], bool, float, float]:
        return (
            uuts.index(group.uut),
            scenarios.index(group.scenario),
            group.sources,
            rising(group.frame_size),
            group.load.kind is LoadKind.MAX,
            told.get(_measurement(group), 0.0),
            group.load.value,
        )

    return tuple(sorted(groups, key=order))


def gathered(trials: Iterable[TrialTotals]) -> list[Group]:
    """The groups of some trials, in the order these come."""
    return [_group(own) for own in grouped(trials, lambda one: key_of_cell(one.trial.spec)).values()]


def best_groups(groups: Iterable[Group]) -> tuple[Group, ...]:
    """Of each UUT, scenario, number of sources and frame size the group with the highest throughput.

    That is not always the one with the most offered load (Schlosser et al. 2011, section 4, Figure 4).
    Groups that may not be called a maximum are out of the running.
    """
    best: dict[tuple[str, str, int, FrameSize], tuple[float, Group]] = {}
    for group in groups:
        throughput = group.throughput_fps
        place = (group.uut, group.scenario, group.sources, group.frame_size)
        if throughput is None or not group.counts_as_maximum:
            continue
        if place not in best or throughput.mean > best[place][0]:
            best[place] = (throughput.mean, group)
    return tuple(group for _, group in best.values())


def key_of_cell(spec: TrialSpec) -> tuple[str, str, int, FrameSize, Load]:
    """What the repetitions of a measurement have in common."""
    return (spec.uut, spec.scenario, len(spec.streams), spec.frame_size, spec.load)


def _measurement(group: Group) -> tuple[int, FrameSize, Load]:
    return (group.sources, group.frame_size, group.load)


def _group(trials: list[TrialTotals]) -> Group:
    in_order = sorted(trials, key=lambda one: one.trial.spec.repetition)
    valid, suspicious, invalid = (tuple(one for one in in_order if one.trial.verdict is verdict) for verdict in Verdict)
    spec = in_order[0].trial.spec
    return Group(
        frame_size=spec.frame_size,
        valid=valid,
        suspicious=suspicious,
        invalid=invalid,
        uut=spec.uut,
        scenario=spec.scenario,
        sources=len(spec.streams),
        load=spec.load,
    )

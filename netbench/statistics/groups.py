"""Groups of trials: the repetitions of a measurement.

Only valid trials are averaged. Suspicious and invalid ones are kept beside them, to be counted and shown.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from netbench.model.campaign import CampaignResults
from netbench.model.counts import l1_mbps
from netbench.model.frame_size import FrameSize
from netbench.model.limits import OVERLOAD_LOSS_RATIO, LimitCause
from netbench.model.packet_counts import PLAIN_HEADERS, SentPacket
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import Reason, Verdict
from netbench.statistics.intervals import Interval
from netbench.statistics.repetitions import NeighbourGroup, Repetitions, mean_property
from netbench.statistics.totals import (
    NEIGHBOURS_LOSS_RATIO,
    NEIGHBOURS_OFFERED_MBPS,
    NEIGHBOURS_THROUGHPUT_MBPS,
    TrialTotals,
)

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)

_MOST = 0.5  # of the repetitions
# The part of the repetitions of a load that must be valid at the first attempt for it to count as a maximum.
_ENOUGH = 2 / 3


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items by key; keys and items keep their order."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def counts_as_maximum(repetitions: Sequence[TrialResult]) -> bool:
    """Return whether the mean of these repetitions of a load may be called a maximum.

    At least two thirds of them must be valid at the first attempt. A load that was repeated until something was valid
    has few repetitions left. The highest of many such means is that of the luckiest load.
    """
    return sum(repetition.valid_at_once for repetition in repetitions) >= _ENOUGH * len(repetitions) > 0


@dataclass(frozen=True, slots=True)
class Victim:
    """The owner of a throughput: a UUT, the number of sources, and their frame size in bytes with FCS."""

    uut: str
    sources: int
    frame_size: FrameSize


@dataclass(frozen=True, slots=True)
class Plateau:
    """The highest throughput of a UUT, averaged over all loads above it with equal throughput.

    Throughputs are over the boots; the value of a boot is the mean of its trials at any of these `loads`.
    """

    throughput_fps: Interval
    throughput_mbps: Interval | None  # L1
    loads: tuple[Load, ...]


@dataclass(frozen=True)  # no slots: the instance caches computed values
class Group(Repetitions):
    """All repetitions of one measurement: same UUT, scenario, number of sources, frame size and load.

    The group itself contains the results of the victim; `neighbours` are separate. with_limits() sets `limited_by` and
    `plateau` of a maximum: what prevented a higher one, and the maximum itself.
    `noise_floor` is that of the host, as a ratio, and `run_to_run` that of NoiseFloor; None if unknown.
    """

    frame_size: FrameSize
    valid: tuple[TrialTotals, ...]
    suspicious: tuple[TrialTotals, ...]
    invalid: tuple[TrialTotals, ...]
    uut: str
    scenario: str
    sources: int
    load: Load
    limited_by: LimitCause | None = None  # None: not determined yet, or not a maximum
    plateau: Plateau | None = None
    noise_floor: float | None = None
    run_to_run: float | None = None

    @property
    def sweep(self) -> tuple[str, str, int, FrameSize]:
        """The key that groups share if they differ in load only: UUT, scenario, sources, frame size."""
        return self.uut, self.scenario, self.sources, self.frame_size

    @property
    def victim(self) -> Victim:
        """The victim of these repetitions."""
        return Victim(self.uut, self.sources, self.frame_size)

    @property
    def everything(self) -> tuple[TrialTotals, ...]:
        """All its trials, the valid ones first."""
        return (*self.valid, *self.suspicious, *self.invalid)

    @cached_property
    def valid_at_once(self) -> int:
        """The number of its trials that were valid at the first attempt."""
        return sum(totals.trial.valid_at_once for totals in self.everything)

    @cached_property
    def saturated(self) -> int:
        """The number of its valid trials that are saturated: their offered load is below the intended one."""
        return sum(totals.trial.is_saturated for totals in self.valid)

    @cached_property
    def is_overloaded(self) -> bool:
        """Whether this load was too high for the UUT: loss above 0.5 %, or backpressure by the link."""
        return self.is_saturated or (self.loss_ratio is not None and self.loss_ratio.mean > OVERLOAD_LOSS_RATIO)

    @property
    def is_saturated(self) -> bool:
        """Whether there was backpressure by the link in most of its valid trials."""
        return self.saturated > _MOST * len(self.valid)

    @property
    def _noise(self) -> float | None:
        """The noise floor; None if all intended frames are forwarded, as the source's clock decides the throughput."""
        return self.noise_floor if self.is_overloaded or self.load.kind is LoadKind.MAX else None

    @property
    def is_lower_bound(self) -> bool:
        """Whether this group is a maximum that something else than the UUT limited."""
        return self.limited_by is not None and not self.limited_by.is_uut

    @property
    def maximum_fps(self) -> Interval | None:
        """The highest throughput in frames/s, if this group is a maximum: that of its plateau, if it has one.

        Its interval contains the variation between runs; that of `maximum_of_run_fps` does not.
        """
        return self._of_any_run(self.maximum_of_run_fps)

    @property
    def maximum_of_run_fps(self) -> Interval | None:
        """`maximum_fps` without the variation between runs, to compare maxima of one UUT in one run."""
        return self.plateau.throughput_fps if self.plateau else self.throughput_fps

    @property
    def maximum_mbps(self) -> Interval | None:
        """`maximum_fps` in Mbit/s (L1)."""
        return self._of_any_run(self.maximum_of_run_mbps)

    @property
    def maximum_of_run_mbps(self) -> Interval | None:
        """`maximum_of_run_fps` in Mbit/s (L1)."""
        return self.plateau.throughput_mbps if self.plateau else self.throughput_mbps

    def _of_any_run(self, maximum: Interval | None) -> Interval | None:
        """Return the maximum, with the variation between runs added to its interval if the UUT was the limit."""
        return maximum.widened(self.run_to_run) if maximum and not self.is_lower_bound else maximum

    @property
    def maximum_loads(self) -> tuple[Load, ...]:
        """The loads at which the maximum was measured."""
        return self.plateau.loads if self.plateau else (self.load,)

    @cached_property
    def packet(self) -> SentPacket | None:
        """The packet of its streams, also the plain one; None if it is unknown, or differs between streams.

        Answers of reverse streams have the name of the packet; they may have other headers.
        """
        spec = self.everything[0].trial.spec
        plain = None if self.frame_size.packet else SentPacket("", "", spec.frames.flows, PLAIN_HEADERS)
        counted = (counts for totals in self.everything for counts in totals.streams if counts is not None)
        packets = [counts.packet or plain for counts in counted]
        names = {packet.name if packet else None for packet in packets}
        return packets[0] if len(names) == 1 else None

    @property
    def thrown_away(self) -> int:
        """The number of discarded attempts: those after which the same trial was repeated."""
        return sum(len(totals.trial.thrown_away) for totals in self.everything)

    @cached_property
    def counts_as_maximum(self) -> bool:
        """Whether its mean may be called a maximum."""
        return counts_as_maximum([totals.trial for totals in self.everything])

    @cached_property
    def intended_fps(self) -> float | None:
        """Intended frames per second, all sources together; None for `max`, or if unknown."""
        return next((totals.intended_fps for totals in self.everything if totals.intended_fps is not None), None)

    @property
    def intended_mbps(self) -> float | None:
        """Intended load in Mbit/s (L1), all sources together."""
        return l1_mbps(self.intended_fps, self.frame_size.mean_bytes)

    @property
    def buffered_frames(self) -> int | None:
        """The most frames in queues at the end of a valid or suspicious trial; None if unknown.

        This is the size of the UUT's buffers if they overflow.
        """
        known = [totals.buffered_frames for totals in (*self.valid, *self.suspicious)]
        return max((frames for frames in known if frames is not None), default=None)

    @cached_property
    def neighbours(self) -> tuple[NeighbourGroup, ...]:
        """All its neighbours, including those without a valid repetition."""
        by_name = grouped(
            (neighbour for totals in self.everything for neighbour in totals.neighbours),
            lambda neighbour: neighbour.name,
        )
        return tuple(
            NeighbourGroup(
                frame_size=observed[0].frame_size,
                valid=tuple(neighbour for totals in self.valid if (neighbour := totals.neighbour(name)) is not None),
                name=name,
                activity=observed[0].activity,
            )
            for name, observed in by_name.items()
        )

    @cached_property
    def forwarding(self) -> tuple[NeighbourGroup, ...]:
        """Its forwarding neighbours."""
        return tuple(neighbour for neighbour in self.neighbours if neighbour.frame_size is not None)

    def neighbour(self, name: str) -> NeighbourGroup | None:
        """Return the neighbour of this name; None if absent."""
        return next((neighbour for neighbour in self.neighbours if neighbour.name == name), None)

    neighbours_offered_mbps = mean_property(
        NEIGHBOURS_OFFERED_MBPS,
        "The offered load of all forwarding neighbours together, in Mbit/s (L1); None without any.",
    )
    neighbours_throughput_mbps = mean_property(
        NEIGHBOURS_THROUGHPUT_MBPS, "The throughput of all forwarding neighbours together, in Mbit/s (L1)."
    )
    neighbours_loss_ratio = mean_property(
        NEIGHBOURS_LOSS_RATIO,
        "Lost ÷ offered over the frames of all forwarding neighbours, the mean of the ratios of the repetitions.",
    )

    @property
    def neighbours_frame_size(self) -> FrameSize | None:
        """The size of the neighbours' frames; None if none forwards, or if their sizes differ."""
        sizes = {neighbour.frame_size for neighbour in self.forwarding}
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons for the verdicts of its suspicious and invalid trials."""
        return tuple(reason for totals in (*self.suspicious, *self.invalid) for reason in totals.trial.reasons)


def group_trials(results: CampaignResults) -> tuple[Group, ...]:
    """Return the groups of a campaign, in one pass over its trials; their counters are not kept.

    Excluded are trials without a steady load, which belong to a test of RFC 2544, those that only search for a
    maximum, because their loads are not loads of the profile, and trials with flows (see flow_figures.py).

    UUTs are in the order of the topology, scenarios in that of the profile; then sources, sizes and loads rise. Of one
    size, packets are in the order of the profile.
    """
    steady = (trial for trial in results.wanted_trials if not (trial.spec.benchmark or trial.spec.serves))
    groups = gathered(TrialTotals.of(trial.without_counters) for trial in steady)
    if results.noise_floor is not None:
        floor, run_to_run = results.noise_floor.half_width, results.noise_floor.run_to_run
        groups = [replace(group, noise_floor=floor, run_to_run=run_to_run) for group in groups]
    uuts = [*results.uuts, *(group.uut for group in groups)]
    scenarios = [*results.scenarios, *(group.scenario for group in groups)]
    # A UUT that never started has no loads in frames/s; the loads of the others define its order.
    known_fps = {_measurement(group): group.intended_fps for group in groups if group.intended_fps is not None}

    packets = list(dict.fromkeys((*results.packets, *(group.frame_size.packet for group in groups))))

    def order(group: Group) -> tuple[int, int, int, FrameSize, int, bool, float, float]:
        return (
            uuts.index(group.uut),
            scenarios.index(group.scenario),
            group.sources,
            group.frame_size.without_packet,
            packets.index(group.frame_size.packet),
            group.load.kind is LoadKind.MAX,
            known_fps.get(_measurement(group), 0.0),
            group.load.value,
        )

    return tuple(sorted(groups, key=order))


def gathered(trials: Iterable[TrialTotals]) -> list[Group]:
    """Return the groups of some trials, in the order of the trials."""
    return [_group(cell) for cell in grouped(trials, lambda totals: key_of_cell(totals.trial.spec)).values()]


def best_groups(groups: Iterable[Group]) -> tuple[Group, ...]:
    """Return the group with the highest throughput of each UUT, scenario, number of sources and frame size.

    That is not always the one with the most offered load (Schlosser et al. 2011, section 4, Figure 4).
    Groups that may not be called a maximum are ignored.
    """
    counted = (
        (throughput.mean, group)
        for group in groups
        if (throughput := group.throughput_fps) is not None and group.counts_as_maximum
    )
    sweeps = grouped(counted, lambda pair: pair[1].sweep).values()
    return tuple(max(same, key=lambda pair: pair[0])[1] for same in sweeps)


def key_of_cell(spec: TrialSpec) -> tuple[str, str, int, FrameSize, Load]:
    """Return the key that the repetitions of a measurement have in common."""
    return (spec.uut, spec.scenario, len(spec.streams), spec.frame_size, spec.load)


def _measurement(group: Group) -> tuple[int, FrameSize, Load]:
    return (group.sources, group.frame_size, group.load)


def _group(trials: list[TrialTotals]) -> Group:
    in_order = sorted(trials, key=lambda totals: totals.trial.spec.repetition)
    valid, suspicious, invalid = (
        tuple(totals for totals in in_order if totals.trial.verdict is verdict) for verdict in Verdict
    )
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

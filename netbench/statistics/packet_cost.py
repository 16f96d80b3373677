"""Comparisons of packets: the cost of an encapsulation relative to plain frames, and throughput by number of flows."""

from collections.abc import Iterable
from dataclasses import dataclass

from netbench.statistics.groups import Group, best_groups, grouped
from netbench.statistics.interference import compared, counted_loads
from netbench.statistics.intervals import Interval, RatioOfMeans, ratio_of_intervals


@dataclass(frozen=True, slots=True)
class PacketCost:
    """The highest throughput with a described packet relative to that with plain frames of the same size.

    `best` and `plain` are the groups with these maxima, of one UUT, scenario and number of sources. `frames` is the
    ratio of frames/s, `bits` that of Mbit/s (L1); they differ for mixes only, where some sizes are lost more than
    others.
    """

    best: Group
    plain: Group
    frames: RatioOfMeans
    bits: RatioOfMeans


def packet_costs(groups: Iterable[Group]) -> tuple[PacketCost, ...]:
    """Return the cost of each described packet for each UUT, scenario and frame size, in the order of the groups.

    `groups` are from with_limits(). Packets without a maximum, or without one of plain frames, are left out, as in
    relative_maxima().
    """
    everything = tuple(groups)
    best, counted = best_groups(everything), counted_loads(everything)
    plain = {group.sweep: group for group in best if not group.frame_size.packet}
    costs = []
    for group in best:
        base = plain.get((group.uut, group.scenario, group.sources, group.frame_size.without_packet))
        if base is None or group is base:
            continue
        ratio = compared(group, base, counted)
        if ratio is not None:
            costs.append(PacketCost(group, base, ratio, _of_bits(group, base, ratio)))
    return tuple(costs)


def _of_bits(group: Group, base: Group, of_frames: RatioOfMeans) -> RatioOfMeans:
    """Return the ratio of the maxima in Mbit/s; unknown or a bound where that of frames/s is."""
    new, old = group.maximum_of_run_mbps, base.maximum_of_run_mbps
    is_same = not group.frame_size.is_mix
    if is_same or of_frames.unknown is not None or of_frames.bound or new is None or old is None:
        return of_frames
    return ratio_of_intervals(new, old)


@dataclass(frozen=True, slots=True)
class FlowPoint:
    """The highest throughput with some number of flows in each stream."""

    flows: int
    best: Group

    @property
    def throughput_mbps(self) -> Interval | None:
        """The highest throughput in Mbit/s (L1), all sources added up."""
        return self.best.maximum_mbps


@dataclass(frozen=True, slots=True)
class FlowScaling:
    """The highest throughput of a UUT by number of flows, which rises, with the same headers and frame size."""

    headers: str  # the layers of its packets: `Ether/IP/UDP`
    points: tuple[FlowPoint, ...]

    @property
    def first(self) -> Group:
        """The group with the fewest flows."""
        return self.points[0].best


def flow_scaling(groups: Iterable[Group]) -> tuple[FlowScaling, ...]:
    """Return the throughput by number of flows of each UUT, scenario, number of sources, frame size and headers.

    `groups` are from with_limits(). Series with one number of flows are left out. Plain frames count with the flows of
    the profile.
    """
    known = [(group, group.packet) for group in best_groups(tuple(groups))]
    series = grouped(
        [(group, packet) for group, packet in known if packet is not None and packet.headers],
        lambda pair: (
            pair[0].uut,
            pair[0].scenario,
            pair[0].sources,
            pair[0].frame_size.without_packet,
            pair[1].headers,
        ),
    )
    scaling = []
    for (*_, headers), members in series.items():
        points = sorted((FlowPoint(packet.flows, group) for group, packet in members), key=lambda point: point.flows)
        if len({point.flows for point in points}) > 1:
            scaling.append(FlowScaling(headers, tuple(points)))
    return tuple(scaling)

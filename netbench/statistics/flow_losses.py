"""Loss by groups of flows, and fairness between them, over the trials of a measurement."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from netbench.model.packet_counts import FieldGroups, PacketCounts
from netbench.statistics.groups import Group, grouped
from netbench.statistics.intervals import Interval, mean_interval
from netbench.statistics.sharing import jain_index
from netbench.statistics.totals import TrialTotals


@dataclass(frozen=True, slots=True)
class LossyGroup:
    """A group of flows that lost frames: those with these values of a field.

    Frames are sums over the streams of the trials in which the group lost frames, `trials` is the number of these.
    """

    values: str
    sent: int
    lost: int
    trials: int


@dataclass(frozen=True, slots=True)
class FieldLoss:
    """The loss of a measurement by the values of one varying field, over its valid trials.

    `groups` is the number of groups of a stream. `lossy` begins with the group that lost most. `fairness` is Jain's
    index over the groups of each stream.
    """

    measurement: Group
    field: str
    groups: int
    lossy: tuple[LossyGroup, ...]
    fairness: Interval | None

    @property
    def lost(self) -> int:
        """The lost frames of all groups together; those that the capture dropped are included."""
        return sum(group.lost for group in self.lossy)


def losses_by_field(groups: Iterable[Group]) -> tuple[FieldLoss, ...]:
    """Return the loss by each varying field of each measurement whose sinks count groups of flows."""
    found = []
    for group in groups:
        of_trials = [(number, field) for number, field in enumerate_fields(group.valid)]
        for name, members in grouped(of_trials, lambda pair: pair[1].field).items():
            found.append(_field_loss(group, name, members))
    return tuple(found)


def enumerate_fields(trials: Iterable[TrialTotals]) -> Iterator[tuple[int, FieldGroups]]:
    """Yield the groups of flows by each field of each stream, with the number of the trial."""
    for number, totals in enumerate(trials):
        for packet in _described(totals):
            yield from ((number, field) for field in packet.groups)


def _field_loss(group: Group, name: str, members: list[tuple[int, FieldGroups]]) -> FieldLoss:
    lossy = [(number, flows) for number, field in members for flows in field.lossy]
    by_values = grouped(lossy, lambda pair: pair[1].values)
    summed = [
        LossyGroup(
            values,
            sum(flows.sent for _, flows in same),
            sum(flows.lost for _, flows in same),
            len({number for number, _ in same}),
        )
        for values, same in by_values.items()
    ]
    indices = [index for _, field in members if (index := fairness_of(field)) is not None]
    return FieldLoss(
        measurement=group,
        field=name,
        groups=max(field.groups for _, field in members),
        lossy=tuple(sorted(summed, key=lambda lossy_group: lossy_group.lost, reverse=True)),
        fairness=mean_interval(indices) if indices else None,
    )


def fairness_of(field: FieldGroups) -> float | None:
    """Return Jain's index over the groups, of received ÷ sent; groups without loss count as 1. None if undefined.

    It is jain_index() with groups of flows in the place of guests.
    """
    shares = [group.received / group.sent for group in field.lossy if group.sent]
    shares += [1.0] * (field.groups - len(field.lossy))
    return jain_index(shares) if any(shares) else None


def _described(totals: TrialTotals) -> Iterator[PacketCounts]:
    """Yield the counts of sinks that only described packets have."""
    for stream in totals.streams:
        if stream is not None and stream.received.packet is not None:
            yield stream.received.packet

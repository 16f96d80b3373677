"""Header fields that were not as expected at the sink, over the trials of a measurement."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from netbench.model.packet_counts import OTHER_HEADERS, ChangedField
from netbench.statistics.groups import Group

_CHECKSUMS = ("chksum", "cksum")
_IP_LAYERS = ("IP", "IPv6")


@dataclass(frozen=True, slots=True)
class ChangedFrames:
    """The frames of a stream in a measurement with an unexpected header field, over its valid and suspicious trials.

    `received` are all distinct frames of the stream in these trials. The values of `field` are those of the first such
    frame of the first trial that has them.
    """

    measurement: Group
    stream: str
    field: ChangedField
    received: int

    @property
    def frames(self) -> int:
        """The number of changed frames."""
        return self.field.frames

    @property
    def name(self) -> str:
        """The name of the field; `layers` for frames with other headers than expected."""
        return "layers" if self.field.name == OTHER_HEADERS else self.field.name


def changed_frames(groups: Iterable[Group]) -> tuple[ChangedFrames, ...]:
    """Return the changed header fields of each measurement and stream, in the order of the packet.

    Checksums are left out in a stream in which the other changed fields explain them: these have as many frames.
    """
    return tuple(changed for group in groups for changed in _without_explained(list(_of_group(group))))


def _of_group(group: Group) -> Iterator[ChangedFrames]:
    received: dict[str, int] = {}
    summed: dict[tuple[str, str], ChangedField] = {}
    for totals in (*group.valid, *group.suspicious):
        for stream in totals.streams:
            if stream is None or (packet := stream.received.packet) is None:
                continue
            received[stream.stream] = received.get(stream.stream, 0) + (stream.received.frames or 0)
            for field in packet.changed:
                before = summed.get((stream.stream, field.name))
                summed[stream.stream, field.name] = field if before is None else added(before, field)
    for (name, _), field in summed.items():
        yield ChangedFrames(group, name, field, received[name])


def added(before: ChangedField, more: ChangedField) -> ChangedField:
    """Return the sum of two counts of a field, with the values of the first one that has any."""
    values = before if before.arrived else more
    return values._replace(frames=before.frames + more.frames)


def _without_explained(changed: Sequence[ChangedFrames]) -> Iterator[ChangedFrames]:
    for item in changed:
        layer, _, field = item.field.name.rpartition(".")
        covered = [other.frames for other in changed if other.stream == item.stream and _is_covered(other, layer)]
        if field not in _CHECKSUMS or sum(covered) < item.frames:
            yield item


def _is_covered(changed: ChangedFrames, layer: str) -> bool:
    """Return whether the checksum of a layer changes with this field: that of UDP covers addresses of IP, too."""
    of, _, field = changed.field.name.rpartition(".")
    if field in _CHECKSUMS or not of:
        return False
    is_ip = layer.partition(":")[0] in _IP_LAYERS
    return of == layer or (not is_ip and of.partition(":")[0] in _IP_LAYERS and field in ("src", "dst"))


def by_packet_and_field(changed: Iterable[ChangedFrames]) -> tuple[ChangedFrames, ...]:
    """Return the sums over all loads and sizes of each UUT, packet, stream and field."""
    found: dict[tuple[str, str, str, str], ChangedFrames] = {}
    for item in changed:
        key = item.measurement.uut, item.measurement.frame_size.packet, item.stream, item.field.name
        before = found.get(key)
        found[key] = (
            item
            if before is None
            else replace(before, field=added(before.field, item.field), received=before.received + item.received)
        )
    return tuple(found.values())

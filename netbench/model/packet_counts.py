"""Counts of frames with described headers: changed fields, flows, and groups of flows. Frames are integers."""

from dataclasses import dataclass
from typing import NamedTuple, Self

from netbench.model.packet import Packet

MAX_GROUPS = 1024
OTHER_HEADERS = "headers"  # the name of a field that is changed in frames with more or fewer headers


class SentPacket(NamedTuple):
    """The described packet that a stream sends: its name, its VLAN ids (`100.200`, outermost first), and its flows.

    `vlan` is empty without tags, or if an id varies. `headers` are the names of its layers: `Ether/Dot1Q/IP/UDP`.
    """

    name: str
    vlan: str
    flows: int
    headers: str = ""

    @classmethod
    def of(cls, packet: Packet) -> Self:
        """Return the stored properties of a packet."""
        return cls(packet.name, ".".join(map(str, packet.vlan_ids)), packet.flows, packet.headers)


PLAIN_HEADERS = "Ether/IP/UDP"  # of frames without a described packet


class ChangedField(NamedTuple):
    """A header field that was not as expected at the sink, and in how many of the stream's frames.

    `sent`, `expected` and `arrived` are its values in the first such frame, as text: `64`, `198.18.1.2`. Empty is
    unknown. For the field `headers`, they are the names of the layers: `Ether/Dot1Q/IP/UDP`.
    """

    name: str
    frames: int
    sent: str = ""
    expected: str = ""
    arrived: str = ""


class FlowGroup(NamedTuple):
    """The frames of all flows with one value of a field, or a range of its values; `received` ones are distinct."""

    values: str
    sent: int
    received: int

    @property
    def lost(self) -> int:
        """The frames that did not arrive, in frames."""
        return self.sent - self.received


@dataclass(frozen=True, slots=True)
class FieldGroups:
    """The flows by the value of one varying field: at most MAX_GROUPS groups of equally many values each.

    `lossy` are the groups that lost frames, in the order of values; `groups` is the number of all groups.
    """

    field: str
    groups: int
    lossy: tuple[FlowGroup, ...]

    @property
    def lost(self) -> int:
        """The frames that all groups lost together, in frames."""
        return sum(group.lost for group in self.lossy)


@dataclass(frozen=True, slots=True)
class PacketCounts:
    """The counts of a sink for a stream with a described packet; None is unknown.

    `changed_frames` are distinct frames with any unexpected header field; `changed` has the fields, in the order of the
    packet. A frame with more or fewer headers than expected counts for the field `headers`. `reordered_in_flows` are
    frames that arrived after a higher number of their own flow: `reordered` counts those after any higher number.
    """

    flows: int
    lossy_flows: int | None = None
    changed_frames: int | None = None
    changed: tuple[ChangedField, ...] = ()
    reordered_in_flows: int | None = None
    groups: tuple[FieldGroups, ...] = ()

    @property
    def changed_by_field(self) -> dict[str, int]:
        """The number of changed frames by field."""
        return {field.name: field.frames for field in self.changed}

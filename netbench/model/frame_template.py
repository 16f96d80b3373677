"""Templates of frames, as data: the controller builds them, sources vary copies of them, and sinks compare with them.

Frame number n of a trial belongs to flow n mod `flows`. A varying field has value number (n mod flows) div
`frames_per_value`, modulo the number of its values. Everything about a frame thus follows from its number. This module
imports next to nothing, because other hosts load it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from netbench.model.packet import ListedValues, RandomValues, SteppedValues, Values

PAYLOAD_BYTES = 16  # pktgen's header: magic, sequence, seconds, microseconds
COMPLEMENT_BYTES = 2
MOST_WORDS = 12  # that differ between flows, of 4 bytes each; the arrays of bpf/programs have this size
MOST_CHECKSUMS = 4  # that differ between flows
MOST_HEADER_BYTES = 192


@dataclass(frozen=True, slots=True)
class FieldPlace:
    """The place of a field in a frame: bits `mask` of the big-endian number in `size` bytes (1 to 16) at byte `at`.

    The field is that number, masked and shifted right by the zeros at the end of the mask.
    """

    name: str  # of the field: `IP.src`
    at: int
    size: int
    mask: int
    kind: str = "number"  # of its values, for messages, as in VaryingPlace

    @property
    def shift(self) -> int:
        """The number of bits below the field."""
        return (self.mask & -self.mask).bit_length() - 1

    def number_in(self, frame: bytes) -> int:
        """Return the value of the field in a frame; `frame` may end behind the field."""
        return (int.from_bytes(frame[self.at : self.at + self.size]) & self.mask) >> self.shift


@dataclass(frozen=True, slots=True)
class VaryingPlace:
    """A field that differs between flows: its place (None: it is not in this packet), values and their order."""

    name: str
    place: FieldPlace | None
    values: Values
    frames_per_value: int
    kind: str = "number"  # of its values, for messages: number, IPv4, IPv6 or MAC
    seed: int = 1  # of random values


@dataclass(frozen=True, slots=True)
class Checksum:
    """A checksum of RFC 1071 at byte `at`, over the ranges of bytes `covers`, as (start, stop).

    An `is_udp` one is never 0, which would mean no checksum (RFC 768): 0xFFFF replaces it.
    """

    at: int
    covers: tuple[tuple[int, int], ...]
    is_udp: bool = False


@dataclass(frozen=True, slots=True)
class FrameTemplate:
    """The frames of a trial without FCS by frame size (of the sent frame, with FCS), and their varying fields.

    `frames` are those of flow 0; sequence number and time are 0. pktgen's header begins at byte `payload_at`. If
    `complement_at` is set, the 16 bits there make the sum of the payload constant, so that checksums do not depend on
    sequence number and time (RFC 7820, section 3.2): the 16-bit words of the sequence, seconds, microseconds and this
    one add up to 0xFFFF in one's complement arithmetic. `checksums` are those that cover varying fields.
    """

    frames: Mapping[int, bytes]
    payload_at: int
    flows: int = 1
    complement_at: int | None = None
    varying: tuple[VaryingPlace, ...] = ()
    checksums: tuple[Checksum, ...] = ()

    @property
    def sequence_at(self) -> int:
        """The byte at which the sequence number begins, 32 bits."""
        return self.payload_at + 4

    @property
    def time_at(self) -> int:
        """The byte at which seconds and microseconds begin, 32 bits each."""
        return self.payload_at + 8

    @property
    def header_bytes(self) -> int:
        """The bytes from the beginning of the frame to the end of pktgen's header and the complement."""
        end = self.payload_at + PAYLOAD_BYTES
        return end if self.complement_at is None else max(end, self.complement_at + COMPLEMENT_BYTES)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the template that `to_json` has converted."""
        return cls(
            **{
                **document,
                "frames": {int(size): bytes.fromhex(frame) for size, frame in document["frames"].items()},
                "varying": tuple(map(_varying_of, document["varying"])),
                "checksums": tuple(
                    Checksum(**{**plain, "covers": tuple(map(tuple, plain["covers"]))})
                    for plain in document["checksums"]
                ),
            }
        )

    def to_json(self) -> dict[str, Any]:
        """Return the template as data for JSON."""
        document = asdict(self)
        document["frames"] = {str(size): frame.hex() for size, frame in self.frames.items()}
        return document


def _varying_of(plain: Mapping[str, Any]) -> VaryingPlace:
    values, place = plain["values"], plain["place"]
    return VaryingPlace(
        **{**plain, "values": _values_of(values), "place": None if place is None else FieldPlace(**place)}
    )


def _values_of(plain: Mapping[str, Any]) -> Values:
    if "values" in plain:
        return ListedValues(tuple(plain["values"]))
    return SteppedValues(**plain) if "step" in plain else RandomValues(**plain)


@dataclass(frozen=True, slots=True)
class SentValue:
    """The value with which a field at the sink was sent: `number`, or that of the varying field with this index."""

    name: str  # of the field at the sink
    number: int | None
    varying: int | None = None


@dataclass(frozen=True, slots=True)
class ExpectedHeaders:
    """The headers with which a sink compares the frames of one stream.

    `template` has the frames as they should arrive, by the size of the *sent* frame: `longer` bytes longer than that.
    `compared` are the fields that should be as in the template, in their order on the wire. A frame is the stream's if
    it has pktgen's magic number at the template's `payload_at`, or at one of `also_at` (where headers were added or
    are missing), and a possible number and time. All bytes before the payload in `ignored`, (start, stop), are free.
    `varying` are the varying fields of the sent packet: they define flows and groups, in this packet or not.
    `sent` are the sent values of compared fields; those that depend on the frame size are left out. `layers` and
    `sent_layers` are the names of the layers at the sink and of the sent packet: `Ether/IP/UDP`.
    Frames from or to the MAC addresses `not_from` and `not_to`, as text, belong to other streams of the trial.
    """

    template: FrameTemplate
    compared: tuple[FieldPlace, ...]
    ignored: tuple[tuple[int, int], ...] = ()
    also_at: tuple[int, ...] = ()
    longer: int = 0
    varying: tuple[VaryingPlace, ...] = ()
    sent: tuple[SentValue, ...] = ()
    layers: str = ""
    sent_layers: str = ""
    not_from: tuple[str, ...] = ()
    not_to: tuple[str, ...] = ()

    @property
    def flows(self) -> int:
        """The number of flows."""
        return self.template.flows

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the headers that `to_json` has converted."""
        return cls(
            template=FrameTemplate.from_json(document["template"]),
            compared=tuple(FieldPlace(**place) for place in document["compared"]),
            ignored=tuple(map(tuple, document["ignored"])),
            also_at=tuple(document["also_at"]),
            longer=document["longer"],
            varying=tuple(map(_varying_of, document["varying"])),
            sent=tuple(SentValue(**value) for value in document["sent"]),
            layers=document["layers"],
            sent_layers=document["sent_layers"],
            not_from=tuple(document["not_from"]),
            not_to=tuple(document["not_to"]),
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as data for JSON."""
        return {**asdict(self), "template": self.template.to_json()}

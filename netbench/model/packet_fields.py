"""Packets as fields of pydantic's models of profiles and streams, with their JSON Schemas."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import ValidationError, WithJsonSchema

from netbench.model.fields import LOCATED, LOCATED_KEY, located_error
from netbench.model.packet import MAX_FLOWS, Packet
from netbench.model.packet_description import parse_packet, parse_packets, written_packet
from netbench.model.packet_values import DescriptionError

_VALUE = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
_COUNT = {"type": "integer", "minimum": 1, "maximum": MAX_FLOWS}
VARY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"combined": {"type": "boolean"}},
    "additionalProperties": {
        "type": "object",
        "properties": {
            "from": _VALUE,
            "to": _VALUE,
            "step": {"type": "integer"},
            "count": _COUNT,
            "random": {"type": "string"},
            "list": {"type": "array", "items": _VALUE, "minItems": 1},
        },
        "additionalProperties": False,
    },
}
EXPECT_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"headers": {"type": "string"}, "vary": VARY_SCHEMA},
            "required": ["headers"],
            "additionalProperties": False,
        },
    ]
}
PACKET_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "headers": {"type": "string"},
                "trex": {"type": "string"},
                "vary": VARY_SCHEMA,
                "expect": EXPECT_SCHEMA,
            },
            "additionalProperties": False,
        },
    ]
}


class _Described:
    """Makes pydantic read a value with a function of ours, and write it as users do."""

    def __init__(self, read: Callable[[object], object], write: Callable[[Any], object]) -> None:
        self._read, self._write = read, write

    def __get_pydantic_core_schema__(self, *_: object) -> object:
        """Return the schema."""
        from pydantic_core import core_schema  # noqa: PLC0415 - as in frame_size.py

        written = core_schema.plain_serializer_function_ser_schema(self._write)
        return core_schema.no_info_plain_validator_function(self._validated, serialization=written)

    def _validated(self, value: object) -> object:
        try:
            return self._read(value)
        except DescriptionError as error:
            raise packet_error(error) from error


def packet_error(error: DescriptionError, key: str = "packet") -> ValidationError:
    """Return a wrong description as the error of a key of a document."""
    text = str(error) if error.key.partition(":")[0] == key else f"{key}: {error}"
    return located_error(error.path, text, kind=LOCATED_KEY if error.is_key else LOCATED)


def _written_packets(packets: tuple[Packet | None, ...]) -> object:
    written = [written_packet(packet) for packet in packets]
    return written if len(written) > 1 else written[0]


PacketsField = Annotated[
    tuple[Packet | None, ...],
    _Described(parse_packets, _written_packets),
    WithJsonSchema({"anyOf": [PACKET_SCHEMA, {"type": "array", "items": PACKET_SCHEMA, "minItems": 1}]}),
]
PacketField = Annotated[Packet | None, _Described(parse_packet, written_packet), WithJsonSchema(PACKET_SCHEMA)]
ExpectField = Annotated[Any, WithJsonSchema(EXPECT_SCHEMA)]
VaryField = Annotated[dict[str, Any] | None, WithJsonSchema(VARY_SCHEMA)]

"""Rules for the layers of a packet together: their order, their size, and fields that depend on other fields."""

from collections.abc import Sequence

from netbench.model.header_sizes import LARGEST_HEADERS, header_bytes
from netbench.model.packet import FieldRef, Layer, references
from netbench.model.packet_layers import LAYERS, spec_of
from netbench.model.packet_values import DescriptionError

_MOST_OPTIONS = 40  # bytes: 15 words of header (RFC 791, section 3.1; RFC 9293, section 3.1) without the fixed 20 bytes
_ECHO = ("ICMP", "ICMPv6EchoRequest", "ICMPv6EchoReply")  # NAT64 makes one of another (RFC 7915)


def check_layers(layers: Sequence[Layer]) -> None:
    """Raise DescriptionError if these layers do not make a packet that can carry pktgen's header."""
    if not layers or layers[0].name != "Ether":
        first = layers[0].name if layers else "packet"
        raise DescriptionError(first, "is not the first layer of a frame; begin with Ether()")
    for ref, layer, following in zip(references(layers), layers, [*layers[1:], None], strict=True):
        if following is not None:
            _check_next(ref, layer, following)
        _check_dependent(ref, layer)
    if (size := header_bytes(layers)) > LARGEST_HEADERS:
        raise DescriptionError(
            layers[-1].name,
            f"ends {size} bytes behind the beginning of the frame: at most {LARGEST_HEADERS} are possible",
        )
    if not spec_of(layers[-1]).carries:
        ending = [spec.name for spec in LAYERS.values() if spec.carries]
        raise DescriptionError(
            layers[-1].name, f"cannot be the last layer: pktgen's header follows one of {', '.join(ending)}"
        )


def check_expected(expected: Sequence[Layer], sent: Sequence[Layer]) -> None:
    """Raise DescriptionError if the last header at the sink is another one than in the packet as sent.

    UUTs add and remove headers outside of it. pktgen's header, by which frames are counted, follows it.
    """
    last, before = expected[-1].name, sent[-1].name
    if last != before and not (last in _ECHO and before in _ECHO):
        raise DescriptionError(last, f"is the last layer, but that of the packet is {before}; end with {before}()")


def _check_next(ref: FieldRef, layer: Layer, following: Layer) -> None:
    """Check the successor of a layer, and fields that announce it."""
    spec = spec_of(layer)
    if following.name not in spec.types:
        possible = f"possible are {', '.join(spec.types)}" if spec.types else "it is the last layer"
        raise DescriptionError(following.name, f"cannot follow {layer.name}; {possible}")
    is_last_label = following.name != "MPLS"
    if layer.name == "MPLS" and layer.value("s") == int(not is_last_label):
        fault = "0, but this label is the bottom of the stack (1)"
        fault = fault if is_last_label else "1, but another label follows this one (0)"
        raise DescriptionError(str(ref._replace(field="s")), f"{fault}; leave it out")
    types = spec.types[following.name]
    for name, value in layer.fields:
        if spec.fields[name].use == "next" and isinstance(value, int) and types and value not in types:
            usual = " or ".join(map(hex, types))
            title = str(ref._replace(field=name))
            raise DescriptionError(title, f"{value:#x} does not announce {following.name}, {usual}; leave it out")


def _check_dependent(ref: FieldRef, layer: Layer) -> None:
    """Check fields that need other fields of their layer."""
    spec = spec_of(layer)
    for name, value in layer.fields:
        title, field = str(ref._replace(field=name)), spec.fields[name]
        if not field.is_in(layer):
            raise DescriptionError(title, f"is not in the header without {field.needs}=1; write that, too")
        more_fragments = "MF" in value if isinstance(value, str) else value in (1, 3, 5, 7)
        if (layer.name, name) == ("IP", "flags") and more_fragments:
            raise DescriptionError(title, f"{value!r} is not allowed: fragments are not supported")
    size = header_bytes([layer]) - spec.size
    if layer.name in ("IP", "TCP") and size > _MOST_OPTIONS:
        raise DescriptionError(
            str(ref._replace(field="options")), f"{size} bytes: at most {_MOST_OPTIONS} are possible"
        )

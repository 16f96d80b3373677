"""Packet code of TRex (`STLPktBuilder(pkt=…, vm=[…])`) as a packet: its layers, and its variables as varying fields.

The commands are those of TRex 3: https://trex-tgn.cisco.com/trex/doc/trex_stateless.html, section "Field Engine". A
variable that counts begins at its least value (`inc`) or its largest one (`dec`). A random one takes each value once.
Of more values than MAX_FLOWS, a counting variable takes the first ones, and a random one so many different ones (TRex
draws a sample, too). Checksums are correct in all frames, so commands that fix them have nothing to add. The payload is
pktgen's header.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import replace

from netbench.model.layer_order import check_layers
from netbench.model.packet import Layer, Packet, VaryingField, references
from netbench.model.packet_notation import layer_of
from netbench.model.packet_values import DescriptionError
from netbench.model.packet_variation import check_combined, check_varying, listed_values, number_of, variable_field
from netbench.model.trex_code import BUILDER, packet_code
from netbench.model.trex_commands import TRIM, commands_of
from netbench.model.trex_expressions import Bound, FieldEngine, is_payload, operands, with_literals
from netbench.model.trex_field_engine import FieldEngineReader

_CODE = re.compile(rf"\b({BUILDER}|STLVM|STLStream|STL(Sc)?Vm\w*)\s*\(")


def is_trex_code(text: str) -> bool:
    """Return whether a text is packet code of TRex rather than a packet in scapy's notation."""
    return bool(_CODE.search(text[: 1 << 16]))


def parse_trex(text: str, name: str) -> Packet:
    """Return the packet that code of TRex describes; DescriptionError for code with anything else.

    Several packets that differ in values of fields are one whose frames have these values in turn.
    """
    packets = list(dict.fromkeys(_packet(name, pkt, vm) for pkt, vm in packet_code(text)))
    return packets[0] if len(packets) == 1 else _in_turn(packets)


def _in_turn(packets: Sequence[Packet]) -> Packet:
    """Return the packet whose frames are those of all these packets in turn; DescriptionError if it is impossible."""
    first = packets[0]
    shapes = {tuple((layer.name, *(name for name, _ in layer.fields)) for layer in packet.layers) for packet in packets}
    if len(shapes) > 1 or any(packet.vary for packet in packets):
        text = f"{len(packets)} different packets: only values of the same fields may differ; paste the code of one"
        raise DescriptionError(BUILDER, text)
    varying = []
    for number, layer in enumerate(references(first.layers)):
        for name, _ in first.layers[number].fields:
            title = str(layer._replace(field=name))
            values = [dict(packet.layers[number].fields)[name] for packet in packets]
            if len(set(values)) > 1:
                ref, field = variable_field(title, first.layers)
                numbers = [number_of(title, field, value) for value in values]
                varying.append(VaryingField(ref, listed_values(title, field, numbers)))
    check_varying(varying)
    return replace(first, vary=tuple(varying))


def _packet(name: str, pkt: Bound, vm: Bound | FieldEngine | None) -> Packet:
    layers = _layers(pkt)
    check_layers(layers)
    engine = FieldEngineReader(layers)
    commands = list(commands_of(vm))
    if TRIM in dict(commands):
        raise DescriptionError(TRIM, "is not supported: write sizes as `frame_sizes` of the profile, or as a mix")
    for command, arguments in commands:
        engine.command(command, arguments)
    fields, combined = engine.varying()
    check_varying(fields)
    if combined:
        check_combined("next_var", fields, "leave next_var out")
    return Packet(name, engine.layers, fields, combined)


def _layers(pkt: Bound) -> tuple[Layer, ...]:
    parts = list(operands(pkt))
    if isinstance(parts[0].node, ast.Constant):
        raise DescriptionError("pkt", "is no packet in scapy's notation; capture files are not supported")
    if len(parts) > 1 and is_payload(parts[-1]):
        parts.pop()
    layers: list[Layer] = []
    for part in parts:
        node = part.node
        if isinstance(node, ast.Call):
            keywords = [
                ast.keyword(keyword.arg, with_literals(Bound(keyword.value, part.names))) for keyword in node.keywords
            ]
            node = ast.Call(node.func, node.args, keywords)
        layers.append(layer_of(node, outer=layers))
    return tuple(layers)

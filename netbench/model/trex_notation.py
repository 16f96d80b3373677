"""Packet code of TRex (`STLPktBuilder(pkt=…, vm=[…])`) as a packet: its layers, and its variables as varying fields.

The commands are those of TRex 3: https://trex-tgn.cisco.com/trex/doc/trex_stateless.html, section "Field Engine". A
variable that counts begins at its least value (`inc`) or its largest one (`dec`), and has at most MAX_FLOWS values.
Checksums are correct in all frames, so commands that fix them have nothing to add. The payload is pktgen's header.
"""

import ast
import re

from netbench.model.packet import Layer, Packet
from netbench.model.packet_notation import check_layers, layer_of
from netbench.model.packet_values import DescriptionError
from netbench.model.packet_variation import check_varying
from netbench.model.trex_code import BUILDER, Bound, FieldEngine, is_payload, operands, packet_code, with_literals
from netbench.model.trex_commands import TRIM, commands_of
from netbench.model.trex_field_engine import FieldEngineReader

_CODE = re.compile(rf"\b({BUILDER}|STLVM|STLStream|STL(Sc)?Vm\w*)\s*\(")


def is_trex_code(text: str) -> bool:
    """Return whether a text is packet code of TRex rather than a packet in scapy's notation."""
    return bool(_CODE.search(text[: 1 << 16]))


def parse_trex(text: str, name: str) -> Packet:
    """Return the packet that code of TRex describes; DescriptionError for code with anything else."""
    first, *others = (_packet(name, pkt, vm) for pkt, vm in packet_code(text))
    if any(other != first for other in others):
        raise DescriptionError(BUILDER, f"{1 + len(others)} different packets; paste the code of one")
    return first


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
    return Packet(name, engine.layers, fields, combined)


def _layers(pkt: Bound) -> tuple[Layer, ...]:
    parts = list(operands(pkt))
    if isinstance(parts[0].node, ast.Constant):
        raise DescriptionError("pkt", "is no packet in scapy's notation; capture files are not supported")
    if len(parts) > 1 and is_payload(parts[-1]):
        parts.pop()
    layers = []
    for part in parts:
        node = part.node
        if isinstance(node, ast.Call):
            keywords = [ast.keyword(one.arg, with_literals(Bound(one.value, part.names))) for one in node.keywords]
            node = ast.Call(node.func, node.args, keywords)
        layers.append(layer_of(node))
    return tuple(layers)

"""Trials with each shipped packet: every frame must arrive as described, and scapy must read the description in it."""

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import dpkt

from netbench.config.plugins import GENERATORS, SINKS, plugins
from netbench.model.counts import StreamCounts
from netbench.model.packet import Packet, references
from netbench.model.packet_description import shipped_packets
from netbench.model.selftest_record import SelftestCheck
from netbench.model.traffic import PKTGEN_MAGIC
from netbench.model.trial import TrialResult
from netbench.packets.build import field_seed, smallest_frame
from netbench.packets.flow_values import values_of
from netbench.packets.scapy_layers import scapy_classes
from netbench.selftest.recount import capture_of
from netbench.selftest.trials import Tester, complaints
from netbench.statistics.totals import summed
from netbench.uut.base import ActiveGuest

_LEAST_BYTES = 128
_READ_FRAMES = 200  # of each capture, by scapy, which reads some thousand frames/s
_MAGIC = PKTGEN_MAGIC.to_bytes(4, "big")


def check_packets(uut: str, tester: Tester, active: ActiveGuest) -> Iterator[SelftestCheck]:
    """Send each shipped packet in one trial through a UUT that loses and changes nothing; check all frames."""
    kind = plugins(GENERATORS)[tester.generator.kind]
    generator = kind(kind.Options.model_validate(tester.generator.options))
    for packet in shipped_packets():
        reason = generator.unsupported_part(packet)
        if not plugins(SINKS)[tester.sink.kind].counts_packets:
            reason = f"the sink {tester.sink.kind} recognises plain frames only"
        if reason:
            yield SelftestCheck(name=f"packet {packet.name}", uut=uut, passed=None, detail=f"skipped: {reason}")
            continue
        pattern = replace(tester.modest(max(_LEAST_BYTES, smallest_frame(packet))), packet=packet)
        result = tester.measure(active, uut, pattern, keep=True)
        yield judge_packet(packet, uut, result, tester.captures)


def judge_packet(packet: Packet, uut: str, result: TrialResult, captures: Path) -> SelftestCheck:
    """Compare a trial with its packet: all frames arrived unchanged, and scapy reads the description in each."""
    sent = summed(result.streams, lambda counts: counts.sent.frames)
    lost, changed = summed(result.streams, lambda counts: counts.lost_frames), summed(result.streams, _changed)
    problems = [complaints(result)]
    read = 0
    for counts in result.streams:
        file = capture_of(counts, captures)
        for number, frame in enumerate(_frames(file) if file else ()):
            if number == _READ_FRAMES or (difference := difference_of(frame, packet, result.spec.frames.seed)):
                problems += [f"scapy reads {difference}"] if number < _READ_FRAMES else []
                break
            read += 1
    detail = "; ".join(filter(None, problems))
    measured = "unknown" if None in (lost, changed) else f"{lost:,} lost, {changed:,} changed"
    return SelftestCheck(
        name=f"packet {packet.name}: {packet.flows:,} flow{'s' if packet.flows > 1 else ''}",
        uut=uut,
        truth="0 lost, 0 changed",
        measured=f"{measured}, {read:,} read by scapy",
        error=f"{(lost or 0) + (changed or 0):,} frames",
        passed=bool(sent) and (lost, changed) == (0, 0) and not detail,
        detail=detail,
    )


def difference_of(frame: bytes, packet: Packet, seed: int) -> str:
    """Return where scapy's dissection of a frame differs from the packet's description, as a phrase; mostly empty.

    The values of varying fields are those of the frame's number. Control frames of the link, without pktgen's header,
    differ in nothing.
    """
    at = frame.find(_MAGIC)
    if at < 0:
        return ""
    flow = int.from_bytes(frame[at + 4 : at + 8]) % packet.flows
    varying = {
        field.ref: int(values_of(field.values, field_seed(seed, number))[_turn(packet, number, flow)])
        for number, field in enumerate(packet.vary)
    }
    layer = scapy_classes()["Ether"](frame)
    for reference, described in zip(references(packet.layers), packet.layers, strict=True):
        if type(layer).__name__ != described.name:
            return f"layer {type(layer).__name__} instead of {described.name}"
        expected: dict[str, object] = dict(described.fields)
        expected |= {ref.field: value for ref, value in varying.items() if ref._replace(field="") == reference}
        for field, value in expected.items():
            found = layer.getfieldval(field)
            if _number(found) % 2**64 != _number(value) % 2**64:
                return f"{reference._replace(field=field)} = {found} instead of {value}"
        layer = layer.payload
    return ""


def _changed(counts: StreamCounts) -> int | None:
    return counts.received.packet.changed_frames if counts.received.packet else None


def _turn(packet: Packet, number: int, flow: int) -> int:
    return flow // packet.frames_per_value(number) % packet.vary[number].values.count


def _number(value: object) -> int:
    """Return a value of a field as a number: addresses, too. Other text is a number by its bytes."""
    if isinstance(value, bytes):
        return int.from_bytes(value)
    if not isinstance(value, str):
        return int(value)  # type: ignore[call-overload, no-any-return]  # scapy's flags are numbers
    if value.count(":") == 5 and "::" not in value:
        return int(value.replace(":", ""), 16)
    try:
        return int(ip_address(value))
    except ValueError:
        return int.from_bytes(value.encode())


def _frames(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        for _, frame in dpkt.pcap.UniversalReader(opened):
            yield frame

"""Converts the traffic of a source to streams of TRex: template frames, field-engine programs, rates, start times.

The field engine writes the number of each frame (pktgen's header) and the bytes of its flow. It cannot write times:
these are 0. Each position in the genome of a mix becomes a separate stream of one size, which begins when its first
frame is due. Together the streams keep the order of the genome, and TRex counts each size separately. One core runs
all streams.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from lbr_trex_client.interactive.trex.stl.api import (
    STLFlowLatencyStats,
    STLFlowStats,
    STLPktBuilder,
    STLScVmRaw,
    STLStream,
    STLTXCont,
    STLTXSingleBurst,
    STLVmFlowVar,
    STLVmWrFlowVar,
)

from netbench.errors import UsageError
from netbench.generators.trex.trex_counts import Groups
from netbench.generators.trex.trex_package import BEGINS_LATER_S, MOST_VALUES
from netbench.model.frame_template import FrameTemplate
from netbench.model.traffic import Traffic
from netbench.model.units import l1_bits
from netbench.packets.flow_values import FlowBytes, checksums_of, flow_bytes

_NUMBERS = 1 << 32
_KEEP_DESTINATION = 1  # STLStreamDstMAC_PKT: the address in the template
# Streams at full speed begin this much after each other, which keeps them in order.
_APART_S = 1e-9
# Rounding must not make the shares exceed the port's rate in total: the server would reject that.
_NEARLY_ALL_PERCENT = 100 * (1 - 1e-9)


@dataclass(frozen=True, slots=True)
class _Part:
    """Frames of one size that become a stream of TRex: every `step`-th one from number `first` on."""

    first: int
    step: int
    size: int
    mode: object
    begins_s: float
    measures_delay: bool = False


def streams_of(traffic: Traffic, template: FrameTemplate, groups: Groups) -> list[Any]:
    """Return the streams of a trial, which must start together; TRex counts their frames in `groups`.

    UsageError for more flows than the field engine has room for, and for checksums that cover the number of the frame.
    """
    if template.complement_at is not None:
        raise UsageError(
            "generator trex: a checksum of this packet covers the frame's number, which its field engine does not "
            "compensate; send with afpacket or xdp, or use UDP over IPv4"
        )
    varying = flow_bytes(template)
    places = template.flows * len(traffic.frame_size.genome) * max(1, len(varying.words_at) + len(varying.sums_at))
    if template.flows > 1 and places > MOST_VALUES:
        raise UsageError(
            f"generator trex: {template.flows:,} flows of frames whose sizes repeat after "
            f"{len(traffic.frame_size.genome):,} take {places:,} places; its field engine has {MOST_VALUES:,}; "
            "let fewer fields vary, or send with another generator"
        )
    return [
        STLStream(
            name=str(place),
            packet=_packet(template, varying, part, numbered=not groups.delay_fps),
            mode=part.mode,
            isg=(BEGINS_LATER_S + part.begins_s) * 1e6,
            flow_stats=(
                STLFlowLatencyStats(pg_id=groups.of_delay)
                if part.measures_delay
                else STLFlowStats(pg_id=groups.of_size(part.size))
            ),
            mac_src_override_by_pkt=True,
            mac_dst_override_mode=_KEEP_DESTINATION,
        )
        for place, part in enumerate(_parts(traffic, groups.delay_fps))
    ]


def _parts(traffic: Traffic, delay_fps: float) -> Iterator[_Part]:
    if traffic.frames is None:
        yield from _unpaced(traffic, delay_fps)
        return
    first = traffic.first_frames
    if traffic.first_fps:
        yield from _paced(traffic, range(first), traffic.first_fps, 0.0, delay_fps)
    if traffic.frames > first:
        later = range(first, traffic.frames)
        yield from _paced(traffic, later, traffic.later_fps or 0.0, traffic.first_s, delay_fps)


def _paced(traffic: Traffic, numbers: range, fps: float, begins_s: float, delay_fps: float) -> Iterator[_Part]:
    """Yield a stream for each position in the genome, each starting one frame gap after the previous one.

    The stream of the first position is split so that `delay_fps` of its frames measure delay, or all if it has fewer.
    """
    genome = traffic.frame_size.genome
    step = len(genome)
    for offset, number in enumerate(numbers[:step]):
        frames, stream_fps = len(numbers[offset::step]), fps / step
        measuring = 0
        if delay_fps and offset == 0:
            measuring = min(frames, max(1, round(frames * delay_fps / stream_fps)))
        for count, measures_delay in ((measuring, True), (frames - measuring, False)):
            if count:
                mode = STLTXSingleBurst(total_pkts=count, pps=stream_fps * (count / frames))
                yield _Part(number, step, genome[number % step], mode, begins_s + offset / fps, measures_delay)


def _unpaced(traffic: Traffic, delay_fps: float) -> Iterator[_Part]:
    """Yield full-speed streams whose shares of the port's rate give all of them the same frame rate.

    Frames that measure delay are added, because the number of frames is unknown.
    """
    genome = traffic.frame_size.genome
    bits = [l1_bits(size) for size in genome]
    for number, size in enumerate(genome):
        mode = STLTXCont(percentage=_NEARLY_ALL_PERCENT * bits[number] / sum(bits))
        part = _Part(number, len(genome), size, mode, number * _APART_S)
        yield part
        if delay_fps and number == 0:
            yield replace(part, mode=STLTXCont(pps=delay_fps), measures_delay=True)


def _packet(template: FrameTemplate, varying: FlowBytes, part: _Part, *, numbered: bool) -> object:
    """Return the template frame with the program that writes its number and the bytes of its flow."""
    program: list[object] = []
    if numbered:
        # A multiple of the step: the server would round other ranges up, beyond 32 bits (handle_range_padding).
        numbers = _NUMBERS - _NUMBERS % part.step
        first = part.first % numbers
        program += [
            STLVmFlowVar(
                "number", init_value=first, min_value=0, max_value=numbers - 1, size=4, op="inc", step=part.step
            ),
            STLVmWrFlowVar("number", template.sequence_at),
        ]
    frame = template.frames[part.size]
    if template.flows > 1:
        flows = template.flows // gcd(template.flows, part.step)
        in_turn = [(part.first + turn * part.step) % template.flows for turn in range(flows)]
        lists = [(at, 4, varying.words[:, number].view(">u4")) for number, at in enumerate(varying.words_at)]
        lists += [(at, 2, sums) for at, sums in zip(varying.sums_at, checksums_of(varying, frame).T, strict=True)]
        for at, size, values in lists:
            name = f"at {at}"
            program += [
                STLVmFlowVar(name, value_list=values[in_turn].tolist(), size=size, op="inc"),
                STLVmWrFlowVar(name, at),
            ]
    return STLPktBuilder(pkt_buffer=frame, vm=STLScVmRaw(program) if program else None)

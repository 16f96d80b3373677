"""Converts the traffic of a source to streams of TRex: template frames, field-engine programs, rates, start times.

The field engine writes the number of each frame (pktgen's header) and the ports of its flow. It cannot write times:
these are 0. Each position in the genome of a mix becomes a separate stream of one size, which begins when its first
frame is due. Together the streams keep the order of the genome, and TRex counts each size separately. One core runs
all streams.
"""

from collections.abc import Iterator
from dataclasses import dataclass
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
from netbench.generators.frame_template import FrameTemplate
from netbench.generators.frames import flow_ports
from netbench.generators.trex.trex_counts import Groups
from netbench.generators.trex.trex_package import BEGINS_LATER_S
from netbench.model.frame_mix import genome_of
from netbench.model.traffic import Traffic
from netbench.model.units import l1_bits

_NUMBERS = 1 << 32
_MOST_VALUES = 0xFFFF  # in all lists of the field engine together; a single list may have as many
_KEEP_DESTINATION = 1  # STLStreamDstMAC_PKT: the address in the template
# Streams at full speed begin this much after each other, which keeps them in order.
_APART_S = 1e-9
# Rounding must not make the shares exceed the port's rate in total: the server would reject that.
_NEARLY_ALL_PERCENT = 100 * (1 - 1e-9)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Consecutive frames at one rate; `frames` and `fps` are None for as many as possible."""

    first: int
    frames: int | None
    fps: float | None
    begins_s: float


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

    UsageError for more flows than the field engine has room for.
    """
    places = traffic.flows * len(genome_of(traffic.frame_size))
    if traffic.flows > 1 and places > _MOST_VALUES:
        raise UsageError(
            f"generator trex: {traffic.flows:,} flows of frames whose sizes repeat after "
            f"{len(genome_of(traffic.frame_size)):,} take {places:,} places; its field engine has {_MOST_VALUES:,}; "
            "set flows to less, or send with another generator"
        )
    return [
        STLStream(
            name=str(place),
            packet=_packet(traffic, template, part, numbered=not groups.delay_fps),
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
    for stretch in _stretches(traffic):
        parts = list(_paced(traffic, stretch) if stretch.fps else _unpaced(traffic))
        if delay_fps:
            yield from _with_delay(parts[0], stretch, len(genome_of(traffic.frame_size)), delay_fps)
            del parts[0]
        yield from parts


def _stretches(traffic: Traffic) -> Iterator[_Stretch]:
    if traffic.frames is None:
        yield _Stretch(0, None, None, 0.0)
        return
    if traffic.first_frames:
        yield _Stretch(0, traffic.first_frames, traffic.first_fps, 0.0)
    if traffic.frames > traffic.first_frames:
        later = traffic.frames - traffic.first_frames
        yield _Stretch(traffic.first_frames, later, traffic.later_fps, traffic.first_s)


def _paced(traffic: Traffic, stretch: _Stretch) -> Iterator[_Part]:
    """Yield a stream for each position in the genome, each starting one frame gap after the previous one."""
    genome, fps, frames = genome_of(traffic.frame_size), stretch.fps or 0.0, stretch.frames or 0
    step = len(genome)
    for offset in range(min(step, frames)):
        number = stretch.first + offset
        mode = STLTXSingleBurst(total_pkts=-(-(frames - offset) // step), pps=fps / step)
        yield _Part(number, step, genome[number % step], mode, stretch.begins_s + offset / fps)


def _unpaced(traffic: Traffic) -> Iterator[_Part]:
    """Yield full-speed streams whose shares of the port's rate give all of them the same frame rate."""
    genome = genome_of(traffic.frame_size)
    bits = [l1_bits(size) for size in genome]
    for number, size in enumerate(genome):
        mode = STLTXCont(percentage=_NEARLY_ALL_PERCENT * bits[number] / sum(bits))
        yield _Part(number, len(genome), size, mode, number * _APART_S)


def _with_delay(part: _Part, stretch: _Stretch, step: int, delay_fps: float) -> Iterator[_Part]:
    """Yield the same frames split so that `delay_fps` of them measure delay, or all where there are fewer.

    Without a rate, the measuring frames are added, because the number of frames is unknown.
    """
    if stretch.frames is None or stretch.fps is None:
        yield part
        yield _Part(part.first, step, part.size, STLTXCont(pps=delay_fps), part.begins_s, measures_delay=True)
        return
    frames, fps = -(-stretch.frames // step), stretch.fps / step
    measuring = min(frames, max(1, round(frames * delay_fps / fps)))
    for count, measures in ((measuring, True), (frames - measuring, False)):
        if count:
            mode = STLTXSingleBurst(total_pkts=count, pps=fps * count / frames)
            yield _Part(part.first, step, part.size, mode, part.begins_s, measures_delay=measures)


def _packet(traffic: Traffic, template: FrameTemplate, part: _Part, *, numbered: bool) -> object:
    """Return the template frame with the program that writes its number and the ports of its flow."""
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
    if traffic.flows > 1:
        words = [
            int(source) << 16 | int(destination) for source, destination in flow_ports(traffic.flows, traffic.seed)
        ]
        turns = len(words) // gcd(len(words), part.step)
        in_turn = [words[(part.first + turn * part.step) % len(words)] for turn in range(turns)]
        program += [
            STLVmFlowVar("ports", value_list=in_turn, size=4, op="inc"),
            STLVmWrFlowVar("ports", template.ports_at),
        ]
    return STLPktBuilder(pkt_buffer=template.frames[part.size], vm=STLScVmRaw(program) if program else None)

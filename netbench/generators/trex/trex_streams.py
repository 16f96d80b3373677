"""From what a source is to send to streams of TRex: template frames, field-engine programs, rates.

The field engine numbers the frames (pktgen's header), gives each the ports of its flow, and each frame of a mix its
size. It cannot write times: these are 0. One core runs a stream, as several would each number frames of their own.
"""

from collections.abc import Iterator
from typing import Any

from lbr_trex_client.interactive.trex.stl.api import (
    STLFlowStats,
    STLPktBuilder,
    STLScVmRaw,
    STLStream,
    STLTXCont,
    STLTXSingleBurst,
    STLVmFixIpv4,
    STLVmFlowVar,
    STLVmTrimPktSize,
    STLVmWrFlowVar,
)

from netbench.errors import UsageError
from netbench.generators.frames import IPV4_OFFSET, PKTGEN_OFFSET, UDP_OFFSET, build_frame, flow_ports
from netbench.model.frame_mix import genome_of, largest_bytes
from netbench.model.traffic import Traffic
from netbench.model.units import FCS_BYTES

_NUMBERS = 1 << 32
_LENGTH_OFFSET = IPV4_OFFSET + 2  # total length, RFC 791, section 3.1
_UDP_LENGTH_OFFSET = UDP_OFFSET + 4  # RFC 768
_MOST_VALUES = 0xFFFF  # of a list of the field engine
_KEEP_DESTINATION = 1  # STLStreamDstMAC_PKT: the address that the template has


def streams_of(traffic: Traffic, group: int) -> list[Any]:
    """The streams of a trial, each of which starts the next; TRex counts their frames together as those of `group`.

    UsageError for more flows than the field engine has places for.
    """
    if traffic.flows > _MOST_VALUES:
        raise UsageError(
            f"generator trex: {traffic.flows:,} flows, and its field engine has places for {_MOST_VALUES:,}; "
            "set flows to less, or send with another generator"
        )
    modes = list(_modes(traffic))
    return [
        STLStream(
            name=str(place),
            packet=_packet(traffic, first),
            mode=mode,
            self_start=place == 0,
            next=str(place + 1) if place + 1 < len(modes) else None,
            flow_stats=STLFlowStats(pg_id=group),
            mac_src_override_by_pkt=True,
            mac_dst_override_mode=_KEEP_DESTINATION,
        )
        for place, (first, mode) in enumerate(modes)
    ]


def _modes(traffic: Traffic) -> Iterator[tuple[int, Any]]:
    """The number of the first frame of each stretch with a rate of its own, and how that is sent."""
    if traffic.frames is None:
        yield 0, STLTXCont(percentage=100)
        return
    if traffic.first_frames:
        yield 0, STLTXSingleBurst(total_pkts=traffic.first_frames, pps=traffic.first_fps)
    if traffic.frames > traffic.first_frames:
        later = traffic.frames - traffic.first_frames
        yield traffic.first_frames, STLTXSingleBurst(total_pkts=later, pps=traffic.later_fps)


def _packet(traffic: Traffic, first: int) -> object:
    """The template, and what is written to each frame from number `first` on."""
    genome = genome_of(traffic.frame_size)
    template = build_frame(traffic, largest_bytes(traffic.frame_size))
    program = [
        STLVmFlowVar("number", init_value=first % _NUMBERS, min_value=0, max_value=_NUMBERS - 1, size=4, op="inc"),
        STLVmWrFlowVar("number", PKTGEN_OFFSET + 4),
    ]
    if traffic.flows > 1:
        words = [
            int(source) << 16 | int(destination) for source, destination in flow_ports(traffic.flows, traffic.seed)
        ]
        program += [
            STLVmFlowVar("ports", value_list=_from(words, first), size=4, op="inc"),
            STLVmWrFlowVar("ports", UDP_OFFSET),
        ]
    if len(set(genome)) > 1:
        sizes = [size - FCS_BYTES for size in genome]
        program += [
            STLVmFlowVar("size", value_list=_from(sizes, first), size=2, op="inc"),
            STLVmTrimPktSize("size"),
            STLVmWrFlowVar("size", _LENGTH_OFFSET, add_val=-IPV4_OFFSET),
            STLVmWrFlowVar("size", _UDP_LENGTH_OFFSET, add_val=-UDP_OFFSET),
            STLVmFixIpv4(offset=IPV4_OFFSET),
        ]
    return STLPktBuilder(pkt_buffer=template, vm=STLScVmRaw(program))


def _from(values: list[int], first: int) -> list[int]:
    """The same values in turn, from that of frame number `first` on."""
    start = first % len(values)
    return values[start:] + values[:start]

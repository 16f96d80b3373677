"""Test frames as dpkt, an independent implementation, reads them."""

import json
import socket
import struct
import subprocess
import sys

import dpkt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.generators.frames import FrameBlock
from netbench.model.frame_size import FrameSize, parse_frame_size
from netbench.model.frame_template import FrameTemplate
from netbench.model.traffic import Traffic
from netbench.packets.build import build_template
from netbench.packets.flow_values import flow_bytes, values_of
from tests.unit.inputs import flow_ports


def traffic(frame_size: int | FrameSize = 64, flows: int = 1, seed: int = 0) -> Traffic:
    macs, ips = ("02:aa:00:00:00:01", "02:bb:00:00:00:02"), ("198.18.0.1", "198.19.255.254")
    return Traffic("s1", *macs, *ips, parse_frame_size(frame_size), None, 1.0, flows, seed)


def test_frames_are_the_same_bytes_in_every_version():
    head = "02bb0000000202aa0000000108004500"
    paced = "c6120001c613fffe", "be9be955" + 12 * "00"
    one = build_template(traffic(64)).frames[64].hex()
    assert one == head + f"002e000000004011ee99{paced[0]}00090009001a0000{paced[1]}0000"
    many = build_template(traffic(128, flows=3, seed=1)).frames[128].hex()
    assert many == head + f"006e000000004011ee59{paced[0]}7401c987005a0000{paced[1]}".ljust(2 * 124 - 32, "0")


def test_a_template_reaches_workers_as_json_with_the_fields_that_vary():
    template = build_template(traffic(FrameSize("two", (64, 64, 128)), flows=2))
    assert FrameTemplate.from_json(json.loads(json.dumps(template.to_json()))) == template
    assert list(map(len, template.frames.values())) == [60, 124]
    assert (flow_bytes(template).words_at, template.sequence_at, template.time_at) == ((34,), 46, 50)


def test_workers_and_the_command_line_start_without_scapy():
    """It takes as long to import as all the rest, and hosts of workers lack it."""
    modules = (
        "netbench.cli.main",
        "netbench.generators.afpacket.afpacket_worker",
        "netbench.generators.xdp.xdp_worker",
        "netbench.sinks.bpf_worker",
        "netbench.config.plugins",
    )
    program = (
        f"import sys, {', '.join(modules)}; netbench.config.plugins.profile_kinds(); print('scapy' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
    )


def block(of: Traffic, capacity: int) -> FrameBlock:
    return FrameBlock(of, capacity, build_template(of))


def ports_of(frame: bytes) -> list[int]:
    udp = dpkt.ethernet.Ethernet(frame).data.data
    return [udp.sport, udp.dport]


def pktgen_header(frame: bytes) -> tuple[int, int, int, int]:
    magic, sequence, seconds, microseconds = struct.unpack("!IIII", dpkt.ethernet.Ethernet(frame).data.data.data[:16])
    return magic, sequence, seconds, microseconds


@pytest.mark.parametrize("frame_size", [64, 65, 128, 594, 1518, 9018])
def test_a_frame_is_well_formed(frame_size):
    frame = build_template(traffic(frame_size)).frames[frame_size]

    assert len(frame) == frame_size - 4
    packet = dpkt.ethernet.Ethernet(frame)
    assert (packet.src.hex(":"), packet.dst.hex(":")) == ("02:aa:00:00:00:01", "02:bb:00:00:00:02")
    ip, udp = packet.data, packet.data.data
    assert (socket.inet_ntoa(ip.src), socket.inet_ntoa(ip.dst)) == ("198.18.0.1", "198.19.255.254")
    assert (ip.v, ip.hl, ip.p, ip.ttl, ip.id, ip.df, ip.mf, ip.len) == (4, 5, 17, 64, 0, 0, 0, frame_size - 18)
    assert dpkt.in_cksum(frame[14:34]) == 0, "the header checksum is valid"
    assert (udp.ulen, udp.sum) == (ip.len - 20, 0)
    assert pktgen_header(frame) == (0xBE9BE955, 0, 0, 0)
    assert not any(udp.data[16:])


def test_one_flow_uses_port_9_for_both_as_pktgen_does():
    assert ports_of(build_template(traffic(flows=1, seed=5)).frames[64]) == [9, 9]


@given(flows=st.integers(2, 3000), seed=st.integers(0, 2**64))
def test_flows_are_distinct_pairs_from_the_allowed_ports(flows, seed):
    ports = np.array(flow_ports(flows, seed))

    assert ports.shape == (flows, 2)
    assert len({tuple(pair) for pair in ports.tolist()}) == flows
    assert ports.min() >= 1024


def test_flows_follow_from_the_seed_and_nothing_else():
    first = flow_ports(100, 7)
    values_of.cache_clear()
    assert flow_ports(100, 7) == first
    assert flow_ports(100, 8) != first
    # Results of earlier campaigns can only be repeated as long as this holds.
    assert flow_ports(3, 1) == [[29697, 51591], [63111, 51889], [23296, 38899]]


def test_ports_are_spread_over_the_whole_range():
    ports = np.array(flow_ports(20_000, 3))
    for column in ports.T:
        counts, _ = np.histogram(column, bins=16, range=(1024, 65536))
        assert counts.min() > 1000  # 1250 expected in each sixteenth, standard deviation 34
    assert abs(np.corrcoef(ports[:, 0], ports[:, 1])[0, 1]) < 0.05


@pytest.mark.parametrize("first", [0, 1_000_003, 2**32 - 2, 2**32, 2**40 + 5])
def test_a_stamp_numbers_times_and_assigns_flows(first):
    """The sequence wraps at 32 bits, and flows go on."""
    frames = block(traffic(frame_size=128, flows=7, seed=2), capacity=16)
    frames.stamp(first, count=16, time_ns=1_700_000_001_234_567_899)

    ports = flow_ports(7, 2)
    for number, frame in enumerate(frames.buffer, start=first):
        assert pktgen_header(frame.tobytes()) == (0xBE9BE955, number % 2**32, 1_700_000_001, 234_567)
        assert ports_of(frame.tobytes()) == ports[number % 7]


def test_a_stamp_changes_only_the_frames_it_counts_and_only_their_own_fields():
    frames = block(traffic(frame_size=300, flows=3), capacity=8)
    before = frames.buffer.copy()
    frames.stamp(first=50, count=3, time_ns=1_700_000_001_234_567_899)

    assert (frames.buffer[3:] == before[3:]).all()
    changed = np.flatnonzero((frames.buffer != before).any(axis=0))
    assert set(changed.tolist()) <= {*range(34, 38), *range(46, 58)}

"""Frames as scapy, an independent implementation, reads them."""

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from netbench.generators.frames import FrameBlock, build_frame, flow_ports
from netbench.model.traffic import Traffic


def traffic(frame_size: int = 64, flows: int = 1, seed: int = 0) -> Traffic:
    macs, ips = ("02:aa:00:00:00:01", "02:bb:00:00:00:02"), ("198.18.0.1", "198.19.255.254")
    return Traffic("s1", *macs, *ips, frame_size, None, 1.0, flows, seed)


def pktgen_header(frame: bytes) -> tuple[int, int, int, int]:
    magic, sequence, seconds, microseconds = struct.unpack("!IIII", bytes(Ether(frame)[UDP].payload)[:16])
    return magic, sequence, seconds, microseconds


def test_every_size_is_a_well_formed_frame():
    for frame_size in range(64, 1519):
        frame = build_frame(traffic(frame_size))

        assert len(frame) == frame_size - 4
        packet = Ether(frame)
        assert (packet.src, packet.dst, packet.type) == ("02:aa:00:00:00:01", "02:bb:00:00:00:02", 0x0800)
        assert (packet[IP].src, packet[IP].dst) == ("198.18.0.1", "198.19.255.254")
        assert (packet[IP].version, packet[IP].ihl, packet[IP].proto) == (4, 5, 17)
        assert (packet[IP].ttl, packet[IP].id, packet[IP].frag, int(packet[IP].flags)) == (64, 0, 0, 0)
        assert packet[IP].len == frame_size - 4 - 14
        assert packet[UDP].len == frame_size - 4 - 14 - 20
        assert packet[UDP].chksum == 0
        assert pktgen_header(frame) == (0xBE9BE955, 0, 0, 0)
        assert not any(bytes(packet[UDP].payload)[16:])


@given(
    source=st.ip_addresses(v=4).map(str),
    destination=st.ip_addresses(v=4).map(str),
    frame_size=st.integers(64, 1518),
)
def test_ip_header_checksum_is_what_scapy_computes(source, destination, frame_size):
    packet = Ether(build_frame(replace(traffic(frame_size), src_ip=source, dst_ip=destination)))

    written = packet[IP].chksum
    del packet[IP].chksum
    assert written == Ether(packet.build())[IP].chksum


def test_one_flow_uses_port_9_for_both_as_pktgen_does():
    packet = Ether(build_frame(traffic(flows=1, seed=5)))
    assert (packet[UDP].sport, packet[UDP].dport) == (9, 9)


@given(flows=st.integers(2, 3000), seed=st.integers(0, 2**64))
def test_flows_are_distinct_pairs_from_the_allowed_ports(flows, seed):
    ports = flow_ports(flows, seed)

    assert ports.shape == (flows, 2)
    assert len({tuple(pair) for pair in ports.tolist()}) == flows
    assert ports.min() >= 1024


def test_flows_follow_from_the_seed_and_nothing_else():
    first = flow_ports(100, 7).tolist()
    flow_ports.cache_clear()
    assert flow_ports(100, 7).tolist() == first
    assert flow_ports(100, 8).tolist() != first
    # Results of earlier campaigns can only be repeated as long as this holds.
    assert flow_ports(3, 1).tolist() == [[9829, 38327], [56561, 53601], [51078, 5159]]


def test_ports_are_spread_over_the_whole_range():
    ports = flow_ports(20_000, 3)
    for column in ports.T:
        counts, _ = np.histogram(column, bins=16, range=(1024, 65536))
        assert counts.min() > 1000  # 1250 expected in each sixteenth, standard deviation 34
    assert abs(np.corrcoef(ports[:, 0], ports[:, 1])[0, 1]) < 0.05


@pytest.mark.parametrize("first", [0, 1_000_003, 2**32 - 2, 2**32, 2**40 + 5])
def test_a_stamp_numbers_times_and_assigns_flows(first):
    """The sequence wraps at 32 bits, and flows go on."""
    frames = FrameBlock(traffic(frame_size=128, flows=7, seed=2), capacity=16)
    frames.stamp(first, count=16, time_ns=1_700_000_001_234_567_899)

    ports = flow_ports(7, 2).tolist()
    for number, frame in enumerate(frames.buffer, start=first):
        packet = Ether(frame.tobytes())
        assert pktgen_header(frame.tobytes()) == (0xBE9BE955, number % 2**32, 1_700_000_001, 234_567)
        assert [packet[UDP].sport, packet[UDP].dport] == ports[number % 7]


def test_a_stamp_changes_only_the_frames_it_counts_and_only_their_own_fields():
    frames = FrameBlock(traffic(frame_size=300, flows=3), capacity=8)
    before = frames.buffer.copy()
    frames.stamp(first=50, count=3, time_ns=1_700_000_001_234_567_899)

    assert (frames.buffer[3:] == before[3:]).all()
    changed = np.flatnonzero((frames.buffer != before).any(axis=0))
    assert set(changed.tolist()) <= {*range(34, 38), *range(46, 58)}

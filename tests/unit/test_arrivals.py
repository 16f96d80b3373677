"""How probes arrive that their sink does not count, as printed by the witness at its interface."""

import struct

import pytest

from netbench.model.frame_size import FrameSize
from netbench.model.stream_paths import stream_paths
from netbench.model.traffic import Sent, Traffic
from netbench.packets.build import build_template
from netbench.sinks.witness import length_and_tag
from netbench.trial.arrivals import Arrival, summary
from tests.unit.fakes import fake_ports

(PATH,) = stream_paths(fake_ports())
SRC, DST = "02:00:00:00:00:01", "02:00:00:00:00:02"
TRAFFIC = Traffic("s1", SRC, DST, PATH.src_ip, PATH.dst_ip, FrameSize.of(64), 100.0, 0.03, 1, 1)
SENT = Sent(3, 0, 0.03, 1_700_000_000 * 10**9, 1_700_000_000 * 10**9, 1, 0.0)
FRAME = build_template(TRAFFIC).frames[64]
FRAME = FRAME[:46] + struct.pack(">III", 2, 1_700_000_000, 5) + FRAME[58:]
Q100, PRIORITY = b"\x81\0\0\x64", b"\x81\0\xe0\0"


def arrival(frame: bytes, taken: str = "-") -> Arrival:
    """Return the frame as the witness prints it, whose kernel has removed a tag from it."""
    return Arrival.of(f"{len(frame)} {taken} {frame[:128].hex()}")


def tagged(tags: bytes) -> bytes:
    return FRAME[:12] + tags + FRAME[12:]


def with_ip(at: int, value: bytes) -> bytes:
    return FRAME[: 14 + at] + value + FRAME[14 + at + len(value) :]


@pytest.mark.parametrize(
    ("arrived", "expected"),
    [
        (arrival(FRAME), ""),
        (arrival(tagged(Q100)), "with VLAN 100, 68 bytes"),
        (arrival(FRAME, "81000064"), "with VLAN 100, 68 bytes"),
        (arrival(tagged(b"\x88\xa8\0\x05" + Q100)), "with VLAN 5 (802.1ad), VLAN 100, 72 bytes"),
        (arrival(tagged(Q100), "88a80005"), "with VLAN 5 (802.1ad), VLAN 100, 72 bytes"),
        (arrival(tagged(Q100 * 3)), "with VLAN 100, VLAN 100, VLAN 100, 76 bytes"),
        (arrival(tagged(PRIORITY)), "with a priority tag (VLAN 0, priority 7), 68 bytes"),
        (arrival(FRAME, "8100e000"), "with a priority tag (VLAN 0, priority 7), 68 bytes"),
        (arrival(FRAME + bytes(40)), "with 104 bytes"),
        (arrival(FRAME[:40]), "with 44 bytes, no pktgen header"),
        (arrival(FRAME[:12] + b"\x88\x47\0\0\x11\x40" + FRAME[14:]), "with 68 bytes, EtherType 0x8847"),
        (arrival(with_ip(8, b"\x3f")), "with TTL 63"),
        (arrival(with_ip(1, b"\xb8")), "with DSCP 46, ECN 0"),
        (arrival(with_ip(32, b"\0\0\1\0")), "with other sequence numbers"),
        (arrival(with_ip(36, bytes(8))), "with other time stamps"),
        (arrival(with_ip(12, FRAME[26:29] + b"\x63")[:46] + bytes(12) + FRAME[58:]), ""),  # of an earlier probe
        (arrival(with_ip(9, b"\x06")), "with IP protocol 6"),
        (arrival(with_ip(12, b"\x0a\0\0\1")), "with source address 10.0.0.1"),
        (arrival(with_ip(16, b"\x0a\0\0\1")), "with destination address 10.0.0.1"),
        (
            arrival(b"\2" + bytes(4) + b"\7" + b"\2" + bytes(4) + b"\x09" + FRAME[12:]),
            "with source MAC address 02:00:00:00:00:09, destination MAC address 02:00:00:00:00:07",
        ),
        (arrival(FRAME[:12].ljust(60, b"\0")), ""),  # no frame of the stream
    ],
)
def test_how_a_probe_differs_from_what_was_sent(arrived, expected):
    assert summary([arrived], PATH, TRAFFIC, SENT) == expected


def test_each_kind_of_change_is_reported_once():
    arrived = [arrival(tagged(Q100)), arrival(FRAME, "81000064"), arrival(tagged(PRIORITY)), arrival(FRAME)]
    expected = "with VLAN 100, 68 bytes; others with a priority tag (VLAN 0, priority 7), 68 bytes"
    assert summary(arrived, PATH, TRAFFIC, SENT) == expected


@pytest.mark.parametrize(
    ("status", "expected"), [(0, (60, "-")), (1 << 4, (60, "81000005")), (1 << 4 | 1 << 6, (60, "88a80005"))]
)
def test_the_tag_that_the_kernel_took_from_a_frame(status, expected):
    assert length_and_tag(struct.pack("=IIIHHHH", status, 60, 60, 0, 14, 5, 0x88A8)) == expected


def test_what_is_no_line_of_the_witness_is_refused():
    with pytest.raises(ValueError, match="not enough values"):
        Arrival.of("60 -")

"""Described packets of the source `xdp`: each byte is compared with numpy's, and each checksum with scapy's."""

import ctypes
import re
import signal
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import dpkt
import numpy as np
import numpy.typing as npt
import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest
from scapy.layers.l2 import Ether
from scapy.packet import Packet as ScapyPacket

from netbench.bpf.libbpf import _RunOptions, libbpf
from netbench.generators.worker_source import WorkerSource
from netbench.generators.xdp.xdp_trial import XdpTrial
from netbench.generators.xdp.xdp_worker import LoadedSource
from netbench.hosts.base import Process
from netbench.hosts.clock import wait_until
from netbench.model.frame_size import FCS_BYTES, FrameSize
from netbench.model.frame_template import FrameTemplate
from netbench.model.packet import FieldRef, Layer, ListedValues, Packet, RandomValues, SteppedValues, VaryingField
from netbench.model.traffic import Sent, Traffic
from netbench.packets.build import build_template
from netbench.packets.flow_values import FlowBytes, checksums_of, flow_bytes, value_numbers, values_of
from tests.netns.test_afpacket import SOON_NS, Lab, lab, opened, traffic

pytestmark = pytest.mark.root

__all__ = ["lab", "opened"]  # fixtures

XDP_REDIRECT = 4  # linux/bpf.h
ATTEMPTS = 5
MIX = FrameSize("mix", (128, 594, 128, 1518))
ETHER, IP4, IP6, DISCARD = Layer("Ether"), Layer("IP", (("id", 0),)), Layer("IPv6"), Layer("UDP")
CHECKED = Layer("UDP", (("chksum", None),))  # scapy computes it
SCAPY_CHECKSUMS = {IP: "chksum", UDP: "chksum", TCP: "chksum", ICMP: "chksum", ICMPv6EchoRequest: "cksum"}
SOURCES, PORTS = SteppedValues(0xC6120101, 1, 3000), RandomValues(1024, 65535, 3000)
VLANS, MACS = ListedValues((10, 20, 4000)), RandomValues(0x020000000000, 0x02FFFFFFFFFF, 3000)
LOW64 = SteppedValues(0xFFFF_FFFF_FFFF_F000, 7, 3000)
LONG = tuple(Layer("MPLS", (("label", label),)) for label in range(16, 36))


def vary(**values: SteppedValues | RandomValues | ListedValues) -> tuple[VaryingField, ...]:
    """Return fields that vary, by names like `IP_src` or, of the second IP header, `IP_src_2`."""
    fields = []
    for name, of_field in values.items():
        layer, field, occurrence = [*name.split("_"), "1"][:3]
        fields.append(VaryingField(FieldRef(layer, field, int(occurrence)), of_field))
    return tuple(fields)


def packet(*layers: Layer, combined: bool = False, **values: SteppedValues | RandomValues | ListedValues) -> Packet:
    return Packet("test", layers, vary(**values), combined)


PACKETS: dict[str, tuple[Packet, int | FrameSize]] = {
    "plain": (packet(ETHER, IP4, DISCARD), 64),
    "ports": (packet(ETHER, IP4, DISCARD, UDP_sport=PORTS, UDP_dport=PORTS), 64),
    "checksums": (packet(ETHER, IP4, CHECKED, IP_src=SOURCES, IP_dst=SOURCES, UDP_sport=PORTS, UDP_dport=PORTS), 64),
    "mix": (packet(ETHER, IP4, CHECKED, IP_src=SOURCES, UDP_sport=PORTS), MIX),
    "macs": (packet(ETHER, Ether_src=MACS, Ether_dst=MACS), 64),
    "bits": (packet(ETHER, IP4, CHECKED, IP_tos=SteppedValues(0, 1, 256), IP_ttl=SteppedValues(2, 1, 200)), 65),
    "combined": (
        packet(ETHER, IP4, CHECKED, combined=True, UDP_dport=SteppedValues(1, 1, 50), IP_src=SteppedValues(1, 256, 60)),
        64,
    ),
    "qinq": (
        packet(ETHER, Layer("Dot1AD"), Layer("Dot1Q"), IP6, DISCARD, Dot1Q_vlan=VLANS, IPv6_src=LOW64, IPv6_fl=SOURCES),
        1518,
    ),
    "tcp": (packet(ETHER, IP6, Layer("TCP"), IPv6_dst=LOW64, TCP_seq=SOURCES, TCP_sport=PORTS), MIX),
    "icmp": (packet(ETHER, IP4, Layer("ICMP"), ICMP_id=PORTS, IP_src=SOURCES), 128),
    "icmpv6": (packet(ETHER, IP6, Layer("ICMPv6EchoRequest"), ICMPv6EchoRequest_id=PORTS, IPv6_src=LOW64), 128),
    "vxlan": (
        packet(
            *(ETHER, IP4, Layer("UDP", (("dport", 4789),)), Layer("VXLAN"), ETHER, IP4, CHECKED),
            UDP_sport=PORTS,
            VXLAN_vni=PORTS,
            IP_src_2=SOURCES,
            UDP_dport_2=PORTS,
            Ether_dst_2=MACS,
        ),
        MIX,
    ),
    "vxlan over IPv6": (
        packet(
            *(ETHER, IP6, Layer("UDP", (("dport", 4789),)), Layer("VXLAN"), ETHER, IP4, CHECKED),
            UDP_sport=PORTS,
            IPv6_dst=LOW64,
            IP_src=SOURCES,
            UDP_dport_2=PORTS,
        ),
        256,
    ),
    "ip in ip": (
        packet(
            *(ETHER, IP4, IP4, IP4, CHECKED),
            IP_src=SOURCES,
            IP_src_2=SOURCES,
            IP_src_3=SOURCES,
            UDP_sport=PORTS,
            Ether_src=MACS,
        ),
        256,
    ),
    "longest headers": (packet(ETHER, *LONG, IP6, DISCARD, IPv6_src=LOW64, UDP_sport=PORTS, MPLS_label=PORTS), 512),
}


def expected_frames(
    template: FrameTemplate, found: FlowBytes, sizes: Sequence[int], arrived: list[bytes]
) -> list[bytes]:
    """Return the frames with the sequence numbers and times of those that arrived."""
    rows = {size: np.frombuffer(frame, np.uint8).copy() for size, frame in template.frames.items()}
    sums = {size: checksums_of(found, frame) for size, frame in template.frames.items()}
    expected = []
    for frame in arrived:
        varying = frame[template.sequence_at : template.payload_at + 16]
        sequence = int.from_bytes(varying[:4])
        size, flow = sizes[sequence % len(sizes)], sequence % template.flows
        row = rows[size]
        row[template.sequence_at : template.payload_at + 16] = np.frombuffer(varying, np.uint8)
        if template.complement_at is not None:
            halves = np.frombuffer(varying, ">u2").sum(dtype=np.uint64)
            complement = 0xFFFE - (int(halves) - 1) % 0xFFFF  # a sum that is not 0 has carries down to 1 to 0xFFFF
            row[template.complement_at :][:2] = np.frombuffer(complement.to_bytes(2), np.uint8)
        for at, word in zip(found.words_at, found.words[flow], strict=True):
            row[at : at + 4] = np.frombuffer(word.tobytes(), np.uint8)
        for at, checksum in zip(found.sums_at, sums[size][flow], strict=True):
            row[at : at + 2] = np.frombuffer(int(checksum).to_bytes(2), np.uint8)
        expected.append(row.tobytes())
    return expected


def check_fields(template: FrameTemplate, arrived: list[bytes]) -> None:
    """Read each varying field where it is, as a number, and compare it with the values that it should have in turn."""
    for varying in template.varying:
        place = varying.place
        assert place is not None
        values = values_of(varying.values, varying.seed)
        for frame in arrived:
            flow = np.array([int.from_bytes(frame[template.sequence_at :][:4]) % template.flows])
            field = (int.from_bytes(frame[place.at :][: place.size]) & place.mask) >> place.shift
            wanted = int(values[value_numbers(varying, flow)][0]) & (place.mask >> place.shift)
            assert field & (2**64 - 1) == wanted, (varying.name, int(flow[0]))


def check_checksums(frames: list[bytes]) -> None:
    """Let scapy compute all checksums anew."""
    for frame in frames:
        layer: ScapyPacket = Ether(frame)
        anew = layer
        while layer:
            field = SCAPY_CHECKSUMS.get(type(layer), "")
            if field and layer.getfieldval(field):  # 0 is none
                layer.delfieldval(field)
            layer = layer.payload
        assert bytes(anew) == frame, Ether(frame).show(dump=True)


def send(lab: Lab, source: WorkerSource, what: Traffic, path: Path) -> tuple[Sent, list[bytes]]:
    """Return the report of a trial, and the frames that arrived."""
    options = f"-Z root -n -B 262144 -Q in -s 2000 -i rx0 -w {path}"
    process = lab.spawn(["tcpdump", *options.split()])
    assert "listening on" in process.stderr.readline()
    before = {counter: lab.tx(counter) for counter in ("packets", "dropped", "bytes")}
    source.prepare(what)
    source.start(time.monotonic_ns() + SOON_NS)
    sent = source.wait(30.0)
    assert sent.error == ""
    counted = {counter: lab.tx(counter) - start for counter, start in before.items()}
    assert counted["packets"] + counted["dropped"] == sent.frames, "received, or without room in the ring"
    assert wait_until(lambda: written(process, path) == 24 + 16 * counted["packets"] + counted["bytes"], 20)
    process.send_signal(signal.SIGINT)
    _, report = process.communicate()
    assert re.search(r"^0 packets dropped by kernel", report, re.MULTILINE), report
    with path.open("rb") as file:
        arrived = [frame for _, frame in dpkt.pcap.Reader(file)]
    assert len(arrived) == counted["packets"]
    return sent, arrived


def send_all(lab: Lab, source: WorkerSource, what: Traffic, path: Path) -> list[bytes]:
    """Return the frames that arrived in a trial in which the ring of the link had room for all of them.

    It has room for 256 frames, and overflows where this machine stalls the receiver; such a trial is repeated.
    """
    for _ in range(ATTEMPTS):
        sent, arrived = send(lab, source, what, path)
        assert sent.frames == what.frames
        if len(arrived) == sent.frames:
            break
    assert len(arrived) == sent.frames
    return arrived


def written(tcpdump: Process, path: Path) -> int:
    """Return the size of the file after tcpdump has written what it has buffered."""
    tcpdump.send_signal(signal.SIGUSR2)
    time.sleep(0.05)
    return path.stat().st_size


def check(what: Traffic, arrived: list[bytes], checked: int = 150) -> None:
    template = build_template(what)
    found = flow_bytes(template)
    expected = expected_frames(template, found, what.frame_size.genome, arrived)
    wrong = [number for number, (frame, right) in enumerate(zip(arrived, expected, strict=True)) if frame != right]
    assert not wrong, (wrong[:10], arrived[wrong[0]].hex(), expected[wrong[0]].hex())
    check_fields(template, arrived[:: len(arrived) // checked])
    check_checksums(arrived[:: len(arrived) // checked])


@pytest.mark.parametrize("name", PACKETS)
def test_every_byte_of_every_frame_is_right_in_every_flow(lab, opened, tmp_path, name):
    described, size = PACKETS[name]
    source = opened(kind="xdp")
    what = replace(traffic(20_000.0, 0.35, size), packet=described)
    arrived = send_all(lab, source, what, tmp_path / "rx0.pcap")
    assert len(arrived) == 7000, "each of 3,000 flows twice at least"
    check(what, arrived)


def test_a_source_sends_one_packet_after_another_with_more_flows_or_fewer(lab, opened, tmp_path):
    source = opened(kind="xdp")
    many = RandomValues(0xC6120000, 0xC612FFFF, 50_000)
    for described, size, fps in (
        (PACKETS["vxlan"][0], 256, 20_000.0),
        (packet(ETHER, IP4, CHECKED, IP_src=many), 64, 200_000.0),
        (PACKETS["ports"][0], MIX, None),
        (PACKETS["plain"][0], 64, 20_000.0),
        (packet(ETHER, IP4, CHECKED, IP_dst=many), 64, None),
    ):
        what = replace(traffic(fps, 0.05 if fps is None else 0.3, size), packet=described)
        _, arrived = send(lab, source, what, tmp_path / "rx0.pcap")
        check(what, arrived)


def test_what_a_router_writes_into_frames_is_in_no_later_frame(lab, opened, tmp_path):
    """It forwards the pages in which later frames are built, with other MAC addresses, TTL and checksum."""
    source = opened(kind="xdp")
    for command in (
        "sysctl -qw net.ipv4.ip_forward=1",
        "ip address add 198.18.0.9/16 dev rx0",
        "ip address add 198.19.1.9/24 dev tx1",
        "ip neighbour add 198.19.1.2 lladdr 02:00:00:00:00:09 dev tx1",
        "ip link set dev rx0 address 02:00:00:00:00:02",
    ):
        lab.do(command)
    described = packet(ETHER, IP4, CHECKED, IP_src=SOURCES, UDP_sport=PORTS, UDP_dport=PORTS)
    what = replace(traffic(20_000.0, 0.35, MIX), packet=described, dst_ip="198.19.1.2")
    routed, received = (lab.tx("packets", nic) for nic in ("tx1", "tx0"))
    arrived = send_all(lab, source, what, tmp_path / "rx0.pcap")
    assert len(arrived) == 7000
    assert lab.tx("packets", "tx1") - routed == lab.tx("packets", "tx0") - received
    check(what, arrived)


def test_each_of_a_million_flows_has_its_frames_in_turn():
    """The program runs once for each frame, which the kernel returns instead of sending it."""
    described = packet(
        *(ETHER, IP4, CHECKED),
        IP_src=SteppedValues(0xC6120000, 1, 100_000),
        IP_dst=SteppedValues(0xC6130000, 3, 10_000),
        UDP_sport=RandomValues(1, 65535, 15_625),
        UDP_dport=SteppedValues(1, 1, 64),
    )
    what = replace(traffic(None, 600.0), packet=described)
    template, frames = build_template(what), 1_001_000
    found = flow_bytes(template)
    built = built_frames(what, frames)
    assert template.flows == 1_000_000
    flows = np.arange(frames) % template.flows
    sequences = built[:, template.sequence_at : template.sequence_at + 4].copy().view(">u4")[:, 0]
    assert (sequences == np.arange(frames)).all()
    for number, at in enumerate(found.words_at):
        assert (built[:, at : at + 4].copy().view(np.uint32)[:, 0] == found.words[flows, number]).all(), at
    sums = checksums_of(found, template.frames[64])
    for number, at in enumerate(found.sums_at):
        assert (built[:, at : at + 2].copy().view(">u2")[:, 0] == sums[flows, number]).all(), at
    _, times = np.unique(built[:, 26:38].copy().view("V12")[:, 0], return_counts=True)
    assert np.bincount(times).tolist() == [0, 999_000, 1_000], "different addresses and ports: once, or twice"
    check_checksums([row.tobytes() for row in built[::10_007]])


@pytest.mark.parametrize("name", PACKETS)
def test_every_byte_of_the_headers_is_written_anew(name):
    """Whatever the live frame has: here it has the same byte everywhere."""
    described, size = PACKETS[name]
    what = replace(traffic(None, 600.0, size), packet=described)
    template, sizes = build_template(what), what.frame_size.genome
    built = [row.tobytes() for row in built_frames(what, 9, b"\xee")]
    whole = [frame[: sizes[number % len(sizes)] - FCS_BYTES] for number, frame in enumerate(built)]
    expected = expected_frames(template, flow_bytes(template), sizes, whole)
    assert [frame[: template.header_bytes] for frame in whole] == [row[: template.header_bytes] for row in expected]


def built_frames(what: Traffic, frames: int, fill: bytes = b"\0") -> npt.NDArray[np.uint8]:
    """Return the first frames of a trial, one per row, built in live frames that are full of a byte."""
    template = build_template(what)
    found = flow_bytes(template)
    source = LoadedSource(template.flows)
    try:
        source.write_flows(found)
        source.loaded.map("leaves_by").put(0, struct.pack("=I", socket.if_nametoindex("lo")))
        trial = XdpTrial(what, template, found, source.shared)
        for place, shape in enumerate(trial.shapes):
            source.loaded.map("shapes").put(place, shape)
        live = fill * len(trial.frame)
        built = np.zeros((frames, len(live)), np.uint8)
        options = _RunOptions(size=ctypes.sizeof(_RunOptions), data_in=live, data_size_in=len(live), repeat=1)
        run, program, argument = libbpf(), source.loaded.program("unpaced"), ctypes.byref(options)
        trial.begin(time.monotonic_ns())
        for row in range(frames):
            options.data_out, options.data_size_out = built.ctypes.data + row * len(live), len(live)
            run("bpf_prog_test_run_opts", program, argument)
            assert options.retval == XDP_REDIRECT
    finally:
        source.close()
    return built

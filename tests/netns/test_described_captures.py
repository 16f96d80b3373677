"""Captures of described packets on a veth pair: the kernel takes VLAN tags out, and libpcap puts them back."""

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netbench.hosts.base import run_checked
from netbench.hosts.local import LocalHost
from netbench.model.frame_size import FrameSize
from netbench.model.traffic import Sent, Stamps
from netbench.sinks.base import Incoming
from netbench.sinks.tcpdump import TcpdumpSink
from tests.unit.described_packets import PACKETS, Described
from tests.unit.stand_in_for_tcpdump import PATH
from tests.unit.test_described_captures import tagged

pytestmark = pytest.mark.root
FRAMES = 200
UNCHANGED: Callable[[Any], Any] = lambda packet: packet  # noqa: E731 - one of several in a table


@pytest.fixture
def veth() -> Iterator[tuple[str, str]]:
    """A veth pair: the end to send at, and the end to capture at."""
    here = LocalHost("local", "nbt")
    run_checked(here, ["ip", "link", "add", "nbt-a", "type", "veth", "peer", "nbt-b"])
    try:
        for end in ("nbt-a", "nbt-b"):
            run_checked(here, ["ip", "link", "set", end, "up"])
        yield "nbt-a", "nbt-b"
    finally:
        run_checked(here, ["ip", "link", "del", "nbt-a"])


@pytest.mark.parametrize("keep", [False, True], ids=["live", "file"])
@pytest.mark.parametrize("name", ["plain", "ipv6", "vlan", "vlans", "qinq", "vxlan", "geneve", "macs"])
def test_all_frames_arrive_and_changed_ones_are_counted(
    tmp_path: Path, veth: tuple[str, str], name: str, keep: bool
) -> None:
    described = Described.of(PACKETS[name], FrameSize.of(200))
    outgoing, interface = veth
    mac = Path("/sys/class/net", interface, "address").read_text().strip()
    path = replace(PATH, has_reverse=True, sink=replace(PATH.sink, mac=mac))
    began_ns = time.time_ns()
    incoming = Incoming(
        path, described.traffic, Stamps(first_sequence=0), began_ns, tmp_path / "x", keep, headers=described.headers
    )
    sink = TcpdumpSink()
    sink.open(LocalHost("local", "nbt"), interface, ())
    try:
        sink.arm(incoming)
        assert sink.armed(20)
        sent = send(described, outgoing)
        sink.stop(10)
        received = sink.received(sent)
    finally:
        sink.close()
    assert (received.error, received.unsettled) == ("", "")
    assert (received.frames, received.duplicates, received.foreign, received.late) == (FRAMES - 4, 0, 0, 1)
    assert received.packet is not None
    hops = "IPv6.hlim" if name == "ipv6" else "IP.ttl"
    assert received.packet.changed_by_field[hops] == 5
    assert received.packet.changed_by_field["headers"] == 6
    assert (received.packet.changed_frames, received.packet.reordered_in_flows) == (11, 0)
    assert received.packet.lossy_flows == len({number % described.headers.flows for number in range(4)})
    for groups in received.packet.groups:
        assert sum(group.sent - group.received for group in groups.lossy) == 4


def send(described: Described, interface: str) -> Sent:
    """Send the frames of a trial: the first 4 are lost, one is late, some have another hop limit or one more tag."""
    hops = ("IPv6", "hlim") if described.packet.name == "ipv6" else ("IP", "ttl")
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
        sender.bind((interface, 0))
        sender.send(described.frame(0, time.time_ns() // 1000 - 10**7))
        first_ns = time.time_ns()
        for number in range(4, FRAMES):
            fields = {hops: 63} if 10 <= number < 15 else {}
            change, size = (tagged, 204) if 20 <= number < 26 else (UNCHANGED, 200)
            sender.send(described.frame(number, time.time_ns() // 1000, fields=fields, change=change, size=size))
        last_ns = time.time_ns()
    return Sent(FRAMES, 0, (last_ns - first_ns) / 1e9, first_ns, last_ns, 1, 0.0)

"""Mixes of described packets behind a bridge that drops and changes frames: the sink bpf counts what scapy dissects.

tcpdump captures the frames that leave the bridge. Neither the capture nor its dissection uses code of netbench.
"""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw
from scapy.utils import RawPcapReader

from netbench.generators.afpacket.afpacket import AfPacketSource
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.hosts.local import LocalHost
from netbench.linux.changes import OffloadsOff
from netbench.model.frame_size import IMIX_V6, FrameSize
from netbench.model.packet import ListedValues, Packet, SteppedValues
from netbench.model.stream_paths import stream_paths
from netbench.sinks.base import Incoming
from netbench.sinks.bpf import BpfOptions, BpfSink
from tests.unit.described_packets import PACKETS as DESCRIBED
from tests.unit.described_packets import Described, layers, vary
from tests.unit.inputs import topology

pytestmark = pytest.mark.root

FRAMES, DURATION_S = 3000, 0.5
PATH = stream_paths(topology(1))[0]
TEST_FRAME = "ether daddr 02:00:00:00:00:02"


class Case(NamedTuple):
    """A packet, a statement of nftables, the fields that it changes, and what scapy finds in a frame."""

    packet: Packet
    rule: str
    changed: tuple[str, ...]
    is_changed: Callable[[Any], bool]
    flow: Callable[[Any], str]


CASES = {
    "ipv6": Case(
        DESCRIBED["ipv6"],
        "ip6 hoplimit set 63",
        ("IPv6.hlim",),
        lambda frame: frame[IPv6].hlim == 63,
        lambda frame: frame[IPv6].src,
    ),
    "vlan": Case(
        Packet("vlan", layers("Ether", "Dot1Q", "IP", "UDP"), (vary("Dot1Q.vlan", ListedValues((10, 20, 4094))),)),
        "ether saddr set 02:00:00:00:00:77",
        ("Ether.src",),
        lambda frame: frame.src == "02:00:00:00:00:77",
        lambda frame: str(frame[Dot1Q].vlan),
    ),
    "vxlan": Case(
        Packet("vxlan", DESCRIBED["vxlan"].layers, (vary("VXLAN.vni", SteppedValues(5, 1, 11)),)),
        "ip ttl set 63",
        ("IP.ttl", "IP.chksum"),
        lambda frame: frame.ttl == 63,
        lambda frame: str(frame[VXLAN].vni),
    ),
}
OWN = FrameSize("own", (113, 9000, 113, 594))


@pytest.fixture
def bridge() -> Iterator[NamespaceHost]:
    """A namespace with tx – in, a bridge from in to out, and out – rx."""
    name = f"nbt-mixes-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        host = NamespaceHost(LocalHost("mixes", name), name)
        host.run(["sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"])
        for command in (
            "ip link add name tx mtu 9216 type veth peer name in mtu 9216",
            "ip link add name out mtu 9216 type veth peer name rx mtu 9216",
            "ip link add name br mtu 9216 type bridge mcast_snooping 0",
            *(f"ip link set dev {end} master br" for end in ("in", "out")),
            *(f"ip link set dev {end} up" for end in ("tx", "in", "out", "rx", "br")),
        ):
            assert host.run(command.split()).exit_code == 0, command
        for end in ("tx", "out"):
            OffloadsOff(name, end, tagging=True).make(LocalHost("here", name))
        yield host
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


@contextmanager
def tcpdump(host: NamespaceHost, file: Path) -> Iterator[None]:
    """A capture of whole frames that leave by `out`, complete once it has ended."""
    options = ["-i", "out", "-Q", "out", "-s", "0", "-B", "65536", "-U", "--immediate-mode", "-Z", "root"]
    argv = ["ip", "netns", "exec", str(host.netns), "tcpdump", *options, "-w", str(file)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert "listening on out" in process.stderr.readline()
            yield
            time.sleep(0.3)
        finally:
            process.terminate()
            report = process.stderr.read()
    assert "\n0 packets dropped by kernel" in report


def captured(file: Path) -> Iterator[tuple[int, bytes]]:
    """The number and the bytes of each of the stream's frames in a capture, by scapy."""
    for frame, _ in RawPcapReader(str(file)):
        dissected = Ether(frame)
        if Raw in dissected and dissected[Raw].load.startswith(b"\xbe\x9b\xe9\x55"):
            yield int.from_bytes(dissected[Raw].load[4:8]), frame


@pytest.mark.parametrize("hook", ["tcx", "xdp"])
@pytest.mark.parametrize(
    ("name", "mix"), [("ipv6", IMIX_V6), ("vlan", IMIX_V6), *((name, OWN) for name in CASES)], ids=str
)
def test_the_sink_counts_what_scapy_finds_behind_a_bridge_that_drops_and_changes_frames(
    bridge, tmp_path, name, mix, hook
):
    """The bridge drops two of seven frames, and changes one of five of the others."""
    case = CASES[name]
    described = Described.of(case.packet, mix)
    traffic = replace(described.traffic, fps=FRAMES / DURATION_S, duration_s=DURATION_S)
    rules = f"""table bridge t {{ chain c {{ type filter hook forward priority 0;
        {TEST_FRAME} numgen inc mod 7 < 2 drop
        {TEST_FRAME} numgen inc mod 5 < 1 {case.rule}
        }}
    }}
    """
    done = bridge.run(["nft", "-f", "-"], stdin=rules)
    assert done.exit_code == 0, done.stderr
    source, sink = AfPacketSource(), BpfSink(BpfOptions(hook=hook))
    file = tmp_path / "out.pcap"
    with closing(source), closing(sink), tcpdump(bridge, file):
        source.open(bridge, "tx", [])
        source.prepare(traffic)
        sink.open(bridge, "rx", [])
        stamps = source.stamps(traffic)
        sink.arm(Incoming(PATH, traffic, stamps, time.time_ns(), tmp_path / "trial", headers=described.headers))
        assert sink.armed(10)
        source.start(time.monotonic_ns() + 20_000_000)
        sent = source.wait(30)
        assert (sent.frames, sent.error) == (FRAMES, "")
        time.sleep(0.1)
        sink.stop(5.0)
        received = sink.received(sent)

    lengths: Counter[int] = Counter()
    by_flow: Counter[str] = Counter()
    changed, numbers = 0, []
    for number, frame in captured(file):
        dissected = Ether(frame)
        assert len(frame) + 4 == mix.genome[number % len(mix.genome)]
        numbers.append(number)
        lengths[len(frame) + 4] += 1
        by_flow[case.flow(dissected)] += 1
        changed += case.is_changed(dissected)
    assert len(set(numbers)) == len(numbers) == FRAMES - sum(number % 7 < 2 for number in range(FRAMES))
    packet = received.packet
    assert packet is not None
    assert (received.frames, received.foreign, received.duplicates, received.reordered) == (len(numbers), 0, 0, 0)
    assert {size: counts.frames for size, counts in received.by_size.items()} == lengths
    assert changed == -(-len(numbers) // 5)
    assert (packet.changed_frames, packet.changed_by_field) == (changed, dict.fromkeys(case.changed, changed))
    (groups,) = packet.groups
    assert {group.values: group.received for group in groups.lossy} == by_flow

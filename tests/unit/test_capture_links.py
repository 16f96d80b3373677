"""Random frames of every link type, made by scapy and written by dpkt: netbench counts each of them, exactly."""

import random
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import dpkt
import pytest
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, GRE, LLC, SNAP, CookedLinux, CookedLinuxV2, Dot1AD, Dot1Q, Dot3, Ether, Loopback
from scapy.layers.ppp import HDLC, PPP
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

from netbench.capture.counting import analyze_capture
from tests.unit.capture_files import START_NS, pktgen

FRAMES = 300
RANDOM = random.Random(1)
# With addresses, because scapy would ask the network for them.
SOURCE, DESTINATION = "02:00:00:00:00:01", "02:00:00:00:00:02"


def ether() -> Packet:
    return Ether(src=SOURCE, dst=DESTINATION)


HEADS: dict[int, Callable[[], Packet]] = {
    0: lambda: Loopback(type=socket.AF_INET),
    1: ether,
    9: lambda: HDLC() / PPP(),
    101: lambda: Raw(b""),
    113: CookedLinux,
    276: CookedLinuxV2,
}
TUNNELS: list[Callable[[], Packet]] = [
    lambda: IP() / GRE(),
    lambda: IP() / GRE(key_present=1),
    lambda: IP() / UDP(dport=4789) / VXLAN() / ether(),
    lambda: IP() / UDP(dport=4789) / VXLAN() / ether() / Dot1Q(vlan=5),
    lambda: IP(),
]
LINK_LAYERS: list[Callable[[], Packet]] = [
    lambda: Dot1Q(vlan=7),
    lambda: Dot1AD(vlan=7) / Dot1Q(vlan=8),
    lambda: Dot1AD(vlan=7) / Dot1Q(vlan=8) / Dot1Q(vlan=9),
    lambda: MPLS(s=0) / MPLS(s=1),
]
OTHERS: dict[str, Callable[[], Packet]] = {
    "TCP": lambda: IP() / TCP(dport=RANDOM.randrange(65536)) / Raw(bytes(40)),
    "ICMP": lambda: IP() / ICMP() / Raw(bytes(40)),
    "UDP": lambda: IP() / UDP(dport=RANDOM.randrange(20_000, 50_000)) / Raw(bytes(40)),
}


def frame_of(link: int, number: int, rng: random.Random) -> tuple[bytes, str]:
    """Return a random frame, and the protocol for which it counts: empty for that of the stream."""
    head, ours = HEADS[link](), rng.random() < 0.6
    name = "" if ours else rng.choice(list(OTHERS))
    if link == 1 and not ours and rng.random() < 0.3:
        return bytes(rng.choice((ether(), Dot3(src=SOURCE, dst=DESTINATION) / LLC() / SNAP())) / ARP()), "ARP"
    packet = IP(src="198.18.0.1", dst="198.18.0.2") / UDP() / Raw(pktgen(number)) if ours else OTHERS[name]()
    if ours and rng.random() < 0.2:
        packet = IPv6(src="2001:2::1", dst="2001:2::2") / UDP() / Raw(pktgen(number))
    for tunnel in rng.sample(TUNNELS, rng.choice((0, 0, 1, 2))):
        packet = tunnel() / packet
    if link == 1 and rng.random() < 0.5:
        packet = rng.choice(LINK_LAYERS)() / packet
    return bytes(head / packet), name


@pytest.mark.parametrize("link", HEADS)
@pytest.mark.parametrize("form", [dpkt.pcap, dpkt.pcapng], ids=["pcap", "pcapng"])
def test_random_frames_of_a_link_type(tmp_path: Path, form: ModuleType, link: int) -> None:
    rng = random.Random(f"{link} {form.__name__}")
    expected: Counter[str] = Counter()
    path = tmp_path / "capture"
    with path.open("wb") as file:
        writer = form.Writer(file, snaplen=1 << 16, linktype=link)
        for number in range(FRAMES):
            frame, name = frame_of(link, number, rng)
            expected[name] += 1
            writer.writepkt(frame, START_NS // 10**9 + number / 1000)
    counts = analyze_capture(path)
    assert (counts.frames, counts.pktgen_frames, counts.undecoded) == (FRAMES, expected.pop(""), {})
    assert counts.other_protocols == expected
    # ARP frames are shorter than any with a pktgen header.
    assert (counts.too_short_frames, counts.damage, counts.leftover_bytes) == (expected["ARP"], "", 0)

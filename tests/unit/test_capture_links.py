"""Random frames of every link type, written by scapy: netbench counts each of them, exactly."""

import random
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import GRE, ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, LLC, SNAP, CookedLinux, CookedLinuxV2, Dot1AD, Dot1Q, Dot3, Ether, Loopback
from scapy.layers.ppp import HDLC, PPP
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw
from scapy.utils import PcapNgWriter, PcapWriter

from netbench.capture.counting import analyze_capture
from tests.unit.capture_files import START_NS, pktgen

FRAMES = 700
HEADS: dict[int, Callable[[], Packet]] = {
    0: lambda: Loopback(type=socket.AF_INET),
    1: Ether,
    9: lambda: HDLC() / PPP(),
    101: lambda: Raw(b""),
    113: CookedLinux,
    276: CookedLinuxV2,
}
CARRIERS = {1: (Ether, CookedLinux, CookedLinuxV2)}
TUNNELS: list[Callable[[], Packet]] = [
    lambda: IP() / GRE() / Raw(b""),
    lambda: IP() / GRE(key_present=1) / Raw(b""),
    lambda: IP() / UDP(dport=4789) / VXLAN() / Ether(),
    lambda: IP() / UDP(dport=4789) / VXLAN() / Ether() / Dot1Q(vlan=5),
    lambda: IP(),
]
LINK_LAYERS: list[Callable[[], Packet]] = [
    lambda: Dot1Q(vlan=7),
    lambda: Dot1AD(vlan=7) / Dot1Q(vlan=8),
    lambda: Dot1AD(vlan=7) / Dot1Q(vlan=8) / Dot1Q(vlan=9),
    lambda: MPLS(s=0) / MPLS(s=1),
]
OTHERS: dict[str, Callable[[], Packet]] = {
    "TCP": lambda: IP() / TCP(dport=random.randrange(65536)) / Raw(bytes(40)),
    "ICMP": lambda: IP() / ICMP() / Raw(bytes(40)),
    "UDP": lambda: IP() / UDP(dport=random.randrange(20_000, 50_000)) / Raw(bytes(40)),
}


def frame_of(link: int, number: int, rng: random.Random) -> tuple[bytes, str]:
    """Return a random frame, and the protocol for which it counts: empty for that of the stream."""
    head, ours = HEADS[link](), rng.random() < 0.6
    name = "" if ours else rng.choice(list(OTHERS))
    if link == 1 and not ours and rng.random() < 0.3:
        return rng.choice(((Ether() / ARP(), "ARP"), (Dot3() / LLC() / SNAP() / ARP(), "ARP")))  # type: ignore[return-value]
    packet = IP(src="198.18.0.1", dst="198.18.0.2") / UDP() / Raw(pktgen(number)) if ours else OTHERS[name]()
    if ours and rng.random() < 0.2:
        packet = IPv6(src="2001:2::1", dst="2001:2::2") / UDP() / Raw(pktgen(number))
    for tunnel in rng.sample(TUNNELS, rng.choice((0, 0, 1, 2))):
        packet = tunnel() / packet
    if link == 1 and rng.random() < 0.5:
        packet = rng.choice(LINK_LAYERS)() / packet
    return bytes(head / packet), name


@pytest.mark.parametrize("link", HEADS)
@pytest.mark.parametrize("writer", [PcapWriter, PcapNgWriter])
def test_random_frames_of_a_link_type(tmp_path: Path, writer: type, link: int) -> None:
    rng = random.Random(f"{link} {writer.__name__}")
    path, expected = tmp_path / "capture", Counter[str]()
    file = PcapWriter(str(path), linktype=link) if writer is PcapWriter else PcapNgWriter(str(path))
    for number in range(FRAMES):
        frame, name = frame_of(link, number, rng)
        expected[name] += 1
        file.linktype = link
        file.write_packet(bytes(frame), sec=START_NS // 10**9, usec=number, linktype=link)
    file.close()
    counts = analyze_capture(path)
    assert (counts.frames, counts.pktgen_frames, counts.undecoded) == (FRAMES, expected.pop(""), {})
    assert counts.other_protocols == expected
    assert (counts.too_short_frames, counts.damage, counts.leftover_bytes) == (0, "", 0)

"""UUTs that change headers, in both directions at once: answers are changed in the opposite way."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from scapy.contrib import geneve  # noqa: F401 - scapy dissects only layers that are loaded
from scapy.layers import vxlan  # noqa: F401 - scapy dissects only loaded layers
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap

from netbench.config.document import yaml_text, yaml_value
from tests.commands import PATIENT, netbench, rows, settings

pytestmark = pytest.mark.root

SHIPPED = Path(__file__).parents[2] / "topologies" / "netns-both.yaml"
# They fit in the ring of a link, and in a socket of Open vSwitch, which is a process that must wait for its CPU.
FRAMES = "150"
SIZE = 200
WANTED = settings(loads="1500fps", repetitions=1, duration="100ms", frame_sizes=SIZE, retries=8, generator="afpacket")
INNER = "Ether/IP/UDP"
TAGGED, IN_VXLAN, IN_GENEVE = "Ether/802.1Q/IP/UDP", f"Ether/IP/UDP/VXLAN/{INNER}", f"Ether/IP/UDP/GENEVE/{INNER}"
IN_GRE = f"Ether/IP/GRE/{INNER}"
PLAIN = "Ether()/IP()/UDP()"
GRE = "Ether()/IP()/GRE(proto=0x6558)/Ether()/IP()/UDP()"
V6 = "Ether()/IP()/UDP(sport=9999,dport=4789)/VXLAN(vni=100)/Ether()/IPv6(tc=184)/UDP()"
CHOSEN = PLAIN.replace("IP()", 'IP(src="10.1.0.1",dst="10.2.0.2",ttl=9)').replace("UDP()", "UDP(sport=7,dport=8)")
CHOSEN_ENDS = V6.replace("IP()/UDP(sport", 'IP(src="192.0.2.7",dst="203.0.113.9")/UDP(sport')
# Source and destination of the outermost IP header: those of the tunnel at the reverse stream's sink, of the tunnel at
# the stream's sink, and of chosen ends.
TO_SOURCE, TO_SINK = {"back": "198.18.1.1 > 198.18.1.2"}, {"forth": "198.19.1.1 > 198.19.1.2"}
TO_CHOSEN = {"back": "203.0.113.9 > 192.0.2.7"}
ROUTE = {"forward": "route"}
VXLAN, GENEVE, VLAN = {"vni": 100}, {"vni": 100}, {"vlan": 100}


@dataclass(frozen=True)
class Case:
    """A UUT, the packet sent to it, and headers and addresses at the sinks of the stream and of its reverse stream."""

    kind: str
    options: dict[str, Any]
    packet: str
    forth: str
    back: str
    addresses: dict[str, str] = field(default_factory=dict)


CASES = {
    "bridge-end": Case("raw", {"terminate": "vxlan", **VXLAN}, "vxlan", INNER, IN_VXLAN, TO_SOURCE),
    "route-end": Case("raw", {**ROUTE, "terminate": "vxlan", **VXLAN}, "vxlan", INNER, IN_VXLAN, TO_SOURCE),
    "bridge-begin": Case("raw", {"originate": "vxlan", **VXLAN}, PLAIN, IN_VXLAN, INNER, TO_SINK),
    "route-begin": Case("raw", {**ROUTE, "originate": "vxlan", **VXLAN}, PLAIN, IN_VXLAN, INNER, TO_SINK),
    "route-chosen": Case("raw", {**ROUTE, "originate": "vxlan", **VXLAN}, CHOSEN, IN_VXLAN, INNER, TO_SINK),
    "bridge-v6": Case(
        "raw",
        {"terminate": "vxlan", **VXLAN},
        V6,
        "Ether/IPv6/UDP",
        "Ether/IP/UDP/VXLAN/Ether/IPv6/UDP",
        TO_SOURCE,
    ),
    "route-ends": Case(
        "raw",
        {**ROUTE, "terminate": "vxlan", **VXLAN},
        CHOSEN_ENDS,
        "Ether/IPv6/UDP",
        "Ether/IP/UDP/VXLAN/Ether/IPv6/UDP",
        TO_CHOSEN,
    ),
    "bridge-ends": Case(
        "raw",
        {"terminate": "vxlan", **VXLAN},
        CHOSEN_ENDS,
        "Ether/IPv6/UDP",
        "Ether/IP/UDP/VXLAN/Ether/IPv6/UDP",
        TO_CHOSEN,
    ),
    "ovs-pop": Case("ovs", {"terminate": "vlan", **VLAN}, "vlan", INNER, TAGGED),
    "ovs-push": Case("ovs", {"originate": "vlan", **VLAN}, PLAIN, TAGGED, INNER),
    "ovs-vx-end": Case("ovs", {"terminate": "vxlan", **VXLAN}, "vxlan", INNER, IN_VXLAN, TO_SOURCE),
    "ovs-vx-begin": Case("ovs", {"originate": "vxlan", **VXLAN}, PLAIN, IN_VXLAN, INNER, TO_SINK),
    "ovs-ge-end": Case("ovs", {"terminate": "geneve", **GENEVE}, "geneve", INNER, IN_GENEVE, TO_SOURCE),
    "ovs-ge-begin": Case("ovs", {"originate": "geneve", **GENEVE}, PLAIN, IN_GENEVE, INNER, TO_SINK),
    "ovs-gre-end": Case("ovs", {"terminate": "gre"}, GRE, INNER, IN_GRE, TO_SOURCE),
    "ovs-gre-begin": Case("ovs", {"originate": "gre"}, PLAIN, IN_GRE, INNER, TO_SINK),
    "ovs-vx-vlan": Case(
        "ovs",
        {"terminate": "vxlan", "vni": 100, "originate": "vlan", "vlan": 5},
        "vxlan",
        TAGGED,
        IN_VXLAN,
        TO_SOURCE,
    ),
    "nat-source": Case("raw", {**ROUTE, "nat": "source"}, PLAIN, INNER, INNER),
    "nat-dest": Case("raw", {**ROUTE, "nat": "destination"}, PLAIN, INNER, INNER),
    "nat-flows": Case("raw", {**ROUTE, "nat": "source"}, "nat44", INNER, INNER),
    "nat-chosen": Case(
        "raw",
        {**ROUTE, "nat": "source"},
        'Ether()/IP(src="198.18.5.6",dst="10.2.0.2")/UDP(sport=7)',
        INNER,
        INNER,
        {"forth": "10.18.5.6 > 10.2.0.2", "back": "10.2.0.2 > 198.18.5.6"},
    ),
    "nat-dst-ch": Case(
        "raw",
        {**ROUTE, "nat": "destination"},
        'Ether()/IP(src="10.2.0.2",dst="198.19.5.6")/UDP(sport=7)',
        INNER,
        INNER,
        {"forth": "10.2.0.2 > 10.19.5.6", "back": "198.19.5.6 > 10.2.0.2"},
    ),
    "nat-vxlan": Case(
        "raw",
        {**ROUTE, "nat": "source", "terminate": "vxlan", **VXLAN},
        "vxlan",
        INNER,
        IN_VXLAN,
        TO_SOURCE,
    ),
    "lxc-nat": Case("container", {**ROUTE, "nat": "source"}, PLAIN, INNER, INNER),
    "lxc-end": Case("container", {**ROUTE, "terminate": "vxlan", **VXLAN}, "vxlan", INNER, IN_VXLAN, TO_SOURCE),
    "lxc-begin": Case("container", {"originate": "vxlan", **VXLAN}, PLAIN, IN_VXLAN, INNER, TO_SINK),
}
# With chosen addresses, both directions are one connection. If their first frames arrive at once, the kernel translates
# the port of one of them, too (nf_nat_core.c, get_unique_tuple).
MOST_CHANGED = {"nat-chosen": 1, "nat-dst-ch": 1}
NEEDED = {"ovs": "ovs-vswitchd", "container": "lxc-start", "raw": "ip"}


@pytest.mark.parametrize("sink", ["tcpdump", "bpf"])
@pytest.mark.parametrize("packet", sorted({case.packet for case in CASES.values()}))
def test_answers_are_changed_in_the_opposite_way_and_every_frame_is_counted(results, tmp_path, packet, sink):
    """One campaign with all UUTs that this packet is sent to."""
    cases = {name: case for name, case in CASES.items() if case.packet == packet}
    assert all(shutil.which(NEEDED[case.kind]) for case in cases.values()), "`make test` installs it"
    topology = tmp_path / "both.yaml"
    uuts = [{"name": name, "kind": case.kind, **case.options} for name, case in cases.items()]
    topology.write_text(yaml_text({**yaml_value(SHIPPED.read_text()), "uuts": uuts}))
    described = packet if "(" not in packet else f"'{packet}'"
    captures = {"keep_captures": "all", "snap_length": SIZE + 100} if sink == "tcpdump" else {}
    wanted = settings(packet=described, sink=sink, **captures)

    done = netbench("run", topology, "quick", "-o", results, *WANTED, *PATIENT, *wanted)

    found = {(row["uut"], row["stream"]): row for row in rows(results)}
    assert set(found) == {(name, stream) for name in cases for stream in ("forth", "back")}, done.stdout + done.stderr
    for (name, _stream), row in found.items():
        assert (row["sent_frames"], row["received_frames"]) == (FRAMES, FRAMES), row
        assert [row[count] for count in ("lost_frames", "foreign_frames", "unexplained_frames")] == ["0"] * 3, row
        assert int(row["changed_frames"]) <= MOST_CHANGED.get(name, 0), row
    for (name, stream), row in found.items() if sink == "tcpdump" else ():
        headers, addresses = getattr(cases[name], stream), cases[name].addresses
        (capture,) = (results / "captures").glob(f"trial-{int(row['trial']):06}-{stream}*")
        frame = next(frame for frame in rdpcap(str(capture)) if frame.haslayer(UDP))
        assert "/".join(layers_of(frame)[: headers.count("/") + 1]) == headers, name
        assert_right_checksums(frame)
        if stream in addresses:
            assert f"{frame[IP].src} > {frame[IP].dst}" == addresses[stream], name


def layers_of(frame: Any) -> list[str]:
    names = {"Ethernet": "Ether"}
    return [names.get(layer().name, layer().name) for layer in frame.layers()]


def assert_right_checksums(frame: Any) -> None:
    again = Ether(bytes(frame))
    for kind in (IP, UDP):
        for number in range(1, 3):
            if (header := again.getlayer(kind, number)) and header.chksum:
                del header.chksum
    assert bytes(again) == bytes(frame)

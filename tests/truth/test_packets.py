"""Described packets: every frame is accounted and has the described bytes; the flows that lose frames are known."""

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dpkt
import pytest
from scapy.layers.l2 import Ether

from netbench.model.frame_size import IMIX, IMIX_V6, FrameSize
from netbench.model.shipped_packets import SHIPPED_PACKETS
from tests.commands import PATIENT, netbench, rows, settings, verdict_of

pytestmark = pytest.mark.root

FRAMES = 3000
PACKETS = ["plain", *SHIPPED_PACKETS]
TAGGED = {"vlan", "qinq"}
TOPOLOGY = """
hosts: {source: {}, uut: {}, sink: {}}
links:
  - {ends: [source/tx1, uut/in1], rate: 1Gbit/s, receive: RECEIVE}
  - {ends: [uut/out1, sink/rx1], rate: 1Gbit/s}
streams:
  - {name: s1, source: source/tx1, ingress: uut/in1, egress: uut/out1, sink: sink/rx1}
uuts:
  - {name: bridge, kind: raw, forward: bridge}
  - {name: route, kind: raw, forward: route}
"""
WANTED = settings(loads="30kfps", repetitions=1, duration="100ms", frame_sizes=200, retries=8)


def topology_in(directory: Path, receive: str = "inline", more: str = "") -> Path:
    file = directory / "truth.yaml"
    file.write_text(TOPOLOGY.replace("RECEIVE", receive) + more)
    return file


def exported(results: Path) -> list[dict]:
    done = netbench("export", results, "--format", "json", "-o", results / "rows.json")
    assert done.returncode == 0, done.stderr
    found: list[dict] = json.loads((results / "rows.json").read_text())["rows"]
    return found


def has_valid_checksums(frame: bytes) -> bool:
    """Whether scapy computes the same checksums for all headers of a frame; 0 in UDP means none."""
    dissected, rebuilt = Ether(frame), Ether(frame)
    for layer, again in zip(dissected.iterpayloads(), rebuilt.iterpayloads(), strict=True):
        if getattr(layer, "chksum", None):
            again.delfieldval("chksum")
    return bytes(rebuilt) == frame


@pytest.mark.parametrize(
    ("generator", "sink", "receive"),
    [("afpacket", "tcpdump", "inline"), ("xdp", "bpf", "napi"), ("afpacket", "bpf", "inline")],
)
def test_every_frame_of_each_shipped_packet_arrives_as_described(results, tmp_path, generator, sink, receive):
    keep = settings(keep_captures="all", snap_length=200) if sink == "tcpdump" else []
    containers = "  - {name: container, kind: container, forward: route}\n" if shutil.which("lxc-start") else ""
    wanted = settings(packet=f"[{', '.join(PACKETS)}]", generator=generator, sink=sink)
    if receive == "napi":  # a trial is invalid if its threads waited for a CPU for longer than it lasts
        wanted += settings(loads="10kfps", duration="300ms")
    topology = topology_in(tmp_path, receive, containers)
    done = netbench("run", topology, "quick", "-o", results, *WANTED, *PATIENT, *wanted, *keep, timeout_s=240)
    assert done.returncode == 0, done.stderr

    found = rows(results)

    assert Counter((row["uut"], row["packet"] or "plain") for row in found) == Counter(
        (uut, packet)
        for uut in ("bridge", "route", *(["container"] if containers else []))
        for packet in PACKETS
        if uut == "bridge" or packet not in TAGGED
    )
    for row in found:
        assert (verdict_of(row), row["sent_frames"], row["foreign_frames"]) == ("valid", str(FRAMES), "0"), row
        assert int(row["received_frames"]) + int(row["lost_frames"]) == FRAMES, row
        if row["packet"]:
            assert (row["changed_frames"], row["reordered_in_flows_frames"]) == ("0", "0"), row
        if sink == "tcpdump":
            (capture,) = (results / "captures").glob(f"trial-{int(row['trial']):06}-s1*")
            with capture.open("rb") as file:
                frames = [frame for _, frame in dpkt.pcap.UniversalReader(file) if b"\xbe\x9b\xe9\x55" in frame]
            assert len(frames) == int(row["received_frames"])
            assert all(map(has_valid_checksums, frames[::37])), row


def test_each_of_a_million_flows_arrives_as_often_as_it_was_sent(results, tmp_path):
    """Frame i is of flow i mod 1,000,000. One UUT loses none, the other those with i mod 101 < 13."""
    more = """  - {name: xdp, kind: raw, forward: xdp}
  - {name: drops, kind: reference, forward: bridge, drop: {k: 13, n: 101}}
"""
    wanted = settings(packet="1m-flows", generator="xdp", sink="bpf", frame_sizes=64, duration="1s", loads="2Mfps")
    chosen = ("--uut", "xdp", "--uut", "drops", *WANTED, *PATIENT, *wanted)
    done = netbench("run", topology_in(tmp_path, "softirq", more), "quick", "-o", results, *chosen)
    assert done.returncode == 0, done.stderr

    for row in exported(results):
        sent = row["sent_frames"]
        lost = [number for number in range(sent) if number % 101 < 13] if row["uut"] == "drops" else []
        assert sent > 100_000, row  # as many as this machine can, up to 2,000,000
        assert (row["received_frames"], row["lost_frames"]) == (sent - len(lost), len(lost)), row
        assert row["lossy_flows"] == len({number % 1_000_000 for number in lost}), row
        assert (row["changed_frames"], row["duplicate_frames"]) == (0, 0), row


VLANS = [10, 20, 4094]
GROUPED = {
    "headers": "Ether()/Dot1Q()/IP()/UDP()",
    "vary": {"Dot1Q.vlan": {"list": VLANS}, "UDP.sport": {"from": 5000, "count": 7}},
}


@pytest.mark.parametrize("sink", ["tcpdump", "bpf"])
@pytest.mark.parametrize(("k", "n"), [(1, 3), (2, 7), (13, 101)])
def test_drops_appear_in_the_groups_of_the_flows_that_lost_frames(results, tmp_path, sink, k, n):
    """Frame i is lost where i mod n < k: with n = 3 that is all of one VLAN, with n = 7 all of two ports."""
    drops = f"  - {{name: drops, kind: reference, forward: bridge, drop: {{k: {k}, n: {n}}}}}\n"
    wanted = settings(packet=json.dumps(GROUPED), generator="afpacket", sink=sink)
    topology = topology_in(tmp_path, more=drops)
    done = netbench("run", topology, "quick", "-o", results, "--uut", "drops", *WANTED, *PATIENT, *wanted)
    assert done.returncode == 0, done.stderr

    (row,) = exported(results)

    lost = [number for number in range(FRAMES) if number % n < k]
    assert (row["sent_frames"], row["lost_frames"]) == (FRAMES, len(lost))
    assert row["lossy_flows"] == len({number % 21 for number in lost})
    expected = []
    for field, values in (("Dot1Q.vlan", VLANS), ("UDP.sport", range(5000, 5007))):
        sent = Counter(values[number % len(values)] for number in range(FRAMES))
        missing = Counter(values[number % len(values)] for number in lost)
        expected += [
            {
                "field": field,
                "values": str(value),
                "sent_frames": sent[value],
                "lost_frames": missing[value],
            }
            for value in sorted(missing)
        ]
    keys = "field", "values", "sent_frames", "lost_frames"
    assert [{key: group[key] for key in keys} for group in row["lossy_groups"]] == expected


OWN = FrameSize("own", (130, 1500, 130, 594, 130))
SHORT_TAGGED = FrameSize("short", (66, 67, 1518))
IPV6 = {"headers": "Ether()/IPv6()/UDP()", "vary": {"IPv6.src": {"from": "2001:2:0:1::10", "count": 5}}}
VXLAN = {
    "headers": "Ether()/IP()/UDP(sport=49152,dport=4789)/VXLAN(vni=100)/Ether()/IP()/UDP()",
    "vary": {"UDP:2.sport": {"from": 5000, "count": 7}, "VXLAN.vni": {"list": [100, 7]}},
}
# Each packet with its mix, and the fields that `expect` makes wrong: in which of the frames.
MIXED: Mapping[str, tuple[dict[str, Any], FrameSize, Mapping[str, Callable[[int], bool]]]] = {
    "plain headers": ({"headers": "Ether()/IP()/UDP()"}, IMIX, {}),
    "ipv6": (IPV6, IMIX_V6, {}),
    "ipv6, own": (IPV6, OWN, {}),
    "vlan": (GROUPED, IMIX_V6, {}),
    "vlan, own": (
        {**GROUPED, "expect": "Ether()/Dot1Q(vlan=20)/IP()/UDP()"},
        SHORT_TAGGED,
        {"Dot1Q.vlan": lambda number: VLANS[number % 3] != 20},
    ),
    "ports that vary otherwise": (
        {
            "headers": "Ether()/IPv6()/UDP()",
            "vary": {"UDP.sport": {"from": 5000, "count": 4}},
            "expect": {"headers": "Ether()/IPv6()/UDP()", "vary": {"UDP.sport": {"list": [5000, 1, 5002, 3]}}},
        },
        IMIX_V6,
        {name: lambda number: number % 2 > 0 for name in ("UDP.sport", "UDP.chksum")},
    ),
    "vxlan": (VXLAN, OWN, {}),
    "vxlan, jumbo": (
        {**VXLAN, "expect": "Ether()/IP()/UDP()/VXLAN(vni=7)/Ether()/IP()/UDP(dport=10)"},
        FrameSize("jumbo", (112, 9000, 113)),
        {"VXLAN.vni": lambda number: not number % 2, "UDP:2.dport": lambda number: True},
    ),
}


@pytest.mark.parametrize("sink", ["tcpdump", "bpf"])
@pytest.mark.parametrize("name", MIXED)
def test_drops_and_changed_headers_of_a_mix_are_counted_by_size_group_and_field(results, tmp_path, name, sink):
    """Frame i is lost where i mod 7 < 2. The router lowers the TTL, which `expect` forbids."""
    packet, mix, wrong = MIXED[name]
    uuts = "  - {name: drops, kind: reference, forward: bridge, drop: {k: 2, n: 7}}\n"
    if "Dot1Q" not in str(packet) and not wrong:
        uuts += "  - {name: router, kind: reference, forward: route, drop: {k: 2, n: 7}}\n"
        field = "IPv6.hlim" if "IPv6" in str(packet) else "IP.ttl"
        names = re.sub(r"\(.*?\)", "()", packet["headers"])
        packet = {**packet, "expect": names.replace("IPv6()", "IPv6(hlim=64)").replace("IP()", "IP(ttl=64)", 1)}
    topology = topology_in(tmp_path, more=uuts)
    topology.write_text(topology.read_text().replace("rate: 1Gbit/s", "rate: 1Gbit/s, mtu: 9000"))
    uut_names = [word for uut in ("drops", "router") if f"name: {uut}" in uuts for word in ("--uut", uut)]
    sizes = json.dumps([{"name": mix.name, "genome": list(mix.genome)}])
    wanted = settings(packet=json.dumps(packet), generator="afpacket", sink=sink, frame_sizes=sizes)
    done = netbench("run", topology, "quick", "-o", results, *uut_names, *WANTED, *PATIENT, *wanted)
    assert done.returncode == 0, done.stderr

    there = [number for number in range(FRAMES) if number % 7 >= 2]
    lost = [number for number in range(FRAMES) if number % 7 < 2]

    found = exported(results)

    assert {row["uut"] for row in found} == set(uut_names[1::2])
    for row in found:
        assert (row["sent_frames"], row["received_frames"], row["lost_frames"]) == (FRAMES, len(there), len(lost)), row
        assert (row["foreign_frames"], row["duplicate_frames"], row["reordered_in_flows_frames"]) == (0, 0, 0), row
        for column, numbers in (("sent", range(FRAMES)), ("received", there), ("lost", lost)):
            of_sizes = Counter(mix.genome[number % len(mix.genome)] for number in numbers)
            text = ";".join(f"{size}={of_sizes[size]}" for size in mix.sizes)
            assert row[f"{column}_frames_by_size"] == text, row
        changes: dict[str, Callable[[int], bool]] = dict(wrong)
        if row["uut"] == "router":
            changes = {field: lambda _: True}
            if field == "IP.ttl":
                changes["IP.chksum"] = changes[field]
        changed = {key: sum(map(is_wrong, there)) for key, is_wrong in changes.items()}
        assert {entry["field"]: entry["frames"] for entry in row["changed_fields"] or ()} == changed, row
        assert row["changed_frames"] == sum(any(is_wrong(number) for is_wrong in changes.values()) for number in there)
        for varying, values in packet.get("vary", {}).items():
            count = values.get("count", len(values.get("list", ())))
            groups = [group for group in row["lossy_groups"] if group["field"] == varying]
            missing = Counter(number % count for number in lost)
            assert sorted(group["lost_frames"] for group in groups) == sorted(missing.values())


# Wrong expectations: some fields are wrong in all frames, and fields that vary in some frames.
WRONG = {
    "constants": (
        {
            "headers": "Ether()/Dot1Q(vlan=5,prio=1)/IP(tos=4)/UDP()",
            "vary": {"IP.ttl": {"list": [64, 63]}},
            "expect": "Ether()/Dot1Q(vlan=6)/IP(ttl=64)/UDP(dport=any)",
        },
        {"Dot1Q.vlan": FRAMES, "IP.ttl": FRAMES // 2, "IP.chksum": FRAMES // 2},
    ),
    "one of three VLANs": (
        {
            "headers": "Ether()/Dot1Q()/IP()/UDP()",
            "vary": {"Dot1Q.vlan": {"list": [10, 20, 30]}},
            "expect": {"headers": "Ether()/Dot1Q()/IP()/UDP()", "vary": {"Dot1Q.vlan": {"list": [10, 20, 31]}}},
        },
        {"Dot1Q.vlan": FRAMES // 3},
    ),
    "every other port": (
        {
            "headers": "Ether()/IP()/UDP()",
            "vary": {"UDP.sport": {"from": 5000, "count": 4}},
            "expect": {"headers": "Ether()/IP()/UDP()", "vary": {"UDP.sport": {"list": [5000, 1, 5002, 3]}}},
        },
        {"UDP.sport": FRAMES // 2},
    ),
    "random ports": (
        {
            "headers": "Ether()/IPv6()/UDP()",
            "vary": {"UDP.sport": {"random": "5000-5099"}, "UDP.dport": {"random": "5000-5099"}},
            "expect": {"headers": "Ether()/IPv6()/UDP()", "vary": {"UDP.sport": {"random": "6000-6099"}}},
        },
        {"UDP.sport": FRAMES, "UDP.chksum": FRAMES},
    ),
    "nothing": (
        {
            "headers": "Ether()/IPv6()/UDP()",
            "vary": {"IPv6.src": {"from": "2001:2::1", "count": 100}, "UDP.dport": {"random": "5000-5099"}},
            "expect": {
                "headers": "Ether()/IPv6(src=any)/UDP()",
                "vary": {"IPv6.src": {"from": "2001:2::1", "count": 100}, "UDP.dport": {"random": "5000-5099"}},
            },
        },
        {},
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_headers_are_counted_by_field(results, tmp_path, name):
    packet, wrong = WRONG[name]
    by_sink = []
    for sink in ("tcpdump", "bpf"):
        wanted = settings(packet=json.dumps(packet), generator="afpacket", sink=sink)
        directory = results / sink
        topology = topology_in(tmp_path)
        done = netbench("run", topology, "quick", "-o", directory, "--uut", "bridge", *WANTED, *PATIENT, *wanted)
        assert done.returncode == 0, done.stderr
        (row,) = exported(directory)
        changed = {entry["field"]: entry["frames"] for entry in row["changed_fields"]}
        assert (row["received_frames"], row["changed_frames"]) == (FRAMES, max(wrong.values(), default=0))
        assert changed == wrong
        for entry in row["changed_fields"]:  # the bridge changes nothing
            assert entry["expected"] != entry["arrived"], entry
            unknown = [None] if entry["field"].endswith("chksum") else []  # checksums differ between flows
            assert entry["sent"] in (entry["arrived"], *unknown), entry
        by_sink.append(row["changed_fields"])
    assert by_sink[0] == by_sink[1]


def test_tshark_finds_no_wrong_checksum(results, tmp_path):
    tshark = shutil.which("tshark")
    assert tshark, "`make test` installs it"
    wanted = settings(packet=f"[{', '.join(SHIPPED_PACKETS)}]", generator="afpacket", sink="tcpdump")
    keep = settings(keep_captures="all", snap_length=200)
    topology = topology_in(tmp_path)
    done = netbench("run", topology, "quick", "-o", results, "--uut", "bridge", *WANTED, *PATIENT, *wanted, *keep)
    assert done.returncode == 0, done.stderr
    for capture in (results / "captures").glob("trial-*"):
        argv = [tshark, "-n", "-r", str(capture), "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]
        bad = 'ip.checksum.status == "Bad" or udp.checksum.status == "Bad" or _ws.malformed'
        found = subprocess.run([*argv, "-Y", bad], capture_output=True, text=True, check=True)
        assert found.stdout == "", capture


def test_jumbo_frames_fit_into_a_tunnel_that_the_uut_originates(results, tmp_path):
    """The longest frames that links of 9,100 bytes take behind a UUT that adds 50 bytes, and the shortest."""
    uuts = [f"{{name: {how}, kind: raw, forward: {how}, originate: vxlan, vni: 7}}" for how in ("route", "bridge")]
    jumbo = TOPOLOGY.replace("rate: 1Gbit/s", "rate: 1Gbit/s, mtu: 9100").partition("uuts:")[0]
    file = tmp_path / "jumbo.yaml"
    file.write_text(f"{jumbo.replace('RECEIVE', 'inline')}uuts: [{', '.join(uuts)}]\n")
    packet = json.dumps(
        {"name": "p", "headers": "Ether()/IP()/UDP()", "vary": {"IP.src": {"from": "10.0.0.1", "count": 9}}}
    )
    sizes = '[64, 9068, {"name": "both", "genome": [64, 9068, 594]}]'
    for sink in ("tcpdump", "bpf"):
        wanted = settings(packet=packet, generator="afpacket", sink=sink, frame_sizes=sizes, loads="2kfps")
        done = netbench("run", file, "quick", "-o", results / sink, *WANTED, *PATIENT, *wanted)
        assert done.returncode == 0, done.stderr
        found = rows(results / sink)
        assert len(found) == 6
        for row in found:
            if row["frame_mix"]:
                assert row["received_frames_by_size"] == "64=67;594=66;9068=67", row
            counts = [row[name] for name in ("sent_frames", "received_frames", "changed_frames", "lossy_flows")]
            assert (verdict_of(row), counts) == ("valid", ["200", "200", "0", "0"]), row


TAGGED_BY_TURNS = {"headers": "Ether()/Dot1Q()/IP()/UDP()", "vary": {"Dot1Q.vlan": {"list": [10, 20, 30]}}}
EXPECTED_WRONG = {"headers": "Ether()/Dot1Q()/IP()/UDP()", "vary": {"Dot1Q.vlan": {"list": [110, 120, 140]}}}


@pytest.mark.parametrize("sink", ["tcpdump", "bpf"])
def test_replaced_vlans_are_compared_with_those_that_the_switch_is_configured_to_send(results, tmp_path, sink):
    """The frames fit in a socket of Open vSwitch, which is a process that must wait for its CPU."""
    frames = 150
    assert shutil.which("ovs-vswitchd"), "install openvswitch-switch"
    packets = [{**TAGGED_BY_TURNS, "name": "right"}, {**TAGGED_BY_TURNS, "name": "wrong", "expect": EXPECTED_WRONG}]
    switch = "  - {name: retag, kind: ovs, retag: {10: 110, 20: 120, 30: 130}}\n"
    wanted = settings(packet=json.dumps(packets), generator="afpacket", sink=sink, loads="300fps", duration="500ms")
    topology = topology_in(tmp_path, more=switch)
    done = netbench("run", topology, "quick", "-o", results, "--uut", "retag", *WANTED, *PATIENT, *wanted)
    assert done.returncode == 0, done.stderr
    found = exported(results)
    assert [(row["sent_frames"], row["received_frames"]) for row in found] == [(frames, frames)] * 2
    assert {row["packet"]: {entry["field"]: entry["frames"] for entry in row["changed_fields"]} for row in found} == {
        "right": {},
        "wrong": {"Dot1Q.vlan": frames // 3},
    }

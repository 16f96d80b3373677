"""Described packets: every frame is accounted and has the described bytes; the flows that lose frames are known."""

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import dpkt
import pytest
from scapy.layers.l2 import Ether

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


# Descriptions of what arrives that are wrong in some fields, of varying ones for some of the frames.
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
    for sink in ("tcpdump", "bpf"):
        wanted = settings(packet=packet, generator="afpacket", sink=sink, frame_sizes="[64, 9068]", loads="2kfps")
        done = netbench("run", file, "quick", "-o", results / sink, *WANTED, *PATIENT, *wanted)
        assert done.returncode == 0, done.stderr
        found = rows(results / sink)
        assert len(found) == 4
        for row in found:
            counts = [row[name] for name in ("sent_frames", "received_frames", "changed_frames", "lossy_flows")]
            assert (verdict_of(row), counts) == ("valid", ["200", "200", "0", "0"]), row


TAGGED_BY_TURNS = {"headers": "Ether()/Dot1Q()/IP()/UDP()", "vary": {"Dot1Q.vlan": {"list": [10, 20, 30]}}}
EXPECTED_WRONG = {"headers": "Ether()/Dot1Q()/IP()/UDP()", "vary": {"Dot1Q.vlan": {"list": [110, 120, 140]}}}


@pytest.mark.parametrize("sink", ["tcpdump", "bpf"])
def test_replaced_vlans_are_compared_with_those_that_the_switch_is_configured_to_send(results, tmp_path, sink):
    assert shutil.which("ovs-vswitchd"), "install openvswitch-switch"
    packets = [{**TAGGED_BY_TURNS, "name": "right"}, {**TAGGED_BY_TURNS, "name": "wrong", "expect": EXPECTED_WRONG}]
    switch = "  - {name: retag, kind: ovs, retag: {10: 110, 20: 120, 30: 130}}\n"
    wanted = settings(packet=json.dumps(packets), generator="afpacket", sink=sink)
    topology = topology_in(tmp_path, more=switch)
    done = netbench("run", topology, "quick", "-o", results, "--uut", "retag", *WANTED, *PATIENT, *wanted)
    assert done.returncode == 0, done.stderr
    found = {
        row["packet"]: {entry["field"]: entry["frames"] for entry in row["changed_fields"]} for row in exported(results)
    }
    assert found == {"right": {}, "wrong": {"Dot1Q.vlan": FRAMES // 3}}

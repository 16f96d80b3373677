"""A bridge outside netbench's control floods no test frame: its sinks announce all addresses beforehand."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from netbench.hosts.clock import wait_until
from tests.commands import PATIENT, netbench, rows, settings, verdict_of

pytestmark = pytest.mark.root

# a0 and b0 are the ports. Their other ends, and the third port c0, belong to a bridge in a namespace.
OUTSIDE, PORTS = "nbt-switch", ("a0", "b0", "c0")
TOPOLOGY = """
name: switch
hosts:
  tester: {kind: netns, ports: {tx: nbt-a0, rx: nbt-b0}}
links:
  - {ends: [tester/tx], rate: 1Gbit/s}
  - {ends: [tester/rx], rate: 1Gbit/s}
streams:
  - {name: s1, source: tester/tx, sink: tester/rx}
uuts:
  - {name: outside, kind: external}
"""
REVERSE = TOPOLOGY.replace("uuts:", "  - {name: back, reverse: s1}\nuuts:")
VLANS = [10, 20, 30]
FRAMES = 3000
WANTED = settings(repetitions=2, retries=8, frame_sizes=128, generator="afpacket")

# Counts the frames that arrive at an interface until stdin ends: those with pktgen's header, and learning frames.
COUNT = """
import select, socket, sys
receiver = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
receiver.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
receiver.bind((sys.argv[1], 3))
print(flush=True)
flooded = learning = 0
while True:
    readable = select.select([receiver, sys.stdin], [], [])[0]
    if receiver not in readable:
        break
    frame, address = receiver.recvfrom(2048)
    if address[2] != socket.PACKET_OUTGOING:
        flooded += bytes.fromhex("be9be955") in frame
        learning += frame[12:14] == bytes.fromhex("88b5")
print(flooded, learning)
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def in_switch(*words: str) -> None:
    ip("netns", "exec", OUTSIDE, *words)


@pytest.fixture
def switch() -> Iterator[None]:
    """The bridge, and the interface c1 at its third port."""
    ip("netns", "add", OUTSIDE)
    try:
        for port in ("a0", "b0"):
            ip("link", "add", f"nbt-{port}", "type", "veth", "peer", port, "netns", OUTSIDE)
            subprocess.run(["sysctl", "-qw", f"net.ipv6.conf.nbt-{port}.disable_ipv6=1"], check=True)
        ip("-n", OUTSIDE, "link", "add", "c0", "type", "veth", "peer", "c1")
        ip("-n", OUTSIDE, "link", "add", "nbt-br", "type", "bridge", "mcast_snooping", "0", "forward_delay", "0")
        for link in ("a0", "b0", "c0", "c1", "nbt-br"):
            in_switch("sysctl", "-qw", f"net.ipv6.conf.{link}.disable_ipv6=1")
            if link in PORTS:
                ip("-n", OUTSIDE, "link", "set", link, "master", "nbt-br")
            ip("-n", OUTSIDE, "link", "set", link, "up")
        in_switch("sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0")
        yield
    finally:
        subprocess.run(["ip", "netns", "delete", OUTSIDE], check=False)
        for port in ("nbt-a0", "nbt-b0"):
            subprocess.run(["ip", "link", "delete", port], check=False, capture_output=True)


@pytest.fixture
def vlan_switch(switch, tmp_path) -> Iterator[None]:
    """Open vSwitch instead of the bridge: it has a table of addresses for each VLAN."""
    database, socket = tmp_path / "conf.db", tmp_path / "db.sock"
    remote, log = f"unix:{socket}", "-vconsole:off"
    environment = {**os.environ, "OVS_RUNDIR": str(tmp_path)}
    processes: list[subprocess.Popen[bytes]] = []

    def spawn(*argv: str) -> None:
        processes.append(subprocess.Popen(["ip", "netns", "exec", OUTSIDE, *argv], env=environment))

    for port in PORTS:
        ip("-n", OUTSIDE, "link", "set", port, "nomaster")
    subprocess.run(["ovsdb-tool", "create", str(database)], check=True)
    try:
        spawn("ovsdb-server", str(database), f"--remote=p{remote}", "--unixctl=none", log)
        assert wait_until(socket.exists, 10)
        spawn("ovs-vswitchd", remote, log)
        ports = " ".join(f"-- add-port br {port}" for port in PORTS)
        bridge = "add-br br -- set bridge br datapath_type=netdev other_config:mac-table-size=10000"
        made = ["ovs-vsctl", f"--db={remote}", "--timeout=20", *f"--no-syslog {bridge} {ports}".split()]
        in_switch(*made)
        yield
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


@contextmanager
def counted_at_third_port(counts: list[int]) -> Iterator[None]:
    """Count the frames that arrive at the third port: test frames, then untagged learning frames."""
    pipe = subprocess.PIPE
    argv = ["ip", "netns", "exec", OUTSIDE, sys.executable, "-c", COUNT, "c1"]
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as counter:
        assert counter.stdout
        assert counter.stdout.readline(), "it listens"
        yield
        counts += map(int, counter.communicate()[0].split())


MACS: dict[str, object] = {"Ether.dst": {"from": "02:00:00:00:01:00", "count": 1000}}
PACKETS: dict[str, dict[str, object]] = {
    "chosen MAC": {"headers": 'Ether(dst="02:00:00:00:01:00")/IP()/UDP()'},
    "1,000 MACs": {"headers": "Ether()/IP()/UDP()", "vary": MACS},
    "VLAN": {"headers": "Ether()/Dot1Q(vlan=20)/IPv6()/UDP()"},
    "VLANs and MACs": {
        "headers": "Ether()/Dot1Q()/IP()/UDP()",
        "vary": {"Dot1Q.vlan": {"list": VLANS}, **MACS, "combined": True},
    },
    "QinQ and MACs": {"headers": "Ether()/Dot1AD(vlan=30)/Dot1Q(vlan=5)/IP()/UDP()", "vary": MACS},
}


@pytest.mark.parametrize("sink", ["tcpdump", "bpf"])
@pytest.mark.parametrize("name", PACKETS)
def test_no_test_frame_is_flooded(switch, results, tmp_path, name, sink):
    counts = run(tmp_path, results, TOPOLOGY, sink, PACKETS[name])
    assert counts[0] == 0
    assert counts[1] > 0, "the first one goes to a source that has not sent yet"


@pytest.mark.skipif(not shutil.which("ovs-vswitchd"), reason="needs Open vSwitch: apt-get install openvswitch-switch")
@pytest.mark.parametrize("sink", ["tcpdump", "bpf"])
@pytest.mark.parametrize("name", ["VLAN", "VLANs and MACs", "QinQ and MACs"])
def test_no_test_frame_is_flooded_in_any_vlan(vlan_switch, results, tmp_path, name, sink):
    # 1,000 frames: at most 270 fit in the socket of Open vSwitch, which is a process that must wait for its CPU.
    counts = run(tmp_path, results, TOPOLOGY, sink, PACKETS[name], fps=1000, frames=1000)
    assert counts[0] == 0


@pytest.mark.parametrize("sink", ["tcpdump", "bpf"])
def test_no_test_frame_of_either_direction_is_flooded(switch, results, tmp_path, sink):
    sources = {"Ether.src": {"from": "02:00:00:01:00:00", "count": 1000}}
    packet = {"headers": "Ether()/IP()/UDP()", "vary": {**MACS, **sources}}
    assert run(tmp_path, results, REVERSE, sink, packet)[0] == 0


@pytest.mark.parametrize("sink", ["tcpdump", "bpf"])
def test_the_bridge_learns_as_many_addresses_as_sinks_announce(switch, results, tmp_path, sink):
    packet = {"headers": "Ether()/IP()/UDP()", "vary": {"Ether.dst": {"from": "02:00:00:01:00:00", "count": 65_536}}}
    assert run(tmp_path, results, TOPOLOGY, sink, packet, frames=66_000)[0] == 0


def test_a_bridge_that_learns_nothing_floods_all_frames(switch, results, tmp_path):
    """Shows that floods are seen."""
    ip("-n", OUTSIDE, *["link", "set", "nbt-br", "type", "bridge", "ageing_time", "0"])
    assert run(tmp_path, results, TOPOLOGY, "tcpdump", PACKETS["1,000 MACs"])[0] >= 2 * FRAMES


def run(
    tmp_path: Path,
    results: Path,
    topology: str,
    sink: str,
    packet: Mapping[str, object],
    *,
    fps: int = 30_000,
    frames: int = FRAMES,
) -> list[int]:
    """Run two trials in which all frames must arrive; return the frames at the third port."""
    file = tmp_path / "switch.yaml"
    file.write_text(topology)
    paced = settings(loads=f"{fps}fps", duration=f"{frames * 1000 // fps}ms")
    wanted = [*paced, *settings(packet=json.dumps(packet), sink=sink)]
    counts: list[int] = []
    with counted_at_third_port(counts):
        done = netbench("run", file, "quick", "-o", results, *WANTED, *PATIENT, *wanted)
    assert done.returncode == 0, done.stderr + done.stdout
    for row in rows(results):
        assert (verdict_of(row), row["received_frames"], row["lost_frames"]) == ("valid", str(frames), "0"), row
        assert row["changed_frames"] == "0", row
    return counts

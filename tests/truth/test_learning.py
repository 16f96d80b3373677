"""A bridge outside netbench's control floods no test frame: its sinks announce all addresses beforehand."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pytest

from netbench.hosts.clock import wait_until
from tests.commands import PATIENT, netbench, rows, settings, verdict_of

pytestmark = pytest.mark.root

# nbt-a0 to nbt-e0 are the ports. Their other ends, and the port c0, belong to a bridge in a namespace.
OUTSIDE, TESTED = "nbt-switch", ("a0", "b0", "d0", "e0")
PORTS = (*TESTED, "c0")
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
TWO = """
name: switch
hosts:
  tester: {kind: netns, ports: {tx: nbt-a0, rx: nbt-b0, tx2: nbt-d0, rx2: nbt-e0}}
links:
  - {ends: [tester/tx], rate: 1Gbit/s}
  - {ends: [tester/rx], rate: 1Gbit/s}
  - {ends: [tester/tx2], rate: 1Gbit/s}
  - {ends: [tester/rx2], rate: 1Gbit/s}
streams:
  - {name: s1, source: tester/tx, sink: tester/rx}
  - {name: s2, source: tester/tx2, sink: tester/rx2}
uuts:
  - {name: outside, kind: external}
"""
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


# Forwards frames between two interfaces after DELAY_S, except those to addresses that no bridge forwards.
DELAY_S = 0.1
FORWARD = """
import collections, select, socket, sys, time
delay_s, sockets, queue = float(sys.argv[1]), [], collections.deque()
for name in sys.argv[2:]:
    sockets.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
    sockets[-1].setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
    sockets[-1].bind((name, 3))
print(flush=True)
while True:
    wait_s = max(0, queue[0][0] - time.monotonic()) if queue else 1
    for receiver in select.select(sockets, [], [], wait_s)[0]:
        frame, address = receiver.recvfrom(2048)
        if address[2] != socket.PACKET_OUTGOING and frame[:5] != bytes.fromhex("0180c20000"):
            queue.append((time.monotonic() + delay_s, sockets[receiver is sockets[0]], frame))
    while queue and queue[0][0] <= time.monotonic():
        _, sender, frame = queue.popleft()
        sender.send(frame)
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
        for port in TESTED:
            ip("link", "add", f"nbt-{port}", "type", "veth", "peer", port, "netns", OUTSIDE)
            subprocess.run(["sysctl", "-qw", f"net.ipv6.conf.nbt-{port}.disable_ipv6=1"], check=True)
        ip("-n", OUTSIDE, "link", "add", "c0", "type", "veth", "peer", "c1")
        ip("-n", OUTSIDE, "link", "add", "nbt-br", "type", "bridge", "mcast_snooping", "0", "forward_delay", "0")
        for link in (*PORTS, "c1", "nbt-br"):
            in_switch("sysctl", "-qw", f"net.ipv6.conf.{link}.disable_ipv6=1")
            if link in PORTS:
                ip("-n", OUTSIDE, "link", "set", link, "master", "nbt-br")
            ip("-n", OUTSIDE, "link", "set", link, "up")
        in_switch("sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0")
        yield
    finally:
        subprocess.run(["ip", "netns", "delete", OUTSIDE], check=False)
        for port in TESTED:
            subprocess.run(["ip", "link", "delete", f"nbt-{port}"], check=False, capture_output=True)


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


@pytest.fixture
def slow_path(switch) -> Iterator[None]:
    """A slow forwarder instead of the bridge."""
    for port in PORTS:
        ip("-n", OUTSIDE, "link", "set", port, "nomaster")
    argv = ["ip", "netns", "exec", OUTSIDE, sys.executable, "-c", FORWARD, str(DELAY_S), "a0", "b0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as forwarder:
        assert forwarder.stdout
        assert forwarder.stdout.readline(), "it listens"
        yield
        forwarder.kill()


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


# Both sinks send the same learning frames: each case uses one of them, in turn.
@pytest.mark.parametrize(("name", "sink"), [*zip(PACKETS, cycle(["tcpdump", "bpf"]), strict=False)])
def test_no_test_frame_is_flooded(switch, results, tmp_path, name, sink):
    counts = run(tmp_path, results, TOPOLOGY, sink, PACKETS[name])
    assert counts[0] == 0
    assert counts[1] > 0, "the first one goes to a source that has not sent yet"


@pytest.mark.skipif(not shutil.which("ovs-vswitchd"), reason="needs Open vSwitch: apt-get install openvswitch-switch")
@pytest.mark.parametrize(
    ("name", "sink"),
    [("VLAN", "bpf"), ("VLANs and MACs", "tcpdump"), ("VLANs and MACs", "bpf"), ("QinQ and MACs", "bpf")],
)
def test_no_test_frame_is_flooded_in_any_vlan(vlan_switch, results, tmp_path, name, sink):
    # 1,000 frames: at most 270 fit in the socket of Open vSwitch, which is a process that must wait for its CPU.
    counts = run(tmp_path, results, TOPOLOGY, sink, PACKETS[name], fps=1000, frames=1000)
    assert counts[0] == 0


@pytest.mark.parametrize("sink", ["tcpdump", "bpf"])
def test_no_test_frame_of_either_direction_is_flooded(switch, results, tmp_path, sink):
    sources = {"Ether.src": {"from": "02:00:00:01:00:00", "count": 1000}}
    packet = {"headers": "Ether()/IP()/UDP()", "vary": {**MACS, **sources}}
    assert run(tmp_path, results, REVERSE, sink, packet)[0] == 0


def test_the_bridge_learns_as_many_addresses_as_sinks_announce(switch, results, tmp_path):
    packet = {"headers": "Ether()/IP()/UDP()", "vary": {"Ether.dst": {"from": "02:00:00:01:00:00", "count": 65_536}}}
    assert run(tmp_path, results, TOPOLOGY, "bpf", packet, frames=66_000)[0] == 0


@pytest.mark.parametrize(("macs", "sink"), [(50, "tcpdump"), (3000, "bpf")])
def test_late_learning_frames_are_not_foreign_frames(slow_path, results, tmp_path, sink, macs):
    """50 are sent before each trial, 3,000 before the first one."""
    first = {"Ether.dst": "02:00:00:00:00:00", "Ether.src": "02:00:00:01:00:00"}
    vary = {field: {"from": mac, "count": macs} for field, mac in first.items()}
    run(tmp_path, results, REVERSE, sink, {"headers": "Ether()/IP()/UDP()", "vary": vary}, fps=2000, frames=200)


def test_a_bridge_that_learns_nothing_floods_all_frames(switch, results, tmp_path):
    """Shows that floods are detected."""
    ip("-n", OUTSIDE, *["link", "set", "nbt-br", "type", "bridge", "ageing_time", "0"])
    assert run(tmp_path, results, TOPOLOGY, "tcpdump", PACKETS["1,000 MACs"])[0] >= 2 * FRAMES


@pytest.mark.parametrize("sink", ["tcpdump", "bpf"])
def test_flooded_frames_of_one_stream_never_count_in_another(switch, results, tmp_path, sink):
    """All frames reach both sinks, but the first stream loses 7 of 10 frames on the way to its own sink."""
    ip("-n", OUTSIDE, *["link", "set", "nbt-br", "type", "bridge", "ageing_time", "0"])
    of_stream = "ip saddr 198.18.1.0/24 udp length > 50"  # not of its probes
    chain = f'type filter hook egress device "b0" priority 0; {of_stream} numgen inc mod 10 < 7 drop;'
    in_switch("nft", f"table netdev lost {{ chain c {{ {chain} }} ; }}")
    file = tmp_path / "switch.yaml"
    file.write_text(TWO)
    packet = {"headers": "Ether()/IP()/UDP()"}
    paced = settings(loads="5kfps", duration="100ms", packet=json.dumps(packet), sink=sink)
    netbench("run", file, "quick", "-o", results, *WANTED, *PATIENT, *paced, *settings(repetitions=1))
    found = {
        row["stream"]: [int(row[f"{what}_frames"]) for what in ("received", "duplicate", "changed")]
        for row in rows(results)
    }
    assert found == {"s1": [150, 0, 0], "s2": [500, 0, 0]}


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

"""Ports of the machine, lent to a testbed; they are emulated by veth ends in this machine's own namespace."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from netbench.hosts.clock import wait_until
from netbench.hosts.trusted_code import module_command
from tests.commands import FEW, netbench, rows, settings, verdict_of
from tests.netns.watching import events, wait_for

pytestmark = pytest.mark.root

# a0 and b0 are the ports; their other ends are joined by a bridge in a namespace: the unit under test.
OUTSIDE = "nbt-ports"
TOPOLOGY = """
name: ports
hosts:
  tester: {kind: KIND, ports: {tx: nbt-a0, rx: {nic: nbt-b0, addresses: [192.0.2.7]}}}
links:
  - {ends: [tester/tx], rate: 1Gbit/s}
  - {ends: [tester/rx], rate: 1Gbit/s}
streams:
  - {name: s1, source: tester/tx, sink: tester/rx}
uuts:
  - {name: outside, kind: external}
"""


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def offloads(port: str) -> str:
    return subprocess.run(["ethtool", "-k", port], check=True, capture_output=True, text=True).stdout


def look(port: str) -> tuple[str, ...]:
    """The state of a port, without values that depend on the time of the query."""
    return ip("-br", "link", "show", port), ip("-br", "-4", "address", "show", port), offloads(port)


@pytest.fixture
def topology(tmp_path):
    """A topology file over two ports with an outside world between them; the kind of host is still to be chosen."""
    ip("netns", "add", OUTSIDE)
    try:
        for port in ("nbt-a0", "nbt-b0"):
            ip("link", "add", port, "type", "veth", "peer", port[4:], "netns", OUTSIDE)
            subprocess.run(["sysctl", "-qw", f"net.ipv6.conf.{port}.disable_ipv6=1"], check=True)
        ip("-n", OUTSIDE, "link", "add", "nbt-br", "type", "bridge", "mcast_snooping", "0", "forward_delay", "0")
        for end in ("a0", "b0"):
            ip("-n", OUTSIDE, "link", "set", end, "master", "nbt-br")
        for link in ("a0", "b0", "nbt-br"):
            ip("netns", "exec", OUTSIDE, "sysctl", "-qw", f"net.ipv6.conf.{link}.disable_ipv6=1")
            ip("-n", OUTSIDE, "link", "set", link, "up")
        ip("netns", "exec", OUTSIDE, "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0")
        ip("link", "set", "nbt-b0", "up")
        ip("address", "add", "192.0.2.7/24", "dev", "nbt-b0")
        yield tmp_path / "ports.yaml"
    finally:
        subprocess.run(["ip", "netns", "delete", OUTSIDE], check=False)
        for port in ("nbt-a0", "nbt-b0"):
            subprocess.run(["ip", "link", "delete", port], check=False, capture_output=True)


def looks() -> tuple[tuple[str, ...], ...]:
    """The state of both ports."""
    return look("nbt-a0"), look("nbt-b0")


def assert_back(before: tuple[tuple[str, ...], ...]) -> None:
    """Wait until they are as before: the kernel checks only once a second whether they are up (linkwatch)."""
    wait_until(lambda: looks() == before, 5)
    assert looks() == before


# Settings of users on a port, with `P` for its name. The last is one setting per way to set it.
FURNISHED = """
ip link set P up alias words mtu 1400 txqueuelen 77 group 5 allmulticast on
ip link property add dev P altname nbt-other-P
ip link set P addrgenmode none
ip address flush dev P
ip address add 192.0.5.7 peer 192.0.5.9/32 dev P label P:x
ip address add 192.0.5.7/24 broadcast 192.0.5.200 dev P metric 77 noprefixroute
ip address add 192.0.3.7/24 dev P valid_lft 5000 preferred_lft 4000
ip address add 192.0.4.7/24 dev P scope link
sysctl -qw net.ipv6.conf.P.disable_ipv6=0
ip address add 2001:db8::7/64 dev P home nodad mngtmpaddr
ip address add 2001:db8::8/64 dev P noprefixroute valid_lft 5000 preferred_lft 0
ip address add fe80::77/64 dev P
ethtool -K P tx-tcp6-segmentation off gro on
sysctl -qw net.ipv4.conf.P.proxy_arp=1 net.ipv4.conf.P.forwarding=1 net.ipv6.conf.P.hop_limit=77
sysctl -qw net.ipv4.neigh.P.app_solicit=9 net.ipv4.neigh.P.unres_qlen=33 net.ipv6.neigh.P.retrans_time_ms=1234
sysctl -qw net.ipv6.conf.P.stable_secret=2001:db8::1
"""


def everything(port: str) -> str:
    """The full state of a port, without values that depend on the time of the query."""
    files = Path("/proc/sys/net").glob(f"ipv[46]/*/{port}")
    values = subprocess.run(["grep", "-rsH", "", *files], check=False, capture_output=True, text=True).stdout
    lifetimes = re.compile(r"(valid_lft|preferred_lft) (4|3)\d\d\dsec")
    addresses = lifetimes.sub(r"\1 some time", ip("address", "show", port))
    routes = ip("route", "show", "table", "all", "dev", port) + ip("-6", "route", "show", "table", "all", "dev", port)
    return "\n".join((addresses, ip("-d", "link", "show", port), routes, offloads(port), values))


def interrupted_until_its_end(campaign: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """The exit code of a run whose process group constantly received SIGINT, its stderr, and the leftovers to clean."""
    while campaign.poll() is None:
        os.killpg(campaign.pid, signal.SIGINT)
        time.sleep(0.005)
    _, messages = campaign.communicate()
    return campaign.returncode, messages, netbench("clean").stdout


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        ("netns", "done"),
        ("local", "done"),
        ("netns", "killed"),
        ("local", "killed"),
        ("netns", "Ctrl-C held down"),
    ],
)
def test_ports_are_used_and_come_back_with_all_that_people_have_done_to_them(topology, tmp_path, start, kind, ending):
    """Also one that is down."""
    named = "{nic: nbt-a0, addresses: [192.0.5.7, 192.0.3.7, 192.0.4.7, 2001:db8::7, 2001:db8::8]}"
    topology.write_text(TOPOLOGY.replace("KIND", kind).replace("nbt-a0", named))
    for line in FURNISHED.strip().replace("P", "nbt-a0").splitlines():
        subprocess.run(line.split(), check=True, capture_output=True)
    ip("link", "set", "nbt-b0", "down")
    wait_for(lambda: "tentative" not in ip("address", "show", "nbt-a0"))
    before, plain = everything("nbt-a0"), look("nbt-b0")
    results = tmp_path / "results"
    if ending == "done":
        done = netbench("run", topology, "quick", "-o", results, *FEW)
        assert done.returncode == 0, done.stderr
        (row,) = rows(results)
        assert (row["sent_frames"], row["received_frames"], verdict_of(row)) == ("200", "200", "valid"), row
    else:
        long = [*FEW, *settings(duration="20s")]
        campaign = start("run", topology, "quick", "-o", results, *long, start_new_session=True)
        wait_for(lambda: events(results))
        if ending == "killed":
            campaign.kill()
            campaign.communicate()
            assert netbench("clean").returncode == 0
        else:
            code, messages, leftovers = interrupted_until_its_end(campaign)
            assert (code, leftovers) == (130, "nothing to clean up\n"), messages
    assert everything("nbt-a0") == before
    wait_until(lambda: look("nbt-b0") == plain, 5)  # as in `assert_back`
    assert look("nbt-b0") == plain


UNRESTORABLE = {
    "ip route add 192.0.2.128/25 dev nbt-b0": "1 static routes",
    "ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev nbt-b0": "",
    "ip neigh add proxy 192.0.2.9 dev nbt-b0": "2 static neighbours or proxies",
    "ip maddr add 33:33:00:00:00:55 dev nbt-b0": "static multicast addresses",
    "bridge fdb add 02:00:00:00:00:99 dev nbt-b0 self": "the further MAC address 02:00:00:00:00:99",
    "tc qdisc add dev nbt-b0 root handle 7: tbf rate 1gbit burst 100k latency 1ms": "the queueing discipline tbf 7:",
    "tc qdisc add dev nbt-b0 clsact": "the queueing discipline clsact ffff:",
}


def test_a_port_that_could_not_be_given_back_as_it_is_is_refused(topology, tmp_path):
    """Before any change, although the other port comes first."""
    topology.write_text(TOPOLOGY.replace("KIND", "netns"))
    for command in UNRESTORABLE:
        subprocess.run(command.split(), check=True)
    before = ip("-d", "address")
    done = netbench("run", topology, "quick", "-o", tmp_path / "results", *FEW)
    assert (done.returncode, done.stdout) == (2, "")
    assert "port nbt-b0 cannot be restored after the run, because it has " in done.stderr
    assert [named for named in UNRESTORABLE.values() if named not in done.stderr] == [], done.stderr
    dry = netbench("run", topology, "quick", "--dry-run")
    assert (dry.returncode, dry.stderr) == (2, done.stderr)
    assert ip("-d", "address") == before
    assert not (tmp_path / "results").exists()


def test_a_port_that_spanning_tree_holds_back_is_waited_for(topology, tmp_path):
    """It listens for two seconds and learns for two; its BPDUs, one per second, do not count as foreign traffic."""
    ip("-n", OUTSIDE, "link", "set", "nbt-br", "type", "bridge", "stp_state", "1", "hello_time", "100")
    ip("-n", OUTSIDE, "link", "set", "nbt-br", "type", "bridge", "forward_delay", "200")
    topology.write_text(TOPOLOGY.replace("KIND", "netns"))
    longer = settings(loads="1000fps", duration="1500ms")
    done = netbench("run", topology, "quick", "-o", tmp_path / "results", *FEW, *longer)
    assert done.returncode == 0, done.stderr
    (row,) = rows(tmp_path / "results")
    assert (row["received_frames"], row["foreign_frames"], verdict_of(row)) == ("1500", "0", "valid"), row
    assert int(row["control_frames"]) in (1, 2, 3), row


def test_a_device_that_delays_frames_loses_none(topology, tmp_path):
    """At 10 frames/s nothing moves for 0.1 s at a time, and three frames are under way when the last is sent."""
    for end in ("a0", "b0"):
        ip("-n", OUTSIDE, "link", "set", end, "nomaster")
    program = module_command("netbench.uut.forwarder_process", "a0", "b0", '{"delay": 0.3}')
    inside = ["ip", "netns", "exec", OUTSIDE, *program]
    with subprocess.Popen(inside, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as device:
        assert device.stdout
        assert device.stdout.readline(), "its sockets are open then"
        topology.write_text(TOPOLOGY.replace("KIND", "netns"))
        slow = settings(loads="10fps,2000fps", duration="1s")
        done = netbench("run", topology, "quick", "-o", tmp_path / "results", *FEW, *slow)
    assert done.returncode == 0, done.stderr
    for row in rows(tmp_path / "results"):
        assert (row["lost_frames"], row["late_frames"], verdict_of(row)) == ("0", "0", "valid"), row


def test_a_port_that_never_forwards_is_not_ready_instead_of_losing_all(topology, tmp_path):
    ip("-n", OUTSIDE, "link", "set", "a0", "nomaster")
    topology.write_text(TOPOLOGY.replace("KIND", "netns").replace("external}", "external, ready_limit: 2s}"))
    done = netbench("run", topology, "quick", "-o", tmp_path / "results", *FEW)
    assert done.returncode == 1
    assert "stream s1: not ready: of" in done.stderr + done.stdout
    (row,) = rows(tmp_path / "results")
    assert (row["verdict"], row["reasons"], row["received_frames"]) == ("invalid", "uut-failed", "")


# A device that puts an 802.1Q tag into each frame from a0 to b0.
TAGS = """
import socket
receiver, sender = (socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) for _ in range(2))
receiver.bind(("a0", 3))
sender.bind(("b0", 0))
print(flush=True)
while True:
    frame, address = receiver.recvfrom(2048)
    if address[2] != socket.PACKET_OUTGOING:
        sender.send(frame[:12] + bytes.fromhex("81000064") + frame[12:])
"""


@contextmanager
def tagging_device(topology):
    """A device between the ports that tags all frames with VLAN 100, as the UUT of a topology."""
    for end in ("a0", "b0"):
        ip("-n", OUTSIDE, "link", "set", end, "nomaster")
    topology.write_text(TOPOLOGY.replace("KIND", "netns").replace("external}", "external, ready_limit: 2s}"))
    inside = ["ip", "netns", "exec", OUTSIDE, sys.executable, "-c", TAGS]
    with subprocess.Popen(inside, stdout=subprocess.PIPE) as device:
        assert device.stdout
        assert device.stdout.readline(), "its sockets are open then"
        try:
            yield
        finally:
            device.kill()


def test_probes_that_arrive_changed_are_described(topology, tmp_path):
    with tagging_device(topology):
        done = netbench("run", topology, "quick", "-o", tmp_path / "results", *FEW, *settings(sink="bpf"))
    assert "probes of 64 bytes arrived at nbt-b0 with VLAN 100, 68 bytes" in done.stderr + done.stdout
    (row,) = rows(tmp_path / "results")
    assert (row["verdict"], row["reasons"]) == ("invalid", "uut-failed")


TAGGED = "{name: tagged, headers: Ether()/IP()/UDP(), expect: Ether()/Dot1Q(vlan=100)/IP()/UDP()}"


@pytest.mark.parametrize(
    ("packet", "verdict", "text"),
    [
        (TAGGED, "valid", ""),
        (f"[plain, {TAGGED}]", "invalid", "or describe all packets, without plain, one of them with expect"),
    ],
)
def test_a_device_whose_change_is_described_is_probed_with_the_packet(topology, tmp_path, packet, verdict, text):
    with tagging_device(topology):
        chosen = settings(sink="bpf", packet=packet)
        done = netbench("run", topology, "quick", "-o", tmp_path / "results", *FEW, *chosen)
    assert text in done.stderr + done.stdout
    found = rows(tmp_path / "results")
    assert {row["verdict"] for row in found} == {verdict}, done.stdout
    if verdict == "valid":
        assert {(row["packet"], row["lost_frames"], row["changed_frames"]) for row in found} == {("tagged", "0", "0")}


def test_a_port_that_was_renamed_meanwhile_comes_back_under_its_name(topology, tmp_path, start):
    topology.write_text(TOPOLOGY.replace("KIND", "netns"))
    before = looks()
    campaign = start("run", topology, "quick", "-o", tmp_path / "results", *FEW, *settings(duration="20s"))
    wait_for(lambda: events(tmp_path / "results"))
    for words in (("down",), ("name", "nbt-renamed")):
        ip("-n", "nb-ports-tester", "link", "set", "dev", "nbt-b0", *words)
    campaign.send_signal(signal.SIGINT)
    campaign.communicate()
    assert_back(before)


def test_a_port_with_an_address_the_user_did_not_name_is_refused(topology, tmp_path):
    topology.write_text(TOPOLOGY.replace("KIND", "netns").replace("192.0.2.7", "192.0.2.8"))
    before = looks()
    done = netbench("run", topology, "quick", "-o", tmp_path / "results", *FEW)
    assert done.returncode == 2
    assert "nbt-b0" in done.stderr
    assert "192.0.2.7" in done.stderr
    assert_back(before)
    assert not (tmp_path / "results").exists()

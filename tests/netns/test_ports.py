"""Ports of the machine, lent to a testbed: veth ends in this machine's own namespace play them."""

import subprocess

import pytest

from tests.commands import netbench, rows, settings
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
SHORT = settings(
    frame_sizes=64, loads="5000fps", repetitions=1, duration="200ms", tolerance="100%", max_lateness="1min"
)


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def offloads(port: str) -> str:
    return subprocess.run(["ethtool", "-k", port], check=True, capture_output=True, text=True).stdout


def look(port: str) -> tuple[str, ...]:
    """How a port stands, without what only says when it was looked at."""
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


@pytest.mark.parametrize("kind", ["netns", "local"])
def test_ports_are_used_and_given_back_as_they_were(topology, tmp_path, kind):
    topology.write_text(TOPOLOGY.replace("KIND", kind))
    before = look("nbt-a0"), look("nbt-b0")
    done = netbench("run", topology, "quick", "-o", tmp_path / "results", *SHORT)
    assert done.returncode == 0, done.stderr
    (row,) = rows(tmp_path / "results")
    assert (row["sent_frames"], row["received_frames"], row["verdict"]) == ("1000", "1000", "valid"), row
    assert (look("nbt-a0"), look("nbt-b0")) == before


def test_ports_come_back_after_a_killed_run(topology, tmp_path, start):
    topology.write_text(TOPOLOGY.replace("KIND", "netns"))
    before = look("nbt-a0"), look("nbt-b0")
    campaign = start("run", topology, "quick", "-o", tmp_path / "results", *SHORT, *settings(duration="20s"))
    wait_for(lambda: events(tmp_path / "results"))
    campaign.kill()
    campaign.communicate()
    assert netbench("clean").returncode == 0
    assert (look("nbt-a0"), look("nbt-b0")) == before


def test_a_port_with_an_address_the_user_did_not_name_is_refused(topology, tmp_path):
    topology.write_text(TOPOLOGY.replace("KIND", "netns").replace("192.0.2.7", "192.0.2.8"))
    before = look("nbt-a0"), look("nbt-b0")
    done = netbench("run", topology, "quick", "-o", tmp_path / "results", *SHORT)
    assert done.returncode == 2
    assert "nbt-b0" in done.stderr
    assert "192.0.2.7" in done.stderr
    assert (look("nbt-a0"), look("nbt-b0")) == before
    assert not (tmp_path / "results").exists()

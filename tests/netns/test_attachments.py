"""Containers attached by a bridge, a macvlan and NAT serve clients in whole campaigns; nothing of them stays behind."""

import json
import os
import signal
import subprocess

import pytest

from netbench.hosts.base import run_checked
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.model.paths import StreamPath
from netbench.results.directory import ResultDirectory
from netbench.uut.guest import Guest
from netbench.uut.private_guest import guest_of
from netbench.vmm.container.container import Container, ContainerOptions
from tests.commands import netbench, settings
from tests.netns.test_flows import PROFILE, REPEATED, processes_of_runs
from tests.netns.watching import wait_for
from tests.netns.yard import FRAMES, fresh_yard

pytestmark = pytest.mark.root

ROOTS = settings(**{f"topology__uuts__container-{how}__root": "host" for how in ("bridge", "macvlan", "nat")})
# Prints the address of its first client; and connects to that, once it is there.
LISTEN = "import socket; print(socket.create_server(('0.0.0.0', 7000)).accept()[1][0])"
CONNECT = """
import socket, sys, time
for _ in range(100):
    try:
        socket.create_connection((sys.argv[1], 7000), 2)
        break
    except OSError:
        time.sleep(0.05)
"""
OUTSIDE, GUEST = "198.18.1.1", "10.118.1.2"


def run(results, tool, load, uut, *more):
    profile = results.with_suffix(".yaml")
    profile.write_text(PROFILE.format(tool=json.dumps(tool), load=load))
    done = netbench("run", "netns-attachments", profile, "-o", results, "--uut", uut, *REPEATED, *ROOTS, *more)
    assert done.returncode == 0, done.stderr + done.stdout
    (trial,) = ResultDirectory(results).results().trials
    (flow,) = trial.victim.flows
    return flow, trial


ATTACHED = {"container-bridge": "veth", "container-macvlan": "macvlan", "container-nat": "veth behind NAT"}


@pytest.mark.parametrize("uut", ATTACHED)
def test_requests_agree_with_the_wire_to_the_byte(results, uut):
    flow, trial = run(results, {"kind": "http", "body_size": 5000}, "100/s", uut)
    assert (flow.intended, flow.completed, flow.errors) == (80, 80, {})
    assert {tap.place for tap in flow.wire} == {"client", "guest"}
    for tap in flow.wire:
        assert (tap.to_server_bytes, tap.to_client_bytes) == (flow.run_to_server_bytes, flow.run_to_client_bytes)
        assert (tap.dropped_frames, tap.uncaptured_bytes, tap.retransmissions, tap.error) == (0, 0, 0, "")
    assert "capture-failed" not in {reason.kind.value for reason in trial.reasons}
    assert ResultDirectory(results).results().facts[uut]["attachment"] == ATTACHED[uut]


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("direction", ["upload", "download"])
def test_bandwidth_through_nat_agrees_with_the_wire(results, protocol, direction):
    tool = {"kind": "iperf3", "direction": direction, "protocol": protocol}
    tool |= {"message_size": 1000} if protocol == "udp" else {}
    load = "2Mbit/s" if protocol == "udp" else "20Mbit/s"  # while this machine is busy, a socket overflows at 20
    flow, _ = run(results, tool, load, "container-nat", *settings(duration="2s"))
    to_server = direction == "upload"
    if protocol == "udp":
        assert flow.lost_datagrams == 0
        # One datagram opens the connection, and is no part of the load.
        sent = {tap.to_server_segments if to_server else tap.to_client_segments for tap in flow.wire}
        assert sent == {flow.started + 1}
        return
    by_tool = flow.run_to_server_bytes if to_server else flow.run_to_client_bytes
    for tap in flow.wire:
        by_wire = tap.to_server_bytes if to_server else tap.to_client_bytes
        assert by_wire == pytest.approx(by_tool, rel=0.001)


def test_a_neighbour_serves_behind_nat_too(results, tmp_path):
    """Each has its own network and port."""
    topology = tmp_path / "two.yaml"
    uut = {"name": "nat", "kind": "container", "attachment": "nat"}
    links = [["source/tx", "uut/in"], ["uut/out", "sink/rx"]]
    text = {
        "name": "nbt-two",
        "hosts": {"source": {}, "uut": {}, "sink": {}},
        "links": [{"ends": [f"{end}{n}" for end in ends], "rate": "1Gbit/s"} for n in (1, 2) for ends in links],
        "streams": [
            {
                "name": name,
                "source": f"source/tx{n}",
                "ingress": f"uut/in{n}",
                "egress": f"uut/out{n}",
                "sink": f"sink/rx{n}",
            }
            for n, name in ((1, "s1"), (2, "n1"))
        ],
        "neighbours": [{"name": "second", "streams": ["n1"]}],
        "uuts": [uut],
    }
    topology.write_text(json.dumps(text))
    profile = results.with_suffix(".yaml")
    profile.write_text(PROFILE.format(tool=json.dumps({"kind": "http"}), load="50/s"))
    both = {"name": "both", "activity": {"serve": {"kind": "http"}, "load": "50/s"}}
    done = netbench("run", topology, profile, "-o", results, *REPEATED, *settings(scenarios=json.dumps([both])))
    assert done.returncode == 0, done.stderr + done.stdout
    (trial,) = ResultDirectory(results).results().trials
    completed = {guest.name: sum(flow.completed or 0 for flow in guest.flows) for guest in trial.guests}
    assert completed["victim"] == 40
    assert completed["second"] >= 40


@pytest.fixture
def yard():
    with fresh_yard("nbt-attach") as yard:
        yield yard
        assert yard.left() == []


def state_of(host: NamespaceHost) -> dict[str, str]:
    """Everything in a namespace that an attachment changes."""
    commands = {
        "rules": ["nft", "list", "ruleset"],
        "links": ["sh", "-c", "ip -o link | cut -d: -f2 | sort"],
        "addresses": ["sh", "-c", "ip -4 -o addr | sed 's/^[0-9]*: //' | sort"],
        "routes": ["ip", "-4", "route", "show", "table", "all"],
        "settings": ["sh", "-c", "cd /proc/sys/net/ipv4 && head conf/*/forwarding conf/*/rp_filter ip_forward"],
    }
    return {name: run_checked(host, command) for name, command in commands.items()}


def nat(**options) -> Guest:
    return guest_of(Container(ContainerOptions(attachment="nat", **options)))


def test_nat_masquerades_and_is_undone(yard):
    """Connections of the guest reach hosts outside with its host's address; the host is afterwards as before."""
    path: StreamPath = yard.paths[0]
    outside, host = yard.hosts["source"], yard.hosts["uut"]
    run_checked(outside, ["ip", "addr", "add", f"{path.src_ip}/24", "dev", path.source.interface])
    before = state_of(host)
    with yard.uut(nat(), "g", (path,)) as active:
        assert active.ready.addresses == {path.name: OUTSIDE}
        assert active.ready.listening == {path.name: GUEST}
        inside = active.ready.inside
        assert inside is not None
        server = outside.spawn(["python3", "-c", LISTEN])
        run_checked(inside, ["python3", "-c", CONNECT, path.src_ip])
        assert server.communicate(timeout=10)[0].strip() == OUTSIDE
        during = state_of(host)
        assert "masquerade" in during["rules"]
        assert active.uut.read().counters, "the interface of the guest is counted"
    assert state_of(host) == before


def test_the_end_of_the_bridge_is_missed(yard):
    path = yard.paths[0]
    with yard.uut(nat(), "g", (path,)) as active:
        run_checked(yard.hosts["uut"], ["ip", "link", "set", "dev", f"nb-vi-{path.name}", "down"])
        with pytest.raises(Exception, match=f"guest g: nb-vi-{path.name} is down"):
            active.uut.read()


def test_a_macvlan_forwards_frames_and_the_next_one_has_its_address(yard):
    path = yard.paths[0]
    before = state_of(yard.hosts["uut"])
    for _ in range(2):
        guest = guest_of(Container(ContainerOptions(attachment="macvlan", forward="route")))
        with yard.uut(guest, "g", (path,)) as active:
            assert active.ready.facts["attachment"] == "macvlan"
            assert yard.forwarded(active, path) == FRAMES
    assert state_of(yard.hosts["uut"]) == before


@pytest.mark.parametrize("uut", ["container-macvlan", "container-nat"])
def test_a_killed_controller_leaves_nothing_after_clean(results, start, uut):
    profile = results.with_suffix(".yaml")
    profile.write_text(PROFILE.format(tool=json.dumps({"kind": "http"}), load="50/s"))
    times = settings(duration="5s", warm_up="1s", repetitions=1)
    running = start("run", "netns-attachments", profile, "-o", results, "--uut", uut, *ROOTS, *times)
    wait_for(lambda: any("netbench.tools.tcp_client" in command for command in processes_of_runs().values()))
    os.kill(running.pid, signal.SIGKILL)
    running.communicate(timeout=60)
    assert netbench("clean").returncode == 0
    assert processes_of_runs() == {}
    assert "nb-" not in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout

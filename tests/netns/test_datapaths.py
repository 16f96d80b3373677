"""All datapaths of this machine's kernel and Open vSwitch: every frame is counted, and every change is undone."""

import ctypes
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from netbench.bpf.libbpf import BpfError, libbpf
from netbench.config.document import yaml_text
from netbench.errors import TestbedError
from netbench.hosts.base import run_checked
from netbench.linux.safety.foreign_hooks import is_own_program
from netbench.uut.ovs import Ovs, OvsOptions
from netbench.uut.raw import Raw, RawOptions
from tests.commands import FEW, FEW_FRAMES, netbench, rows, settings, verdict_of
from tests.netns.watching import events, pids_in, wait_for
from tests.netns.yard import FRAMES, assert_declared, fresh_yard
from tests.unit.inputs import topology

pytestmark = pytest.mark.root
needs_ovs = pytest.mark.skipif(
    not shutil.which("ovs-vswitchd"), reason="needs Open vSwitch: apt-get install openvswitch-switch"
)
needs_lxc = pytest.mark.skipif(not shutil.which("lxc-start"), reason="needs LXC: apt-get install lxc")
RAW: dict[str, dict[str, object]] = {
    "bridge": {},
    "route": {"forward": "route"},
    "tc": {"forward": "tc"},
    "tc-rps": {"forward": "tc", "rps": [0]},
    "xdp": {"forward": "xdp"},
    "xdp-generic": {"forward": "xdp", "xdp": "generic"},
}
XDP = ("xdp", "xdp-generic")
WAYS = [*RAW, pytest.param("ovs", marks=needs_ovs)]
# Drops one of every 4 frames at the ingress NIC: the NIC counts it, bridge and IP layer never receive it.
DROP = """add table netdev others
add chain netdev others c { type filter hook ingress device "nb-in1" priority 0; }
add rule netdev others c ip protocol udp numgen inc mod 4 < 1 counter drop
"""


def made(way: str) -> Raw | Ovs:
    return Ovs(OvsOptions()) if way == "ovs" else Raw(RawOptions.model_validate(RAW[way]))


def described(way: str) -> dict[str, object]:
    return {"name": way, "kind": "ovs"} if way == "ovs" else {"name": way, "kind": "raw", **RAW[way]}


@pytest.fixture
def yard():
    with fresh_yard("nbt-ways") as yard:
        yield yard


def state(yard) -> list[str]:
    """The state of the UUT's and the sink's namespaces that a datapath may change, without counters."""
    found = []
    for host in (yard.hosts["uut"], yard.hosts["sink"]):
        links = json.loads(run_checked(host, ["ip", "-j", "-d", "address"]))
        for link in links:
            output = {key: link.get(key) for key in ("ifname", "promiscuity", "master", "addr_info", "xdp")}
            found.append(str(output | {"flags": {"UP", "PROMISC"} & set(link["flags"])}))
        for nic in (link["ifname"] for link in links):
            found.append(run_checked(host, ["ethtool", "-k", nic]))
            found.append(host.run(["sh", "-c", f"cat /sys/class/net/{nic}/queues/rx-*/rps_cpus"]).stdout)
        for command in (["tc", "qdisc"], ["nft", "list", "ruleset"], ["sysctl", "-a", "--pattern", "forward"]):
            found.append(run_checked(host, command))
    return found


def own_programs() -> int:
    """The number of netbench's programs in the kernel."""
    found, number = 0, ctypes.c_uint32(0)
    while True:
        try:
            libbpf()("bpf_prog_get_next_id", number, ctypes.byref(number))
        except BpfError:
            return found
        found += is_own_program(number.value)


@pytest.mark.parametrize("way", WAYS)
def test_all_frames_of_several_streams_come_through_and_nothing_of_it_stays(yard, way):
    before = state(yard)
    with yard.uut(made(way), "u", yard.paths) as active:
        for path in yard.paths:
            assert yard.forwarded(active, path) == FRAMES
            if way != "ovs":
                assert_declared(active, path)
        assert own_programs() == (way in XDP)
        # Native where the other end takes frames, and reported where not.
        assert active.ready.facts.get("xdp") == {"xdp": "native", "xdp-generic": "generic"}.get(way)
        assert ("xdp" in run_checked(yard.hosts["uut"], ["ip", "-d", "link", "show", "nb-in1"])) is (way in XDP)
        assert state(yard) != before
        assert_redirected_past_rules_at_the_ingress_nic(yard, active, redirects=way not in ("bridge", "route"))
    assert state(yard) == before
    assert own_programs() == 0


def assert_redirected_past_rules_at_the_ingress_nic(yard, active, redirects):
    """Assert that a rule at the ingress NIC drops frames only where they are not redirected before it."""
    run_checked(yard.hosts["uut"], ["nft", "-f", "-"], stdin=DROP)
    assert yard.forwarded(active, yard.paths[0]) == (FRAMES if redirects else FRAMES * 3 // 4)
    run_checked(yard.hosts["uut"], ["nft", "delete", "table", "netdev", "others"])


def trouble(active) -> str:
    try:
        active.uut.read()
    except TestbedError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("way", "word", "message"),
    [
        ("xdp", "xdp_process", "the forwarder of host uut died"),
        pytest.param("ovs", "ovs-vswitchd", "ovs-vswitchd has ended with exit code -9", marks=needs_ovs),
    ],
)
def test_that_what_forwards_has_died_is_reported_and_the_uut_can_come_again(yard, way, word, message):
    with yard.uut(made(way), "u", yard.paths) as active:
        active.uut.read()
        (pid,) = pids_in("nb-nbt-ways-uut", word)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: message in trouble(active))
    with yard.uut(made(way), "u", yard.paths) as active:
        assert yard.forwarded(active, yard.paths[1]) == FRAMES


def test_every_frame_of_a_campaign_is_accounted_for(results, tmp_path):
    """At a load that all datapaths forward, and at one that overloads some."""
    ways = [way for way in (*RAW, "ovs") if way != "ovs" or shutil.which("ovs-vswitchd")]
    wanted = topology(2, map(described, ways), name="nbt-ways").model_dump(mode="json", exclude_none=True)
    (tmp_path / "topology.yaml").write_text(yaml_text(wanted))
    output = [*FEW, *settings(frame_sizes="64,1518", loads="2000fps,max", order="sequential")]
    done = netbench("run", tmp_path / "topology.yaml", "quick", "-o", results, *output)
    measured = rows(results)
    assert done.returncode == any(row["verdict"] == "invalid" for row in measured), done.stdout + done.stderr
    assert len(measured) == 2 * 2 * 2 * len(ways)
    for row in measured:
        sent, received, lost, unexplained = (
            int(row[key]) for key in ("sent_frames", "received_frames", "lost_frames", "unexplained_frames")
        )
        assert (sent, unexplained) == (received + lost, 0), row
        if row["intended_fps"] and float(row["intended_fps"]) == 2000:
            assert (verdict_of(row), lost, received) == ("valid", 0, FEW_FRAMES), row
            continue
        # On a busy machine no attempt may have the CPU time that a UUT and its source need at the highest load.
        assert verdict_of(row) == "valid" or row["reasons"] == "tester-disturbed", row
        if lost:
            assert "between" not in row["lost_at"], f"a counter names the place: {row}"


@needs_ovs
@needs_lxc
def test_the_demo_reports_its_uuts_apart_places_every_loss_and_has_a_neighbour_at_work(results):
    output = [*FEW, *settings(loads="800fps,450kfps", duration="250ms")]
    done = netbench("run", "netns-demo", "demo", "-o", results, *output)
    measured = {(row["uut"], row["scenario"], float(row["intended_fps"])): row for row in rows(results)}
    assert len(measured) == 4 * 2 * 2, done.stderr
    for (uut, scenario, fps), row in measured.items():
        sent, received, lost, unexplained = (
            int(row[key]) for key in ("sent_frames", "received_frames", "lost_frames", "unexplained_frames")
        )
        assert (sent, unexplained) == (received + lost, 0), row
        if fps == 800 and scenario == "dedicated":
            assert (verdict_of(row), lost, received) == ("valid", 0, FEW_FRAMES), row
        if fps == 450_000 and uut == "ovs-userspace":
            assert "Open vSwitch (socket full)" in row["lost_at"]
        computed_s = float(row["neighbours_cpu"].removeprefix("noisy: load=") or 0)
        assert (computed_s > 0) == (scenario == "cpu-heavy"), row


@pytest.mark.parametrize("way", ["xdp", pytest.param("ovs", marks=needs_ovs)])
def test_nothing_outlives_a_controller_that_was_killed(start, results, tmp_path, way):
    wanted = topology(1, [described(way)], name="nbt-ways").model_dump(mode="json", exclude_none=True)
    (tmp_path / "topology.yaml").write_text(yaml_text(wanted))
    output = settings(frame_sizes=64, loads="2000fps", repetitions=1, duration="30s")
    campaign = start("run", tmp_path / "topology.yaml", "quick", "-o", results, *output)
    wait_for(lambda: any(event["kind"] == "trial-started" for event in events(results)))
    campaign.kill()
    assert campaign.wait(timeout=20) == -signal.SIGKILL
    wait_for(lambda: own_programs() == 0)
    wait_for(lambda: not any(map(_is_of_way, Path("/proc").glob("[0-9]*"))))
    assert netbench("clean").returncode == 0


def _is_of_way(process: Path) -> bool:
    try:
        words = (process / "cmdline").read_text()
    except OSError:
        return False  # it has ended in the meantime
    return "netbench.uut.xdp_process" in words or ("/run/netbench/vm/" in words and "ovs" in words)

"""Guests under QEMU that forward: every NIC model, and campaigns in which guests fail."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from netbench.results.directory import ResultDirectory
from netbench.vmm.qemu.acceleration import CACHE
from netbench.vmm.qemu.command import qemu_program
from tests.commands import PATIENT, netbench, rows, settings, verdict_of
from tests.netns.watching import events, pids_in, wait_for

pytestmark = pytest.mark.vm

TOPOLOGY = """
name: guests
hosts: {source: {}, uut: {}, sink: {}}
links:
  - {ends: [source/tx1, uut/in1], rate: 1Gbit/s}
  - {ends: [uut/out1, sink/rx1], rate: 1Gbit/s}
streams:
  - {name: s1, source: source/tx1, ingress: uut/in1, egress: uut/out1, sink: sink/rx1}
uuts:
"""
UUT = "nb-guests-uut"
ONE = [
    *settings(frame_sizes=64, loads="500fps", duration="1s", repetitions=1, order="sequential", generator="afpacket"),
    *PATIENT,
]


@pytest.fixture
def topology(tmp_path):
    def write(*uuts):
        path = tmp_path / "guests.yaml"
        path.write_text(TOPOLOGY + "".join(f"  - {{{uut}}}\n" for uut in uuts))
        return path

    return write


GUEST = "name: guest, kind: qemu, forward: route"
RAW = "name: raw, kind: raw, forward: route"


def reasons(results: Path) -> str:
    """The recorded events about failed trials and UUTs."""
    found = [event.get("why", "") for event in events(results)]
    return "\n".join([*map(str, found), *(str(event["reasons"]) for event in events(results) if event.get("reasons"))])


BACK = "  - {name: back, reverse: s1}\n"


def test_every_model_of_nic_forwards_both_ways_and_counts_to_the_frame(topology, results):
    """Guests with two NICs each; one of them has two queues and two pinned vCPUs."""
    several = "cpus: 2, queues: 2, pin: {vcpus: [[0], [1]], io: [1]}"
    path = topology(
        f"name: virtio, kind: qemu, nic: virtio-net-pci, forward: bridge, vhost: 'off', {several}",
        "name: e1000, kind: qemu, nic: e1000, forward: bridge",
        "name: vmxnet3, kind: qemu, nic: vmxnet3, forward: route, accelerator: tcg",
        "name: rtl8139, kind: qemu, nic: rtl8139, forward: route, memory: 320M",
    )
    path.write_text(path.read_text().replace("uuts:\n", f"{BACK}uuts:\n"))
    captured = settings(loads="250fps", keep_captures="all")
    done = netbench("run", path, "quick", "-o", results, *ONE, *captured, timeout_s=240)
    assert done.returncode == 0, done.stdout + done.stderr + reasons(results)
    found = rows(results)
    assert [(row["uut"], row["stream"], row["reverse_of"]) for row in found] == [
        (model, *stream)
        for model in ("virtio", "e1000", "vmxnet3", "rtl8139")
        for stream in (("s1", ""), ("back", "s1"))
    ]
    for row in found:
        assert (row["sent_frames"], row["received_frames"], row["lost_frames"]) == ("250", "250", "0"), row
        assert (row["foreign_frames"], row["duplicate_frames"], row["unexplained_frames"]) == ("0", "0", "0"), row
        assert verdict_of(row) == "valid", row
        assert float(row["cpu_guest_s"]) > 0
        assert float(row["cpu_host_s"]) >= float(row["cpu_guest_s"]) / 2
        assert float(row["delay_median_us"]) > 0
    assert "these numbers describe the emulator" in (results / "report.html").read_text()
    for point, counter in (("ingress tap", "tx"), ("guest ingress NIC", "rx"), ("guest egress NIC", "tx")):
        assert point_counts(results, point, counter) == [250] * 4, point


PACKETS = ["plain", "ipv6", "vlan", "qinq", "vxlan", "geneve", "gre", "nat44", "1k-flows"]
TAGGED = {"vlan", "qinq"}


@pytest.mark.parametrize("sink", ["tcpdump", "bpf"])
def test_guests_and_containers_forward_the_shipped_packets_unchanged(topology, results, sink):
    uuts = ["name: bridge, kind: qemu, forward: bridge", "name: route, kind: qemu, forward: route"]
    if shutil.which("lxc-start"):
        uuts.append("name: container, kind: container, forward: bridge")
    few = settings(loads="1000fps", duration="200ms", frame_sizes=200, retries=4)
    described = settings(packet=f"[{', '.join(PACKETS)}]", sink=sink)
    done = netbench("run", topology(*uuts), "quick", "-o", results, *ONE, *few, *described, timeout_s=240)
    assert done.returncode == 0, done.stdout + done.stderr + reasons(results)
    found = rows(results)
    assert [(row["uut"], row["packet"] or "plain") for row in found] == [
        (uut, packet)
        for uut in ("bridge", "route", "container")[: len(uuts)]
        for packet in PACKETS
        if uut != "route" or packet not in TAGGED
    ]
    for row in found:
        assert (verdict_of(row), row["sent_frames"], row["received_frames"]) == ("valid", "200", "200"), row
        assert (row["foreign_frames"], row["unexplained_frames"]) == ("0", "0"), row
        if row["packet"]:
            assert (row["changed_frames"], row["lossy_flows"], row["reordered_in_flows_frames"]) == ("0", "0", "0"), row


def point_counts(results: Path, point: str, counter: str) -> list[int | None]:
    return [
        reading.grew
        for trial in ResultDirectory(results).results().trials
        for counts in trial.streams
        if counts.stream == "s1"
        for reading in counts.counters
        if (reading.point, reading.counter) == (point, counter)
    ]


def mid_trial(results: Path, stored: int = 0) -> None:
    """Wait until the trial after so many stored ones sends frames."""

    def is_measured() -> bool:
        seen = kinds(results)
        return seen.count("trial-stored") == stored < seen.count("trial-started")

    wait_for(is_measured, timeout_s=180)
    before = frames_sent()
    wait_for(lambda: frames_sent() > before + 50)


def guest_mid_trial(results: Path, stored: int = 0) -> int:
    """Do so, and return the process of the guest."""
    mid_trial(results, stored)
    (guest,) = pids_in(UUT, qemu_program())
    return guest


def kinds(results: Path) -> list[str]:
    return [event["kind"] for event in events(results)]


def frames_sent() -> int:
    """The frames that the source's NIC has sent so far."""
    command = "ip netns exec nb-guests-source cat /sys/class/net/nb-tx1/statistics/tx_packets"
    return int(subprocess.run(command.split(), capture_output=True, text=True, check=True).stdout)


def test_guests_that_die_hang_or_lose_their_tap_are_reasons_and_are_brought_up_again(topology, results, start):
    """One campaign, which Ctrl-C ends: that leaves no guest either."""
    five = settings(duration="2s", repetitions=5, retries=0, drain_limit="2s")
    campaign = start("run", topology(GUEST), "quick", "-o", results, *ONE, *five)
    os.kill(guest_mid_trial(results), signal.SIGKILL)
    mid_trial(results, 1)
    subprocess.run(["ip", "-n", UUT, "link", "delete", "nb-ti-s1"], check=True)
    os.kill(guest_mid_trial(results, 3), signal.SIGSTOP)
    mid_trial(results, 4)
    campaign.send_signal(signal.SIGINT)
    out, err = campaign.communicate(timeout=60)
    assert campaign.returncode == 130, out + err
    found = rows(results)
    assert [verdict_of(row) for row in found] == ["invalid", "invalid", "valid", "invalid"]
    assert ["uut-failed" in row["reasons"] for row in found] == [True, True, False, True]
    assert found[2]["lost_frames"] == "0"
    why = [str(event["reasons"]) for event in events(results) if event["kind"] == "trial-finished"]
    assert "guest guest: QEMU was killed by signal 9" in why[0]
    assert "its tap nb-ti-s1 is gone" in why[1]
    assert "monitor did not answer within" in why[3]
    assert kinds(results).count("uut-ready") == 4


BROKEN = {
    "small": ("memory: 32M", "initrd is too large"),
    "tight": ("memory: 160M", "too little memory for its initrd"),
    "slow": ("boot_limit: 500ms", "guest slow did not answer within 0.5 s of its start"),
}


def test_guests_that_do_not_come_up_are_a_reason_and_the_next_uut_is_measured(topology, results):
    broken = [f"name: {name}, kind: qemu, forward: route, {how}" for name, (how, _) in BROKEN.items()]
    done = netbench("run", topology(*broken, RAW), "quick", "-o", results, *ONE)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    *guests, raw = rows(results)
    assert [(row["uut"], verdict_of(row), row["reasons"], row["sent_frames"]) for row in guests] == [
        (name, "invalid", "uut-failed", "") for name in BROKEN
    ]
    assert (raw["uut"], verdict_of(raw), raw["lost_frames"]) == ("raw", "valid", "0")
    for _, why in BROKEN.values():
        assert why in reasons(results)
    assert "too little memory" in (results / "consoles/tight.log").read_text()


@pytest.fixture(scope="module")
def checks():
    """The status of each check of `netbench doctor`."""
    return {check["name"]: check["status"] for check in json.loads(netbench("doctor", "--json").stdout)["checks"]}


@pytest.mark.parametrize(
    ("wrong", "code", "words"),
    [
        ("accelerator: kvm", 3, "accelerator: kvm is not possible:"),
        ("vhost: on", 3, "vhost: on is not possible: this host has no"),
        ("pin: {vcpus: [[4000]]}", 2, "UUT guest: pin: this machine has no CPU 4000; it has 0"),
    ],
)
def test_what_this_machine_cannot_do_is_refused_before_anything_is_touched(
    topology, results, checks, wrong, code, words
):
    feature = wrong.split(":")[0].replace("accelerator", "kvm")
    if checks.get(feature) == "ok":
        pytest.skip(f"this machine has {feature}")
    done = netbench("run", topology(RAW, f"{GUEST}, {wrong}"), "quick", "-o", results, *ONE)
    assert done.returncode == code, done.stdout + done.stderr
    assert words in done.stderr
    assert not results.exists()


def test_without_an_image_nothing_is_touched(topology, results, tmp_path):
    environment = {**os.environ, "NETBENCH_CACHE": str(tmp_path / "empty")}
    done = netbench("run", topology(RAW, GUEST), "quick", "-o", results, *ONE, env=environment)
    assert done.returncode == 3
    assert "the guest image 'micro' is not built" in done.stderr
    assert "netbench image build" in done.stderr
    assert not results.exists()
    assert (
        netbench("run", topology(RAW, GUEST), "quick", "-o", results, *ONE, "--uut", "raw", env=environment).returncode
        == 0
    )


def test_without_qemu_nothing_is_touched(topology, results, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("ip", "ethtool", "tcpdump", "taskset", "setpriv", "cat", "tee", "sysctl"):
        found = shutil.which(tool)
        if found:
            (tools / tool).symlink_to(found)
    done = netbench("run", topology(GUEST), "quick", "-o", results, *ONE, env={**os.environ, "PATH": str(tools)})
    assert done.returncode == 3
    assert f"the command `{qemu_program()}` is not on this host" in done.stderr
    assert not results.exists()


STAND_IN = """#!/bin/sh
for word; do
    shift
    case $word in
        kvm) set -- "$@" tcg,thread=multi ;;
        host) set -- "$@" max ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec {qemu} "$@"
"""


def test_where_a_guest_boots_under_kvm_nothing_is_called_emulated(topology, results, tmp_path, forget_acceleration):
    """A stand-in for a machine with KVM: a QEMU that emulates without reporting it."""
    stand_in = tmp_path / "bin" / qemu_program()
    stand_in.parent.mkdir()
    stand_in.write_text(STAND_IN.format(qemu=shutil.which(qemu_program())))
    stand_in.chmod(0o755)
    environment = {**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}"}
    wanted = topology(f"{GUEST}, accelerator: kvm")
    done = netbench("run", wanted, "quick", "-o", results, *ONE, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr + reasons(results)
    (row,) = rows(results)
    assert (row["received_frames"], verdict_of(row)) == ("500", "valid")
    assert "emulated" not in done.stdout
    assert "these numbers describe the emulator" not in (results / "report.html").read_text()


@pytest.fixture
def forget_acceleration():
    """Make netbench test again whether KVM works, and restore its earlier result afterwards."""
    known = {path: path.read_bytes() for path in results_of_probes()}
    for path in known:
        path.unlink()
    yield
    for path in results_of_probes():
        path.unlink()
    for path, content in known.items():
        path.write_bytes(content)


def results_of_probes() -> list[Path]:
    return list(CACHE.parent.glob(f"{CACHE.name}.*"))


def test_ctrl_c_while_a_guest_boots_leaves_no_guest(topology, results, start):
    campaign = start("run", topology(GUEST), "quick", "-o", results, *ONE)
    wait_for(lambda: pids_in(UUT, qemu_program()), timeout_s=180)
    campaign.send_signal(signal.SIGINT)
    campaign.communicate(timeout=60)
    assert campaign.returncode == 130
    assert "uut-ready" not in kinds(results)


def test_overload_is_lost_at_the_tap_and_nowhere_else_and_a_killed_netbench_takes_its_guest_along(
    topology, results, start
):
    """netbench is killed during the second trial, and `netbench clean` removes the rest."""
    thrice = settings(loads="max", duration="500ms", repetitions=3)
    campaign = start("run", topology(GUEST), "quick", "-o", results, *ONE, *thrice)
    guest = guest_mid_trial(results, 1)
    campaign.kill()
    campaign.communicate()
    assert campaign.returncode == -signal.SIGKILL
    wait_for(lambda: not Path(f"/proc/{guest}").exists())
    assert netbench("clean").returncode == 0
    first, *_ = rows(results)
    assert int(first["lost_frames"]) > 0
    assert first["unexplained_frames"] == "0"
    assert point_counts(results, "ingress tap", "tx_dropped")[0] == int(first["lost_frames"])


LIVES = """
import os, sys, time
from pathlib import Path
from netbench.hosts.local import LocalHost
from netbench.vmm.base import GuestSpec
from netbench.vmm.qemu.qemu import Qemu
from netbench.vmm.qemu.options import QemuOptions
directory, host = Path(sys.argv[1]), LocalHost("local", "netbench-test-lives")
guest = Qemu(QemuOptions(accelerator="tcg")).start(GuestSpec("g", directory), host)
guest.await_answer(90)
guest.host().run(["sh", "-c", "(while :; do echo flood; done) >/dev/console &"])
while len(guest.console()) < 200_000:
    time.sleep(0.1)
pid = (directory / "pid").read_text().strip()
print(pid, len(guest.console()), guest.host().run(["echo", "answers"]).stdout, guest.facts()["confined"])
print(Path(f"/proc/{pid}/status").read_text())
sys.stdout.flush()
os.kill(os.getpid(), 9)
"""


def test_what_a_guest_could_do_to_its_machine(tmp_path):
    """QEMU runs unprivileged, and still ends with netbench; the endless output of a guest takes no memory."""
    done = subprocess.run([sys.executable, "-c", LIVES, tmp_path], capture_output=True, text=True, timeout=110)
    pid, length, answer, *confined = done.stdout.splitlines()[0].split() + done.stdout.splitlines()[1].split()
    assert (answer, confined) == ("answers", ["seccomp,", "unprivileged"]), done.stderr
    status = dict(line.split(":", 1) for line in done.stdout.splitlines()[2:] if ":" in line)
    assert set(status["Uid"].split()) == {"65534"}
    assert (status["Seccomp"].strip(), int(status["CapEff"], 16)) == ("2", 0)
    assert int(length) < 300_000
    assert {path.name for path in tmp_path.iterdir()} <= {"agent", "pid", "qmp"}, "its console is on no disk"
    wait_for(lambda: not Path(f"/proc/{pid}").exists())

"""Guests under QEMU that forward: every NIC model, and campaigns in which guests fail."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
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


def test_every_model_of_nic_forwards_and_counts_to_the_frame(topology, results):
    """One guest with two streams, two queues and two pinned vCPUs."""
    several = "cpus: 2, queues: 2, pin: {vcpus: [[0], [1]], io: [1]}"
    path = topology(
        f"name: virtio, kind: qemu, nic: virtio-net-pci, forward: bridge, vhost: 'off', {several}",
        "name: e1000, kind: qemu, nic: e1000, forward: bridge",
        "name: vmxnet3, kind: qemu, nic: vmxnet3, forward: route, accelerator: tcg",
        "name: rtl8139, kind: qemu, nic: rtl8139, forward: route, memory: 320M",
    )
    done = netbench("run", path, "quick", "-o", results, *ONE, "--set", "keep_captures=all", timeout_s=180)
    assert done.returncode == 0, done.stdout + done.stderr + reasons(results)
    for row in rows(results):
        assert (row["sent_frames"], row["received_frames"], row["lost_frames"]) == ("500", "500", "0"), row
        assert (row["unexplained_frames"], row["duplicate_frames"], verdict_of(row)) == ("0", "0", "valid"), row
        assert float(row["cpu_guest_s"]) > 0
        assert float(row["cpu_host_s"]) >= float(row["cpu_guest_s"]) / 2
        assert float(row["delay_median_us"]) > 0
    assert [row["uut"] for row in rows(results)] == ["virtio", "e1000", "vmxnet3", "rtl8139"]
    page = (results / "report.html").read_text()
    assert "describe the emulator" in page
    for path_, counter in (("ingress tap", "tx"), ("guest ingress NIC", "rx"), ("guest egress NIC", "tx")):
        assert point_counts(results, path_, counter) == [500] * 4, path_


def point_counts(results: Path, point: str, counter: str) -> list[int | None]:
    return [
        reading.grew
        for trial in ResultDirectory(results).results().trials
        for counts in trial.streams
        if counts.stream == "s1"
        for reading in counts.counters
        if (reading.point, reading.counter) == (point, counter)
    ]


def test_overload_is_lost_at_the_tap_and_nowhere_else(topology, results):
    overload = settings(loads="max", duration="500ms")
    done = netbench("run", topology(GUEST), "quick", "-o", results, *ONE, *overload)
    assert done.returncode == 0, done.stdout + done.stderr + reasons(results)
    (row,) = rows(results)
    assert int(row["lost_frames"]) > 0
    assert row["unexplained_frames"] == "0"
    assert point_counts(results, "ingress tap", "tx_dropped") == [int(row["lost_frames"])]


def mid_trial(results):
    wait_for(lambda: any(event["kind"] == "trial-started" for event in events(results)), timeout_s=180)
    wait_for(lambda: pids_in("nb-guests-sink", "tcpdump"))
    time.sleep(0.5)
    (guest,) = pids_in(UUT, qemu_program())
    return guest


@pytest.mark.parametrize(
    ("how", "why"),
    [(signal.SIGKILL, "guest guest: QEMU was killed by signal 9"), (signal.SIGSTOP, "monitor did not answer within")],
)
def test_a_guest_that_dies_or_hangs_is_a_reason_and_is_brought_up_again(topology, results, start, how, why):
    twice = settings(duration="2s", repetitions=2, retries=0)
    campaign = start("run", topology(GUEST, RAW), "quick", "-o", results, *ONE, *twice)
    os.kill(mid_trial(results), how)
    out, err = campaign.communicate(timeout=120)
    assert campaign.returncode == 1, out + err
    assert [(row["uut"], verdict_of(row)) for row in rows(results)] == [
        ("guest", "invalid"),
        ("guest", "valid"),
        ("raw", "valid"),
        ("raw", "valid"),
    ]
    assert "uut-failed" in rows(results)[0]["reasons"]
    assert why in reasons(results)
    assert [event["uut"] for event in events(results) if event["kind"] == "uut-ready"] == ["guest", "guest", "raw"]


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


@pytest.mark.parametrize(
    ("wrong", "code", "words"),
    [
        ("accelerator: kvm", 3, "accelerator: kvm is not possible:"),
        ("vhost: on", 3, "vhost: on is not possible: this host has no"),
        ("pin: {vcpus: [[4000]]}", 2, "UUT guest: pin: this machine has no CPU 4000; it has 0"),
    ],
)
def test_what_this_machine_cannot_do_is_refused_before_anything_is_touched(topology, results, wrong, code, words):
    checks = {check["name"]: check["status"] for check in json.loads(netbench("doctor", "--json").stdout)["checks"]}
    feature = wrong.split(":")[0].replace("accelerator", "kvm")
    if checks.get(feature) == "ok":
        pytest.skip(f"this machine has {feature}")
    done = netbench("run", topology(RAW, f"{GUEST}, {wrong}"), "quick", "-o", results, *ONE)
    assert done.returncode == code, done.stdout + done.stderr
    assert words in done.stderr
    assert not results.exists()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (["link", "set", "nb-ti-s1", "nomaster"], "nb-ti-s1 is not attached to its bridge any more"),
        (["link", "delete", "nb-ti-s1"], "its tap nb-ti-s1 is gone"),
        (["link", "set", "nb-te-s1", "down"], "nb-te-s1 is down"),
    ],
)
def test_what_is_broken_on_the_way_to_a_guest_is_noticed_and_repaired(topology, results, start, how, why):
    twice = settings(duration="2s", repetitions=2, retries=0)
    campaign = start("run", topology(GUEST), "quick", "-o", results, *ONE, *twice)
    mid_trial(results)
    subprocess.run(["ip", "-n", UUT, *how], check=True)
    out, err = campaign.communicate(timeout=120)
    assert campaign.returncode == 1, out + err
    assert [(verdict_of(row), row["lost_frames"]) for row in rows(results)][1] == ("valid", "0")
    assert "uut-failed" in rows(results)[0]["reasons"]
    assert why in reasons(results)


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
    assert "describe the emulator" not in (results / "report.html").read_text()


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


@pytest.mark.parametrize("booting", [True, False], ids=["booting", "measuring"])
def test_ctrl_c_leaves_no_guest(topology, results, start, booting):
    campaign = start("run", topology(GUEST), "quick", "-o", results, *ONE, "--set", "duration=20s")
    if booting:
        wait_for(lambda: pids_in(UUT, qemu_program()), timeout_s=180)
    else:
        mid_trial(results)
    campaign.send_signal(signal.SIGINT)
    campaign.communicate(timeout=60)
    assert campaign.returncode == 130


def test_a_killed_netbench_takes_its_guest_along_and_the_rest_is_cleaned(topology, results, start):
    campaign = start("run", topology(GUEST), "quick", "-o", results, *ONE, "--set", "duration=20s")
    guest = mid_trial(results)
    campaign.kill()
    campaign.communicate()
    wait_for(lambda: not Path(f"/proc/{guest}").exists())
    assert netbench("clean").returncode == 0


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


def test_a_guest_has_two_nics_and_forwards_both_ways_at_once(tmp_path):
    topology = tmp_path / "both.yaml"
    both = "  - {name: s1, source: source/tx1, ingress: uut/in1, egress: uut/out1, sink: sink/rx1}\n"
    topology.write_text(
        TOPOLOGY.replace(both, f"{both}  - {{name: back, reverse: s1}}\n").replace("name: guests", "name: both")
        + "".join(f"  - {{name: {forward}, kind: qemu, forward: {forward}}}\n" for forward in ("route", "bridge"))
    )
    done = netbench("run", topology, "quick", "-o", tmp_path / "r", *ONE, *settings(loads="200fps"), timeout_s=300)
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "r")
    assert [(row["uut"], row["stream"], row["reverse_of"]) for row in found] == [
        (forward, *stream) for forward in ("route", "bridge") for stream in (("s1", ""), ("back", "s1"))
    ]
    for row in found:
        assert (row["sent_frames"], row["received_frames"], row["lost_frames"]) == ("200", "200", "0"), row
        assert (row["foreign_frames"], row["duplicate_frames"], row["unexplained_frames"]) == ("0", "0", "0"), row
        assert verdict_of(row) == "valid", row

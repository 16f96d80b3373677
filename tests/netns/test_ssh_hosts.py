"""Hosts over SSH, emulated by namespaces with real SSH servers: measurements, and the cleanup after failures.

In most tests the servers are not netbench's own: they go on when it is killed, and show what it has left on them.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest

from netbench.capture.counting import analyze_capture
from netbench.config.document import yaml_text, yaml_value
from netbench.errors import MissingError
from netbench.generators.trex.trex_package import SERVER, no_client
from netbench.hosts.base import run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.hosts.local import MARK, LocalHost
from netbench.hosts.trusted_code import search_path
from netbench.linux import watchdog
from netbench.linux.cgroups import find_controller, find_memory_controller
from netbench.linux.machine import Machine
from netbench.linux.recovery_journal import Journal
from netbench.linux.requirements import Facility
from netbench.model.host_spec import SshSpec
from netbench.model.topology import Topology
from netbench.sinks import bpf_worker
from netbench.testbed.emulated_ssh_hosts import namespaces_of, server_changes, servers_at_work
from netbench.testbed.open_testbed import open_testbed
from netbench.testbed.resolved import resolve
from netbench.vmm.libvirt.api import libvirt_module
from netbench.vmm.openvz import openvz
from tests.breakages import NOTHING, PROFILE, load_shipped, measured_on, ruled
from tests.commands import FEW, FEW_FRAMES, netbench, rows, settings, verdict_of
from tests.netns.test_container import BOX, needs_libvirt, needs_users_libvirt
from tests.netns.watching import events, pids_in, programs, stored, wait_for
from tests.openvz_stub import Stub
from tests.trex import NO_PACKAGE, PACKAGE
from tests.unit import stand_in_for_trex
from tests.users_libvirtd import HERE, domains, users_daemon

pytestmark = pytest.mark.root
SILENCE_S = SshSpec("").silence_limit  # after so long without messages, a host has cleaned up


def lacking(*tools: str) -> pytest.MarkDecorator:
    """Skip where this machine, which emulates the hosts, lacks one of these commands."""
    there = all(map(shutil.which, tools))
    return pytest.mark.skipif(not there, reason=f"needs {', '.join(tools)}: see `netbench doctor`")


def limits() -> dict[str, Any]:
    """The available limits of a container here: the control groups of this machine may be inaccessible."""
    here = LocalHost("local", "far")
    try:
        find_controller(here)
        find_memory_controller(here)
    except MissingError:
        return {}
    return {"memory": "64M", "cpu_weight": 200}


LIMITS = limits()
LAB: dict[str, Any] = {
    "name": "far",
    "hosts": {
        "source": {"address": "10.25.45.11", "ports": {"tx": "eth1"}},
        "uut": {"address": "10.25.45.12", "ports": {"in": "eth1", "out": "eth2"}},
        "sink": {"address": "10.25.45.13", "ports": {"rx": "eth1"}},
    },
    "links": [
        {"ends": ["source/tx", "uut/in"], "rate": "1Gbit/s"},
        {"ends": ["uut/out", "sink/rx"], "rate": "1Gbit/s"},
    ],
    "streams": [{"name": "s1", "source": "source/tx", "ingress": "uut/in", "egress": "uut/out", "sink": "sink/rx"}],
    "uuts": [
        {"name": "bridge", "kind": "raw", "forward": "bridge"},
        {"name": "drops", "kind": "reference", "forward": "bridge", "drop": {"k": 1, "n": 10}},
        {"name": "box", "kind": "container", **LIMITS},
        {"name": "domain", "kind": "container", "runtime": "libvirt"},
        {"name": "switch", "kind": "ovs"},
    ],
}
COUNTED = "received_frames lost_frames duplicate_frames reordered_frames foreign_frames late_frames loss_runs "
COUNTED += "longest_loss_run_frames capture_dropped_frames"
PLAYED = {name: {"kind": "ssh", "server": "netns", **spec} for name, spec in LAB["hosts"].items()}
LONG = [*FEW, *settings(loads="500fps", duration="4s", retries=1, generator="afpacket")]
# The traces of netbench on a host: its processes, directories and control groups, and the state of the ports.
LOOK = f"""
for environ in /proc/[0-9]*/environ; do
    tr '\\0' '\\n' <"$environ" 2>/dev/null | grep -q '^{MARK}=far-' || continue
    tr '\\0' ' ' <"${{environ%environ}}cmdline"; echo
done
ls -d /var/tmp/netbench-* /run/netbench/journals/* /run/netbench/code/* /run/netbench/vm/* /run/netns/* 2>/dev/null
find /sys/fs/cgroup -mindepth 1 -maxdepth 3 -type d -name 'nb-*'
ip -o link | grep -o 'master [^ ]*'
ip -o link | grep -o -e 'nb-[^ :@]*' -e 'ovs-netdev' | grep -v nb-control
true
"""
SEVEN = "numgen inc mod 100 < 7 counter drop"


class UnmarkedHost(LocalHost):
    """This machine, for servers that `netbench clean` must not remove."""

    def spawn(self, argv):
        return super().spawn(["env", "--unset", MARK, *argv])


@dataclass(frozen=True)
class Lab:
    """Three servers, and the place from which netbench reaches them."""

    machine: Machine
    namespaces: dict[str, str]
    file: Path

    def run_on(self, name: str, script: str) -> str:
        """The output of a script that is run on a server."""
        (pid,) = pids_in(self.namespaces[name], "[listener]")
        inside = ["nsenter", "--target", str(pid), "--mount", "--net", "--pid", "sh", "-c", script]
        return subprocess.run(inside, capture_output=True, text=True, check=True).stdout

    def left(self, name: str) -> list[str]:
        """The current traces of netbench on a server."""
        return self.run_on(name, LOOK).splitlines()

    def connections(self, name: str) -> list[int]:
        """The processes that serve connections to a server."""
        return pids_in(self.namespaces[name], "root@notty")

    def guards(self, name: str) -> list[int]:
        """The watchdog that undoes all changes there when its controller is gone."""
        return pids_in(self.namespaces[name], watchdog.__name__)

    def programs(self, name: str) -> set[int]:
        """The ids of the BPF programs that the processes of sinks on a server hold (proc_pid_fdinfo(5))."""
        shown = "".join(
            info.read_text()
            for pid in pids_in(self.namespaces[name], bpf_worker.__name__)
            for info in Path(f"/proc/{pid}/fdinfo").iterdir()
        )
        return {int(number) for number in re.findall(r"^prog_id:\t(\d+)$", shown, re.MULTILINE)}

    def wait_until_left_alone(self, limit_s: float) -> None:
        assert wait_until(lambda: not any(self.left(name) for name in LAB["hosts"]), limit_s, 0.2), {
            name: self.left(name) for name in LAB["hosts"]
        }

    @contextmanager
    def cut_off(self, name: str):
        """Make a server unreachable while all its links are up."""
        inside = NamespaceHost(self.machine.host(), self.namespaces[name])
        drops = "oifname nb-control drop; iifname nb-control drop"
        chains = [f"chain {hook} {{ type filter hook {hook} priority 0; {drops}; }}" for hook in ("input", "output")]
        run_checked(inside, ["nft", "-f", "-"], stdin="\n".join(["table ip cut {", *chains, "}"]))
        try:
            yield
        finally:
            run_checked(inside, ["nft", "delete", "table", "ip", "cut"])

    @contextmanager
    def full(self, name: str):
        """A server without room for captures."""
        self.run_on(
            name, "mount -o remount,size=64k /var/tmp; head -c 100000 /dev/zero >/var/tmp/filler 2>/dev/null; true"
        )
        try:
            yield
        finally:
            self.run_on(name, "rm /var/tmp/filler; mount -o remount,size=50% /var/tmp")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    topology = Topology.model_validate({**LAB, "hosts": PLAYED})
    journal = Journal.create("nbt-far")
    machine = Machine(None, UnmarkedHost("local", journal.run_id), record=journal)
    try:
        machine.make(server_changes(topology))
        with servers_at_work(topology, machine, journal.run_id) as (_, ways):
            real = {
                name: {
                    "kind": "ssh",
                    "address": way.address,
                    "user": way.user,
                    "key": way.key,
                    "known_hosts": way.known_hosts,
                    "ports": LAB["hosts"][name]["ports"],
                }
                for name, way in ways.items()
            }
            file = tmp_path_factory.mktemp("lab") / "far.yaml"
            file.write_text(yaml_text({**LAB, "hosts": real}))
            yield Lab(machine, namespaces_of(topology), file)
    finally:
        assert machine.undo() == []
        journal.remove()


def measured(results: Path) -> list[dict[str, str]]:
    return [row for row in rows(results) if verdict_of(row) == "valid"]


def reasons_told(results: Path) -> list[str]:
    return [reason for event in events(results) if event["kind"] == "trial-finished" for reason in event["reasons"]]


def wait_until_measuring(results: Path, number: int = 1) -> None:
    """Wait until the attempt at a trial of this number has begun."""
    wait_for(lambda: [event["kind"] for event in events(results)].count("trial-started") == number)


@lacking("lxc-start")
def test_three_sources_and_three_sinks_on_six_hosts_and_the_uut_on_a_seventh(results, tmp_path):
    seven = load_shipped("netns-ssh").model_dump(mode="json", exclude_none=True)
    uuts = [seven["uuts"][0], {"name": "box", "kind": "container"}]
    (tmp_path / "seven.yaml").write_text(yaml_text({**seven, "uuts": uuts}))
    shorter = settings(streams=3, generator="afpacket")
    done = netbench("run", tmp_path / "seven.yaml", "quick", "-o", results, *FEW, *shorter)
    assert done.returncode == 0, done.stderr
    found = rows(results)
    streams = {(row["uut"], row["stream"]) for row in found}
    assert streams == {(uut, stream) for uut in ("bridge", "box") for stream in ("s1", "s2", "s3")}
    assert all(row["cpu_host_s"] for row in found if row["uut"] != "bridge"), "it may be 0, but not unknown"
    for row in found:
        assert (row["sent_frames"], row["received_frames"]) == (str(FEW_FRAMES), str(FEW_FRAMES)), row
        assert (row["lost_frames"], row["unexplained_frames"], verdict_of(row)) == ("0", "0", "valid"), row
        assert "are known to within" in row["delay_refused"] or float(row["clock_bound_us"]) <= float(
            row["delay_median_us"]
        )
    skews = sorted(
        (float(row["start_skew_us"]), float(row["start_skew_bound_us"])) for row in found if row["uut"] == "bridge"
    )
    assert skews[0] == (0.0, 0.0), "they are relative to the first one"
    assert all(bound > 0 for _, bound in skews[1:]), "all have one clock here, but over a connection this is unknown"


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Programs that respond like OpenVZ's, on this machine and on the servers that it emulates."""
    (tmp_path / "vz").mkdir()
    (stub := Stub(tmp_path / "vz")).install("vzctl", "vzlist", "prlctl")
    monkeypatch.setenv("PATH", f"{stub.directory}:{os.environ['PATH']}")
    monkeypatch.setattr(openvz, "KERNEL", stub.directory)
    needs = [need for need in openvz.OpenVz.may_need if isinstance(need, Facility)]
    monkeypatch.setattr(openvz.OpenVz, "may_need", tuple(replace(need, signs=need.signs[:1]) for need in needs))
    return stub


@lacking("lxc-start", "podman", "crun", "cpio")
def test_what_is_lost_in_containers_on_another_machine_is_placed_there(stub, tmp_path):
    in_it = ruled("in it", "guest", "inet forward", SEVEN, {"guest IP layer (nft inet x c rule 2)": 14})
    before = ruled("before it", "uut", "netdev egress nb-vi-s1", SEVEN, {"ingress veth (nft netdev x c rule 2)": 14})
    uuts = [
        {"name": "lxc", "kind": "container", "forward": "route"},
        {"name": "podman", "kind": "container", "runtime": "podman", "root": "image", "forward": "route"},
        {"name": "openvz", "kind": "openvz", "forward": "route"},
    ]
    topology = Topology.model_validate({**LAB, "name": "boxes", "hosts": PLAYED, "uuts": uuts})
    with open_testbed(resolve(topology, PROFILE)) as testbed:
        for uut in topology.uuts:
            with testbed.uut(uut) as active:
                there = {"uut": active.uut.site.machine.host()}
                breakages = [in_it, before] if uut.name == "lxc" else [in_it]
                reported = measured_on(testbed, uut, active, breakages, tmp_path, there)
            assert reported == {breakage.name: breakage.outcome for breakage in [*breakages, NOTHING]}, uut.name
    assert stub.containers() == {}


@needs_users_libvirt
def test_a_container_of_libvirts_and_the_copy_of_a_domain_that_is_defined_there(tmp_path):
    in_it = ruled("in it", "guest", "inet forward", SEVEN, {"guest IP layer (nft inet x c rule 2)": 14})
    with users_daemon(HERE, tmp_path / "libvirtd") as of_qemu:
        uri = f"lxc{of_qemu.removeprefix('qemu')}"
        connection = libvirt_module().open(uri)
        connection.defineXML(BOX.format(name="box", does="true", devices=""))
        before = domains(connection)
        of_libvirt = {"kind": "container", "runtime": "libvirt", "forward": "route"}
        weighs = {"cpu_weight": 200} if LIMITS else {}
        uuts = [{"name": "own", **of_libvirt, **weighs}, {"name": "copy", **of_libvirt, "uri": uri, "domain": "box"}]
        topology = Topology.model_validate({**LAB, "name": "domains", "hosts": PLAYED, "uuts": uuts})
        with open_testbed(resolve(topology, PROFILE)) as testbed:
            for uut in topology.uuts:
                with testbed.uut(uut) as active:
                    there = {"uut": active.uut.site.machine.host()}
                    reported = measured_on(testbed, uut, active, [in_it], tmp_path, there)
                assert reported == {breakage.name: breakage.outcome for breakage in [in_it, NOTHING]}, uut.name
        assert domains(connection) == before
        connection.close()


def test_losses_are_placed_there_by_any_sink_and_the_next_run_undoes_what_a_killed_guard_has_left(lab, results, start):
    """The guard is killed after the last trial. The kernel's program counts the same, and sends a sample here."""
    shown = ("run", lab.file, "quick", "--uut", "drops", *FEW, *settings(duration="1s", keep_captures="all"))
    campaign = start(*shown, "-o", results, *settings(sink="tcpdump"), netns=lab.namespaces[""])
    wait_until_measuring(results)
    guards = lab.guards("source")
    wait_for(lambda: stored(results) == 1, 60)
    for pid in guards:
        os.kill(pid, signal.SIGKILL)
    _, stderr = campaign.communicate(timeout=120)
    assert campaign.returncode == 4, stderr
    assert re.search("host source: its SSH connection ended: .* or, if that was killed, by the next run there", stderr)
    assert any("/journals/" in line for line in lab.left("source"))
    by_tcpdump = counted_of_drops(results)

    again = results.with_name("again")
    by_bpf = settings(sink={"kind": "bpf", "sample": "1/9"})
    done = netbench(*shown, "-o", again, *by_bpf, netns=lab.namespaces[""])
    assert done.returncode == 0, done.stderr
    assert counted_of_drops(again) == by_tcpdump
    assert analyze_capture(again / "captures" / "trial-000000-s1.sample.pcap").frames == 200
    lab.wait_until_left_alone(SILENCE_S)


def counted_of_drops(results: Path) -> list[str]:
    """The counts of a trial whose losses are placed to the frame."""
    (row,) = rows(results)
    assert (row["sent_frames"], row["lost_frames"], row["unexplained_frames"]) == ("2000", "200", "0"), row
    assert row["lost_at"] == "bridge (nft drop rule)=200"
    return [row[name] for name in COUNTED.split()]


@pytest.mark.skipif(bool(no_client()), reason=no_client())
def test_the_client_of_trex_is_brought_to_the_host_of_a_source_and_asks_the_server_there(lab, results, start):
    """The stand-in sends nothing, so the UUT would never be ready. Ctrl-C returns the port."""
    serving = [*("ip", "netns", "exec", lab.namespaces["source"]), sys.executable, "-m", stand_in_for_trex.__name__]
    with subprocess.Popen(serving, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        options = {"kind": "trex", "ports": {"eth1": 0}, **json.loads(server.stdout.readline())}
        more = [*FEW, *settings(generator=json.dumps(options))]
        campaign = start("run", lab.file, "quick", "-o", results, "--uut", "bridge", *more, netns=lab.namespaces[""])
        wait_for(lambda: events(results), 60)  # the port is in use
        (worker,) = pids_in(lab.namespaces["source"], "trex_worker")
        assert re.search(r" /var/tmp/netbench-\S+/libzmq\.so", Path(f"/proc/{worker}/maps").read_text())
        campaign.send_signal(signal.SIGINT)
        _, stderr = campaign.communicate(timeout=60)
        assert campaign.returncode == 130, stderr
        reported, _ = server.communicate()
    assert [owner for _, owner in json.loads(reported)] == ["", ""]
    assert re.search(r"TRex v3\.08, lbr-trex-client ", (results / "manifest.json").read_text())
    lab.wait_until_left_alone(SILENCE_S)


@pytest.mark.skipif(bool(NO_PACKAGE), reason=NO_PACKAGE)
def test_a_killed_controller_leaves_no_trex_on_its_hosts(lab, results, start):
    shown = [*LONG, *settings(generator=f"{{kind: trex, path: {PACKAGE}}}")]
    campaign = start("run", lab.file, "quick", "-o", results, "--uut", "drops", *shown, netns=lab.namespaces[""])
    wait_until_measuring(results)
    assert SERVER in "\n".join(lab.left("source"))
    campaign.kill()
    campaign.communicate()
    lab.wait_until_left_alone(SILENCE_S)
    assert not list(Path(gettempdir()).glob("netbench-trex-*"))
    assert netbench("resume", results, netns=lab.namespaces[""]).returncode == 0
    assert [(row["sent_frames"], row["lost_frames"]) for row in measured(results)] == [("2000", "200")]


@lacking("lxc-start")
@needs_libvirt
def test_a_controller_that_is_killed_leaves_nothing_on_its_hosts_whatever_was_measured(lab, results, start):
    options = [*LONG, *settings(sink="bpf", order="sequential")]
    two = ("run", lab.file, "quick", "-o", results, "--uut", "box", "--uut", "domain", *options)
    _killed_while_it_measures(lab, results, start(*two, netns=lab.namespaces[""]), "lxc-start", 1)
    assert netbench("clean", netns=lab.namespaces[""]).returncode == 0
    # The box is measured at last, and then the domain.
    _killed_while_it_measures(lab, results, start("resume", results, netns=lab.namespaces[""]), "libvirtd", 3)
    assert netbench("resume", results, netns=lab.namespaces[""]).returncode == 0
    received = {row["uut"]: row["received_frames"] for row in measured(results)}
    assert received == {"box": "2000", "domain": "2000"}


def _killed_while_it_measures(
    lab: Lab, results: Path, campaign: "subprocess.Popen[str]", program: str, number: int
) -> None:
    """Kill a controller in the attempt of this number, in which a program is at work on the host of the UUT."""
    wait_until_measuring(results, number)
    assert wait_until(lambda: any("afpacket_worker" in line for line in lab.left("source")), 60, 0.2)
    there = "\n".join(lab.left("uut"))
    groups = ["/sys/fs/cgroup/"] if LIMITS else []
    for what in (program, "/run/netbench/vm/", "/run/netns/nb-", "nb-vi-s1", *groups):
        assert what in there, there
    counting = lab.programs("sink")
    assert counting
    campaign.kill()
    campaign.communicate()
    lab.wait_until_left_alone(SILENCE_S)  # it is faster, because its connections have ended
    assert wait_until(lambda: counting.isdisjoint(programs()), SILENCE_S)


@lacking("ovs-vswitchd")
def test_a_trial_is_made_again_if_its_host_is_lost_but_not_if_that_was_given_longer_to_answer(
    lab, results, start, tmp_path
):
    """Its network fails, and it undoes all changes by itself; or its connection or its watchdog is killed."""
    topology = yaml_value(lab.file.read_text())
    topology["hosts"]["sink"]["answer_limit"] = "40s"
    (tmp_path / "patient.yaml").write_text(yaml_text(topology))
    three = [word for uut in ("bridge", "drops", "switch") for word in ("--uut", uut)]
    by_bpf = [*LONG, *settings(sink="bpf", order="sequential")]
    shown = ("run", tmp_path / "patient.yaml", "quick", "-o", results, *three, *by_bpf)
    campaign = start(*shown, netns=lab.namespaces[""])
    wait_until_measuring(results, 1)
    time.sleep(1)  # the source has begun to send
    with lab.cut_off("sink"):
        time.sleep(SILENCE_S + 2)  # a host with the usual limit has undone everything by now

    wait_until_measuring(results, 2)
    assert reasons_told(results) == []
    with lab.cut_off("source"):
        assert wait_until(lambda: not lab.left("source"), SILENCE_S + 15, 0.2)

    wait_until_measuring(results, 4)  # the third is the one that was cut off
    assert "ovs-vswitchd" in "".join(lab.left("uut"))
    assert wait_until(lambda: bool(lab.programs("sink")), 60, 0.2)
    guards, counting = lab.guards("source"), lab.programs("sink")
    assert guards
    for pid in (*guards, *lab.connections("sink"), *lab.connections("uut")):
        os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: counting.isdisjoint(programs()), SILENCE_S), "no process counts there any more"

    stdout, stderr = campaign.communicate(timeout=120)
    assert campaign.returncode == 0, stderr
    why = "host source: no answer within 6 s (answer_limit): it hangs, or cannot be reached any more"
    cut_off, killed = reasons_told(results)
    assert cut_off == f"host-lost: {why}"
    assert f"{why}; the testbed is taken down" in stdout
    assert killed.startswith("host-lost: host ")
    found = {row["uut"]: (row["sent_frames"], row["received_frames"]) for row in measured(results)}
    assert found == {"bridge": ("2000", "2000"), "drops": ("2000", "1800"), "switch": ("2000", "2000")}
    assert all(row["cpu_host_s"] for row in rows(results) if row["uut"] == "switch"), "it may be 0, but not unknown"
    lab.wait_until_left_alone(SILENCE_S)


def test_commands_that_hosts_lack_are_reported_together_before_anything_is_measured(lab, results):
    lacking = [("sink", "tcpdump", "tcpdump"), ("source", "ethtool", "ethtool"), ("uut", "setpriv", "util-linux")]
    paths = {program: shutil.which(program, path=search_path()) for _, program, _ in lacking}
    with ExitStack() as hidden:
        for host, program, _ in lacking:
            # A program that may not be executed is not found.
            lab.run_on(host, f"touch /run/none; mount --bind /run/none {paths[program]}")
            hidden.callback(lab.run_on, host, f"umount {paths[program]}; rm /run/none")
        done = netbench("run", lab.file, "quick", "-o", results, "--uut", "bridge", *FEW, netns=lab.namespaces[""])
    assert done.returncode == 3, done.stderr
    for host, program, package in lacking:
        assert re.search(rf"host {host}\b[^;]* has no {program}.*install {package} there", done.stderr), done.stderr
    assert not results.exists()
    lab.wait_until_left_alone(SILENCE_S)


def test_a_host_whose_disk_is_full_reports_so_with_the_first_probe(lab, results):
    with lab.full("sink"):
        done = netbench("run", lab.file, "quick", "-o", results, "--uut", "bridge", *FEW, netns=lab.namespaces[""])
    assert done.returncode == 1, done.stderr
    (row,) = rows(results)
    assert row["reasons"] == "uut-failed"
    shown = next(event["why"] for event in events(results) if event["kind"] == "uut-failed")
    assert "not ready: no space left for /var/tmp/netbench-far-" in shown
    assert shown.endswith("on host sink; free some there")
    lab.wait_until_left_alone(SILENCE_S)


def test_hosts_that_cannot_be_reached_are_reported_together_before_anything_is_measured(lab, results, tmp_path):
    topology = yaml_value(lab.file.read_text())
    hosts = topology["hosts"]
    known = Path(hosts["sink"]["known_hosts"]).read_text().splitlines()
    (tmp_path / "known_hosts").write_text(known[1].split()[0] + " " + " ".join(known[0].split()[1:]) + "\n")
    hosts["uut"]["known_hosts"] = str(tmp_path / "known_hosts")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    hosts["sink"]["key"] = str(tmp_path / "key")
    hosts["source"]["password"] = {"env": "NO_SUCH"}
    (tmp_path / "changed.yaml").write_text(yaml_text(topology))
    done = netbench("run", tmp_path / "changed.yaml", "quick", "-o", results, *FEW, netns=lab.namespaces[""])
    assert done.returncode == 3, done.stderr
    assert "host source: password: there is no variable NO_SUCH" in done.stderr
    other_key = r"host uut \(\S+\): [^;]*the host key is unknown, or differs from the known one"
    assert re.search(other_key, done.stderr), done.stderr
    refused = r"host sink \(\S+\): [^;]*the host accepts neither a key of the agent or the topology, nor the password"
    assert re.search(refused, done.stderr), done.stderr
    assert not results.exists()
    lab.wait_until_left_alone(SILENCE_S)


def test_the_port_that_carries_the_connection_is_refused(lab, tmp_path):
    topology = yaml_value(lab.file.read_text())
    topology["hosts"]["source"]["ports"] = {"tx": "nb-control"}
    (tmp_path / "changed.yaml").write_text(yaml_text(topology))
    done = netbench("run", tmp_path / "changed.yaml", "quick", "-o", tmp_path / "r", *FEW, netns=lab.namespaces[""])
    assert done.returncode == 2
    assert "host source: port nb-control is in use" in done.stderr
    assert "carries an SSH session to this host" in done.stderr


def test_doctor_looks_at_all_hosts_and_reports_what_each_lacks(lab, tmp_path):
    done = netbench("doctor", lab.file, netns=lab.namespaces[""])
    for name in LAB["hosts"]:
        assert f"{name} (10.25.45." in done.stdout
        assert f"{name}: python3" in done.stdout
    assert ("sink: tcpdump" in done.stdout, "source: tcpdump" in done.stdout) == (True, False)
    assert ("uut: lxc-start" in done.stdout, "sink: lxc-start" in done.stdout) == (True, False)
    assert "uut: ovs-vswitchd" in done.stdout
    topology = yaml_value(lab.file.read_text())
    topology["uuts"].append({"name": "vz", "kind": "openvz"})
    (tmp_path / "changed.yaml").write_text(yaml_text(topology))
    prepared = netbench("hosts", "prepare", tmp_path / "changed.yaml", netns=lab.namespaces[""])
    assert prepared.returncode == 3, prepared.stderr
    assert "uut: vzctl: no vzctl, no /proc/vz; on uut: install OpenVZ" in prepared.stdout
    assert "sink: has all that it needs" in prepared.stdout
    topology["hosts"]["uut"]["ssh_port"] = 23
    (tmp_path / "changed.yaml").write_text(yaml_text(topology))
    unreached = netbench("doctor", tmp_path / "changed.yaml", netns=lab.namespaces[""])
    assert (unreached.returncode, "Connection refused" in unreached.stdout) == (3, True), unreached.stdout

"""Guests that libvirt starts: by netbench's own daemon, and by a daemon of a user."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from netbench.errors import MissingError, TestbedError
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.hosts.local import marked_processes
from netbench.linux.changes import MachineState
from netbench.model.topology_specs import CpuShares
from netbench.testbed.cpus import usable_cpus
from netbench.uut.base import ActiveGuest
from netbench.uut.guest import Guest
from netbench.vmm.base import guest_directory
from netbench.vmm.libvirt.api import AddLibvirtDomain, libvirt_module, own_uuid
from netbench.vmm.libvirt.libvirt import Libvirt, LibvirtOptions
from tests.commands import FEW, FEW_FRAMES, netbench, rows, settings, verdict_of
from tests.contract.vmm_contract import VmmContract
from tests.netns.watching import events, pids_in, stored, wait_for
from tests.netns.yard import Yard, fresh_yard, groups
from tests.this_machine import LOCAL
from tests.users_libvirtd import HERE, connected, domains, users_daemon
from tests.vm.test_guests import ONE, TOPOLOGY, UUT, mid_trial, reasons

pytestmark = [pytest.mark.vm, pytest.mark.root]

LIBVIRTS_OWN = [Path(place, "libvirt") for place in ("/etc", "/var/lib", "/var/log", "/var/cache", "/run")]


@pytest.fixture(scope="module", autouse=True)
def libvirt():
    """libvirt's bindings, if its daemon is installed; the files of the system's libvirt must not change."""
    if subprocess.run(["sh", "-c", "command -v libvirtd"], check=False, capture_output=True).returncode:
        pytest.skip("needs libvirtd: apt-get install libvirt-daemon libvirt-daemon-driver-qemu")
    try:
        module = libvirt_module()
    except MissingError as error:
        pytest.skip(str(error))
    before = kept()
    yield module
    assert kept() == before


def kept() -> list[str]:
    return sorted(str(path) for place in LIBVIRTS_OWN for path in (place, *place.rglob("*")) if path.exists())


def guest(**options) -> Guest:
    return Guest(driver(**options))


def driver(**options) -> Libvirt:
    return Libvirt(LibvirtOptions.model_validate({"forward": "route", **options}))


class TestPrivateDaemon(VmmContract):
    def vmm(self):
        return driver(accelerator="tcg")

    def broken(self):
        return driver(accelerator="tcg", memory="32M", boot_limit="20s")


class TestRunningDaemon(VmmContract):
    """A libvirtd that netbench has not started, and that has domains of others."""

    uri = ""
    connection: Any

    @pytest.fixture(autouse=True)
    def _daemon(self, yard, tmp_path, libvirt):
        with connected(of_uut(yard), tmp_path) as (self.uri, self.connection):
            yield
            assert [domain.name() for domain in self.connection.listAllDomains()] == []

    def vmm(self):
        return driver(uri=self.uri or "qemu:///system", accelerator="tcg")

    def broken(self):
        return driver(uri="qemu+unix:///system?socket=/nowhere")

    def _forwards_runs_commands_and_counts(self, yard, active, path):
        super()._forwards_runs_commands_and_counts(yard, active, path)
        self._counts_what_libvirt_counts(yard, active, path)

    def _counts_what_libvirt_counts(self, yard, active, path):
        """After an overload, `virsh domifstat` reports the same counts as netbench, seen from the guest."""
        (domain,) = self.connection.listAllDomains()
        taps = ElementTree.fromstring(domain.XMLDesc()).findall("devices/interface/target")
        ingress, egress = (str(tap.get("dev")) for tap in taps)
        before, told_before = counted(active), domain.interfaceStats(ingress)
        arrived = yard.forwarded(active, path, OVERLOAD)
        after, output = counted(active), domain.interfaceStats(ingress)
        # rx_packets and rx_drop; then tx_packets.
        assert (output[1], output[3]) == (after["ingress tap", "tx"], after["ingress tap", "tx_dropped"])
        assert domain.interfaceStats(egress)[5] == after["egress tap", "rx"]
        lost = output[3] - told_before[3]
        assert lost == after["ingress tap", "tx_dropped"] - before["ingress tap", "tx_dropped"] > 0
        assert output[1] - told_before[1] + lost == OVERLOAD
        assert arrived == OVERLOAD - lost


OVERLOAD = 20_000


def counted(active: ActiveGuest) -> dict[tuple[str, str], int]:
    return {(reading.point, reading.counter): reading.frames or 0 for reading in active.uut.read().counters}


def of_uut(yard: Yard) -> NamespaceHost:
    """The namespace of its UUT."""
    netns = yard.hosts["uut"].netns
    assert netns
    return NamespaceHost(HERE, netns)


@pytest.fixture
def topology(tmp_path):
    def write(*uuts):
        path = tmp_path / "libvirt.yaml"
        path.write_text(TOPOLOGY + "".join(f"  - {{kind: libvirt, accelerator: tcg, {uut}}}\n" for uut in uuts))
        return path

    return write


def test_every_model_of_nic_forwards_and_what_is_killed_is_a_reason_and_is_brought_up_again(topology, results, start):
    """A daemon, a guest after which the next UUT comes, and last of all netbench, which leaves neither running."""
    last = usable_cpus()[-1]
    path = topology(
        "name: vmxnet3, nic: vmxnet3, forward: route",
        "name: e1000, nic: e1000, forward: bridge",
        f"name: virtio, cpus: 2, queues: 2, vhost: 'off', forward: bridge, host_cpus: [{last}], {PINNED}",
    )
    twice = settings(loads="250fps", duration="2s", repetitions=2, retries=0, drain_limit="2s")
    campaign = start("run", path, "quick", "-o", results, *ONE, *twice)
    mid_trial(results)
    kill(*pids_in(UUT, "libvirtd"))
    mid_trial(results, 3)
    kill(*pids_in(UUT, "qemu-system"))
    mid_trial(results, 4)
    (qemu,) = (pid for pid in pids_in(UUT, "qemu-system") if command_of(pid).startswith("/usr/bin/qemu-system"))
    assert_bound(qemu, last)
    mid_trial(results, 5)
    kill(campaign.pid)
    campaign.communicate()
    wait_for(lambda: not pids_in(UUT, "qemu-system") and not pids_in(UUT, "libvirtd"))
    done = netbench("clean")
    assert done.returncode == 0, done.stderr
    found = rows(results)
    assert [(row["uut"], verdict_of(row)) for row in found] == [
        ("vmxnet3", "invalid"),
        ("vmxnet3", "valid"),
        ("e1000", "valid"),
        ("e1000", "invalid"),
        ("virtio", "valid"),
    ]
    for row, why in (
        (found[0], "its libvirtd ended with exit code"),
        (found[3], "libvirt has no such domain any more"),
    ):
        assert row["reasons"].startswith("uut-failed")
        assert why in reasons(results)
    for row in (found[1], found[2], found[4]):
        assert (row["sent_frames"], row["received_frames"], row["unexplained_frames"]) == ("500", "500", "0"), row
        assert float(row["cpu_host_s"]) >= float(row["cpu_guest_s"]) / 2 > 0


PINNED = "cpu_weight: 1000, pin: {vcpus: [[0]]}"


def kill(*processes: int) -> None:
    for pid in processes:
        os.kill(pid, signal.SIGKILL)


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def assert_bound(qemu: int, last: int) -> None:
    """Assert that one vCPU runs on CPU 0 and all else on the last one, all in the only control group of netbench."""
    found = threads(qemu)
    assert (found.pop("CPU 0/TCG"), *set(found.values())) == ("0", str(last))
    (group,) = groups()
    assert str(qemu) in (group / "cgroup.procs").read_text().split()


FAR = """
hosts:
  far: {kind: ssh, server: netns, address: 10.25.48.11}
  source: {on: far}
  uut: {on: far}
  sink: {on: far}
"""


def test_on_a_host_over_ssh_its_daemon_and_its_domain_are_there(tmp_path, results):
    path = tmp_path / "far.yaml"
    here = "hosts: {source: {}, uut: {}, sink: {}}\n"
    assert here in TOPOLOGY
    path.write_text(TOPOLOGY.replace(here, FAR) + "  - {name: far, kind: libvirt, accelerator: tcg, forward: route}\n")
    done = netbench("run", path, "quick", "-o", results, *ONE, *settings(sink="bpf"), timeout_s=200)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = rows(results)
    assert (row["sent_frames"], row["received_frames"], row["unexplained_frames"]) == ("500", "500", "0"), row
    assert verdict_of(row) == "valid"
    assert float(row["memory_mib"]) > 50
    assert float(row["cpu_host_s"]) >= float(row["cpu_guest_s"]) / 2 > 0


def threads(pid: int) -> dict[str, str]:
    """The CPUs that each thread of a QEMU may run on, by its name."""
    texts = [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    fields_of_threads = [dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line) for text in texts]
    return {fields["Name"]: fields["Cpus_allowed_list"] for fields in fields_of_threads}


def test_a_guest_at_a_daemon_of_others_keeps_to_its_cpus_and_is_ended_when_that_dies(tmp_path):
    last = usable_cpus()[-1]
    with fresh_yard("nbt-dies") as yard, users_daemon(of_uut(yard), tmp_path) as uri:
        pinned = guest(accelerator="tcg", boot_limit="2min", cpus=2, pin={"vcpus": [[0]]}, uri=uri)
        with yard.uut(pinned, "g", (), CpuShares((last,), weight=1000)) as active:
            (qemu,) = (pid for pid, words in marked_processes(yard.run_id) if words.startswith("/usr/bin/qemu-system"))
            assert_bound(qemu, last)
            kill(*(pid for pid, words in marked_processes("nbt-user") if "libvirtd" in words))
            with pytest.raises(TestbedError, match="guest g: libvirt does not report the state of its domain"):
                active.uut.read()
            assert any("qemu-system" in words for _, words in marked_processes(yard.run_id)), "the domain lives on"
        assert list(marked_processes(yard.run_id)) == []


# The domain of a user, with its own network, console and agent.
DOMAIN = """
<domain type='qemu'>
  <name>{name}</name>
  <memory unit='MiB'>512</memory>
  <vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type><boot dev='network'/><boot dev='hd'/></os>
  <features><acpi/></features>
  <cpu mode='maximum'/>
  <on_reboot>restart</on_reboot>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/><source file='{disk}'/><target dev='{target}' bus='{bus}'/>
    </disk>
    <disk type='file' device='cdrom'><target dev='sdz' bus='sata'/><readonly/></disk>
    <interface type='user'><model type='e1000'/></interface>
    <serial type='pty'><target port='0'/></serial>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
  </devices>
</domain>
"""


def defined(disk: Path, name: str, bus: str = "virtio") -> str:
    return DOMAIN.format(name=name, disk=disk / "disk.img", bus=bus, target={"virtio": "vda"}.get(bus, "sda"))


def copies(directory: Path, uri: str, *domains: str) -> Path:
    """A topology of UUTs that have the names of the domains of which they are copies."""
    path = directory / "here.yaml"
    options = f"kind: libvirt, uri: '{uri}', forward: route, boot_limit: 2min"
    path.write_text(LOCAL + "".join(f"  - {{name: {name}, domain: {name}, {options}}}\n" for name in domains))
    return path


@pytest.mark.timeout(300)
def test_a_domain_that_a_user_has_defined_forwards_and_stays_what_it_was(disk, tmp_path, results, libvirt, start):
    """Both ways to keep its disk: where libvirt can plug it in, and where it cannot.

    netbench is killed during the last trial, and `netbench clean` removes its copy of the domain.
    """
    image = disk / "disk.img"
    before, files = hashlib.sha256(image.read_bytes()).hexdigest(), sorted(disk.iterdir())
    with connected(HERE, tmp_path) as (uri, connection):
        for name, bus in (("web", "virtio"), ("old", "sata")):
            connection.defineXML(defined(disk, name, bus))
        there = domains(connection)
        path = copies(tmp_path, uri, "gone", "web", "old")
        campaign = start("run", path, "quick", "-o", results, *FEW, *settings(repetitions=2, order="sequential"))
        wait_for(
            lambda: [event["uut"] for event in events(results) if event["kind"] == "uut-ready"][1:] == ["old"], 200
        )
        assert len(domains(connection)) == 3, "the copy of the first one is gone"
        assert sorted(disk.iterdir()) != files
        wait_for(lambda: stored(results) == 5)  # one trial is left
        kill(campaign.pid)
        campaign.communicate()
        assert campaign.returncode == -signal.SIGKILL
        wait_for(lambda: len(connection.listAllDomains()) == 2)
        done = netbench("clean")
        assert done.returncode == 0, done.stderr
        assert domains(connection) == there
    output = {row["uut"]: row for row in rows(results)}
    for name in ("web", "old"):
        row = output[name]
        assert row["sent_frames"] == row["received_frames"] == str(FEW_FRAMES), (row, reasons(results))
        assert (row["unexplained_frames"], verdict_of(row)) == ("0", "valid"), row
        assert float(row["cpu_host_s"]) > 0
        assert float(row["cpu_guest_s"]) > 0
    assert verdict_of(output["gone"]) == "invalid"
    assert f"there is no domain gone at {uri}, which has: old, web" in reasons(results)
    assert hashlib.sha256(image.read_bytes()).hexdigest() == before
    assert sorted(disk.iterdir()) == files, "what the guests have written is gone"


KILLED_AS_IT_STARTS = """
import os, signal, sys, threading
from netbench.cli.main import main
from netbench.vmm.libvirt.api import LibvirtConnection

create = LibvirtConnection.create

def killed(self, xml):
    threading.Timer({after_s}, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return create(self, xml)

LibvirtConnection.create = killed
sys.argv = ["netbench", *{words}]
main()
"""


# A QEMU that responds late to libvirt's query of its features, which delays the first process of a guest.
SLOW = """#!/bin/sh
case "$*" in *none,*) sleep 3 ;; esac
exec qemu-system-x86_64 "$@"
"""
LATE = """
<domain type='qemu'><name>late</name><memory unit='MiB'>64</memory><os><type arch='x86_64'>hvm</type></os>
<devices><emulator>{emulator}</emulator></devices></domain>
"""


@pytest.mark.parametrize("after_s", [1.0, 4.0])
def test_a_domain_that_libvirt_is_just_starting_when_netbench_is_killed_is_ended(tmp_path, results, libvirt, after_s):
    slow = tmp_path / "qemu-slow"
    slow.write_text(SLOW)
    slow.chmod(0o755)
    with connected(HERE, tmp_path) as (uri, connection):
        connection.defineXML(LATE.format(emulator=slow))
        there = domains(connection)
        os.utime(slow, (1, 1))  # libvirt queries it again
        words = list(map(str, ("run", copies(tmp_path, uri, "late"), "quick", "-o", results, *FEW)))
        code = KILLED_AS_IT_STARTS.format(after_s=after_s, words=words)
        done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
        assert done.returncode == -signal.SIGKILL
        time.sleep(SETTLED_S - after_s)  # started domains exist by then
        wait_for(lambda: [domain.name() for domain in connection.listAllDomains()] == ["late"])
        cleaned = netbench("clean")
        assert cleaned.returncode == 0, cleaned.stderr
        assert domains(connection) == there


SETTLED_S = 9.0


def test_what_is_in_the_journal_of_a_domain_ends_that_and_no_other(tmp_path, libvirt):
    with connected(HERE, tmp_path) as (uri, connection):
        bare = "<domain type='qemu'><name>{}</name>{}<memory>65536</memory><os><type>hvm</type></os></domain>"
        theirs = connection.createXML(bare.format("nb-theirs", ""), libvirt.VIR_DOMAIN_START_PAUSED)
        uuid = f"<uuid>{own_uuid('nb-ours')}</uuid>"
        connection.createXML(bare.format("nb-ours", uuid), libvirt.VIR_DOMAIN_START_PAUSED)
        with pytest.raises(TestbedError, match="the domain nb-theirs at .* exists already and is not netbench's"):
            AddLibvirtDomain(uri, "nb-theirs").with_former_state(MachineState(HERE))
        for name in ("nb-theirs", "nb-ours", "nb-ours", "nb-nowhere"):
            AddLibvirtDomain(uri, name).undo(HERE)
        assert [domain.name() for domain in connection.listAllDomains()] == ["nb-theirs"]
        theirs.destroy()
    AddLibvirtDomain(uri, "nb-ours").undo(HERE)  # the daemon has ended


def test_a_domain_that_runs_is_refused_and_a_name_that_is_taken(disk, tmp_path, libvirt):
    with fresh_yard("nbt-taken") as yard, connected(of_uut(yard), tmp_path) as (uri, connection):
        web = connection.defineXML(defined(disk, "web"))
        taken = f"nb-{guest_directory(yard.run_id, 'uut-g').name}"
        connection.defineXML(defined(disk, taken))
        there = domains(connection)
        with (
            pytest.raises(TestbedError, match=f"the domain {taken} at .* exists already and is not netbench's"),
            refused(yard, uri),
        ):
            pytest.fail("it is up")
        assert domains(connection) == there
        connection.lookupByName(taken).undefine()
        web.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
        there = domains(connection)
        with pytest.raises(TestbedError, match="guest g: domain web is running, .* shutdown web"), refused(yard, uri):
            pytest.fail("it is up")
        assert domains(connection) == there
        web.destroy()


def refused(yard: Yard, uri: str):
    return yard.uut(guest(uri=uri, domain="web"), "g", yard.paths[:1])

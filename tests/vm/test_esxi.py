"""Guests of ESXi against the vSphere API as govmomi's simulator serves it, of an ESXi host and of a vCenter.

The simulator has objects, tasks and faults, and nothing that runs: no test of this file sees a frame, a guest that
answers, or CPU time. Nor does it enforce privileges, keep the uplinks of a switch, or refuse a NIC that is
in use: that the driver asks for these is in tests/unit/test_esxi.py, as far as possible.
"""

import hashlib
import os
import signal
import ssl
from pathlib import Path

import pytest

from netbench.config.document import yaml_text
from netbench.errors import TestbedError
from netbench.hosts.local import LocalHost
from netbench.linux.locks import STATE_DIRECTORY
from netbench.linux.machine import Machine
from netbench.vmm.base import GuestNic, GuestSpec
from netbench.vmm.esxi.api import session
from netbench.vmm.esxi.esxi import Esxi
from tests import vcsim
from tests.commands import FEW, netbench, rows
from tests.contract.vmm_contract import VmmContract
from tests.netns.watching import wait_for

pytestmark = pytest.mark.timeout(1200)  # the simulator may have to be built

UPLINKS = {"s1": {"ingress": "vmnic0", "egress": "vmnic1"}}
INGRESS, EGRESS, NAME = "nb-0123456789ab-vi-s1", "nb-0123456789ab-ve-s1", "nb-0123456789ab-uut-g"
MACS = ["02:6e:67:00:01:01", "02:6e:67:00:01:02"]
ENVIRONMENT = "NETBENCH_ESXI_PASSWORD"


@pytest.fixture(scope="module", params=["esxi", "vcenter"])
def simulator(request):
    with vcsim.running(vcenter=request.param == "vcenter") as simulator:
        yield simulator


# For tests of the connection, which is the same for ESXi and vCenter.
CONNECTION_TO_ESXI = pytest.mark.parametrize("simulator", ["esxi"], indirect=True)


@pytest.fixture(autouse=True)
def _as_before(request):
    """After every test, the host must be as it was before."""
    if "simulator" not in request.fixturenames:
        yield
        return
    simulator = request.getfixturevalue("simulator")
    before = simulator.inventory()
    yield
    assert simulator.inventory() == before


@pytest.fixture
def machine():
    machine = Machine(None, LocalHost("here", "no-run"))
    yield machine
    assert machine.undo() == []


@pytest.fixture
def spec(tmp_path):
    nics = [
        GuestNic(f"nb-v{role[0]}-s1", mac, "s1", role) for role, mac in zip(("ingress", "egress"), MACS, strict=True)
    ]
    return GuestSpec("g", tmp_path / "0123456789ab-uut-g", tuple(nics), weight=200, limit=0.5)


def driver(simulator, **more) -> Esxi:
    return Esxi(simulator.options(uplinks=UPLINKS, **more))


def seen(simulator):
    """The settings of the guest according to the API."""

    def look(host):
        config = host.machine(NAME).config
        nics = [nic for nic in config.hardware.device if hasattr(nic, "macAddress")]
        disks = [disk for disk in config.hardware.device if hasattr(disk, "capacityInKB")]
        return {
            "nics": [(type(nic).__name__.rpartition(".")[2], getattr(nic.backing, "deviceName", None)) for nic in nics],
            "macs": [nic.macAddress for nic in nics if nic.macAddress in MACS],
            "disks": [disk.backing.fileName for disk in disks],
            "affinity": list(config.cpuAffinity.affinitySet) if config.cpuAffinity else [],
            "reservation": config.cpuAllocation.reservation / host.cpu_mhz,
            "limit": config.cpuAllocation.limit / host.cpu_mhz,
            "shares": config.cpuAllocation.shares.shares,
            "latency": config.latencySensitivity.level,
            "size": (config.hardware.numCPU, config.hardware.memoryMB),
        }

    return simulator.ask(look)


@pytest.mark.parametrize(
    ("nic", "model"), [("vmxnet3", "VirtualVmxnet3"), ("e1000", "VirtualE1000"), ("e1000e", "VirtualE1000e")]
)
def test_a_guest_comes_as_it_was_asked_for_and_goes(simulator, machine, spec, nic, model):
    tuned = {"cpus": 2, "memory": "2G", "affinity": [2, 3], "reservation": "25%", "latency_sensitivity": "high"}
    vmm = driver(simulator, nic=nic, **tuned)
    before = simulator.inventory()
    machine.make(vmm.changes(spec))
    assert [new for new in simulator.inventory() if new not in before and not new.startswith(("file", "network"))] == [
        f"VM {NAME}: poweredOff",
        f"port group {EGRESS} of {EGRESS}",
        f"port group {INGRESS} of {INGRESS}",
        f"switch {EGRESS}",
        f"switch {INGRESS}",
    ]
    found = seen(simulator)
    assert (round(found.pop("reservation"), 2), round(found.pop("limit"), 2)) == (0.25, 0.5)
    assert found == {
        "nics": [(model, "VM Network"), (model, INGRESS), (model, EGRESS)],
        "macs": MACS,
        "disks": [f"[LocalDS_0] {NAME}/{NAME}.vmdk"],
        "affinity": [2, 3],
        "shares": 4000,
        "latency": "high",
        "size": (2, 2048),
    }
    guest = vmm.start(spec, machine.host())
    assert guest.death() == ""
    assert (guest.cpu_s(), guest.memory_bytes()) == (None, None), "the simulator's are made up"
    assert guest.facts()["driver"] == "API only, against a simulator"
    guest.stop()
    guest.stop()
    assert "not powered on any more" in guest.death()
    assert machine.undo() == []
    assert simulator.inventory() == before


def test_its_port_groups_let_everything_through(simulator, machine, spec):
    machine.make(driver(simulator).changes(spec))

    def look(host):
        groups = [group.spec for group in host.network.networkInfo.portgroup if group.spec.name in (INGRESS, EGRESS)]
        policies = [group.policy.security for group in groups]
        return [(policy.allowPromiscuous, policy.forgedTransmits, policy.macChanges) for policy in policies]

    assert simulator.ask(look) == [(True, True, True)] * 2


def test_a_clone_of_a_template_keeps_its_nics_and_gets_ours(simulator, machine, spec):
    vmm = driver(simulator, disk=None, template="DC0_H0_VM0")
    if not simulator.is_vcenter:
        with pytest.raises(TestbedError, match="it is an ESXi host, and only a vCenter clones templates"):
            machine.make(vmm.changes(spec))
        return
    with pytest.raises(TestbedError, match="DC0_H0_VM0 is not powered off"):
        machine.make(vmm.changes(spec))
    assert machine.undo() == []

    def switch_to(does):
        simulator.ask(lambda host: host.session.wait(getattr(host.machine("DC0_H0_VM0"), does)(), 10.0))

    switch_to("PowerOffVM_Task")
    try:
        machine.make(vmm.changes(spec))
        found = seen(simulator)
        assert [network for _, network in found["nics"]][-2:] == [INGRESS, EGRESS]
        assert (len(found["nics"]), found["macs"], len(found["disks"])) == (3, MACS, 1)
        assert machine.undo() == []
    finally:
        switch_to("PowerOnVM_Task")
    with pytest.raises(TestbedError, match="no template or VM has the name nowhere"):
        machine.make(driver(simulator, disk=None, template="nowhere").changes(spec))


def refused(simulator, spec, machine, match, **more):
    with pytest.raises(TestbedError, match=match) as caught:
        machine.make(driver(simulator, **more).changes(spec))
    assert vcsim.PASSWORD not in str(caught.value)
    assert "\n" not in str(caught.value)


@CONNECTION_TO_ESXI
def test_a_wrong_password_is_one_sentence(simulator, machine, spec, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, "wrong-one")
    refused(simulator, spec, machine, "login of user netbench failed: wrong name or password", password_env=ENVIRONMENT)
    assert machine.point == 1, "the directory of its sockets, on this machine"


@CONNECTION_TO_ESXI
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ca_file": None}, r"its certificate is not trusted \(.*\): name the authority"),
        ({"ca_file": None, "thumbprint": "00" * 32}, "has the SHA-256 [0-9a-f]{64}, not that of thumbprint"),
    ],
)
def test_no_one_is_spoken_to_whose_certificate_is_not_trusted(simulator, machine, spec, options, message):
    refused(simulator, spec, machine, message, **options)


@CONNECTION_TO_ESXI
def test_nor_whose_certificate_is_another_hosts(simulator, machine, spec):
    refused(
        simulator, spec, machine, "not trusted .*mismatch", server=simulator.server.replace("127.0.0.1", "localhost")
    )


@CONNECTION_TO_ESXI
def test_a_thumbprint_is_as_good_as_an_authority(simulator):
    certificate = ssl.PEM_cert_to_DER_cert(simulator.ca_file.read_text())
    thumbprint = hashlib.sha256(certificate).hexdigest().upper()
    pairs = ":".join(thumbprint[at : at + 2] for at in range(0, 64, 2))
    by_name = simulator.server.replace("127.0.0.1", "localhost")
    with session(simulator.options(server=by_name, ca_file=None, thumbprint=pairs)) as one:
        assert "simulator" in one.content.about.fullName


@CONNECTION_TO_ESXI
@pytest.mark.parametrize(
    ("server", "message"),
    [("127.0.0.1:1", "Connection refused"), ("no-such-host.invalid", ".*not known|resolution")],
)
def test_a_server_that_is_not_there_is_named(simulator, machine, spec, server, message):
    refused(simulator, spec, machine, f"the vSphere API cannot be reached: {message}", server=server)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": "esx9"}, "there is no host 'esx9'; there are"),
        ({"disk": "[LocalDS_0] nowhere.vmdk"}, "nowhere.vmdk"),
        ({"disk": "[DS9] image.vmdk"}, "the host has no datastore 'DS9'; there are LocalDS_0"),
        ({"management": "Nowhere"}, "the host has no port group 'Nowhere'; there are .*VM Network"),
    ],
)
def test_what_is_not_there_is_named(simulator, machine, spec, options, message):
    refused(simulator, spec, machine, message, **options)


def add_switch(host):
    host.network.AddVirtualSwitch(INGRESS)


def add_port_group(host):
    host.network.AddVirtualSwitch("theirs")
    group = host.session.vim.host.PortGroup.Specification
    host.network.AddPortGroup(
        group(name=INGRESS, vlanId=0, vswitchName="theirs", policy=host.session.vim.host.NetworkPolicy())
    )


def remove_port_group(host):
    host.network.RemovePortGroup(INGRESS)
    host.network.RemoveVirtualSwitch("theirs")


def add_machine(host):
    vim = host.session.vim
    spec = vim.vm.ConfigSpec(
        name=NAME, guestId="otherGuest64", files=vim.vm.FileInfo(vmPathName=f"[LocalDS_0] {NAME}/{NAME}.vmx")
    )
    host.session.wait(host.datacenter.vmFolder.CreateVM_Task(spec, host.system.parent.resourcePool, host.system), 10.0)


def remove_machine(host):
    host.session.wait(host.machine(NAME).Destroy_Task(), 10.0)


@pytest.mark.parametrize(
    ("add", "remove", "what"),
    [
        (add_switch, lambda host: host.network.RemoveVirtualSwitch(INGRESS), f"the switch {INGRESS}"),
        (add_port_group, remove_port_group, f"the port group {INGRESS}"),
        (add_machine, remove_machine, f"the VM {NAME}"),
        (
            lambda host: host.session.content.fileManager.MakeDirectory(
                f"[LocalDS_0] {NAME}", host.datacenter, createParentDirectories=False
            ),
            lambda host: host.remove_directory(f"[LocalDS_0] {NAME}"),
            rf"\[LocalDS_0\] {NAME}",
        ),
    ],
    ids=["switch", "port group", "VM", "directory"],
)
def test_what_has_a_name_of_ours_already_is_neither_used_nor_removed(simulator, machine, spec, add, remove, what):
    simulator.ask(add)
    try:
        before = simulator.inventory()
        refused(simulator, spec, machine, f"{what} of .* exists already and is not netbench's")
        assert machine.undo() == []
        assert simulator.inventory() == before
    finally:
        simulator.ask(remove)


def test_a_machine_that_somebody_made_at_this_very_moment_is_not_removed(simulator, machine, spec):
    *_, guest = driver(simulator).changes(spec)
    simulator.ask(add_machine)
    try:
        guest.undo(machine.host())
        assert f"VM {NAME}: poweredOff" in simulator.inventory()
    finally:
        simulator.ask(remove_machine)


def test_a_guest_that_reports_no_address_is_given_up(simulator, machine, spec):
    vmm = driver(simulator, channel={**vcsim.WAY_IN, "address": None})
    machine.make(vmm.changes(spec))
    guest = vmm.start(spec, machine.host())
    with pytest.raises(TestbedError, match="VMware Tools reported no address within 0.5 s .*open-vm-tools"):
        guest.await_answer(0.5)
    with pytest.raises(TestbedError, match="there is no connection to it yet"):
        guest.host()


def test_a_guest_that_others_end_is_noticed(simulator, machine, spec):
    vmm = driver(simulator)
    machine.make(vmm.changes(spec))
    guest = vmm.start(spec, machine.host())
    simulator.ask(lambda host: host.session.wait(host.machine(NAME).PowerOffVM_Task(), 10.0))
    assert guest.death() == f"guest g: its VM {NAME} is not powered on any more"
    simulator.ask(remove_machine)
    assert guest.death() == f"guest g: its VM {NAME} is gone"
    guest.stop()


@pytest.mark.root
class TestContract(VmmContract):
    """The contract of every driver, as far as objects of the API show it."""

    no_answers = "vcsim has no guests that run, and moves no frames"

    @pytest.fixture(autouse=True)
    def _simulator(self, simulator):
        self.simulator = simulator

    def vmm(self):
        return driver(self.simulator)

    def broken(self):
        return driver(self.simulator, disk="[LocalDS_0] nowhere.vmdk")

    def kill(self, yard):
        (name,) = (vm[3:-11] for vm in self.simulator.inventory() if vm.startswith("VM nb-") and "poweredOn" in vm)
        self.simulator.ask(lambda host: host.session.wait(host.machine(name).PowerOffVM_Task(), 10.0))


@CONNECTION_TO_ESXI
def test_what_cannot_be_undone_for_want_of_a_password_is_undone_later(simulator, machine, spec):
    machine.make(driver(simulator).changes(spec))
    simulator.password_file.chmod(0o644)
    failures = machine.undo()
    assert len(failures) == 3
    assert all(f"other users may read or write {simulator.password_file}" in words for words in failures)
    simulator.password_file.chmod(0o600)
    assert machine.undo() == []


def test_an_api_that_has_gone_is_one_sentence(tmp_path, spec, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, vcsim.PASSWORD)
    with vcsim.running(vcenter=False) as simulator:
        certificate = tmp_path / "ca.pem"
        certificate.write_bytes(simulator.ca_file.read_bytes())
        vmm = driver(simulator, ca_file=str(certificate), password_env=ENVIRONMENT)
        machine = Machine(None, LocalHost("here", "no-run"))
        machine.make(vmm.changes(spec))
        guest = vmm.start(spec, machine.host())
    with pytest.raises(TestbedError, match="the vSphere API cannot be reached: Connection refused"):
        guest.death()
    guest.stop()
    failures = machine.undo()
    assert len(failures) == 3
    assert all("the vSphere API cannot be reached" in words for words in failures)


TOPOLOGY = {
    "name": "esxi",
    "hosts": {"source": {}, "sink": {}},
    "links": [{"ends": ["source/tx", "sink/rx"], "rate": "1Gbit/s"}],
    "streams": [{"name": "s1", "source": "source/tx", "sink": "sink/rx"}],
}


@pytest.fixture
def topology(simulator, tmp_path, monkeypatch):
    """A topology with a guest that is never let in; the password is in the environment."""
    monkeypatch.setenv(ENVIRONMENT, vcsim.PASSWORD)
    uut = {
        "name": "g",
        "kind": "esxi",
        **simulator.topology,
        "uplinks": UPLINKS,
        "channel": {"kind": "ssh", **vcsim.WAY_IN},
    }
    path = tmp_path / "esxi.yaml"

    def write(**more):
        path.write_text(yaml_text({**TOPOLOGY, "uuts": [{**uut, **more}]}))
        return path

    return write


def assert_secret(directory: Path, *texts: str) -> None:
    """The password is nowhere in the files and the output."""
    secret = vcsim.PASSWORD.encode()
    assert not [path for path in directory.rglob("*") if path.is_file() and secret in path.read_bytes()]
    assert not [text for text in texts if vcsim.PASSWORD in text]


@pytest.mark.root
def test_a_campaign_whose_guest_never_answers_has_no_results_and_leaves_nothing(topology, results):
    done = netbench("run", topology(boot_limit="3s"), "quick", "-o", results, *FEW)
    assert done.returncode == 1, done.stdout + done.stderr
    assert {(row["verdict"], row["received_frames"]) for row in rows(results)} == {("invalid", "")}
    assert "guest g: no SSH connection within 3 s" in (results / "events.jsonl").read_text() + done.stderr
    assert_secret(results, done.stdout, done.stderr)


@pytest.mark.root
def test_what_a_killed_netbench_left_is_cleaned_by_who_knows_the_password(
    simulator, topology, results, start, monkeypatch
):
    before = simulator.inventory()
    campaign = start("run", topology(), "quick", "-o", results, *FEW)
    wait_for(lambda: any(line.endswith("poweredOn") for line in set(simulator.inventory()) - set(before)))
    os.kill(campaign.pid, signal.SIGKILL)
    campaign.communicate()
    left = simulator.inventory()
    assert_secret(STATE_DIRECTORY / "journals")
    monkeypatch.delenv(ENVIRONMENT)
    done = netbench("clean")
    assert (done.returncode, simulator.inventory()) == (4, left), done.stderr
    assert "put it into the environment variable NETBENCH_ESXI_PASSWORD" in done.stdout + done.stderr
    monkeypatch.setenv(ENVIRONMENT, vcsim.PASSWORD)
    done = netbench("clean")
    assert (done.returncode, simulator.inventory()) == (0, before), done.stderr

"""Guests of ESXi: valid topologies, what their driver plans without a connection, and its error messages."""

import importlib
import socket
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from netbench.config.loading import load_topology
from netbench.config.plugins import UUTS, option_models
from netbench.errors import MissingError, TestbedError, UsageError
from netbench.linux.recovery_journal import from_json, to_json
from netbench.model.documents import plain_text
from netbench.model.stream_paths import stream_paths
from netbench.model.topology_specs import CpuShares
from netbench.testbed.doctor.diagnosis import check_facilities
from netbench.testbed.doctor.host_checks import Status
from netbench.testbed.requirements import require
from netbench.uut.base import Assignment
from netbench.uut.guest import Guest
from netbench.vmm.esxi import api
from netbench.vmm.esxi.api import Session, password, session, vsphere_module
from netbench.vmm.esxi.esxi import SIMULATED, Esxi, find_bindings
from netbench.vmm.esxi.machine import AddEsxiGuest, AddEsxiNetwork, EsxiHost
from netbench.vmm.esxi.options import EsxiOptions
from tests.unit.fakes import FakeHost, fake_ports
from tests.unit.inputs import topology

PATHS = stream_paths(fake_ports())
WAY_IN = {"key": "/etc/hostname", "host_key": "ssh-ed25519 AAAA"}
OPTIONS_GIVEN = {
    "server": "esx.example",
    "disk": "[datastore1] images/guest.vmdk",
    "uplinks": {"s1": {"ingress": "vmnic2", "egress": "vmnic3"}},
    "channel": WAY_IN,
}


def options(**more) -> EsxiOptions:
    return EsxiOptions.model_validate({**OPTIONS_GIVEN, **more})


def steps(**more):
    """Return the steps of a guest in a dry run."""
    own = Assignment("g", PATHS, CpuShares(weight=50, limit=0.5), run_id="lab-0123456789ab")
    return Guest(Esxi(options(**more))).plan(own).steps


@pytest.mark.parametrize(
    ("given", "message_text"),
    [
        ({"server": None}, "server: name the server of the API"),
        ({"server": "root:secret@esx.example"}, "String should match"),
        ({"server": "https://esx.example/sdk"}, "String should match"),
        ({"disk": None}, "set one of them: the VM to clone"),
        ({"template": "debian"}, "set one of them: the VM to clone"),
        ({"disk": "datastore1/guest.vmdk"}, "String should match"),
        ({"disk": None, "template": "debian", "firmware": "efi"}, "a clone has those of its template"),
        ({"channel": None}, "netbench needs an SSH connection to the guest"),
        ({"ca_file": "ca.pem", "thumbprint": "ab" * 32}, "use one of them and leave the other out"),
        ({"thumbprint": "AB:CD"}, "String should match"),
        ({"nic": "virtio"}, "'vmxnet3', 'e1000' or 'e1000e'"),
        ({"uplinks": {"s1": {"ingress": "vmnic2", "egress": "vmnic2"}}}, "vmnic2 is named twice"),
        ({"latency_sensitivity": "none"}, "'low', 'normal', 'medium' or 'high'"),
        ({"reservation": 50}, "not a percentage"),
        ({"affinity": [-1]}, "greater than or equal to 0"),
    ],
)
def test_what_makes_no_sense_is_refused(given, message_text):
    with pytest.raises(ValidationError, match=message_text):
        options(**given)


def test_a_password_has_no_place_in_a_topology_and_is_not_repeated(tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_text(
        "hosts: {t: {kind: netns, ports: {tx: eth1, rx: eth2}}}\n"
        "links: [{ends: [t/tx], rate: 1Gbit/s}, {ends: [t/rx], rate: 1Gbit/s}]\n"
        "streams: [{name: s1, source: t/tx, sink: t/rx}]\n"
        "uuts: [{name: g, kind: esxi, server: esx.example, password: s3cret}]\n"
    )
    with pytest.raises(UsageError, match=r"password.*did you mean 'password_(env|file)'") as caught:
        load_topology(path, option_models(UUTS))
    assert "s3cret" not in str(caught.value)


def test_thumbprints_are_taken_as_they_are_shown():
    assert options(thumbprint=":".join(["AB"] * 32)).thumbprint == "ab" * 32


def test_what_it_cannot_forward_on_is_refused(tmp_path):
    with pytest.raises(
        UsageError, match="stream s1: a guest of ESXi is on another machine.*leave ingress and egress out"
    ):
        Guest(Esxi(options())).check(stream_paths(topology()))
    with pytest.raises(UsageError, match="stream s1: uplinks must name .*{s1: {ingress: vmnic2, egress: vmnic3}}"):
        Guest(Esxi(options(uplinks={}))).check(PATHS)
    with pytest.raises(UsageError, match="channel: key: there is no file /nowhere"):
        Guest(Esxi(options(channel={**WAY_IN, "key": "/nowhere"}))).check(PATHS)
    with pytest.raises(UsageError, match="ca_file: there is no file /nowhere"):
        Guest(Esxi(options(ca_file="/nowhere"))).check(PATHS)
    with pytest.raises(UsageError, match="server: name the server of the API"):
        Guest(Esxi(EsxiOptions())).check(PATHS)
    with pytest.raises(MissingError, match="password_file: /nowhere cannot be read"):
        Guest(Esxi(options(password_file="/nowhere"))).check(PATHS)
    Guest(Esxi(options())).check(PATHS)


def test_cpus_of_this_machine_are_not_those_it_runs_on():
    own = Assignment("g", PATHS, CpuShares((0,)))
    with pytest.raises(UsageError, match="guest g runs on CPUs of the ESXi host: use affinity"):
        Guest(Esxi(options())).plan(own)


def test_a_dry_run_reports_what_is_done_in_the_words_of_govc_and_asks_no_one(monkeypatch):
    monkeypatch.delenv("NETBENCH_ESXI_PASSWORD", raising=False)
    tuned = {"affinity": [2, 3], "reservation": "25%", "latency_sensitivity": "high"}
    _, ingress, egress, guest, start = [step.command for step in steps(**tuned)][:5]
    network = "nb-0123456789ab-vi-s1"
    assert ingress == (
        f"govc host.vswitch.add -nic=vmnic2 {network} && govc host.portgroup.add -vswitch={network} {network} && "
        f"govc host.portgroup.change -allow-promiscuous=true -forged-transmits=true -mac-changes=true {network}"
    )
    assert "-nic=vmnic3 nb-0123456789ab-ve-s1 " in egress
    for words in (
        "govc datastore.cp -ds=datastore1 images/guest.vmdk nb-0123456789ab-uut-g/nb-0123456789ab-uut-g.vmdk",
        "govc vm.create -c=1 -m=1024 -on=false",
        "-net=nb-0123456789ab-vi-s1 -net.adapter=vmxnet3 -net.address=02:6e:67:00:01:01",
        "-latency=high -cpu.shares=500 '-cpu.limit=0.5*MHZ' '-cpu.reservation=0.25*MHZ' -e=sched.cpu.affinity=2,3",
    ):
        assert words in guest
    assert start == "govc vm.power -on nb-0123456789ab-uut-g"
    cloned = steps(disk=None, template="debian")[3].command
    assert "govc vm.clone -vm=debian -c=1 -m=1024 -on=false nb-0123456789ab-uut-g && " in cloned


def test_names_of_networks_are_no_longer_than_esxi_takes_them():
    (path,) = (replace(path, name="n23456789") for path in PATHS)  # no stream has a longer name
    changes = Guest(Esxi(options())).plan(Assignment("g", (path,), run_id="lab-0123456789ab")).steps
    names = [change.name for change in changes if isinstance(change, AddEsxiNetwork)]
    assert names == ["nb-0123456789ab-vi-n23456789", "nb-0123456789ab-ve-n23456789"]
    assert max(map(len, names)) <= 31


def test_a_change_in_the_journal_reports_where_the_password_is_and_not_what(monkeypatch):
    monkeypatch.setenv("NETBENCH_ESXI_PASSWORD", "s3cret")
    changes = [
        step for step in steps(memory="2G", reservation="25%") if isinstance(step, AddEsxiGuest | AddEsxiNetwork)
    ]
    assert len(changes) == 3
    for change in changes:
        data = to_json(change)
        assert from_json(data) == change
        assert change.options == options(memory="2G", reservation="25%")
        assert "s3cret" not in str(data)


def test_a_change_that_does_not_bear_our_prefix_is_never_undone():
    AddEsxiNetwork("{}", "vSwitch0", "vmnic0").undo(FakeHost())  # else it would query a server that was never named


def test_a_nic_that_carries_something_else_is_not_taken():
    def nic(name):
        return SimpleNamespace(device=name, key=f"key-{name}")

    switch = SimpleNamespace(name="vSwitch0", pnic=["key-vmnic0"])
    distributed = SimpleNamespace(dvsName="dvs", pnic=["key-vmnic1"])
    info = SimpleNamespace(vswitch=[switch, SimpleNamespace(name="empty", pnic=None)], proxySwitch=[distributed])
    system = SimpleNamespace(
        config=SimpleNamespace(network=SimpleNamespace(pnic=[nic("vmnic0"), nic("vmnic1"), nic("vmnic2")])),
        configManager=SimpleNamespace(networkSystem=SimpleNamespace(networkInfo=info)),
    )
    unused: Any = None
    host = EsxiHost(Session("esx.example", unused, unused, unused), system)
    host.require_free("vmnic2")
    with pytest.raises(TestbedError, match="esx.example: vmnic0 is an uplink of vSwitch0, so it cannot be measured"):
        host.require_free("vmnic0")
    with pytest.raises(TestbedError, match="vmnic1 is an uplink of dvs"):
        host.require_free("vmnic1")
    with pytest.raises(TestbedError, match="there is no vmnic9; there are vmnic0, vmnic1, vmnic2"):
        host.require_free("vmnic9")


def test_the_password_is_in_the_environment_or_in_a_file_that_no_one_else_reads(monkeypatch, tmp_path):
    monkeypatch.setenv("NETBENCH_ESXI_PASSWORD", "one")
    monkeypatch.setenv("OTHER", "two")
    file = tmp_path / "password"
    file.write_text("three\n")
    file.chmod(0o600)
    assert password(options()) == "one"
    assert password(options(password_env="OTHER")) == "two"
    assert password(options(password_file=str(file))) == "three"
    file.chmod(0o640)
    with pytest.raises(MissingError, match=f"other users may read or write {file}: run `chmod 600"):
        password(options(password_file=str(file)))
    with pytest.raises(MissingError, match="/nowhere cannot be read: No such file"):
        password(options(password_file="/nowhere"))
    monkeypatch.delenv("NETBENCH_ESXI_PASSWORD")
    with pytest.raises(MissingError, match="the password of root at esx.example is missing.*NETBENCH_ESXI_PASSWORD"):
        password(options())


def test_a_password_that_is_to_be_in_the_environment_is_looked_for_beforehand(monkeypatch):
    needs = Guest(Esxi(options(password_env="OTHER"))).plan(Assignment("g", PATHS)).needs
    assert [need for need in needs if need.startswith("variable:")] == ["variable:OTHER"]
    monkeypatch.delenv("OTHER", raising=False)
    with pytest.raises(MissingError, match="OTHER is not in the environment, .*: export it"):
        require({"variable:OTHER"})
    (looked,) = check_facilities({"variable:OTHER"}, euid=1)
    assert (looked.status, looked.remedy) == (Status.MISSING, "export OTHER=…")
    monkeypatch.setenv("OTHER", "s3cret")
    require({"variable:OTHER"})
    (looked,) = check_facilities({"variable:OTHER"}, euid=1)
    assert (looked.status, looked.found) == (Status.OK, "is in the environment")
    for quiet in (EsxiOptions(), options(password_file="/etc/hostname")):
        assert Esxi(quiet).needs() == {"pyvmomi", "ssh"}


def test_without_pyvmomi_that_is_reported(monkeypatch):
    def none(name):
        raise ImportError(f"No module named {name!r}")

    assert find_bindings("")
    monkeypatch.setattr(importlib, "import_module", none)
    with pytest.raises(MissingError, match=r"pyvmomi is not installed .*: pip install 'netbench\[esxi\]'"):
        find_bindings("")


def raised_as(fault):
    with pytest.raises(TestbedError) as caught, api._errors_of_api(options(), vsphere_module()):
        raise fault
    return str(caught.value)


def test_every_error_of_the_api_is_one_sentence():
    vim = vsphere_module().vim
    lacking = vim.fault.NoPermission(privilegeId="VirtualMachine.Inventory.Create", msg="Permission denied")
    assert raised_as(lacking) == (
        "esx.example: user root is not permitted to do that: it lacks the privilege VirtualMachine.Inventory.Create"
    )
    assert "nb-x exists already and is not netbench's" in raised_as(vim.fault.DuplicateName(name="nb-x"))
    because = vsphere_module().vmodl.LocalizableMessage(key="x", message="Current license prohibits that.")
    assert raised_as(vim.fault.RestrictedVersion(msg="", faultMessage=[because])) == (
        "esx.example: RestrictedVersion: Current license prohibits that."
    )
    assert raised_as(TimeoutError("timed out")) == "esx.example: the vSphere API cannot be reached: timed out"


def test_a_defect_of_netbench_keeps_its_exception():
    with pytest.raises(TypeError, match="For x expected y"), api._errors_of_api(options(), vsphere_module()):
        raise TypeError("For x expected y")


def test_a_server_without_the_api_is_reported(monkeypatch):
    def no_content(self):
        raise TypeError("For x expected y")

    monkeypatch.setenv("NETBENCH_ESXI_PASSWORD", "s3cret")
    monkeypatch.setattr(api, "_trust", lambda *_: None)
    monkeypatch.setattr(vsphere_module().vim.ServiceInstance, "RetrieveContent", no_content)
    with pytest.raises(TestbedError, match="this server has no vSphere API: For x expected y"), session(options()):
        pytest.fail("there is a session")


def test_a_server_that_reports_nothing_is_not_waited_for(monkeypatch):
    monkeypatch.setenv("NETBENCH_ESXI_PASSWORD", "s3cret")
    monkeypatch.setattr(api, "_ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with (
            pytest.raises(TestbedError, match="the vSphere API cannot be reached: .*timed out"),
            session(options(server=f"127.0.0.1:{port}")),
        ):
            pytest.fail("there is a session")


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("esx.example", ("esx.example", 443)),
        ("esx.example:8443", ("esx.example", 8443)),
        ("[2001:db8::1]", ("2001:db8::1", 443)),
        ("[2001:db8::1]:8443", ("2001:db8::1", 8443)),
    ],
)
def test_where_a_server_is(server, address):
    assert api._address(options(server=server).server or "") == address


def test_it_is_never_taken_for_more_than_it_is():
    assert Esxi.unproven == SIMULATED == "API only, against a simulator"
    assert SIMULATED.partition(",")[0] in (Esxi.__doc__ or "")
    vmm = Esxi(options())
    assert vmm.nic_models.keys() == {"vmxnet3", "e1000", "e1000e"}
    assert vmm.needs() == {"pyvmomi", "ssh", "variable:NETBENCH_ESXI_PASSWORD"}


class Task:
    """A task that never ends."""

    def __init__(self) -> None:
        self.cancelled = 0

    def CancelTask(self) -> None:
        self.cancelled += 1


@pytest.mark.parametrize("why", [KeyboardInterrupt, None])
def test_a_task_that_no_one_waits_for_any_more_is_cancelled(monkeypatch, why):
    states = SimpleNamespace(queued="queued", running="running")
    content: Any = None
    one = Session("esx.example", content, SimpleNamespace(TaskInfo=SimpleNamespace(State=states)), None)
    seen = []

    def info(self, task):
        seen.append(task)
        if why and len(seen) > 1:
            raise why
        return {"state": "running", "descriptionId": "VirtualMachine.clone"}

    monkeypatch.setattr(Session, "_info", info)
    task = Task()
    with pytest.raises(why or TestbedError, match=None if why else r"VirtualMachine.clone did not end within 0\.3 s"):
        one.wait(task, 0.3)
    assert task.cancelled == 1


def test_a_guest_that_a_killed_netbench_has_still_in_the_making_is_left_on_record(monkeypatch):
    unused: Any = None
    host = EsxiHost(Session("esx.example", unused, unused, unused), unused)
    monkeypatch.setattr(EsxiHost, "machine", lambda self, name: SimpleNamespace(config=None))
    guest = AddEsxiGuest(plain_text(options()), "nb-x", (), ())
    with pytest.raises(TestbedError, match="esx.example: nb-x is still being created: try again"):
        guest._remove(host)

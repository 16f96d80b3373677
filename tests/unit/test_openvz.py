"""Commands of OpenVZ's tools and the use of their answers, with programs that answer as in the manual pages."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from netbench.errors import MissingError, TestbedError, UsageError
from netbench.hosts.local import LocalHost
from netbench.linux.machine import Machine
from netbench.model.stream_paths import stream_paths
from netbench.model.topology_specs import CpuShares
from netbench.uut.base import Assignment
from netbench.uut.guest import Guest
from netbench.vmm.base import GuestNic, GuestSpec
from netbench.vmm.openvz import container, openvz
from netbench.vmm.openvz.container import AddContainer
from netbench.vmm.openvz.openvz import NEVER_RUN, OpenVz, OpenVzOptions, find_tool
from tests.openvz_stub import Stub
from tests.unit.inputs import topology

NIC, MAC, HOST_MAC = "nb-no-such-nic", "02:6e:67:00:01:01", "02:6e:68:00:01:01"
SPEC = GuestSpec("g", Path("/x/a"), (GuestNic(NIC, MAC),), None, (1, 2), "", 50, 0.5)
SHARES = "--cpuunits 500 --cpulimit 50 --cpumask 1,2"
CTID = "1876328771"


@pytest.fixture
def stub(tmp_path, monkeypatch):
    stub = Stub(tmp_path)
    stub.install("vzctl", "vzlist", "prlctl", dry=True)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return stub


def driver(**options):
    return OpenVz(OpenVzOptions(**{"forward": "route", **options}))


def changes(vmm, spec):
    """All changes before a guest starts, those of its NICs included."""
    own = list(vmm.changes(spec))
    return [
        *own,
        *(
            change
            for nic in spec.nics
            for change in vmm.attachment(spec).changes(None, nic.interface, nic.mac, "nb-in1")
        ),
    ]


def went(vmm, spec=SPEC):
    """Run a guest from its changes to their undoing; return its state while it ran."""
    machine = Machine(None, LocalHost("here", "no-run"))
    try:
        machine.make(changes(vmm, spec))
        guest = vmm.start(spec, machine.host())
        guest.await_answer(60.0)
        done = guest.host().run(["echo", "a b"])
        guest.stop()
        guest.stop()
        return done, guest.facts()
    finally:
        assert machine.undo() == []


VZCTL = [
    f"vzctl create {CTID} --ostemplate debian-12 --name nb-a",
    f"vzctl set {CTID} --onboot no --ram 512M --swap 0 {SHARES} --save",
    f"vzctl start {CTID}",
    f"vzctl set {CTID} --netif_add {NIC},{MAC},{NIC},{HOST_MAC}",
    f"vzctl set {CTID} --ifname {NIC} --mac_filter off",
    f"vzctl exec2 {CTID} true",
    f"vzctl exec2 {CTID} echo 'a b'",
    f"vzctl stop {CTID} --fast",
    "vzctl --version",
    f"vzctl destroy {CTID}",
]
PRLCTL = [
    "prlctl create nb-a --ostemplate debian-12 --vmtype ct",
    f"prlctl set nb-a --autostart off --memsize 512M {SHARES}",
    "prlctl start nb-a",
    f"vzctl set nb-a --netif_add {NIC},{MAC},{NIC},{HOST_MAC}",
    f"vzctl set nb-a --ifname {NIC} --mac_filter off",
    "prlctl exec nb-a true",
    "prlctl exec nb-a echo 'a b'",
    "prlctl stop nb-a --kill",
    "prlctl --version",
    "prlctl delete nb-a",
]


@pytest.mark.parametrize(("tool", "output"), [("vzctl", VZCTL), ("prlctl", PRLCTL)])
def test_a_container_from_its_template_to_its_end(stub, tool, output):
    done, facts = went(driver(tool=tool, template="debian-12"))
    assert (done.exit_code, done.argv) == (0, ("echo", "a b"))
    assert facts["driver"] == NEVER_RUN == OpenVz.unproven
    assert (stub.calls, stub.containers()) == (output, {})


@pytest.mark.parametrize("tool", ["vzctl", "prlctl"])
@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("create", 91, "Cached OS template /vz/template/cache/x.tar.gz not found"),
        ("create", 12, "Permission denied"),
        ("set", 20, "Invalid command line parameter"),
        ("start", 47, "Unable to start init, probably incorrect template"),
        ("start", 5, "The running kernel is not an OpenVZ kernel"),
        ("status", 3, "License error"),
    ],
)
def test_what_fails_is_reported_in_the_words_of_the_tool_and_leaves_nothing(stub, tool, command, code, words):
    machine = Machine(None, LocalHost("here", "no-run"))
    stub.fail(f"{tool} {command}", code, words)
    error = MissingError if words == "Permission denied" else TestbedError
    with pytest.raises(error, match=f"`{tool} {command} .*exit code {code}: {words}"):
        machine.make(changes(driver(tool=tool), SPEC))
    (stub.directory / "failures").unlink()
    assert machine.undo() == []
    assert stub.containers() == {}


def test_a_tool_that_answers_something_else_is_not_taken_for_one(stub):
    (stub.directory / "vzctl").write_text("#!/bin/sh\necho 4.11\n")
    with pytest.raises(TestbedError, match=f"`vzctl status {CTID}` printed an unknown status: 4.11"):
        went(driver())


@pytest.mark.parametrize(("tool", "ident"), [("vzctl", CTID), ("prlctl", "nb-a")])
def test_a_container_of_somebody_elses_is_neither_used_nor_destroyed(stub, tool, ident):
    stub.put(ident, name="theirs")
    with pytest.raises(TestbedError, match=f"container {ident} exists already and is not netbench's"):
        went(driver(tool=tool))
    assert (stub.calls, list(stub.containers())) == ([], [ident])


def test_one_that_somebody_made_at_this_very_moment_is_not_destroyed(stub):
    stub.put(CTID, name="theirs")
    AddContainer("vzctl", CTID, "nb-a", "", 512).undo(LocalHost("here", "no-run"))
    assert list(stub.containers()) == [CTID]


@pytest.mark.parametrize("tool", ["vzctl", "prlctl"])
@pytest.mark.parametrize("ran", [False, True])
def test_a_container_that_the_user_names_is_only_started_and_stopped_and_only_if_it_did_not_run(stub, tool, ran):
    stub.put("mine", name="mine", pid=int(ran))
    before = stub.containers()
    went(driver(tool=tool, container="mine"), GuestSpec("g", Path("/x/a")))
    assert stub.containers() == before
    lifecycle = [call for call in stub.calls if not call.startswith((f"{tool} exec", f"{tool} --version"))]
    assert lifecycle == ([] if ran else [f"{tool} start mine", f"{tool} stop mine"])


def test_a_container_may_be_called_as_its_state_is(stub):
    stub.put("running", name="running")
    assert container.OpenVzContainer("prlctl", "running").status(LocalHost("here", "no-run")) == (True, False)


def test_a_container_that_the_user_names_must_be_there_and_keeps_its_shares(stub):
    with pytest.raises(TestbedError, match="there is no container 101: name one that `vzlist --all` lists"):
        went(driver(container=101), GuestSpec("g", Path("/x/a")))
    with pytest.raises(UsageError, match=f"run `vzctl set 101 {SHARES}`"):
        list(driver(container=101).changes(SPEC))
    assert stub.calls == []


def test_one_that_stops_by_itself_is_noticed(stub):
    machine = Machine(None, LocalHost("here", "no-run"))
    vmm = driver()
    machine.make(changes(vmm, SPEC))
    guest = vmm.start(SPEC, machine.host())
    inside = guest.host()
    stub.end(CTID)
    assert guest.death() == f"guest g: its container {CTID} has stopped"
    with pytest.raises(TestbedError, match=f"container {CTID} has stopped"):
        inside.run(["true"])
    with pytest.raises(TestbedError, match="has stopped"):
        guest.await_answer(60.0)
    assert machine.undo() == []
    assert "is gone" in guest.death()


def test_one_that_runs_no_commands_is_given_up(stub):
    vmm = driver(container="mine")
    stub.put("mine", pid=1)
    stub.fail("vzctl exec2", 8, "bash: not found")
    with pytest.raises(TestbedError, match=r"its container mine runs no command in 0\.2 s"):
        vmm.start(SPEC, LocalHost("here", "no-run")).await_answer(0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"container": "101", "template": "debian-12"}, "container 101 has its own; leave template or container out"),
        ({"container": "101", "memory": "1G"}, "leave memory or container out"),
        ({"container": "--all"}, "String should match"),
        ({"template": "-x"}, "String should match"),
        ({"tool": "vzcli"}, "'vzctl' or 'prlctl'"),
    ],
)
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        OpenVzOptions(**options)


def test_shares_are_the_containers_own_and_no_control_group_is_made():
    own = Assignment("g", stream_paths(topology(1)), CpuShares((0,), 300, 0.25))
    output = [step.command for step in Guest(driver(forward="bridge")).plan(own).steps]
    assert "--cpuunits 3000 --cpulimit 25 --cpumask 0 --features bridge:on --save" in output[0]
    assert not any("cgroup" in command for command in output)


def test_where_there_is_no_openvz_that_is_reported(stub, monkeypatch, tmp_path):
    monkeypatch.setattr(openvz, "KERNEL", tmp_path / "vz")
    with pytest.raises(MissingError, match="the kernel of this host is not OpenVZ's: it has no"):
        find_tool("vzctl", "")
    (tmp_path / "vz").mkdir()
    assert find_tool("prlctl", "") == str(tmp_path / "prlctl")
    (tmp_path / "prlctl").unlink()
    with pytest.raises(MissingError, match="prlctl is not installed on this host"):
        find_tool("prlctl", "")

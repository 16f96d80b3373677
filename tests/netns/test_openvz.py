"""Containers of OpenVZ fulfil the contract of every VMM, tested with stubs that respond like OpenVZ's programs."""

import os
import subprocess

import pytest

from netbench.hosts.local import LocalHost
from netbench.linux.changes import Change
from netbench.linux.machine import Machine
from netbench.linux.recovery_journal import Journal
from netbench.uut.base import Assignment
from netbench.uut.guest import Guest
from netbench.vmm.openvz.openvz import OpenVz, OpenVzOptions
from tests.commands import netbench
from tests.contract.vmm_contract import VmmContract
from tests.netns.yard import FRAMES, fresh_yard
from tests.openvz_stub import Stub

pytestmark = pytest.mark.root


@pytest.fixture
def stub(tmp_path, monkeypatch):
    stub = Stub(tmp_path)
    stub.install("vzctl", "vzlist", "prlctl")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return stub


class TestVzctl(VmmContract):
    """OpenVZ 6."""

    @pytest.fixture(autouse=True)
    def _none_left(self, stub):
        self.stub = stub
        yield
        assert stub.containers() == {}

    def vmm(self):
        return OpenVz(OpenVzOptions(template="debian-12", forward="route"))

    def broken(self):
        return OpenVz(OpenVzOptions(template="without-init"))

    def kill(self, yard):
        """Its processes do not bear the mark of a run."""
        (ident,) = self.stub.containers()
        self.stub.end(ident)


@pytest.mark.parametrize("options", [OpenVzOptions(tool="prlctl", forward="route"), OpenVzOptions(forward="bridge")])
def test_another_tool_and_another_way_to_forward(stub, options):
    with fresh_yard("nbt-vmm") as yard, yard.uut(Guest(OpenVz(options)), "g", yard.paths[:1]) as active:
        assert yard.forwarded(active, yard.paths[0]) == FRAMES
    assert stub.containers() == {}


@pytest.mark.parametrize("ran", [False, True])
def test_a_container_that_was_there_is_left_as_it_was_found(stub, ran):
    stub.put("101", name="mine")
    if ran:
        subprocess.run(["vzctl", "start", "101"], check=True)
    try:
        with fresh_yard("nbt-vmm") as yard:
            uut = Guest(OpenVz(OpenVzOptions(container="101", forward="route")))
            with yard.uut(uut, "g", yard.paths[:1]) as active:
                assert yard.forwarded(active, yard.paths[0]) == FRAMES
        left = stub.containers()["101"]
        assert (bool(left["pid"]), left["name"], left["saved"]) == (ran, "mine", [])
        nics = subprocess.run(["ip", "-n", "ct-101", "-br", "link"], capture_output=True, text=True, check=False)
        assert "nb-" not in nics.stdout
    finally:
        if ran:
            subprocess.run(["vzctl", "stop", "101"], check=True)


def test_what_a_killed_run_left_is_destroyed_by_a_process_that_never_heard_of_openvz(stub):
    stub.put("101", name="mine")
    journal = Journal.create("nbt-vmm")
    steps = Guest(OpenVz(OpenVzOptions())).plan(Assignment("g")).steps
    changes = [step for step in steps if isinstance(step, Change)]
    Machine(None, LocalHost("local", journal.run_id), record=journal).make(changes[:2])
    journal.close()
    assert len(stub.containers()) == 2
    done = netbench("clean")
    assert (done.returncode, list(stub.containers())) == (0, ["101"]), done.stderr

"""VMs that are hosts: netbench is brought there, clocks are compared, NICs get their names in the topology."""

import io
import json
import tarfile
import time
from pathlib import Path

import pytest

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Completed
from netbench.hosts.remote_code import has_netbench, module_command_on, scratch_of, with_netbench
from netbench.model.host_spec import VmSpec
from netbench.testbed import virtual_machines
from netbench.testbed.virtual_machines import running_vm
from netbench.vmm.base import CableEnd, GuestSpec, RunningGuest
from tests.unit.fakes import FakeHost

ENDS = [
    CableEnd(name, mac, model, Path(f"/run/box/{name}"), listens=True)
    for name, mac, model in (("eth1", "02:00:00:00:00:01", "virtio"), ("eth0", "02:00:00:00:00:02", "e1000"))
]


class Vm(FakeHost):
    """A VM as its agent shows it: with numpy or without, and with two NICs."""

    def __init__(self, *, has_numpy: bool) -> None:
        super().__init__()
        self.has_numpy = has_numpy
        self.sent: dict[str, bytes] = {}
        self.output: list[str] = []

    def run(self, argv, *, stdin="", timeout_s=30.0):
        self.commands.append(tuple(argv))
        self.output += stdin.splitlines()
        if argv[0] == "test":
            return Completed(tuple(argv), 0 if self.has_numpy else 1, "", "")
        listed = json.dumps([link(f"eth{n}", f"02:00:00:00:00:0{n + 1}") for n in (0, 1)])
        return Completed(tuple(argv), 0, listed if "-j" in argv else "6.1.0", "")

    def send(self, source, path):
        self.sent[path] = source.read_bytes()


class Guest(RunningGuest):
    def __init__(self, spec: GuestSpec, vm: Vm) -> None:
        super().__init__(spec)
        self.vm = vm
        self.stopped = False

    def host(self, gone=TestbedError):
        return self.vm

    def clocks(self):
        return time.monotonic_ns() + 5_000_000_000, time.time_ns() - 7_000_000_000

    def stop(self):
        self.stopped = True


def link(name: str, mac: str) -> dict[str, object]:
    counted = dict.fromkeys(("packets", "dropped", "errors", "missed_errors"), 0)
    return {
        "ifname": name,
        "ifindex": 1,
        "address": mac,
        "flags": [],
        "operstate": "DOWN",
        "stats64": {"rx": counted, "tx": counted},
    }


@pytest.fixture
def start(monkeypatch):
    """Return a function that starts a VM of the test, with its cabled NICs."""

    def start(vm: Vm, ends=ENDS):
        guest = Guest(GuestSpec("box", Path("/run/box"), cables=tuple(ends)), vm)
        starter = type("Starter", (), {"start": lambda self, spec, here: guest})()
        monkeypatch.setattr(virtual_machines, "vmm_of", lambda spec: starter)
        return guest, running_vm("box", VmSpec(), FakeHost(), Path("/run/box"), ends)

    return start


def test_netbench_is_brought_to_a_vm_with_numpy_once_and_when_it_is_wanted(tmp_path):
    vm = Vm(has_numpy=True)
    host = with_netbench(vm, "box")
    assert (has_netbench(host), scratch_of(host), vm.sent) == (True, "/tmp", {})
    command = module_command_on(host, "netbench.sinks.flush", "eth1")
    assert command[0] == "python3"
    assert command[-2:] == ["netbench.sinks.flush", "eth1"]
    assert "-B" not in command, "what it has compiled is kept"
    (packed,) = vm.sent.values()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert "netbench/sinks/flush.py" in archive.getnames()
    before = len(vm.commands)
    module_command_on(host, "netbench.sinks.remote_capture_count")
    assert (len(vm.commands), len(vm.sent)) == (before, 1)
    with pytest.raises(MissingError, match="somebody.elses cannot run there"):
        module_command_on(host, "somebody.elses")


def test_a_vm_without_numpy_has_no_netbench():
    assert not has_netbench(with_netbench(Vm(has_numpy=False), "lab"))


def test_its_clocks_are_compared_anew_whenever_they_are_asked_for(start):
    guest, starting = start(Vm(has_numpy=False))
    with starting as machine:
        assert machine.monotonic.middle_ns == pytest.approx(5e9, abs=5e8)
        assert machine.realtime.middle_ns == pytest.approx(-7e9, abs=5e8)
    assert guest.stopped


def test_its_nics_are_called_as_in_the_topology_though_another_has_the_name(start):
    vm = Vm(has_numpy=False)
    with start(vm)[1]:
        assert vm.output == [
            "link set eth0 name nb-nic0",
            "link set eth1 name nb-nic1",
            "link set nb-nic0 name eth1",
            "link set nb-nic1 name eth0",
        ]


def test_a_nic_without_a_driver_is_named_and_the_vm_is_ended(start):
    absent = CableEnd("eth7", "02:00:00:00:00:77", "vmxnet3", Path("/run/box/7"), listens=True)
    guest, starting = start(Vm(has_numpy=False), [*ENDS, absent])
    with pytest.raises(TestbedError, match="guest box has no NIC eth7: its kernel has no driver for vmxnet3"):
        starting.__enter__()
    assert guest.stopped

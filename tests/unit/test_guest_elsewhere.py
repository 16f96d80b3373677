"""A guest whose VMM is on another machine: cables lead there from source and sink; nothing of netbench is between."""

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from netbench.model.points import whole_path
from netbench.model.stream_paths import stream_paths
from netbench.uut.base import PROBE_LIMIT_S, Assignment, Site, bring_up
from netbench.uut.guest import ChangeInside, Guest, StartGuest
from netbench.vmm.attachment import tap
from netbench.vmm.base import GuestOptions, RunningGuest, Vmm
from tests.unit.fakes import FakeHost, fake_ports
from tests.unit.test_guest import FakeGuest, FakeKernel

PATHS = stream_paths(fake_ports())


class GuestElsewhere(RunningGuest):
    """A guest that is up at once."""

    def host(self, gone=None):
        return self.inside

    def __init__(self, spec) -> None:
        super().__init__(spec)
        self.inside = FakeGuest("g", (None, SimpleNamespace(machine=spec)))


class Elsewhere(Vmm):
    """A VMM that starts guests on another machine."""

    elsewhere: ClassVar[bool] = True
    applies_cpu_shares: bool = True

    def needs(self):
        return frozenset({"its-api"})

    def attachment(self, spec):
        return tap()

    def command(self, spec):
        return "start it"

    def start(self, spec, host):
        self.spec, self.host = spec, host
        return GuestElsewhere(spec)


class Kernel(FakeKernel):
    """This machine: nothing of it is changed or read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[object] = []

    def host(self) -> FakeHost:
        return FakeHost()

    def read_nics(self, places):
        self.read += places
        return super().read_nics(places)


@pytest.fixture
def up():
    """Return a guest of it that is up, its VMM, and this machine."""
    vmm, kernel = Elsewhere(GuestOptions()), Kernel()
    machine: Any = kernel
    uut = Guest(vmm)
    uut.check(PATHS)
    return bring_up(uut, Site(Assignment("g", PATHS), machine, {})), vmm, kernel


def test_it_needs_no_nics_of_this_machine_and_changes_none(up):
    active, vmm, kernel = up
    kinds = {type(step) for step in active.plan.steps}
    assert kinds == {StartGuest, ChangeInside}
    assert active.plan.needs == {"its-api"} | tap().needs
    assert (kernel.made, kernel.read) == ([], [])
    assert str(vmm.host) == "host fake"


def test_its_vmm_knows_whose_its_nics_are(up):
    _, vmm, _ = up
    assert [(nic.stream, nic.role, nic.mac) for nic in vmm.spec.nics] == [
        ("s1", "ingress", "02:6e:67:00:01:01"),
        ("s1", "egress", "02:6e:67:00:01:02"),
    ]


def test_its_counters_are_all_inside_it_and_its_testbed_finds_out_whether_frames_come_through(up):
    active, _, kernel = up
    reading = active.uut.read()
    along = [point.name for point in whole_path(PATHS[0], active.ready.points["s1"])]
    assert {count.point for count in reading.counters} <= set(along)
    assert {"guest ingress NIC", "guest egress NIC"} <= {count.point for count in reading.counters}
    assert not [name for name in along if "tap" in name or "bridge" in name]
    assert kernel.read == []
    assert active.ready.probe_limit_s == PROBE_LIMIT_S
    assert active.ready.next_hop_macs == {"s1": PATHS[0].sink.mac}

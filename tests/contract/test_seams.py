"""The contracts of all seams, checked for the real implementations and for the fakes that other tests rely on."""

import inspect
from typing import Any

import pytest
from pydantic import BaseModel

from netbench.config.plugins import GENERATORS, SINKS, UUTS, plugins
from netbench.errors import TestbedError
from netbench.generators.afpacket.afpacket import AfPacketSource
from netbench.generators.base import Generator, Source
from netbench.hosts.base import Connection, Host
from netbench.hosts.clock import Clock, SystemClock
from netbench.hosts.guest_agent.host import AgentHost
from netbench.hosts.host_wrappers import ConfinedHost, MonitoredHost, NamespaceHost
from netbench.hosts.local import LocalHost
from netbench.hosts.ssh import SshGuest
from netbench.linux.changes import Change
from netbench.loads.stress_ng import NeighbourLoad, StressLoad
from netbench.model.paths import InterfaceRef
from netbench.model.stream_paths import stream_paths
from netbench.model.topology_specs import CpuShares
from netbench.sinks.auto_sink import AutoSink, AutoSinkKind
from netbench.sinks.base import Sink, SinkKind
from netbench.sinks.bpf import BpfOptions, BpfSink
from netbench.sinks.tcpdump import TcpdumpSink
from netbench.uut.base import Assignment, Reading, Site, UnitUnderTest
from netbench.uut.external import External, ExternalOptions
from netbench.uut.forwarder import Forwarder, ForwarderOptions
from netbench.uut.guest import Guest
from netbench.uut.ovs import Ovs, OvsOptions
from netbench.uut.raw import Raw, RawOptions
from netbench.uut.reference import DropRule, Reference, ReferenceOptions
from netbench.vmm.base import Vmm
from netbench.vmm.qemu.options import QemuOptions
from netbench.vmm.qemu.qemu import Qemu
from netbench.vmm.qemu.qmp import GuestAgentHost
from tests.unit.fakes import FakeClock, FakeHost, FakeNics, FakeSetup, FakeSink, FakeSource, FakeUut, FakeWire
from tests.unit.inputs import stream_traffic, topology

PATHS = stream_paths(topology(2))

# Every class behind a seam, including the installed plug-ins.
BEHIND = [
    *((Generator, kind) for kind in plugins(GENERATORS).values()),
    *((Source, kind) for kind in (AfPacketSource, FakeSource)),
    *((Vmm if issubclass(kind, Vmm) else UnitUnderTest, kind) for kind in (*plugins(UUTS).values(), Guest, FakeUut)),
    *((SinkKind, kind) for kind in plugins(SINKS).values()),
    *((Sink, kind) for kind in (TcpdumpSink, BpfSink, AutoSink, FakeSink)),
    *((Host, kind) for kind in (LocalHost, NamespaceHost, ConfinedHost, FakeHost)),
    *((Connection, kind) for kind in (AgentHost, MonitoredHost, GuestAgentHost, SshGuest)),
    (NeighbourLoad, StressLoad),
    *((Clock, kind) for kind in (SystemClock, FakeClock)),
]


def members(seam) -> dict[str, object]:
    found = {name: member for base in seam.__mro__[::-1] for name, member in vars(base).items()}
    return {name: member for name, member in found.items() if not name.startswith("_")}


def wire() -> FakeWire:
    return FakeWire([], FakeNics([], PATHS[0].nics.values()), PATHS[0])


@pytest.mark.parametrize(("seam", "kind"), BEHIND, ids=lambda value: value.__name__)
def test_every_method_of_a_seam_is_there_with_the_same_parameters(seam, kind):
    for name, member in members(seam).items():
        theirs = inspect.getattr_static(kind, name)
        if isinstance(member, property):
            assert isinstance(theirs, property), name
        elif inspect.isfunction(member):
            assert list(inspect.signature(theirs).parameters) == list(inspect.signature(member).parameters), name


@pytest.mark.parametrize(
    "kind", [kind for group in (GENERATORS, SINKS, UUTS) for kind in plugins(group).values()], ids=lambda k: k.__name__
)
def test_a_plugin_has_options_that_refuse_what_they_do_not_know_and_a_line_about_itself(kind):
    assert issubclass(kind.Options, BaseModel)
    assert kind.Options.model_config["extra"] == "forbid"
    assert kind.__doc__


def test_the_types_agree():
    """Mostly for mypy."""
    sources: list[Source] = [AfPacketSource(), FakeSource(wire())]
    sinks: list[Sink] = [make() for make in SINKS_MADE.values()]
    guest = Guest(Qemu(QemuOptions()))
    uuts: list[UnitUnderTest] = [Raw(RawOptions()), guest, External(ExternalOptions()), FakeUut([])]
    hosts: list[Host] = [LocalHost("local", "x"), NamespaceHost(LocalHost("n", "x"), "nb-x"), FakeHost()]
    clocks: list[Clock] = [SystemClock(), FakeClock()]
    assert [len(seam) for seam in (sources, sinks, uuts, hosts, clocks)] == [2, 4, 4, 3, 2]


# Clock


@pytest.mark.parametrize("clock", [SystemClock(), FakeClock()], ids=lambda clock: type(clock).__name__)
def test_a_clock_goes_on_and_sleeps_as_long_as_asked(clock):
    begin, real = clock.monotonic_ns(), clock.realtime_ns()
    clock.sleep(0.02)
    assert clock.monotonic_ns() - begin >= 20_000_000
    assert clock.realtime_ns() - real >= 19_000_000
    assert clock.realtime_ns() > 1_600_000_000 * 10**9, "nanoseconds since 1970"


# Source


@pytest.mark.parametrize("make", [AfPacketSource, lambda: FakeSource(wire())], ids=["afpacket", "fake"])
def test_a_source_may_be_closed_at_any_time(make):
    source = make()
    source.close()
    source.close()
    assert all(isinstance(command, str) for command in source.commands("nb-tx1", (1,)))


def test_a_source_is_not_used_before_it_is_open():
    traffic = stream_traffic(fps=1.0)
    with pytest.raises(TestbedError, match="open it first"):
        AfPacketSource().prepare(traffic)


# Sink


SINKS_MADE = {
    "tcpdump": TcpdumpSink,
    "bpf": lambda: BpfSink(BpfOptions()),
    "auto": lambda: AutoSinkKind().sink(),
    "fake": lambda: FakeSink(wire()),
}


@pytest.mark.parametrize("make", SINKS_MADE.values(), ids=SINKS_MADE)
def test_a_sink_may_be_closed_at_any_time_and_stopped_only_when_armed(make):
    sink = make()
    sink.close()
    sink.close()
    with pytest.raises(TestbedError, match="no capture is running"):
        sink.stop(1.0)


# Unit under test


UUTS_MADE = {
    "raw bridge": lambda: Raw(RawOptions()),
    "raw route": lambda: Raw(RawOptions(forward="route")),
    "raw flowtable": lambda: Raw(RawOptions(forward="flowtable")),
    "raw tc": lambda: Raw(RawOptions(forward="tc", rps=(0,))),
    "raw xdp": lambda: Raw(RawOptions(forward="xdp")),
    "ovs": lambda: Ovs(OvsOptions()),
    "reference bridge": lambda: Reference(ReferenceOptions(drop=DropRule(k=1, n=2))),
    "reference route": lambda: Reference(ReferenceOptions(forward="route", drop=DropRule(k=1, n=2))),
    "qemu bridge": lambda: Guest(Qemu(QemuOptions())),
    "qemu route": lambda: Guest(Qemu(QemuOptions(forward="route"))),
    "external": lambda: External(ExternalOptions()),
    "forwarder": lambda: Forwarder(ForwarderOptions(delay=0.5)),
    "fake": lambda: FakeUut([]),
}


@pytest.fixture(params=UUTS_MADE)
def uut(request):
    """A UUT that is not provisioned."""
    return UUTS_MADE[request.param]()


def test_before_it_is_provisioned_a_uut_only_reports(uut):
    uut.check(PATHS)
    plan = uut.plan(Assignment(paths=PATHS))
    assert all(isinstance(step.command, str) and step.command for step in plan.steps)
    assert [step.command for step in plan.steps] == [step.command for step in uut.plan(Assignment(paths=PATHS)).steps]
    assert 0 <= plan.pace.bring_up_s < 60
    assert uut.plan(Assignment()).needs == plan.needs


@pytest.mark.parametrize("uut", ["external", "fake"], indirect=True)
def test_a_uut_that_does_nothing_is_ready_at_once(uut):
    machine: Any = Noted()
    uut.provision(Site(Assignment(paths=PATHS), machine, {}))
    assert machine.changes == []
    assert 0 < uut.ready().quiet_time_s < 1


def test_a_uut_may_be_destroyed_at_any_time(uut):
    uut.destroy()
    uut.destroy()


def test_a_uut_reports_only_what_it_counts_itself(uut, request):
    if request.node.callspec.params["uut"].startswith(("reference", "qemu")):
        with pytest.raises(TestbedError, match="is not provisioned"):
            uut.read()
    else:
        assert uut.read() == Reading()


class Noted:
    """A kernel that changes nothing, and only records the requests."""

    def __init__(self):
        self.changes: list[Change] = []

    def make(self, changes):
        self.changes += changes


@pytest.mark.parametrize(
    "uut", ["raw bridge", "raw route", "raw flowtable", "raw tc", "reference bridge", "reference route"], indirect=True
)
def test_what_provisioning_would_do_is_what_it_does(uut):
    kernel: Any = Noted()
    own = Assignment("x", PATHS, CpuShares((0,), 50, 0.2))
    uut.provision(Site(own, kernel, {}))
    assert tuple(kernel.changes) == uut.plan(own).steps


# TrialSetup


def test_the_fakes_read_as_counters_do():
    fakes = FakeSetup.on(PATHS)
    places = [nic.place for nic in PATHS[0].nics.values()]
    found = fakes.setup.read_nics([*places, InterfaceRef(None, None, "no-such-nic")])
    assert list(found) == places
    assert [counters.mac for counters in found.values()] == [nic.mac for nic in PATHS[0].nics.values()]

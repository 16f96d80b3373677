"""A topology made real: hosts, links, sources, sinks and UUTs ready together, undone together."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from netbench.errors import MachineGoneError, MissingError, TestbedError, UutError
from netbench.generators.base import Generator
from netbench.hosts.base import Host
from netbench.hosts.clock import SystemClock
from netbench.hosts.local import LocalHost, NamespaceHost
from netbench.hosts.processes import end_marked_processes
from netbench.hosts.signals import shielded
from netbench.links.changes import (
    AddNamespace,
    AddRunDirectory,
    AddVeth,
    Change,
    Machine,
    MovePort,
    OffloadsOff,
    SetSysctl,
    SetUp,
)
from netbench.links.cleaning import clean
from netbench.links.counters import NicCounters
from netbench.links.journal import Journal
from netbench.links.kernel import Kernel
from netbench.links.netlink import Netlink
from netbench.links.safety import refuse_unsafe_port
from netbench.links.state import lock_testbed
from netbench.links.transaction import Transaction
from netbench.model.paths import Nic, Place, StreamPath, stream_paths, veth_mac
from netbench.model.profile import Profile
from netbench.model.topology import Topology, UutSpec, host_of
from netbench.plugins import GENERATORS, UUTS, plugins
from netbench.requirements import require
from netbench.sinks.tcpdump import TcpdumpSink
from netbench.trial import Bench, Lane
from netbench.uut.base import UnitUnderTest, Workplace
from netbench.vm.machine import qemu_program, vm_directory
from netbench.vm.running import running_vm

TOOLS = ("ip", "ethtool", "tcpdump", "taskset", "setpriv")


def needs_of(topology: Topology, uuts: Collection[str] = ()) -> frozenset[str]:
    """What this host must be able to do for these UUTs (empty: all of them), in the words of `netbench doctor`."""
    needs = {"root", "setpriv"}
    here = [host for host in topology.hosts if topology.machine(host) is None]
    if here:
        needs |= {"packet", *TOOLS}
    if any(topology.netns(host) for host in here):
        needs.add("netns")
    if any(host_of(link.ends[0]) in here and not topology.is_port(link.ends[0]) for link in topology.links):
        needs.add("veth")
    for vm in topology.vms.values():
        needs |= {qemu_program(), f"image:{vm.image}"} | ({"kvm"} if vm.accelerator == "kvm" else set())
    for uut in topology.uuts:
        if topology.uut_machine is None and (not uuts or uut.name in uuts):
            needs |= make_uut(uut).needs()
    return frozenset(needs | {f"port:{nic}" for nic in topology.port_addresses})


def base_changes(topology: Topology, machine: str | None = None) -> list[Change]:
    """What is changed on this machine, or in a VM, before any UUT comes in, in order."""
    changes: list[Change] = []
    for host in (host for host in topology.hosts if topology.machine(host) == machine):
        netns = topology.netns(host)
        if netns:
            changes.append(AddNamespace(netns))
            # Without IPv6 the kernel sends nothing of its own accord that would be counted among our frames.
            changes += [
                SetSysctl(netns, f"net.ipv6.conf.{part}.disable_ipv6", "1", True) for part in ("all", "default")
            ]
    nics: list[tuple[str | None, str]] = []
    for link in (link for link in topology.links if topology.machine(host_of(link.ends[0])) == machine):
        for end in link.ends:
            netns, interface = topology.netns(host_of(end)), topology.interface(end)
            nics.append((netns, interface))
            if topology.is_port(end) and netns:
                changes.append(MovePort(interface, netns))
        if not topology.is_port(link.ends[0]):
            changes.append(_veth(topology, link.ends[0], link.ends[1]))
    for netns, interface in nics:
        if netns is None:
            changes.append(SetSysctl(None, f"net.ipv6.conf.{interface}.disable_ipv6", "1", True))
        changes.append(OffloadsOff(netns, interface))
        changes.append(SetUp(netns, interface))
    return changes


def make_uut(spec: UutSpec) -> UnitUnderTest:
    """The UUT a topology describes."""
    kind = plugins(UUTS)[spec.kind]
    uut: UnitUnderTest = kind(kind.Options.model_validate(spec.options))
    return uut


def make_generator(profile: Profile) -> Generator:
    """The generator a profile describes."""
    kind = plugins(GENERATORS)[profile.generator.kind]
    generator: Generator = kind(kind.Options.model_validate(profile.generator.options))
    return generator


def cpu_plan(streams: int, cpus: Sequence[int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """CPUs of each stream's source and sink.

    Every source has a CPU of its own where there is one, sinks share what is left. Where there are too
    few, nothing is pinned (empty): the scheduler balances better than a fixed overload would.
    """
    if len(cpus) >= 2 * streams:
        return [((cpus[n],), (cpus[streams + n],)) for n in range(streams)]
    if len(cpus) > streams:
        return [((cpus[n],), tuple(cpus[streams:])) for n in range(streams)]
    return [((), ()) for _ in range(streams)]


def cpu_plans(
    paths: Sequence[StreamPath], cpus: Callable[[str | None], Sequence[int]]
) -> Iterator[tuple[StreamPath, tuple[tuple[int, ...], tuple[int, ...]]]]:
    """Each path with the CPUs of its source and sink, out of those that `cpus` says a machine has."""
    machines = dict.fromkeys(path.source.machine for path in paths)
    for machine in machines:
        there = [path for path in paths if path.source.machine == machine]
        yield from zip(there, cpu_plan(len(there), cpus(machine)), strict=True)


def usable_cpus() -> list[int]:
    """The CPUs this process may run on."""
    return sorted(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class Ground:
    """A machine that part of a testbed stands on: its kernel, its CPUs by number, and facts about it."""

    kernel: Kernel
    cpus: Sequence[int]
    facts: Mapping[str, str]


class Testbed:
    """A topology that is up. UUTs are brought in one at a time with `uut`. `grounds` are by VM, None: this machine."""

    __test__ = False

    def __init__(
        self,
        topology: Topology,
        run_id: str,
        grounds: Mapping[str | None, Ground],
        hosts: dict[str, Host],
        paths: tuple[StreamPath, ...],
        profile: Profile,
    ) -> None:
        self._topology = topology
        self._run_id = run_id
        self._grounds = grounds
        self._hosts = hosts
        self._paths = paths
        self._generator = make_generator(profile)
        self._lanes: dict[str, Lane] = {}

    def open_lanes(self) -> None:
        """Bring up a source and a sink for every stream."""
        for path, (source_cpus, sink_cpus) in cpu_plans(self._paths, self._cpus):
            host = self._hosts[path.source.host]
            unfit = self._generator.unfit(host)
            if unfit:
                raise MissingError(
                    f"stream {path.name}: its generator cannot send from host {host.name}: {unfit}; "
                    "`generator: auto` takes what works, and in a VM (topology lab-vm) pktgen does"
                )
            source = self._generator.source()
            sink = TcpdumpSink()
            self._lanes[path.name] = Lane(path, source, sink)
            source.open(host, path.source.interface, source_cpus)
            sink.open(self._hosts[path.sink.host], path.sink.interface, sink_cpus)

    def remarks(self) -> list[str]:
        """What a reader of the results must know of the sources, each once."""
        return list(dict.fromkeys(remark for lane in self._lanes.values() for remark in lane.source.remarks()))

    def close_lanes(self) -> None:
        """End all sources and sinks."""
        for lane in self._lanes.values():
            lane.source.close()
            lane.sink.close()
        self._lanes.clear()

    def renew_lanes(self) -> None:
        """End all sources and sinks and bring them up anew, after one of them failed."""
        self.close_lanes()
        self.open_lanes()

    @contextmanager
    def uut(self, spec: UutSpec) -> Iterator[UnitUnderTest]:
        """A UUT, provisioned and forwarding; UutError when it cannot be brought up."""
        uut = make_uut(spec)
        kernel = self._uut_ground.kernel
        point = kernel.point
        try:
            try:
                uut.provision(Workplace(spec.name, self._run_id, self._hosts, kernel, self._paths))
                uut.ready()
            except MachineGoneError:
                raise
            except (TestbedError, MissingError) as error:
                raise UutError(str(error), uut.log()) from error
            yield uut
        finally:
            with shielded():
                uut.destroy()
                failures = kernel.undo(to=point)
            if failures:
                raise TestbedError(f"UUT {spec.name} could not be undone: {'; '.join(failures)}")

    def facts(self, uut: UnitUnderTest) -> dict[str, str]:
        """What a reader of the results must know of a UUT that is ready, and of the machine it is on."""
        return {**self._uut_ground.facts, **uut.facts()}

    def bench(self, uut: UnitUnderTest) -> Bench:
        """What a trial needs, with this UUT in place."""
        return Bench(self._lanes, uut, self._read_nics, SystemClock())

    def interfaces(self) -> dict[str | None, list[str]]:
        """The interfaces of all paths on this machine, by network namespace (None: netbench's own)."""
        found: dict[str | None, list[str]] = {}
        for path in self._paths:
            for nic in path.nics.values():
                if nic.machine is None:
                    found.setdefault(nic.netns, []).append(nic.interface)
        return found

    @property
    def _uut_ground(self) -> Ground:
        return self._grounds[self._topology.uut_machine]

    def _cpus(self, machine: str | None) -> Sequence[int]:
        return self._grounds[machine].cpus

    def _read_nics(self, places: Iterable[Place]) -> dict[Place, NicCounters]:
        wanted: dict[str | None, list[Place]] = {}
        for place in places:
            wanted.setdefault(place.machine, []).append(place)
        found: dict[Place, NicCounters] = {}
        for machine, there in wanted.items():
            found |= self._grounds[machine].kernel.read_nics(there)
        return found


@contextmanager
def open_testbed(topology: Topology, profile: Profile, uuts: Collection[str] = ()) -> Iterator[Testbed]:
    """Bring a topology up for these UUTs (empty: all) and, however the block is left, down again.

    UsageError when a port must not be used, MissingError when this host lacks something or the testbed is
    taken, TestbedError when bringing it up or down fails. What a killed run left is undone first.
    """
    require_root()
    require(needs_of(topology, uuts))
    with ExitStack() as stack:
        lock_testbed(stack, _resources(topology))
        clean()
        for port, addresses in topology.port_addresses.items():
            refuse_unsafe_port(port, addresses)
        journal = Journal.create(topology.name)
        own_hosts = {name: _host(topology, name, journal.run_id) for name in topology.hosts}
        here = LocalHost("local", journal.run_id)
        netlink = stack.enter_context(Netlink())
        by_netns: dict[str | None, Host] = {None: here, **{host.netns: host for host in own_hosts.values() if host}}
        transaction = Transaction(journal, Machine(netlink, by_netns))
        testbed: Testbed | None = None
        try:
            with ExitStack() as vms:
                grounds: dict[str | None, Ground] = {None: Ground(transaction, usable_cpus(), {})}
                hosts = {name: host for name, host in own_hosts.items() if host}
                for name, spec in topology.vms.items():
                    directory = vm_directory(journal.run_id, name)
                    transaction.make([AddRunDirectory(str(directory))])
                    vm = vms.enter_context(running_vm(name, spec, here, directory))
                    grounds[name] = Ground(vm.kernel, vm.cpus, vm.facts)
                    inside = [host for host in topology.hosts if topology.machine(host) == name]
                    hosts |= {host: vm.host(host, topology.netns(host)) for host in inside}
                for machine, ground in grounds.items():
                    ground.kernel.make(base_changes(topology, machine))
                paths = _known_paths(topology, transaction)
                testbed = Testbed(topology, journal.run_id, grounds, hosts, paths, profile)
                try:
                    testbed.open_lanes()
                    yield testbed
                finally:
                    with shielded():
                        testbed.close_lanes()
        finally:
            with shielded():
                _take_down(journal, transaction)


def _take_down(journal: Journal, transaction: Transaction) -> None:
    end_marked_processes(journal.run_id)
    failures = transaction.undo()
    if failures:
        journal.close()
        raise TestbedError("not everything could be undone; `netbench clean` tries again: " + "; ".join(failures))
    journal.remove()


def require_root() -> None:
    """MissingError unless this is root."""
    if os.geteuid() != 0:
        raise MissingError("netbench makes network namespaces and sends raw frames: run it as root (sudo netbench …)")


def _resources(topology: Topology) -> set[str]:
    here = {host for host in topology.hosts if topology.machine(host) is None}
    names = {f"netns:{topology.netns(host)}" for host in here if topology.netns(host)}
    names |= {f"vm:{topology.name}-{vm}" for vm in topology.vms}
    for link in topology.links:
        ends = [end for end in link.ends if host_of(end) in here]
        names |= {f"port:{topology.interface(end)}" for end in ends if topology.is_port(end)}
        names |= {f"nic:{topology.interface(end)}" for end in ends if topology.netns(host_of(end)) is None}
    return names


def _host(topology: Topology, name: str, run_id: str) -> Host | None:
    """A host on this machine; None for one that is, or is in, a VM."""
    netns = topology.netns(name)
    if topology.machine(name) is not None:
        return None
    return NamespaceHost(name, run_id, netns) if netns else LocalHost(name, run_id)


def _veth(topology: Topology, one: str, other: str) -> AddVeth:
    return AddVeth(
        netns=topology.netns(host_of(one)),
        interface=topology.interface(one),
        mac=veth_mac(topology, one),
        peer_netns=topology.netns(host_of(other)),
        peer=topology.interface(other),
        peer_mac=veth_mac(topology, other),
    )


def _known_paths(topology: Topology, kernel: Kernel) -> tuple[StreamPath, ...]:
    """The paths with the MAC addresses of ports filled in from the machine."""

    def known(nic: Nic | None) -> Nic | None:
        if nic is None or nic.mac:
            return nic
        found = kernel.read_nics([nic.place]).get(nic.place)
        if found is None:
            raise TestbedError(f"port {nic.interface} is gone")
        return replace(nic, mac=found.mac)

    paths = []
    for path in stream_paths(topology):
        source, sink = known(path.source), known(path.sink)
        assert source is not None
        assert sink is not None
        paths.append(replace(path, source=source, ingress=known(path.ingress), egress=known(path.egress), sink=sink))
    return tuple(paths)

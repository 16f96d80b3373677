"""A topology made real: hosts, links, sources, sinks and UUTs ready together, undone together."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from netbench.errors import MissingError, TestbedError
from netbench.generators.base import Generator
from netbench.hosts.base import Host
from netbench.hosts.clock import SystemClock
from netbench.hosts.local import LocalHost, NamespaceHost, require_tool
from netbench.hosts.processes import end_marked_processes
from netbench.hosts.signals import shielded
from netbench.links.changes import (
    AddNamespace,
    AddVeth,
    Change,
    Machine,
    MovePort,
    OffloadsOff,
    SetSysctl,
    SetUp,
)
from netbench.links.cleaning import clean
from netbench.links.counters import read_nics
from netbench.links.journal import Journal
from netbench.links.netlink import Netlink
from netbench.links.safety import refuse_unsafe_port
from netbench.links.state import lock_testbed
from netbench.links.transaction import Transaction
from netbench.model.paths import Nic, StreamPath, stream_paths, veth_mac
from netbench.model.profile import Profile
from netbench.model.topology import Topology, UutSpec, host_of
from netbench.plugins import GENERATORS, UUTS, plugins
from netbench.sinks.tcpdump import TcpdumpSink
from netbench.trial import Bench, Lane
from netbench.uut.base import UnitUnderTest, Workplace

TOOLS = ("ip", "ethtool", "tcpdump", "taskset", "setpriv")
_UUT_READY_S = 30.0


def needs_of(topology: Topology) -> frozenset[str]:
    """What a host must be able to do for this topology, in the words of `netbench doctor`."""
    needs = {"root", "packet", *TOOLS}
    if any(host.kind == "netns" for host in topology.hosts.values()):
        needs.add("netns")
    if any(not topology.is_port(link.ends[0]) for link in topology.links):
        needs.add("veth")
    for uut in topology.uuts:
        needs |= make_uut(uut).needs()
    return frozenset(needs | {f"port:{nic}" for nic in topology.port_addresses})


def base_changes(topology: Topology) -> list[Change]:
    """What is changed on the machine before any UUT comes in, in order."""
    changes: list[Change] = []
    for host in topology.hosts:
        netns = topology.netns(host)
        if netns:
            changes.append(AddNamespace(netns))
            # Without IPv6 the kernel sends nothing of its own accord that would be counted among our frames.
            changes += [
                SetSysctl(netns, f"net.ipv6.conf.{part}.disable_ipv6", "1", True) for part in ("all", "default")
            ]
    nics: list[tuple[str | None, str]] = []
    for link in topology.links:
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


def usable_cpus() -> list[int]:
    """The CPUs this process may run on."""
    return sorted(os.sched_getaffinity(0))


class Testbed:
    """A topology that is up. UUTs are brought in one at a time with `uut`."""

    __test__ = False

    def __init__(
        self,
        topology: Topology,
        hosts: dict[str, Host],
        transaction: Transaction,
        netlink: Netlink,
        paths: tuple[StreamPath, ...],
        profile: Profile,
    ) -> None:
        self._topology = topology
        self._hosts = hosts
        self._transaction = transaction
        self._netlink = netlink
        self._paths = paths
        self._generator = make_generator(profile)
        self._lanes: dict[str, Lane] = {}

    def open_lanes(self) -> None:
        """Bring up a source and a sink for every stream."""
        pins = cpu_plan(len(self._paths), usable_cpus())
        for path, (source_cpus, sink_cpus) in zip(self._paths, pins, strict=True):
            source = self._generator.source()
            sink = TcpdumpSink()
            self._lanes[path.name] = Lane(path, source, sink)
            source.open(self._hosts[path.source.host], path.source.interface, source_cpus)
            sink.open(self._hosts[path.sink.host], path.sink.interface, sink_cpus)

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
        """A UUT, provisioned and forwarding; TestbedError when it cannot be brought up."""
        uut = make_uut(spec)
        point = self._transaction.point
        try:
            uut.provision(Workplace(self._hosts, self._transaction, self._netlink, self._paths))
            uut.ready(_UUT_READY_S)
            yield uut
        finally:
            with shielded():
                uut.destroy()
                failures = self._transaction.undo(to=point)
            if failures:
                raise TestbedError(f"UUT {spec.name} could not be undone: {'; '.join(failures)}")

    def bench(self, uut: UnitUnderTest) -> Bench:
        """What a trial needs, with this UUT in place."""
        return Bench(self._lanes, uut, lambda places: read_nics(self._netlink, places), SystemClock())

    def interfaces(self) -> dict[str | None, list[str]]:
        """The interfaces of all paths, by network namespace (None: netbench's own)."""
        found: dict[str | None, list[str]] = {}
        for path in self._paths:
            for nic in path.nics.values():
                found.setdefault(nic.netns, []).append(nic.interface)
        return found


@contextmanager
def open_testbed(topology: Topology, profile: Profile) -> Iterator[Testbed]:
    """Bring a topology up and, however the block is left, down again.

    UsageError when a port must not be used, MissingError when this host lacks something or the testbed is
    taken, TestbedError when bringing it up or down fails. What a killed run left is undone first.
    """
    require_root()
    for tool in sorted(needs_of(topology) & {*TOOLS, "nft"}):
        require_tool(tool)
    with ExitStack() as stack:
        lock_testbed(stack, _resources(topology))
        clean()
        for port, addresses in topology.port_addresses.items():
            refuse_unsafe_port(port, addresses)
        journal = Journal.create(topology.name)
        hosts = {name: _host(topology, name, journal.run_id) for name in topology.hosts}
        netlink = stack.enter_context(Netlink())
        machine_hosts: dict[str | None, Host] = {host.netns: host for host in hosts.values()}
        machine_hosts.setdefault(None, LocalHost("local", journal.run_id))
        transaction = Transaction(journal, Machine(netlink, machine_hosts))
        testbed: Testbed | None = None
        try:
            transaction.make(base_changes(topology))
            testbed = Testbed(topology, hosts, transaction, netlink, _known_paths(topology, netlink), profile)
            testbed.open_lanes()
            yield testbed
        finally:
            with shielded():
                if testbed:
                    testbed.close_lanes()
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
    names = {f"netns:{topology.netns(host)}" for host in topology.hosts if topology.netns(host)}
    for link in topology.links:
        names |= {f"port:{topology.interface(end)}" for end in link.ends if topology.is_port(end)}
        names |= {f"nic:{topology.interface(end)}" for end in link.ends if topology.netns(host_of(end)) is None}
    return names


def _host(topology: Topology, name: str, run_id: str) -> Host:
    netns = topology.netns(name)
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


def _known_paths(topology: Topology, netlink: Netlink) -> tuple[StreamPath, ...]:
    """The paths with the MAC addresses of ports filled in from the machine."""

    def known(nic: Nic | None) -> Nic | None:
        if nic is None or nic.mac:
            return nic
        found = read_nics(netlink, [nic.place]).get(nic.place)
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

"""Brings a topology up as a testbed, and takes it down."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from netbench.errors import NotUndoneError, TestbedError
from netbench.hosts.base import Host
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.hosts.local import LocalHost
from netbench.linux.changes import AddRunDirectory
from netbench.linux.locks import STATE_DIRECTORY, MeasurementLock
from netbench.linux.machine import Machine
from netbench.linux.netlink import Netlink
from netbench.linux.recovery_journal import Journal, clean, undo_run
from netbench.model.paths import Nic, StreamPath
from netbench.model.stream_paths import stream_paths
from netbench.model.topology import Topology
from netbench.signals import shielded
from netbench.testbed.bring_up import base_changes, cable_ends, flow_changes, source_changes
from netbench.testbed.cpus import usable_cpus
from netbench.testbed.doctor.ssh_checks import needed_in_run
from netbench.testbed.emulated_ssh_hosts import server_changes
from netbench.testbed.preconditions import machine_held, port_warnings, refuse_unsafe_ports
from netbench.testbed.resolved import Resolved
from netbench.testbed.rings import Rings, wanted_rings
from netbench.testbed.ssh_hosts import connected_hosts
from netbench.testbed.testbed import Testbed
from netbench.testbed.virtual_machines import running_vms
from netbench.vmm.base import guest_directory


@contextmanager
def open_testbed(resolved: Resolved, held: MeasurementLock | None = None) -> Iterator[Testbed]:
    """Bring a topology up for its UUTs and take it down when the block is left, also after errors.

    `held` is the result of `machine_held` for a campaign with several testbeds. Without it, the machine is locked for
    this testbed, with the errors of `machine_held`. UsageError when a port must not be used, TestbedError when bringing
    it up or down fails. The leftovers of a killed run are undone first.
    """
    topology, in_use = resolved.topology, [path.name for path in resolved.in_use]
    with ExitStack() as stack, shielded() as shield:
        presence = held or stack.enter_context(machine_held(resolved))
        clean()
        refuse_unsafe_ports(topology)
        warnings = port_warnings(topology)
        journal = Journal.create(topology.name)
        local = LocalHost("local", journal.run_id, _scratch(journal.run_id))
        here = Machine(None, local, record=journal, netlink=stack.enter_context(Netlink()), cpus=usable_cpus())
        testbed: Testbed | None = None
        try:
            with ExitStack() as others, shield.lifted():
                machines: dict[str | None, Machine] = {None: here}
                here.make([AddRunDirectory(local.scratch)])
                here.make([*server_changes(topology), *base_changes(topology, with_offloads=resolved.ends_of_flows)])
                directories = {name: guest_directory(journal.run_id, name) for name in topology.vms}
                here.make(AddRunDirectory(str(directory)) for directory in directories.values())
                cables = cable_ends(topology, directories)
                machines.update(others.enter_context(running_vms(topology, local, directories, cables)))
                if topology.ssh_hosts:
                    needs = {name: needed_in_run(resolved, name) for name in topology.ssh_hosts}
                    machines.update(others.enter_context(connected_hosts(topology, here, journal.run_id, needs)))
                hosts = {name: _host(topology, name, machines, journal.run_id) for name in topology.hosts}
                for name in (*topology.vms, *topology.ssh_hosts):
                    machines[name].make(base_changes(topology, name, with_offloads=resolved.ends_of_flows))
                wanted = wanted_rings(topology, resolved.in_use, lambda name: machines[name].cpus, resolved.competition)
                policies = {uut.name: uut.napi_policy for uut in topology.uuts if uut.napi_policy != "other"}
                rings = Rings(wanted, machines, resolved.cpus_of_streams, policies)
                rings.switch_on()
                paths = tuple(rings.received(path) for path in _known_paths(topology, machines))
                used = [path for path in paths if path.name in in_use]
                for on, machine in machines.items():
                    machine.make(source_changes(resolved.profile, used, on))
                    clients = [path for path in used if path.name in resolved.streams_of_flows]
                    machine.make(flow_changes(clients, resolved.streams_through, on))
                known = topology, journal.run_id, machines, hosts, paths, resolved.profile, used
                testbed = Testbed(
                    *known,
                    others=presence.overlapping,
                    rings=rings,
                    scratch=local.scratch,
                    port_warnings=warnings,
                    without_frames=resolved.streams_of_flows - resolved.streams_of_frames,
                    flow_needs=resolved.flow_needs,
                    competition=resolved.competition,
                )
                try:
                    testbed.open_endpoints()
                    yield testbed
                finally:
                    with shielded():
                        testbed.close_endpoints()
        finally:
            with shielded():
                _take_down(journal, here)


def _take_down(journal: Journal, machine: Machine) -> None:
    _, failures = undo_run(journal, machine)
    if failures:
        raise NotUndoneError("not everything could be undone; `netbench clean` tries again: " + "; ".join(failures))


def _scratch(run_id: str) -> str:
    """Return a directory of this machine for files that do not outlive the run."""
    return str(STATE_DIRECTORY / "scratch" / run_id[-12:])


def _host(topology: Topology, name: str, machines: Mapping[str | None, Machine], run_id: str) -> Host:
    machine, netns = topology.machine(name), topology.netns(name)
    if machine is not None:
        return machines[machine].host(netns, name)
    here = LocalHost(name, run_id, _scratch(run_id))
    return NamespaceHost(here, netns) if netns else here


def _known_paths(topology: Topology, machines: Mapping[str | None, Machine]) -> tuple[StreamPath, ...]:
    """Return the paths, with the MAC addresses of ports filled in from their machines."""

    def known(nic: Nic | None) -> Nic | None:
        if nic is None or nic.mac:
            return nic
        found = machines[nic.machine].read_nics([nic.place]).get(nic.place)
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

"""Checks on this machine before a testbed is brought up: root, tools, usable ports, no other netbench."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace

from netbench.errors import MissingError
from netbench.hosts.local import LocalHost
from netbench.linux.changes import KeepPort, MachineState
from netbench.linux.locks import MeasurementLock, OtherMeasurement, lock_testbed, measuring, when_alone
from netbench.linux.proc import lacking_capabilities
from netbench.linux.safety.foreign_hooks import unbound_packet_sockets
from netbench.linux.safety.ports import refuse_unsafe_port
from netbench.model.frame_size import USUAL_MTU
from netbench.model.topology import Topology
from netbench.testbed.bring_up import base_changes
from netbench.testbed.requirements import require
from netbench.testbed.resolved import Resolved


def with_what_lacks(resolved: Resolved) -> Resolved:
    """Return the same, with the missing requirements of UUTs on VMs, such as the image of a VM.

    MissingError if it lacks something for a UUT that is on no VM, or something for every UUT.
    """
    require_root()
    lacking: dict[str, str] = {}
    for uut in resolved.guests:
        try:
            require(resolved.needs_for([uut]))
        except MissingError as error:
            if resolved.topology.uut(uut).on is None or len(lacking) == len(resolved.guests) - 1:
                raise
            lacking[uut] = str(error)
    return replace(resolved, lacking=lacking)


@contextmanager
def machine_held(
    resolved: Resolved, waits_for: Callable[[OtherMeasurement], object] | None = None
) -> Iterator[MeasurementLock]:
    """Lock the resources of all testbeds of a campaign on this machine for the block, visible to other netbenches.

    MissingError when this host lacks something or something is in use. With `waits_for`, the block is entered once the
    other netbenches that measure on this machine have ended; it is called for each of them.
    """
    require_root()
    require(resolved.needs)
    with ExitStack() as stack:
        with when_alone(waits_for) if waits_for else nullcontext():
            lock_testbed(stack, resolved.resources)
            presence = stack.enter_context(measuring(resolved.topology.name))
        yield presence


def refuse_unsafe_ports(topology: Topology) -> None:
    """Return if this machine has all ports of the topology and they are free; UsageError otherwise."""
    for port in topology.ports():
        refuse_unsafe_port(port.nic, port.addresses, mtu=topology.port_mtus().get(port.nic, USUAL_MTU))


def refuse_unreturnable_ports(topology: Topology) -> None:
    """Return if all ports can be restored to their present state; UsageError otherwise. Without root: no check."""
    if os.geteuid() != 0:
        return
    state = MachineState(LocalHost("local", "dry-run"))
    for change in base_changes(topology):
        if isinstance(change, KeepPort):
            change.with_former_state(state)


def port_warnings(topology: Topology) -> list[str]:
    """Return the warnings about the ports that stay in this machine's own network namespace."""
    here = [
        port.nic
        for name, host in topology.hosts.items()
        if topology.machine(name) is None and topology.netns(name) is None
        for port in host.ports.values()
    ]
    programs = unbound_packet_sockets() if here else []
    if not programs:
        return []
    return [
        f"Every frame of {', '.join(here)} is also copied to packet sockets that are bound to no interface: of "
        f"{', '.join(programs)}. This costs rate. End these programs before the run, or use a host of kind netns."
    ]


def require_root() -> None:
    """MissingError unless this is root, with the capabilities of root that are needed."""
    if os.geteuid() != 0:
        raise MissingError("netbench makes network namespaces and sends raw frames: run it as root (sudo netbench …)")
    if lacking := lacking_capabilities():
        raise MissingError(
            f"this root lacks {', '.join(lacking)}, which netbench needs for network namespaces and raw frames: give "
            "it to the container (docker --cap-add, --privileged) or the service (CapabilityBoundingSet=)"
        )

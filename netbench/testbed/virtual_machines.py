"""VMs that netbench runs as hosts: ordinary guests that run while the testbed is up."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from netbench.config.plugins import VMMS, plugins
from netbench.errors import MachineGoneError, TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.clock import ClockComparison
from netbench.hosts.remote_code import with_netbench
from netbench.linux.changes.base import run_batch
from netbench.linux.counters.iproute_counters import read_nics
from netbench.linux.machine import Machine
from netbench.model.distributions import ClockDifference
from netbench.model.host_spec import VmSpec
from netbench.model.paths import PREFIX
from netbench.model.topology import Topology
from netbench.signals import shielded
from netbench.vmm.base import CableEnd, GuestSpec, RunningGuest, Vmm, guest_directory

_QUESTIONS = 3
# The fields of a VM that do not affect how it is started.
_OF_DEVICES = ("nics", "forward", "stp")


def vmm_of(spec: VmSpec) -> Vmm:
    """Return the VMM that runs a VM."""
    kind = next(kind for kind in plugins(VMMS).values() if kind.runs_hosts)
    options = {name: value for name, value in asdict(spec).items() if name not in _OF_DEVICES}
    vmm: Vmm = kind(kind.Options.model_validate({**options, "memory": f"{spec.memory}M"}))
    return vmm


class VmMachine(Machine):
    """A running VM that is a host.

    `set_link(NIC, up=…)` disconnects or reconnects one end of a cable. `death()` returns the cause of the VM's end, as
    reported by its VMM, not by the VM.
    """

    def __init__(self, name: str, spec: VmSpec, guest: RunningGuest) -> None:
        """`guest` must respond to commands."""
        host = with_netbench(guest.host(MachineGoneError), name)
        facts = {"vm": name, **guest.facts(), "guest_kernel": run_checked(host, ["uname", "-r"]).strip()}
        super().__init__(name, host, cpus=range(spec.cpus), facts=facts)
        self.set_link = guest.set_link
        self.death = guest.death
        self._clocks = guest.clocks

    @property
    def monotonic(self) -> ClockDifference:
        """Its CLOCK_MONOTONIC minus this machine's, read each time, as an emulated clock may drift; TestbedError."""
        return self._differences().monotonic

    @property
    def realtime(self) -> ClockDifference:
        """Its CLOCK_REALTIME minus this machine's, read anew each time; TestbedError."""
        return self._differences().realtime

    def _differences(self) -> ClockComparison:
        found = ClockComparison()
        for _ in range(_QUESTIONS):
            before = time.monotonic_ns(), time.time_ns()
            readings = self._clocks()
            found.add(before, readings, (time.monotonic_ns(), time.time_ns()))
        return found


def planned_vm(name: str, spec: VmSpec, cables: Sequence[CableEnd] = ()) -> list[str]:
    """Return the changes and the command that start a VM, for `--dry-run`."""
    vmm, guest = vmm_of(spec), GuestSpec(name, guest_directory("RUN", name), cables=tuple(cables))
    return [*(change.command for change in vmm.changes(guest)), vmm.command(guest)]


@contextmanager
def running_vm(
    name: str, spec: VmSpec, here: Host, directory: Path, cables: Sequence[CableEnd] = ()
) -> Iterator[VmMachine]:
    """Start a VM, and end it when the block is left; its runtime files are in `directory`, which must exist.

    TestbedError when it does not boot in time, with the cause, or when its kernel has no driver for a NIC;
    MissingError when its image is missing.
    """
    with _started(name, spec, here, directory, cables) as guest:
        yield _answering(name, spec, guest)


@contextmanager
def running_vms(
    topology: Topology, here: Host, directories: Mapping[str, Path], cables: Mapping[str, Sequence[CableEnd]]
) -> Iterator[dict[str, VmMachine]]:
    """Start all VMs of a topology, which boot in parallel; otherwise as `running_vm`."""
    with ExitStack() as stack:
        guests = {
            name: stack.enter_context(_started(name, spec, here, directories[name], cables[name]))
            for name, spec in topology.vms.items()
        }
        yield {name: _answering(name, topology.vms[name], guest) for name, guest in guests.items()}


@contextmanager
def _started(
    name: str, spec: VmSpec, here: Host, directory: Path, cables: Sequence[CableEnd]
) -> Iterator[RunningGuest]:
    guest = vmm_of(spec).start(GuestSpec(name, directory, cables=tuple(cables)), here)
    try:
        yield guest
    finally:
        with shielded():
            guest.stop()


def _answering(name: str, spec: VmSpec, guest: RunningGuest) -> VmMachine:
    guest.await_answer(spec.boot_limit)
    if guest.spec.cables:
        _name_nics(guest)
    return VmMachine(name, spec, guest)


def _name_nics(guest: RunningGuest) -> None:
    """Rename a VM's cabled NICs to their names in the topology; they are identified by their MAC addresses."""
    host, cables = guest.host(), guest.spec.cables
    found = {nic.mac: name for name, nic in read_nics(host).items()}
    for end in cables:
        if end.mac not in found:
            raise TestbedError(
                f"{guest.spec.title} has no NIC {end.interface}: its kernel has no driver for {end.model}"
            )
    # In two steps: the new name of one NIC may be the first name of another.
    passing = [(f"{PREFIX}nic{number}", end) for number, end in enumerate(cables)]
    lines = [("link", "set", found[end.mac], "name", name) for name, end in passing]
    lines += [("link", "set", name, "name", end.interface) for name, end in passing]
    if failed := run_batch(host, ("ip",), lines):
        raise TestbedError(f"{guest.spec.title}: its NICs cannot be named: {'; '.join(map(str, failed.values()))}")

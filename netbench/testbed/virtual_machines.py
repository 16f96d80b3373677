"""A VM that netbench runs as a host: a guest like any other, started for as long as the testbed is up."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from netbench.config.plugins import VMMS, plugins
from netbench.errors import MachineGoneError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.composed import Named
from netbench.hosts.signals import shielded
from netbench.linux.machine import Machine
from netbench.model.host import VmSpec
from netbench.vmm.base import GuestSpec, Vmm, guest_directory


def vmm_of(spec: VmSpec) -> Vmm:
    """What runs a VM."""
    kind = next(kind for kind in plugins(VMMS).values() if kind.runs_hosts)
    vmm: Vmm = kind(kind.Options.model_validate({**asdict(spec), "memory": f"{spec.memory}M"}))
    return vmm


def planned_vm(name: str, spec: VmSpec) -> list[str]:
    """What starting a VM would do, for `--dry-run`."""
    vmm, guest = vmm_of(spec), GuestSpec(name, guest_directory("RUN", name))
    return [*(change.command for change in vmm.changes(guest)), vmm.command(guest)]


@contextmanager
def running_vm(name: str, spec: VmSpec, here: Host, directory: Path) -> Iterator[Machine]:
    """Start a VM, and end it when the block is left; what it keeps meanwhile is in `directory`, which is there.

    TestbedError when it does not boot in time, with what became of it; MissingError when its image is not there.
    """
    guest = vmm_of(spec).start(GuestSpec(name, directory), here)
    try:
        guest.await_answer(spec.boot_limit)
        host = guest.host(MachineGoneError)
        facts = {"vm": name, **guest.facts(), "guest_kernel": run_checked(host, ["uname", "-r"]).strip()}
        yield Machine(name, Named(host, name), cpus=range(spec.cpus), facts=facts)
    finally:
        with shielded():
            guest.stop()

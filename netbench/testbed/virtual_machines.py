"""A VM that netbench runs as a host: started from a guest image, reached through its agent, ended with the run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from netbench.errors import MachineGoneError
from netbench.hosts.agent.channel import AgentChannel
from netbench.hosts.agent.host import AgentHost
from netbench.hosts.base import Host, run_checked
from netbench.hosts.composed import Explained, Namespaced
from netbench.hosts.signals import shielded
from netbench.images.library import find_image
from netbench.linux.kernel_by_command import GuestKernel
from netbench.model.topology import VmSpec
from netbench.vmm.acceleration import choose
from netbench.vmm.describe import guest_facts, image_name
from netbench.vmm.qemu_command import KernelBoot, RunFiles, VirtualMachine, planned_boot
from netbench.vmm.qemu_process import Qemu


class RunningVm:
    """A VM that has booted: its hosts, its kernel, and what it is."""

    def __init__(self, name: str, qemu: Qemu, channel: AgentChannel, spec: VmSpec, facts: dict[str, str]) -> None:
        self._name = name
        self._qemu = qemu
        self._channel = channel
        self._spec = spec
        self.facts = facts
        self.kernel = GuestKernel(lambda netns: self.host(name, netns))

    @property
    def cpus(self) -> list[int]:
        """Its CPUs, as it numbers them."""
        return list(range(self._spec.cpus))

    def host(self, name: str, netns: str | None) -> Host:
        """A host of the topology that is this VM, or a namespace inside it."""
        host = _reached(name, self._qemu, self._channel)
        return Namespaced(host, netns) if netns else host


@contextmanager
def running_vm(name: str, spec: VmSpec, here: Host, directory: Path) -> Iterator[RunningVm]:
    """Start a VM, and end it when the block is left; its sockets are in `directory`.

    TestbedError when it does not boot in time, with what became of it; MissingError when its image is not there.
    """
    image = find_image(spec.image)
    acceleration = choose(spec.accelerator, here, directory, spec.image)
    boot = KernelBoot(image.kernel, image.initrd)
    machine = VirtualMachine(name, boot, acceleration.accelerator, spec.cpus, spec.memory)
    qemu = Qemu(machine, RunFiles(directory))
    channel: AgentChannel | None = None
    try:
        qemu.start(here)
        channel = AgentChannel(qemu.guest, qemu.connect())
        host = _reached(name, qemu, channel)
        host.await_answer(spec.boot_limit, qemu.hopeless)
        kernel = run_checked(host, ["uname", "-r"]).strip()
        facts = {"vm": name, **guest_facts(here, acceleration, image_name(spec.image), kernel)}
        facts |= {"cpus": str(spec.cpus), "memory": f"{spec.memory} MiB"}
        yield RunningVm(name, qemu, channel, spec, facts)
    finally:
        with shielded():
            if channel is not None:
                channel.close()
            qemu.stop()


def _reached(name: str, qemu: Qemu, channel: AgentChannel) -> Explained:
    return Explained(AgentHost(name, channel), qemu.death_just_now, MachineGoneError)


def planned_vm(name: str, spec: VmSpec) -> VirtualMachine:
    """What running_vm would start, for `--dry-run`: whether KVM works is not tried, nor whether its image is there."""
    return VirtualMachine(name, planned_boot(spec.image), spec.accelerator, spec.cpus, spec.memory)

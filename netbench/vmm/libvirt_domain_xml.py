"""A virtual machine as libvirt's XML (https://libvirt.org/formatdomain.html)."""

import platform
import shutil
from xml.etree.ElementTree import Element, SubElement

from netbench.hosts.trusted_code import search_path
from netbench.vmm.libvirt_changes import own_uuid
from netbench.vmm.libvirt_xml import add, add_console, add_nic, add_pinning, as_text, end_at_every_event, mark
from netbench.vmm.qemu_command import (
    AGENT_PORT,
    KernelBoot,
    RunFiles,
    VirtualMachine,
    board,
    kernel_words,
    qemu_program,
)
from netbench.vmm.qemu_options import Pinning

_CPU_MODES = {"kvm": "host-passthrough", "tcg": "maximum"}


def domain_xml(
    name: str, machine: VirtualMachine, files: RunFiles, pin: Pinning, run_id: str, emulator: str = ""
) -> str:
    """Return the XML of the transient domain `name` for this machine; its QEMU is marked as a process of the run.

    Threads that `pin` does not name run on the machine's host_cpus. `emulator` is the path of QEMU; empty: the path on
    this machine.
    """
    domain = Element("domain", type="kvm" if machine.accelerator == "kvm" else "qemu")
    add(domain, "name", text=name)
    add(domain, "uuid", text=own_uuid(name))
    add(domain, "memory", text=str(machine.memory_mib), unit="MiB")
    add(domain, "vcpu", text=str(machine.cpus))
    add_pinning(add(domain, "cputune"), machine.cpus, machine.host_cpus, pin)
    boot = machine.boot
    assert isinstance(boot, KernelBoot), "its options refuse disks"
    system = SubElement(domain, "os")
    add(system, "type", text="hvm", arch=platform.machine(), machine=board())
    for tag, text in (("kernel", str(boot.kernel)), ("initrd", str(boot.initrd)), ("cmdline", kernel_words())):
        add(system, tag, text=text)
    if platform.machine() == "x86_64":  # elsewhere ACPI in libvirt requires UEFI
        add(SubElement(domain, "features"), "acpi")
    add(domain, "cpu", mode=_CPU_MODES.get(machine.accelerator, "CPU"))
    end_at_every_event(domain)
    _devices(domain, machine, files, emulator or shutil.which(qemu_program(), path=search_path()) or qemu_program())
    mark(domain, run_id)
    return as_text(domain)


def _devices(domain: Element, machine: VirtualMachine, files: RunFiles, emulator: str) -> None:
    devices = SubElement(domain, "devices")
    add(devices, "emulator", text=emulator)
    for nic in machine.nics:
        add_nic(devices, nic)
    add_console(devices, files)
    channel = add(devices, "channel", type="unix")
    add(channel, "source", mode="bind", path=str(files.channel))
    add(channel, "target", type="virtio", name=AGENT_PORT)
    add(devices, "controller", type="usb", model="none")
    add(devices, "memballoon", model="none")

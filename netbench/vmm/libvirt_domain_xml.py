"""A virtual machine as libvirt's XML (https://libvirt.org/formatdomain.html)."""

import platform
import shutil
from collections.abc import Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from netbench.hosts.local import MARK, search_path
from netbench.vmm.qemu_command import (
    AGENT_PORT,
    KernelBoot,
    RunFiles,
    VirtualMachine,
    VirtualNic,
    board,
    kernel_words,
    qemu_program,
)
from netbench.vmm.qemu_options import Pinning

_QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
_CPU_MODES = {"kvm": "host-passthrough", "tcg": "maximum"}
_MODELS = {"virtio-net-pci": "virtio"}  # the others are called alike


def domain_xml(name: str, machine: VirtualMachine, files: RunFiles, pin: Pinning, run_id: str) -> str:
    """The transient domain `name` that is this machine, its QEMU marked as a process of the run.

    Where `pin` says nothing, its threads run on the machine's host_cpus.
    """
    ElementTree.register_namespace("qemu", _QEMU)
    domain = Element("domain", type="kvm" if machine.accelerator == "kvm" else "qemu")
    _add(domain, "name", text=name)
    _add(domain, "memory", text=str(machine.memory_mib), unit="MiB")
    _add(domain, "vcpu", text=str(machine.cpus))
    _pin(domain, machine, pin)
    boot = machine.boot
    assert isinstance(boot, KernelBoot), "its options refuse disks"
    system = SubElement(domain, "os")
    _add(system, "type", text="hvm", arch=platform.machine(), machine=board())
    for tag, text in (("kernel", str(boot.kernel)), ("initrd", str(boot.initrd)), ("cmdline", kernel_words())):
        _add(system, tag, text=text)
    if platform.machine() == "x86_64":  # elsewhere libvirt wants UEFI with it
        _add(SubElement(domain, "features"), "acpi")
    _add(domain, "cpu", mode=_CPU_MODES.get(machine.accelerator, "CPU"))
    for event in ("on_poweroff", "on_reboot", "on_crash"):
        _add(domain, event, text="destroy")
    _devices(domain, machine, files)
    marked = SubElement(domain, f"{{{_QEMU}}}commandline")
    _add(marked, f"{{{_QEMU}}}env", name=MARK, value=run_id)
    ElementTree.indent(domain)
    return ElementTree.tostring(domain, encoding="unicode")


def _pin(domain: Element, machine: VirtualMachine, pin: Pinning) -> None:
    tuning = SubElement(domain, "cputune")
    vcpus = [*pin.vcpus, *[machine.host_cpus] * (machine.cpus - len(pin.vcpus))]
    for number, cpus in enumerate(vcpus):
        if where := cpus or machine.host_cpus:
            _add(tuning, "vcpupin", vcpu=str(number), cpuset=_cpuset(where))
    if others := pin.io or machine.host_cpus:
        _add(tuning, "emulatorpin", cpuset=_cpuset(others))


def _devices(domain: Element, machine: VirtualMachine, files: RunFiles) -> None:
    devices = SubElement(domain, "devices")
    _add(devices, "emulator", text=shutil.which(qemu_program(), path=search_path()) or qemu_program())
    for nic in machine.nics:
        _nic(devices, nic)
    for tag, path, target in (
        ("serial", files.console, {"port": "0"}),
        ("channel", files.channel, {"type": "virtio", "name": AGENT_PORT}),
    ):
        port = SubElement(devices, tag, type="unix")
        _add(port, "source", mode="bind", path=str(path))
        _add(port, "target", **target)
    _add(devices, "controller", type="usb", model="none")
    _add(devices, "memballoon", model="none")


def _nic(devices: Element, nic: VirtualNic) -> None:
    """Over the tap that is there: libvirt neither makes nor removes it."""
    interface = SubElement(devices, "interface", type="ethernet")
    _add(interface, "mac", address=nic.mac)
    _add(interface, "target", dev=nic.tap, managed="no")
    _add(interface, "model", type=_MODELS.get(nic.model, nic.model))
    if nic.model == "virtio-net-pci":
        queues = {"queues": str(nic.queues)} if nic.queues > 1 else {}
        _add(interface, "driver", name="vhost" if nic.vhost else "qemu", **queues)


def _cpuset(cpus: Sequence[int]) -> str:
    return ",".join(map(str, cpus))


def _add(parent: Element, tag: str, *, text: str = "", **attributes: str) -> None:
    SubElement(parent, tag, attributes).text = text or None

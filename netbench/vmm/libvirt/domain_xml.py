"""A virtual machine as libvirt's XML (https://libvirt.org/formatdomain.html)."""

import platform
import shutil
from collections.abc import Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from netbench.errors import TestbedError
from netbench.hosts.local import MARK
from netbench.hosts.search_path import search_path
from netbench.vmm.libvirt.api import own_uuid
from netbench.vmm.qemu.command import (
    AGENT_PORT,
    KernelBoot,
    RunFiles,
    VirtualMachine,
    VirtualNic,
    board,
    kernel_words,
    qemu_program,
)
from netbench.vmm.qemu.options import Pinning

QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"
_MODELS = {"virtio-net-pci": "virtio"}  # other models have the same name in libvirt
_EVENTS = ("on_poweroff", "on_reboot", "on_crash")
# Names and descriptions of a domain. libvirt makes new security labels.
_ITS_OWN = ("name", "uuid", "title", "description", "metadata", *_EVENTS)
_UNITS = {"b": 1, "bytes": 1, "KB": 1000, "k": 1024, "KiB": 1024, "MB": 10**6, "M": 2**20, "MiB": 2**20}
_UNITS |= {"GB": 10**9, "G": 2**30, "GiB": 2**30, "TB": 10**12, "T": 2**40, "TiB": 2**40}


def add(parent: Element, tag: str, *, text: str = "", **attributes: str) -> Element:
    """Add an element to `parent` and return it."""
    element = SubElement(parent, tag, attributes)
    element.text = text or None
    return element


def parsed(defined: str) -> Element:
    """Return a domain from libvirt's XML; TestbedError, as a phrase, if it is not a domain."""
    try:
        domain = ElementTree.fromstring(defined)
    except ElementTree.ParseError as error:
        raise TestbedError(f"its XML cannot be read: {error}") from error
    if domain.tag != "domain":
        raise TestbedError(f"its XML is of a <{domain.tag}>, not of a <domain>")
    return domain


def become(domain: Element, name: str) -> None:
    """Give a copy its own name and UUID and remove descriptions; it ends where the original would restart."""
    for child in [child for child in domain if child.tag in _ITS_OWN or _made_by_libvirt(child)]:
        domain.remove(child)
    for place, (tag, text) in enumerate((("name", name), ("uuid", own_uuid(name)))):
        element = Element(tag)
        element.text = text
        domain.insert(place, element)
    end_at_every_event(domain)


def end_at_every_event(domain: Element) -> None:
    """Make it end at every event, rather than restart or stay."""
    for event in _EVENTS:
        add(domain, event, text="destroy")


def devices_of(domain: Element) -> Element:
    """Return the element with its devices."""
    devices = domain.find("devices")
    return add(domain, "devices") if devices is None else devices


def memory_mib(domain: Element) -> int:
    """Return its memory in MiB."""
    memory = domain.find("memory")
    if memory is None:
        return 0
    return int(memory.text or 0) * _UNITS.get(memory.get("unit", "KiB"), 1024) // 2**20


def add_nic(devices: Element, nic: VirtualNic) -> Element:
    """Add a NIC on an existing tap, which libvirt neither makes nor removes; return the element."""
    interface = add(devices, "interface", type="ethernet")
    add(interface, "mac", address=nic.mac)
    add(interface, "target", dev=nic.tap, managed="no")
    add(interface, "model", type=_MODELS.get(nic.model, nic.model))
    if nic.model == "virtio-net-pci":
        queues = {"queues": str(nic.queues)} if nic.queues > 1 else {}
        add(interface, "driver", name="vhost" if nic.vhost else "qemu", **queues)
    return interface


def add_console(devices: Element, files: RunFiles) -> None:
    """Add the first serial port, connected to a socket of netbench."""
    port = add(devices, "serial", type="unix")
    add(port, "source", mode="bind", path=str(files.console))
    add(port, "target", port="0")


def mark(domain: Element, run_id: str) -> None:
    """Mark its QEMU as a process of the run."""
    commandline = domain.find(f"{QEMU}commandline")
    if commandline is None:
        commandline = add(domain, f"{QEMU}commandline")
    add(commandline, f"{QEMU}env", name=MARK, value=run_id)


def add_pinning(tuning: Element, vcpus: int, host_cpus: Sequence[int], pin: Pinning) -> None:
    """Pin vCPUs and QEMU's other threads; those that `pin` does not name, to `host_cpus` (empty: any)."""
    for number in range(vcpus):
        if where := (pin.vcpus[number] if number < len(pin.vcpus) else ()) or host_cpus:
            add(tuning, "vcpupin", vcpu=str(number), cpuset=cpuset(where))
    if others := pin.io or host_cpus:
        add(tuning, "emulatorpin", cpuset=cpuset(others))


def cpuset(cpus: Sequence[int]) -> str:
    """Return CPUs in libvirt's notation."""
    return ",".join(map(str, cpus))


def as_text(domain: Element) -> str:
    """Return a domain as XML text for libvirt."""
    ElementTree.register_namespace("qemu", QEMU.strip("{}"))
    ElementTree.indent(domain)
    return ElementTree.tostring(domain, encoding="unicode")


def _made_by_libvirt(child: Element) -> bool:
    return child.tag == "seclabel" and child.get("type", "dynamic") == "dynamic"


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

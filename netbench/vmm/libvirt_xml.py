"""Parts of libvirt's XML that every domain of netbench's has (https://libvirt.org/formatdomain.html)."""

from collections.abc import Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from netbench.hosts.local import MARK
from netbench.vmm.qemu_command import RunFiles, VirtualNic
from netbench.vmm.qemu_options import Pinning

QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"
_MODELS = {"virtio-net-pci": "virtio"}  # the others are called alike


def add(parent: Element, tag: str, *, text: str = "", **attributes: str) -> Element:
    """A new element in `parent`."""
    element = SubElement(parent, tag, attributes)
    element.text = text or None
    return element


def add_nic(devices: Element, nic: VirtualNic) -> Element:
    """Over the tap that is there: libvirt neither makes nor removes it."""
    interface = add(devices, "interface", type="ethernet")
    add(interface, "mac", address=nic.mac)
    add(interface, "target", dev=nic.tap, managed="no")
    add(interface, "model", type=_MODELS.get(nic.model, nic.model))
    if nic.model == "virtio-net-pci":
        queues = {"queues": str(nic.queues)} if nic.queues > 1 else {}
        add(interface, "driver", name="vhost" if nic.vhost else "qemu", **queues)
    return interface


def add_console(devices: Element, files: RunFiles) -> None:
    """The first serial port, behind a socket of netbench's."""
    port = add(devices, "serial", type="unix")
    add(port, "source", mode="bind", path=str(files.console))
    add(port, "target", port="0")


def mark(domain: Element, run_id: str) -> None:
    """Its QEMU is to be known as a process of the run."""
    commandline = domain.find(f"{QEMU}commandline")
    if commandline is None:
        commandline = add(domain, f"{QEMU}commandline")
    add(commandline, f"{QEMU}env", name=MARK, value=run_id)


def add_pinning(tuning: Element, vcpus: int, host_cpus: Sequence[int], pin: Pinning) -> None:
    """Where vCPUs and QEMU's other threads run; where `pin` says nothing, on `host_cpus` (empty: anywhere)."""
    for number in range(vcpus):
        if where := (pin.vcpus[number] if number < len(pin.vcpus) else ()) or host_cpus:
            add(tuning, "vcpupin", vcpu=str(number), cpuset=cpuset(where))
    if others := pin.io or host_cpus:
        add(tuning, "emulatorpin", cpuset=cpuset(others))


def cpuset(cpus: Sequence[int]) -> str:
    """CPUs as libvirt lists them."""
    return ",".join(map(str, cpus))


def as_text(domain: Element) -> str:
    """A domain as libvirt takes it."""
    ElementTree.register_namespace("qemu", QEMU.strip("{}"))
    ElementTree.indent(domain)
    return ElementTree.tostring(domain, encoding="unicode")

"""The copy of a user-defined domain: the same machine with other connections, which writes nothing permanently.

Each start must begin in the same state. Devices that the domain would write to, or would take from its machine, are
left out, redirected elsewhere, or make the copy fail. The domain itself stays unchanged, and shut off.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from netbench.errors import TestbedError
from netbench.hosts.base import Host, exists, run_checked
from netbench.hosts.host_wrappers import outside
from netbench.vmm.libvirt.api import LibvirtConnection, own_uuid
from netbench.vmm.libvirt.domain import LibvirtGuest, domain_xml
from netbench.vmm.qemu.command import GUEST_AGENT_PORT, KernelBoot, RunFiles, VirtualMachine, VirtualNic
from netbench.vmm.qemu.options import Pinning

_QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"
_ACCELERATORS = {"kvm": "kvm", "qemu": "tcg"}
_EVENTS = ("on_poweroff", "on_reboot", "on_crash")
_IDENTITY = ("name", "uuid", "title", "description", "metadata", *_EVENTS)
_UNITS = {"b": 1, "bytes": 1, "KB": 1000, "k": 1024, "KiB": 1024, "MB": 10**6, "M": 2**20, "MiB": 2**20}
_UNITS |= {"GB": 10**9, "G": 2**30, "GiB": 2**30, "TB": 10**12, "T": 2**40, "TiB": 2**40}
# External devices, removed from the copy. netbench adds its own NICs, serial ports and agent channel instead.
_CONNECTIONS = ("interface", "serial", "console", "parallel", "channel", "graphics", "audio", "sound", "redirdev")
_EXTERNAL_STORAGE = ("redirfilter", "smartcard", "hub", "lease", "shmem", "tpm", "vsock")
_REFUSED = {
    "hostdev": "it takes a device of this host",
    "filesystem": "its guest could write to the host's directory",
}
# Buses with hot-plug. Here libvirt opens the user's disk read-only for QEMU. On other buses QEMU first opens it for
# writing, and may then change the metadata of an image that is not raw (bitmaps, flags).
_HOT_PLUG = ("virtio", "scsi", "usb")


def add(parent: Element, tag: str, *, text: str = "", **attributes: str) -> Element:
    """Add an element to `parent` and return it."""
    element = SubElement(parent, tag, attributes)
    element.text = text or None
    return element


def child_of(parent: Element, tag: str) -> Element:
    """Return the child of this tag, which is added if it is missing."""
    child = parent.find(tag)
    return SubElement(parent, tag) if child is None else child


def remove(parent: Element, *kinds: str) -> None:
    """Remove all children of these kinds: tags, also with a condition (`boot[@dev='network']`)."""
    for kind in kinds:
        for child in parent.findall(kind):
            parent.remove(child)


def attributes(parent: Element, tag: str) -> dict[str, str]:
    """Return the attributes of the child of this tag; none without that child."""
    child = parent.find(tag)
    return {} if child is None else child.attrib


def parse_domain(defined: str) -> Element:
    """Return a domain from libvirt's XML; TestbedError, as a phrase, if it is not a domain."""
    try:
        domain = ElementTree.fromstring(defined)
    except ElementTree.ParseError as error:
        raise TestbedError(f"its XML cannot be read: {error}") from error
    if domain.tag != "domain":
        raise TestbedError(f"its XML is a <{domain.tag}>, not a <domain>")
    return domain


def rename_copy(domain: Element, name: str) -> None:
    """Give a copy its own name and UUID and remove descriptions; power-off, reboot and crash all destroy the copy.

    libvirt makes new security labels.
    """
    remove(domain, *_IDENTITY, "seclabel[@type='dynamic']")
    for label in domain.findall("seclabel"):
        if "type" not in label.attrib:  # dynamic by default
            domain.remove(label)
    for position, (tag, text) in enumerate((("name", name), ("uuid", own_uuid(name)))):
        element = Element(tag)
        element.text = text
        domain.insert(position, element)
    for event in _EVENTS:
        add(domain, event, text="destroy")


def bind(vcpu: Element, cpus: Sequence[int]) -> None:
    """Set the CPUs in an element <vcpu>; empty: any."""
    for attribute in ("placement", "cpuset"):
        vcpu.attrib.pop(attribute, None)
    if cpus:
        vcpu.set("cpuset", ",".join(map(str, cpus)))


def memory_mib(domain: Element) -> int:
    """Return its memory in MiB."""
    memory = domain.find("memory")
    if memory is None:
        return 0
    return int(memory.text or 0) * _UNITS.get(memory.get("unit", "KiB"), 1024) // 2**20


def as_text(domain: Element) -> str:
    """Return a domain as XML text for libvirt."""
    ElementTree.register_namespace("qemu", _QEMU.strip("{}"))
    ElementTree.indent(domain)
    return ElementTree.tostring(domain, encoding="unicode")


@dataclass(frozen=True, slots=True)
class CopySettings:
    """netbench's settings of the copy: its name, its NICs, the paths of its sockets, and the CPUs it may run on."""

    name: str
    nics: tuple[VirtualNic, ...]
    files: RunFiles
    host_cpus: tuple[int, ...] = ()
    pin: Pinning = field(default_factory=Pinning)


@dataclass(frozen=True, slots=True)
class DomainCopy:
    """The transient domain that is the copy, with its properties.

    `accelerator` is `kvm` or `tcg`. `nvram` is the domain's file of UEFI variables, which must be copied to the files
    of this one; None if the domain has none yet.
    """

    xml: str
    accelerator: str
    cpus: int
    memory_mib: int
    emulator: str
    nvram: Path | None = None

    def facts(self) -> dict[str, str]:
        """Return the facts for RunningGuest.facts()."""
        facts = {"accelerator": self.accelerator, "cpus": str(self.cpus), "memory": f"{self.memory_mib} MiB"}
        return {**facts, "emulated": "the domain asks for emulation"} if self.accelerator == "tcg" else facts


def copy_of(defined: str, own: CopySettings, run_id: str) -> DomainCopy:
    """Return the copy of a domain whose inactive XML is `defined`; its QEMU is marked as a process of the run.

    TestbedError, as a phrase, when a copy is impossible.
    """
    domain = parse_domain(defined)
    kind = domain.get("type", "")
    if kind not in _ACCELERATORS:
        otherwise = ": for a container use kind: container, runtime: libvirt" if kind == "lxc" else ""
        raise TestbedError(f"it is of type {kind!r}, but only those of QEMU (`kvm`, `qemu`) can be copied{otherwise}")
    cpus = _vcpus(domain, own.pin)
    rename_copy(domain, own.name)
    for system in domain.findall("sysinfo/system"):
        remove(system, "entry[@name='uuid']")  # libvirt requires it to equal that of the domain
    machine = VirtualMachine(own.name, KernelBoot(Path(), Path()), "tcg", cpus, nics=own.nics, host_cpus=own.host_cpus)
    ours = ElementTree.fromstring(domain_xml(own.name, machine, own.files, own.pin, run_id))
    _pin(domain, ours, own)
    nvram = _boot(domain, own.files)
    _connect(domain, ours)
    _write_nothing(domain)
    if (argument := domain.find(f"{_QEMU}commandline/{_QEMU}arg")) is not None:
        raise TestbedError(
            f"its <qemu:commandline> has options ({argument.get('value')}) by which QEMU may write to unknown files: "
            "define it without them"
        )
    command = child_of(domain, f"{_QEMU}commandline")
    command.extend(ours.iterfind(f"{_QEMU}commandline/{_QEMU}env"))
    emulator = domain.findtext("devices/emulator", "")
    return DomainCopy(as_text(domain), _ACCELERATORS[kind], cpus, memory_mib(domain), emulator, nvram)


def _vcpus(domain: Element, pin: Pinning) -> int:
    vcpu = domain.find("vcpu")
    cpus = 1 if vcpu is None else int(vcpu.get("current") or vcpu.text or 1)
    if len(pin.vcpus) > cpus:
        raise TestbedError(f"pin: vcpus names CPUs for {len(pin.vcpus)} vCPUs, and it has {cpus}")
    return cpus


def _pin(domain: Element, ours: Element, own: CopySettings) -> None:
    """Pin threads by netbench's options. Without any such option, keep the domain's own pinning."""
    if not (own.host_cpus or own.pin.cpus):
        return
    tuning = child_of(domain, "cputune")
    remove(tuning, "vcpupin", "emulatorpin", "iothreadpin")
    tuning.extend(ours.iterfind("cputune/*"))
    if (vcpu := domain.find("vcpu")) is not None:
        bind(vcpu, own.pin.io or own.host_cpus)  # CPUs of all threads that are not pinned individually: those of disks


def _boot(domain: Element, files: RunFiles) -> Path | None:
    """Boot from its disks, because a network boot would fail; with its own copy of the UEFI variables."""
    system = domain.find("os")
    if system is None:
        return None
    remove(system, "bootmenu", "boot[@dev='network']")
    nvram = system.find("nvram")
    if nvram is None:
        if _keeps_variables(system):
            add(system, "nvram", text=str(files.nvram))
        return None
    if nvram.get("type", "file") != "file":
        raise TestbedError(f"its <nvram> is of type {nvram.get('type')!r}, but only a file can be copied")
    system.remove(nvram)
    add(system, "nvram", text=str(files.nvram), **{name: text for name, text in nvram.attrib.items() if name != "type"})
    path = (nvram.text or "").strip() or attributes(nvram, "source").get("file", "")
    return Path(path) if path else None


def _keeps_variables(system: Element) -> bool:
    """Return whether it has UEFI that stores variables."""
    loader = attributes(system, "loader")
    return loader.get("stateless") != "yes" and (loader.get("type") == "pflash" or system.get("firmware") == "efi")


def _connect(domain: Element, ours: Element) -> None:
    devices = child_of(domain, "devices")
    remove(devices, *_CONNECTIONS, *_EXTERNAL_STORAGE)
    for model in devices.findall("video/model"):
        remove(model, "acceleration")  # requires a screen
    for nic in ours.findall("devices/interface"):
        add(nic, "rom", enabled="no")
        devices.append(nic)
    devices.extend(ours.iterfind("devices/serial"))
    # Without a path: libvirt creates the socket and is the one client of the agent.
    add(add(devices, "channel", type="unix"), "target", type="virtio", name=GUEST_AGENT_PORT)


def _write_nothing(domain: Element) -> None:
    devices = child_of(domain, "devices")
    for child in devices:
        if child.tag == "filesystem" and child.find("readonly") is not None:
            continue
        if child.tag in _REFUSED:
            raise TestbedError(f"it has a <{child.tag}>: {_REFUSED[child.tag]}; define it without that")
        if child.tag == "memory" and child.get("model") in ("nvdimm", "virtio-pmem") and child.find("readonly") is None:
            raise TestbedError("it has persistent memory that its guest could write to: define it without that")
    for disk in devices.findall("disk"):
        _keep(disk)


def _keep(disk: Element) -> None:
    """Redirect the guest's writes to this disk to a file that libvirt makes beside it, and removes at the end."""
    device = disk.get("device", "disk")
    if disk.find("readonly") is not None or device == "cdrom":
        return
    if device == "floppy":
        add(disk, "readonly")
        return
    target = attributes(disk, "target")
    name, bus = target.get("dev", "?"), target.get("bus", "")
    if disk.get("type") != "file" or device != "disk":
        kind = f"{disk.get('type')} {device}".removesuffix(" disk")
        raise TestbedError(
            f"its disk {name} is no file but {kind}, and libvirt redirects writes of files only: make it <readonly/>, "
            "or define a domain with a disk that is a file"
        )
    image = attributes(disk, "driver").get("type", "raw")
    if bus not in _HOT_PLUG and image != "raw":
        raise TestbedError(
            f"its disk {name} is a {image} image on bus {bus}, where QEMU would open it for writing: define a domain "
            f"with that disk on {_HOT_PLUG[0]}, {_HOT_PLUG[1]} or {_HOT_PLUG[2]}, or with a raw one"
        )
    remove(disk, "transient", "shareable")
    add(disk, "transient", **({"shareBacking": "yes"} if bus in _HOT_PLUG else {}))


class ExistingDomain:
    """The domain `name`, and its copy once that is defined, on a host; `host` is None in a plan."""

    def __init__(self, name: str, own: CopySettings, host: Host | None = None) -> None:
        self.name = name
        self._host = host
        self._own = own
        self._copy: DomainCopy | None = None

    @property
    def copy(self) -> DomainCopy:
        """The copy that define() made."""
        assert self._copy is not None, "define() comes first"
        return self._copy

    def define(self, libvirt: LibvirtConnection, run_id: str) -> str:
        """Return the XML of its copy; TestbedError if the domain is running, missing or not copyable."""
        defined = libvirt.defined(self.name)
        try:
            self._copy = copy_of(defined, self._own, run_id)
            self._make_ready(self._copy.nvram)
        except TestbedError as error:
            raise TestbedError(f"{libvirt.whose}: domain {self.name} cannot be copied: {error}") from error
        return self._copy.xml

    def planned(self, uri: str) -> str:
        """Return the commands for `--dry-run`; the domain itself is not queried."""
        virsh = ["virsh", "-c", uri]
        file = self._own.files.directory / "domain.xml"
        known = copy_of('<domain type="qemu"/>', self._own, "RUN").xml.replace('type="qemu"', 'type="AS DEFINED"', 1)
        return (
            f"{shlex.join([*virsh, 'dumpxml', '--inactive', self.name])} >{shlex.quote(str(file))}\n"
            f"# {self.name} must be shut off, and is not changed. Its copy has another uuid, its writable disks are\n"
            "# <transient/>, and its NICs, serial ports, channels and screens are replaced by these:\n"
            f"{shlex.join([*virsh, 'create', '/dev/stdin'])} <<'END'\n{known}\nEND"
        )

    def _make_ready(self, nvram: Path | None) -> None:
        """Copy its UEFI variables, which determine what it boots. Without them, libvirt copies those of a template."""
        assert self._host is not None, "it is no plan any more"
        files, machine = self._own.files, outside(self._host)
        run_checked(machine, ["chmod", "711", str(files.directory)])  # QEMU opens files in it as another user
        if nvram is not None and exists(machine, str(nvram)):
            run_checked(machine, ["cp", "--", str(nvram), str(files.nvram)])


class LibvirtAgent:
    """A connection to QEMU's guest agent in a domain through libvirt, which is the agent's only client."""

    def __init__(self, domain: LibvirtGuest) -> None:
        self._domain = domain

    def command(self, name: str, arguments: Mapping[str, object] = {}, timeout_s: float = 10.0) -> Any:  # noqa: ANN401 - each command has its own type
        """Return the result of a command, in QMP's types."""
        request = {"execute": name, **({"arguments": dict(arguments)} if arguments else {})}
        return json.loads(self._domain.query_agent(json.dumps(request), timeout_s))["return"]

    def close(self) -> None:
        """Do nothing: the connection belongs to libvirt."""

"""The copy of a user-defined domain: the same machine with other connections, which writes nothing permanently.

Each start must begin in the same state. Devices that the domain would write to, or would take from its machine, are
left out, redirected elsewhere, or make the copy fail.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from netbench.errors import TestbedError
from netbench.hosts.base import Host, exists, run_checked
from netbench.hosts.composed import outside
from netbench.vmm.libvirt.api import LibvirtConnection
from netbench.vmm.libvirt.domain import LibvirtDomain
from netbench.vmm.libvirt.domain_xml import (
    QEMU,
    add,
    add_console,
    add_nic,
    add_pinning,
    as_text,
    become,
    cpuset,
    devices_of,
    mark,
    memory_mib,
    parsed,
)
from netbench.vmm.qemu.command import GUEST_AGENT_PORT, RunFiles, VirtualNic
from netbench.vmm.qemu.options import Pinning

_ACCELERATORS = {"kvm": "kvm", "qemu": "tcg"}
# Connections to the outside, and storage for them: netbench's own replace the first group.
_CONNECTIONS = ("interface", "serial", "console", "parallel", "channel", "graphics", "audio", "sound", "redirdev")
_KEPT_ELSEWHERE = ("redirfilter", "smartcard", "hub", "lease", "shmem", "tpm", "vsock")
_MOUNTED = "its guest could write to the host's directory"
_REFUSED = {"hostdev": "it takes a device of this host", "filesystem": _MOUNTED}
# Buses with hot-plug. Here libvirt opens the user's disk read-only for QEMU. On other buses QEMU first opens it for
# writing, and may then change the metadata of an image that is not raw (bitmaps, flags).
_HOT = ("virtio", "scsi", "usb")


@dataclass(frozen=True, slots=True)
class Connected:
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


def copy_of(defined: str, own: Connected, run_id: str) -> DomainCopy:
    """Return the copy of a domain whose inactive XML is `defined`; its QEMU is marked as a process of the run.

    TestbedError, as a phrase, when a copy is impossible.
    """
    domain = parsed(defined)
    kind = domain.get("type", "")
    if kind not in _ACCELERATORS:
        otherwise = ": for a container say kind: container, runtime: libvirt" if kind == "lxc" else ""
        raise TestbedError(f"it is of type {kind!r}, and only those of QEMU, `kvm` and `qemu`, are started{otherwise}")
    cpus = _vcpus(domain, own.pin)
    become(domain, own.name)
    _forget_uuid(domain)
    _pin(domain, cpus, own)
    nvram = _boot(domain, own.files)
    _connect(domain, own)
    _write_nothing(domain)
    if (argument := domain.find(f"{QEMU}commandline/{QEMU}arg")) is not None:
        raise TestbedError(
            f"its <qemu:commandline> has options of its own ({argument.get('value')}), and netbench cannot tell what "
            "QEMU writes to by these: define it without them"
        )
    mark(domain, run_id)
    emulator = domain.findtext("devices/emulator", "")
    return DomainCopy(as_text(domain), _ACCELERATORS[kind], cpus, memory_mib(domain), emulator, nvram)


def _vcpus(domain: Element, pin: Pinning) -> int:
    vcpu = domain.find("vcpu")
    cpus = 1 if vcpu is None else int(vcpu.get("current") or vcpu.text or 1)
    if len(pin.vcpus) > cpus:
        raise TestbedError(f"pin: vcpus names CPUs for {len(pin.vcpus)} vCPUs, and it has {cpus}")
    return cpus


def _forget_uuid(domain: Element) -> None:
    """Remove the UUID from its BIOS: libvirt requires it to equal that of the domain."""
    for system in domain.findall("sysinfo/system"):
        for entry in [entry for entry in system.findall("entry") if entry.get("name") == "uuid"]:
            system.remove(entry)


def _pin(domain: Element, cpus: int, own: Connected) -> None:
    """Pin its threads as netbench's options require; without options for any thread, as the domain does."""
    if not (own.host_cpus or own.pin.cpus):
        return
    tuning = domain.find("cputune")
    if tuning is None:
        tuning = add(domain, "cputune")
    replaced = ("vcpupin", "emulatorpin", "iothreadpin")
    for child in [child for child in tuning if child.tag in replaced]:
        tuning.remove(child)
    add_pinning(tuning, cpus, own.host_cpus, own.pin)
    others = own.pin.io or own.host_cpus
    vcpu = domain.find("vcpu")
    if vcpu is not None:  # CPUs of all threads that are not pinned individually: those of disks
        for attribute in ("placement", "cpuset"):
            vcpu.attrib.pop(attribute, None)
        if others:
            vcpu.set("cpuset", cpuset(others))


def _boot(domain: Element, files: RunFiles) -> Path | None:
    """Boot from its disks, because a network boot would fail; with its own copy of the UEFI variables."""
    system = domain.find("os")
    if system is None:
        return None
    for child in [
        child for child in system if child.tag == "bootmenu" or (child.tag, child.get("dev")) == ("boot", "network")
    ]:
        system.remove(child)
    nvram = system.find("nvram")
    if nvram is None:
        if _keeps_variables(system):
            add(system, "nvram", text=str(files.nvram))
        return None
    if nvram.get("type", "file") != "file":
        raise TestbedError(f"its <nvram> is of type {nvram.get('type')!r}, and only a file is copied")
    system.remove(nvram)
    add(system, "nvram", text=str(files.nvram), **{name: text for name, text in nvram.attrib.items() if name != "type"})
    path = (nvram.text or "").strip() or _attributes(nvram, "source").get("file", "")
    return Path(path) if path else None


def _keeps_variables(system: Element) -> bool:
    """Return whether it has UEFI that stores variables."""
    loader = _attributes(system, "loader")
    return loader.get("stateless") != "yes" and (loader.get("type") == "pflash" or system.get("firmware") == "efi")


def _connect(domain: Element, own: Connected) -> None:
    devices = devices_of(domain)
    for child in [child for child in devices if child.tag in (*_CONNECTIONS, *_KEPT_ELSEWHERE)]:
        devices.remove(child)
    for model in devices.findall("video/model"):
        for child in model.findall("acceleration"):  # requires a screen
            model.remove(child)
    for nic in own.nics:
        # Without a boot ROM.
        add(add_nic(devices, nic), "rom", enabled="no")
    add_console(devices, own.files)
    # Without a path: libvirt creates the socket and is the one client of the agent.
    add(add(devices, "channel", type="unix"), "target", type="virtio", name=GUEST_AGENT_PORT)


def _write_nothing(domain: Element) -> None:
    devices = devices_of(domain)
    for child in devices:
        if child.tag == "filesystem" and child.find("readonly") is not None:
            continue
        if child.tag in _REFUSED:
            raise TestbedError(f"it has a <{child.tag}>, and {_REFUSED[child.tag]}: define it without that")
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
    at = _attributes(disk, "target")
    called, bus = at.get("dev", "?"), at.get("bus", "")
    if disk.get("type") != "file" or device != "disk":
        kind = f"{disk.get('type')} {device}".removesuffix(" disk")
        raise TestbedError(
            f"its disk {called} is no file but {kind}, and libvirt writes elsewhere in place of a file only: make it "
            "<readonly/>, or define a domain with a disk that is a file"
        )
    image = _attributes(disk, "driver").get("type", "raw")
    if bus not in _HOT and image != "raw":
        raise TestbedError(
            f"its disk {called} is a {image} image on bus {bus}, where QEMU would open it for writing: define a domain "
            f"with that disk on {_HOT[0]}, {_HOT[1]} or {_HOT[2]}, or with a raw one"
        )
    for child in [*disk.findall("transient"), *disk.findall("shareable")]:
        disk.remove(child)
    add(disk, "transient", **({"shareBacking": "yes"} if bus in _HOT else {}))


def _attributes(parent: Element, tag: str) -> dict[str, str]:
    child = parent.find(tag)
    return {} if child is None else child.attrib


def planned_copy(own: Connected) -> str:
    """Return the part of the copy's XML that is known without the domain, for `--dry-run`."""
    return copy_of('<domain type="qemu"/>', own, "RUN").xml.replace('type="qemu"', 'type="AS DEFINED"', 1)


_ANSWER_S = 10.0


class ExistingDomain:
    """The domain `name`, and its copy once that is defined, on a host; `host` is None in a plan."""

    def __init__(self, name: str, own: Connected, host: Host | None = None) -> None:
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
        return (
            f"{shlex.join([*virsh, 'dumpxml', '--inactive', self.name])} >{shlex.quote(str(file))}\n"
            f"# {self.name} must be shut off, and stays as it is. Its copy has another uuid, what it may write to is\n"
            "# <transient/>, and in place of its NICs, serial ports, channels and screens it has what follows.\n"
            f"{shlex.join([*virsh, 'create', '/dev/stdin'])} <<'END'\n{planned_copy(self._own)}\nEND"
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

    def __init__(self, domain: LibvirtDomain) -> None:
        self._domain = domain

    def command(self, name: str, arguments: Mapping[str, object] = {}, timeout_s: float = _ANSWER_S) -> Any:  # noqa: ANN401 - each command has its own type
        """Return the result of a command, in QMP's types."""
        request = {"execute": name, **({"arguments": dict(arguments)} if arguments else {})}
        return json.loads(self._domain.ask_agent(json.dumps(request), timeout_s))["return"]

    def close(self) -> None:
        """Do nothing: the connection belongs to libvirt."""

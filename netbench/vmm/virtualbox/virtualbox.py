"""VMM `virtualbox`: guests under VirtualBox."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from netbench.errors import MissingError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.host_wrappers import outside
from netbench.hosts.trusted_code import search_path
from netbench.images.library import DEFAULT_IMAGE, find_image
from netbench.images.on_host import require_in_vm
from netbench.linux.changes import AddNamespace, AddRunDirectory, AddVeth, Change, SetSysctl, SetUp
from netbench.linux.requirements import Facility, Tool
from netbench.model.fields import Memory, Vcpus
from netbench.model.virtualisation import DurationEstimate, NicKind, Virtualisation
from netbench.vmm.attachment import Attachment, host_mac
from netbench.vmm.base import GuestOptions, GuestSpec, RunningGuest, Vmm, is_own_vm
from netbench.vmm.boot_disc import LOADER, disc_of
from netbench.vmm.qemu.options import switch
from netbench.vmm.virtualbox.guest import (
    KERNEL_WORDS,
    BoxFiles,
    BridgedNic,
    VirtualBoxGuest,
    VirtualBoxStart,
    box_summary,
)

NIC_KINDS: Mapping[str, NicKind] = {"virtio": "paravirtual", "82540EM": "emulated"}


class VirtualBoxOptions(GuestOptions):
    """A guest that forwards between two virtual NICs per stream.

    `cpu_cap` is the part of a CPU that each vCPU may use, in percent. With `auto`, `nested_paging` is off and
    `paravirt_provider` is `none` if QEMU emulates the CPU of its machine, because a guest would hang otherwise.
    Elsewhere they are `on` and `default`, VirtualBox's own. `image` is the name of a guest image made by `netbench
    image build`. Memory is rounded to MiB.
    """

    nic: Literal["virtio", "82540EM"] = "virtio"
    cpus: Vcpus = 1
    memory: Memory = 256
    cpu_cap: Annotated[int, Field(strict=True, ge=1, le=100)] = 100
    nested_paging: Annotated[Literal["auto", "on", "off"], BeforeValidator(switch)] = "auto"
    paravirt_provider: Literal["auto", "none", "default", "legacy", "minimal", "hyperv", "kvm"] = "auto"
    image: Annotated[str, Field(pattern=r"^[^/]+$")] = DEFAULT_IMAGE


_PROGRAMS = ("VBoxManage", "VBoxHeadless")
_DEVICE = Path("/dev/vboxdrv")
_MODULES = ("vboxdrv", "vboxnetflt")
_LOADER_PACKAGES = ("isolinux", "syslinux-common")
_EMULATED_CPU = "QEMU TCG CPU"  # as /proc/cpuinfo calls the model `max`
_IN_A_VM = "or measure inside a VM: topology lab-virtualbox, `netbench image build --name virtualbox`"


def find_virtualbox(_: str) -> str:
    """Return the path of VBoxManage; MissingError without VirtualBox or without the device of its kernel module."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=search_path()) is None]
    if missing:
        raise MissingError(f"{missing[0]} is not on this host")
    if not _DEVICE.exists():
        raise MissingError(f"this host has no {_DEVICE}: the kernel module vboxdrv is not loaded")
    return str(shutil.which(_PROGRAMS[0], path=search_path()))


def find_loader(_: str) -> str:
    """Return the boot loader for a guest's CD; MissingError without it."""
    for path in LOADER:
        if not Path(path).exists():
            raise MissingError(f"this host has no {path}")
    return LOADER[0]


@dataclass(frozen=True, slots=True)
class BridgedVeth(Attachment):
    """A pair of virtual Ethernet interfaces; VirtualBox bridges the guest's NIC to the end in a separate namespace.

    That end has a MAC address of its own in addition to the guest's.
    """

    kind: ClassVar[str] = "veth"
    needs: ClassVar[frozenset[str]] = frozenset({"veth", "netns"})

    guest_netns: str

    def changes(self, netns: str | None, interface: str, mac: str, nic: str) -> Iterator[Change]:
        """Yield the changes that add the pair and set its far end up, which VirtualBox does not do."""
        beside = f"02:6e:69{mac[8:]}"
        yield AddVeth(netns, interface, host_mac(mac), self.guest_netns, interface, beside)
        yield SetUp(self.guest_netns, interface)


class VirtualBox(Vmm):
    """A guest under VirtualBox, booted from a CD: its virtual NICs are bridged by vboxnetflt.

    Its entitlement applies to all threads of VirtualBox; the option `cpu_cap` is VirtualBox's own limit.
    """

    Options: ClassVar[type[GuestOptions]] = VirtualBoxOptions
    kinds = (Virtualisation.HARDWARE,)
    nic_models = NIC_KINDS
    supports = replace(Vmm.supports, attachments=("veth",))
    may_need = (
        Facility(
            "virtualbox",
            "guests of VirtualBox",
            f"apt-get install virtualbox (in contrib of Debian unstable), {_IN_A_VM}",
            find_virtualbox,
            signs=(*_PROGRAMS, str(_DEVICE), *(f"/sys/module/{name}" for name in _MODULES)),
        ),
        Tool("unshare", "util-linux", "guests of VirtualBox", optional=True),
        Tool("xorriso", "xorriso", "the CDs that guests of VirtualBox boot from", optional=True),
        Facility(
            "isolinux",
            "the CDs that guests of VirtualBox boot from",
            f"apt-get install {' '.join(_LOADER_PACKAGES)}",
            find_loader,
            signs=LOADER,
            packages=_LOADER_PACKAGES,
        ),
    )
    # Assumes an emulated CPU, because it is not known yet.
    pace: ClassVar[DurationEstimate] = DurationEstimate(
        bring_up_s=150.0, trial_s=25.0, idle_s=2.0, load_s=10.0, worker_s=1.0
    )

    def __init__(self, options: VirtualBoxOptions) -> None:
        super().__init__(options)
        self._options = options

    def needs(self) -> frozenset[str]:
        return frozenset({"virtualbox", "unshare", "xorriso", "isolinux", f"image:{self._options.image}"})

    @property
    def nic_model(self) -> str:
        return self._options.nic

    def attachment(self, spec: GuestSpec) -> BridgedVeth:
        return BridgedVeth(spec.own_netns)

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        yield AddRunDirectory(str(spec.directory))
        yield AddNamespace(spec.own_netns)
        # Otherwise its end of each pair would send its own IPv6 frames.
        yield SetSysctl(spec.own_netns, "net.ipv6.conf.default.disable_ipv6", "1", optional=True)

    def command(self, spec: GuestSpec) -> str:
        return box_summary(self._box(spec, emulated=False), BoxFiles(spec.directory), f"{self._options.image}.iso")

    def start(self, spec: GuestSpec, host: Host) -> RunningGuest:
        if is_own_vm(host):
            _prepare(host)
        image = find_image(self._options.image)
        box = self._box(spec, emulated=_EMULATED_CPU in outside(host).read("/proc/cpuinfo"))
        disc = disc_of(image, KERNEL_WORDS, host, spec.directory)
        version = run_checked(host, ["VBoxManage", "--version"]).strip()
        facts = {
            "virtualbox": version,
            "image": f"{image.name} {image.digest[:12]}",
            **({"nic": box.nics[0].model} if box.nics else {}),
            "cpus": str(box.cpus),
            "memory": f"{box.memory_mib} MiB",
            "cpu_cap": f"{box.cpu_cap} %",
            "nested_paging": box.nested_paging,
            "paravirt_provider": box.paravirt_provider,
        }
        return VirtualBoxGuest(spec, host, box, disc, facts)

    def _box(self, spec: GuestSpec, *, emulated: bool) -> VirtualBoxStart:
        options = self._options
        paging, provider = ("off", "none") if emulated else ("on", "default")
        return VirtualBoxStart(
            spec.name,
            tuple(BridgedNic(nic.interface, nic.mac, options.nic) for nic in spec.nics),
            options.cpus,
            options.memory,
            options.cpu_cap,
            paging if options.nested_paging == "auto" else options.nested_paging,
            provider if options.paravirt_provider == "auto" else options.paravirt_provider,
            spec.host_cpus,
            spec.cgroup_procs,
        )


def _prepare(host: Host) -> None:
    """Prepare a VM that is a host for guests of VirtualBox; MissingError if its image does not support that."""
    require_in_vm(host, "virtualbox", *_PROGRAMS)
    for module in _MODULES:
        run_checked(outside(host), ["modprobe", module])

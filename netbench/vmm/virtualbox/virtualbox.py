"""VMM `virtualbox`: guests under VirtualBox."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from netbench.errors import MissingError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.host_wrappers import outside
from netbench.hosts.trusted_code import search_path
from netbench.images.library import find_image
from netbench.images.on_host import require_in_vm
from netbench.linux.changes import AddNamespace, AddRunDirectory, AddVeth, Change, SetSysctl, SetUp
from netbench.linux.requirements import Facility, Tool
from netbench.model.virtualisation import DurationEstimate, Virtualisation
from netbench.vmm.attachment import Attachment, host_mac
from netbench.vmm.base import GuestOptions, GuestSpec, RunningGuest, Vmm, is_own_vm
from netbench.vmm.boot_disc import LOADER, disc_of
from netbench.vmm.virtualbox.guest import KERNEL_WORDS, NIC_KINDS, VirtualBoxGuest, VirtualBoxOptions, box_summary

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


class VirtualBox(Vmm):
    """A guest under VirtualBox, booted from a CD: its virtual NICs are bridged by vboxnetflt.

    Its entitlement applies to all threads of VirtualBox; the option `cpu_cap` is VirtualBox's own limit.
    """

    options: VirtualBoxOptions
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

    def needs(self) -> frozenset[str]:
        return frozenset({"virtualbox", "unshare", "xorriso", "isolinux", f"image:{self.options.image}"})

    def attachment(self, spec: GuestSpec) -> Attachment:
        """Return a pair of virtual Ethernet interfaces: VirtualBox bridges the guest's NIC to the end in a namespace.

        That end has a MAC address in addition to the guest's, and VirtualBox does not set it up.
        """

        def changes(netns: str | None, interface: str, mac: str, nic: str) -> Iterator[Change]:
            far_mac = f"02:6e:69{mac[8:]}"
            yield AddVeth(netns, interface, host_mac(mac), spec.own_netns, interface, far_mac)
            yield SetUp(spec.own_netns, interface)

        return Attachment("veth", frozenset({"veth", "netns"}), changes)

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        yield AddRunDirectory(str(spec.directory))
        yield AddNamespace(spec.own_netns)
        # Otherwise its end of each pair would send its own IPv6 frames.
        yield SetSysctl(spec.own_netns, "net.ipv6.conf.default.disable_ipv6", "1", optional=True)

    def command(self, spec: GuestSpec) -> str:
        return box_summary(spec, self.options.resolved(emulated=False), f"{self.options.image}.iso")

    def start(self, spec: GuestSpec, host: Host) -> RunningGuest:
        machine = outside(host)
        if is_own_vm(host):
            require_in_vm(host, "virtualbox", *_PROGRAMS)
            for module in _MODULES:
                run_checked(machine, ["modprobe", module])
        image = find_image(self.options.image)
        options = self.options.resolved(emulated=_EMULATED_CPU in machine.read("/proc/cpuinfo"))
        facts = {
            "virtualbox": run_checked(host, ["VBoxManage", "--version"]).strip(),
            "image": image.fact,
            **({"nic": options.nic} if spec.nics else {}),
            "cpus": str(options.cpus),
            "memory": f"{options.memory} MiB",
            "cpu_cap": f"{options.cpu_cap} %",
            "nested_paging": options.nested_paging,
            "paravirt_provider": options.paravirt_provider,
        }
        disc = disc_of(image, KERNEL_WORDS, host, spec.directory)
        return VirtualBoxGuest(spec, host, options, disc, facts)

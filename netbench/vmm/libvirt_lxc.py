"""Containers as domains of libvirt's LXC driver."""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar
from xml.etree.ElementTree import Element, SubElement

from netbench.errors import MissingError
from netbench.hosts.base import Host
from netbench.hosts.composed import confined
from netbench.hosts.local import MARK
from netbench.hosts.search_path import search_path
from netbench.linux.changes import Change
from netbench.linux.proc import processes_of
from netbench.vmm.base import GuestSpec
from netbench.vmm.container_root import Root
from netbench.vmm.container_runtime import DIRECTORY, Runtime, host_name
from netbench.vmm.libvirt_lxc_groups import SWITCHED, AddGroups, cpu_door, hierarchies, in_groups
from netbench.vmm.libvirt_xml import add, as_text, cpuset, end_at_every_event

PACKAGES = ("libvirt-daemon", "libvirt-daemon-driver-lxc", "libvirt-clients")
_SCRIPT = Path(__file__).with_name("libvirt_lxc.sh")
_LIBRARIES = Path("/usr/lib")
_CONTROLLER = "libvirt_lxc"  # the process of libvirt's that has one container, whose parent it is
MACHINE = f"{DIRECTORY}/libvirt-own/machine"  # this machine's files, where those of libvirt's own hide some
RUN_ID = "@RUN@"  # stands for the run's mark, which libvirt_lxc.sh knows
# In a domain the settings of the kernel can only be read, but for whoever mounts them once more.
WRITABLE = 'for one in /proc/sys /sys; do mount -o remount,bind,rw "$one" || exit; done; exec "$@"'


def look_for_lxc_driver(_: str) -> str:
    """The daemon, with its driver of LXC and what asks it; MissingError when one is not there."""
    daemon, virsh = (shutil.which(name, path=search_path()) for name in ("libvirtd", "virsh"))
    driver = any(_LIBRARIES.glob("*/libvirt/connection-driver/libvirt_driver_lxc.so"))
    if daemon is None or virsh is None or not driver:
        raise MissingError("libvirtd, its driver for LXC, or virsh is not on this host")
    return daemon


class LibvirtLxc(Runtime):
    """A transient domain of a libvirtd of its own, which ends with it.

    The domain has no interfaces: it stays in the network namespace of its libvirtd, where its NICs are. libvirt
    insists on control groups: it has netbench's for the root of all, and makes its own below.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"libvirt-lxc"})
    version: ClassVar[tuple[str, ...]] = ("libvirtd", "--version")
    entitles: ClassVar[bool] = True

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        yield AddGroups(spec.own_netns, spec.weight, spec.limit)

    def door(self, spec: GuestSpec) -> str:
        return cpu_door(spec.own_netns) if spec.weight is not None or spec.limit is not None else ""

    def command(self, spec: GuestSpec, root: Root, init: Sequence[str], ways_in: Sequence[str]) -> list[str]:
        seen = [one.controllers or " ".join(f"+{name}" for name in SWITCHED) for one in hierarchies()]
        run = ["sh", str(_SCRIPT), host_name(spec), self._domain(spec, root, init), *seen]
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return confined(in_groups([*apart, *run], spec.own_netns), spec.host_cpus, "")

    def first_processes(self, machine: Host, directory: Path, runtime: int) -> list[int]:
        there = processes_of(machine)
        scripts = {one.pid for one in there if one.parent == runtime}
        controllers = {one.pid for one in there if one.parent in scripts and one.name == _CONTROLLER}
        return [one.pid for one in there if one.parent in controllers]

    def _domain(self, spec: GuestSpec, root: Root, init: Sequence[str]) -> str:
        return domain_xml(spec, root, init)


def domain_xml(spec: GuestSpec, root: Root, init: Sequence[str]) -> str:
    """A container (https://libvirt.org/drvlxc.html) whose first process is `init`; @RUN@ stands for the run's mark.

    It may take all memory of this machine, as other containers do. libvirt would have it run on all CPUs if nothing
    was said of them.
    """
    domain = Element("domain", type="lxc")
    add(domain, "name", text=host_name(spec))
    add(domain, "memory", text=str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")), unit="b")
    add(domain, "vcpu", text=str(os.cpu_count()), **({"cpuset": cpuset(spec.host_cpus)} if spec.host_cpus else {}))
    system = SubElement(domain, "os")
    add(system, "type", text="exe")
    first, *words = ["/bin/sh", "-c", WRITABLE, "sh", *init]
    add(system, "init", text=first)
    for word in words:
        add(system, "initarg", text=word)
    add(system, "initenv", text=RUN_ID, name=MARK)
    add(SubElement(domain, "features"), "capabilities", policy="allow")
    end_at_every_event(domain)
    devices = SubElement(domain, "devices")
    _add_directory(devices, f"{DIRECTORY}/root", "/")
    for name in root.shared:
        add(_add_directory(devices, f"{MACHINE}{root.source / name}", f"/{name}"), "readonly")
    add(devices, "console", type="pty")
    return as_text(domain)


def _add_directory(devices: Element, source: str, target: str) -> Element:
    mounted = add(devices, "filesystem", type="mount")
    add(mounted, "source", dir=source)
    add(mounted, "target", dir=target)
    return mounted

"""Containers as domains of libvirt's LXC driver."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar
from xml.etree.ElementTree import Element, SubElement

from netbench.errors import MissingError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.host_wrappers import confined
from netbench.hosts.local import MARK
from netbench.hosts.trusted_code import search_path
from netbench.linux.changes import Change
from netbench.linux.proc import processes_of
from netbench.vmm.base import GuestSpec
from netbench.vmm.container_root import Root
from netbench.vmm.container_runtime import DIRECTORY, Runtime, host_name
from netbench.vmm.libvirt_lxc_groups import SWITCHED, THIS_MACHINE, AddGroups, cpu_door, hierarchies, in_groups
from netbench.vmm.libvirt_xml import add, as_text, cpuset, end_at_every_event

PACKAGES = ("libvirt-daemon", "libvirt-daemon-driver-lxc", "libvirt-clients")
_SCRIPT, _PLACES = (Path(__file__).with_name(f"libvirt_{name}.sh") for name in ("lxc", "places"))
_LIBRARIES = Path("/usr/lib")
_CONTROLLER = "libvirt_lxc"  # libvirt's process for one container, the parent of its first process
MACHINE = f"{DIRECTORY}/libvirt-own/machine"  # files of this machine that libvirt's private ones may hide
# Page size in bytes, number of pages, number of CPUs (getconf(1)).
_SIZE = "getconf PAGE_SIZE && getconf _PHYS_PAGES && getconf _NPROCESSORS_ONLN"
RUN_ID = "@RUN@"  # placeholder of the run's mark, which libvirt_lxc.sh replaces
# In a domain the kernel's settings are read-only until they are mounted again.
WRITABLE = 'for one in /proc/sys /sys; do mount -o remount,bind,rw "$one" || exit; done; exec "$@"'


def look_for_lxc_driver(_: str) -> str:
    """Return the path of the daemon; MissingError when it, its driver for LXC, or virsh is missing."""
    daemon, virsh = (shutil.which(name, path=search_path()) for name in ("libvirtd", "virsh"))
    driver = any(_LIBRARIES.glob("*/libvirt/connection-driver/libvirt_driver_lxc.so"))
    if daemon is None or virsh is None or not driver:
        raise MissingError("libvirtd, its driver for LXC, or virsh is not on this host")
    return daemon


class LibvirtLxc(Runtime):
    """A transient domain of a private libvirtd, which ends with it.

    The domain has no interfaces: it shares the network namespace of its libvirtd, which contains its NICs. libvirt
    requires control groups. Its root groups are netbench's, and it makes its own below.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"libvirt-lxc"})
    version: ClassVar[tuple[str, ...]] = ("libvirtd", "--version")
    entitles: ClassVar[bool] = True

    def __init__(self) -> None:
        self._machine: Host = THIS_MACHINE  # until prepare()

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        yield AddGroups(spec.own_netns, spec.weight, spec.limit)

    def prepare(self, spec: GuestSpec, machine: Host, run_id: str) -> None:
        self._machine = machine
        if not machine.shares_files:
            for script in (_SCRIPT, _PLACES):
                machine.write(str(spec.directory / script.name), script.read_text())

    def door(self, spec: GuestSpec) -> str:
        if spec.weight is None and spec.limit is None:
            return ""
        return cpu_door(spec.own_netns, hierarchies(self._machine))

    def command(self, spec: GuestSpec, root: Root, init: Sequence[str], ways_in: Sequence[str]) -> list[str]:
        groups = hierarchies(self._machine)
        seen = [hierarchy.controllers or " ".join(f"+{name}" for name in SWITCHED) for hierarchy in groups]
        # Another machine has the script in the guest's directory.
        script = _SCRIPT if self._machine.shares_files else Path(DIRECTORY, _SCRIPT.name)
        run = ["sh", str(script), host_name(spec), self._domain(spec, root, init), *seen]
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return confined(in_groups([*apart, *run], spec.own_netns, groups), spec.host_cpus, "")

    def first_processes(self, machine: Host, directory: Path, runtime: int) -> list[int]:
        processes = processes_of(machine)
        scripts = {process.pid for process in processes if process.parent == runtime}
        controllers = {
            process.pid for process in processes if process.parent in scripts and process.name == _CONTROLLER
        }
        return [process.pid for process in processes if process.parent in controllers]

    def _domain(self, spec: GuestSpec, root: Root, init: Sequence[str]) -> str:
        return domain_xml(spec, root, init, self._machine)


def domain_xml(spec: GuestSpec, root: Root, init: Sequence[str], machine: Host) -> str:
    """Return the XML of a container with the first process `init` (https://libvirt.org/drvlxc.html).

    @RUN@ stands for the run's mark. The container may use all memory of its machine, as other containers may. Its CPUs
    are always listed: by default libvirt would use all of them.
    """
    domain = Element("domain", type="lxc")
    add(domain, "name", text=host_name(spec))
    page_bytes, pages, cpus = run_checked(machine, ["sh", "-c", _SIZE]).split()
    add(domain, "memory", text=str(int(page_bytes) * int(pages)), unit="b")
    add(domain, "vcpu", text=cpus, **({"cpuset": cpuset(spec.host_cpus)} if spec.host_cpus else {}))
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

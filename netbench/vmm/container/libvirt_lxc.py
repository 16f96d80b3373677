"""Containers as domains of libvirt's LXC driver."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar
from xml.etree.ElementTree import Element

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.host_wrappers import confined
from netbench.hosts.local import MARK
from netbench.linux.changes import Change
from netbench.linux.proc import processes_of
from netbench.vmm.base import ISOLATED, GuestSpec
from netbench.vmm.container.cgroups import SWITCHED, THIS_MACHINE, AddGroups, cpu_cgroup_procs, hierarchies, in_groups
from netbench.vmm.container.runtime import DIRECTORY, Root, Runtime, host_name
from netbench.vmm.libvirt.api import BINDINGS, LibvirtConnection
from netbench.vmm.libvirt.domain import DIRECTORIES_SCRIPT, find_libvirtd, render_xml
from netbench.vmm.libvirt.domain_copy import (
    add,
    as_text,
    attributes,
    bind,
    child_of,
    memory_mib,
    parse_domain,
    remove,
    rename_copy,
)

PACKAGES = ("libvirt-daemon", "libvirt-daemon-driver-lxc", "libvirt-clients")
_SCRIPT = DIRECTORIES_SCRIPT.with_name("lxc.sh")
_CONTROLLER = "libvirt_lxc"  # libvirt's process for one container, the parent of its first process
MACHINE = f"{DIRECTORY}/libvirt-own/machine"  # files of this machine that libvirt's private ones may hide
# Page size in bytes, number of pages, number of CPUs (getconf(1)).
_SIZE = "getconf PAGE_SIZE && getconf _PHYS_PAGES && getconf _NPROCESSORS_ONLN"
RUN_ID = "@RUN@"  # placeholder of the run's mark, which lxc.sh replaces
# In a domain the kernel's settings are read-only until they are mounted again.
WRITABLE = 'for fs in /proc/sys /sys; do mount -o remount,bind,rw "$fs" || exit; done; exec "$@"'
SYSTEM = "lxc:///system"
_OVERLAID = "overlaid"  # the file that lxc.sh reads
_LXC = "{http://libvirt.org/schemas/domain/lxc/1.0}"
_COPIES = f"{DIRECTORY}/libvirt-own/copies"  # which lxc.sh makes, one by one
_USUAL_INIT = "/sbin/init"  # libvirt's default first process
# Connections to its machine or to others; and resource groups, because libvirt uses netbench's groups here.
_CONNECTIONS = ("interface", "serial", "console", "parallel", "channel", "graphics", "video", "input")
_LEFT_OUT = ("resource", f"{_LXC}namespace")
_DEVICES_OF_THE_HOST = ("hostdev", "disk")
_PRIVATE = ("ram", "bind")  # an empty file system, and another mount of the container's own files
# Characters that end a path for mount(8) and overlayfs.
_NOT_IN_PATHS = ',:\\"\n'


find_lxc_driver = partial(find_libvirtd, "lxc", ("virsh",), "libvirtd, its driver for LXC, or virsh")


class LibvirtLxc(Runtime):
    """A transient domain of a private libvirtd, which ends with it.

    The domain has no interfaces: it shares the network namespace of its libvirtd, which contains its NICs. libvirt
    requires control groups. Its root groups are netbench's, and it makes its own below.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"libvirt-lxc"})
    version: ClassVar[tuple[str, ...]] = ("libvirtd", "--version")
    applies_cpu_shares: ClassVar[bool] = True

    def __init__(self) -> None:
        self._machine: Host = THIS_MACHINE  # until prepare()
        self._script = str(_SCRIPT)

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        yield AddGroups(spec.own_netns, spec.weight, spec.limit)

    def prepare(self, spec: GuestSpec, machine: Host, run_id: str) -> None:
        self._machine = machine
        script, _ = (machine.share(file, str(spec.directory)) for file in (_SCRIPT, DIRECTORIES_SCRIPT))
        self._script = script.replace(str(spec.directory), DIRECTORY)  # where its runtime sees that directory

    def cgroup_procs(self, spec: GuestSpec) -> str:
        if spec.weight is None and spec.limit is None:
            return ""
        return cpu_cgroup_procs(spec.own_netns, hierarchies(self._machine))

    def command(self, spec: GuestSpec, root: Root, init: Sequence[str], cgroups: Sequence[str]) -> list[str]:
        groups = hierarchies(self._machine)
        seen = [hierarchy.controllers or " ".join(f"+{name}" for name in SWITCHED) for hierarchy in groups]
        run = ["sh", self._script, host_name(spec), self._domain(spec, root, init), *seen]
        return confined(in_groups([*ISOLATED, *run], spec.own_netns, groups), spec.host_cpus, "")

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

    @RUN@ is replaced by the run's mark. The container may use all memory of its machine, as other containers may. Its
    CPUs are always listed: by default libvirt would use all of them.
    """
    page_bytes, pages, cpus = run_checked(machine, ["sh", "-c", _SIZE]).split()
    return render_xml(
        DIRECTORIES_SCRIPT.with_name("container.xml.j2"),
        name=host_name(spec),
        memory_bytes=int(page_bytes) * int(pages),
        host_cpus=spec.host_cpus,
        cpus=cpus,
        init=["/bin/sh", "-c", WRITABLE, "sh", *init],
        mark=MARK,
        run_id=RUN_ID,
        root=f"{DIRECTORY}/root",
        shared=[(f"/{name}", f"{MACHINE}{root.source / name}") for name in root.shared],
    )


class ExistingLxc(LibvirtLxc):
    """The copy of the domain `name` at `uri`; a private libvirtd runs the copy."""

    needs: ClassVar[frozenset[str]] = LibvirtLxc.needs | {BINDINGS.name}

    def __init__(self, name: str, uri: str | None) -> None:
        super().__init__()
        self._name = name
        self._uri = uri or SYSTEM
        self._copy: ContainerCopy | None = None
        self._defined = ""

    def prepare(self, spec: GuestSpec, machine: Host, run_id: str) -> None:
        """Copy the domain; TestbedError if it is running, missing or not copyable."""
        super().prepare(spec, machine, run_id)
        libvirt = LibvirtConnection(spec.title, self._uri, machine)
        try:
            self._defined = libvirt.defined(self._name)
        finally:
            libvirt.close()
        try:
            self._copy = copy_of_container(self._defined, spec, ())
            for directory in self._copy.directories:
                where = machine.run(["readlink", "-e", "--", directory]).stdout.strip()
                if not where or machine.run(["test", "-d", where]).exit_code != 0:
                    raise TestbedError(f"its directory {directory} does not exist")
                if Path(where).is_relative_to("/run"):
                    raise TestbedError(f"{directory} is below /run, which its libvirtd replaces: move it")
        except TestbedError as error:
            raise TestbedError(f"{spec.title}: domain {self._name} cannot be copied: {error}") from error
        machine.write(str(spec.directory / _OVERLAID), "".join(f"{path}\n" for path in self._copy.directories))

    def facts(self) -> dict[str, str]:
        memory = {"memory": f"{self._copy.memory_mib} MiB"} if self._copy else {}
        return {"domain": self._name, **memory}

    def _domain(self, spec: GuestSpec, root: Root, init: Sequence[str]) -> str:
        """Return its XML; in a plan, which does not query the domain, a description."""
        if self._copy is None:
            show = shlex.join(["virsh", "-c", self._uri, "dumpxml", "--inactive", self._name])
            return f"the domain of `{show}`, without its NICs and devices, with overlays over writable directories"
        return copy_of_container(self._defined, spec, init).xml


@dataclass(frozen=True, slots=True)
class ContainerCopy:
    """The transient domain that is the copy.

    It has overlays over `directories` of this machine, in this order: its writes go to the overlays, which are removed
    with it.
    """

    xml: str
    directories: tuple[str, ...]
    memory_mib: int


def copy_of_container(defined: str, spec: GuestSpec, first: Sequence[str]) -> ContainerCopy:
    """Return the copy of a domain whose inactive XML is `defined`; the command `first` starts its first process.

    TestbedError, as a phrase, when a copy is impossible.
    """
    domain = parse_domain(defined)
    if domain.get("type") != "lxc":
        raise TestbedError(f"it is of type {domain.get('type')!r}, not a container (`lxc`): use kind: libvirt")
    if domain.find("idmap") is not None:
        raise TestbedError(
            "it has an <idmap>, and netbench cannot configure NICs in a container whose root is not that of this "
            "machine: define it without that"
        )
    rename_copy(domain, host_name(spec))
    remove(domain, *_LEFT_OUT)
    if spec.host_cpus:  # otherwise it is pinned as the domain is
        vcpu = child_of(domain, "vcpu")
        vcpu.text = vcpu.text or "1"
        bind(vcpu, spec.host_cpus)
    _start_by(domain, first)
    _allow_mounts(domain)
    devices = child_of(domain, "devices")
    remove(devices, *_CONNECTIONS)
    for tag in _DEVICES_OF_THE_HOST:
        if devices.find(tag) is not None:
            raise TestbedError(f"it has a <{tag}>, a device of this host: define it without that")
    directories = tuple(_write_elsewhere(devices))
    add(devices, "console", type="pty")
    return ContainerCopy(as_text(domain), directories, memory_mib(domain))


def _start_by(domain: Element, first: Sequence[str]) -> None:
    """Start its own first process as one of the run, after making the kernel's settings writable."""
    system = domain.find("os")
    if system is None:
        system = add(domain, "os")
        add(system, "type", text="exe")
    for tag in ("inituser", "initgroup"):
        if (user := system.findtext(tag)) is not None:
            raise TestbedError(
                f"its <{tag}> is {user}, but its first process must be root to make the kernel's settings writable: "
                "define it without that"
            )
    init = (system.findtext("init") or _USUAL_INIT).strip()
    words = [argument.text or "" for argument in system.findall("initarg")]
    remove(system, "init", "initarg")
    add(system, "init", text="/bin/sh")
    for word in ("-c", WRITABLE, "sh", *first, init, *words):
        add(system, "initarg", text=word)
    add(system, "initenv", text=RUN_ID, name=MARK)


def _allow_mounts(domain: Element) -> None:
    """Keep its capabilities, plus the one to make settings writable; remove its network, which netbench configures."""
    for features in domain.findall("features"):
        remove(features, "privnet")
    for capabilities in domain.findall("features/capabilities"):
        remove(capabilities, "sys_admin")
        if capabilities.get("policy") == "deny":
            add(capabilities, "sys_admin", state="on")


def _write_elsewhere(devices: Element) -> Iterator[str]:
    """Replace the directories that it would write to by overlays; yield these directories of this machine.

    A domain without a root file system uses that of this machine.
    """
    targets = [attributes(filesystem, "target").get("dir") for filesystem in devices.findall("filesystem")]
    if "/" not in targets:
        root = add(devices, "filesystem", type="mount")
        add(root, "source", dir="/")
        add(root, "target", dir="/")
    number = 0
    for mounted in devices.findall("filesystem"):
        target, kind = attributes(mounted, "target").get("dir", ""), mounted.get("type", "mount")
        if kind in _PRIVATE:
            continue
        source = mounted.find("source")
        if kind != "mount" or source is None:
            raise TestbedError(
                f"its <filesystem> at {target} is of type {kind!r}, and only writes to directories can be redirected: "
                "define it with `mount`, `bind` or `ram`"
            )
        directory = source.get("dir", "")
        if any(character in directory for character in _NOT_IN_PATHS) or not directory.startswith("/"):
            raise TestbedError(
                f"its <filesystem> at {target} is {directory!r}: use an absolute path without commas, colons, quotes "
                "and backslashes"
            )
        if mounted.find("readonly") is not None:
            source.set("dir", f"{MACHINE}{directory}")
            continue
        source.set("dir", f"{_COPIES}/{number}/merged")
        number += 1
        yield directory

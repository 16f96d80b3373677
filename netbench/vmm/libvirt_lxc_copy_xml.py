"""The copy of a user-defined libvirt container: the same container on other links, with its writes redirected."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from netbench.errors import TestbedError
from netbench.hosts.local import MARK
from netbench.vmm.base import GuestSpec
from netbench.vmm.container_runtime import DIRECTORY, host_name
from netbench.vmm.libvirt_lxc import MACHINE, RUN_ID, WRITABLE
from netbench.vmm.libvirt_xml import add, as_text, become, cpuset, devices_of, memory_mib, parsed

_LXC = "{http://libvirt.org/schemas/domain/lxc/1.0}"
_COPIES = f"{DIRECTORY}/libvirt-own/copies"  # which libvirt_lxc.sh makes, one by one
_USUAL_INIT = "/sbin/init"  # libvirt's default first process
# Connections to its machine or to others; and resource groups, because libvirt uses netbench's groups here.
_CONNECTIONS = ("interface", "serial", "console", "parallel", "channel", "graphics", "video", "input")
_LEFT_OUT = ("resource", f"{_LXC}namespace")
_DEVICES_OF_THE_HOST = ("hostdev", "disk")
_OF_ITS_OWN = ("ram", "bind")  # an empty file system, and another mount of the container's own files
# Characters that end a path for mount(8) and overlayfs.
_NOT_IN_PATHS = ',:\\"\n'


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
    domain = parsed(defined)
    if domain.get("type") != "lxc":
        raise TestbedError(f"it is of type {domain.get('type')!r}, and only containers, `lxc`, are: say kind: libvirt")
    if domain.find("idmap") is not None:
        raise TestbedError(
            "it has an <idmap>, and in a container whose root is not that of this machine nobody sets up NICs that "
            "are netbench's: define it without that"
        )
    become(domain, host_name(spec))
    for child in [child for child in domain if child.tag in _LEFT_OUT]:
        domain.remove(child)
    _run_on(domain, spec.host_cpus)
    _start_by(domain, first)
    _allow_mounts(domain)
    devices = devices_of(domain)
    for child in [child for child in devices if child.tag in _CONNECTIONS]:
        devices.remove(child)
    for child in devices:
        if child.tag in _DEVICES_OF_THE_HOST:
            raise TestbedError(f"it has a <{child.tag}>, and it takes a device of this host: define it without that")
    directories = tuple(_write_elsewhere(devices))
    add(devices, "console", type="pty")
    return ContainerCopy(as_text(domain), directories, memory_mib(domain))


def _run_on(domain: Element, host_cpus: Sequence[int]) -> None:
    """Pin it to `host_cpus`; without these, as the domain does."""
    if not host_cpus:
        return
    vcpu = domain.find("vcpu")
    if vcpu is None:
        vcpu = add(domain, "vcpu", text="1")
    vcpu.attrib.pop("placement", None)
    vcpu.set("cpuset", cpuset(host_cpus))


def _start_by(domain: Element, first: Sequence[str]) -> None:
    """Start its own first process as one of the run, after making the kernel's settings writable."""
    system = domain.find("os")
    if system is None:
        system = add(domain, "os")
        add(system, "type", text="exe")
    for tag in ("inituser", "initgroup"):
        if (user := system.findtext(tag)) is not None:
            raise TestbedError(
                f"its <{tag}> is {user}, and before that its first process has to have the kernel's settings writable, "
                "as root: define it without that"
            )
    init = (system.findtext("init") or _USUAL_INIT).strip()
    words = [argument.text or "" for argument in system.findall("initarg")]
    for child in [child for child in system if child.tag in ("init", "initarg")]:
        system.remove(child)
    add(system, "init", text="/bin/sh")
    for word in ("-c", WRITABLE, "sh", *first, init, *words):
        add(system, "initarg", text=word)
    add(system, "initenv", text=RUN_ID, name=MARK)


def _allow_mounts(domain: Element) -> None:
    """Keep its capabilities, plus the one to make settings writable; remove its network, which netbench configures."""
    features = domain.find("features")
    if features is None:
        return
    for child in features.findall("privnet"):
        features.remove(child)
    capabilities = features.find("capabilities")
    if capabilities is None:
        return
    for child in capabilities.findall("sys_admin"):
        capabilities.remove(child)
    if capabilities.get("policy") == "deny":
        add(capabilities, "sys_admin", state="on")


def _write_elsewhere(devices: Element) -> Iterator[str]:
    """Replace the directories that it would write to by overlays; yield these directories of this machine.

    A domain without a root of its own uses that of this machine.
    """
    targets = [_attribute(filesystem, "target", "dir") for filesystem in devices.findall("filesystem")]
    if "/" not in targets:
        root = add(devices, "filesystem", type="mount")
        add(root, "source", dir="/")
        add(root, "target", dir="/")
    number = 0
    for mounted in devices.findall("filesystem"):
        target, kind = _attribute(mounted, "target", "dir"), mounted.get("type", "mount")
        if kind in _OF_ITS_OWN:
            continue
        source = mounted.find("source")
        if kind != "mount" or source is None:
            raise TestbedError(
                f"its <filesystem> at {target} is of type {kind!r}, and only a directory can be had without writing to "
                "it: define it with `mount`, `bind` or `ram`"
            )
        directory = source.get("dir", "")
        if any(character in directory for character in _NOT_IN_PATHS) or not directory.startswith("/"):
            raise TestbedError(
                f"its <filesystem> at {target} is {directory!r}: a path without commas, colons, quotes and backslashes "
                "is needed"
            )
        if mounted.find("readonly") is not None:
            source.set("dir", f"{MACHINE}{directory}")
            continue
        source.set("dir", f"{_COPIES}/{number}/merged")
        number += 1
        yield directory


def _attribute(parent: Element, tag: str, name: str) -> str:
    child = parent.find(tag)
    return "" if child is None else child.get(name, "")

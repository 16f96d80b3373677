"""The copy of a container that a user has defined at libvirt: the same, on other links, and it writes elsewhere."""

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
_USUAL_INIT = "/sbin/init"  # what libvirt starts where a domain names nothing
# What connects it with its machine or with others; and groups of libvirt's, which has groups of netbench's own here.
_CONNECTIONS = ("interface", "serial", "console", "parallel", "channel", "graphics", "video", "input")
_LEFT_OUT = ("resource", f"{_LXC}namespace")
_DEVICES_OF_THE_HOST = ("hostdev", "disk")
_OF_ITS_OWN = ("ram", "bind")  # empty room, and another place in the container itself
# Which mount(8) and overlayfs read as the end of a path.
_NOT_IN_PATHS = ',:\\"\n'


@dataclass(frozen=True, slots=True)
class ContainerCopy:
    """The transient domain that is such a copy.

    It has overlays over `directories` of this machine, in this order: what it writes there is written elsewhere, and
    goes with it.
    """

    xml: str
    directories: tuple[str, ...]
    memory_mib: int


def copy_of_container(defined: str, spec: GuestSpec, first: Sequence[str]) -> ContainerCopy:
    """The copy of a domain whose inactive XML is `defined`; what it starts is started by `first`, a command.

    TestbedError, as a phrase, when there can be none.
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
    for child in [one for one in domain if one.tag in _LEFT_OUT]:
        domain.remove(child)
    _run_on(domain, spec.host_cpus)
    _start_by(domain, first)
    _allow_mounts(domain)
    devices = devices_of(domain)
    for child in [one for one in devices if one.tag in _CONNECTIONS]:
        devices.remove(child)
    for child in devices:
        if child.tag in _DEVICES_OF_THE_HOST:
            raise TestbedError(f"it has a <{child.tag}>, and it takes a device of this host: define it without that")
    directories = tuple(_write_elsewhere(devices))
    add(devices, "console", type="pty")
    return ContainerCopy(as_text(domain), directories, memory_mib(domain))


def _run_on(domain: Element, host_cpus: Sequence[int]) -> None:
    """Where netbench is told of CPUs, on these; else as the domain does."""
    if not host_cpus:
        return
    vcpu = domain.find("vcpu")
    if vcpu is None:
        vcpu = add(domain, "vcpu", text="1")
    vcpu.attrib.pop("placement", None)
    vcpu.set("cpuset", cpuset(host_cpus))


def _start_by(domain: Element, first: Sequence[str]) -> None:
    """By its own first process, once the kernel's settings can be written, as one of the run."""
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
    words = [one.text or "" for one in system.findall("initarg")]
    for child in [one for one in system if one.tag in ("init", "initarg")]:
        system.remove(child)
    add(system, "init", text="/bin/sh")
    for word in ("-c", WRITABLE, "sh", *first, init, *words):
        add(system, "initarg", text=word)
    add(system, "initenv", text=RUN_ID, name=MARK)


def _allow_mounts(domain: Element) -> None:
    """Its capabilities are its own, but that it makes settings writable; its network is netbench's to say."""
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
    """The directories of this machine over which it needs overlays, in place of which it has these.

    A domain that says nothing of its root has that of this machine.
    """
    targets = [_attribute(one, "target", "dir") for one in devices.findall("filesystem")]
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
        if any(one in directory for one in _NOT_IN_PATHS) or not directory.startswith("/"):
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

"""A virtual machine as data, and the QEMU command line that starts it."""

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from netbench.hosts.base import Host
from netbench.hosts.host_wrappers import confined
from netbench.hosts.remote_code import program_command
from netbench.hosts.trusted_code import module_command
from netbench.images.recipe import load_recipe
from netbench.vmm.attachment import PrivateNetwork
from netbench.vmm.qemu import open_nics

AGENT_PORT = "netbench.agent"
# org.qemu.guest_agent.0 is the default port of qemu-ga (qemu-ga(8)).
GUEST_AGENT_PORT = "org.qemu.guest_agent.0"
VHOST_DEVICE = Path("/dev/vhost-net")
SSH_NIC_MAC = "02:6e:62:ff:ff:fe"

NO_OWNER = 65534  # user and group that own nothing (the kernel's overflowuid)
_SANDBOX = "on,obsolete=deny,spawn=deny,resourcecontrol=deny"

_ACCELERATION = {"tcg": ("tcg,thread=multi", "max"), "kvm": ("kvm", "host")}
# In QEMU 7.2's emulation a domain 0 of Xen crashes with SMAP, and sometimes a domain at its first AVX instruction: Xen
# switches the CPU features of a domain, and the emulation does not always notice.
_EMULATED_UNDER_XEN = "max,-smap,-avx,-avx2"
# The rest of the memory is for its guests.
_DOM0_MIB = 640
_BOARDS = {"x86_64": "q35", "aarch64": "virt"}
_CONSOLES = {"x86_64": "ttyS0", "aarch64": "ttyAMA0"}


@dataclass(frozen=True, slots=True)
class VirtualNic:
    """A NIC of a guest, on a tap of this machine; or at the end of a `cable`, in the notation of `open_nics`.

    With a `network` it has QEMU's user networking, unless it has a cable.
    """

    tap: str
    mac: str
    model: str  # a QEMU device: virtio-net-pci, e1000, e1000e, vmxnet3, rtl8139
    queues: int = 1
    vhost: bool = False
    macvtap: bool = False  # QEMU receives it open, because it opens only taps itself
    cable: str = ""
    network: PrivateNetwork | None = None


@dataclass(frozen=True, slots=True)
class KernelBoot:
    """A guest that boots a kernel and an initial RAM disk; before them a hypervisor, if it is a domain 0 of Xen."""

    kernel: Path
    initrd: Path
    hypervisor: Path | None = None


def planned_boot(image: str) -> KernelBoot:
    """Return the boot files of one of netbench's guest images, for `--dry-run`; they need not exist."""
    directory = Path(image)
    hypervisor = directory / "hypervisor" if load_recipe(image).hypervisor else None
    return KernelBoot(directory / "vmlinuz", directory / "initrd", hypervisor)


@dataclass(frozen=True, slots=True)
class DiskBoot:
    """A guest that boots from a disk, which stays unchanged: writes go to a temporary file and are lost."""

    disk: Path
    format: str  # raw, qcow2, …
    ssh_port: int | None = None  # port of 127.0.0.1 of this machine (or namespace), forwarded to the guest's port 22


@dataclass(frozen=True, slots=True)
class Confinement:
    """Privileges that QEMU drops: system calls (seccomp), and, after it opened its files, root for `user`."""

    sandbox: bool = False
    user: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        """Options of QEMU."""
        # Giving up root must stay allowed until it is done.
        stays = "" if self.user else ",elevateprivileges=deny"
        return (*(("-sandbox", _SANDBOX + stays) if self.sandbox else ()), *self.user)

    def __str__(self) -> str:
        parts = (["seccomp"] if self.sandbox else []) + (["unprivileged"] if self.user else [])
        return ", ".join(parts) or "no"


# The confinements that QEMU versions support, best first; -runas is for versions before 9.1.
CONFINEMENTS = tuple(
    Confinement(sandbox, user)
    for sandbox in (True, False)
    for user in (("-run-with", f"user={NO_OWNER}:{NO_OWNER}"), ("-runas", f"{NO_OWNER}:{NO_OWNER}"), ())
)


@dataclass(frozen=True, slots=True)
class VirtualMachine:
    """A guest to be started by QEMU. `accelerator` is `kvm` or `tcg`; `auto` only while it is undecided.

    All its threads run on `host_cpus` (empty: any) and in the control group of the file `cgroup_procs` (empty: that of
    netbench).
    """

    name: str
    boot: KernelBoot | DiskBoot
    accelerator: str
    cpus: int = 1
    memory_mib: int = 256
    nics: tuple[VirtualNic, ...] = ()
    host_cpus: tuple[int, ...] = ()
    cgroup_procs: str = ""
    confinement: Confinement = Confinement()


class RunFiles:
    """The paths of a running guest's files: sockets, except where noted."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.monitor = directory / "qmp"
        self.channel = directory / "agent"  # behind the guest's serial port for its agent
        self.console = directory / "console"  # only if libvirt starts the guest
        self.nvram = directory / "nvram"  # UEFI variables of a guest that is a copy of a libvirt domain
        self.pid = directory / "pid"  # QEMU's process id, as text

    def passt(self, nic: int) -> Path:
        """Return the socket between QEMU and the passt of a NIC, by its number from 0."""
        return self.directory / f"passt{nic}"


def qemu_program() -> str:
    """Return the name of the QEMU for guests of this machine's architecture."""
    return f"qemu-system-{platform.machine()}"


def qemu_command(machine: VirtualMachine, files: RunFiles, host: Host | None = None) -> list[str]:
    """Return the foreground command that starts it on a host; None: in a plan for this machine."""
    command = [qemu_program(), *_options(machine, files)]
    # All NICs of a machine are attached the same way.
    if ends := [nic.cable or f"macvtap:{nic.tap}" for nic in machine.nics if nic.cable or nic.macvtap]:
        arguments = (*ends, "--", *command)
        opener = open_nics.__name__
        command = program_command(host, open_nics, *arguments) if host else module_command(opener, *arguments)
    return confined(command, machine.host_cpus, machine.cgroup_procs)


def _options(machine: VirtualMachine, files: RunFiles) -> Iterator[str]:
    yield from ("-name", f"{machine.name},debug-threads=on")
    yield from ("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none")
    under_xen = isinstance(machine.boot, KernelBoot) and machine.boot.hypervisor is not None
    yield from ("-M", "pc" if under_xen else board())
    accelerator, cpu = _ACCELERATION.get(machine.accelerator, ("ACCELERATOR", "CPU"))
    if under_xen and machine.accelerator == "tcg":
        cpu = _EMULATED_UNDER_XEN
    yield from ("-accel", accelerator, "-cpu", cpu)
    # One more, on which no vCPU of domain 0 runs: its guests need a free CPU.
    cpus = machine.cpus + 1 if under_xen else machine.cpus
    yield from ("-smp", str(cpus), "-m", f"{machine.memory_mib}M")
    yield from ("-pidfile", str(files.pid))
    yield from ("-chardev", f"socket,id=qmp,path={files.monitor},server=on,wait=off")
    yield from ("-mon", "chardev=qmp,mode=control")
    yield from ("-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console")
    yield from machine.confinement.options
    yield from _boot(machine.boot, machine.cpus)
    port = AGENT_PORT if isinstance(machine.boot, KernelBoot) else GUEST_AGENT_PORT
    yield from ("-device", "virtio-serial-pci")
    yield from ("-chardev", f"socket,id=agent,path={files.channel},server=on,wait=off")
    yield from ("-device", f"virtserialport,chardev=agent,name={port}")
    for number, nic in enumerate(machine.nics):
        yield from _nic(number, nic)


def _boot(boot: KernelBoot | DiskBoot, cpus: int) -> Iterator[str]:
    if isinstance(boot, KernelBoot) and boot.hypervisor:
        # Kernel and initrd are modules of a multiboot kernel; the first has a command line.
        kernel, initrd = (str(path).replace(",", ",,") for path in (boot.kernel, boot.initrd))
        yield from ("-kernel", str(boot.hypervisor), "-initrd", f"{kernel} {kernel_words('hvc0')},{initrd}")
        yield from ("-append", _xen_words(cpus))
        return
    if isinstance(boot, KernelBoot):
        yield from ("-kernel", str(boot.kernel), "-initrd", str(boot.initrd))
        yield from ("-append", kernel_words())
        return
    path = str(boot.disk).replace(",", ",,")  # QEMU's escape of a comma in a value
    yield from ("-drive", f"file={path},format={boot.format},if=virtio,snapshot=on")
    if boot.ssh_port is not None:
        forward = f"hostfwd=tcp:127.0.0.1:{boot.ssh_port}-:22"
        yield from ("-netdev", f"user,id=ssh,restrict=on,{forward}")
        yield from ("-device", f"virtio-net-pci,netdev=ssh,mac={SSH_NIC_MAC}")


def _xen_words(cpus: int) -> str:
    """Return the hypervisor's command line: CPUs and memory of domain 0."""
    size = f"dom0_mem={_DOM0_MIB}M,max:{_DOM0_MIB}M dom0_max_vcpus={cpus} dom0_vcpus_pin"
    return f"console=com1 com1=115200,8n1 {size}"


def kernel_words(console: str = "") -> str:
    """Return the command line of a guest's kernel; the default `console` is that of the board."""
    console = console or _CONSOLES.get(platform.machine(), "ttyS0")
    # An emulated CPU on a busy host can be too slow for the kernel's timer check, which then panics.
    return f"console={console} quiet panic=-1 no_timer_check netbench.channel=virtio:{AGENT_PORT}"


def board() -> str:
    """Return the machine type for guests of this machine's architecture."""
    return _BOARDS.get(platform.machine(), "q35")


def _nic(number: int, nic: VirtualNic) -> Iterator[str]:
    name = f"nic{number}"
    queues = f",queues={nic.queues}" if nic.queues > 1 else ""
    vhost = ",vhost=on" if nic.vhost else ""
    kind, which = _backend(number, nic)
    yield from ("-netdev", f"{kind},id={name},{which}{queues}{vhost}")
    # Two vectors per queue, one for configuration, one for control (QEMU's docs on multiqueue virtio-net).
    several = f",mq=on,vectors={2 * nic.queues + 2}" if nic.queues > 1 else ""
    yield from ("-device", f"{nic.model},netdev={name},mac={nic.mac}{several}")


def _backend(number: int, nic: VirtualNic) -> tuple[str, str]:
    """Return the type of a NIC's QEMU backend and the options that select it."""
    if nic.cable:
        server = "on" if nic.cable.startswith("listen:") else "off"
        return "stream", f"server={server},addr.type=fd,addr.str={open_nics.FIRST_FILE + number}"
    if nic.network:
        return "user", _user_networking(nic.network)
    if nic.macvtap:
        return "tap", f"fd={open_nics.FIRST_FILE + number}"
    return "tap", f"ifname={nic.tap},script=no,downscript=no"


def _user_networking(network: PrivateNetwork) -> str:
    """Return the options of SLIRP: the guest's network, and the port of this machine that leads to the guest."""
    to = f"{network.machine_address}:{network.port}-{network.address}:{network.port}"
    ports = ",".join(f"hostfwd={protocol}:{to}" for protocol in ("tcp", "udp"))
    return f"ipv6=off,net={network.range},host={network.gateway},{ports}"

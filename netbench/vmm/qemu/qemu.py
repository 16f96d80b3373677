"""VMM `qemu`: guests under QEMU, with KVM where it works."""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from netbench.errors import MissingError, TestbedError, UsageError
from netbench.hosts.agent.channel import AgentChannel
from netbench.hosts.agent.host import AgentHost
from netbench.hosts.base import Connection, Host, exists, run_checked
from netbench.hosts.host_wrappers import MonitoredHost, outside
from netbench.hosts.ssh import SshGuest, free_port
from netbench.images.library import DEFAULT_IMAGE, find_image
from netbench.images.on_host import brought, require_in_vm
from netbench.linux.changes import AddRunDirectory, Change, SetUp
from netbench.linux.requirements import IN_NETNS, ON_VETH, Facility, Feature, Probes, Requirement, Tool, require_on_host
from netbench.model.paths import StreamPath
from netbench.model.virtualisation import DurationEstimate, Virtualisation
from netbench.vmm.attachment import Attachment, Macvtap, Tap
from netbench.vmm.base import CableEnd, GuestOptions, GuestSpec, RunningGuest, Vmm, is_own_vm, on_vm
from netbench.vmm.qemu.acceleration import Acceleration, choose, kvm_remedy, recall_kvm, try_kvm
from netbench.vmm.qemu.command import (
    CONFINEMENTS,
    NO_OWNER,
    VHOST_DEVICE,
    Confinement,
    DiskBoot,
    KernelBoot,
    RunFiles,
    VirtualMachine,
    VirtualNic,
    planned_boot,
    qemu_command,
    qemu_program,
)
from netbench.vmm.qemu.guest_agent import GuestAgentHost, QmpConnection
from netbench.vmm.qemu.options import NIC_KINDS, GuestAgentChannel, QemuOptions, SshChannel
from netbench.vmm.qemu.process import QemuMachine, QemuProcess

_PACKAGES = {"qemu-system-x86_64": "qemu-system-x86", "qemu-system-aarch64": "qemu-system-arm"}
_PINNING = ("the whole guest", "each vCPU", "other threads")
_PLANNED_SSH_PORT = 2222
_CABLED = {"virtio": "virtio-net-pci"}  # QEMU's name for a model of a cabled NIC
_EMULATED_QUIET_TIME_S = 0.2  # a tap's queue holds 1000 frames, and an emulated guest is slow


def find_vhost(_: str) -> str:
    """Return the path of the device; MissingError without it."""
    if not VHOST_DEVICE.exists():
        raise MissingError(f"this host has no {VHOST_DEVICE}")
    return str(VHOST_DEVICE)


class QemuGuest(RunningGuest):
    """A running virtual machine."""

    def __init__(self, spec: GuestSpec, process: QemuMachine, connection: Connection, facts: dict[str, str]) -> None:
        super().__init__(spec)
        self._process = process
        self._connection = connection
        self._facts = facts
        self.virtualisation = Virtualisation.HARDWARE
        if "emulated" in facts:
            self.virtualisation = Virtualisation.FULL
            self.quiet_time_s = _EMULATED_QUIET_TIME_S

    def await_answer(self, limit_s: float) -> None:
        MonitoredHost(self._connection, self._process.death_just_now).await_answer(limit_s, self._process.hopeless)

    def host(self, gone: type[TestbedError] = TestbedError) -> Host:
        return MonitoredHost(self._connection, self._process.death_just_now, gone)

    def death(self) -> str:
        return self._process.trouble()

    def clocks(self) -> tuple[int, int]:
        return self._connection.clocks() if isinstance(self._connection, AgentHost) else super().clocks()

    def set_link(self, interface: str, *, up: bool) -> None:
        self._process.set_link([end.interface for end in self.spec.cables].index(interface), up=up)

    def cpu_s(self) -> float:
        return self._process.cpu_s()

    def memory_bytes(self) -> int | None:
        return self._process.memory_bytes()

    def console(self) -> str:
        return self._process.console()

    def facts(self) -> dict[str, str]:
        return self._facts

    def stop(self) -> None:
        """Close the connection, then end the process, even if the first fails."""
        with ExitStack() as stack:
            stack.callback(self._process.stop)
            stack.callback(self._connection.close)


class Qemu(Vmm):
    """A guest under QEMU, with KVM where it works: its virtual NICs are bridged to NICs of the machine through taps.

    Its entitlement applies to all threads of QEMU; the option `pin` overrides the CPUs of the threads it names.
    """

    Options: ClassVar[type[GuestOptions]] = QemuOptions
    runs_hosts: ClassVar[bool] = True
    kinds = (Virtualisation.FULL, Virtualisation.HARDWARE)
    nic_models = NIC_KINDS
    supports = replace(Vmm.supports, attachments=("tap", "macvtap"), pinning=_PINNING)
    emulated_without = "kvm"
    may_need: ClassVar[tuple[Requirement, ...]] = (
        Feature("tun", "taps for guests", IN_NETNS, "CONFIG_TUN", "tun", Probes.tun, optional=True),
        Feature(
            "macvtap",
            "guests on a NIC of their own",
            ON_VETH,
            "CONFIG_MACVTAP",
            "macvtap",
            Probes.macvtap,
            optional=True,
        ),
        Tool(qemu_program(), _PACKAGES.get(qemu_program(), "qemu-system"), "guests", optional=True),
        Tool("ssh", "openssh-client", "guests whose disk image is reached over SSH", optional=True),
        Facility(
            "kvm",
            "guests whose CPU is not emulated",
            kvm_remedy,
            try_kvm,
            "accelerator: kvm is not possible: {}; use auto or tcg",
            by_root=True,
            recall=recall_kvm,
        ),
        Facility(
            "vhost",
            "virtio NICs that the kernel serves, instead of QEMU",
            "modprobe vhost_net",
            find_vhost,
            "vhost: on is not possible: {}: modprobe vhost_net",
            signs=(str(VHOST_DEVICE),),
        ),
    )
    # Assumes emulation, because KVM is not probed yet.
    pace: ClassVar[DurationEstimate] = DurationEstimate(
        bring_up_s=3.8, trial_s=0.55, idle_s=0.05, load_s=0.55, worker_s=0.07
    )
    pace_in_vm: ClassVar[DurationEstimate | None] = DurationEstimate(
        bring_up_s=20.0, trial_s=3.0, idle_s=0.3, load_s=3.0, worker_s=0.3
    )

    def __init__(self, options: QemuOptions) -> None:
        super().__init__(options)
        self._options = options

    def check(self, paths: Sequence[StreamPath]) -> None:
        """Raise UsageError for CPUs that this machine lacks, and for a disk image or key that does not exist."""
        if on_vm(paths):
            if self._options.is_disk:
                raise UsageError("image: a VM that is a host has no disk images; use a guest image of netbench")
            return  # the CPUs of the VM are checked there
        missing = sorted(set(self._options.pin.cpus) - set(present_cpus()))
        if missing:
            raise UsageError(f"pin: this machine has no CPU {missing[0]}; it has {', '.join(map(str, present_cpus()))}")
        disk = Path(self._options.image)
        if self._options.is_disk and not disk.is_file():
            raise UsageError(f"image: there is no disk image {disk}")
        if isinstance(self._options.channel, SshChannel) and not Path(self._options.channel.key).is_file():
            raise UsageError(f"channel: there is no key {self._options.channel.key}")

    def needs(self) -> frozenset[str]:
        needs = {qemu_program()}
        if not self._options.is_disk:
            needs.add(f"image:{self._options.image}")
        elif isinstance(self._options.channel, SshChannel):
            needs.add("ssh")
        if self._options.accelerator == "kvm":
            needs.add("kvm")
        return frozenset(needs | ({"vhost"} if self._options.vhost == "on" else set()))

    @property
    def virtualisation(self) -> Virtualisation | None:
        decided = {"tcg": Virtualisation.FULL, "kvm": Virtualisation.HARDWARE}
        return decided.get(self._options.accelerator)

    @property
    def nic_model(self) -> str:
        return self._options.nic

    def attachment(self, spec: GuestSpec) -> Attachment:
        return Macvtap() if self._options.attachment == "macvtap" else Tap(self._options.queues)

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        yield AddRunDirectory(str(spec.directory))
        if spec.netns and isinstance(self._options.channel, SshChannel):
            yield SetUp(spec.netns, "lo")  # QEMU forwards one of its ports to the guest

    def command(self, spec: GuestSpec) -> str:
        machine = self._machine(spec, self._options.accelerator, self._boot(_PLANNED_SSH_PORT))
        return shlex.join(qemu_command(replace(machine, confinement=CONFINEMENTS[0]), RunFiles(spec.directory)))

    def start(self, spec: GuestSpec, host: Host) -> RunningGuest:
        options, files = self._options, RunFiles(spec.directory)
        self._prepare(host)
        image = DEFAULT_IMAGE if options.is_disk else options.image
        acceleration = choose(options.accelerator, host, spec.directory, image)
        port = free_port(host) if isinstance(options.channel, SshChannel) else 0
        machine = self._machine(spec, acceleration.accelerator, self._boot(port, host), host)
        machine = replace(machine, confinement=confinement(host))
        process = QemuProcess(machine, files)
        try:
            process.start(host)
            process.pin(options.pin.vcpus, options.pin.io)
            connection = self._connection(spec, host, process, files, port)
            return QemuGuest(spec, process, connection, self._facts(spec, host, acceleration, machine.confinement))
        except BaseException:  # Ctrl-C too: QEMU must not stay behind
            process.stop()
            raise

    def _prepare(self, host: Host) -> None:
        """Check a host that is another machine, and load modules in a VM of netbench; MissingError without QEMU."""
        if is_own_vm(host):
            require_in_vm(host, "lab", qemu_program())
            # One by one: the module for another CPU fails, and the others must still be loaded.
            for module in ("kvm_amd", "kvm_intel", "vhost_net"):
                host.run(["modprobe", "-q", module])
        elif not host.shares_files:
            require_on_host(outside(host), (need for need in self.may_need if need.name == qemu_program()))

    def _machine(
        self, spec: GuestSpec, accelerator: str, boot: KernelBoot | DiskBoot, host: Host | None = None
    ) -> VirtualMachine:
        """Return the machine for a guest on a host; `host` is None in a plan."""
        options, own = self._options, (spec.host_cpus, spec.cgroup_procs)
        nics = self._nics(spec, host)
        return VirtualMachine(spec.name, boot, accelerator, options.cpus, options.memory, nics, *own)

    def _nics(self, spec: GuestSpec, host: Host | None) -> tuple[VirtualNic, ...]:
        options, vhost = self._options, self._use_vhost(host)
        how = options.nic, options.queues, vhost, options.attachment == "macvtap"
        return (
            *(VirtualNic(nic.interface, nic.mac, *how) for nic in spec.nics),
            *(VirtualNic("", end.mac, _CABLED.get(end.model, end.model), cable=_cable(end)) for end in spec.cables),
        )

    def _boot(self, ssh_port: int, host: Host | None = None) -> KernelBoot | DiskBoot:
        options = self._options
        if options.is_disk:
            port = ssh_port if isinstance(options.channel, SshChannel) else None
            return DiskBoot(Path(options.image), options.disk_format, port)
        if host is None:
            return planned_boot(options.image)
        image = brought(find_image(options.image), host)
        return KernelBoot(image.kernel, image.initrd, image.hypervisor)

    def _use_vhost(self, host: Host | None) -> bool:
        wanted, device = self._options.vhost, str(VHOST_DEVICE)
        if wanted != "auto" or self._options.nic != "virtio-net-pci":
            return wanted == "on"
        return VHOST_DEVICE.exists() if host is None else exists(host, device)

    def _connection(self, spec: GuestSpec, host: Host, process: QemuProcess, files: RunFiles, port: int) -> Connection:
        match self._options.channel:
            case SshChannel(user=user, key=key, host_key=host_key):
                return SshGuest(spec.name, spec.title, host, files.directory, port, user, Path(key), host_key)
            case GuestAgentChannel():
                whose = f"{spec.title}: its guest agent"
                return GuestAgentHost(
                    spec.name, spec.title, lambda: QmpConnection(whose, process.connect(), greets=False)
                )
            case None:
                return AgentHost(spec.name, AgentChannel(spec.title, process.connect()))

    def _facts(self, spec: GuestSpec, host: Host, acceleration: Acceleration, confined: Confinement) -> dict[str, str]:
        options = self._options
        facts = {"accelerator": acceleration.accelerator}
        if acceleration.emulated:
            facts["emulated"] = acceleration.why
        facts["qemu"] = qemu_version(host, qemu_program())
        facts["image"] = options.image if options.is_disk else _image_name(options.image)
        facts |= self._facts_of_nics(spec, host)
        return {**facts, "cpus": str(options.cpus), "memory": f"{options.memory} MiB", "confined": str(confined)}

    def _facts_of_nics(self, spec: GuestSpec, host: Host) -> dict[str, str]:
        options = self._options
        if spec.cables:
            return {"nics": ", ".join(f"{end.interface} {end.model}" for end in spec.cables)}
        if not spec.nics:
            return {}
        facts = {"nic": options.nic, "queues": str(options.queues)}
        if options.nic == "virtio-net-pci":
            facts["vhost"] = "on" if self._use_vhost(host) else "off"
        return facts


def qemu_version(host: Host, program: str) -> str:
    """Return the version of a QEMU program; TestbedError if it prints none."""
    return run_checked(host, [program, "--version"]).splitlines()[0].removeprefix("QEMU emulator version ")


def confinement(host: Host) -> Confinement:
    """Return the best confinement that QEMU on this host accepts before it starts a guest."""
    users = ["setpriv", f"--reuid={NO_OWNER}", f"--regid={NO_OWNER}", "--clear-groups", "true"]
    has_user = host.run(users).exit_code == 0  # a container may lack that user

    for candidate in CONFINEMENTS:
        if (has_user or not candidate.user) and (
            host.run([qemu_program(), *candidate.options, "-M", "help"]).exit_code == 0
        ):
            return candidate
    return Confinement()


def present_cpus() -> list[int]:
    """Return the CPUs of this machine that threads may be bound to."""
    return sorted(os.sched_getaffinity(0))


def _cable(end: CableEnd) -> str:
    return f"{'listen' if end.listens else 'connect'}:{end.socket}"


def _image_name(name: str) -> str:
    """Return the name of one of netbench's guest images, and the beginning of its digest."""
    image = find_image(name)
    return f"{image.name} {image.digest[:12]}"

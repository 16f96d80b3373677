"""VMM `qemu`: guests under QEMU, with KVM where it works."""

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from netbench.errors import MissingError, UsageError
from netbench.hosts.base import Connection, Host, exists, run_checked
from netbench.hosts.guest_agent.channel import AgentChannel
from netbench.hosts.guest_agent.host import AgentHost
from netbench.hosts.host_wrappers import outside
from netbench.hosts.ssh import SshGuest, free_port
from netbench.images.library import DEFAULT_IMAGE, find_image
from netbench.images.on_host import brought, require_in_vm
from netbench.linux.changes import AddRunDirectory, Change, SetUp
from netbench.linux.requirements import (
    IN_NETNS,
    ON_VETH,
    Command,
    Facility,
    Feature,
    Probes,
    Requirement,
    require_on_host,
)
from netbench.model.paths import StreamPath
from netbench.model.virtualisation import DurationEstimate, Virtualisation
from netbench.vmm.attachment import ENDING, MASQUERADE, NETWORKS, Attachment, macvtap, tap, user_networking
from netbench.vmm.base import GuestNic, GuestOptions, GuestSpec, RunningGuest, Vmm, is_own_vm, on_vm
from netbench.vmm.connected_guest import stopped_on_error
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
from netbench.vmm.qemu.options import NIC_KINDS, GuestAgentChannel, QemuOptions, SshChannel
from netbench.vmm.qemu.passt import Passt, passt_command
from netbench.vmm.qemu.process import QemuGuest
from netbench.vmm.qemu.qmp import GuestAgentHost, QmpConnection

_PACKAGES = {"qemu-system-x86_64": "qemu-system-x86", "qemu-system-aarch64": "qemu-system-arm"}
_PINNING = ("the whole guest", "each vCPU", "other threads")
_PLANNED_SSH_PORT = 2222
_CABLED = {"virtio": "virtio-net-pci"}  # QEMU's name for a model of a cabled NIC


def find_vhost(_: str) -> str:
    """Return the path of the device; MissingError without it."""
    if not VHOST_DEVICE.exists():
        raise MissingError(f"this host has no {VHOST_DEVICE}")
    return str(VHOST_DEVICE)


class Qemu(Vmm):
    """A guest under QEMU, with KVM where it works: its virtual NICs are bridged to NICs of the machine through taps.

    Its entitlement applies to all threads of QEMU; the option `pin` overrides the CPUs of the threads it names.
    """

    options: QemuOptions
    Options: ClassVar[type[GuestOptions]] = QemuOptions
    runs_hosts: ClassVar[bool] = True
    kinds = (Virtualisation.FULL, Virtualisation.HARDWARE)
    nic_models = NIC_KINDS
    supports = replace(
        Vmm.supports,
        attachments=("tap", "macvtap", "tap behind NAT", *(NETWORKS[network] for network in ENDING)),
        pinning=_PINNING,
    )
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
        MASQUERADE,
        Command(qemu_program(), _PACKAGES.get(qemu_program(), "qemu-system"), "guests", optional=True),
        Command("passt", "passt", "guests with `attachment: passt`", optional=True),
        Command("ssh", "openssh-client", "guests whose disk image is reached over SSH", optional=True),
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

    def check(self, paths: Sequence[StreamPath]) -> None:
        """Raise UsageError for CPUs that this machine lacks, and for a disk image or key that does not exist."""
        options = self.options
        if on_vm(paths):
            if options.attachment == "passt":
                raise UsageError("attachment: a VM that is a host has no passt; use user, or a host that is no VM")
            if options.is_disk:
                raise UsageError("image: a VM that is a host has no disk images; use a guest image of netbench")
            return  # the CPUs of the VM are checked there
        present = sorted(os.sched_getaffinity(0))
        if missing := sorted(set(options.pin.cpus) - set(present)):
            raise UsageError(f"pin: this machine has no CPU {missing[0]}; it has {', '.join(map(str, present))}")
        if options.is_disk and not Path(options.image).is_file():
            raise UsageError(f"image: there is no disk image {Path(options.image)}")
        if isinstance(options.channel, SshChannel) and not Path(options.channel.key).is_file():
            raise UsageError(f"channel: there is no key {options.channel.key}")

    def needs(self) -> frozenset[str]:
        options = self.options
        needs = {
            f"image:{options.image}": not options.is_disk,
            "ssh": isinstance(options.channel, SshChannel),
            "passt": options.attachment == "passt",
            "kvm": options.accelerator == "kvm",
            "vhost": options.vhost == "on",
        }
        return frozenset({qemu_program(), *(name for name, needed in needs.items() if needed)})

    @property
    def virtualisation(self) -> Virtualisation | None:
        decided = {"tcg": Virtualisation.FULL, "kvm": Virtualisation.HARDWARE}
        return decided.get(self.options.accelerator)

    def attachment(self, spec: GuestSpec) -> Attachment:
        if self.network in ENDING:
            return user_networking(self.network)
        return macvtap() if self.options.attachment == "macvtap" else tap(self.options.queues)

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        yield AddRunDirectory(str(spec.directory))
        if spec.netns and isinstance(self.options.channel, SshChannel):
            yield SetUp(spec.netns, "lo")  # QEMU forwards one of its ports to the guest

    def command(self, spec: GuestSpec) -> str:
        machine = self._machine(spec, self.options.accelerator, self._boot(_PLANNED_SSH_PORT))
        qemu = qemu_command(replace(machine, confinement=CONFINEMENTS[0]), RunFiles(spec.directory))
        passts = (passt_command(nic.network) for nic in spec.nics if nic.network and self.network == "passt")
        return "".join(f"{shlex.join(passt)} &\n" for passt in passts) + shlex.join(qemu)

    def start(self, spec: GuestSpec, host: Host) -> RunningGuest:
        options = self.options
        self._prepare(host)
        image = DEFAULT_IMAGE if options.is_disk else options.image
        acceleration = choose(options.accelerator, host, spec.directory, image)
        port = free_port(host) if isinstance(options.channel, SshChannel) else 0
        machine = self._machine(spec, acceleration.accelerator, self._boot(port, host), host)
        machine = replace(machine, confinement=confinement(host))
        passts = [Passt(spec, host, nic) for nic in spec.nics] if self.network == "passt" else []
        guest = QemuGuest(spec, machine, host, passts)
        with stopped_on_error(guest):
            guest.start()
            guest.pin(options.pin.vcpus, options.pin.io)
            connection = self._connection(guest, host, port)
            guest.connect_by(connection, self._facts(spec, host, acceleration, machine.confinement))
        return guest

    def _prepare(self, host: Host) -> None:
        """Load modules in a VM of netbench; MissingError where the host has no QEMU."""
        if not is_own_vm(host):
            programs = {qemu_program(), *self.needs() & {"passt"}}
            require_on_host(outside(host), (need for need in self.may_need if need.name in programs))
            return
        require_in_vm(host, "lab", qemu_program())
        # One by one: the module for another CPU fails, and the others must still be loaded.
        for module in ("kvm_amd", "kvm_intel", "vhost_net"):
            host.run(["modprobe", "-q", module])

    def _machine(
        self, spec: GuestSpec, accelerator: str, boot: KernelBoot | DiskBoot, host: Host | None = None
    ) -> VirtualMachine:
        """Return the machine for a guest on a host; `host` is None in a plan."""
        options, own = self.options, (spec.host_cpus, spec.cgroup_procs)
        nics = self._nics(spec, host)
        return VirtualMachine(spec.name, boot, accelerator, options.cpus, options.memory, nics, *own)

    def _nics(self, spec: GuestSpec, host: Host | None) -> tuple[VirtualNic, ...]:
        options = self.options
        how = options.nic, options.queues, self._use_vhost(host), options.attachment == "macvtap"
        nics = [self._nic(spec, nic, VirtualNic(nic.interface, nic.mac, *how)) for nic in spec.nics]
        for end in spec.cables:
            cable = f"{'listen' if end.listens else 'connect'}:{end.socket}"
            nics.append(VirtualNic("", end.mac, _CABLED.get(end.model, end.model), cable=cable))
        return tuple(nics)

    def _nic(self, spec: GuestSpec, nic: GuestNic, virtual: VirtualNic) -> VirtualNic:
        """Return a NIC with its user networking, if it has any."""
        match self.network:
            case "user":
                return replace(virtual, network=nic.network)
            case "passt":
                return replace(virtual, cable=f"connect:{RunFiles(spec.directory).passt(spec.nics.index(nic))}")
        return virtual

    def _boot(self, ssh_port: int, host: Host | None = None) -> KernelBoot | DiskBoot:
        options = self.options
        if options.is_disk:
            port = ssh_port if isinstance(options.channel, SshChannel) else None
            return DiskBoot(Path(options.image), options.disk_format, port)
        if host is None:
            return planned_boot(options.image)
        image = brought(find_image(options.image), host)
        return KernelBoot(image.kernel, image.initrd, image.hypervisor)

    def _use_vhost(self, host: Host | None) -> bool:
        if self.network in ENDING:
            return False
        if self.options.vhost != "auto" or self.options.nic != "virtio-net-pci":
            return self.options.vhost == "on"
        return VHOST_DEVICE.exists() if host is None else exists(host, str(VHOST_DEVICE))

    def _connection(self, guest: QemuGuest, host: Host, port: int) -> Connection:
        spec = guest.spec
        match self.options.channel:
            case SshChannel(user=user, key=key, host_key=host_key):
                return SshGuest(spec.name, spec.title, host, spec.directory, port, user, Path(key), host_key)
            case GuestAgentChannel():
                whose = f"{spec.title}: its guest agent"
                return GuestAgentHost(
                    spec.name, spec.title, lambda: QmpConnection(whose, guest.channel(), greets=False)
                )
            case None:
                return AgentHost(spec.name, AgentChannel(spec.title, guest.channel()))

    def _facts(self, spec: GuestSpec, host: Host, acceleration: Acceleration, confined: Confinement) -> dict[str, str]:
        options = self.options
        return {
            "accelerator": acceleration.accelerator,
            **({"emulated": acceleration.why} if acceleration.emulated else {}),
            "qemu": qemu_version(host, qemu_program()),
            "image": options.image if options.is_disk else find_image(options.image).fact,
            **self._facts_of_nics(spec, host),
            "cpus": str(options.cpus),
            "memory": f"{options.memory} MiB",
            "confined": str(confined),
        }

    def _facts_of_nics(self, spec: GuestSpec, host: Host) -> dict[str, str]:
        options = self.options
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

    def is_accepted(candidate: Confinement) -> bool:
        command = [qemu_program(), *candidate.options, "-M", "help"]
        return (has_user or not candidate.user) and host.run(command).exit_code == 0

    return next(filter(is_accepted, CONFINEMENTS), Confinement())

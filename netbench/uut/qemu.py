"""UUT `qemu`: a guest that forwards, its virtual NICs each bridged to a NIC of the host through a tap."""

import os
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from netbench.errors import TestbedError, UsageError
from netbench.hosts.agent.channel import AgentChannel
from netbench.hosts.agent.host import AgentHost
from netbench.hosts.base import Connection, run_checked
from netbench.hosts.composed import Explained
from netbench.hosts.guest_agent import GuestAgentHost
from netbench.hosts.ssh import SshHost, free_port
from netbench.images.library import DEFAULT_IMAGE, find_image
from netbench.linux.changes import AddRunDirectory, Change, SetUp
from netbench.model.pace import Pace
from netbench.model.paths import Place, StreamPath
from netbench.model.points import HopReading, Hops
from netbench.uut.base import Assignment, Reading, Ready, Site, UnitUnderTest, UutPlan
from netbench.uut.entitling import entitlement_facts, group_changes, planned_way_in, way_in
from netbench.uut.forwarding import await_forwarding, inside_nics
from netbench.uut.guest import Guest
from netbench.uut.guest_counters import readings
from netbench.uut.guest_forwarding import GuestNics, forwarding_commands, guest_mac
from netbench.uut.probe import probe_command
from netbench.uut.qemu_links import bridges, host_places, read_taps, tap_changes, tap_name, tap_points
from netbench.uut.qemu_options import GuestAgentChannel, QemuOptions, SshChannel
from netbench.vmm.acceleration import Acceleration, choose
from netbench.vmm.describe import guest_facts, image_name
from netbench.vmm.qemu_command import (
    VHOST_DEVICE,
    DiskBoot,
    KernelBoot,
    RunFiles,
    VirtualMachine,
    VirtualNic,
    planned_boot,
    qemu_command,
    qemu_program,
    vm_directory,
)
from netbench.vmm.qemu_process import Qemu

_PLANNED_SSH_PORT = 2222
_EMULATED_PACE = Pace(bring_up_s=3.8, trial_s=0.55, idle_s=0.05, load_s=0.55, worker_s=0.07)
_EMULATED_QUIET_TIME_S = 0.2
_QUIET_TIME_S = 0.05


@dataclass(slots=True)
class _Running:
    """What there is of a guest that was started; `guest` once it has booted, and the bridges its host NICs are in."""

    qemu: Qemu
    inside: Connection | None = None
    guest: Guest | None = None
    attached: dict[Place, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Told:
    command: str


class QemuGuest(UnitUnderTest):
    """A virtual machine under QEMU, with KVM where it works, that forwards between two NICs per stream.

    Its entitlement binds all threads of QEMU; those that the option `pin` names run where that says.
    """

    Options: ClassVar[type[BaseModel]] = QemuOptions

    def __init__(self, options: QemuOptions) -> None:
        self._options = options
        self._running: _Running | None = None
        self._acceleration = Acceleration("tcg")
        self._ssh_port = _PLANNED_SSH_PORT

    def check(self, paths: Sequence[StreamPath]) -> None:
        """UsageError for a stream without ingress and egress NICs, and for a disk image that is not there."""
        for path in paths:
            if inside_nics(path)[0].machine is not None:
                raise UsageError(f"stream {path.name}: a guest under QEMU needs NICs of this machine, not of a VM")
        missing = sorted(set(self._options.pin.cpus) - set(present_cpus()))
        if missing:
            raise UsageError(f"pin: this machine has no CPU {missing[0]}; it has {_listed(present_cpus())}")
        disk = Path(self._options.image)
        if self._options.is_disk and not disk.is_file():
            raise UsageError(f"image: there is no disk image {disk}")
        if isinstance(self._options.channel, SshChannel) and not Path(self._options.channel.key).is_file():
            raise UsageError(f"channel: there is no key {self._options.channel.key}")

    def plan(self, assignment: Assignment) -> UutPlan:
        directory = vm_directory(assignment.run_id, f"uut-{assignment.name}")
        boot = self._disk_boot or planned_boot(self._options.image)
        confined = (
            assignment.entitlement.cpus,
            planned_way_in(assignment.entitlement, assignment.run_id, assignment.name),
        )
        machine = self._machine(assignment.paths, self._options.accelerator, assignment.name, boot, *confined)
        nics = {path.name: GuestNics(f"INGRESS-{path.name}", f"EGRESS-{path.name}") for path in assignment.paths}
        told = [
            _Told(f"guest: {' '.join(command.argv)}" + "".join(f"\n    {line}" for line in command.stdin.splitlines()))
            for command in forwarding_commands(assignment.paths, nics, self._options.forward)
        ]
        netns = inside_nics(assignment.paths[0])[0].netns if assignment.paths else None
        started = _Told(shlex.join(qemu_command(machine, RunFiles(directory))))
        return UutPlan(
            steps=(*self._changes(assignment, directory, netns), started, *told),
            needs=self._needs(),
            # A guest image has its own stress-ng, a disk image must have one.
            load_needs=frozenset(),
            pace=_EMULATED_PACE,
            own_kernel=True,
        )

    def _needs(self) -> frozenset[str]:
        needs = {"tun", "bridge", "bridge-nf", qemu_program()}
        if not self._options.is_disk:
            needs.add(f"image:{self._options.image}")
        elif isinstance(self._options.channel, SshChannel):
            needs.add("ssh")
        if self._options.accelerator == "kvm":
            needs.add("kvm")
        return frozenset(needs | ({"vhost"} if self._options.vhost == "on" else set()))

    def provision(self, site: Site) -> None:
        """Make taps and bridges and start QEMU; TestbedError when the guest ends at once."""
        self._site, own = site, site.assignment
        directory = vm_directory(own.run_id, f"uut-{own.name}")
        site.machine.make(self._changes(own, directory, site.host.netns))
        tried = DEFAULT_IMAGE if self._options.is_disk else self._options.image
        self._acceleration = choose(self._options.accelerator, site.host, directory, tried)
        if isinstance(self._options.channel, SshChannel):
            self._ssh_port = free_port(site.host)
        confined = own.entitlement.cpus, way_in(site.host, own.entitlement, own.run_id, own.name)
        machine = self._machine(own.paths, self._acceleration.accelerator, own.name, self._boot(), *confined)
        files = RunFiles(directory)
        self._running = _Running(Qemu(machine, files))
        self._running.qemu.start(site.host)
        self._running.qemu.pin(self._options.pin.vcpus, self._options.pin.io)
        self._running.inside = self._way_in(self._running.qemu, files)

    def ready(self) -> Ready:
        """Return once the guest has booted and forwards; TestbedError says what became of it otherwise."""
        site, running = self._provisioned
        assert running.inside is not None
        running.inside.await_answer(self._options.boot_limit, running.qemu.hopeless)
        running.guest = Guest(running.qemu.guest, running.inside, site.paths, self._options.nic)
        if site.paths:
            running.guest.forward(self._options.forward)
            await_forwarding(site.machine, host_places(site.paths))
            running.attached = bridges(site.machine, site.paths)
            running.guest.await_reception(self._send_into_tap)
        return Ready(
            self._towards(site.paths),
            # A tap's queue holds 1000 frames, and an emulated guest takes its time.
            _EMULATED_QUIET_TIME_S if self._acceleration.emulated else _QUIET_TIME_S,
            running.inside,
            self._describe(running.guest, site),
        )

    def hops(self) -> Hops:
        """The bridges between its NICs and its taps, and the taps."""
        paths = self._provisioned[0].paths
        return Hops(tap_points(paths), {inside_nics(path)[0].netns: "bridge" for path in paths})

    def cpu_s(self) -> dict[str, float]:
        """As the guest's kernel counts it, and what QEMU takes; TestbedError when the guest is not well."""
        qemu, guest = self._ready
        return {"guest": guest.cpu_s(), "host": qemu.cpu_s()}

    def read(self) -> Reading:
        """Counters of taps and of every hop in the guest, and CPU times; TestbedError when the guest is not well."""
        site, running = self._provisioned
        qemu, guest = self._ready
        taps = read_taps(site.machine, site.paths, running.attached, qemu.guest)
        counters = guest.counters()
        inside = list(readings(counters, guest.nics))
        return Reading(tuple(_along(site.paths, taps, inside)), {"guest": counters.cpu_s, "host": qemu.cpu_s()})

    def console(self) -> str:
        """The console of the guest."""
        return self._running.qemu.console() if self._running else ""

    def destroy(self) -> None:
        """End the guest; its taps and bridges are undone with the site's changes."""
        with ExitStack() as stack:
            if self._running is not None:
                stack.callback(self._running.qemu.stop)
                if self._running.inside is not None:
                    stack.callback(self._running.inside.close)
        self._running = None
        super().destroy()

    @property
    def _ready(self) -> tuple[Qemu, Guest]:
        """The guest, if it is ready and runs."""
        _, running = self._provisioned
        if running.guest is None:
            raise TestbedError(f"{running.qemu.guest} is not ready")
        running.qemu.require_running()
        return running.qemu, running.guest

    @property
    def _provisioned(self) -> tuple[Site, _Running]:
        if self._running is None:
            raise TestbedError("the guest is not provisioned")
        return self.site, self._running

    def _towards(self, paths: Sequence[StreamPath]) -> dict[str, str]:
        """Whom frames of each stream are addressed to: the sink through a bridge, the guest itself as a router."""
        bridged = self._options.forward == "bridge"
        return {path.name: path.sink.mac if bridged else guest_mac(path, "ingress") for path in paths}

    def _changes(self, own: Assignment, directory: Path, netns: str | None) -> list[Change]:
        changes: list[Change] = [
            AddRunDirectory(str(directory)),
            *group_changes(own.entitlement, own.run_id, own.name),
        ]
        if netns and isinstance(self._options.channel, SshChannel):
            changes.append(SetUp(netns, "lo"))  # QEMU forwards a port of it to the guest
        return [*changes, *tap_changes(own.paths, self._options.queues, self._towards(own.paths))]

    def _machine(
        self,
        paths: Sequence[StreamPath],
        accelerator: str,
        name: str,
        boot: KernelBoot | DiskBoot,
        host_cpus: tuple[int, ...],
        door: str,
    ) -> VirtualMachine:
        options, vhost = self._options, self._use_vhost()
        nics = tuple(
            VirtualNic(tap_name(path, role), guest_mac(path, role), options.nic, options.queues, vhost)
            for path in paths
            for role in ("ingress", "egress")
        )
        return VirtualMachine(name, boot, accelerator, options.cpus, options.memory, nics, host_cpus, door)

    def _boot(self) -> KernelBoot | DiskBoot:
        if self._disk_boot:
            return self._disk_boot
        image = find_image(self._options.image)
        return KernelBoot(image.kernel, image.initrd)

    @property
    def _disk_boot(self) -> DiskBoot | None:
        if not self._options.is_disk:
            return None
        port = self._ssh_port if isinstance(self._options.channel, SshChannel) else None
        return DiskBoot(Path(self._options.image), self._options.disk_format, port)

    def _use_vhost(self) -> bool:
        wanted = self._options.vhost
        return wanted == "on" or (wanted == "auto" and self._options.nic == "virtio-net-pci" and VHOST_DEVICE.exists())

    def _way_in(self, qemu: Qemu, files: RunFiles) -> Connection:
        name, title = self.site.assignment.name, qemu.guest
        guest: Connection
        match self._options.channel:
            case SshChannel(user=user, key=key, host_key=host_key):
                port, directory = self._ssh_port, files.directory
                guest = SshHost(name, title, self.site.host, directory, port, user, Path(key), host_key)
            case GuestAgentChannel():
                guest = GuestAgentHost(name, title, files.channel)
            case None:
                guest = AgentHost(name, AgentChannel(title, qemu.connect()))
        return Explained(guest, qemu.death_just_now)

    def _send_into_tap(self, path: StreamPath) -> None:
        run_checked(self.site.host, probe_command(tap_name(path, "ingress"), guest_mac(path, "ingress")))

    def _describe(self, guest: Guest, site: Site) -> dict[str, str]:
        options = self._options
        image = options.image if options.is_disk else image_name(options.image)
        facts = guest_facts(site.host, self._acceleration, image, guest.kernel)
        if site.paths:
            facts |= {"nic": options.nic, "queues": str(options.queues), "forward": options.forward}
            if options.nic == "virtio-net-pci":
                facts["vhost"] = "on" if self._use_vhost() else "off"
        facts |= {"cpus": str(options.cpus), "memory": f"{options.memory} MiB"}
        return facts | entitlement_facts(site.assignment.entitlement)


def _along(paths: Sequence[StreamPath], taps: Sequence[HopReading], inside: Sequence[HopReading]) -> list[HopReading]:
    """The readings in the order of the path: tap, guest, tap for each stream, then those that streams share."""
    found = []
    for path in paths:
        found += [one for one in taps if (one.stream, one.hop) == (path.name, "ingress tap")]
        found += [one for one in inside if one.stream == path.name]
        found += [one for one in taps if (one.stream, one.hop) == (path.name, "egress tap")]
    return [*found, *(one for one in inside if not one.stream)]


def present_cpus() -> list[int]:
    """The CPUs of this machine that threads may be bound to."""
    return sorted(os.sched_getaffinity(0))


def _listed(cpus: Sequence[int]) -> str:
    return ", ".join(map(str, cpus))

"""UUT `qemu`: a guest that forwards, its virtual NICs each bridged to a NIC of the host through a tap."""

import shlex
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from netbench.errors import TestbedError, UsageError
from netbench.hosts.base import Host
from netbench.images.library import DEFAULT_IMAGE, find_image
from netbench.links.changes import AddRunDirectory, Change, SetUp
from netbench.links.counters import NicCounters
from netbench.model.paths import StreamPath
from netbench.uut.base import HopReading, Reading, Workplace
from netbench.uut.forwarding import await_forwarding, forwards, inside_nics
from netbench.uut.guest_counters import parse_counters, read_command, readings
from netbench.uut.guest_forwarding import GuestNics, forwarding_commands, guest_mac
from netbench.uut.qemu_links import tap_changes, tap_name
from netbench.uut.qemu_options import GuestAgentChannel, QemuOptions, SshChannel
from netbench.vm.acceleration import Acceleration, choose
from netbench.vm.channel import AgentChannel, ChannelGoneError
from netbench.vm.describe import guest_facts, image_name
from netbench.vm.guest_agent import GuestAgentShell
from netbench.vm.links import list_command, parse_links
from netbench.vm.machine import (
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
from netbench.vm.qemu import Qemu, hello
from netbench.vm.shell import Shell, run_in_guest
from netbench.vm.ssh import SshShell, free_port

_SSH_PORT = 2222
_ROLES = ("ingress", "egress")
_CARRIER_S = 10.0
_POLL_S = 0.05
_BOOT_S = 8.0
_EMULATED_PATIENCE_S = 0.2
_PATIENCE_S = 0.05


class QemuGuest:
    """A virtual machine under QEMU, with KVM where it works, that forwards between two NICs per stream."""

    Options: ClassVar[type[BaseModel]] = QemuOptions

    def __init__(self, options: QemuOptions) -> None:
        self._options = options
        self._workplace: Workplace | None = None
        self._qemu: Qemu | None = None
        self._shell: Shell | None = None
        self._acceleration = Acceleration("tcg")
        self._nics: dict[str, GuestNics] = {}
        self._ssh_port = _SSH_PORT
        self._facts: dict[str, str] = {}

    def check(self, paths: Sequence[StreamPath]) -> None:
        """UsageError for a stream without ingress and egress NICs, and for a disk image that is not there."""
        for path in paths:
            if inside_nics(path)[0].machine is not None:
                raise UsageError(f"stream {path.name}: a guest under QEMU needs NICs of this machine, not of a VM")
        disk = Path(self._options.image)
        if self._options.is_disk and not disk.is_file():
            raise UsageError(f"image: there is no disk image {disk}")
        if isinstance(self._options.channel, SshChannel) and not Path(self._options.channel.key).is_file():
            raise UsageError(f"channel: there is no key {self._options.channel.key}")

    def needs(self) -> frozenset[str]:
        """QEMU, taps and bridges, a guest image, and what its way in needs."""
        needs = {"tun", "bridge", "bridge-nf", qemu_program()}
        if not self._options.is_disk:
            needs.add(f"image:{self._options.image}")
        elif isinstance(self._options.channel, SshChannel):
            needs.add("ssh")
        if self._options.accelerator == "kvm":
            needs.add("kvm")
        return frozenset(needs | ({"vhost"} if self._options.vhost == "on" else set()))

    def commands(self, paths: Sequence[StreamPath]) -> list[str]:
        """The changes to the host, the command that starts QEMU, and what the guest is told."""
        machine = self._machine(paths, self._options.accelerator, "NAME", self._boot(planned=True))
        directory = vm_directory("RUN", "uut-NAME")
        started = shlex.join(qemu_command(machine, RunFiles(directory)))
        nics = {path.name: GuestNics(f"INGRESS-{path.name}", f"EGRESS-{path.name}") for path in paths}
        told = [
            f"guest: {' '.join(command.argv)}" + "".join(f"\n    {line}" for line in command.stdin.splitlines())
            for command in forwarding_commands(paths, nics, self._options.forward)
        ]
        changes = [AddRunDirectory(str(directory)), *self._changes(paths)]
        return [*(change.command for change in changes), started, *told]

    def provision(self, workplace: Workplace) -> None:
        """Make taps and bridges and start QEMU; TestbedError when the guest ends at once."""
        self._workplace = workplace
        host = self._host
        directory = vm_directory(workplace.run_id, f"uut-{workplace.name}")
        workplace.kernel.make([AddRunDirectory(str(directory)), *self._changes(workplace.paths)])
        tried = DEFAULT_IMAGE if self._options.is_disk else self._options.image
        self._acceleration = choose(self._options.accelerator, host, directory, tried)
        if host.netns is None:
            self._ssh_port = free_port()
        machine = self._machine(workplace.paths, self._acceleration.accelerator, workplace.name, self._boot())
        files = RunFiles(directory)
        self._qemu = Qemu(machine, files)
        self._qemu.start(host)
        self._qemu.pin(self._options.pin.vcpus, self._options.pin.io)
        self._shell = self._way_in(self._qemu, files)

    def ready(self) -> None:
        """Return once the guest has booted and forwards; TestbedError says what became of it otherwise."""
        qemu, shell = self._running
        hello(qemu, shell, self._options.boot_limit)
        self._nics = self._names_of_nics()
        for command in forwarding_commands(self._paths, self._nics, self._options.forward):
            run_in_guest(shell, qemu.guest, command.argv, command.stdin.encode())
        self._await_forwarding()
        self._facts = self._describe()

    @property
    def bring_up_s(self) -> float:
        """A boot, emulated for all one knows before."""
        return _BOOT_S

    @property
    def patience_s(self) -> float:
        """A tap's queue holds 1000 frames, and an emulated guest takes its time."""
        return _EMULATED_PATIENCE_S if self._acceleration.emulated else _PATIENCE_S

    def next_hop_mac(self, path: StreamPath) -> str:
        """The sink's MAC through a bridge, the guest's own through a router."""
        return path.sink.mac if self._options.forward == "bridge" else guest_mac(path, "ingress")

    def reset(self) -> None:
        """A kernel that forwards has no state to bring back."""

    def read(self) -> Reading:
        """Counters of taps and of every hop in the guest, and CPU times; TestbedError when the guest is not well."""
        qemu, shell = self._running
        qemu.require_running()
        taps = self._read_taps()
        try:
            text = run_in_guest(shell, qemu.guest, read_command(self._guest_nics))
        except ChannelGoneError as error:
            raise TestbedError(qemu.death_just_now() or str(error)) from error
        counters = parse_counters(text, qemu.guest)
        inside = list(readings(counters, self._nics))
        hops = [
            reading
            for path in self._paths
            for reading in (
                *(one for one in taps if one.stream == path.name and one.hop == "ingress tap"),
                *(one for one in inside if one.stream == path.name),
                *(one for one in taps if one.stream == path.name and one.hop == "egress tap"),
            )
        ]
        shared = [reading for reading in inside if not reading.stream]
        return Reading((*hops, *shared), {"guest": counters.cpu_s, "host": qemu.cpu_s()})

    def facts(self) -> dict[str, str]:
        """Accelerator and why, QEMU's version, NIC model, vCPUs, memory, image and the guest's kernel."""
        return self._facts

    def destroy(self) -> None:
        """End the guest; its taps and bridges are undone with the workplace's changes."""
        with ExitStack() as stack:
            if self._qemu is not None:
                stack.callback(self._qemu.stop)
            if self._shell is not None:
                stack.callback(self._shell.close)
        self._qemu = self._shell = self._workplace = None

    @property
    def _running(self) -> tuple[Qemu, Shell]:
        if self._qemu is None or self._shell is None:
            raise TestbedError("the guest is not provisioned")
        return self._qemu, self._shell

    @property
    def _paths(self) -> tuple[StreamPath, ...]:
        assert self._workplace is not None, "provision() comes first"
        return self._workplace.paths

    @property
    def _host(self) -> Host:
        assert self._workplace is not None, "provision() comes first"
        return self._workplace.hosts[inside_nics(self._paths[0])[0].host]

    def _changes(self, paths: Sequence[StreamPath]) -> list[Change]:
        towards = {path.name: self.next_hop_mac(path) for path in paths}
        changes = list(tap_changes(paths, self._options.queues, towards))
        netns = inside_nics(paths[0])[0].netns
        if netns and isinstance(self._options.channel, SshChannel):
            changes.insert(0, SetUp(netns, "lo"))  # QEMU forwards a port of it to the guest
        return changes

    def _machine(
        self, paths: Sequence[StreamPath], accelerator: str, name: str, boot: KernelBoot | DiskBoot
    ) -> VirtualMachine:
        nics = tuple(
            VirtualNic(
                tap_name(path, role), guest_mac(path, role), self._options.nic, self._options.queues, self._use_vhost()
            )
            for path in paths
            for role in _ROLES
        )
        options = self._options
        return VirtualMachine(name, boot, accelerator, options.cpus, options.memory, nics)

    def _boot(self, *, planned: bool = False) -> KernelBoot | DiskBoot:
        if self._options.is_disk:
            port = self._ssh_port if isinstance(self._options.channel, SshChannel) else None
            return DiskBoot(Path(self._options.image), self._options.disk_format, port)
        if planned:
            return planned_boot(self._options.image)
        image = find_image(self._options.image)
        return KernelBoot(image.kernel, image.initrd)

    def _use_vhost(self) -> bool:
        wanted = self._options.vhost
        return wanted == "on" or (wanted == "auto" and self._options.nic == "virtio-net-pci" and VHOST_DEVICE.exists())

    def _way_in(self, qemu: Qemu, files: RunFiles) -> Shell:
        match self._options.channel:
            case SshChannel(user=user, key=key, host_key=host_key):
                return SshShell(qemu.guest, self._host, files.directory, self._ssh_port, user, Path(key), host_key)
            case GuestAgentChannel():
                return GuestAgentShell(qemu.guest, files.channel)
            case None:
                return AgentChannel(qemu.guest, qemu.connect())

    def _names_of_nics(self) -> dict[str, GuestNics]:
        qemu, _ = self._running
        by_mac = {nic.mac: name for name, nic in self._links().items()}
        try:
            return {
                path.name: GuestNics(by_mac[guest_mac(path, "ingress")], by_mac[guest_mac(path, "egress")])
                for path in self._paths
            }
        except KeyError as error:
            raise TestbedError(
                f"{qemu.guest} has no NIC {error.args[0]}: its kernel has no driver for {self._options.nic}"
            ) from None

    @property
    def _guest_nics(self) -> list[str]:
        return [name for own in self._nics.values() for name in (own.ingress, own.egress)]

    def _links(self) -> dict[str, NicCounters]:
        qemu, shell = self._running
        text = run_in_guest(shell, qemu.guest, list_command())
        try:
            return parse_links(text)
        except (ValueError, LookupError, TypeError) as error:
            raise TestbedError(f"{qemu.guest}: its list of links makes no sense; it needs iproute2") from error

    def _await_forwarding(self) -> None:
        """Taps and their bridges on the host, and the NICs of the guest, which take a moment each."""
        assert self._workplace is not None
        nics = [(path, role, nic) for path in self._paths for role, nic in zip(_ROLES, inside_nics(path), strict=True)]
        taps = [nic.place._replace(interface=tap_name(path, role)) for path, role, nic in nics]
        await_forwarding(self._workplace.kernel, [*(nic.place for _, _, nic in nics), *taps])
        deadline = time.monotonic() + _CARRIER_S
        while not all(forwards(nic) for name, nic in self._links().items() if name in self._guest_nics):
            if time.monotonic() > deadline:
                raise TestbedError(f"{self._running[0].guest}: its NICs have no carrier after {_CARRIER_S:g} s")
            time.sleep(_POLL_S)

    def _read_taps(self) -> list[HopReading]:
        assert self._workplace is not None
        qemu, _ = self._running
        found = []
        for path in self._paths:
            for role, nic in zip(_ROLES, inside_nics(path), strict=True):
                place = nic.place._replace(interface=tap_name(path, role))
                counters = self._workplace.kernel.read_nics([place]).get(place)
                if counters is None:
                    raise TestbedError(f"{qemu.guest}: its tap {place.interface} is gone")
                # What the host sends into a tap, the guest receives.
                direction = "tx" if role == "ingress" else "rx"
                for counter, kind in ((direction, "passed"), (f"{direction}_dropped", "dropped")):
                    found.append(HopReading(path.name, f"{role} tap", counter, kind, getattr(counters, counter)))
        return found

    def _describe(self) -> dict[str, str]:
        qemu, shell = self._running
        options = self._options
        image = options.image if options.is_disk else image_name(options.image)
        kernel = run_in_guest(shell, qemu.guest, ("uname", "-r")).strip()
        facts = guest_facts(self._host, self._acceleration, image, kernel)
        facts |= {"nic": options.nic, "queues": str(options.queues), "forward": options.forward}
        if options.nic == "virtio-net-pci":
            facts["vhost"] = "on" if self._use_vhost() else "off"
        return facts | {"cpus": str(options.cpus), "memory": f"{options.memory} MiB"}

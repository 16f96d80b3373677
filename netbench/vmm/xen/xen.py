"""VMM `xen`: domains of Xen; the UUT's machine is domain 0: a VM of netbench's own, or this machine.

The console of a domain shows its output during the boot, and then carries the connection to its agent.
"""

import json
import re
import shlex
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import model_validator

from netbench.errors import KeyedError, MissingError, TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.guest_agent.channel import AgentChannel
from netbench.hosts.guest_agent.host import AgentHost
from netbench.hosts.host_wrappers import outside
from netbench.hosts.relay import piped
from netbench.hosts.trusted_code import search_path
from netbench.images.library import DEFAULT_IMAGE, find_image
from netbench.linux.changes import AddRunDirectory, Change
from netbench.linux.requirements import Facility
from netbench.model.fields import Memory, Vcpus
from netbench.model.paths import StreamPath
from netbench.model.topology_specs import Cpus
from netbench.model.virtualisation import DurationEstimate, NicKind, Virtualisation
from netbench.vmm.attachment import Attachment
from netbench.vmm.base import GuestOptions, GuestSpec, RunningGuest, Vmm
from netbench.vmm.connected_guest import ConnectedGuest, plain, stopped_on_error, troubles_in
from netbench.vmm.xen.domain import (
    DISC,
    INITRD,
    KERNEL,
    REMEDY,
    AddDomain,
    DomainState,
    attachment_of,
    destroy,
    domain_0,
    listed,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_TTY_S = 20.0
_POLL_S = 0.2
_BOOT_BYTES = 1 << 18
_RECENT_BYTES = 1 << 13
_SYSRQ = b"\x0f"  # on the terminal that is the console: hvc_poll in the kernel's drivers/tty/hvc/hvc_console.c
# Relays bytes unchanged in both directions. Not cat: busybox's keeps a pipe locked while it waits for a terminal. None
# of the processes leads its session, which would make the terminal its controlling one.
_RELAY = (
    'stty -F "$0" raw -echo || exit; dd if="$0" bs=4096 status=none & '
    'reader=$!; dd of="$0" bs=4096 status=none; kill "$reader"'
)


class ConsoleSocket(socket.socket):
    """A connection that stores its input: all of it until booted(), then only the latest."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(fileno=connected.detach())
        self._boot = bytearray()
        self._recent = bytearray()
        self._booting = True

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        data = super().recv(size, flags)
        if self._booting:
            self._boot += data[: _BOOT_BYTES - len(self._boot)]
        else:
            self._recent = (self._recent + data)[-_RECENT_BYTES:]
        return data

    def sendall(self, data: "ReadableBuffer", flags: int = 0, /) -> None:
        """Send as any socket does, with ^O doubled: the kernel's console takes a single one for a SysRq's start."""
        super().sendall(bytes(data).replace(_SYSRQ, 2 * _SYSRQ), flags)

    def booted(self) -> None:
        """End the boot: all later input comes from the agent."""
        self._booting = False

    def words(self, *, recent: bool = False) -> str:
        """Return the lines of text received; with `recent`, also those among the agent's messages."""
        return plain(bytes(self._boot + (self._recent if recent else b"")).decode(errors="replace"))


def console_of(host: Host, number: int, title: str, death: Callable[[], str]) -> ConsoleSocket:
    """Return a connection to the console of a domain, by its number; TestbedError if Xen created none."""
    terminal = ""

    def created() -> bool:
        nonlocal terminal
        done = host.run(["xenstore-read", f"/local/domain/{number}/console/tty"])
        terminal = done.stdout.strip() if done.exit_code == 0 else ""
        return bool(terminal)

    if not wait_until(created, _TTY_S, _POLL_S):
        why = death() or "does xenconsoled run?"
        raise TestbedError(f"{title}: Xen created no console for it within {_TTY_S:g} s: {why}")
    return ConsoleSocket(piped(host.spawn(["sh", "-c", _RELAY, terminal])))


Mode = Literal["pv", "pvh", "hvm"]
NIC_KINDS: Mapping[str, NicKind] = {"vif": "paravirtual", "e1000": "emulated", "rtl8139": "emulated"}


class XenOptions(GuestOptions):
    """A domain of Xen that forwards between two virtual NICs per stream.

    NICs other than `vif` are emulated by a QEMU in domain 0. Memory is rounded to MiB.
    """

    mode: Mode = "pv"
    """Kind of domain."""
    nic: Literal["vif", "e1000", "rtl8139"] = "vif"
    """Model of the virtual NICs; others than vif with hvm only."""
    cpus: Vcpus = 1
    """vCPUs."""
    memory: Memory = 256
    """Memory; at least 200M to boot."""
    pin: tuple[Cpus, ...] = ()
    """For each vCPU a list of CPUs of the machine."""
    image: str = DEFAULT_IMAGE
    """Guest image."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.nic != "vif" and self.mode != "hvm":
            raise KeyedError("nic", f"a domain of mode {self.mode} has only vif; {self.nic} needs mode: hvm")
        if len(self.pin) > self.cpus:
            raise KeyedError("pin", f"names CPUs for {len(self.pin)} vCPUs; the guest has {self.cpus}")
        if "/" in self.image:
            raise KeyedError("image", "name a guest image that `netbench image build` made, no path")
        return self


# netbench adds the NIC to its own bridge, in any namespace: no hotplug script of Xen may do that.
_NO_SCRIPT = "/bin/true"
_USUAL_WEIGHT = 256  # of a domain (xl.cfg(5)); that of a control group is 100


def domain_config(spec: GuestSpec, options: XenOptions) -> str:
    """Return the file for `xl create` (xl.cfg(5)), with KERNEL and INITRD, or DISC, as placeholders of paths."""
    boot: dict[str, object] = {"kernel": KERNEL, "ramdisk": INITRD, "cmdline": kernel_words(options)}
    if options.mode == "hvm":
        # Reads in large blocks; QEMU's own kernel loader takes minutes under Xen, byte by byte.
        drive = f"if=none,id=boot,media=cdrom,readonly=on,format=raw,file={DISC}"
        disc = ["-device", "ahci,id=discs", "-drive", drive, "-device", "ide-cd,bus=discs.0,drive=boot,bootindex=0"]
        # No network boot: on a machine without iPXE's files such a NIC would be missing otherwise.
        no_rom = [] if options.nic == "vif" else ["-global", f"{options.nic}.romfile="]
        boot = {"device_model_args_hvm": [*disc, *no_rom], "vga": "none", "vnc": 0, "usb": 0}
    kind = ("type=vif" if options.nic == "vif" else f"type=ioemu,model={options.nic}",) if options.mode == "hvm" else ()
    settings = {
        "name": spec.own_netns,
        "type": options.mode,
        **boot,
        "vcpus": options.cpus,
        "memory": options.memory,
        "cpus": _affinity(spec, options),
        "cpu_weight": None if spec.weight is None else max(1, round(_USUAL_WEIGHT * spec.weight / 100)),
        "cap": None if spec.limit is None else max(1, round(100 * spec.limit)),
        "vif": [",".join((f"mac={nic.mac}", f"script={_NO_SCRIPT}", *kind)) for nic in spec.nics],
        # The domain stays, so that netbench can see how it ended.
        **dict.fromkeys(("on_poweroff", "on_reboot", "on_crash"), "preserve"),
        # Otherwise Xen emulates RDTSCP, which fails on a CPU emulated by QEMU.
        "tsc_mode": None if options.mode == "pv" else "native",
    }
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items() if value is not None)


def kernel_words(options: XenOptions) -> str:
    """Return the command line of its kernel; with emulated NICs, it stops Linux from unplugging them.

    `pci=noearly` avoids two early scans of all 256 PCI buses. Each read of an emulated PC's register wakes domain 0,
    and the scans take most of a minute on emulated CPUs.
    """
    words = "console=hvc0 quiet panic=-1 no_timer_check netbench.channel=/dev/hvc0"
    if options.mode == "hvm":
        words += " pci=noearly"
    return words if options.nic == "vif" else f"{words} xen_emul_unplug=never"


def _affinity(spec: GuestSpec, options: XenOptions) -> list[str] | None:
    """Return the CPUs of each vCPU; None: any."""
    everywhere = ",".join(map(str, spec.host_cpus)) or "all"
    pinned = [",".join(map(str, cpus)) or everywhere for cpus in options.pin]
    each = [*pinned, *[everywhere] * (options.cpus - len(pinned))]
    return None if set(each) == {"all"} else each


_IMITATED_PC_S = 90.0  # boot time with emulated devices: each access to one wakes domain 0
_LOOK_S = 2.0  # `xl list` takes as much of domain 0's CPU time as some frames
DOMAIN_0 = Path("/proc/xen/capabilities")
_INFO = re.compile(r"^(xen_version|xen_scheduler)\s*: (.*)$", re.MULTILINE)


def find_xl(_: str) -> str:
    """Return the path of `xl`; MissingError without it, or if this machine is not domain 0 of Xen."""
    path = shutil.which("xl", path=search_path())
    if path is None:
        raise MissingError("xl is not on this host")
    if not DOMAIN_0.exists() or "control_d" not in DOMAIN_0.read_text():
        raise MissingError(f"this host is no domain 0 of Xen (according to {DOMAIN_0})")
    return path


class Xen(Vmm):
    """A domain of Xen: PV, PVH or HVM; its NICs are bridged to NICs of domain 0, which works for every domain.

    Its weight and limit become weight and cap of Xen's scheduler. Its CPU time is that of its vCPUs. The back ends of
    its NICs run in domain 0, whose CPU time is that of the machine.
    """

    options: XenOptions
    Options: ClassVar[type[GuestOptions]] = XenOptions
    kinds = (Virtualisation.PARA, Virtualisation.HARDWARE)
    nic_models = NIC_KINDS
    supports = replace(Vmm.supports, attachments=("vif", "tap"), pinning=("the whole guest", "each vCPU"))
    applies_cpu_shares: bool = True
    pace: ClassVar[DurationEstimate] = DurationEstimate(
        bring_up_s=25.0, trial_s=3.0, idle_s=0.3, load_s=1.0
    )  # emulated
    may_need = (Facility("xl", "domains of Xen", REMEDY, find_xl, signs=("xl", str(DOMAIN_0))),)

    def pace_of(self, paths: Sequence[StreamPath]) -> DurationEstimate:
        pace = super().pace_of(paths)
        return replace(pace, bring_up_s=_IMITATED_PC_S) if self.options.mode == "hvm" else pace

    def needs(self) -> frozenset[str]:
        return frozenset({"xl", f"image:{self.options.image}"})

    @property
    def virtualisation(self) -> Virtualisation:
        return Virtualisation.PARA if self.options.mode == "pv" else Virtualisation.HARDWARE

    def attachment(self, spec: GuestSpec) -> Attachment:
        return attachment_of(spec.own_netns, self.options.nic, [nic.interface for nic in spec.nics])

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        """Yield the changes that create the domain, paused: its NICs exist only then."""
        yield AddRunDirectory(str(spec.directory))
        options, file = self.options, str(spec.directory / "domain.cfg")
        disc_words = kernel_words(options) if options.mode == "hvm" else ""
        yield AddDomain(spec.own_netns, file, domain_config(spec, options), options.image, disc_words)

    def command(self, spec: GuestSpec) -> str:
        return shlex.join(["xl", "unpause", spec.own_netns])

    def start(self, spec: GuestSpec, host: Host) -> RunningGuest:
        guest = XenGuest(spec, host, self.options)
        with stopped_on_error(guest):
            run_checked(outside(host), ["xl", "unpause", spec.own_netns])
        return guest


class XenGuest(ConnectedGuest):
    """A domain, and the connection to its agent over its console; it is still paused when it is made."""

    quiet_time_s = 0.2

    def __init__(self, spec: GuestSpec, host: Host, options: XenOptions) -> None:
        super().__init__(spec, host)
        self._options = options
        self._looked_s = 0.0
        self._socket = console_of(self._machine, self._domain.number, spec.title, self.death)
        self.connect_by(AgentHost(spec.name, AgentChannel(spec.title, self._socket)), {})

    def await_answer(self, limit_s: float) -> None:
        super().await_answer(limit_s)
        self._socket.booted()

    def death(self) -> str:
        domain = listed(self._machine, self.spec.own_netns)
        if domain is None:
            return self._gone
        if not domain.trouble:
            return ""
        # A domain does not report that it is paused: its last output is the agent's.
        words = "" if domain.is_paused else self._last_words()
        return f"{self.spec.title}: its domain {domain.trouble}" + (f": {words}" if words else "")

    def hopeless(self) -> str:
        """Return why it will never answer; checked every 2 s only."""
        if time.monotonic() - self._looked_s < _LOOK_S:
            return ""
        self._looked_s = time.monotonic()
        troubles = troubles_in(self._socket.words())
        return f"{self.spec.title}: {troubles[0]}" if troubles else self.death()

    def end_just_now(self) -> str:
        return self.death()

    def cpu_s(self) -> float:
        """Return the CPU time of its vCPUs in seconds; Xen's resolution is 0.1 s."""
        return self._domain.cpu_s

    def memory_bytes(self) -> int:
        return self._domain.memory_mib << 20

    def console(self) -> str:
        return self._socket.words(recent=True)

    def facts(self) -> dict[str, str]:
        options = self._options
        info = dict(_INFO.findall(run_checked(self._machine, ["xl", "info"])))
        return {
            "mode": options.mode,
            "xen": info.get("xen_version", "unknown"),
            "scheduler": info.get("xen_scheduler", "unknown"),
            "dom0_vcpus": str(domain_0(self._machine).vcpus),
            "image": find_image(options.image).fact,
            **({"nic": options.nic} if self.spec.nics else {}),
            **({"pin": " ".join(",".join(map(str, cpus)) for cpus in options.pin)} if options.pin else {}),
            "cpus": str(options.cpus),
            "memory": f"{options.memory} MiB",
        }

    def stop(self) -> None:
        """Destroy it; harmless when it is gone."""
        with suppress(TestbedError):  # domain 0 has gone or does not answer; undoing AddDomain reports it
            destroy(self._machine, self.spec.own_netns)
        super().stop()

    @property
    def _gone(self) -> str:
        return f"{self.spec.title}: its domain {self.spec.own_netns} is gone"

    @property
    def _domain(self) -> DomainState:
        domain = listed(self._machine, self.spec.own_netns)
        if domain is None:
            raise TestbedError(self._gone)
        return domain

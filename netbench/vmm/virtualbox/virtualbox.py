"""VMM `virtualbox`: guests under VirtualBox."""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Completed, Host, Process, exists, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.guest_agent.channel import AgentChannel
from netbench.hosts.guest_agent.host import AgentHost
from netbench.hosts.host_wrappers import NamespaceHost, confined, outside
from netbench.hosts.pipes import Tail, end
from netbench.hosts.relay import connect
from netbench.hosts.trusted_code import search_path
from netbench.images.library import DEFAULT_IMAGE, find_image
from netbench.images.on_host import require_in_vm
from netbench.linux.changes import AddNamespace, AddRunDirectory, AddVeth, Change, SetSysctl, SetUp
from netbench.linux.requirements import Command, Facility
from netbench.model.fields import Memory, Vcpus
from netbench.model.virtualisation import DurationEstimate, NicKind, Virtualisation
from netbench.vmm.attachment import Attachment, host_mac
from netbench.vmm.base import ISOLATED, GuestOptions, GuestSpec, RunningGuest, Vmm, is_own_vm
from netbench.vmm.boot_disc import LOADER, disc_of
from netbench.vmm.connected_guest import LAST_WORDS_S, ConnectedGuest, plain, troubles_in
from netbench.vmm.qemu.options import switch

# The script that starts a guest; it is copied to the guest's machine.
SCRIPT = Path(__file__).with_name("guest.sh")
# I/O address and interrupt of the guest's two serial ports, as on a PC: the console, and that of its agent.
_CONSOLE_PORT, _AGENT_PORT = ("0x3f8", "4"), ("0x2f8", "3")
# For the guest's kernel. An emulated CPU on a busy host can be too slow for the timer check, which then panics.
KERNEL_WORDS = "console=ttyS0,115200 quiet panic=-1 no_timer_check netbench.channel=/dev/ttyS1"

NIC_KINDS: Mapping[str, NicKind] = {"virtio": "paravirtual", "82540EM": "emulated"}


class VirtualBoxOptions(GuestOptions):
    """A guest that forwards between two virtual NICs per stream.

    With `auto`, `nested_paging` is off and `paravirt_provider` is `none` if QEMU emulates the CPU of its machine,
    because a guest would hang otherwise. Elsewhere they are `on` and `default`, VirtualBox's own. Memory is rounded to
    MiB.

    A guest that is late gets more timer interrupts, to catch up (TMCalcHostTimerFrequency in VirtualBox's source). On
    an emulated CPU these take so long that it gets even later: it may need more than ten minutes to boot.
    """

    nic: Literal["virtio", "82540EM"] = "virtio"
    """Model of the virtual NICs."""
    cpus: Vcpus = 1
    """vCPUs."""
    memory: Memory = 256
    """Memory; at least 200M to boot."""
    cpu_cap: Annotated[int, Field(strict=True, ge=1, le=100)] = 100
    """Percent of a CPU that each vCPU may use."""
    nested_paging: Annotated[Literal["auto", "on", "off"], BeforeValidator(switch)] = "auto"
    """auto: off where the CPU of the machine is emulated, on elsewhere."""
    paravirt_provider: Literal["auto", "none", "default", "legacy", "minimal", "hyperv", "kvm"] = "auto"
    """Paravirtual interface; auto: none where the CPU of the machine is emulated, default elsewhere."""
    max_timer_hz: Literal["auto"] | Annotated[int, Field(strict=True, ge=100)] = "auto"
    """Limit of the timer that interrupts the guest, in Hz; auto: 500 where the CPU is emulated, 20000 elsewhere."""
    image: Annotated[str, Field(pattern=r"^[^/]+$")] = DEFAULT_IMAGE
    """Guest image."""

    def resolved(self, *, emulated: bool) -> "VirtualBoxOptions":
        """Return the same without `auto`, on a machine whose CPU may be `emulated`."""
        chosen = (
            {"nested_paging": "off", "paravirt_provider": "none", "max_timer_hz": 500}
            if emulated
            else {"nested_paging": "on", "paravirt_provider": "default", "max_timer_hz": 20000}
        )
        return self.model_copy(update={key: value for key, value in chosen.items() if getattr(self, key) == "auto"})


def box_command(spec: GuestSpec, options: VirtualBoxOptions, disc: str) -> list[str]:
    """Return the foreground command that starts a guest from a CD image; all its processes end with the command.

    It must run in the network namespace of the interfaces that the NICs are bridged to. The file `pid` in the guest's
    directory gets the id of their common ancestor.
    """
    own = spec.directory
    script = ["sh", str(own / SCRIPT.name), str(own), spec.name, disc, str(options.max_timer_hz)]
    started = confined([*ISOLATED, *script, *_settings(spec, options)], spec.host_cpus, spec.cgroup_procs)
    return ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(own / "pid"), *started]


def box_summary(spec: GuestSpec, options: VirtualBoxOptions, disc: str) -> str:
    """Return the same for readers: the options that the VM is made with."""
    words = " ".join(_settings(spec, options))
    return f"VBoxManage modifyvm {spec.name} {words} && VBoxHeadless --startvm {spec.name} # from {disc}"


def _settings(spec: GuestSpec, options: VirtualBoxOptions) -> Iterator[str]:
    """Yield the options of `VBoxManage modifyvm` (VirtualBox User Manual, VBoxManage)."""
    yield from ("--memory", str(options.memory), "--cpus", str(options.cpus))
    yield from ("--cpu-execution-cap", str(options.cpu_cap))
    yield from ("--nested-paging", options.nested_paging, "--paravirt-provider", options.paravirt_provider)
    yield from ("--graphicscontroller", "none", "--audio-enabled", "off", "--rtc-use-utc", "on")
    yield from ("--boot1", "dvd", "--boot2", "none", "--boot3", "none", "--boot4", "none")
    yield from ("--uart1", *_CONSOLE_PORT, "--uart-mode1", "file", str(spec.directory / "console"))
    yield from ("--uart2", *_AGENT_PORT, "--uart-mode2", "server", str(spec.directory / "agent"))
    for number, nic in enumerate(spec.nics, start=1):
        yield from (f"--nic{number}", "bridged", f"--bridge-adapter{number}", nic.interface)
        yield from (f"--nic-type{number}", options.nic, f"--mac-address{number}", nic.mac.replace(":", ""))
        # Receive frames to other addresses too, as forwarding requires.
        yield from (f"--nic-promisc{number}", "allow-all")


# Each poll of a machine with an emulated CPU takes some of its CPU time.
_POLL_S = 1.0
_CONSOLE_EVERY_S = 3.0
_END_S = 20.0
# On an emulated CPU a command takes seconds, and its output comes over a serial line.
_PATIENCE = 6


class PatientHost(AgentHost):
    """A guest whose commands may take several times as long as those of others."""

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        return super().run(argv, stdin=stdin, timeout_s=_PATIENCE * timeout_s)


class VirtualBoxGuest(ConnectedGuest):
    """A virtual machine, from its start to stop(), with all VirtualBox processes that serve it."""

    quiet_time_s = 0.5  # slow on an emulated CPU
    process: Process

    def __init__(
        self, spec: GuestSpec, host: Host, options: VirtualBoxOptions, disc: str, facts: Mapping[str, str]
    ) -> None:
        super().__init__(spec, host)
        self._directory = spec.directory
        self._facts = facts
        self._headless_pid = 0  # of VBoxHeadless, once it is needed
        self._written = ""
        self._next_look = 0.0  # by time.monotonic()
        self._machine.write(str(self._directory / SCRIPT.name), SCRIPT.read_text())
        isolated = NamespaceHost(self._machine, spec.own_netns)
        self.process = isolated.spawn(box_command(spec, options, disc))
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._output = [Tail(self.process.stderr), Tail(self.process.stdout)]

    def await_answer(self, limit_s: float) -> None:
        """Return once its agent answers; TestbedError when it does not, or as soon as it cannot any more."""
        until = time.monotonic() + limit_s
        channel = str(self._directory / "agent")
        if not wait_until(lambda: exists(self._machine, channel) or bool(self.death()), limit_s, _POLL_S):
            raise TestbedError(f"{self.spec.title}: VirtualBox did not start it within {limit_s:g} s")
        if death := self.death():
            raise TestbedError(death)
        agent = AgentChannel(self.spec.title, connect(self._machine, channel))
        self.connect_by(PatientHost(self.spec.name, agent), self._facts)
        try:
            super().await_answer(max(0.0, until - time.monotonic()))
        except TestbedError as error:
            if self.death() or troubles_in(self._written):
                raise
            last = self._last_words()
            output = f"last line of its console: {last}" if last else "its console is empty"
            raise TestbedError(f"{error}; {output}") from error

    def death(self) -> str:
        code = self.process.poll()
        if code is None:
            return ""
        output = [line for tail in self._output for line in tail.text(LAST_WORDS_S).splitlines() if line.strip()]
        # unshare reports only that the others were killed.
        lines = [line for line in output if not line.startswith("unshare:")]
        words = ([line for line in lines if "error" in line.lower()] or lines[-1:] or [""])[0]
        return f"{self.spec.title}: VirtualBox ended with exit code {code}" + (f": {words}" if words else "")

    def hopeless(self) -> str:
        """Return why it will never answer, empty while it still may; called several times a second."""
        if time.monotonic() <= self._next_look:
            return self.death()
        self._next_look = time.monotonic() + _CONSOLE_EVERY_S
        return super().hopeless()

    def console(self) -> str:
        with suppress(TestbedError):  # its machine has gone, or it was ended: keep the last output
            self._written = plain(self._machine.read(str(self._directory / "console")))
        return self._written

    def stop(self) -> None:
        self.console()
        try:
            super().stop()
        finally:
            self.process.kill()
            end(self.process, _END_S)

    @property
    def _pid(self) -> int:
        """The process id of VBoxHeadless, unshare's first child."""
        if not self._headless_pid:
            top = self._machine.read(str(self._directory / "pid")).strip()
            self._headless_pid = int(self._machine.read(f"/proc/{top}/task/{top}/children").split()[0])
        return self._headless_pid


_PROGRAMS = ("VBoxManage", "VBoxHeadless")
_DEVICE = Path("/dev/vboxdrv")
_MODULES = ("vboxdrv", "vboxnetflt")
_LOADER_PACKAGES = ("isolinux", "syslinux-common")
_EMULATED_CPU = "QEMU TCG CPU"  # as /proc/cpuinfo calls the model `max`
_IN_A_VM = "or measure inside a VM: topology lab-virtualbox, `netbench image build --name virtualbox`"


def find_virtualbox(_: str) -> str:
    """Return the path of VBoxManage; MissingError without VirtualBox or without the device of its kernel module."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=search_path()) is None]
    if missing:
        raise MissingError(f"{missing[0]} is not on this host")
    if not _DEVICE.exists():
        raise MissingError(f"this host has no {_DEVICE}: the kernel module vboxdrv is not loaded")
    return str(shutil.which(_PROGRAMS[0], path=search_path()))


def find_loader(_: str) -> str:
    """Return the boot loader for a guest's CD; MissingError without it."""
    for path in LOADER:
        if not Path(path).exists():
            raise MissingError(f"this host has no {path}")
    return LOADER[0]


class VirtualBox(Vmm):
    """A guest under VirtualBox, booted from a CD: its virtual NICs are bridged by vboxnetflt.

    Its entitlement applies to all threads of VirtualBox; the option `cpu_cap` is VirtualBox's own limit.
    """

    options: VirtualBoxOptions
    Options: ClassVar[type[GuestOptions]] = VirtualBoxOptions
    kinds = (Virtualisation.HARDWARE,)
    nic_models = NIC_KINDS
    supports = replace(Vmm.supports, attachments=("veth",))
    may_need = (
        Facility(
            "virtualbox",
            "guests of VirtualBox",
            f"apt-get install virtualbox (in contrib of Debian unstable), {_IN_A_VM}",
            find_virtualbox,
            signs=(*_PROGRAMS, str(_DEVICE), *(f"/sys/module/{name}" for name in _MODULES)),
        ),
        Command("unshare", "util-linux", "guests of VirtualBox", optional=True),
        Command("xorriso", "xorriso", "the CDs that guests of VirtualBox boot from", optional=True),
        Facility(
            "isolinux",
            "the CDs that guests of VirtualBox boot from",
            f"apt-get install {' '.join(_LOADER_PACKAGES)}",
            find_loader,
            signs=LOADER,
            packages=_LOADER_PACKAGES,
        ),
    )
    # Assumes an emulated CPU, because it is not known yet.
    pace: ClassVar[DurationEstimate] = DurationEstimate(
        bring_up_s=150.0, trial_s=25.0, idle_s=2.0, load_s=10.0, worker_s=1.0
    )

    def needs(self) -> frozenset[str]:
        return frozenset({"virtualbox", "unshare", "xorriso", "isolinux", f"image:{self.options.image}"})

    def attachment(self, spec: GuestSpec) -> Attachment:
        """Return a pair of virtual Ethernet interfaces: VirtualBox bridges the guest's NIC to the end in a namespace.

        That end has a MAC address in addition to the guest's, and VirtualBox does not set it up.
        """

        def changes(netns: str | None, interface: str, mac: str, nic: str) -> Iterator[Change]:
            far_mac = f"02:6e:69{mac[8:]}"
            yield AddVeth(netns, interface, host_mac(mac), spec.own_netns, interface, far_mac)
            yield SetUp(spec.own_netns, interface)

        return Attachment("veth", frozenset({"veth", "netns"}), changes)

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        yield AddRunDirectory(str(spec.directory))
        yield AddNamespace(spec.own_netns)
        # Otherwise its end of each pair would send its own IPv6 frames.
        yield SetSysctl(spec.own_netns, "net.ipv6.conf.default.disable_ipv6", "1", optional=True)

    def command(self, spec: GuestSpec) -> str:
        return box_summary(spec, self.options.resolved(emulated=False), f"{self.options.image}.iso")

    def start(self, spec: GuestSpec, host: Host) -> RunningGuest:
        machine = outside(host)
        if is_own_vm(host):
            require_in_vm(host, "virtualbox", *_PROGRAMS)
            for module in _MODULES:
                run_checked(machine, ["modprobe", module])
        image = find_image(self.options.image)
        options = self.options.resolved(emulated=_EMULATED_CPU in machine.read("/proc/cpuinfo"))
        facts = {
            "virtualbox": run_checked(host, ["VBoxManage", "--version"]).strip(),
            "image": image.fact,
            **({"nic": options.nic} if spec.nics else {}),
            "cpus": str(options.cpus),
            "memory": f"{options.memory} MiB",
            "cpu_cap": f"{options.cpu_cap} %",
            "nested_paging": options.nested_paging,
            "paravirt_provider": options.paravirt_provider,
            "max_timer_hz": str(options.max_timer_hz),
        }
        disc = disc_of(image, KERNEL_WORDS, host, spec.directory)
        return VirtualBoxGuest(spec, host, options, disc, facts)

"""Choose between KVM and emulation: KVM is used only where a guest has booted under it.

An openable /dev/kvm is no proof: inside another hypervisor, guests may still crash or hang. The result of a probe is
stored on its machine, for each image, until the next boot.
"""

import json
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from netbench.errors import MissingError, NetbenchError, TestbedError
from netbench.hosts.base import Host, exists, machine_name, run_checked
from netbench.hosts.guest_agent.channel import AgentChannel
from netbench.hosts.guest_agent.host import AgentHost
from netbench.hosts.host_wrappers import outside
from netbench.hosts.local import LocalHost
from netbench.images.library import DEFAULT_IMAGE, Image, find_image
from netbench.images.on_host import brought
from netbench.linux.locks import STATE_DIRECTORY
from netbench.vmm.base import GuestSpec, is_own_vm
from netbench.vmm.connected_guest import stopped_on_error
from netbench.vmm.qemu.command import KernelBoot, VirtualMachine
from netbench.vmm.qemu.process import QemuGuest

KVM_DEVICE = Path("/dev/kvm")
_CPUINFO = Path("/proc/cpuinfo")
_MODULES = {"svm": "kvm_amd", "vmx": "kvm_intel"}  # CPU flag → kernel module
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
# A guest boots in 1 to 2 s under KVM, and in 10 s under nested KVM.
PROBE_LIMIT_S = 20.0
PROBE_IN_VM_LIMIT_S = 100.0  # the CPU of such a VM is usually emulated
CACHE = STATE_DIRECTORY / "acceleration.json"
_BOOTS = "a guest boots under it"


@dataclass(frozen=True, slots=True)
class Acceleration:
    """How guests' CPUs run on this host: `kvm` or `tcg` (emulated); `why` is a phrase that explains emulation."""

    accelerator: str
    why: str = ""

    @property
    def emulated(self) -> bool:
        """Whether results describe the emulator rather than the VMM."""
        return self.accelerator == "tcg"


def choose(accelerator: str, host: Host, directory: Path, image_name: str = DEFAULT_IMAGE) -> Acceleration:
    """Return how a guest runs with `auto`, `kvm` or `tcg`; KVM is probed once per boot of the host.

    `directory` is for the sockets of the probe. MissingError when `kvm` is required and does not work.
    """
    if accelerator == "tcg":
        return Acceleration("tcg", "the topology asks for emulation")
    if accelerator == "kvm" and is_own_vm(host) and exists(host, str(KVM_DEVICE)):
        return Acceleration("kvm")  # in a VM of netbench, a probe takes as long as booting the guest itself
    available = _available(host, directory, image_name)
    if accelerator == "kvm" and available.emulated:
        raise MissingError(f"accelerator: kvm is not possible: {available.why}; use auto or tcg")
    return available


def try_kvm(image_name: str) -> str:
    """Boot a guest under KVM and return the result as `netbench doctor` prints it.

    MissingError when no guest boots; TestbedError when KVM could not be tried.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="netbench-kvm-") as directory:
            available = choose("auto", LocalHost("local", "requirements"), Path(directory), image_name)
    except NetbenchError as error:
        raise TestbedError(f"not tried: {error}") from error
    if available.emulated:
        raise MissingError(available.why)
    return _BOOTS


def recall_kvm(image_name: str) -> str:
    """Return the same without a try, from an earlier probe and /dev/kvm; empty when the result is unknown."""
    if not KVM_DEVICE.exists():
        raise MissingError("this host has no /dev/kvm")
    try:
        earlier = remembered(LocalHost("local", "requirements"), find_image(image_name))
    except MissingError:  # the image is missing, so nothing was tried
        return ""
    if earlier and earlier.emulated:
        raise MissingError(earlier.why)
    return _BOOTS if earlier else ""


def kvm_remedy(cpuinfo: Path = _CPUINFO) -> str:
    """Return the remedy for missing KVM: loading the module of the CPU, or another machine."""
    flags = set(cpuinfo.read_text().split())
    module = next((module for flag, module in _MODULES.items() if flag in flags and not KVM_DEVICE.exists()), "")
    if module:
        return f"modprobe {module}"
    elsewhere = "use a machine, or an outer VM, with hardware virtualisation"
    return f"{elsewhere}; until then guests are emulated, except those of topology lab-kvm, in a VM that has it"


def _available(host: Host, directory: Path, image_name: str) -> Acceleration:
    if not exists(host, str(KVM_DEVICE)):
        return Acceleration("tcg", f"{outside(host) if machine_name(host) else 'this host'} has no /dev/kvm")
    try:
        image = find_image(image_name)
    except MissingError as error:
        return Acceleration("tcg", f"/dev/kvm exists, but cannot be tried: {error}")
    result = remembered(host, image)
    if result is None:
        limit_s = PROBE_IN_VM_LIMIT_S if is_own_vm(host) else PROBE_LIMIT_S
        result = probe(host, brought(image, host), directory, limit_s)
        remember(host, image, result)
    return result


def probe(host: Host, image: Image, directory: Path, limit_s: float = PROBE_LIMIT_S) -> Acceleration:
    """Boot `image` under KVM and return the result; the sockets are in a new directory in `directory`."""
    spec = GuestSpec("kvm-probe", directory / "kvm-probe")
    run_checked(host, ["mkdir", str(spec.directory)])
    guest = QemuGuest(spec, VirtualMachine(spec.name, KernelBoot(image.kernel, image.initrd), "kvm"), host)
    try:
        with stopped_on_error(guest):
            guest.start()
            guest.connect_by(AgentHost(spec.name, AgentChannel(spec.title, guest.channel())), {})
            guest.await_answer(limit_s)
        guest.stop()
    except TestbedError as error:
        return Acceleration("tcg", f"/dev/kvm exists, but no guest boots under it: {error}")
    return Acceleration("kvm")


def remembered(host: Host, image: Image) -> Acceleration | None:
    """Return the result of a probe of this image since a host booted; None without one."""
    machine = outside(host)
    try:
        stored = json.loads(machine.read(_cache(image)))
        return Acceleration(**stored["found"]) if stored["boot"] == machine.read(_BOOT_ID) else None
    except (TestbedError, ValueError, LookupError, TypeError):
        return None  # not probed, or probed by another version of netbench


def remember(host: Host, image: Image, result: Acceleration) -> None:
    """Store the result of a probe on a host; if that fails, the next run probes again."""
    machine, cache = outside(host), _cache(image)
    with suppress(TestbedError):
        run_checked(machine, ["mkdir", "-p", str(CACHE.parent)])
        machine.write(f"{cache}.new", json.dumps({"boot": machine.read(_BOOT_ID), "found": asdict(result)}))
        run_checked(machine, ["mv", f"{cache}.new", cache])


def _cache(image: Image) -> str:
    return f"{CACHE}.{image.digest[:12]}"

"""A virtual machine of VirtualBox as data, and the command that makes and runs it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from netbench.hosts.host_wrappers import confined

# The script that starts a guest; it is copied to the guest's machine.
SCRIPT = Path(__file__).with_name("virtualbox_guest.sh")
# I/O address and interrupt of the guest's two serial ports, as on a PC.
_CONSOLE_PORT, _AGENT_PORT = ("0x3f8", "4"), ("0x2f8", "3")
# For the guest's kernel. An emulated CPU on a busy host can be too slow for the timer check, which then panics.
KERNEL_WORDS = "console=ttyS0,115200 quiet panic=-1 no_timer_check netbench.channel=/dev/ttyS1"


@dataclass(frozen=True, slots=True)
class BridgedNic:
    """A NIC of a guest that VirtualBox bridges to an interface of its machine. `model` is virtio or 82540EM."""

    interface: str
    mac: str
    model: str


@dataclass(frozen=True, slots=True)
class BoxFiles:
    """The paths of a running guest's files on its machine."""

    directory: Path

    @property
    def script(self) -> Path:
        """SCRIPT, on the machine."""
        return self.directory / SCRIPT.name

    @property
    def pid(self) -> Path:
        """The process id of the ancestor of all its processes, as text."""
        return self.directory / "pid"

    @property
    def console(self) -> Path:
        """The output of its first serial port."""
        return self.directory / "console"

    @property
    def channel(self) -> Path:
        """The socket behind its second serial port, which its agent serves."""
        return self.directory / "agent"


@dataclass(frozen=True, slots=True)
class VirtualBoxStart:
    """A guest to be started. All its threads run on `host_cpus` (empty: any) and in the control group of `door`."""

    name: str
    nics: tuple[BridgedNic, ...] = ()
    cpus: int = 1
    memory_mib: int = 256
    cpu_cap: int = 100
    nested_paging: str = "on"
    paravirt_provider: str = "default"
    host_cpus: tuple[int, ...] = ()
    door: str = ""


def box_command(box: VirtualBoxStart, files: BoxFiles, disc: str) -> list[str]:
    """Return the foreground command that starts it from a CD image; all its processes end with the command.

    It must run in the network namespace of the interfaces that the NICs are bridged to.
    """
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    script = ["sh", str(files.script), str(files.directory), box.name, disc]
    started = confined([*apart, *script, *_options(box, files)], box.host_cpus, box.door)
    return ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(files.pid), *started]


def box_summary(box: VirtualBoxStart, files: BoxFiles, disc: str) -> str:
    """Return the same for readers: the options that the VM is made with."""
    words = " ".join(_options(box, files))
    return f"VBoxManage modifyvm {box.name} {words} && VBoxHeadless --startvm {box.name} # from {disc}"


def _options(box: VirtualBoxStart, files: BoxFiles) -> Iterator[str]:
    """Yield the options of `VBoxManage modifyvm` (VirtualBox User Manual, VBoxManage)."""
    yield from ("--memory", str(box.memory_mib), "--cpus", str(box.cpus))
    yield from ("--cpu-execution-cap", str(box.cpu_cap))
    yield from ("--nested-paging", box.nested_paging, "--paravirt-provider", box.paravirt_provider)
    yield from ("--graphicscontroller", "none", "--audio-enabled", "off", "--rtc-use-utc", "on")
    yield from ("--boot1", "dvd", "--boot2", "none", "--boot3", "none", "--boot4", "none")
    yield from ("--uart1", *_CONSOLE_PORT, "--uart-mode1", "file", str(files.console))
    yield from ("--uart2", *_AGENT_PORT, "--uart-mode2", "server", str(files.channel))
    for number, nic in enumerate(box.nics, start=1):
        yield from (f"--nic{number}", "bridged", f"--bridge-adapter{number}", nic.interface)
        yield from (f"--nic-type{number}", nic.model, f"--mac-address{number}", nic.mac.replace(":", ""))
        # Receive frames to other addresses too, as forwarding requires.
        yield from (f"--nic-promisc{number}", "allow-all")

"""A running guest under VirtualBox: its processes, and the connection to its agent."""

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from netbench.errors import TestbedError
from netbench.hosts.agent.channel import AgentChannel
from netbench.hosts.agent.host import AgentHost
from netbench.hosts.base import Completed, Host, Process, exists
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import MonitoredHost, NamespaceHost, confined, outside
from netbench.hosts.pipes import Tail, end
from netbench.hosts.relay import connect
from netbench.linux.proc import parse_process, parse_pss
from netbench.vmm.base import GuestSpec, RunningGuest
from netbench.vmm.qemu.process import LAST_WORDS_S, plain, trouble_in

# The script that starts a guest; it is copied to the guest's machine.
SCRIPT = Path(__file__).with_name("guest.sh")
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
    """A guest to be started.

    All its threads run on `host_cpus` (empty: any) and in the control group of the file `cgroup_procs`.
    """

    name: str
    nics: tuple[BridgedNic, ...] = ()
    cpus: int = 1
    memory_mib: int = 256
    cpu_cap: int = 100
    nested_paging: str = "on"
    paravirt_provider: str = "default"
    host_cpus: tuple[int, ...] = ()
    cgroup_procs: str = ""


def box_command(box: VirtualBoxStart, files: BoxFiles, disc: str) -> list[str]:
    """Return the foreground command that starts it from a CD image; all its processes end with the command.

    It must run in the network namespace of the interfaces that the NICs are bridged to.
    """
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    script = ["sh", str(files.script), str(files.directory), box.name, disc]
    started = confined([*apart, *script, *_options(box, files)], box.host_cpus, box.cgroup_procs)
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


# Each poll of a machine with an emulated CPU takes some of its CPU time.
_POLL_S = 1.0
_LOOK_AGAIN_S = 3.0
_END_S = 20.0
# A guest of VirtualBox on an emulated CPU is slow.
_QUIET_TIME_S = 0.5
# There a command takes seconds, and its output comes over a serial line.
_PATIENCE = 6


class PatientHost(AgentHost):
    """A guest whose commands may take several times as long as those of others."""

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        return super().run(argv, stdin=stdin, timeout_s=_PATIENCE * timeout_s)


class VirtualBoxGuest(RunningGuest):
    """A virtual machine, from its start to stop(), with all VirtualBox processes that serve it."""

    quiet_time_s = _QUIET_TIME_S
    process: Process

    def __init__(self, spec: GuestSpec, host: Host, box: VirtualBoxStart, disc: str, facts: Mapping[str, str]) -> None:
        super().__init__(spec)
        self._machine = outside(host)
        self._files = BoxFiles(spec.directory)
        self._facts = dict(facts)
        self._connection: AgentHost | None = None
        self._pid = 0  # of VBoxHeadless, once it is needed
        self._written = ""
        self._look_again = 0.0  # by time.monotonic()
        self._machine.write(str(self._files.script), SCRIPT.read_text())
        self.process = NamespaceHost(self._machine, spec.own_netns).spawn(box_command(box, self._files, disc))
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._output = [Tail(self.process.stderr), Tail(self.process.stdout)]

    def await_answer(self, limit_s: float) -> None:
        """Return once its agent answers; TestbedError when it does not, or as soon as it cannot any more."""
        until = time.monotonic() + limit_s
        channel = str(self._files.channel)
        if not wait_until(lambda: exists(self._machine, channel) or bool(self.death()), limit_s, _POLL_S):
            raise TestbedError(f"{self.spec.title}: VirtualBox did not start it within {limit_s:g} s")
        if death := self.death():
            raise TestbedError(death)
        self._connection = PatientHost(self.spec.name, AgentChannel(self.spec.title, connect(self._machine, channel)))
        left_s = max(0.0, until - time.monotonic())
        try:
            MonitoredHost(self._connection, self.death_just_now).await_answer(left_s, self._hopeless)
        except TestbedError as error:
            if self.death() or self._hopeless():
                raise
            last = self.console().splitlines()[-1:]
            output = f"last line of its console: {last[0]}" if last else "its console is empty"
            raise TestbedError(f"{error}; {output}") from error

    def host(self, gone: type[TestbedError] = TestbedError) -> Host:
        if self._connection is None:
            raise gone(f"{self.spec.title} was not waited for")
        return MonitoredHost(self._connection, self.death_just_now, gone)

    def death(self) -> str:
        code = self.process.poll()
        if code is None:
            return ""
        words = self._last_words()
        return f"{self.spec.title}: VirtualBox ended with exit code {code}" + (f": {words}" if words else "")

    def death_just_now(self) -> str:
        """Return `death` after a sign of it was seen: waits a moment for VirtualBox to end."""
        with suppress(subprocess.TimeoutExpired):  # it is alive
            self.process.wait(LAST_WORDS_S)
        return self.death()

    def cpu_s(self) -> float:
        """Return the CPU time of VBoxHeadless on its machine, in seconds, kernel and user (proc_pid_stat(5))."""
        try:
            return parse_process(self._of_process("stat")).cpu_s
        except (TestbedError, ValueError) as error:
            raise TestbedError(
                self.death_just_now() or f"{self.spec.title}: its CPU time cannot be read: {error}"
            ) from error

    def memory_bytes(self) -> int | None:
        try:
            return parse_pss(self._of_process("smaps_rollup"))
        except (TestbedError, ValueError):
            return None

    def console(self) -> str:
        with suppress(TestbedError):  # its machine has gone, or it was ended: keep the last output
            self._written = plain(self._machine.read(str(self._files.console)))
        return self._written

    def facts(self) -> dict[str, str]:
        return self._facts

    def stop(self) -> None:
        self.console()
        try:
            if self._connection is not None:
                self._connection.close()
        finally:
            self.process.kill()
            end(self.process, _END_S)

    def _of_process(self, file: str) -> str:
        """Return a file in the /proc directory of VBoxHeadless, unshare's first child, on its machine."""
        if not self._pid:
            top = self._machine.read(str(self._files.pid)).strip()
            self._pid = int(self._machine.read(f"/proc/{top}/task/{top}/children").split()[0])
        return self._machine.read(f"/proc/{self._pid}/{file}")

    def _hopeless(self) -> str:
        """Return why it will never answer, empty while it still may; called several times a second."""
        if death := self.death():
            return death
        if time.monotonic() > self._look_again:
            self.console()
            self._look_again = time.monotonic() + _LOOK_AGAIN_S
        trouble = trouble_in(self._written)
        return f"{self.spec.title}: {trouble}" if trouble else ""

    def _last_words(self) -> str:
        output = [line for tail in self._output for line in tail.text(LAST_WORDS_S).splitlines() if line.strip()]
        # unshare reports only that the others were killed.
        lines = [line for line in output if not line.startswith("unshare:")]
        errors = [line for line in lines if "error" in line.lower()]
        return (errors or lines[-1:] or [""])[0]

"""A guest that libvirt started: its domain, its libvirtd, and the connection to both."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from netbench.errors import MachineGoneError, TestbedError
from netbench.hosts.base import Host, Process, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import confined, outside
from netbench.hosts.local import MARK
from netbench.hosts.pipes import Tail, end
from netbench.hosts.relay import connect
from netbench.linux.proc import parse_pss
from netbench.model.interfaces import PREFIX
from netbench.vmm.base import GuestSpec
from netbench.vmm.libvirt.api import LibvirtConnection, LibvirtError
from netbench.vmm.qemu.command import RunFiles, qemu_program
from netbench.vmm.qemu.process import LAST_WORDS_S, QemuMachine

_SCRIPT, DIRECTORIES_SCRIPT = (Path(__file__).with_name(f"{name}.sh") for name in ("daemon", "directories"))
_START_S = 20.0
_LAST_WORDS_S = 1.0


def driver_sign(name: str) -> str:
    """Return the path patterns of libvirt's driver `name` in the common distributions."""
    library = f"libvirt/connection-driver/libvirt_driver_{name}.so"
    return f"/usr/lib/*/{library} /usr/lib*/{library}"


class PrivateDaemon:
    """One libvirtd, from start() to stop()."""

    def __init__(self, spec: GuestSpec) -> None:
        self._spec = spec
        self._script = _SCRIPT  # its path on the host
        self._process: Process | None = None
        self._complaint: Tail | None = None

    @property
    def uri(self) -> str:
        """The URI of its QEMU driver."""
        return f"qemu+unix:///system?socket={self._socket}"

    @property
    def command(self) -> list[str]:
        """The command that runs it, in its own mount and PID namespaces, on the guest's CPUs."""
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return confined(
            [*apart, "sh", str(self._script), str(self._spec.directory)], self._spec.host_cpus, self._spec.cgroup_procs
        )

    @property
    def _socket(self) -> Path:
        return self._spec.directory / "libvirt-sock"

    def start(self, host: Host) -> None:
        """Start it; TestbedError, with its last output, when it does not listen."""
        self._host = host
        if not host.shares_files:
            self._script = self._spec.directory / _SCRIPT.name
            for script in (_SCRIPT, DIRECTORIES_SCRIPT):
                host.write(str(self._spec.directory / script.name), script.read_text())
        self._process = host.spawn(self.command)
        assert self._process.stderr is not None
        self._complaint = Tail(self._process.stderr)
        if not wait_until(lambda: self._listens() or bool(self.death()), _START_S) or self.death():
            raise TestbedError(self.death() or f"{self._spec.title}: its libvirtd does not listen after {_START_S:g} s")

    def _listens(self) -> bool:
        """Return whether it accepts connections; the socket file appears a moment earlier."""
        try:
            connect(self._host, str(self._socket)).close()
        except TestbedError:
            return False
        return True

    def death(self) -> str:
        """Return how it ended, with its last output; empty while it runs."""
        code = self._process.poll() if self._process else None
        if code is None or self._complaint is None:
            return ""
        words = [line for line in self._complaint.text(_LAST_WORDS_S).splitlines() if line]
        return f"{self._spec.title}: its libvirtd ended with exit code {code}" + (f": {words[-1]}" if words else "")

    def stop(self) -> None:
        """End it and its domain; harmless when it has ended."""
        if self._process:
            self._process.kill()
            end(self._process, _START_S)
            self._process = None


# Returns a domain's XML for a libvirtd and a run id.
Define = Callable[[LibvirtConnection, str], str]

_END_S = 5.0
_LOGS = Path("/var/log/libvirt")
# Prints the processes with the first line of stdin in their environment and the second line in their command.
_FIND = r"""
read -r mark; read -r name
for process in $(printf %s "$name" | grep -lsaF -f - /proc/[0-9]*/cmdline); do
    process=${process%/cmdline}
    if tr '\0' '\n' <"$process/environ" | grep -qxF -e "$mark"; then echo "${process#/proc/}"; fi
done 2>/dev/null
"""


class LibvirtDomain(QemuMachine):
    """One transient domain, from start() to stop(), of the libvirtd at `uri`, or else of a private one.

    `define` returns its XML for a run id.
    """

    def __init__(self, spec: GuestSpec, uri: str | None, define: Define) -> None:
        super().__init__(spec.name, RunFiles(spec.directory))
        self._spec = spec
        self._uri = uri
        self._define = define
        self._daemon = PrivateDaemon(spec) if uri is None else None
        self._libvirt: LibvirtConnection | None = None
        self._domain: Any = None  # libvirt's bindings have no types
        self._resumed = False
        self._run_id = ""

    def start(self, host: Host) -> None:
        """Start the domain; TestbedError, with libvirt's message, when that fails."""
        self._host, self._run_id = host, run_checked(host, ["printenv", MARK]).strip()
        if self._daemon:
            self._daemon.start(host)
        self._libvirt = LibvirtConnection(self.guest, self._daemon.uri if self._daemon else self._uri or "", host)
        try:
            self._domain = self._libvirt.create(self._define(self._libvirt, self._run_id))
        except LibvirtError as error:
            if self._daemon is None and self._spec.netns and self._libvirt.may_lack_nics(error):
                remedy = f"if that libvirtd is outside namespace {self._spec.netns}, leave out uri to start one there"
                raise TestbedError(f"{error}; {remedy}") from error
            raise
        if self._spec.cgroup_procs and self._daemon is None:
            for pid in self._processes():
                host.write(self._spec.cgroup_procs, str(pid))
        with self.connected(self._files.console, "console") as console:
            self.read_console(console)
        self._libvirt.resume(self._domain)
        self._resumed = True

    def query_agent(self, command: str, timeout_s: float) -> str:
        """Return the answer of QEMU's guest agent in it; TestbedError without an answer."""
        if self._libvirt is None or self._domain is None:
            raise TestbedError(f"{self.guest} is not started")
        return self._libvirt.query_agent(self._domain, command, timeout_s)

    def version(self) -> str:
        """The version of the libvirtd."""
        assert self._libvirt is not None, "start() comes first"
        return self._libvirt.version()

    def death(self) -> str:
        return self.trouble()

    def death_just_now(self) -> str:
        wait_until(lambda: bool(self.death()), LAST_WORDS_S)
        return self.death()

    def trouble(self) -> str:
        if self._libvirt is None or self._domain is None:
            return f"{self.guest} is not started"
        try:
            state = self._libvirt.state(self._domain, resumed=self._resumed)
        except TestbedError as error:
            return (self._daemon.death() if self._daemon else "") or str(error)
        words = self._words_of_qemu() if state else ""
        return f"{self.guest}: {state}" + (f" ({words})" if words else "") if state else ""

    def cpu_s(self) -> float:
        self.require_alive()
        assert self._libvirt is not None
        return self._libvirt.cpu_s(self._domain)

    def memory_bytes(self) -> int | None:
        running = self._processes()
        try:
            return parse_pss(self._machine.read(f"/proc/{running[0]}/smaps_rollup")) if running else None
        except (TestbedError, ValueError):  # it is ending
            return None

    def stop(self) -> None:
        """End the domain, and then the libvirtd that was started for it."""
        libvirt, domain, self._libvirt, self._domain = self._libvirt, self._domain, None, None
        for undo in (domain and libvirt and (lambda: libvirt.destroy(domain)), libvirt and libvirt.close):
            if undo:
                with suppress(TestbedError):  # the domain or its daemon has ended
                    undo()
        if self._daemon:
            self._daemon.stop()
        if self._run_id:
            with suppress(MachineGoneError):  # it is gone with its machine
                wait_until(lambda: not self._killed(), _END_S)

    def _killed(self) -> bool:
        """Kill its QEMU if its daemon died without ending it; return whether it was still there."""
        pids = self._processes()
        if pids:
            self._machine.run(["sh", "-c", 'kill -KILL "$@"', "sh", *map(str, pids)])  # it may be ending already
        return bool(pids)

    def _processes(self) -> list[int]:
        """Return the ids of its QEMU processes, found by the name that libvirt gives them."""
        words = f"{MARK}={self._run_id}\nguest={domain_name(self._spec)},\n"
        return [int(pid) for pid in self._machine.run(["sh", "-c", _FIND], stdin=words).stdout.split()]

    @property
    def _machine(self) -> Host:
        assert self._host is not None, "start() comes first"
        return outside(self._host)

    def _words_of_qemu(self) -> str:
        """Return the last line from QEMU itself in the log that libvirt writes."""
        logs = self._files.directory / "var/log" if self._daemon else _LOGS
        with suppress(TestbedError, UnicodeDecodeError):  # there is no log here
            lines = self._machine.read(str(logs / f"qemu/{domain_name(self._spec)}.log")).splitlines()
            return next((line for line in reversed(lines) if line.startswith(qemu_program())), "")
        return ""

    def _console_ends(self) -> bool:
        return self._domain is None


def domain_name(spec: GuestSpec) -> str:
    """Return the name of a guest's domain, unique among guests."""
    return f"{PREFIX}{spec.directory.name}"

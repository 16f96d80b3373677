"""A guest that libvirt started: its domain, its libvirtd, and the connection to both.

The XML of netbench's own domains (https://libvirt.org/formatdomain.html) is made by templates.
"""

import platform
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from netbench.errors import MachineGoneError, MissingError, TestbedError
from netbench.hosts.base import Host, Process, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import confined
from netbench.hosts.local import MARK
from netbench.hosts.pipes import Tail, end
from netbench.hosts.relay import connect
from netbench.hosts.trusted_code import search_path
from netbench.model.paths import PREFIX
from netbench.vmm.base import ISOLATED, GuestSpec
from netbench.vmm.connected_guest import LAST_WORDS_S
from netbench.vmm.libvirt.api import LibvirtConnection, LibvirtError, libvirt_module, own_uuid
from netbench.vmm.qemu.command import (
    AGENT_PORT,
    KernelBoot,
    RunFiles,
    VirtualMachine,
    board,
    kernel_words,
    qemu_program,
)
from netbench.vmm.qemu.options import Pinning
from netbench.vmm.qemu.process import QemuVm

_SCRIPT, DIRECTORIES_SCRIPT = (Path(__file__).with_name(f"{name}.sh") for name in ("daemon", "directories"))
_START_S = 20.0
_LIBRARIES = Path("/usr/lib")


def driver_sign(name: str) -> str:
    """Return the path patterns of libvirt's driver `name` in the common distributions."""
    library = f"libvirt/connection-driver/libvirt_driver_{name}.so"
    return f"/usr/lib/*/{library} /usr/lib*/{library}"


def find_libvirtd(driver: str, tools: Sequence[str], problem: str, _: str) -> str:
    """Return the path of libvirtd; MissingError, with this problem, without it, its driver, or one of these tools."""
    daemon, *others = (shutil.which(name, path=search_path()) for name in ("libvirtd", *tools))
    library = f"*/libvirt/connection-driver/libvirt_driver_{driver}.so"
    if daemon is None or None in others or not any(_LIBRARIES.glob(library)):
        raise MissingError(f"this host lacks {problem}")
    return daemon


class PrivateDaemon:
    """One libvirtd for a guest, from start() to stop()."""

    def __init__(self, spec: GuestSpec) -> None:
        self._spec = spec
        self._socket = str(spec.directory / "libvirt-sock")
        self._process: Process | None = None
        self._complaint: Tail | None = None

    @property
    def uri(self) -> str:
        """The URI of its QEMU driver."""
        return f"qemu+unix:///system?socket={self._socket}"

    def command(self, script: str = str(_SCRIPT)) -> list[str]:
        """Return the command that runs it on the guest's CPUs, by the script at this path."""
        daemon = [*ISOLATED, "sh", script, str(self._spec.directory)]
        return confined(daemon, self._spec.host_cpus, self._spec.cgroup_procs)

    def start(self, host: Host) -> None:
        """Start it; TestbedError, with its last output, when it does not listen."""
        script, _ = (host.share(file, str(self._spec.directory)) for file in (_SCRIPT, DIRECTORIES_SCRIPT))
        self._process = host.spawn(self.command(script))
        assert self._process.stderr is not None
        self._complaint = Tail(self._process.stderr)

        def listens() -> bool:
            """Return whether it accepts connections; the socket file appears a moment earlier."""
            try:
                connect(host, self._socket).close()
            except TestbedError:
                return False
            return True

        if not wait_until(lambda: listens() or bool(self.death()), _START_S) or self.death():
            raise TestbedError(self.death() or f"{self._spec.title}: its libvirtd does not listen after {_START_S:g} s")

    def death(self) -> str:
        """Return how it ended, with its last output; empty while it runs."""
        code = self._process.poll() if self._process else None
        if code is None or self._complaint is None:
            return ""
        words = [line for line in self._complaint.text(LAST_WORDS_S).splitlines() if line]
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


class LibvirtGuest(QemuVm):
    """One transient domain, from start() to stop(), of the libvirtd at `uri`, or else of a private one."""

    def __init__(self, spec: GuestSpec, uri: str | None, host: Host) -> None:
        super().__init__(spec, host)
        self._uri = uri
        self._daemon = PrivateDaemon(spec) if uri is None else None
        self._libvirt: LibvirtConnection | None = None
        self._domain: Any = None  # libvirt's bindings have no types
        self._resumed = False
        self._run_id = ""

    def start(self, define: Define) -> None:
        """Start the domain that `define` returns; TestbedError, with libvirt's message, when that fails."""
        self._run_id = run_checked(self._host, ["printenv", MARK]).strip()
        if self._daemon:
            self._daemon.start(self._host)
        uri = self._daemon.uri if self._daemon else self._uri or ""
        self._libvirt = LibvirtConnection(self.spec.title, uri, self._host)
        try:
            self._domain = self._libvirt.create(define(self._libvirt, self._run_id))
        except LibvirtError as error:
            # Libvirt's code if its daemon does not see the NICs (qemuInterfaceConnect).
            lacks_nics = error.code == self._libvirt.api.VIR_ERR_INTERNAL_ERROR
            if self._daemon is None and self.spec.netns and lacks_nics:
                remedy = f"if that libvirtd is outside namespace {self.spec.netns}, leave out uri to start one there"
                raise TestbedError(f"{error}; {remedy}") from error
            raise
        if self.spec.cgroup_procs and self._daemon is None:
            for pid in self._processes():
                self._host.write(self.spec.cgroup_procs, str(pid))
        with self._connected("console") as console:
            self._console = Tail(console)
        self._libvirt.call("libvirt cannot resume its domain", self._domain.resume)
        self._resumed = True

    def query_agent(self, command: str, timeout_s: float) -> str:
        """Return the answer of QEMU's guest agent in it, through libvirt; TestbedError without an answer in 20 s."""
        query = libvirt_module("libvirt_qemu").qemuAgentCommand  # also of libvirt's bindings
        domain, seconds = self._domain, max(1, round(timeout_s))
        answer: str = self._started.call("its guest agent", lambda: query(domain, command, seconds, 0))
        return answer

    def version(self) -> str:
        """Return the version of the libvirtd."""
        return self._started.version()

    def death(self) -> str:
        if self._libvirt is None or self._domain is None:
            return f"{self.spec.title} is not started"
        try:
            state = self._libvirt.state(self._domain, resumed=self._resumed)
        except TestbedError as error:
            return (self._daemon.death() if self._daemon else "") or str(error)
        words = self._words_of_qemu() if state else ""
        return f"{self.spec.title}: {state}" + (f" ({words})" if words else "") if state else ""

    def cpu_s(self) -> float:
        """Return the CPU time in seconds of all threads of its QEMU, kernel and user (virDomainGetInfo)."""
        if death := self.death():
            raise TestbedError(death)
        nanoseconds: int = self._started.call("libvirt does not report its CPU time", lambda: self._domain.info()[4])
        return nanoseconds / 1e9

    def stop(self) -> None:
        """End the domain, and then the libvirtd that was started for it."""
        try:
            super().stop()
        finally:
            libvirt, domain, self._libvirt, self._domain = self._libvirt, self._domain, None, None
            if libvirt:
                with suppress(TestbedError):  # the domain has ended
                    if domain:
                        libvirt.call("libvirt cannot end its domain", domain.destroy)
                with suppress(TestbedError):  # the daemon has ended
                    libvirt.close()
            if self._daemon:
                self._daemon.stop()
            if self._run_id:
                with suppress(MachineGoneError):  # it is gone with its machine
                    wait_until(lambda: not self._killed(), _END_S)

    @property
    def _started(self) -> LibvirtConnection:
        if self._libvirt is None:
            raise TestbedError(f"{self.spec.title} is not started")
        return self._libvirt

    @property
    def _pid(self) -> int:
        return next(iter(self._processes()), 0)

    @property
    def _is_over(self) -> bool:
        return self._domain is None

    def _killed(self) -> bool:
        """Kill its QEMU if its daemon died without ending it; return whether it was still there."""
        pids = self._processes()
        if pids:
            self._machine.run(["sh", "-c", 'kill -KILL "$@"', "sh", *map(str, pids)])  # it may be ending already
        return bool(pids)

    def _processes(self) -> list[int]:
        """Return the ids of its QEMU processes, found by the name that libvirt gives them."""
        words = f"{MARK}={self._run_id}\nguest={domain_name(self.spec)},\n"
        return [int(pid) for pid in self._machine.run(["sh", "-c", _FIND], stdin=words).stdout.split()]

    def _words_of_qemu(self) -> str:
        """Return the last line from QEMU itself in the log that libvirt writes."""
        logs = self.files.directory / "var/log" if self._daemon else _LOGS
        with suppress(TestbedError, UnicodeDecodeError):  # there is no log here
            lines = self._machine.read(str(logs / f"qemu/{domain_name(self.spec)}.log")).splitlines()
            return next((line for line in reversed(lines) if line.startswith(qemu_program())), "")
        return ""


def domain_name(spec: GuestSpec) -> str:
    """Return the name of a guest's domain, unique among guests."""
    return f"{PREFIX}{spec.directory.name}"


_CPU_MODES = {"kvm": "host-passthrough", "tcg": "maximum"}


def render_xml(template: Path, **values: object) -> str:
    """Return the text of a template; values are escaped."""
    environment = Environment(
        loader=FileSystemLoader(template.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["text"] = lambda value: Markup(escape(str(value)))  # keeps quotes, as text may
    return environment.get_template(template.name).render(values)


def domain_xml(
    name: str, machine: VirtualMachine, files: RunFiles, pin: Pinning, run_id: str, emulator: str = ""
) -> str:
    """Return the XML of the transient domain `name` for this machine; its QEMU is marked as a process of the run.

    Threads that `pin` does not name run on the machine's host_cpus. `emulator` is the path of QEMU; empty: the path on
    this machine.
    """
    assert isinstance(machine.boot, KernelBoot), "its options refuse disks"
    named = [*pin.vcpus, *((),) * machine.cpus][: machine.cpus]
    return render_xml(
        Path(__file__).with_name("domain.xml.j2"),
        name=name,
        uuid=own_uuid(name),
        machine=machine,
        pins=[(number, cpus or machine.host_cpus) for number, cpus in enumerate(named) if cpus or machine.host_cpus],
        io_cpus=pin.io or machine.host_cpus,
        architecture=platform.machine(),
        board=board(),
        kernel_words=kernel_words(),
        cpu_mode=_CPU_MODES.get(machine.accelerator, "CPU"),
        emulator=emulator or shutil.which(qemu_program(), path=search_path()) or qemu_program(),
        files=files,
        agent_port=AGENT_PORT,
        mark=MARK,
        run_id=run_id,
    )
